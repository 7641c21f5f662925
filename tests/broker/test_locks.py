"""Locks of queues at a real broker, standing alone and in an elected group."""

import asyncio
from pathlib import Path

import pytest

from rmq.broker.features import locks
from rmq.codes import ResponseCode
from rmq.delivery.locks import LIVE_S
from rmq.errors import Refusal
from rmq.model import GroupConfig, MessageQueue
from rmq.net.commands import DeleteGroup, DeleteTopic, GetMaxOffset, UpdateGroup, UpdateTopic
from rmq.net.commands.locks import LockedQueues, LockQueues, UnlockQueues
from rmq.net.commands.peers import TransferLeader
from rmq.testing import LocalBroker, until
from tests.broker.conftest import Connect
from tests.broker.groups import GROUP, LocalGroup
from tests.broker.support import Peer

NOT_HERE = ResponseCode.SERVICE_NOT_AVAILABLE


def queue(number: int, topic: str = "T", broker_name: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic, broker_name, number)


async def lock(peer: Peer, client_id: str, *queues: MessageQueue) -> list[MessageQueue]:
    answer = await peer.ask(LockQueues("g", client_id, list(queues)))
    assert isinstance(answer, LockedQueues)
    return answer.queues


async def state_lines(peer: Peer) -> int:
    """How many state records there are."""
    return int((await peer.ask(GetMaxOffset("rmq_sys_STATE", 0))).offset)


async def test_two_clients_share_the_queues_and_each_queue_has_one(broker: LocalBroker, connect: Connect) -> None:
    """C9: also when they ask at the same moment; released queues are free at once, expired ones after 60 s."""
    one, two = await connect(broker, "one"), await connect(broker, "two")
    everything = [queue(n) for n in range(4)]
    asked = [(name, peer, number) for number in range(4) for name, peer in (("one", one), ("two", two))]
    got = await asyncio.gather(*(lock(peer, name, queue(number)) for name, peer, number in asked))
    assert sorted(found for each in got for found in each) == everything
    mine, theirs = await lock(one, "one", *everything), await lock(two, "two", *everything)
    assert sorted(mine + theirs) == everything
    await two.ask(UnlockQueues("g", "two", mine))  # not two's: nothing happens
    assert await lock(two, "two", *mine) == []
    await one.ask(UnlockQueues("g", "one", mine))
    assert await lock(two, "two", *everything) == everything
    await two.close()  # a client that is gone keeps its locks as long as any other
    await broker.clock.advance(LIVE_S - 5)
    assert await lock(one, "one", *everything) == []
    await broker.clock.advance(6)
    assert await lock(one, "one", *everything) == everything


async def test_only_grants_and_releases_are_written(broker: LocalBroker, peer: Peer) -> None:
    await peer.ask(UpdateGroup(GroupConfig("g")))
    before = await state_lines(peer)
    for _ in range(5):
        assert await lock(peer, "me", queue(0), queue(1)) == [queue(0), queue(1)]
    assert await state_lines(peer) == before + 1
    await peer.ask(UnlockQueues("g", "me", [queue(0), queue(1), queue(2)]))
    assert await state_lines(peer) == before + 2
    await peer.ask(UnlockQueues("g", "me", [queue(0)]))
    assert await state_lines(peer) == before + 2


async def test_what_is_not_here_is_left_out_and_what_makes_no_sense_is_refused(broker: LocalBroker, peer: Peer) -> None:
    """D18: nobody fills the table with queues that do not exist."""
    wanted = [queue(3), queue(4), queue(-1), queue(0, "Missing"), queue(0, broker_name="elsewhere")]
    assert await lock(peer, "me", *wanted) == [queue(3)]
    for wrong in (
        LockQueues("g", "", [queue(0)]),
        LockQueues("", "me", [queue(0)]),
        LockQueues("g", "a\nb", [queue(0)]),
        LockQueues("g", "me", [queue(n) for n in range(2001)]),
        UnlockQueues("g", "me", [queue(n) for n in range(2001)]),
    ):
        assert await peer.refusal(wrong) == ResponseCode.INVALID_PARAMETER


async def test_a_deleted_topic_or_group_has_no_locks(broker: LocalBroker, peer: Peer) -> None:
    await peer.ask(UpdateGroup(GroupConfig("g")))
    for deletion, again in ((DeleteTopic("T"), UpdateTopic("T")), (DeleteGroup("g"), UpdateGroup(GroupConfig("g")))):
        assert await lock(peer, "one", queue(0)) == [queue(0)]
        assert await lock(peer, "two", queue(0)) == []
        await peer.ask(deletion)
        await peer.ask(again)
        assert await lock(peer, "two", queue(0)) == [queue(0)]
        await peer.ask(UnlockQueues("g", "two", [queue(0)]))


