"""Handlers that wait, and those that do not, in one consumer: each message's handler runs once, in its order, to its end."""

import asyncio
from collections.abc import AsyncIterator, Generator
from functools import partial

import pytest

from rmq.client import Consumer, InvalidArgument, ReceivedMessage
from rmq.net.commands.retries import SendBack
from rmq.testing import until
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker

COUNT = 100


@pytest.fixture
async def consumer(broker: Broker, make_client: MakeClient) -> AsyncIterator[Consumer]:
    """It has 100 messages of one queue."""
    broker.put("T", 0, COUNT)
    async with make_client(drain_timeout_s=0.05).consumer("g", ["T"], start="first") as consumer:
        await until(lambda: consumer.held == COUNT)
        yield consumer


def number(message: ReceivedMessage) -> int:
    return int(message.body)


async def test_those_that_wait_and_those_that_do_not_keep_their_order(consumer: Consumer, broker: Broker) -> None:
    begun, ended = [], []

    async def handle(message: ReceivedMessage) -> None:
        begun.append(number(message))
        for _ in range(number(message) % 3):
            await asyncio.sleep(0)
        ended.append(number(message))
        if number(message) == COUNT - 1:
            consumer.stop()

    await consumer.run(handle)
    assert begun == ended == [*range(COUNT)]
    await consumer.close()
    assert broker.offsets["g", "T", 0] == COUNT


class Wait:
    """What may be awaited, and is no coroutine."""

    def __init__(self) -> None:
        self.waited = 0

    def __await__(self) -> Generator[None, None, None]:
        for _ in range(2):
            self.waited += 1
            yield


async def test_what_a_plain_handler_returns_is_awaited_if_it_can_be(consumer: Consumer) -> None:
    wait, future = Wait(), asyncio.get_running_loop().create_future()
    results = [wait, 7, future, "text", None]

    def handle(message: ReceivedMessage) -> object:
        if number(message) == 3:
            assert wait.waited == 2
            assert future.done()
        if number(message) == 2:
            asyncio.get_running_loop().call_soon(future.set_result, None)
        if number(message) == 5:
            consumer.stop()
            return None
        return results[number(message)]

    await consumer.run(handle)
    assert consumer.held == COUNT - 6


async def test_one_that_stops_the_consumer_is_the_last(consumer: Consumer) -> None:
    seen = []

    def handle(message: ReceivedMessage) -> None:
        seen.append(number(message))
        if len(seen) == 5:
            consumer.stop()

    await consumer.run(handle)
    assert seen == [0, 1, 2, 3, 4]
    assert consumer.held == COUNT - 5


async def test_a_message_counts_as_unfinished_while_its_handler_runs(consumer: Consumer) -> None:
    held = []

    def handle(message: ReceivedMessage) -> None:
        held.append(consumer.held)
        if len(held) == 3:
            consumer.stop()

    await consumer.run(handle)
    assert held == [COUNT, COUNT - 1, COUNT - 2]


@pytest.mark.parametrize("waits", [False, True])
async def test_those_that_fail_are_given_back_and_the_others_are_handled(consumer: Consumer, broker: Broker, waits: bool) -> None:
    seen = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(number(message))
        if waits:
            await asyncio.sleep(0)
        if number(message) % 10 == 3:
            raise LookupError("not today")
        if number(message) == COUNT - 1:
            consumer.stop()

    await consumer.run(handle)
    assert seen == [*range(COUNT)]
    assert len(broker.seen(SendBack)) == COUNT // 10
    assert consumer.held == 0


@pytest.mark.parametrize("waits", [False, True])
async def test_one_whose_own_work_was_cancelled_has_failed(consumer: Consumer, broker: Broker, waits: bool) -> None:
    """Nobody cancels the consumer: what the handler awaits was cancelled by another, as a pool that is closed does."""
    seen = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(number(message))
        if number(message) == 3:
            work = asyncio.get_running_loop().create_future()
            if waits:
                asyncio.get_running_loop().call_soon(work.cancel)
            else:
                work.cancel()
            await work
        if number(message) == COUNT - 1:
            consumer.stop()

    await consumer.run(handle)
    assert seen == [*range(COUNT)]
    assert len(broker.seen(SendBack)) == 1


@pytest.mark.parametrize("finished", [0, 1])
async def test_a_cancelled_one_may_wait_on_and_end_well(consumer: Consumer, broker: Broker, finished: int) -> None:
    """As at the end of the program, when its time to end is over."""
    seen: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        try:
            seen.append("begun")
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            seen.append("ended")
            if not finished:
                raise

    running = asyncio.create_task(consumer.run(handle))
    await until(lambda: "begun" in seen)
    await consumer.close()
    await asyncio.wait([running])
    assert seen == ["begun", "ended"]
    assert broker.offsets["g", "T", 0] == finished


async def test_queues_take_turns(broker: Broker, make_client: MakeClient) -> None:
    broker.put("T", 0, COUNT)
    broker.put("T", 1, COUNT)
    async with make_client().consumer("g", ["T"], start="first") as consumer:
        await until(lambda: consumer.held == 2 * COUNT)
        seen = []

        def handle(message: ReceivedMessage) -> None:
            seen.append(message.queue.queue_id)
            if len(seen) == 2 * COUNT:
                consumer.stop()

        await consumer.run(handle)
    assert {*seen[: COUNT - 1]} == {0, 1}, "none is served only when the other has nothing left"


class Abandoned(BaseException):
    """As pytest's own, or SystemExit: no Exception."""


@pytest.mark.parametrize("ordered", [False, True])
async def test_one_that_raises_no_exception_ends_the_run_and_its_message_comes_again(
    broker: Broker, make_client: MakeClient, ordered: bool
) -> None:
    """It came never again while its consumer lived; in order its queue stood still."""
    broker.put("T", 0, 3)
    seen: list[int] = []

    def handle(message: ReceivedMessage) -> None:
        seen.append(number(message))
        if len(seen) == 1:
            raise Abandoned
        if len(seen) == 4:
            consumer.stop()

    async with make_client().consumer("g", ["T"], start="first", ordered=ordered) as consumer:
        with pytest.raises(Abandoned):
            await consumer.run(handle)
        async with asyncio.timeout(10):
            await consumer.run(handle)
    assert seen == [0, 0, 1, 2]
    assert broker.offsets["g", "T", 0] == 3


async def test_what_cannot_be_called_is_refused(consumer: Consumer) -> None:
    """As what a decorator returns that forgets its function: each message counted as failed, and went to be tried again."""
    with pytest.raises(InvalidArgument, match="give a function"):
        await consumer.run(None)  # type: ignore[arg-type]
    assert consumer.held == COUNT


async def test_one_with_a_yield_is_refused(consumer: Consumer, broker: Broker) -> None:
    """Calling it runs nothing of it: all messages counted as handled."""

    async def gives(message: ReceivedMessage) -> AsyncIterator[None]:
        yield

    def yields(message: ReceivedMessage) -> Generator[None]:
        yield

    class Service:
        async def __call__(self, message: ReceivedMessage) -> AsyncIterator[None]:
            yield

    for handler in (gives, yields, Service(), partial(yields)):
        with pytest.raises(InvalidArgument, match="yield"):
            await consumer.run(handler)
        with pytest.raises(InvalidArgument, match="yield"):
            consumer.reply(handler)  # type: ignore[arg-type]
    assert consumer.held == COUNT
