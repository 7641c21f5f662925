"""What one door keeps of its clients, at most."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from rmq.grpc import receiving, service
from rmq.grpc.door import MOST_ENTRIES
from rmq.grpc.messages import MOST_WORDS
from rmq.grpc.schema import v2
from rmq.grpc.telemetry import MOST_TOPICS, MOST_WAITING, MOST_WAITING_BYTES, Stream, Waiting
from rmq.net.commands.pop import PollingInfo
from rmq.testing import LocalBroker
from tests.broker.support import Peer
from tests.door.caller import Caller, door, ms, publishing, subscribing

FULL = grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker() as broker:
        await broker.create_topic("T")
        yield broker


async def test_a_request_that_is_too_large(broker: LocalBroker) -> None:
    async with door(broker) as port, Caller(port) as caller:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await caller.send("T", bytes(service.MAX_REQUEST_BYTES))
        assert refused.value.code() == FULL
        assert (await caller.send("T", b"x")).status.code == v2.Code.OK


async def test_more_entries_than_a_request_may_have(broker: LocalBroker) -> None:
    """1.2 million short receipts fit a request: it took 2.7 GB, and nobody else was served for 15 s."""
    most = MOST_ENTRIES
    async with door(broker) as port, Caller(port) as caller:
        where = {"group": v2.Resource(name="g"), "topic": v2.Resource(name="T")}
        message = v2.Message(topic=v2.Resource(name="T"))
        for count, answered, code in ((most, most, v2.Code.INVALID_RECEIPT_HANDLE), (most + 1, 0, v2.Code.BAD_REQUEST)):
            answer = await caller.ask("AckMessage", entries=[v2.AckMessageEntry(receipt_handle="x")] * count, **where)
            assert (answer.status.code, len(answer.entries)) == (code, answered)
        for count, answered, code in ((most, most, v2.Code.MESSAGE_BODY_EMPTY), (most + 1, 0, v2.Code.BAD_REQUEST)):
            answer = await caller.ask("SendMessage", messages=[message] * count)
            assert (answer.status.code, len(answer.entries)) == (code, answered)


async def test_more_words_than_a_message_or_a_client_may_have(broker: LocalBroker) -> None:
    """Two million topics fit into the settings of a client, a million properties into a message: nobody else was served for 3 to
    6 s."""
    topic, keys = v2.Resource(name="T"), v2.SystemProperties(keys=["k"] * (MOST_WORDS + 1))
    async with door(broker) as port, Caller(port) as caller:
        for message in (
            v2.Message(topic=topic, body=b"x", user_properties={str(at): "1" for at in range(MOST_WORDS + 1)}),
            v2.Message(topic=topic, body=b"x", system_properties=keys),
        ):
            answer = await caller.ask("SendMessage", messages=[message])
            assert answer.status.code == v2.Code.MESSAGE_PROPERTIES_TOO_LARGE
        for said in (publishing(*["T"] * (MOST_TOPICS + 1)), subscribing("g", *["T"] * (MOST_TOPICS + 1))):
            async with caller.telemetry(said) as (_, answer):
                assert answer.status.code == v2.Code.BAD_REQUEST
        async with caller.telemetry(publishing(*["T"] * MOST_TOPICS)) as (_, answer):
            assert answer.status.code == v2.Code.OK


LONG = "x" * (3 << 20)


@pytest.mark.parametrize("what", ["attempt", "expression", "topic", "transaction"])
async def test_a_field_that_no_node_takes_is_refused_and_disturbs_nobody(broker: LocalBroker, what: str) -> None:
    """It ended the door's connection to the node, and with it all that the other clients had asked there."""
    async with door(broker) as port, Caller(port, "a") as caller, Caller(port, "b") as other:
        waiting = asyncio.create_task(caller.receive("g", "T", long_polling_timeout=ms(15_000)))
        held = await Peer.connect(broker.address)
        while not (await held.ask(PollingInfo("g", "T", -1))).polling_num:
            await asyncio.sleep(0)
        if what == "attempt":
            code, _ = await other.receive("g", "T", attempt_id=LONG)
        elif what == "expression":
            code, _ = await other.receive("g", "T", filter_expression=v2.FilterExpression(expression=LONG))
        elif what == "topic":
            code = (await other.ask("QueryRoute", topic=v2.Resource(name=LONG), endpoints=other.endpoints)).status.code
        else:
            end = {"topic": v2.Resource(name="T"), "transaction_id": f"0 0 broker-a {LONG}", "message_id": "m", "resolution": 1}
            code = (await other.ask("EndTransaction", **end)).status.code
        assert code == v2.Code.BAD_REQUEST
        await other.send("T", b"x")
        assert [one.body for one in (await waiting)[1]] == [b"x"]
        await held.close()


async def test_more_requests_than_a_door_takes(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_REQUESTS", 2)
    async with door(broker) as port, Caller(port) as caller:
        waiting = [asyncio.create_task(caller.receive("g", "T", long_polling_timeout=ms(3_000))) for _ in range(4)]
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        codes = [end.code() for end in ended if isinstance(end, grpc.aio.AioRpcError)]
        assert codes == [FULL] * 2
        assert (await caller.send("T", b"x")).status.code == v2.Code.OK


async def test_so_many_messages_are_kept_hidden(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "MAX_KEPT", 1)
    async with door(broker) as port, Caller(port) as caller, caller.telemetry(subscribing("g", "T")):
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        taken = 0
        for body in (b"1", b"2"):
            await caller.send("T", body)
            taken += len((await caller.receive("g", "T", auto_renew=True))[1])
        assert taken == 2
        for _ in range(3):
            await broker.clock.advance(46)
        found: set[bytes] = set()
        while not found:
            _, some = await caller.receive("g", "T", long_polling_timeout=ms(1_000))
            found |= {message.body for message in some}
        assert found == {b"2"}


async def test_what_waits_for_a_client_that_does_not_read() -> None:
    """Brokers ask its producer after open transactions, with the whole message each time: a thousand of 1 MiB were kept."""

    def question(size: int) -> Any:
        asked = v2.RecoverOrphanedTransactionCommand(message=v2.Message(body=bytes(size)))
        return v2.TelemetryCommand(recover_orphaned_transaction_command=asked)

    waiting = Waiting()
    stream, most = Stream("c", waiting), MOST_WAITING_BYTES >> 20
    assert [stream.tell(question(1 << 20)) for _ in range(most + 2)] == [True] * (most - 1) + [False] * 3
    for _ in range(most - 1):
        await stream.next()
    assert stream.tell(question(2 * MOST_WAITING_BYTES)), "one that is larger has room alone"
    assert not stream.tell(question(1))
    await stream.next()
    assert [stream.tell(question(1)) for _ in range(MOST_WAITING + 1)] == [True] * MOST_WAITING + [False]
    stream.gone()
    assert waiting.size == 0
    large, streams = question((8 << 20) - 100), [Stream(str(at), waiting) for at in range(33)]
    assert [each.tell(large) for each in streams] == [True] * 32 + [False], "all together have an end, too"
    streams[0].gone()
    assert streams[-1].tell(large)