@pytest.mark.parametrize("by_snapshot", [True, False])
async def test_locks_survive_a_restart(tmp_path: Path, by_snapshot: bool) -> None:
    """By the records, or by the snapshot that a stop takes: each owner has 60 s from the start, then others wait no more."""
    async with LocalBroker(store_dir=tmp_path) as broker:
        await broker.create_topic("T", 2)
        peer = await Peer.connect(broker.address)
        await peer.ask(UpdateGroup(GroupConfig("g")))
        await lock(peer, "owner", queue(0), queue(1))
        await peer.ask(UnlockQueues("g", "owner", [queue(1)]))
        await peer.close()
        await broker.clock.advance(LIVE_S - 1)
        await broker.stop_broker()
        if not by_snapshot:
            for path in (tmp_path / "rmq").glob("snapshot-*"):
                path.unlink()
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        await broker.clock.advance(LIVE_S - 5)
        assert await lock(peer, "intruder", queue(0), queue(1)) == [queue(1)]
        await broker.clock.advance(6)
        assert await lock(peer, "intruder", queue(0)) == [queue(0)]
        assert await lock(peer, "owner", queue(0)) == []
        await peer.close()


async def test_lock_owner_survives_failover_intruder_waits(tmp_path: Path) -> None:
    """Story 42, C9: the owner keeps its queue over a change of leader; an intruder waits 60 s from the new leader's start."""
    async with LocalGroup(tmp_path) as group:
        mine, other = queue(0, broker_name=GROUP), queue(1, broker_name=GROUP)
        first = await group.leader()
        leader, address = await group.connect(first), group.nodes[first].address
        await leader.ask(UpdateTopic("T", read_queue_nums=2, write_queue_nums=2))
        await leader.ask(UpdateGroup(GroupConfig("g")))
        assert await lock(leader, "owner", mine, other) == [mine, other]
        await leader.ask(UnlockQueues("g", "owner", [other]))
        for name in await group.followers():
            follower = await group.connect(name)
            for request in (LockQueues("g", "owner", [mine]), UnlockQueues("g", "owner", [mine])):
                with pytest.raises(Refusal) as refused:
                    await follower.ask(request)
                assert (refused.value.code, refused.value.hint) == (NOT_HERE, address)

        await leader.ask(TransferLeader())
        second = await group.leader(but=first)
        began = group.clock.monotonic()
        leader = await group.connect(second)
        assert await lock(leader, "intruder", mine, other) == [other]
        await pass_time(group, began + LIVE_S - 5)
        assert await group.leader() == second
        assert await lock(leader, "intruder", mine) == []
        await pass_time(group, began + LIVE_S + 5)
        assert await group.leader() == second, "an election gave the owner another 60 s: the test proves nothing"
        assert await lock(leader, "intruder", mine) == [mine]
        assert await lock(leader, "owner", mine) == []
        await group.level()


async def pass_time(group: LocalGroup, until_s: float) -> None:
    """In steps that let the nodes hear of each other, so that nobody misses the leader."""
    while group.clock.monotonic() < until_s:
        await group.clock.advance(0.5)
        await group.level()


async def test_no_lock_is_promised_without_a_majority(tmp_path: Path) -> None:
    """R11, C9: neither a new one nor one that is only kept."""
    async with LocalGroup(tmp_path) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", read_queue_nums=2, write_queue_nums=2))
        await leader.ask(UpdateGroup(GroupConfig("g")))
        mine, other = queue(0, broker_name=GROUP), queue(1, broker_name=GROUP)
        assert await lock(leader, "owner", mine) == [mine]
        await group.stop(*await group.followers())
        granting = asyncio.create_task(leader.ask_code(LockQueues("g", "owner", [other])))
        await until(lambda: granting.done())
        assert granting.result() in (ResponseCode.SYSTEM_ERROR, NOT_HERE)
        await group.clock.advance(2)
        assert await leader.refusal(LockQueues("g", "owner", [mine])) == NOT_HERE


async def test_there_are_so_many_locks_and_those_who_have_one_keep_it(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "MAX_LOCKS", 2)
    assert await lock(peer, "owner", queue(0), queue(1)) == [queue(0), queue(1)]
    assert await peer.ask_code(LockQueues("g", "owner", [queue(2)])) == ResponseCode.SYSTEM_BUSY
    assert await lock(peer, "owner", queue(0), queue(1)) == [queue(0), queue(1)]
