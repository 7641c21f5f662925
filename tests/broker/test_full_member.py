"""A node of a group whose disk is full, or takes nothing, over real sockets (stories 61, 62)."""

import asyncio
import errno
import shutil
from pathlib import Path

import pytest

from rmq.broker.node import Broker
from rmq.errors import Refusal, StoreError
from rmq.log.files.disk import RealDisk
from rmq.net.commands import DeleteExpiredLog, UpdateTopic
from rmq.net.commands.peers import TransferLeader
from rmq.raft import effects as fx, events as ev
from rmq.raft.core import Core
from tests.broker.groups import LocalGroup, OwnDisk
from tests.broker.helddisk import HeldDisk
from tests.broker.support import Peer, bodies, send


class NoFiles(RealDisk):
    """`full`: it makes no file. What is there can be written on."""

    full = False

    def create(self, path: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().create(path)


class NoQueues(RealDisk):
    """`full`: it makes no file of a queue; the log, and what is beside it, stand on another disk."""

    full = False

    def create(self, path: str) -> int:
        if self.full and "/consumequeue/" in path:
            raise OSError(errno.EROFS, "Read-only file system", path)
        return super().create(path)


class Torn(HeldDisk):
    """`torn`: a write of the log stops in its middle, and what stands there cannot be undone."""

    torn = False

    def pwrite(self, handle: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        if self.torn and handle in self._of_log:
            super().pwrite(handle, bytes(data)[:10], offset)
            raise OSError(errno.EIO, "Input/output error")
        return super().pwrite(handle, data, offset)


async def store_one(group: LocalGroup, leader: Peer) -> None:
    """T has one message, at all nodes."""
    await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await leader.send(send("T", b"before"))
    await group.level()


async def test_a_leader_without_room_hands_over_and_follows_again_when_it_has_some(tmp_path: Path) -> None:
    """Its place is taken by a node with room, no send waits for an administrator; meanwhile it serves what it has."""
    disks = {name: OwnDisk() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        full = await group.leader()
        leader = await group.connect(full)
        await store_one(group, leader)
        disks[full].used = 0.97
        await leader.ask(DeleteExpiredLog())  # it looks at the disk
        other = await group.connect(await group.leader(but=full))
        assert (await other.send(send("T", b"after")))[0].queue_offset == 1
        assert bodies(await leader.pull("T", 0)) == [b"before"]
        assert {one.node for one in (await group.status(full)).members if one.disk_full} == {full}
        disks[full].used = 0.5
        await leader.ask(DeleteExpiredLog())
        await group.level()
        assert bodies(await leader.pull("T", 0)) == [b"before", b"after"]


async def test_a_leader_whose_log_takes_nothing_hands_over_though_its_disk_looks_empty(tmp_path: Path) -> None:
    """A quota, or a sector that cannot be written: nobody waits for an administrator. It tries again later."""
    disks = {name: HeldDisk() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        full = await group.leader()
        leader = await group.connect(full)
        await store_one(group, leader)
        disks[full].full = True
        with pytest.raises(Refusal):
            await leader.send(send("T", b"refused"))
        await group.clock.advance(3)
        other = await group.connect(await group.leader(but=full))
        assert (await other.send(send("T", b"after")))[0].queue_offset == 1
        assert any("took no bytes" in why for why in group.nodes[full].waits_for())
        disks[full].full = False
        await group.clock.advance(35)
        await group.level()
        assert bodies(await leader.pull("T", 0)) == [b"before", b"after"]


async def test_a_follower_whose_log_took_nothing_for_a_moment_is_there_when_it_is_needed(tmp_path: Path) -> None:
    """L1: a quota that was raised at once. With the third node away the group took nothing for half a minute."""
    disks = {name: HeldDisk() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        leader = await group.connect(await group.leader())
        await store_one(group, leader)
        short, other = await group.followers()
        disks[short].full = True
        await leader.send(send("T", b"one"))
        async with asyncio.timeout(30):
            while not any("took no bytes" in why for why in group.nodes[short].waits_for()):
                await group.clock.advance(0.1)
        await group.clock.advance(2)
        assert any("took no bytes" in why for why in group.nodes[short].waits_for()), "it tries in vain"
        disks[short].full = False
        await group.stop(other)
        sending = asyncio.create_task(leader.send(send("T", b"two")))
        await group.clock.advance(4)
        assert (await sending)[0].queue_offset == 2
        assert not any("took no bytes" in why for why in group.nodes[short].waits_for())


async def test_a_leader_whose_disk_takes_no_file_hands_over(tmp_path: Path) -> None:
    """No inodes, or read only: how full the disk is says nothing of that."""
    disks = {name: NoFiles() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        full = await group.leader()
        leader = await group.connect(full)
        await store_one(group, leader)  # by then each has saved that it is proven: two that have not elect nobody
        disks[full].full = True
        await leader.ask(DeleteExpiredLog())  # it looks at the disk
        await group.clock.advance(5)
        other = await group.leader(but=full)
        assert any("takes no new file" in why for why in group.nodes[full].waits_for())
        disks[full].full = False
        await leader.ask(DeleteExpiredLog())
        await group.clock.advance(5)
        await group.level()
        assert not any(one.disk_full for one in (await group.status(other)).members)


async def test_a_leader_whose_queues_cannot_be_saved_hands_over(tmp_path: Path) -> None:
    """Their own disk turned read-only. Sends went on, their entries stayed in memory, and the node said that it was ready."""
    disks = {name: NoQueues() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        full = await group.leader()
        leader = await group.connect(full)
        disks[full].full = True
        await store_one(group, leader)
        await group.clock.advance(25)
        other = await group.connect(await group.leader(but=full))
        assert (await other.send(send("T", b"after")))[0].queue_offset == 1
        assert any("Read-only file system" in why for why in group.nodes[full].waits_for())
        disks[full].full = False
        await group.clock.advance(25)
        await group.level()
        assert not group.nodes[full].waits_for()
        assert bodies(await leader.pull("T", 0)) == [b"before", b"after"]


async def test_a_log_that_can_take_nothing_more_ends_its_node(tmp_path: Path) -> None:
    """D4: an append that cannot be undone. The group goes on without it, as behind a kill."""
    ended: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: ended.append(str(context["message"])))
    disks = {name: Torn() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        torn = await group.leader()
        leader = await group.connect(torn)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await group.level()
        disks[torn].torn = True
        with pytest.raises(Refusal, match="outcome unknown"):
            await leader.send(send("T", b"x"))
        assert [one for one in ended if "could not be undone" in one]
        disks[torn].torn = False
        with pytest.raises(StoreError, match="could not be undone"):
            await group.stop(torn)
        await group.start(torn)
        await group.clock.advance(5)
        await (await group.connect(await group.leader())).send(send("T", b"y"))
        await group.level()


async def test_a_member_whose_leader_misses_what_was_committed_ends_and_says_that_it_is_no_bug(tmp_path: Path) -> None:
    """R15: as where two of three disks were set back to a copy. Its log asked for a report, and for another start."""
    ended: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: ended.append(context["exception"]))
    async with LocalGroup(tmp_path / "stores") as group:
        await group.level()
        await group.stop("n0", "n1", "n2")
        for name in ("n0", "n1"):
            shutil.copytree(group.store(name), tmp_path / name)
        await group.start("n0", "n1", "n2")
        await group.clock.advance(1.5)
        await store_one(group, await group.connect(await group.leader()))
        await group.level()
        await group.stop("n0", "n1", "n2")
        for name in ("n0", "n1"):
            group.wipe(name)
            shutil.copytree(tmp_path / name, group.store(name))
        await group.start("n0", "n1")
        await group.clock.advance(1.5)
        await group.leader()
        await group.start("n2")
        async with asyncio.timeout(30):
            while not ended:
                await group.clock.advance(0.5)
        assert "committed messages would be lost. Keep this disk" in str(ended[0])
        assert isinstance(ended[0].__cause__, StoreError), "else `end_on_bugs` calls it a bug"


async def test_a_vote_that_finds_no_room_waits_for_some(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """D14, R8: full disks end no member. It takes no part in the election, which goes on when there is room."""
    disks = {name: NoFiles() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        old = await group.leader()
        leader = await group.connect(old)
        await store_one(group, leader)
        others = await group.followers()
        for name in others:
            disks[name].full = True
        await group.stop(old)
        waiting = [group.nodes[name] for name in others]
        async with asyncio.timeout(30):
            while not all(any("cannot save the vote" in why for why in node.waits_for()) for node in waiting):
                await group.clock.advance(0.5)
        assert "takes no part in its group" in caplog.text
        reader = await group.connect(others[0])
        assert bodies(await reader.pull("T", 0)) == [b"before"]
        for name in others:
            disks[name].full = False
        await group.clock.advance(5)
        new = await group.connect(await group.leader())
        assert (await new.send(send("T", b"after")))[0].queue_offset == 1
        await group.level()


class NoVotesOfLeaders(RealDisk):
    """It has no room for the vote of a node that leads."""

    node: Broker | None = None

    def create(self, path: str) -> int:
        if path.endswith("vote.new") and self.node is not None and self.node.serving.membership.member.core.leads():
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().create(path)


async def test_a_leader_that_cannot_save_that_it_is_proven_can_be_stopped(tmp_path: Path) -> None:
    """It waits for room, and handles nothing meanwhile: it waited for its own handing over as well."""
    disks = {name: NoVotesOfLeaders() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks, led=False) as group:
        for name, node in group.nodes.items():
            disks[name].node = node
        stuck = ""
        async with asyncio.timeout(30):
            while not stuck:
                await group.clock.advance(0.05)
                stuck = next((name for name, node in group.nodes.items() if any("vote" in why for why in node.waits_for())), "")
        stopping = asyncio.create_task(group.stop(stuck))
        async with asyncio.timeout(30):
            while not stopping.done():
                await group.clock.advance(0.1)
        for disk in disks.values():
            disk.node = None
        await group.start(stuck)
        await group.clock.advance(5)
        await group.leader()


async def test_what_comes_while_a_vote_waits_for_room_does_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D18: it may wait for hours. Ticks, health and the questions of the others were kept, some hundred a minute."""
    disks = {name: NoFiles() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        first = await group.leader()
        full, other = await group.followers()
        await group.level()
        disks[full].full = True
        await (await group.connect(first)).ask(TransferLeader(other))
        await group.clock.advance(2)
        assert await group.leader() == other
        member = group.nodes[full].serving.membership.member
        steps = 0
        step = Core.step

        def counted(core: Core, event: ev.Event, now: float) -> list[fx.Effect]:
            nonlocal steps
            steps += core is member.core
            return step(core, event, now)

        monkeypatch.setattr(Core, "step", counted)
        for _ in range(120):
            await group.clock.advance(0.5)
        assert any("cannot save the vote" in why for why in group.nodes[full].waits_for())
        assert steps == 0
        disks[full].full = False
        async with asyncio.timeout(30):
            while not steps:
                await group.clock.advance(0.5)
        assert steps < 100  # all that had waited
        await group.level()
