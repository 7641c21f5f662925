"""Retries and dead letters end to end: our client, real brokers, failed messages (C10)."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.client import Client, ClientSettings, Consumer, Decision, Message, ReceivedMessage, Refusal, RetryLater
from rmq.net.commands import UpdateTopic
from rmq.net.commands.peers import TransferLeader
from rmq.net.commands.retries import SendBack
from rmq.net.transport.server import Call
from rmq.testing import LocalBroker, until
from tests.broker.groups import LocalGroup

PATIENT = ClientSettings(request_timeout_s=3600.0)  # the clock jumps while requests are on their way


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker() as broker:
        await broker.create_topic("T", 4)
        yield broker


class Worker:
    """A handler that fails each message `failures` times. `tries`: reconsume_times of each delivery, by body."""

    def __init__(self, failures: int, level: int = 1) -> None:
        self.tries: dict[bytes, list[int]] = defaultdict(list)
        self.done: list[ReceivedMessage] = []
        self._failures = failures
        self._level = level

    def __call__(self, message: ReceivedMessage) -> None:
        self.tries[message.body].append(message.reconsume_times)
        if message.reconsume_times < self._failures:
            raise RetryLater(self._level)
        self.done.append(message)


async def publish(client: Client, count: int) -> None:
    for number in range(count):
        message = Message("T", b"%d" % number, tags="red", keys=[f"k{number}"], properties={"shop": "north"}, flag=5)
        await client.producer().send(message)


async def stop(consumer: Consumer, running: "asyncio.Task[None]") -> None:
    consumer.stop()
    await running


async def test_a_failed_message_comes_again_later_until_it_is_handled(broker: LocalBroker) -> None:
    """Tries count up by one; topic, id, keys, tag, properties and flag are those that were sent."""
    worker = Worker(2)
    async with broker.client(settings=PATIENT) as client:
        await publish(client, 20)
        async with client.consumer("g", {"T": "red"}, start="first") as consumer:
            running = asyncio.create_task(consumer.run(worker, concurrency=4))
            await broker.clock.advance_until(lambda: len(worker.done) == 20)
            await stop(consumer, running)
        async with client.consumer("g", {"T": "red"}, start="first") as again:
            assert await again.receive(timeout=0.2) == []  # all of it is finished, in the retry topic too
    assert dict(worker.tries) == {b"%d" % number: [0, 1, 2] for number in range(20)}
    for message in worker.done:
        assert (message.topic, message.tags, message.keys, message.flag) == ("T", "red", [f"k{message.body.decode()}"], 5)
        assert message.properties["shop"] == "north"
    assert len({message.message_id for message in worker.done}) == 20


async def test_later_is_as_late_as_its_level_says(broker: LocalBroker) -> None:
    """C13: 10 s the first time, not earlier."""
    worker = Worker(1, level=0)
    async with broker.client(settings=PATIENT) as client:
        await publish(client, 1)
        async with client.consumer("g", "T", start="first") as consumer:
            running = asyncio.create_task(consumer.run(worker))
            await until(lambda: worker.tries)
            began = broker.clock.monotonic()
            await broker.clock.advance_until(lambda: worker.done)
            assert broker.clock.monotonic() - began >= 10
            await stop(consumer, running)


async def test_after_its_last_try_it_is_a_dead_letter_and_nothing_else_is(broker: LocalBroker) -> None:
    worker = Worker(1000)
    async with broker.client(settings=PATIENT) as client:
        await publish(client, 5)
        async with client.consumer("g", "T", start="first", max_retries=2) as consumer:
            running = asyncio.create_task(consumer.run(worker))
            await broker.clock.advance_until(lambda: [len(each) for each in worker.tries.values()] == [3] * 5)
            await stop(consumer, running)
        async with client.consumer("undertakers", "%DLQ%g", start="first") as letters:
            found: list[ReceivedMessage] = []
            while len(found) < 5:
                found += await letters.receive()
            assert await letters.receive(timeout=0.2) == []
    assert Counter(message.body for message in found) == Counter(b"%d" % number for number in range(5))
    assert {(message.topic, message.reconsume_times, message.tags) for message in found} == {("T", 3, "red")}


def _refused(request: SendBack, call: Call) -> None:
    raise Refusal(1, "by the test")


@pytest.mark.parametrize("by_itself", [False, True])
async def test_messages_that_waited_before_do_not_wait_their_first_wait_again(broker: LocalBroker, by_itself: bool) -> None:
    """C10, C11, C13: delayed, timed and committed ones fail like any other, given back or (`by_itself`) sent by the consumer."""
    at_ms = broker.clock.wall_ms() + 60_000
    kinds = {b"delayed": {"delay_level": 5}, b"timed": {"delay_s": 60.0}, b"at": {"deliver_at_ms": at_ms}}
    began: dict[bytes, float] = {}
    tries: dict[bytes, list[int]] = defaultdict(list)
    if by_itself:
        server = broker.serving.front.server
        server.handlers = {**server.handlers, SendBack: _refused}
    async with broker.client(settings=PATIENT) as client:
        for body, waits in kinds.items():
            await client.producer().send(Message("T", body, keys=["k"], **waits))  # type: ignore[arg-type]
        payer = client.transaction_producer(lambda message: Decision.UNKNOWN, "payers", topics=["T"])
        await payer.send_in_transaction(Message("T", b"paid", keys=["k"]), lambda sent: Decision.COMMIT)
        async with client.consumer("g", "T", start="first") as consumer:
            while len(tries) < 4 or min(map(len, tries.values())) < 3:
                receiving = asyncio.create_task(consumer.receive(max=1, timeout=3600))
                await broker.clock.advance_until(receiving.done, 1.0)
                (message,) = receiving.result()
                tries[message.body].append(message.reconsume_times)
                assert (message.topic, message.keys) == ("T", ["k"])
                now = broker.clock.monotonic()
                assert now - began.setdefault(message.body, now) < 30, "it waited its first wait again"
                if message.reconsume_times < 2:
                    await consumer.retry_later(message, 1)
    assert dict(tries) == {body: [0, 1, 2] for body in (*kinds, b"paid")}


async def test_what_waits_to_come_again_comes_after_a_restart(broker: LocalBroker) -> None:
    """C10: none lost, none twice."""
    worker = Worker(1)
    async with broker.client(settings=PATIENT) as client:
        await publish(client, 20)
        async with client.consumer("g", "T", start="first") as consumer:
            running = asyncio.create_task(consumer.run(worker))
            await until(lambda: len(worker.tries) == 20)
            await consumer.commit()
            await broker.stop_broker()
            await broker.clock.advance(30)
            await broker.start_broker()
            await broker.clock.advance_until(lambda: len(worker.done) == 20)
            await stop(consumer, running)
    assert dict(worker.tries) == {b"%d" % number: [0, 1] for number in range(20)}


async def test_over_a_change_of_leader_nothing_is_lost(tmp_path: Path) -> None:
    """C10: what a leader took back the next one has; what nobody knows of may come twice, tries never count down."""
    worker = Worker(2)
    async with LocalGroup(tmp_path) as group:
        first = await group.leader()
        await (await group.connect(first)).ask(UpdateTopic("T", read_queue_nums=4, write_queue_nums=4))
        async with group.client() as client:
            await publish(client, 100)
            async with client.consumer("g", "T", start="first") as consumer:
                running = asyncio.create_task(consumer.run(worker, concurrency=4))
                await until(lambda: len(worker.tries) > 30)
                await (await group.connect(first)).ask(TransferLeader())
                second = await group.leader(but=first)
                await group.clock.advance_until(lambda: len(worker.done) >= 50)
                await group.stop(second)
                await group.clock.advance_until(lambda: len({message.body for message in worker.done}) == 100)
                await stop(consumer, running)
    assert all(set(tries) == {0, 1, 2} for tries in worker.tries.values())
