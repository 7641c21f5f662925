"""Heartbeats: who is a member, what that makes, and who is told when members change."""

from rmq.codes import ResponseCode as R
from rmq.model import RETRY_PREFIX, GroupConfig
from rmq.net.commands import (
    GetConsumerConnection,
    GetConsumerList,
    GetGroupConfig,
    GetTopicConfig,
    NotifyConsumerIdsChanged,
    Ping,
    QueryTopicConsumeByWho,
    UnregisterClient,
    UpdateGroup,
)
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.support import Peer, beat

NOTICE = NotifyConsumerIdsChanged("g")


async def members(peer: Peer, group: str = "g") -> list[str]:
    return list((await peer.ask(GetConsumerList(group))).client_ids)


async def test_a_heartbeat_makes_group_and_retry_topic(peer: Peer) -> None:
    await peer.ask(beat("c", "g"))
    assert await peer.ask(GetGroupConfig("g")) == GroupConfig("g")
    retry = await peer.ask(GetTopicConfig(RETRY_PREFIX + "g"))
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)
    await peer.ask(UpdateGroup(GroupConfig("h", retry_queue_nums=3)))
    await peer.ask(beat("c", "h"))
    assert (await peer.ask(GetTopicConfig(RETRY_PREFIX + "h"))).write_queue_nums == 3


async def test_members_are_one_sorted_list_for_all(broker: LocalBroker, connect: Connect) -> None:
    """C8."""
    peers = [await connect(broker, name) for name in ("b", "c", "a")]
    assert await peers[0].refusal(GetConsumerList("g")) == R.SYSTEM_ERROR
    for peer, name in zip(peers, "bca", strict=True):
        await peer.ask(beat(name, "g"))
    assert [await members(peer) for peer in peers] == [["a", "b", "c"]] * 3


async def test_all_members_hear_of_join_leave_and_loss(broker: LocalBroker, connect: Connect) -> None:
    """C8: each change once, also to the newcomer; a heartbeat that changes nothing tells nobody."""
    first, second, third = [await connect(broker, name) for name in ("1", "2", "3")]
    await first.ask(beat("1", "g"))
    await first.wait_for_pushes(1)
    await second.ask(beat("2", "g"))
    await first.wait_for_pushes(2)
    await second.wait_for_pushes(1)
    await third.ask(beat("3", "g"))
    for _ in range(3):
        await third.ask(beat("3", "g"))
    await third.close()
    await first.wait_for_pushes(4)
    assert await members(first) == ["1", "2"]
    await second.ask(UnregisterClient("2", consumer_group="g"))
    await first.wait_for_pushes(5)
    assert await members(first) == ["1"]
    await first.ask(Ping())
    assert first.pushed == [NOTICE] * 5
    assert second.pushed == [NOTICE] * 3, "who left is told no more"


async def test_a_changed_subscription_is_told_to_all(broker: LocalBroker, connect: Connect) -> None:
    first, second = await connect(broker, "1"), await connect(broker, "2")
    await first.ask(beat("1", "g"))
    await second.ask(beat("2", "g"))
    await first.wait_for_pushes(2)
    await second.ask(beat("2", "g", expression="A", version=2))
    await first.wait_for_pushes(3)
    await second.ask(beat("2", "g", expression="A", version=3))
    await first.ask(Ping())
    assert len(first.pushed) == 3, "a newer version alone is no change"


async def test_a_silent_member_is_dropped(connect: Connect) -> None:
    """T1: by the broker's monotonic clock, within expiry and scan period."""
    async with LocalBroker(client_expiry_ms=30_000) as broker:
        alive, silent = await connect(broker, "alive"), await connect(broker, "silent")
        await silent.ask(beat("silent", "g"))
        await alive.ask(beat("alive", "g"))
        await alive.wait_for_pushes(1)
        broker.clock.jump_wall(3_600_000)
        await broker.clock.advance(25)
        assert await members(alive) == ["alive", "silent"], "the wall clock is nobody's business here"
        await alive.ask(beat("alive", "g"))
        pushes = len(alive.pushed)
        await broker.clock.advance(16)
        await alive.wait_for_pushes(pushes + 1)
        assert await members(alive) == ["alive"]


