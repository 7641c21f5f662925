"""Requests changed by chance (S6): each is answered, none is logged as an error of ours, and the next client is served."""

import asyncio
import logging
import random
from typing import Any

import grpc.aio
import pytest

from rmq.grpc.schema import v2
from rmq.grpc.service import SERVICE
from rmq.testing import LocalBroker
from tests.door.caller import Caller, door, handle_of, ms, publishing, subscribing

Code = v2.Code
_COUNT = 1_500
T, G = v2.Resource(name="T"), v2.Resource(name="g")


def same(data: bytes) -> bytes:
    return data


def examples(handle: str, transaction: str) -> dict[str, Any]:
    """One of each kind, as a client sends it."""
    system = v2.SystemProperties(message_id="A" * 32, message_type=v2.MessageType.NORMAL, tag="t", keys=["k"])
    message = v2.Message(topic=T, body=b"x" * 50, system_properties=system, user_properties={"a": "b"})
    receipt = {"group": G, "topic": T, "receipt_handle": handle, "message_id": "m"}
    tags = v2.FilterExpression(type=v2.FilterType.TAG, expression="*")
    queue, hidden = v2.MessageQueue(topic=T, id=-1), ms(60_000)
    return {
        "QueryRoute": v2.QueryRouteRequest(topic=T),
        "Heartbeat": v2.HeartbeatRequest(group=G),
        "SendMessage": v2.SendMessageRequest(messages=[message, message]),
        "QueryAssignment": v2.QueryAssignmentRequest(topic=T, group=G),
        "AckMessage": v2.AckMessageRequest(group=G, topic=T, entries=[v2.AckMessageEntry(receipt_handle=handle)]),
        "ForwardMessageToDeadLetterQueue": v2.ForwardMessageToDeadLetterQueueRequest(**receipt),
        "EndTransaction": v2.EndTransactionRequest(topic=T, transaction_id=transaction, resolution=1, source=1),
        "NotifyClientTermination": v2.NotifyClientTerminationRequest(group=G),
        "ChangeInvisibleDuration": v2.ChangeInvisibleDurationRequest(**receipt, invisible_duration=hidden),
        "RecallMessage": v2.RecallMessageRequest(topic=T, recall_handle="x"),
        "SyncLiteSubscription": v2.SyncLiteSubscriptionRequest(action=1, topic=T, group=G, lite_topic_set=["a"]),
        "ReceiveMessage": v2.ReceiveMessageRequest(
            group=G,
            message_queue=queue,
            filter_expression=tags,
            batch_size=8,
            invisible_duration=hidden,
            long_polling_timeout=ms(0),
        ),
        "Telemetry": v2.TelemetryCommand(settings=subscribing("g", "T")),
    }


def changed(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        at, how = chance.randrange(len(found) or 1), chance.randrange(4)
        if how == 0:
            found[at : at + 1] = chance.randbytes(1)
        elif how == 1:
            del found[at : at + chance.randrange(1, 6)]
        elif how == 2:
            found[at:at] = chance.randbytes(chance.randrange(1, 6))
        else:
            begin = chance.randrange(len(found) or 1)
            found[at:at] = found[begin : begin + chance.randrange(1, 20)]
    return bytes(found)


class Stranger:
    """Sends bytes to the methods of the service."""

    def __init__(self, port: int) -> None:
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")

    async def code(self, name: str, data: bytes) -> int:
        """Of what is answered first; 0: nothing."""
        kinds = {"request_serializer": same, "response_deserializer": same}
        metadata = (("x-mq-client-id", "stranger"),)
        if name == "Telemetry":
            stream = self.channel.stream_stream(f"/{SERVICE}/{name}", **kinds)(metadata=metadata, timeout=20)
            await stream.write(data)
            await stream.done_writing()
            first = await stream.read()
            return 0 if first is grpc.aio.EOF else int(v2.TelemetryCommand.FromString(first).status.code)
        if name == "ReceiveMessage":
            codes = [
                v2.ReceiveMessageResponse.FromString(part).status.code
                async for part in self.channel.unary_stream(f"/{SERVICE}/{name}", **kinds)(data, metadata=metadata, timeout=20)
            ]
            return int(codes[0])
        answer = await self.channel.unary_unary(f"/{SERVICE}/{name}", **kinds)(data, metadata=metadata, timeout=20)
        return int(getattr(v2, f"{name}Response").FromString(answer).status.code)


@pytest.mark.parametrize("seed", range(2))
async def test_requests_changed_by_chance(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance, most = random.Random(seed), asyncio.Semaphore(16)
    async with LocalBroker(recall_messages=True) as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T")
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        half = await caller.send("T", b"half", v2.MessageType.TRANSACTION)
        await caller.send("T", b"x")
        _, (message,) = await caller.receive("g", "T")
        samples = examples(handle_of(message), half.transaction_id)
        stranger = Stranger(port)

        async def ask(name: str, data: bytes) -> int:
            async with most:
                return await stranger.code(name, data)

        names = [chance.choice([*samples]) for _ in range(_COUNT)]
        asked = [(name, changed(samples[name].SerializeToString(), chance)) for name in names]
        codes = await asyncio.gather(*(ask(*one) for one in asked))
        await stranger.channel.close()
        assert {Code.OK, Code.BAD_REQUEST, Code.INVALID_RECEIPT_HANDLE} <= {*codes}
        assert (await caller.send("T", b"x")).status.code == Code.OK
        async with caller.telemetry(publishing("T")) as (_, answer):
            assert answer.status.code == Code.OK
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
