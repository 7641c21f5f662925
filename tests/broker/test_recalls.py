"""Recalls of timed messages that are about to come."""

import asyncio
from pathlib import Path

from rmq.net.commands import UpdateTopic
from rmq.net.commands.timers import Recall
from tests.broker.groups import LocalGroup
from tests.broker.helddisk import HeldDisk
from tests.broker.support import everything
from tests.broker.test_delays import arrived, delayed


async def test_what_was_taken_back_does_not_come_however_long_that_takes(tmp_path: Path) -> None:
    """C13: the followers' disks take nothing while the message falls due, so the recall is stored, and not committed."""
    disks = {name: HeldDisk() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks, recall_messages=True) as group:
        name = await group.leader()
        leader = await group.connect(name)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        at = group.clock.wall_ms() + 600_000
        [back, _] = await leader.send(delayed(b"back", TIMER_DELIVER_MS=at), delayed(b"stays", TIMER_DELIVER_MS=at))
        await group.level()
        for other in await group.followers():
            disks[other].full = True
        end = (await group.status(name)).end
        recalling = asyncio.create_task(leader.ask(Recall("T", back.recall_handle, "p")))
        while (taken_back := (await group.status(name)).end) == end:
            await group.clock.advance(0.01)
        group.clock.jump_wall(600_000)
        while (await group.status(name)).end == taken_back:  # the other one is on its way
            await group.clock.advance(0.1)
        for disk in disks.values():
            disk.full = False
        assert (await recalling).msg_id == b"back".hex()
        assert [one.body for one in await arrived(leader, group.clock)] == [b"stays"]
        await group.clock.advance(3)
        assert [one.body for one in await everything(leader)] == [b"stays"]
