"""A broker that deletes what is old, tells consumers where its queues begin now, and refuses what a full disk cannot take."""

import asyncio
import dataclasses
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.broker.node import Broker
from rmq.codes import ResponseCode as R
from rmq.log.files.memory import MemoryDisk
from rmq.log.files.ownfiles import save_archived
from rmq.model import GroupConfig
from rmq.net.commands import (
    CleanExpiredQueues,
    DeleteExpiredLog,
    GetMaxOffset,
    GetMinOffset,
    GetTopicConfig,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateTopic,
)
from rmq.net.commands.configuration import UpdateBrokerConfig
from rmq.testing import TestClock
from tests.broker.support import Peer, bodies, send, small_node


class Node:
    """A broker with small segments on a memory disk."""

    def __init__(self, store: Path) -> None:
        self.disk = MemoryDisk()
        self.clock = TestClock()
        self.settings = small_node(
            store,
            stop_grace_ms=100,
            segment_bytes=140_000,
            max_message_bytes=1000,
            delete_hours=tuple(range(24)),
            idle_timeout_ms=86_400_000,
        )

    async def start(self) -> "Node":
        self.broker = Broker(self.settings, self.clock, self.disk)
        await self.broker.start()
        self.peer = await Peer.connect(self.broker.address)
        return self

    async def fill(self) -> None:
        await self.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await self.peer.ask(UpdateTopic("Once", read_queue_nums=1, write_queue_nums=1))
        await self.peer.ask(UpdateGroup(GroupConfig("g")))
        await self.peer.ask(send("Once"))
        await self.grow(4)
        await self.snapshots(2)

    async def grow(self, segments: int) -> None:
        while len(self.segments()) < segments:
            await self.peer.ask(send("T", b"x" * 900))

    async def snapshots(self, count: int) -> None:
        """That many more, each behind a message."""
        for _ in range(count):
            before = self.names("snapshot-")
            await self.peer.ask(send("T"))
            await self.clock.advance_until(lambda before=before: self.names("snapshot-") != before, 10.0)  # type: ignore[misc]

    def names(self, part: str) -> list[str]:
        return [path for path in self.disk.paths() if part in path and not path.endswith(".new")]

    def segments(self) -> list[str]:
        return self.names("/commitlog/")

    async def minimum(self, topic: str = "T") -> int:
        return int((await self.peer.ask(GetMinOffset(topic, 0))).offset)

    async def restart(self, later_h: float) -> None:
        """Stopped for so long: what it holds is older then."""
        await self.stop()
        self.clock = TestClock(wall_ms=self.clock.wall_ms() + int(later_h * 3_600_000))
        await self.start()

    async def expire_at_another_hour(self) -> None:
        """Everything is old enough to go, but by itself nothing does."""
        hour = time.localtime(self.clock.wall_ms() / 1000).tm_hour
        self.settings = dataclasses.replace(self.settings, delete_hours=((hour + 20) % 24,))
        await self.restart(96)
        await self.clock.advance(30)

    async def stop(self) -> None:
        await self.peer.close()
        await self.broker.stop()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = await Node(tmp_path).start()
    await node.fill()
    yield node
    await node.stop()


async def test_expired_segments_go_and_pulls_below_are_sent_to_the_new_minimum(node: Node) -> None:
    """D15: 21 with the minimum, as RocketMQ; a new start says the same."""
    assert await node.minimum() == 0
    await node.restart(70)
    await node.clock.advance(30)
    assert len(node.segments()) == 4, "not before their time"
    await node.restart(3)
    await node.clock.advance_until(lambda: len(node.segments()) == 1, 10.0)
    low = await node.minimum()
    assert low > 100
    moved = await node.peer.pull("T", 5)
    assert (moved.status, moved.next_begin_offset, moved.min_offset) == (R.PULL_OFFSET_MOVED, low, low)
    assert bodies(await node.peer.pull("T", low))
    assert (await node.minimum("Once"), (await node.peer.ask(GetMaxOffset("Once", 0))).offset) == (1, 1)
    await node.stop()
    await node.start()
    assert await node.minimum() == low
    assert (await node.peer.ask(GetTopicConfig("Once"))).read_queue_nums == 1, "its record is gone, the topic is not"
    assert (await node.peer.ask(send("Once"))).queue_offset == 1


