"""Retention, repair and a snapshot's installation never work on the log's files at the same time (D15, R21); and a leader's loop
waits for none of them."""

import asyncio
import threading
from pathlib import Path

from rmq.log.files.damage import DamagedRange
from rmq.log.files.disk import RealDisk
from rmq.net.commands import DeleteExpiredLog, Ping, UpdateTopic
from tests.broker.groups import LocalGroup
from tests.broker.helddisk import HeldDisk
from tests.broker.support import send

SMALL = {"max_message_bytes": 4096, "segment_bytes": 8192}


async def filled(group: LocalGroup, name: str) -> None:
    leader = await group.connect(await group.leader())
    await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    for _ in range(20):
        await leader.send(send("T", b"x" * 2000))
    await group.level()
    assert len(group.nodes[name].serving.store.log.segments()) > 4


async def test_what_retention_deletes_is_not_put_back(tmp_path: Path) -> None:
    """A repair has got its bytes; before it writes them the file goes."""
    async with LocalGroup(tmp_path, count=2, **SMALL) as group:
        (name,) = await group.followers()
        await filled(group, name)
        node = group.nodes[name].serving
        store, files = node.store, node.membership.files
        store.save_progress()
        first, mending = store.log.segments()[0], tmp_path / name / "rmq" / "mending"
        found = store.queues.get("T", 0).entry(0)
        damaged = DamagedRange(found.offset, found.offset + found.size, "a test says so")
        async with files:
            store.log.damages.add(damaged)
            await group.clock.advance_until(lambda: mending.exists() and mending.stat().st_size == found.size)
            await group.clock.advance(1)
            assert mending.exists(), "it has its bytes, and waits"
            start = store.log.segments()[3].base
            for segment in await asyncio.to_thread(store.cleaning.drop_before, start):
                segment.withdraw()()
        await group.clock.advance_until(lambda: not store.log.damages)
        assert not RealDisk().exists(first.path)


async def test_nothing_is_deleted_while_a_snapshot_takes_the_logs_place(tmp_path: Path) -> None:
    async with LocalGroup(tmp_path, count=1, **SMALL) as group:
        await filled(group, "n0")
        node = group.nodes["n0"].serving
        peer = await group.connect("n0")
        async with node.membership.files:
            asked = asyncio.create_task(peer.ask(DeleteExpiredLog()))
            await (await group.connect("n0")).ask(Ping())
            await group.clock.advance(1)
            assert not asked.done()
        await asked


class Watched(HeldDisk):
    """`in_loop`, `elsewhere`: bytes of the log that the loop's thread read, and others."""

    in_loop = elsewhere = 0

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        if handle in self._of_log and threading.current_thread() is threading.main_thread():
            self.in_loop += size
        elif handle in self._of_log:
            self.elsewhere += size
        return super().pread(handle, size, offset)


async def test_a_follower_that_was_away_is_given_old_bytes_by_a_thread(tmp_path: Path) -> None:
    """The device may be slow, and everybody else waits for the loop."""
    disks = {name: Watched() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        name = await group.leader()
        leader, (away, _) = await group.connect(name), await group.followers()
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await group.stop(away)
        for _ in range(8):
            await leader.send(*(send("T", bytes(100_000)) for _ in range(10)))
        disks[name].in_loop = disks[name].elsewhere = 0
        await group.start(away)
        await group.level()
        assert disks[name].in_loop == 0
        assert disks[name].elsewhere > 3_000_000
