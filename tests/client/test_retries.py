"""Failed messages as a consumer gives them back: when, to whom, and what is finished by then (C6, C10)."""

import asyncio
import pickle

import pytest

from rmq.client import InvalidArgument, ReceivedMessage, Refusal, RetryLater
from rmq.log.records import record
from rmq.log.records.checking import check
from rmq.model import BrokerAddresses, QueueData, Route
from rmq.net.commands import Send
from rmq.net.commands.locks import LockQueues
from rmq.net.commands.retries import SendBack
from rmq.testing import TestClock, until
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, cut_link, never_answer, refuse

RETRY = "%RETRY%g"


class Failing:
    """A handler that fails at bodies `bad`, with `error`."""

    def __init__(self, *bad: bytes, error: Exception | None = None) -> None:
        self.seen: list[bytes] = []
        self._bad = bad
        self._error = error or RuntimeError("not now")

    async def __call__(self, message: ReceivedMessage) -> None:
        self.seen.append(message.body)
        if message.body in self._bad:
            raise self._error


async def test_a_failed_message_is_given_back_and_the_others_go_on(broker: Broker, make_client: MakeClient) -> None:
    """Finished is what the broker has taken back, not before (C6)."""
    broker.put("T", 0, 4)
    broker.faults[SendBack] = [never_answer]
    handler = Failing(b"1")
    async with make_client(request_timeout_s=20.0).consumer("g", "T", start="first", max_retries=5) as consumer:
        running = asyncio.create_task(consumer.run(handler, concurrency=2))
        await until(lambda: len(handler.seen) == 4)
        await consumer.commit()
        assert broker.offsets["g", "T", 0] == 1
        broker.cut_connections()  # nobody knows whether it was taken: a copy is sent
        await until(lambda: broker.seen(Send))
        consumer.stop()
        await running
    assert broker.offsets["g", "T", 0] == 4
    (request,) = broker.seen(SendBack)
    stored = record.decode(broker.queues["T", 0][1])
    assert request[:3] == (stored.physical_offset, "g", 0)
    assert (request.origin_topic, request.max_reconsume_times) == ("T", 5)


@pytest.mark.parametrize(
    ("error", "level"), [(RuntimeError(), 0), (RetryLater(), 0), (RetryLater(7), 7), (RetryLater(20), 20), (RetryLater(-1), -1)]
)
async def test_the_handler_may_say_when(broker: Broker, make_client: MakeClient, error: Exception, level: int) -> None:
    broker.put("T", 0, 1)
    async with make_client().consumer("g", "T", start="first") as consumer:
        running = asyncio.create_task(consumer.run(Failing(b"0", error=error)))
        await until(lambda: broker.seen(SendBack))
        consumer.stop()
        await running
    (request,) = broker.seen(SendBack)
    assert (request.delay_level, request.max_reconsume_times) == (level, -1)
    assert broker.offsets["g", "T", 0] == 1


def test_levels_that_there_are_not() -> None:
    for level in (-2, 2**31):
        with pytest.raises(InvalidArgument, match="1 or more"):
            RetryLater(level)


async def test_a_handler_that_takes_too_long_is_cancelled_and_has_failed(broker: Broker, make_client: MakeClient) -> None:
    """[ProcessQueue.cleanExpiredMsg] A message that hangs holds nobody up for ever."""
    broker.put("T", 0, 2)
    ended: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        if message.body == b"0":
            await asyncio.Event().wait()
        ended.append(message.body)

    async with make_client().consumer("g", "T", start="first", handler_timeout=0.05) as consumer:
        running = asyncio.create_task(consumer.run(handler))
        await until(lambda: ended == [b"1"])
        consumer.stop()
        await running
    assert [request.delay_level for request in broker.seen(SendBack)] == [3]
    assert broker.offsets["g", "T", 0] == 2


@pytest.mark.parametrize("fault", [refuse(1), cut_link])
async def test_a_copy_goes_to_the_retry_topic_when_the_broker_has_lost_it(
    broker: Broker, make_client: MakeClient, fault: object
) -> None:
    """Body, birth and properties are kept, tries counted; what only brokers may write is left out (C10)."""
    properties = record.properties_to_bytes({"UNIQ_KEY": "A" * 32, "TAGS": "x", "RMQ_SRC": "due 1 2", "TRAN_MSG": "true"})
    made = record.draft("T", b"body", properties, flag=3, born_timestamp=5, born_host=bytes(8), reconsume_times=2)
    broker.append("T", 0, made)
    broker.faults[SendBack] = [fault]  # type: ignore[list-item]
    async with make_client().consumer("g", "T", start="first", max_retries=9) as consumer:
        running = asyncio.create_task(consumer.run(Failing(b"body")))
        await until(lambda: broker.queues[RETRY, -1])
        consumer.stop()
        await running
    (send,) = broker.seen(Send)
    assert (send.topic, send.queue_id, send.reconsume_times, send.max_reconsume_times) == (RETRY, -1, 3, 9)
    copy = record.decode(send.records)
    said = record.bytes_to_properties(copy.properties)
    assert (copy.body, copy.flag, copy.born_timestamp, copy.reconsume_times) == (b"body", 3, 5, 3)
    first = record.decode(broker.queues["T", 0][0])
    assert said == {
        "UNIQ_KEY": "A" * 32,
        "TAGS": "x",
        "RETRY_TOPIC": "T",
        "DELAY": "5",
        "WAIT": "false",
        "__CRC32#": "0000000000",
        "ORIGIN_MESSAGE_ID": record.message_id(first.store_host, first.physical_offset),
    }
    assert check(send.records, RETRY).pending
    assert broker.offsets["g", "T", 0] == 1