async def test_clock_back_one_hour_and_ten_years(node: Node) -> None:
    """Story 52, T1: a wall clock that jumps deletes nothing by age, whichever way; a full disk is believed."""
    for jump_ms in (10 * 365 * 24 * 3_600_000, -20 * 365 * 24 * 3_600_000, (10 * 365 * 24 - 2) * 3_600_000):
        node.clock.jump_wall(jump_ms)
        await node.clock.advance(20)
        await node.peer.ask(DeleteExpiredLog())
        assert len(node.segments()) == 4
    assert (await node.peer.ask(send("T"))).status == 0
    node.disk.used = 0.86
    await node.clock.advance_until(lambda: len(node.segments()) == 1, 10.0)


async def test_a_machine_that_slept_deletes_by_age_as_ever(node: Node) -> None:
    """A laptop, overnight: until the next start of the node its log only grew."""
    node.clock.suspend(80 * 3_600)
    await node.clock.advance(20)
    await node.peer.ask(DeleteExpiredLog())
    assert len(node.segments()) == 1


async def test_an_administrator_may_ask_at_any_hour(node: Node) -> None:
    await node.expire_at_another_hour()
    assert len(node.segments()) == 4
    await node.peer.ask(DeleteExpiredLog())
    assert len(node.segments()) == 1
    assert node.names("/consumequeue/Once/")
    await node.peer.ask(CleanExpiredQueues())
    assert not node.names("/consumequeue/Once/")
    assert (await node.peer.ask(send("Once"))).queue_offset == 1
    assert bodies(await node.peer.pull("Once", 1)) == [b"body"]


class Counting(MemoryDisk):
    """A disk with room for 100 segments, and `others` take that much of it."""

    others = 0.0

    def used_ratio(self, path: str) -> float:
        return self.others + 0.01 * sum("/commitlog/" in name for name in self.paths())


async def test_a_disk_that_is_nearly_full_when_an_administrator_asks(tmp_path: Path) -> None:
    """What is not expired goes by force as long as the disk is too full, and ten files at most; RocketMQ looks again, too."""
    node = Node(tmp_path)
    node.disk = disk = Counting()
    node.settings = dataclasses.replace(node.settings, segment_bytes=8192)
    await node.start()
    await node.fill()
    await node.grow(40)
    await node.snapshots(2)
    before = len(node.segments())
    disk.others = 0.86 - 0.01 * before
    await node.peer.ask(DeleteExpiredLog())
    assert len(node.segments()) == before - 10
    await node.peer.ask(DeleteExpiredLog())
    assert len(node.segments()) == before - 10, "the disk has room now"
    disk.others = 0.86
    await node.peer.ask(DeleteExpiredLog())
    assert len(node.segments()) == before - 20
    await node.restart(96)
    disk.others = 0.86
    await node.peer.ask(DeleteExpiredLog())
    assert len(node.segments()) == 1, "expired ones go, however many they are"
    await node.stop()


class SlowProbes(MemoryDisk):
    """The file by which a broker sees that its disk takes one stays until another look makes it, too, or 0.2 s."""

    def __init__(self) -> None:
        super().__init__()
        self._made = threading.Semaphore(0)

    def create(self, path: str) -> int:
        if path.endswith("/rmq/probe"):
            self._made.release()
        return super().create(path)

    def unlink(self, path: str) -> None:
        if path.endswith("/rmq/probe"):
            self._made.acquire()
            self._made.acquire(timeout=0.2)
        super().unlink(path)


async def test_two_that_look_at_the_disk_do_not_take_each_others_file_away(tmp_path: Path) -> None:
    """An administrator asks while the broker looks by itself: no send is refused for that."""
    node = Node(tmp_path)
    node.disk = SlowProbes()
    await node.start()
    await node.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await asyncio.gather(*(node.peer.ask(DeleteExpiredLog()) for _ in range(3)))
    assert (await node.peer.ask(send("T"))).status == 0
    await node.stop()


