"""Groups that are set to another place: by a tool's commit and by RocketMQ's reset, with members that are connected."""

import asyncio
import json
from pathlib import Path

import pytest

from rmq.codes import ResponseCode as R
from rmq.delivery.offsets import OffsetKey
from rmq.errors import RmqError
from rmq.model import GroupConfig, MessageQueue
from rmq.net.commands import DeleteGroup, DeleteTopic, Pull, QueryConsumerOffset, UpdateConsumerOffset, UpdateGroup, UpdateTopic
from rmq.net.commands.configuration import UpdateBrokerConfig
from rmq.net.commands.pop import ChangeInvisibleTime, PollingInfo
from rmq.net.commands.resets import CloneOffsets, FollowReset, QueueOffset, ResetOffset
from rmq.net.remoting.adminbodies import write_follow
from rmq.net.remoting.javajson import loads
from rmq.testing import LocalBroker, until
from tests.broker.conftest import Connect
from tests.broker.groups import LocalGroup
from tests.broker.helddisk import HeldDisk
from tests.broker.javaclient import JavaClient
from tests.broker.popping import Popped, ack, take
from tests.broker.support import Peer, beat, bodies, send

ASK = QueryConsumerOffset("g", "T", 0)


async def offset(peer: Peer) -> int:
    return int((await peer.ask(ASK)).offset)


