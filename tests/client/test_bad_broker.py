"""The client against a broker that is damaged, confused or hostile: nothing damaged is delivered, nothing spins, no task ends."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from rmq.client import Message, ReceivedMessage
from rmq.client.consumer.simple import SimpleConsumer
from rmq.client.producer import transactions
from rmq.client.producer.transactions import UNKNOWN, Decision
from rmq.client.shared.reading import PullReader, read, read_all
from rmq.codes import ResponseCode as R
from rmq.errors import OUTCOME_UNKNOWN, BadBytes, Refusal, Unknown
from rmq.log.records import record
from rmq.model import MessageQueue
from rmq.net.commands import GetMinOffset, Heartbeat, OffsetAnswer, Pull, PullAnswer, Send, SendAnswer
from rmq.net.commands.pop import Pop, PopAnswer
from rmq.net.commands.transactions import CheckTransactionState
from rmq.net.transport.server import Call
from rmq.testing import TestClock, until
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, refuse

QUEUE = MessageQueue("T", "a", 0)
Fault = Callable[[Any, Call], None]


def stored(number: int, body: bytes = b"body", **properties: str) -> bytes:
    """As a broker has it, number `number` of its queue."""
    draft = bytearray(record.draft("T", body, record.properties_to_bytes(properties), born_timestamp=1, born_host=bytes(8)))
    record.stamp(draft, [(0, [len(draft)], 0, number)], number * 1000, bytes(8) + bytes(8))
    return bytes(draft)


def damaged(good: bytes, at: bytes, change: bytes) -> bytes:
    assert good.count(at) == 1
    return good.replace(at, change)


def answer(*messages: bytes, end: int = -1, status: int = 0) -> PullAnswer:
    return PullAnswer(len(messages) if end < 0 else end, 0, 100, b"".join(messages), status)


def says(given: PullAnswer) -> Fault:
    return lambda request, call: call.answer(given)


def test_a_damaged_body_is_not_read() -> None:
    bad = damaged(stored(1, b"precious"), b"precious", b"prebious")
    with pytest.raises(BadBytes, match="damaged body"):
        read_all(bad)
    found = read(stored(0) + bad)
    assert next(found).stored.queue_offset == 0
    with pytest.raises(BadBytes, match="damaged body"):
        next(found)


def test_a_record_that_differs_from_its_checksum_is_asked_for_once_more() -> None:
    """The body is right, a key is not. RocketMQ may store the checksum of another record in one: what comes twice is taken."""
    reader, bad = PullReader(QUEUE), damaged(stored(1, KEYS="right"), b"right", b"wrong")
    pulled = reader.read(answer(stored(0), bad, stored(2)), 0)
    assert ([each.queue_offset for each in pulled.messages], pulled.next_offset) == ([0], 1)
    again = reader.read(answer(bad, stored(2), end=3), 1)
    assert ([each.queue_offset for each in again.messages], again.next_offset) == ([1, 2], 3)
    fresh = PullReader(QUEUE)
    with pytest.raises(BadBytes, match="once more"):
        fresh.read(answer(bad, end=2), 1)
    assert fresh.read(answer(stored(1, KEYS="right"), end=2), 1).messages, "it was the line"


@pytest.mark.parametrize(
    "given",
    [
        answer(end=5),
        answer(stored(3), end=6),
        answer(stored(9), end=6),
        answer(stored(5).replace(b"\x01T", b"\x01U"), end=6),
        answer(stored(5)[:-1], end=6),
        answer(stored(5) + b"\0", end=6)._replace(messages=b"\0" * 91),
        answer(b"", end=3, status=R.PULL_NOT_FOUND),
        answer(b"", end=4, status=R.PULL_RETRY_IMMEDIATELY),
        answer(b"", end=-1, status=R.PULL_OFFSET_MOVED)._replace(next_begin_offset=-7),
    ],
)
def test_answers_that_cannot_be(given: PullAnswer) -> None:
    with pytest.raises(BadBytes):
        PullReader(QUEUE).read(given, 5)


def test_numbers_come_once_and_rising() -> None:
    pulled = PullReader(QUEUE).read(answer(stored(5), stored(5), stored(6), end=7), 5)
    assert [each.queue_offset for each in pulled.messages] == [5]


async def test_what_is_damaged_is_pulled_again_and_never_delivered(broker: Broker, make_client: MakeClient) -> None:
    broker.topics["T"] = 1
    broker.put("T", 0, 3)
    good = b"".join(broker.queues["T", 0])
    bad = bytearray(good)
    bad[good.index(b"\x011\x01T") + 1] ^= 0xFF  # the body of the second
    broker.faults[Pull] = [says(PullAnswer(3, 0, 3, bytes(bad)))] * 4 + [says(PullAnswer(3, 0, 3))] * 2
    found = []
    async with make_client().consumer("g", ["T"], start="first") as consumer:
        while len(found) < 3:
            found += [message.body for message in await consumer.receive(10, timeout=30)]
            await consumer.commit()
    assert found == [b"0", b"1", b"2"]


async def test_instant_nothing_is_asked_for_less_and_less_often(broker: Broker, make_client: MakeClient) -> None:
    """Not 25 000 times a second."""
    clock = TestClock(running=False)
    nothing = says(PullAnswer(0, 0, 0, b"", R.PULL_NOT_FOUND))
    broker.faults[Pull] = [nothing] * 100_000
    client = make_client(clock=clock)
    async with client.consumer("g", ["T"]):
        await clock.advance_until(lambda: len(broker.seen(Pull)) > 20, 0.1)
        before = len(broker.seen(Pull))
        await clock.advance(30)
        assert len(broker.seen(Pull)) - before <= 2 * 40, "two queues, 30 s"
        broker.faults[Pull].clear()
        broker.put("T", 0, 1)
        await clock.advance_until(lambda: broker.address in client.session.connections.waiting(), 0.5)


async def test_a_start_below_0_is_asked_for_again(broker: Broker, make_client: MakeClient) -> None:
    broker.put("T", 0, 1)
    broker.faults[GetMinOffset] = [lambda request, call: call.answer(OffsetAnswer(-5))] * 2
    async with make_client().consumer("g", ["T"], start="first") as consumer:
        assert [message.body for message in await consumer.receive(1, timeout=30)] == [b"0"]


async def test_no_task_ends_whatever_comes(broker: Broker, make_client: MakeClient, caplog: pytest.LogCaptureFixture) -> None:
    broker.topics["T"] = 1
    broker.put("T", 0, 1)
    odd = [
        PullAnswer(1, 0, 1),
        PullAnswer(5, 0, 1, b"x" * 500),
        PullAnswer(-3, 0, 1, b"", R.PULL_NOT_FOUND),
        PullAnswer(0, 0, 0, stored(0)),
    ]
    broker.faults[Pull] = [says(each) for each in odd]
    with caplog.at_level(logging.ERROR):
        async with make_client().consumer("g", ["T"], start="first") as consumer:
            assert [message.body for message in await consumer.receive(1, timeout=30)] == [b"0"]
    assert not caplog.records


async def test_a_status_that_nobody_knows_leaves_the_outcome_open(broker: Broker, make_client: MakeClient) -> None:
    broker.faults[Send] = [lambda request, call: call.answer(SendAnswer(0, 0, 0, 77))]
    async with make_client().producer("p") as producer:
        with pytest.raises(Unknown, match="77"):
            await producer.send(Message("T", b"x"))


async def test_a_simple_consumer_neither_spins_nor_takes_damaged_messages(make_client: MakeClient) -> None:
    asked: list[Pop] = []

    def pop(request: Pop, call: Call) -> PopAnswer:
        asked.append(request)
        return given[0]

    nothing = PopAnswer(1, 0, 0, 0, status=R.PULL_NOT_FOUND)
    given = [nothing]
    source = await Broker(topics={"T": 1}).start()
    source.also(Pop, pop)
    clock = TestClock(running=False)
    consumer: SimpleConsumer = make_client(source.address, clock=clock).simple_consumer("g", ["T"])
    receiving = asyncio.create_task(consumer.receive(wait_seconds=10))
    await clock.advance_until(receiving.done, 0.1)
    assert (await receiving, len(asked) < 120) == ([], True)
    bad = damaged(stored(0, b"precious"), b"precious", b"prebious")
    given[0] = PopAnswer(1, 60_000, 0, 0, "0 0 0", "0 0 0", messages=bad)
    with pytest.raises(BadBytes, match="damaged body"):
        await consumer.receive(wait_seconds=0)
    await source.stop()


async def test_more_checks_than_it_may_have_are_not_taken(
    broker: Broker, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor one whose message is damaged. The broker asks again after a while."""
    monkeypatch.setattr(transactions, "MAX_CHECKS", 3)
    asked: list[bytes] = []
    going_on = asyncio.Event()

    async def check(message: ReceivedMessage) -> Decision:
        asked.append(message.body)
        await going_on.wait()
        return UNKNOWN

    client = make_client()
    producer = client.transaction_producer(check, "p")
    questions = [CheckTransactionState("H", 0, 0, "", "", "", "a", stored(0, b"%d" % each, PGROUP="p")) for each in range(6)]
    bad = questions[0]._replace(message=damaged(stored(0, b"precious", PGROUP="p"), b"precious", b"prebious"))
    for question in (bad, *questions):
        for listener in list(client.session.connections.on_request):
            listener(question)
    await until(lambda: len(asked) == 3)
    assert asked == [b"0", b"1", b"2"]
    assert caplog.text.count("it will ask again") == 4
    going_on.set()
    await producer.close()


