"""What a group's filter leaves out of its pops is no lag: the group is behind it after the pop that found nothing else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rmq.broker.pending.popreader import QueueReader
from rmq.delivery import filters
from rmq.errors import Refusal
from rmq.model import STATE_TOPIC
from rmq.net.commands import DeleteTopic, GetConsumeStats, GetMaxOffset, UpdateTopic
from rmq.net.commands.pop import Notification, PollingInfo
from rmq.net.commands.resets import ResetOffset
from rmq.testing import LocalBroker, TestClock
from tests.broker.conftest import Connect
from tests.broker.groups import LocalGroup
from tests.broker.popping import ack, bodies, take
from tests.broker.support import Peer, send
from tests.broker.test_pop import until_polling

TAG: dict[str, Any] = {"exp": "A"}
SQL: dict[str, Any] = {"exp": "TAGS = 'A'", "exp_type": "SQL92"}


async def places(peer: Peer, group: str = "g") -> list[int]:
    """The group's offset in each queue in which there is something."""
    queues = (await peer.ask(GetConsumeStats(group, "T"))).queues
    return [each.consumer_offset for each in sorted(queues, key=lambda each: each.queue.queue_id) if each.broker_offset]


async def store(peer: Peer, tags: str, queue_id: int = 0) -> None:
    """One message for each letter."""
    await peer.send(*(send("T", b"%d" % at, tags=tag, queue_id=queue_id) for at, tag in enumerate(tags)))


async def written(peer: Peer) -> int:
    """How many state records there are."""
    return int((await peer.ask(GetMaxOffset(STATE_TOPIC, 0))).offset)


@pytest.mark.parametrize("wanted", [TAG, SQL])
@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("init_mode", [0, 1])
async def test_what_the_filter_leaves_out_is_no_lag(
    broker: LocalBroker, peer: Peer, connect: Connect, wanted: dict[str, Any], order: bool, init_mode: int
) -> None:
    """C14. It was lag until there were 800 such messages in the queue. Others in the group, and who comes after a restart, go on
    there; another group does not."""
    asked = {**wanted, "order": order, "init_mode": init_mode}
    await store(peer, "BBB")
    await store(peer, "BBBB", queue_id=2)
    assert await take(peer.ask, **asked) == []
    assert await places(peer) == [3, 4]
    await store(peer, "BABB")
    assert bodies(await take(peer.ask, group="h", order=order, exp="B"))[:3] == [b"0", b"1", b"2"]
    (one,) = await take(peer.ask, **asked)
    await ack(peer.ask, one)
    assert await take(peer.ask, **asked) == []
    assert await places(peer) == [7, 4]
    await broker.stop_broker()
    await broker.start_broker()
    peer = await connect(broker)
    assert await places(peer) == [7, 4]
    await store(peer, "A")
    assert bodies(await take(peer.ask, **asked)) == [b"0"]


async def test_nothing_is_written_for_each_of_them() -> None:
    """C14. Where the group is then is written with what others committed meanwhile, or by the receipt of what comes next."""
    async with LocalBroker(clock=TestClock(running=False)) as broker:  # else the time of a flush may come
        peer = await Peer.connect(broker.address)
        await store(peer, "A")
        await ack(peer.ask, *await take(peer.ask, exp="A"))
        before = await written(peer)
        for number in range(20):
            await store(peer, "B")
            assert await take(peer.ask, exp="A") == []
            assert await places(peer) == [number + 2]
        assert await written(peer) == before
        await store(peer, "AB")
        assert bodies(await take(peer.ask, exp="A")) == [b"0"]
        assert (await written(peer), await places(peer)) == (before, [23]), "the receipt says it"
        await store(peer, "B")
        assert await take(peer.ask, exp="A") == []
        await broker.clock.advance_until(lambda: broker.serving.tables.offsets.committed().get(("g", "T", 0)) == 24, 0.1)
        assert await written(peer) == before + 1
        await broker.clock.advance(1)
        assert (await written(peer), await places(peer)) == (before + 1, [24])
        await peer.close()


async def test_what_is_not_acknowledged_comes_back_all_the_same(broker: LocalBroker, peer: Peer) -> None:
    """C10: in order, the group stays at the message that somebody has; else the receipt keeps it."""
    await store(peer, "BABB")
    for group, order in (("g", False), ("h", True)):
        assert bodies(await take(peer.ask, group=group, order=order, exp="A", hidden_ms=2000)) == [b"1"]
        assert await take(peer.ask, group=group, order=order, exp="A") == []
    assert (await places(peer), await places(peer, "h")) == ([4], [1])
    again = asyncio.create_task(take(peer.ask, exp="A", poll_ms=30_000))
    await broker.clock.advance_until(again.done)
    assert bodies(await again) == [b"1"]
    assert bodies(await take(peer.ask, group="h", order=True, exp="A")) == [b"1"]


