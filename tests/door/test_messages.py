"""Messages that others stored, as gRPC's clients get them."""

import pytest

from rmq.client.shared.message import Message, ReceivedMessage
from rmq.grpc.messages import written
from rmq.grpc.schema import v2
from rmq.testing import LocalBroker


@pytest.mark.parametrize("born_ms", [-(1 << 63), -1, (1 << 63) - 1])
@pytest.mark.parametrize("timer", ["", "abc", "9" * 18, "\u0663"])
async def test_times_that_are_none(born_ms: int, timer: str) -> None:
    """Whoever sends says when it was; and stores of Apache RocketMQ may hold anything. One such message must not keep a group
    from the others."""
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T")
        sent = await client.producer().send(Message("T", b"x"))
        async with client.simple_consumer("g", "T", start="first") as consumer:
            (message,) = await consumer.receive(wait_seconds=10)
    assert message.message_id == sent.message_id
    properties = message.stored.properties + f"TIMER_OUT_MS\x01{timer}\x02".encode() if timer else message.stored.properties
    odd = ReceivedMessage(message.stored._replace(born_timestamp=born_ms, properties=properties), message.queue)
    found = v2.Message.FromString(written(odd).SerializeToString())
    assert (found.body, found.system_properties.message_id) == (b"x", sent.message_id)
    assert 0 <= found.system_properties.born_timestamp.ToMilliseconds() <= 253_402_300_799_999