async def test_what_no_snapshot_covers_stays(tmp_path: Path) -> None:
    """Settings live in those records only."""
    node = await Node(tmp_path).start()
    await node.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await node.grow(4)
    node.disk.used = 0.9
    await node.peer.ask(DeleteExpiredLog())
    assert len(node.segments()) == 4
    await node.stop()


async def test_a_nearly_full_disk_refuses_sends_and_keeps_offsets(node: Node) -> None:
    """D14: 14 (not stored) above 90 %, while the broker's own records still go up to 95 %; it is left by itself."""

    async def settled(used: float, code: int) -> None:
        node.disk.used = used
        while (await node.peer.ask_code(send("T"))) != code:
            await node.clock.advance(10)

    await settled(0.91, R.SERVICE_NOT_AVAILABLE)
    await node.clock.advance_until(lambda: len(node.segments()) == 1, 10.0)
    await node.peer.ask(UpdateConsumerOffset("g", "T", 0, 1))
    await node.peer.ask(UpdateTopic("New", read_queue_nums=1, write_queue_nums=1))
    assert await node.peer.refusal(send("New")) == R.SERVICE_NOT_AVAILABLE
    assert bodies(await node.peer.pull("T", await node.minimum())), "consuming goes on"
    node.disk.used = 0.96
    offset = 2
    while (await node.peer.ask_code(UpdateConsumerOffset("g", "T", 0, offset))) == 0:
        await node.clock.advance(10)
        offset += 1
    await settled(0.5, R.SUCCESS)
    await node.peer.ask(UpdateConsumerOffset("g", "T", 0, offset))


async def test_what_is_kept_changes_while_the_broker_runs(node: Node) -> None:
    """fileReservedTime, deleteWhen, cleanFileForciblyEnable and the three ratios of the disk, each at once."""

    async def set_to(text: str) -> None:
        await node.peer.ask(UpdateBrokerConfig(text))
        await node.clock.advance(15)

    hour = time.localtime(node.clock.wall_ms() / 1000).tm_hour
    await node.restart(96)
    await set_to(f"deleteWhen={(hour + 12) % 24:02}\nfileReservedTime=200")
    await node.peer.ask(DeleteExpiredLog())
    assert len(node.segments()) == 4
    await set_to("fileReservedTime=50")
    assert len(node.segments()) == 4, "it is not the hour"
    await set_to("cleanFileForciblyEnable=false\ndiskSpaceCleanForciblyRatio=30\nfileReservedTime=200")
    node.disk.used = 0.32
    await node.clock.advance(15)
    assert len(node.segments()) == 4
    await set_to("diskSpaceWarningLevelRatio=35")
    assert await node.peer.ask_code(send("T")) == 0
    node.disk.used = 0.36
    while (await node.peer.ask_code(send("T"))) != R.SERVICE_NOT_AVAILABLE:
        await node.clock.advance(10)
    await set_to("diskSpaceWarningLevelRatio=90")
    while (await node.peer.ask_code(send("T"))) != 0:  # a thread looks at the disk
        await node.clock.advance(10)
    await set_to("diskMaxUsedSpaceRatio=20\nfileReservedTime=50")  # so full that expired files go at any hour
    await node.clock.advance_until(lambda: len(node.segments()) == 1, 10.0)


async def test_what_is_not_archived_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`keep_unarchived`: neither age nor a full disk takes it, and the log says so once; what was shipped goes."""
    node = Node(tmp_path)
    node.settings = dataclasses.replace(node.settings, keep_unarchived=True)
    await node.start()
    await node.fill()
    await node.restart(100)
    node.disk.used = 0.89
    await node.clock.advance(30)
    await node.peer.ask(DeleteExpiredLog())
    assert len(node.segments()) == 4
    assert [record.message for record in caplog.records].count(
        "old log files stay, because they are not archived (keep_unarchived): see to `rmq archive`"
    ) == 1
    save_archived(node.disk, f"{tmp_path}/rmq", 2 * 140_000)
    await node.clock.advance_until(lambda: len(node.segments()) == 2, 10.0)
    await node.clock.advance(30)
    assert len(node.segments()) == 2
    await node.stop()
