"""Ordered consumption: each queue's messages one after the other, whoever joins, leaves, dies or leads (C9)."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.client import Client, ClientSettings, Consumer, InvalidArgument, Message, MessageQueue, ReceivedMessage, Refusal
from rmq.client.consumer.locks import LOST_S
from rmq.delivery.locks import LIVE_S
from rmq.net.commands import GetMaxOffset, Pull, QueryConsumerOffset, UpdateConsumerOffset, UpdateTopic
from rmq.net.commands.locks import LockQueues, UnlockQueues
from rmq.net.commands.peers import TransferLeader
from rmq.net.transport.server import Call
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.groups import GROUP, LocalGroup
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, never_answer, queue, refuse

QUEUES = 4


class Floor:
    """Where all handlers of all members work: sees who is in which queue, and what came of it in which order."""

    def __init__(self) -> None:
        self.busy: dict[MessageQueue, str] = {}
        self.done: dict[MessageQueue, list[int]] = defaultdict(list)
        self.by: dict[str, int] = defaultdict(int)
        self.stuck: set[str] = set()  # members whose handlers never end
        self.runs: list[asyncio.Task[None]] = []

    async def join(self, name: str, client: Client) -> Consumer:
        consumer = client.consumer("g", "T", start="first", ordered=True)
        await consumer.start()

        async def handle(message: ReceivedMessage) -> None:
            await self._handle(name, message)

        self.runs.append(asyncio.create_task(consumer.run(handle, concurrency=QUEUES)))
        return consumer

    async def _handle(self, name: str, message: ReceivedMessage) -> None:
        assert message.queue not in self.busy, f"{name} got {message}, {self.busy[message.queue]} is still at work"
        self.busy[message.queue] = name
        for _ in range(5):
            await asyncio.sleep(0)
        if name in self.stuck:
            await asyncio.Event().wait()
        del self.busy[message.queue]
        self.done[message.queue].append(message.queue_offset)
        self.by[name] += 1

    @property
    def count(self) -> int:
        return sum(len(set(offsets)) for offsets in self.done.values())

    def in_order(self) -> None:
        """Nothing skipped; what comes again begins at something that was there before."""
        for offsets in self.done.values():
            reached = 0
            for offset in offsets:
                assert offset <= reached
                reached = max(reached, offset + 1)

    async def close(self, *members: Consumer) -> None:
        for member in members:
            await member.close()
        await asyncio.gather(*self.runs)


async def publish(client: Client, count: int) -> None:
    producer = client.producer()
    for number in range(count):
        await producer.send(Message("T", str(number).encode()))


class Sending:
    """Messages are sent all the time."""

    def __init__(self, client: Client) -> None:
        self.count = 0
        self._stopped = False
        self._task = asyncio.create_task(self._send(client))

    async def _send(self, client: Client) -> None:
        while not self._stopped:
            await publish(client, 10)
            self.count += 10

    async def stop(self) -> None:
        self._stopped = True
        await self._task


async def test_members_come_and_go_in_order() -> None:
    """C9, C17: nothing lost or twice; a queue changes hands only when its handler has ended."""
    floor = Floor()
    async with LocalBroker() as broker, broker.client() as one, broker.client() as two, broker.client() as three:
        await broker.create_topic("T", QUEUES)
        members = [await floor.join("one", one)]
        sending = Sending(three)
        await until(lambda: floor.count > 100)
        members.append(await floor.join("two", two))
        await until(lambda: floor.by["two"] > 50)
        members.append(await floor.join("three", three))
        await until(lambda: floor.by["three"] > 50)
        await members[0].close()
        await sending.stop()
        await until(lambda: floor.count == sending.count)
        await floor.close(*members)
    for offsets in floor.done.values():
        assert offsets == list(range(len(offsets)))


async def test_a_killed_members_queues_wait_a_minute() -> None:
    """C9: meanwhile it may go on for half of that, if it lives; then the other one begins, and nothing is lost."""
    floor = Floor()
    async with LocalBroker() as broker, broker.client() as one, broker.client() as two, broker.client() as sender:
        await broker.create_topic("T", QUEUES)
        killed, other = await floor.join("one", one), await floor.join("two", two)
        await publish(sender, 100)
        await until(lambda: floor.count == 100 and floor.by["one"] and floor.by["two"])
        mine = [owned for owned in killed.queues if owned.topic == "T"]
        await killed.commit()
        await one.session.connections.close()  # as a cable that is cut: nothing is said to anybody
        await publish(sender, 100)
        await until(lambda: set(mine) <= set(other.queues))
        await broker.clock.advance(LIVE_S - 10)
        assert {owner for owned, owner in floor.busy.items() if owned in mine} <= {"one"}
        assert floor.by["one"] < 100
        handed = floor.by["one"]
        await broker.clock.advance(15)
        await until(lambda: floor.count == 200)
        assert floor.by["one"] == handed, "its locks are lost: it hands out nothing more"
        await floor.close(other, killed)
    floor.in_order()


async def test_order_over_a_change_of_leader(tmp_path: Path) -> None:
    """C9, story 42: the members keep their queues; some messages may come again, none out of order, none is lost."""
    floor = Floor()
    async with LocalGroup(tmp_path) as group:
        first = await group.leader()
        await (await group.connect(first)).ask(UpdateTopic("T", read_queue_nums=QUEUES, write_queue_nums=QUEUES))
        async with group.client() as one, group.client() as two, group.client() as sender:
            members = [await floor.join("one", one), await floor.join("two", two)]
            sending = Sending(sender)
            await until(lambda: floor.by["one"] > 20 and floor.by["two"] > 20)
            owned = [set(member.queues) for member in members]
            await (await group.connect(first)).ask(TransferLeader())
            second = await group.leader(but=first)
            before = dict(floor.by)
            await until(lambda: all(floor.by[name] > before[name] for name in before))
            assert [set(member.queues) for member in members] == owned
            await group.stop(second)
            await sending.stop()
            await until(lambda: floor.count == sending.count)
            await floor.close(*members)
        locks = await group.connect(await group.leader())
        everything = [MessageQueue("T", GROUP, number) for number in range(QUEUES)]
        free = await locks.ask(LockQueues("g", "somebody", everything))
        assert free.queues == everything, "the members gave up their locks"
    floor.in_order()


# --- one member, a scripted broker ------------------------------------------------------------------------------------


async def test_one_message_of_a_queue_at_a_time(broker: Broker, make_client: MakeClient) -> None:
    """`receive` gives one of each queue; asking for more, or `commit`, finishes it."""
    broker.put("T", 0, 3)
    broker.put("T", 1, 2)
    async with make_client().consumer("g", "T", start="first", ordered=True) as consumer:
        got = []
        while len(got) < 5:
            received = await consumer.receive()
            assert len({message.queue for message in received}) == len(received)
            got += [(message.queue.queue_id, message.body) for message in received]
        await consumer.commit()
        assert sorted(got) == [(0, b"0"), (0, b"1"), (0, b"2"), (1, b"0"), (1, b"1")]
    assert broker.locks == {}
    assert {one for request in broker.seen(UnlockQueues) for one in request.queues} >= {queue("T", 0), queue("T", 1)}


@pytest.mark.parametrize("error", [RuntimeError("not now"), asyncio.CancelledError()])
async def test_a_failed_message_comes_again_in_place(broker: Broker, make_client: MakeClient, error: BaseException) -> None:
    broker.put("T", 0, 4)
    broker.put("T", 1, 4)
    clock = TestClock(running=False)
    seen: list[tuple[int, bytes]] = []
    times = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append((message.queue.queue_id, message.body))
        if seen[-1] == (0, b"1"):
            times.append(message.reconsume_times)
            if len(times) < 3:
                raise error

    async with make_client(clock=clock).consumer("g", "T", start="first", ordered=True) as consumer:
        running = asyncio.create_task(consumer.run(handler, concurrency=4))
        await until(lambda: len(seen) == 6)  # the other queue goes on
        await clock.advance_until(lambda: len(seen) == 10)
        consumer.stop()
        await running
    assert [body for number, body in seen if number == 0] == [b"0", b"1", b"1", b"1", b"2", b"3"]
    assert times == [0, 1, 2]


async def test_a_queue_of_somebody_else_is_not_touched(broker: Broker, make_client: MakeClient) -> None:
    broker.put("T", 0, 1)
    broker.put("T", 1, 1)
    broker.locks["g", queue("T", 0)] = "somebody"
    clock = TestClock(running=False)
    async with make_client(clock=clock).consumer("g", "T", start="first", ordered=True) as consumer:
        await until(lambda: broker.seen(Pull))
        await clock.advance(10)
        assert {pull.queue_id for pull in broker.seen(Pull) if pull.topic == "T"} == {1}
        broker.offsets["g", "T", 0] = 0
        del broker.locks["g", queue("T", 0)]
        await clock.advance_until(lambda: len({pull.queue_id for pull in broker.seen(Pull)}) == 2)
        await until(lambda: len(consumer.queues) >= 2)


async def test_a_lock_that_cannot_be_kept_is_lost_after_30_s(broker: Broker, make_client: MakeClient) -> None:
    """C9: nothing more is handed out, although messages are there; with a new lock it begins where the group is by then."""
    broker.topics["T"] = 1
    broker.put("T", 0, 10)
    clock = TestClock(running=False)
    async with make_client(clock=clock).consumer("g", "T", start="first", ordered=True) as consumer:
        receiving = asyncio.create_task(consumer.receive())
        await until(receiving.done)
        assert [message.body for message in receiving.result()] == [b"0"]
        broker.faults[LockQueues] = [never_answer] * 1000
        await clock.advance(LOST_S - 1)
        assert [message.body for message in await consumer.receive()] == [b"1"]
        await clock.advance(1)
        assert await consumer.receive(timeout=0) == []  # before any request has failed long enough
        receiving = asyncio.create_task(consumer.receive(timeout=5))
        await clock.advance_until(receiving.done)
        assert receiving.result() == []
        broker.offsets["g", "T", 0] = 7  # somebody else went on meanwhile
        broker.faults[LockQueues] = []
        receiving = asyncio.create_task(consumer.receive(timeout=60))
        await clock.advance_until(receiving.done)
        assert [message.body for message in receiving.result()] == [b"7"]


@contextlib.asynccontextmanager
async def one_of_ten(broker: Broker, make_client: MakeClient) -> AsyncIterator[tuple[Consumer, TestClock]]:
    """A consumer that got one of ten messages and committed it, and its clock, which stands still."""
    broker.topics["T"] = 1
    broker.put("T", 0, 10)
    clock = TestClock(running=False)
    async with make_client(clock=clock).consumer("g", "T", start="first", ordered=True) as consumer:
        assert len(await consumer.receive()) == 1
        await consumer.commit()
        yield consumer, clock


async def lose_lock(broker: Broker, clock: TestClock) -> None:
    """To somebody else; returns when the consumer has seen that."""
    broker.locks["g", queue("T", 0)] = "somebody"
    asked = len(broker.seen(LockQueues))
    await clock.advance_until(lambda: len(broker.seen(LockQueues)) > asked + 1)  # kept in vain, then asked for anew


async def test_a_lock_that_the_broker_gave_to_another_is_lost_at_once(broker: Broker, make_client: MakeClient) -> None:
    """C9: as may be after an epoch that lost acknowledged records."""
    async with one_of_ten(broker, make_client) as (consumer, clock):
        await lose_lock(broker, clock)
        assert clock.monotonic() < LOST_S - 5
        assert await consumer.receive(timeout=0) == []


async def test_behind_a_sleep_of_the_machine_no_lock_is_believed(broker: Broker, make_client: MakeClient) -> None:
    """C9: its timers stood still, so it handed out what it had pulled before, beside the member that had the queue by then."""
    async with one_of_ten(broker, make_client) as (consumer, clock):
        clock.suspend(120)
        broker.locks["g", queue("T", 0)] = "somebody"
        broker.offsets["g", "T", 0] = 7
        assert await consumer.receive(timeout=0) == []
        await consumer.commit()
        assert broker.offsets["g", "T", 0] == 7


async def test_behind_a_sleep_of_the_machine_locks_are_had_anew_at_once(broker: Broker, make_client: MakeClient) -> None:
    """Or renewed, if they are still good. Until the timer of before was over, up to 20 s later, the queues stood still."""
    async with one_of_ten(broker, make_client) as (consumer, clock):
        for sleep_s, count in ((25, 2), (120, 4)):  # renewed; not to be renewed any more, and had anew
            clock.suspend(sleep_s)
            await clock.advance(3)
            await until(lambda count=count: len(broker.seen(LockQueues)) >= count)  # type: ignore[misc]
        arrived = asyncio.create_task(consumer.receive(timeout=60))
        await clock.advance_until(arrived.done)
        assert [one.body for one in await arrived] == [b"1"]


async def test_who_lost_a_lock_does_not_set_back_who_has_it(broker: Broker, make_client: MakeClient) -> None:
    """C9: as a member whose machine slept. It committed how far it had been, and the group handled again all that came since."""
    async with one_of_ten(broker, make_client) as (consumer, clock):
        broker.offsets["g", "T", 0] = 7
        await lose_lock(broker, clock)
        broker.put("T", 0, 1)
        del broker.locks["g", queue("T", 0)]
        receiving = asyncio.create_task(consumer.receive(timeout=60))
        await clock.advance_until(receiving.done)
        assert [message.body for message in receiving.result()] == [b"7"]
        assert broker.offsets["g", "T", 0] == 7


async def test_a_lost_lock_that_nobody_tells_of_holds_up_no_other_commit(broker: Broker, make_client: MakeClient) -> None:
    broker.put("T", 0, 1)
    broker.put("T", 1, 1)
    clock = TestClock(running=False)
    async with make_client(clock=clock, commit_s=1000).consumer("g", "T", start="first", ordered=True) as consumer:
        for _ in range(2):
            receiving = asyncio.create_task(consumer.receive(max=1))
            await until(receiving.done)
        broker.faults[LockQueues] = [never_answer] * 1000
        await clock.advance(LOST_S)
        broker.offsets.clear()
        broker.faults[QueryConsumerOffset] = [refuse(1)]
        committing = asyncio.create_task(consumer.commit())
        await until(committing.done)
        assert isinstance(committing.exception(), Refusal)
        assert len([offset for (_, topic, _), offset in broker.offsets.items() if (topic, offset) == ("T", 1)]) == 1


async def test_locks_are_kept_every_20_s(broker: Broker, make_client: MakeClient) -> None:
    clock = TestClock(running=False)
    async with make_client(clock=clock).consumer("g", "T", start="first", ordered=True):
        await until(lambda: len({one for request in broker.seen(LockQueues) for one in request.queues}) == 2)
        first = len(broker.seen(LockQueues))
        await clock.advance_until(lambda: len(broker.seen(LockQueues)) == first + 3)
        assert 60 <= clock.monotonic() < 65
        assert [set(request.queues) for request in broker.seen(LockQueues)[first:]] == [{queue("T", 0), queue("T", 1)}] * 3


async def test_broadcast_has_no_order_to_keep(make_client: MakeClient) -> None:
    with pytest.raises(InvalidArgument, match="broadcast"):
        make_client().consumer("g", "T", mode="broadcast", ordered=True)


async def test_a_queue_is_given_up_when_its_handler_ends_not_before(broker: Broker, make_client: MakeClient) -> None:
    """C9: however long it takes; and let go twice meanwhile it is still held."""
    broker.topics["T"] = 1
    broker.put("T", 0, 2)
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        begun.set()
        await may_end.wait()

    clock = TestClock()
    client = make_client(clock=clock, commit_s=0.05)
    consumer = client.consumer("g", "T", start="first", ordered=True)
    await consumer.start()
    running = asyncio.create_task(consumer.run(handler))
    await begun.wait()
    for _ in range(2):
        broker.topics["T"] = 0  # it owns nothing
        await client.session.routes.refresh("T")
        await until(lambda: not consumer.queues)
        broker.topics["T"] = 1
        await client.session.routes.refresh("T")
        await until(lambda: consumer.queues)
        await clock.advance(5)
    await client.session.leaders.request("a", GetMaxOffset("T", 0), 5)  # whatever was said before it has arrived
    assert broker.locks["g", queue("T", 0)] == client.client_id
    assert not broker.seen(UnlockQueues)
    may_end.set()
    await until(lambda: broker.seen(UnlockQueues))
    await until(lambda: broker.offsets.get(("g", "T", 0)) == 2)
    await consumer.close()
    await running


@pytest.mark.parametrize("ordered", [True, False])
async def test_what_ends_while_a_queue_is_let_go_is_committed(broker: Broker, make_client: MakeClient, ordered: bool) -> None:
    """C6: the handler ends while the offset before it is on its way."""
    broker.topics["T"] = 1
    broker.put("T", 0, 1)
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        begun.set()
        await may_end.wait()
        ended.append(True)

    ended: list[bool] = []
    committing: list[tuple[UpdateConsumerOffset, Call]] = []
    broker.faults[UpdateConsumerOffset] = [lambda request, call: committing.append((request, call))]
    client = make_client()
    async with client.consumer("g", "T", start="first", ordered=ordered) as consumer:
        running = asyncio.create_task(consumer.run(handler))
        await begun.wait()
        broker.topics["T"] = 0
        await client.session.routes.refresh("T")
        await until(lambda: committing)
        may_end.set()
        await until(lambda: ended)
        request, call = committing[0]
        assert request.commit_offset == 0
        call.answer(None)
        await until(lambda: broker.offsets.get(("g", "T", 0)) == 1)
        consumer.stop()
        await running


def test_settings_of_both_sides_fit() -> None:
    """A client stops before its broker gives the queue to somebody else, however late an answer comes."""
    assert LOST_S + 2 * ClientSettings().request_timeout_s < LIVE_S