async def test_in_order_another_filter_moves_nobody_back(broker: LocalBroker, peer: Peer) -> None:
    """One of the group wants something else, and passes what another one has too long. Then that is acknowledged after all."""
    await store(peer, "AABBAA")
    late = await take(peer.ask, order=True, exp="A", hidden_ms=1000)
    await broker.clock.advance(2)
    assert await take(peer.ask, order=True, exp="C") == []
    assert await places(peer) == [6]
    await ack(peer.ask, *late)
    await broker.clock.advance(1)
    assert await places(peer) == [6]
    assert await take(peer.ask, order=True, exp="A") == []


@pytest.mark.parametrize("wanted", [TAG, SQL])
async def test_who_asks_whether_something_is_there_hears_of_what_the_filter_takes(
    broker: LocalBroker, peer: Peer, connect: Connect, wanted: dict[str, Any]
) -> None:
    """[NotificationProcessor] It was told of others, and popped in vain, again and again as long as such messages came."""
    await store(peer, "BB")
    assert not (await peer.ask(Notification("g", "T", -1, 0, 0, **wanted))).has_msg
    assert await places(peer) == [0], "only a pop moves the group"
    waiting = asyncio.create_task(peer.ask(Notification("g", "T", -1, 60_000, 0, **wanted)))
    other = await connect(broker)
    await until_polling(other, 1)
    await store(other, "B")
    await store(other, "A", queue_id=3)
    assert (await waiting).has_msg
    assert (await other.ask(Notification("g", "T", -1, 0, 0, **wanted))).has_msg
    assert bodies(await take(other.ask, **wanted)) == [b"0"]
    assert not (await other.ask(Notification("g", "T", -1, 0, 0, **wanted))).has_msg
    await other.send(send("T", tags="B", count=900))
    assert (await other.ask(Notification("g", "T", -1, 0, 0, **wanted))).has_msg, "so far only a pop looks"


@pytest.mark.parametrize("wanted", [TAG, SQL])
async def test_who_waits_looks_at_nothing_twice(
    peer: Peer, connect: Connect, broker: LocalBroker, wanted: dict[str, Any]
) -> None:
    """With SQL each one that came had all before it looked at again; and behind 800 it was told to pop in vain."""
    await peer.send(send("T", tags="B"))
    other = await connect(broker)
    waiting = asyncio.create_task(peer.ask(Notification("g", "T", -1, 60_000, 0, **wanted)))

    async def until_it_waits() -> None:
        while not (await other.ask(PollingInfo("g", "T", -1))).polling_num:
            assert not waiting.done()

    for _ in range(10):
        await until_it_waits()
        await other.send(send("T", tags="B", count=100))
    await until_it_waits()
    await other.ask(ResetOffset("T", "g", 0, 500))
    await until_it_waits()
    await other.ask(DeleteTopic("T"))
    with pytest.raises(Refusal, match="does not exist"):
        await waiting


async def test_a_tool_sets_the_group_back_over_them(broker: LocalBroker, peer: Peer) -> None:
    await store(peer, "BBA")
    await ack(peer.ask, *await take(peer.ask, exp="A"))
    await store(peer, "B")
    assert await take(peer.ask, exp="A") == []
    await peer.ask(ResetOffset("T", "g", 0, 0))
    assert await places(peer) == [0]
    assert bodies(await take(peer.ask, count=2, exp="B")) == [b"0", b"1"]
    await broker.clock.advance(1)
    assert await places(peer) == [3], "behind what it got, and what the filter left out there"


async def test_what_was_passed_is_found_out_again_after_a_change_of_leaders(tmp_path: Path) -> None:
    async with LocalGroup(tmp_path) as group:
        first = await group.leader()
        leader = await group.connect(first)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await store(leader, "AB")
        await ack(leader.ask, *await take(leader.ask, exp="A"))
        assert await take(leader.ask, exp="A") == []
        await group.level()
        await group.stop(first)
        leader = await group.connect(await group.leader(but=first))
        assert await take(leader.ask, exp="A") == []
        assert await places(leader) == [2]
        await store(leader, "BA")
        assert bodies(await take(leader.ask, exp="A")) == [b"1"]


async def test_who_led_another_epoch_meanwhile_notes_nothing(broker: LocalBroker, peer: Peer) -> None:
    """Its place would stand over those that other leaders wrote, once it leads again: what was acknowledged there came again."""
    await store(peer, "BB")
    serving, epoch = broker.serving, [1]
    tables = serving.tables
    reader = QueueReader(serving.reader, tables.offsets, serving.writer.commit, lambda _: False, bool, lambda: epoch[0] or None)
    wanted = filters.selection("A", "TAG")
    for before, after, reached in ((1, 2, 0), (1, 0, 0), (0, 0, 0), (2, 2, 2)):
        epoch[0] = before
        read = await reader.read("g", "T", 0, 32, wanted)
        assert (read.next, read.queue_offsets) == (2, [])
        epoch[0] = after
        reader.passed(("g", "T", 0), read)
        assert reader.reached("g", "T", 0) == reached