async def test_a_broker_that_says_wait_a_moment_again_and_again(broker: Broker, make_client: MakeClient) -> None:
    """As one whose quota many share. It was a RecursionError after some hundred times, and the time of the call did not hold."""
    clock = TestClock(running=False)
    busy = Refusal(R.FLOW_CONTROL, "a moment", wait_ms=1)
    broker.faults[Send] = [lambda request, call: call.refuse(busy)] * 2000
    sending = asyncio.create_task(make_client(clock=clock).producer().send(Message("T", b"x"), queue=QUEUE, timeout=60))
    await clock.advance_until(sending.done, 0.001)
    assert (await sending).queue_offset == 0


async def test_a_heartbeat_whose_outcome_a_broker_does_not_know_cuts_no_link(broker: Broker, make_client: MakeClient) -> None:
    """As while its disk stands still: the link works. All that waited for an answer on it ended with it."""
    clock, lost = TestClock(running=False), list[str]()
    client = make_client(clock=clock)
    async with client.consumer("g", "T"):
        client.session.connections.on_lost.append(lost.append)
        broker.faults[Heartbeat] = [refuse(R.SYSTEM_ERROR, f"{OUTCOME_UNKNOWN}: the disk did not have it in time")]
        count = len(broker.heartbeats)
        await clock.advance_until(lambda: len(broker.heartbeats) > count)
        assert not lost
