"""A consumer that starts while no leader is there reads from the followers, as far as they have copied."""

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from rmq.background import cancel
from rmq.client import Client, Consumer, Message, Unreachable
from rmq.codes import ResponseCode
from rmq.net.commands import Ping, Pull, QueryConsumerOffset, UpdateTopic
from rmq.net.commands.pop import Pop
from rmq.net.transport.server import LATER
from rmq.testing import TestClock, until
from tests.broker.groups import LocalGroup
from tests.broker.pair import Pair
from tests.broker.support import Peer
from tests.client.conftest import MakeClient
from tests.client.scripted import never_answer, refuse
from tests.client.test_failover import Trio, same_log, trio

__all__ = ["trio"]  # a fixture

COUNT = 10


async def publish(client: Client, first: int, end: int) -> None:
    for number in range(first, end):
        await client.producer().send(Message("T", b"%d" % number))


async def taken(clock: TestClock, consumer: Consumer, count: int) -> list[int]:
    """The next messages; the clock goes on while there is none."""
    got: list[int] = []

    async def take() -> None:
        while len(got) < count:
            got.extend(int(message.body) for message in await consumer.receive(timeout=3600))

    running = asyncio.create_task(take())
    await clock.advance_until(running.done)
    await running
    return got


async def read_half(client: Client, clock: TestClock, group: str) -> None:
    async with client.consumer(group, "T", start="first") as consumer:
        await taken(clock, consumer, COUNT)
        await consumer.commit()


async def test_of_an_elected_group_without_a_majority(tmp_path: Path) -> None:
    """The group's own offset counts there, too; a new group begins as it asks; a leader hears later what was read."""
    known, new = "k" * 120, "n" * 120
    async with LocalGroup(tmp_path) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        async with group.client() as client:
            await publish(client, 0, COUNT)
            await read_half(client, group.clock, known)
            await publish(client, COUNT, 2 * COUNT)
        await group.level()
        last = (await group.followers())[0]
        lost = [name for name in group.nodes if name != last]
        await group.stop(*lost)
        async with group.client() as client, client.consumer(known, "T", start="first") as consumer:
            assert await taken(group.clock, consumer, COUNT) == list(range(COUNT, 2 * COUNT))
            async with client.consumer(new, "T", start="first") as beginner:
                assert sorted(await taken(group.clock, beginner, 2 * COUNT)) == list(range(2 * COUNT))
                await group.start(*lost)
                await group.leader()
                await publish(client, 2 * COUNT, 2 * COUNT + 1)
                assert (await taken(group.clock, consumer, 1), await taken(group.clock, beginner, 1)) == ([20], [20])
                await consumer.commit()
        async with group.client() as client, client.consumer(known, "T", start="first") as consumer:
            await publish(client, 2 * COUNT + 1, 2 * COUNT + 2)
            assert await taken(group.clock, consumer, 1) == [21]