@pytest.mark.parametrize("down", [False, True])
async def test_another_broker_takes_the_copy(broker: Broker, make_client: MakeClient, down: bool) -> None:
    """Its own refuses it twice, or its group has no leader now: nobody waits for that."""
    broker.put("T", 0, 1)
    broker.topics[RETRY] = 1
    other = await Broker("b").start()
    both = [BrokerAddresses("c", "a", {0: broker.address}), BrokerAddresses("c", "b", {0: other.address})]
    broker.route = lambda topic: (
        Route(both, [QueueData("a", 1, 1, 6), QueueData("b", 1, 1, 6)]) if topic == RETRY else broker.own_route(topic)
    )
    broker.faults[SendBack] = [refuse(14 if down else 1)] * 100
    broker.faults[Send] = [refuse(16)] * 100
    async with make_client(request_timeout_s=0.5).consumer("g", "T", start="first") as consumer:
        running = asyncio.create_task(consumer.run(Failing(b"0")))
        await until(lambda: other.seen(Send))
        consumer.stop()
        await running
    assert len(broker.seen(Send)) == (0 if down else 1)
    assert broker.offsets["g", "T", 0] == 1
    await other.stop()


async def test_in_order_it_is_tried_in_its_place_so_often_and_then_a_dead_letter(broker: Broker, make_client: MakeClient) -> None:
    """C9, C10"""
    broker.put("T", 0, 3)
    clock, handler = TestClock(running=False), Failing(b"1")
    async with make_client(clock=clock).consumer("g", "T", start="first", ordered=True, max_retries=2) as consumer:
        running = asyncio.create_task(consumer.run(handler))
        await clock.advance_until(lambda: len(handler.seen) == 5)
        await until(lambda: broker.seen(SendBack))
        consumer.stop()
        await running
    assert handler.seen == [b"0", b"1", b"1", b"1", b"2"]
    assert [request.delay_level for request in broker.seen(SendBack)] == [-1]
    assert broker.seen(LockQueues)
    assert broker.offsets["g", "T", 0] == 3


async def test_who_receives_may_give_back_too(broker: Broker, make_client: MakeClient) -> None:
    broker.put("T", 0, 2)
    async with make_client().consumer("g", "T", start="first", auto_commit=False) as consumer:
        first, second = await consumer.receive(max=2)
        await consumer.retry_later(first, 4)
        with pytest.raises(InvalidArgument, match="finished already"):
            await consumer.retry_later(first)
        broker.faults[SendBack], broker.faults[Send] = [refuse(1)], [refuse(16)]
        with pytest.raises(Refusal):
            await consumer.retry_later(second)
        await consumer.retry_later(second, -1)
        await consumer.commit()
    assert [request.delay_level for request in broker.seen(SendBack)] == [4, 0, -1]
    assert broker.offsets["g", "T", 0] == 2


@pytest.mark.parametrize("wrong", [{"max_retries": -1}, {"handler_timeout": 0.0}])
async def test_wrong_arguments_are_refused(make_client: MakeClient, wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        make_client().consumer("g", "T", **wrong)  # type: ignore[arg-type]


async def test_a_broadcast_is_tried_in_its_place(broker: Broker, make_client: MakeClient) -> None:
    """C15: no other member would get it."""
    broker.put("T", 0, 3)
    clock, handler = TestClock(running=False), Failing(b"1")
    async with make_client(clock=clock).consumer("g", "T", start="first", mode="broadcast") as consumer:
        with pytest.raises(InvalidArgument):
            await consumer.retry_later((await consumer.receive(max=1))[0])
        await consumer.commit()
        running = asyncio.create_task(consumer.run(handler))
        await clock.advance_until(lambda: handler.seen == [b"1"] * 3)  # and the queue waits
        consumer.stop()
        await running
    assert not broker.seen(SendBack)


def test_a_handlers_work_in_another_process_may_say_when() -> None:
    """A ProcessPoolExecutor was broken by the first one."""
    there = pickle.loads(pickle.dumps(RetryLater(7)))
    assert (there.delay_level, str(there)) == (7, str(RetryLater(7)))
