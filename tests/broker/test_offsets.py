"""Where a group is: asked, committed, fenced, and still known after a restart."""

import asyncio
import json
from pathlib import Path

from rmq.codes import ResponseCode as R
from rmq.model import GroupConfig
from rmq.net.commands import (
    DeleteGroup,
    DeleteTopic,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    Pull,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateTopic,
)
from rmq.net.commands.groups import GetConsumeStats
from rmq.net.commands.peers import TransferLeader
from rmq.net.commands.resets import ResetOffset
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.conftest import Connect
from tests.broker.groups import LocalGroup
from tests.broker.support import Peer, beat, send

ASK = QueryConsumerOffset("g", "T", 0)


def commit(offset: int, queue_id: int = 0, topic: str = "T") -> UpdateConsumerOffset:
    return UpdateConsumerOffset("g", topic, queue_id, offset)


async def fill(peer: Peer) -> None:
    """60 messages in queues 0 and 1: nobody can be behind the end of a queue."""
    for queue_id in (0, 1):
        await peer.send(send("T", queue_id=queue_id, count=60))


async def offset(peer: Peer, request: object = ASK) -> int:
    return int((await peer.ask(request)).offset)


async def test_a_new_group_starts_at_0_while_message_0_is_young(peer: Peer) -> None:
    """So a new group on a new topic misses nothing (C1)."""
    assert await offset(peer) == 0
    await peer.send(send("T", count=3))
    assert await offset(peer) == 0
    assert await peer.refusal(ASK._replace(set_zero_if_not_found=False)) == R.QUERY_NOT_FOUND
    assert await offset(peer, ASK._replace(topic="nowhere")) == 0


async def test_a_commit_is_seen_at_once(peer: Peer) -> None:
    await fill(peer)
    peer.channel.post(commit(7))
    assert await offset(peer) == 7
    await peer.ask(commit(9))
    assert await offset(peer) == 9
    assert await offset(peer, ASK._replace(set_zero_if_not_found=False)) == 9


async def test_a_pull_carries_an_offset(peer: Peer) -> None:
    await peer.send(send("T", count=5))
    await peer.pull("T", 4, flag=4, commit_offset=3)
    assert await offset(peer) == 0, "only with its flag"
    await peer.pull("T", 4, flag=5, commit_offset=3)
    assert await offset(peer) == 3


async def test_a_refused_pull_commits_nothing(peer: Peer) -> None:
    assert await peer.refusal(Pull("g", "T", 0, 0, sys_flag=1, commit_offset=3)) == R.SUBSCRIPTION_NOT_EXIST
    assert await offset(peer) == 0


async def test_only_who_pulled_last_may_go_back(broker: LocalBroker, connect: Connect) -> None:
    """C7: a late commit of the member that lost the queue moves nothing back."""
    old, new = await connect(broker, "old"), await connect(broker, "new")
    await fill(old)
    await old.ask(beat("old", "g"))
    await new.ask(beat("new", "g"))
    await old.pull("T", 0)
    await old.ask(commit(50))
    await new.pull("T", 0)
    await new.ask(commit(60))
    await old.ask(commit(55))
    assert await offset(old) == 60
    await new.ask(commit(10))
    assert await offset(old) == 10, "its owner may start again"


async def test_refused_commits(peer: Peer, connect: Connect) -> None:
    assert await peer.refusal(commit(1, topic="nowhere")) == R.TOPIC_NOT_EXIST
    assert await peer.refusal(commit(-1)) == R.INVALID_PARAMETER
    assert await peer.refusal(commit(1)._replace(consumer_group="a b")) == R.INVALID_PARAMETER
    async with LocalBroker(auto_create_group=False) as strict:
        await strict.create_topic("T", 1)
        assert await (await connect(strict)).refusal(commit(1)) == R.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_offsets_survive_a_restart(broker: LocalBroker, connect: Connect, peer: Peer) -> None:
    """C5: never "from the start" because the broker was stopped. One-way commits, too: a stop in order writes them."""
    await fill(peer)
    await peer.ask(commit(7))
    peer.channel.post(commit(8, queue_id=1))
    assert await offset(peer, ASK._replace(queue_id=1)) == 8
    await broker.stop_broker()
    await broker.start_broker()
    again = await connect(broker)
    assert [await offset(again, ASK._replace(queue_id=q)) for q in (0, 1, 2)] == [7, 8, 0]


async def test_a_commit_by_request_is_durable_when_answered(connect: Connect) -> None:
    """C5, D1: under sync flush, with the same offset already on its way, and with others at the same moment."""
    async with LocalBroker(flush="sync") as broker:
        await broker.create_topic("T", 4)
        peer = await connect(broker)
        await fill(peer)
        await peer.ask(UpdateGroup(GroupConfig("g")))
        end = (await peer.ask(GetMaxOffset("rmq_sys_STATE", 0))).offset
        await asyncio.gather(*(peer.ask(commit(5, queue_id=n % 2)) for n in range(6)))
        assert (await peer.ask(GetMaxOffset("rmq_sys_STATE", 0))).offset > end, "it counts committed records only"
        exported = json.loads(await _exported(broker))
        assert exported["offsetTable"]["T@g"] == {"0": 5, "1": 5}


async def _exported(broker: LocalBroker) -> str:
    path = broker.store_dir / "config" / "consumerOffset.json"
    await broker.clock.advance(6)
    await until(lambda: path.exists() and '"T@g"' in path.read_text())
    return path.read_text()