async def test_of_a_slave_whose_master_is_gone(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    await pair.begin()
    try:
        await pair.start(0, "ASYNC_MASTER")
        await pair.start(1, "SLAVE")
        peer = await Peer.connect(pair.nodes[0].address)
        await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await peer.close()
        async with Client(pair.nameserver.address, clock=pair.clock) as client:
            await publish(client, 0, COUNT)
            await read_half(client, pair.clock, "g")
            await publish(client, COUNT, 2 * COUNT)
        await pair.level()
        await pair.stop(0)
        async with Client(pair.nameserver.address, clock=pair.clock) as client, client.consumer("g", "T") as consumer:
            assert await taken(pair.clock, consumer, COUNT) == list(range(COUNT, 2 * COUNT))
    finally:
        for number in list(pair.nodes):
            await pair.stop(number)
        await pair.nameserver.stop()


async def test_a_follower_that_lacks_the_groups_offset_makes_nobody_skip(trio: Trio, make_client: MakeClient) -> None:
    """C5: it says "none", so "last" begins at its end; the leader that comes back knows better, and nothing was committed."""
    a, _, c = trio.nodes
    same_log(trio, 3)
    c.offsets["g", "T", 0] = 1
    trio.lead(None)
    clock = TestClock()
    client = make_client(trio.names.address, clock=clock)
    async with client.consumer("g", "T") as consumer:
        await clock.advance_until(lambda: any(pull.queue_offset == 3 for node in trio.nodes for pull in node.seen(Pull)))
        same_log(trio, 1)
        assert await taken(clock, consumer, 1) == [3]
        trio.lead(c)
        assert await taken(clock, consumer, 3) == [1, 2, 3]
        await consumer.commit()
    assert c.offsets["g", "T", 0] == 4
    assert ("g", "T", 0) not in a.offsets


@pytest.mark.parametrize("start", ["first", "last"])
async def test_a_reader_of_a_light_queue_goes_on_where_its_group_is(
    trio: Trio, make_client: MakeClient, start: Literal["first", "last"]
) -> None:
    """Its leader told it where the queue begins and ends, and before that had not told the group's offset: it went past what it
    had not read, or back to the first message."""
    a, b, _ = trio.nodes
    clock = TestClock()
    for node in trio.nodes:
        node.put("%LMQ%room", 0, 3)
        node.offsets["%LMQ%anna", "%LMQ%room", 0] = 1
    a.faults[QueryConsumerOffset] = [refuse(ResponseCode.SERVICE_NOT_AVAILABLE)] * 1000
    async with make_client(trio.names.address, clock=clock).light_consumer("anna", "room", "T", start=start):
        await clock.advance_until(lambda: b.seen(QueryConsumerOffset))
        a.faults[QueryConsumerOffset].clear()
        await clock.advance_until(lambda: a.seen(Pull))
        assert a.seen(Pull)[0].queue_offset == 1


async def test_a_commit_that_no_leader_takes_is_an_error(trio: Trio, make_client: MakeClient) -> None:
    """It came back as if it were done, and the messages came again."""
    a, b, _ = trio.nodes
    same_log(trio, 1)
    await a.stop()
    trio.lead(None)
    clock = TestClock()
    async with make_client(trio.names.address, clock=clock).consumer("g", "T", start="first") as consumer:
        assert await taken(clock, consumer, 1) == [0]
        committing = asyncio.create_task(consumer.commit())
        await clock.advance_until(committing.done)
        assert isinstance(committing.exception(), Unreachable)
        trio.lead(b)
        await clock.advance_until(
            lambda: {0, 1} <= {pull.queue_id for pull in b.seen(Pull) if pull.suspend_timeout_millis > 1000}
        )
        await consumer.commit()
        assert b.offsets["g", "T", 0] == 1


@pytest.mark.parametrize("pinged", [True, False])
async def test_a_pop_that_waits_at_a_leader_that_hangs_moves_on(trio: Trio, make_client: MakeClient, pinged: bool) -> None:
    """Once another node led, a client that also sends looked at the old leader's connection no more, and the pop waited there for
    half a minute."""
    (a, b, _), clock, held, popped = trio.nodes, TestClock(), list[Pop](), list[Pop]()
    client = make_client(trio.names.address, clock=clock, route_refresh_s=1e6)
    client.producer("g")
    a.also(Pop, lambda request, call: held.append(request) or LATER)  # type: ignore[func-returns-value]
    b.also(Pop, lambda request, call: popped.append(request) or LATER)  # type: ignore[func-returns-value]
    a.faults[Ping] = [never_answer] * 1000
    begin, receiving = clock.monotonic(), asyncio.create_task(client.simple_consumer("g", "T").receive(wait_seconds=20))
    await until(lambda: a.seen(Ping) if pinged else held)
    trio.lead(b)
    await client.session.routes.refresh("T")
    await clock.advance_until(lambda: popped)
    assert clock.monotonic() - begin < 10
    await cancel(receiving)
