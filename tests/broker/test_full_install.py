"""A member whose disk refuses a write while it takes a snapshot of its leader, over real sockets (story 46, D14)."""

import asyncio
import errno
from pathlib import Path
from threading import Event

import pytest

from rmq.broker.group import Group as Membership
from rmq.log.files.disk import RealDisk
from rmq.net.commands import DeleteExpiredLog, UpdateTopic
from rmq.testing import until
from tests.broker.groups import SHORT_LIVED, LocalGroup
from tests.broker.helddisk import HeldDisk
from tests.broker.support import bodies, send


class Refusing(RealDisk):
    """`refused`: the file that finds no room, once, when a snapshot has come. `full`: the snapshot itself finds none."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = ""
        self.full = False
        self.snapshots = 0  # so many have come
        self.found_one = False  # when another came, what there was of one stood there
        self._of_snapshot = -1

    def create(self, path: str) -> int:
        if path.endswith("/snapshot.received"):
            self.snapshots += 1
            self.found_one |= self.exists(path)
        if self.snapshots and self.refused and path.endswith(self.refused):
            self.refused = ""
            raise OSError(errno.ENOSPC, "No space left on device", path)
        handle = super().create(path)
        if path.endswith("/snapshot.received"):
            self._of_snapshot = handle
        return handle

    def pwrite(self, handle: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        if self.full and handle == self._of_snapshot:
            super().pwrite(handle, data[:100], offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwrite(handle, data, offset)

    def close(self, handle: int) -> None:
        super().close(handle)
        if handle == self._of_snapshot:
            self._of_snapshot = -1


class Slow(Refusing):
    """A device that takes long for a part of a snapshot: until `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.writing, self.go = Event(), Event()
        self.closed_under_it = False

    def pwrite(self, handle: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        if handle == self._of_snapshot:
            self.writing.set()
            assert self.go.wait(30)
            self.closed_under_it |= handle != self._of_snapshot
        return super().pwrite(handle, data, offset)


class Unfilled(HeldDisk):
    """`full`: the log takes nothing but the zeros that a new file of it is made of."""

    def pwrite(self, handle: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        return super().pwrite(handle, data, offset) if any(data) else RealDisk.pwrite(handle, data, offset)


class Group(LocalGroup):
    """What n2 has is too little, or it is `wiped`: once it is started it needs a snapshot."""

    async def leave_behind(self, wiped: bool) -> None:
        leader = await self.connect(await self.leader())
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await self.level()
        await self.stop("n2")
        leader = await self.connect(await self.leader())
        await leader.send(*(send("T", b"x" * 2000) for _ in range(20)))
        await self.level()
        await self.stop("n0", "n1")  # takes a snapshot
        self.clock = self.later(hours=100)
        await self.start("n0", "n1")
        await self.clock.advance(2)
        first = await self.leader()
        await (await self.connect(first)).ask(DeleteExpiredLog())
        assert (await self.status(first)).log_start > 8192, "what n2 needs is still there: the test proves nothing"
        if wiped:
            self.wipe("n2")

    async def takes_part(self) -> None:
        """Returns when n2 has everything."""
        async with asyncio.timeout(30):
            while (await self.status("n2")).end < (await self.status(await self.leader())).end:
                await self.clock.advance(0.2)
        reader = await self.connect("n2")
        assert bodies(await reader.pull("T", 19)) == [b"x" * 2000]


@pytest.mark.parametrize(("wiped", "snapshots"), [(False, 2), (True, 1)])
async def test_no_room_to_save_where_it_begins(tmp_path: Path, wiped: bool, snapshots: int) -> None:
    """It tries again, or begins without: `progress` may say too little. It fetched nothing until it was started again."""
    disk = Refusing()
    async with Group(tmp_path, disks={"n2": disk}, **SHORT_LIVED) as group:
        await group.leave_behind(wiped)
        disk.refused = "/progress.new"
        await group.start("n2")
        await group.takes_part()
        assert (disk.refused, disk.snapshots) == ("", snapshots)


async def test_who_was_filled_up_knows_which_snapshot_it_can_give(tmp_path: Path) -> None:
    """It named the one that it had before, which is gone, to whoever needed one: nobody was filled up for a minute."""
    async with Group(tmp_path, **SHORT_LIVED) as group:
        await group.leave_behind(wiped=False)
        await group.start("n2")
        await group.takes_part()
        serving = group.nodes["n2"].serving
        newest = serving.store.snapshots.newest
        assert newest is not None
        assert isinstance(serving.membership, Membership)
        assert serving.membership.member.core.state.snapshot == (newest.s0, newest.s1)


async def test_no_room_once_the_old_log_is_gone(tmp_path: Path) -> None:
    """The node ends: what it says of its log is not true any more. The next start makes a whole one of what is there."""
    ended: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: ended.append(str(context["exception"])))
    disk = Refusing()
    async with Group(tmp_path, disks={"n2": disk}, **SHORT_LIVED) as group:
        await group.leave_behind(wiped=False)
        disk.refused = "/epochs.new"
        await group.start("n2")
        async with asyncio.timeout(30):
            while not ended:
                await group.clock.advance(0.2)
        assert "cannot shorten the log" in ended[0]
        await group.stop("n2")
        await group.start("n2")
        await group.takes_part()
        assert len(ended) == 1


async def test_a_stop_while_a_part_of_a_snapshot_is_being_written(tmp_path: Path) -> None:
    """The file was closed at once: the thread wrote on, into whatever file had its number by then."""
    disk = Slow()
    async with Group(tmp_path, disks={"n2": disk}, **SHORT_LIVED) as group:
        await group.leave_behind(wiped=False)
        await group.start("n2")
        async with asyncio.timeout(30):
            while not disk.writing.is_set():
                await group.clock.advance(0.2)
        (install,) = (task for task in asyncio.all_tasks() if task.get_name() == "snapshot install")
        stopping = asyncio.create_task(group.stop("n2"))
        await until(install.cancelling)
        for _ in range(10):  # who does not wait for the thread has closed the file then
            await asyncio.sleep(0)
        disk.go.set()
        await stopping
        assert not disk.closed_under_it
        await group.start("n2")
        await group.takes_part()


async def test_a_snapshot_that_does_not_fit_leaves_the_disk(tmp_path: Path) -> None:
    """What had come of it stayed, on a disk that was full because of it. Neither does a start keep what a kill left."""
    disk = Refusing()
    async with Group(tmp_path, disks={"n2": disk}, **SHORT_LIVED) as group:
        await group.leave_behind(wiped=False)
        own = group.store("n2") / "rmq"
        for name in ("snapshot.new", "snapshot.received"):
            (own / name).write_bytes(b"x" * 1000)
        disk.full = True
        await group.start("n2")
        assert not (own / "snapshot.new").exists()
        async with asyncio.timeout(30):
            while disk.snapshots < 1:
                await group.clock.advance(0.2)
            await group.clock.advance(2)
            assert disk.snapshots == 1, "all of it is sent again and again"
            while disk.snapshots < 2:  # it tried again
                await group.clock.advance(0.2)
        assert not disk.found_one
        disk.full = False
        await group.takes_part()


async def test_a_stop_while_log_below_the_snapshot_is_missing(tmp_path: Path) -> None:
    """It took a snapshot of its own then, of tables that are ahead of its log: at the next start it was whole for itself, served
    reads, and with a fixed role it could be promoted with queue offsets that lack what was between."""
    disk = Unfilled()
    async with Group(tmp_path, disks={"n2": disk}, **SHORT_LIVED) as group:
        await group.leave_behind(wiped=False)
        disk.full = True
        await group.start("n2")
        async with asyncio.timeout(30):
            while not group.nodes["n2"].serving.store.ready_at:
                await group.clock.advance(0.2)
        await group.clock.advance(61)  # a snapshot is taken each minute, and at the stop
        await group.stop("n2")
        await group.start("n2")
        assert group.nodes["n2"].serving.store.ready_at
        disk.full = False
        await group.takes_part()