async def test_a_group_may_switch_notices_off(broker: LocalBroker, connect: Connect) -> None:
    first, second = await connect(broker, "1"), await connect(broker, "2")
    await first.ask(UpdateGroup(GroupConfig("g", notify_consumer_ids_changed_enable=False)))
    await first.ask(beat("1", "g"))
    await second.ask(beat("2", "g"))
    assert await members(first) == ["1", "2"]
    assert first.pushed == []


async def test_a_client_that_reconnects_is_one_member(broker: LocalBroker, connect: Connect) -> None:
    first, again, other = await connect(broker, "1"), await connect(broker, "1"), await connect(broker, "2")
    await other.ask(beat("2", "g"))
    await first.ask(beat("1", "g"))
    await again.ask(beat("1", "g"))
    assert await members(other) == ["1", "2"]
    await first.close()
    await other.ask(Ping())
    assert await members(other) == ["1", "2"], "its new connection stays"


async def test_one_refused_group_does_not_cost_the_others_their_membership(connect: Connect) -> None:
    async with LocalBroker(auto_create_group=False) as broker:
        peer = await connect(broker)
        await peer.ask(UpdateGroup(GroupConfig("known")))
        assert await peer.refusal(beat("c", "unknown", "known")) == R.SUBSCRIPTION_GROUP_NOT_EXIST
        assert await members(peer, "known") == ["c"]
        assert await peer.refusal(GetConsumerList("unknown")) == R.SYSTEM_ERROR


async def test_a_group_that_is_switched_off_keeps_its_members(peer: Peer) -> None:
    """Only its pulls are refused, so that it goes on at once when it is switched on again."""
    await peer.ask(UpdateGroup(GroupConfig("g", consume_enable=False)))
    await peer.ask(beat("c", "g", "other"))
    assert await members(peer) == ["c"]
    assert (await peer.ask(GetGroupConfig("g"))).consume_enable is False
    await peer.ask(UpdateGroup(GroupConfig("g")))
    assert (await peer.pull("T", 0, flag=0)).status == R.PULL_NOT_FOUND


async def test_bad_names_are_refused(peer: Peer) -> None:
    """S9."""
    assert await peer.refusal(beat("c", "a b")) == R.INVALID_PARAMETER
    assert await peer.refusal(beat("c\n", "g")) == R.INVALID_PARAMETER


async def test_a_heartbeat_of_a_connection_that_went_meanwhile_leaves_nobody_behind(connect: Connect) -> None:
    """The group is made while the connection ends; a member without connection would keep its queues for 120 s."""
    async with LocalBroker(flush="sync") as broker:
        watcher = await connect(broker, "watcher")
        for number in range(20):
            gone = await connect(broker, f"gone-{number}")
            gone.channel.post(beat(f"gone-{number}", f"new-{number}"))
            await gone.close()
            await watcher.ask(UpdateGroup(GroupConfig(f"other-{number}")))  # written behind the heartbeat's own
            assert await watcher.refusal(GetConsumerList(f"new-{number}")) == R.SYSTEM_ERROR


async def test_connection_view_and_readers_of_a_topic(peer: Peer) -> None:
    assert await peer.refusal(GetConsumerConnection("g")) == R.CONSUMER_NOT_ONLINE
    await peer.ask(beat("c", "g", expression="A"))
    view = await peer.ask(GetConsumerConnection("g"))
    assert [(one.client_id, one.language) for one in view.connections] == [("c", "PYTHON")]
    assert [(one.topic, one.expression) for one in view.subscriptions] == [("T", "A")]
    assert (await peer.ask(QueryTopicConsumeByWho("T"))).groups == ["g"]