def commit(number: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset("g", "T", 0, number)


@pytest.fixture
async def member(broker: LocalBroker, connect: Connect) -> Peer:
    """Of group g, which has read all ten messages."""
    found = await connect(broker, "member")
    await found.ask(beat("member", "g"))
    await found.send(send("T", count=10))
    await found.pull("T", 0)
    await found.ask(commit(10))
    return found


async def test_a_tools_commit_back_is_in_force_and_the_member_goes_there(member: Peer, peer: Peer) -> None:
    """It answered success and did nothing."""
    await peer.ask(commit(3))
    assert await offset(peer) == 3
    await member.ask(commit(9))  # of what it had in hand: it would undo the reset
    member.channel.post(commit(10))
    assert await offset(peer) == 3
    moved = await member.pull("T", 10)
    assert (moved.status, moved.next_begin_offset) == (R.PULL_OFFSET_MOVED, 3)
    assert len(bodies(await member.pull("T", 3))) == 7
    await member.ask(commit(5))
    assert await offset(peer) == 5, "its own progress counts again"


async def test_progress_counts_again_after_a_reset_to_the_begin(member: Peer, peer: Peer) -> None:
    """It never did, as long as this leader lived: the reset to offset 0 stayed on its way."""
    await peer.ask(ResetOffset("T", "g", 0, 0))
    assert (await member.pull("T", 10)).next_begin_offset == 0
    assert len(bodies(await member.pull("T", 0))) == 10
    await member.ask(commit(6))
    assert await offset(peer) == 6


async def test_a_pull_that_waits_hears_of_it_at_once(member: Peer, peer: Peer) -> None:
    waiting = asyncio.create_task(member.pull("T", 10, flag=6, suspend_timeout_millis=3_600_000))
    await member.ask(ASK)  # behind the pull: it waits now
    await peer.ask(ResetOffset("T", "g", 0, 4))
    moved = await waiting
    assert (moved.status, moved.next_begin_offset) == (R.PULL_OFFSET_MOVED, 4)


async def test_a_member_that_lost_the_answer_is_sent_there_again(
    broker: LocalBroker, member: Peer, peer: Peer, connect: Connect
) -> None:
    """Its connection broke, or it had given up that pull. It went on where it was, and the reset was undone."""
    await peer.ask(ResetOffset("T", "g", 0, 3))
    await member.pull("T", 10)
    await member.close()
    again = await connect(broker, "member")
    await again.ask(beat("member", "g"))
    assert (await again.pull("T", 10)).next_begin_offset == 3
    await again.ask(commit(10))
    assert await offset(peer) == 3
    assert len(bodies(await again.pull("T", 3))) == 7


async def test_without_members_a_tool_may_set_any_place_of_the_queue(peer: Peer) -> None:
    await peer.send(send("T", count=10))
    for number in (10, 2, 0, 7):
        await peer.ask(commit(number))
        assert await offset(peer) == number
    assert len(bodies(await peer.pull("T", 7))) == 3, "who begins there is not sent anywhere"


async def test_offsets_behind_the_end_are_refused(member: Peer, peer: Peer) -> None:
    """Of one-way commits and pulls nobody hears: they count for nothing."""
    assert await peer.refusal(commit(11)) == await member.refusal(commit(11)) == R.INVALID_PARAMETER
    assert await peer.refusal(ResetOffset("T", "g", 0, 11)) == R.INVALID_PARAMETER
    member.channel.post(commit(500))
    await member.pull("T", 9, flag=5, commit_offset=500)
    assert await offset(peer) == 10
    await peer.ask(DeleteTopic("T"))
    await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await peer.send(send("T"))
    member.channel.post(commit(9))  # of the topic that was
    assert await offset(peer) == 0


async def test_a_reset_by_time_moves_every_queue(member: Peer, peer: Peer) -> None:
    """[ResetOffsetRequestHeader] -1: to the end; not by force: only back."""
    found = await peer.ask(ResetOffset("T", "g", timestamp=0))
    assert found.offsets[:2] == [QueueOffset(MessageQueue("T", "broker-a", number), 0) for number in (0, 1)]
    assert await offset(peer) == 0
    await peer.ask(ResetOffset("T", "g", timestamp=-1, is_force=False))
    assert await offset(peer) == 0
    await peer.ask(ResetOffset("T", "g", timestamp=-1))
    assert await offset(peer) == 10


async def test_refused_resets(member: Peer, peer: Peer) -> None:
    assert await peer.refusal(ResetOffset("nowhere", "g")) == R.TOPIC_NOT_EXIST
    assert await peer.refusal(ResetOffset("T", "nobody")) == R.SUBSCRIPTION_GROUP_NOT_EXIST
    for queue_id, number in ((99, 0), (-1, 5), (0, 11)):
        assert await peer.refusal(ResetOffset("T", "g", queue_id, number)) == R.INVALID_PARAMETER
    await peer.ask(ResetOffset("T", "g", 0, 2))
    await peer.ask(DeleteGroup("g", clean_offset=True))
    assert await peer.refusal(ResetOffset("T", "g")) == R.SUBSCRIPTION_GROUP_NOT_EXIST
    assert (await member.pull("T", 10)).status != R.PULL_OFFSET_MOVED, "the reset went with the group"


async def test_names_as_long_as_they_may_be(peer: Peer) -> None:
    topic, group = "t" * 127, "g" * 120
    await peer.ask(UpdateTopic(topic, read_queue_nums=1, write_queue_nums=1))
    await peer.ask(UpdateGroup(GroupConfig(group)))
    await peer.send(send(topic, count=3))
    await peer.ask(ResetOffset(topic, group, timestamp=-1))
    assert (await peer.ask(QueryConsumerOffset(group, topic, 0))).offset == 3


async def test_a_reset_survives_a_change_of_leader(tmp_path: Path) -> None:
    async with LocalGroup(tmp_path) as group:
        first = await group.leader()
        leader = await group.connect(first)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.ask(UpdateGroup(GroupConfig("g")))
        await leader.ask(send("T", count=10))
        await leader.ask(commit(10))
        await leader.ask(ResetOffset("T", "g", 0, 4))
        assert await (await group.connect((await group.followers())[0])).refusal(ResetOffset("T", "g")) == R.SERVICE_NOT_AVAILABLE
        await group.stop(first)
        assert await offset(await group.connect(await group.leader(but=first))) == 4


async def test_a_member_follows_also_to_the_next_leader(tmp_path: Path) -> None:
    """The leader dies when the reset is committed and before the member has pulled: it went on where it was, and its next commit
    undid the reset."""
    async with LocalGroup(tmp_path) as group:
        first, member = await group.leader(), await _ten_read(group)
        await (await group.connect(first)).ask(ResetOffset("T", "g", 0, 4))
        await group.stop(first)
        name = await group.leader(but=first)
        after, member = await group.connect(name), await _member(group, name)
        await member.ask(commit(10))
        assert await offset(after) == 4
        moved = await member.pull("T", 10)
        assert (moved.status, moved.next_begin_offset) == (R.PULL_OFFSET_MOVED, 4)
        assert len(bodies(await member.pull("T", 4))) == 6
        await member.ask(commit(9))
        assert await offset(after) == 9
        await group.level()
        assert not any(node.serving.tables.offsets.resets.committed() for node in group.nodes.values())


async def test_a_reset_that_is_not_committed_is_none(tmp_path: Path) -> None:
    """A leader that dies before moves nobody: the member was sent there all the same, in some of the queues."""
    async with LocalGroup(tmp_path) as group:
        first, member = await group.leader(), await _ten_read(group)
        leader, others = await group.connect(first), await group.followers()
        await group.stop(*others)
        resetting = asyncio.create_task(leader.ask_code(ResetOffset("T", "g", 0, 4)))
        waiting = asyncio.create_task(member.pull("T", 10, flag=6, suspend_timeout_millis=3_600_000))
        await member.ask_code(commit(9))
        await group.clock.advance_until(lambda: resetting.done() and waiting.done())
        assert await resetting != 0
        [answer] = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(answer, RmqError) or answer.status != R.PULL_OFFSET_MOVED


async def test_who_reads_at_a_follower_is_sent_to_the_leader(tmp_path: Path) -> None:
    """Its pulls never told the leader that it had gone to the new place, so none of its commits counted any more."""
    async with LocalGroup(tmp_path) as group:
        first, name = await group.leader(), (await group.followers())[0]
        await _ten_read(group)
        await group.level()
        reader = await _member(group, name)
        waiting = asyncio.create_task(reader.refusal(Pull("g", "T", 0, 10, sys_flag=6, suspend_timeout_millis=3_600_000)))
        await reader.ask_code(ASK)
        await (await group.connect(first)).ask(ResetOffset("T", "g", 0, 4))
        assert await waiting == R.SERVICE_NOT_AVAILABLE
        at_leader = await _member(group, first)
        assert (await at_leader.pull("T", 10)).next_begin_offset == 4
        assert len(bodies(await at_leader.pull("T", 4))) == 6
        await at_leader.ask(commit(9))
        await group.level()
        assert len(bodies(await reader.pull("T", 4))) == 6


async def _ten_read(group: LocalGroup) -> Peer:
    """A member at the leader, which has read all ten messages."""
    name = await group.leader()
    leader = await group.connect(name)
    await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await leader.ask(UpdateGroup(GroupConfig("g")))
    await leader.ask(send("T", count=10))
    member = await _member(group, name)
    await member.pull("T", 0)
    await member.ask(commit(10))
    return member


async def _member(group: LocalGroup, name: str) -> Peer:
    member = await group.connect(name, "member")
    await member.ask_code(beat("member", "g"))
    return member


async def test_members_are_told_where_the_broker_is_set_so(broker: LocalBroker, peer: Peer) -> None:
    """useServerSideResetOffset=false: RocketMQ 4's way (220), in Java's form and in that of C++; nobody there: 206."""
    await peer.ask(UpdateTopic("T", read_queue_nums=2, write_queue_nums=2))
    await peer.send(send("T", count=4))
    await peer.ask(UpdateGroup(GroupConfig("g")))
    await peer.ask(UpdateBrokerConfig("useServerSideResetOffset=false"))
    assert await peer.refusal(ResetOffset("T", "g", timestamp=0)) == R.CONSUMER_NOT_ONLINE
    async with JavaClient.connect(broker.address) as java:
        await java.ask(beat("java", "g"))
        answer = await peer.ask(ResetOffset("T", "g", timestamp=0))
        assert [one.offset for one in answer.offsets] == [0, 0]
        await until(lambda: [header.code for header, _ in java.pushed if header.code == 220])
        header, body = next(each for each in java.pushed if each[0].code == 220)
        assert header.ext == {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
        assert loads(body)["offsetTable"] == {f'{{"brokerName":"broker-a","queueId":{n},"topic":"T"}}': 0 for n in (0, 1)}
        assert json.loads(write_follow(FollowReset("T", "g", 0, True, answer.offsets, True)))["offsetTable"][1]["queueId"] == 1
        assert await peer.ask_code(ASK) == R.QUERY_NOT_FOUND or await offset(peer) == 0  # it is the member's to commit
        pending = broker.serving.tables.offsets.resets.pending
        assert not pending
        await peer.ask(beat("native", "g"))
        await peer.ask(ResetOffset("T", "g", timestamp=0))
        assert len(pending) == 2  # ours follow the broker


async def test_a_group_goes_on_where_another_is(member: Peer, peer: Peer) -> None:
    """314, in all topics or one; of a group that is unknown nothing is copied."""
    await peer.ask(UpdateGroup(GroupConfig("copy")))
    await peer.ask(CloneOffsets("g", "copy"))
    assert (await peer.ask(QueryConsumerOffset("copy", "T", 0))).offset == 10
    await member.ask(commit(4))
    await peer.ask(CloneOffsets("g", "copy", "T", True))
    assert (await peer.ask(QueryConsumerOffset("copy", "T", 0))).offset == await offset(peer)
    await peer.ask(CloneOffsets("nobody", "copy"))
    assert await peer.refusal(CloneOffsets("g", "unknown")) == R.SUBSCRIPTION_GROUP_NOT_EXIST


# --- groups that pop: what was handed out before the reset, and is acknowledged after it ---------------------------------------


@pytest.fixture
async def ten(broker: LocalBroker, peer: Peer) -> Peer:
    await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await peer.send(*(send("T", b"%d" % number) for number in range(10)))
    return peer


def _numbers(messages: list[Popped]) -> list[int]:
    return [int(one.body) for one in messages]


@pytest.mark.parametrize("to", [0, 4, 10])
@pytest.mark.parametrize("order", [False, True])
async def test_acknowledgements_of_before_do_not_undo_a_reset(ten: Peer, order: bool, to: int) -> None:
    """An ordered queue was closed by what had been handed out before, and its acknowledgements set the group forward again."""
    old = await take(ten.ask, count=6, order=order)
    await ten.ask(ResetOffset("T", "g", 0, to))
    await ack(ten.ask, *old[:3])
    assert await offset(ten) == to
    if order:
        assert await ten.refusal(ChangeInvisibleTime("g", "T", 0, old[4].handle, 4, 1000)) == R.NO_MESSAGE
    again = await take(ten.ask, order=order)
    assert _numbers(again) == [*range(to, 10)]
    await ack(ten.ask, *old[3:])
    await ack(ten.ask, *again)
    assert await offset(ten) == 10
    assert await take(ten.ask, order=order) == []


@pytest.mark.parametrize("order", [False, True])
async def test_a_pop_that_waits_hears_of_a_reset_at_once(ten: Peer, order: bool) -> None:
    await ack(ten.ask, *await take(ten.ask, order=order))
    waiting = asyncio.create_task(take(ten.ask, order=order, poll_ms=60_000))
    while not (await ten.ask(PollingInfo("g", "T", -1))).polling_num:
        pass
    await ten.ask(ResetOffset("T", "g", 0, 7))
    assert _numbers(await waiting) == [7, 8, 9]


async def test_a_group_that_popped_in_order_is_not_sent_back_when_it_pulls(broker: LocalBroker, ten: Peer) -> None:
    """The reset stayed for the first reader that pulls, though the group had followed it long ago."""
    await ack(ten.ask, *await take(ten.ask, order=True))
    await ten.ask(ResetOffset("T", "g", 0, 4))
    await ack(ten.ask, *await take(ten.ask, order=True))
    assert not broker.serving.tables.offsets.resets.committed()
    assert (await ten.pull("T", 10)).status == R.PULL_NOT_FOUND


@pytest.mark.parametrize("order", [False, True])
async def test_the_next_leader_knows_too_what_was_popped_before_a_reset(tmp_path: Path, order: bool) -> None:
    async with LocalGroup(tmp_path) as group:
        first = await group.leader()
        leader = await group.connect(first)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.ask(UpdateGroup(GroupConfig("g")))
        for number in range(10):
            await leader.ask(send("T", b"%d" % number))
        old = await take(leader.ask, count=6, order=order)
        await leader.ask(ResetOffset("T", "g", 0, 2))
        await group.stop(first)
        after = await group.connect(await group.leader(but=first))
        await ack(after.ask, *old)
        assert await offset(after) == 2
        again = await take(after.ask, order=order)
        assert _numbers(again) == [*range(2, 10)]
        await ack(after.ask, *again)
        assert await take(after.ask, order=order) == []
        assert await offset(after) == 10


@pytest.mark.parametrize("order", [False, True])
async def test_a_pop_beside_a_reset_does_not_undo_it(tmp_path: Path, order: bool) -> None:
    """While the followers have not flushed the reset: what is popped, or acknowledged in order, would be written behind it."""
    disks = {name: HeldDisk() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks, flush="sync") as group:
        first, others = await group.leader(), await group.followers()
        leader, tool = await group.connect(first), await group.connect(first)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.ask(UpdateGroup(GroupConfig("g")))
        for number in range(10):
            await leader.ask(send("T", b"%d" % number))
        old = await take(leader.ask, count=2, order=order)
        for name in others:
            disks[name].flushes.clear()
        moving = asyncio.create_task(tool.ask(ResetOffset("T", "g", 0, 0)))
        resets = group.nodes[first].serving.tables.offsets.resets
        await until(lambda: resets.is_staged(OffsetKey("g", "T", 0)))
        acking = asyncio.create_task(ack(leader.ask, *old))
        meanwhile = await take(leader.ask, order=order)
        for name in others:
            disks[name].flushes.set()
        await asyncio.gather(moving, acking)
        assert meanwhile == []
        assert await offset(leader) == 0
        assert _numbers(await take(leader.ask, order=order)) == [*range(10)]
