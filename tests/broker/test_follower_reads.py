"""Who is far behind reads from followers, and nobody is sent to one that lacks what comes next [slaveReadEnable].

The classic case: of a million messages that the leader has, 960 000 are copied. A reader before that place may go to the
follower, one behind it must not.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.broker import group as group_module
from rmq.log import commitlog
from rmq.log.files import gathering
from rmq.net.commands import PullAnswer, UpdateTopic
from tests.broker.groups import LocalGroup, OwnDisk
from tests.broker.support import Peer, bodies, send

WRITTEN, COPIED = 100, 96
PLACES = {"n0": 1, "n1": 2, "n2": 3}  # broker ids of followers: their place among the peers


Disks = dict[str, OwnDisk]


@pytest.fixture
def disks() -> Disks:
    return {name: OwnDisk() for name in PLACES}


@pytest.fixture
async def group(tmp_path: Path, disks: Disks, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalGroup]:
    monkeypatch.setattr(group_module, "NEAR_BYTES", 8192)
    monkeypatch.setattr(commitlog, "TAIL_BYTES", 1)  # as if what is read were written long ago
    monkeypatch.setattr(gathering, "NEAR_BYTES", 1)  # nor read lately
    async with LocalGroup(tmp_path, disks=disks, follower_reads=True) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        yield group


def evict(disk: OwnDisk) -> None:
    for path in disk.paths():
        if "/commitlog/" in path:
            disk.evict(path)


async def write(leader: Peer, first: int, end: int) -> None:
    for number in range(first, end):
        await leader.ask(send("T", b"%04d" % number + bytes(500)))


async def at(peer: Peer, offset: int) -> PullAnswer:
    return await peer.pull("T", offset, max_msg_nums=1)


async def test_a_reader_that_costs_the_leader_its_disk_goes_to_a_follower_until_it_is_near(
    group: LocalGroup, disks: Disks
) -> None:
    name = await group.leader()
    leader = await group.connect(name)
    await write(leader, 0, WRITTEN)
    await group.level()
    assert (await at(leader, 0)).suggest_which_broker_id == 0  # it is in memory
    evict(disks[name])
    suggested = (await at(leader, 0)).suggest_which_broker_id
    follower = next(node for node, place in PLACES.items() if place == suggested)
    assert follower != name
    there = await group.connect(follower)
    answer = await at(there, 0)
    assert (bodies(answer)[0][:4], answer.suggest_which_broker_id) == (b"0000", suggested)
    assert (await at(there, WRITTEN - 2)).suggest_which_broker_id == 0


async def test_of_a_follower_that_lags_nobody_is_told_who_is_further(group: LocalGroup, disks: Disks) -> None:
    name = await group.leader()
    lagging, other = await group.followers()
    leader = await group.connect(name)
    await write(leader, 0, COPIED)
    await group.level()
    await group.stop(lagging)
    await write(leader, COPIED, WRITTEN)
    evict(disks[name])
    async with asyncio.timeout(10):
        while not (await at(leader, WRITTEN - 2)).suggest_which_broker_id:
            pass  # the other one says with its next question how far it knows
    before = {(await at(leader, offset)).suggest_which_broker_id for offset in range(COPIED - 1)}
    assert before <= {PLACES[lagging], PLACES[other]}
    behind = [(await at(leader, offset)).suggest_which_broker_id for offset in range(COPIED, WRITTEN - 1)]
    assert set(behind) == {PLACES[other]}
    assert (await at(leader, WRITTEN - 1)).suggest_which_broker_id == 0  # nobody has what comes next


async def test_a_follower_that_has_not_come_for_long_is_not_suggested(group: LocalGroup, disks: Disks) -> None:
    name = await group.leader()
    away, other = await group.followers()
    leader = await group.connect(name)
    await write(leader, 0, 10)
    await group.level()
    await group.stop(away)
    await group.clock.advance(3)
    leads = await group.leader()
    evict(disks[leads])
    assert (await at(await group.connect(leads), 0)).suggest_which_broker_id in {0, PLACES[name], PLACES[other]}


async def test_switched_off_everybody_stays_at_the_leader(tmp_path: Path, disks: Disks) -> None:
    async with LocalGroup(tmp_path, disks=disks) as group:
        name = await group.leader()
        leader = await group.connect(name)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await write(leader, 0, 10)
        await group.level()
        evict(disks[name])
        assert (await at(leader, 0)).suggest_which_broker_id == 0
