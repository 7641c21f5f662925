"""A node of a group whose disk is full, over real sockets (stories 61, 62)."""

from pathlib import Path

from rmq.net.commands import DeleteExpiredLog, UpdateTopic
from tests.broker.groups import LocalGroup, OwnDisk
from tests.broker.support import bodies, send


async def test_a_leader_without_room_hands_over_and_follows_again_when_it_has_some(tmp_path: Path) -> None:
    """Its place is taken by a node with room, no send waits for an administrator; meanwhile it serves what it has."""
    disks = {name: OwnDisk() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        full = await group.leader()
        leader = await group.connect(full)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.send(send("T", b"before"))
        await group.level()
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