async def test_a_deleted_topic_takes_its_offsets_along(peer: Peer) -> None:
    """C5, no ghosts: a topic of that name made later starts from nothing."""
    await fill(peer)
    await peer.ask(commit(7))
    peer.channel.post(commit(8))
    await peer.ask(DeleteTopic("T"))
    assert await peer.refusal(commit(9)) == R.TOPIC_NOT_EXIST
    await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    assert await peer.refusal(ASK._replace(set_zero_if_not_found=False)) == R.QUERY_NOT_FOUND


async def test_a_deleted_group_keeps_its_offsets_unless_told(peer: Peer) -> None:
    """Also once it is gone, as at RocketMQ's broker: nothing else but the end of their topic took them away then."""
    await fill(peer)
    await peer.ask(commit(7))
    await peer.ask(DeleteGroup("g"))
    assert await offset(peer) == 7
    await peer.ask(DeleteGroup("g", clean_offset=True))
    assert await peer.refusal(ASK._replace(set_zero_if_not_found=False)) == R.QUERY_NOT_FOUND
    await peer.ask(DeleteGroup("g", clean_offset=True))


async def test_ends_of_a_queue(peer: Peer) -> None:
    await peer.send(send("T", count=4))
    assert await offset(peer, GetMaxOffset("T", 0)) == 4
    assert await offset(peer, GetMinOffset("T", 0)) == 0
    for request in (GetMaxOffset("nowhere", 0), GetMinOffset("T", 99), GetMaxOffset("T", -1), SearchOffset("T", 9, 0)):
        assert await offset(peer, request) == 0
    assert (await peer.ask(GetEarliestStoreTime("T", 1))).timestamp == -1
    assert (await peer.ask(GetEarliestStoreTime("nowhere", 0))).timestamp == -1


async def test_offsets_by_time(connect: Connect) -> None:
    clock = TestClock(running=False, wall_ms=1_700_000_000_000)
    async with LocalBroker(clock=clock, stop_grace_ms=0) as broker:
        peer = await Peer.connect(broker.address)
        for _ in range(5):
            await peer.send(send("N"))
            await clock.advance(0.1)
        first = (await peer.ask(GetEarliestStoreTime("N", 0))).timestamp
        assert first == 1_700_000_000_000
        asked = [(await peer.ask(SearchOffset("N", 0, first + late))).offset for late in (-5, 0, 1, 100, 101, 400, 999)]
        assert asked == [0, 0, 1, 1, 2, 4, 5]
        assert (await peer.ask(SearchOffset("N", 0, first + 150, "upper"))).offset == 1
        await peer.close()


async def test_no_offset_of_what_is_not_there_is_kept(broker: LocalBroker, peer: Peer) -> None:
    """A queue that the topic does not have, a group that nobody made: else a client fills the table with names of its own."""
    await fill(peer)
    assert await peer.refusal(commit(1, queue_id=4)) == R.INVALID_PARAMETER
    assert await peer.refusal(commit(1)._replace(consumer_group="nobody")) == R.SUBSCRIPTION_GROUP_NOT_EXIST
    for queue_id in (0, 4, 9):
        peer.channel.post(commit(1, queue_id=queue_id)._replace(consumer_group="nobody"))
        peer.channel.post(commit(1, queue_id=queue_id))
    pull = Pull("nobody", "T", 0, 0, sys_flag=5, commit_offset=1)
    assert (await peer.ask(pull)).status == R.SUCCESS, "it may read"
    await broker.stop_broker()
    exported = json.loads((broker.store_dir / "config" / "consumerOffset.json").read_text())
    assert exported["offsetTable"] == {"T@g": {"0": 1}}


async def test_what_was_pulled_and_not_committed_is_told(broker: LocalBroker, peer: Peer) -> None:
    """`pullOffset` of 208 (mqadmin consumerProgress: Inflight), the metrics beside it; a reset forgets it."""
    await fill(peer)

    async def progress() -> tuple[int, int, int]:
        row = (await peer.ask(GetConsumeStats("g", "T"))).queues[0]
        return row.consumer_offset, row.pull_offset, row.broker_offset

    await peer.pull("T", 0, max_msg_nums=20)
    assert await progress() == (0, 20, 60)
    await peer.ask(commit(8))
    await peer.pull("T", 20, max_msg_nums=20)
    assert await progress() == (8, 40, 60)
    shown = {
        family.name: dict(family.rows) for family in broker.serving.metrics() if family.name.startswith("rocketmq_consumer_")
    }
    labels = ("T", "g", "false", "false")
    names = ("inflight", "lag", "ready")
    assert [shown[f"rocketmq_consumer_{name}_messages"][labels] for name in names] == [32.0, 52.0, 20.0]
    await peer.ask(ResetOffset("T", "g", 0, 2))
    assert await progress() == (2, 2, 60)


async def test_a_commit_that_failed_is_not_told_to_the_next_one(tmp_path: Path) -> None:
    """Its leader had lost the others, and leads again. What the next one commits is known already: nothing has to be written."""
    async with LocalGroup(tmp_path) as group:
        name = await group.leader()
        leader = await group.connect(name)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.ask(UpdateGroup(GroupConfig("g")))
        await leader.send(send("T", count=5))
        await leader.ask(commit(2))
        await group.level()
        others = await group.followers()
        await group.stop(*others)
        assert await leader.refusal(commit(3)) == R.SYSTEM_ERROR
        await group.start(*others)
        await group.clock.advance(1.5)
        while (other := await group.leader()) != name:
            await (await group.connect(other)).ask_code(TransferLeader(name))
            await group.clock.advance(0.5)
        await leader.ask(commit(await offset(leader)))
