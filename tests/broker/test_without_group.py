"""A member's store that is started without its group: by mistake it must change nothing, on purpose it is a broker of its own."""

from pathlib import Path

import pytest

from rmq.broker.node import Broker
from rmq.errors import Refusal, StoreError
from rmq.log.files import ownfiles
from rmq.log.files.disk import RealDisk
from rmq.log.records.record import host_bytes
from rmq.log.settings import StoreSettings
from rmq.log.store import Store
from rmq.net.commands import UpdateTopic
from rmq.net.commands.peers import AddPeer
from tests.broker.groups import GROUP, LocalGroup
from tests.broker.support import Peer, bodies, send, small_node

SEGMENT = 16 * 1024 * 1024


def alone(group: LocalGroup, name: str, unclean: bool = False, role: str = "") -> Broker:
    return Broker(small_node(group.store(name), broker_name=GROUP, broker_role=role, unclean=unclean), group.clock)


def ends(store: Path, name: str) -> tuple[int, int]:
    """What is committed there, and what there is."""
    settings = StoreSettings(host_bytes("127.0.0.1", 1), SEGMENT, group=GROUP, node_id=name, alone=False)
    found = Store.open(RealDisk(), str(store), settings)
    try:
        return found.dispatcher.position, found.log.end
    finally:
        found.close()


async def test_the_store_of_a_member_is_not_started_without_its_group(tmp_path: Path) -> None:
    """It would lead beside the leader, and lose what it answered when it is a member again. The last one that is left may, if its
    operator says so: then it is a broker of its own, and the first of a new group."""
    async with LocalGroup(tmp_path, spare=1) as group:
        first = await group.leader()
        leader = await group.connect(first)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.send(send("T", b"x"))
        await group.level()
        last, *_ = await group.followers()
        names = list(group.nodes)
        await group.stop(*names)

        for role in ("", "ASYNC_MASTER", "SYNC_MASTER"):  # as RocketMQ's broker.conf has it
            with pytest.raises(StoreError, match="settings of its group"):
                await alone(group, last, role=role).start()
        node = alone(group, last, unclean=True)
        await node.start()
        peer = await Peer.connect(node.address)
        assert bodies(await peer.pull("T", 0)) == [b"x"]
        await peer.send(send("T", b"y"))
        await peer.close()
        await node.stop()
        for name in names:
            if name != last:
                group.wipe(name)
        await group.start(last)
        await group.clock.advance(2)
        leader = await group.connect(await group.leader())
        await leader.send(send("T", b"z"))
        for name in names:
            if name != last:
                await group.start(name)
                await leader.ask(AddPeer(name, group.peer_address(name)))
        await group.level()
        assert {voter.node for voter in (await group.status(last)).members} == set(names)
        other = await group.connect(next(name for name in names if name != last))
        assert bodies(await other.pull("T", 0)) == [b"x", b"y", b"z"]


async def test_a_start_without_the_group_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    """All of a log that stands alone is committed; where a refused start made a member's tail so, it could not come back."""
    async with LocalGroup(tmp_path) as group:
        first = await group.leader()
        leader = await group.connect(first)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await group.level()
        others = [name for name in group.nodes if name != first]
        await group.stop(*others)
        with pytest.raises(Refusal):
            await leader.send(send("T", b"only here"))
        await group.stop(first)
        before = ends(group.store(first), first)
        assert before[0] < before[1]
        with pytest.raises(StoreError, match="settings of its group"):
            await alone(group, first).start()
        assert ends(group.store(first), first) == before
        await group.start(*others)
        leader = await group.connect(await group.leader())
        await leader.send(send("T", b"of the next leader"))
        await group.start(first)
        await group.level()
        back = await group.connect(first)
        assert bodies(await back.pull("T", 0))[-1] == b"of the next leader"


async def test_a_member_that_is_no_voter_yet_is_not_started_without_its_group_either(tmp_path: Path) -> None:
    """So stands the store of one that is being filled; the snapshot by which it is must not go."""
    async with LocalGroup(tmp_path) as group:
        await group.level()
        name = (await group.followers())[0]
        await group.stop(*group.nodes)
        own = str(group.store(name) / "rmq")
        vote = ownfiles.load_vote(RealDisk(), own)
        assert vote is not None
        ownfiles.save_vote(RealDisk(), own, vote._replace(store_id="0123456789abcdef"))
        with pytest.raises(StoreError, match="settings of its group"):
            await alone(group, name).start()
