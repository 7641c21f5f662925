"""Topics and groups by administration: made, changed, deleted, made again, listed; what tools are told."""

import asyncio

import pytest

from rmq.broker.handlers import inspect
from rmq.codes import ResponseCode as R
from rmq.delivery.groups import GroupTable
from rmq.errors import Refusal
from rmq.model import ConsumerData, GroupConfig, Subscription, TopicConfig
from rmq.net.commands import (
    DeleteGroup,
    DeleteTopic,
    GetAllGroupConfig,
    GetAllTopicConfig,
    GetConsumeStats,
    GetEarliestStoreTime,
    GetGroupConfig,
    GetMaxOffset,
    GetMinOffset,
    GetRoute,
    GetRuntimeInfo,
    GetTopicConfig,
    GetTopicStats,
    Heartbeat,
    SearchOffset,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateGroups,
    UpdateTopic,
    UpdateTopics,
)
from rmq.net.commands.resets import ResetOffset
from rmq.net.commands.retries import SendBack
from rmq.net.commands.routes import GetUnitSubscribedOtherTopics, GetUnitSubscribedTopics, GetUnitTopics
from rmq.routing.topics import TopicTable
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.javaclient import JavaClient
from tests.broker.popping import pop
from tests.broker.support import Peer, beat, bodies, send
from tests.broker.test_delays import arrived, delayed

POOLS = ("send", "pull", "query", "litePull", "ack")
RUNTIME_KEYS = [
    "putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps", "msgPutTotalTodayNow",
    "msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning", "msgGetTotalTodayNow", "msgGetTotalTodayMorning",
    "msgGetTotalYesterdayMorning", "brokerVersionDesc", "brokerVersion", "brokerActive", "bootTimestamp",
    "startAcceptSendRequestTimeStamp", "runtime", "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity",
    "commitLogDiskRatio", "consumeQueueDiskRatio", "commitLogMinOffset", "commitLogMaxOffset", "commitLogDirCapacity",
    "dispatchBehindBytes", "dispatchMaxBuffer", "pageCacheLockTimeMills", "earliestMessageTimeStamp",
    "putMessageEntireTimeMax", "getMessageEntireTimeMax", "putMessageTimesTotal", "putMessageSizeTotal",
    "putMessageAverageSize", "putMessageDistributeTime", "putMessageFailedTimes", "remainTransientStoreBufferNumbs",
    "remainHowManyDataToFlush", "timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps",
    "timerDequeueTps", "putLatency99", "putLatency999",
    *(f"{pool}ThreadPoolQueue{what}" for pool in POOLS for what in ("Size", "Capacity", "HeadWaitTimeMills")),
]  # fmt: skip


def topic(name: str, queues: int = 1, **fields: int | str | bool) -> UpdateTopic:
    return UpdateTopic(name, read_queue_nums=queues, write_queue_nums=queues, **fields)  # type: ignore[arg-type]


async def groups_and_topics(peer: Peer) -> tuple[set[str], set[str]]:
    groups, topics = await peer.ask(GetAllGroupConfig()), await peer.ask(GetAllTopicConfig())
    return {one.name for one in groups.groups}, {one.name for one in topics.topics}


async def test_clients_find_a_topic_as_soon_as_its_making_is_answered(broker: LocalBroker, peer: Peer) -> None:
    """And do not once its deletion is. A service that was started right behind `updateTopic` was told that there is no such
    topic, for as long as it took to tell nameservers of all others."""
    nameserver = await Peer.connect(broker.nameserver)
    for number in range(30):
        await peer.ask(topic(f"T{number}", 3))
        assert [row.read_queue_nums for row in (await nameserver.ask(GetRoute(f"T{number}"))).queues] == [3]
        await peer.ask(UpdateTopics([TopicConfig(f"T{number}", 2, 2), TopicConfig(f"U{number}", 1, 1)]))
        routes = [await nameserver.ask(GetRoute(f"{name}{number}")) for name in "TU"]
        assert [row.read_queue_nums for route in routes for row in route.queues] == [2, 1]
        await peer.ask(DeleteTopic(f"T{number}"))
        with pytest.raises(Refusal, match="No topic route info"):
            await nameserver.ask(GetRoute(f"T{number}"))
    await nameserver.close()


async def test_looking_makes_nothing(peer: Peer) -> None:
    """RocketMQ makes the group that a tool looks up: 100 000 look-ups made a registration that was too long."""
    before = await groups_and_topics(peer)
    assert await peer.ask(GetGroupConfig("new")) == GroupConfig("new")
    assert await peer.refusal(GetGroupConfig("no group")) == R.INVALID_PARAMETER
    assert await peer.refusal(pop("Missing", group="new")) == R.TOPIC_NOT_EXIST
    assert await groups_and_topics(peer) == before
    assert await asyncio.gather(peer.ask(GetGroupConfig("new")), peer.ask(DeleteGroup("new"))) == [GroupConfig("new"), None]


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
async def test_a_send_makes_no_topic_of_a_group_that_does_not_exist(peer: Peer, prefix: str) -> None:
    """18 000 such sends, which need no right to make topics, took the broker out of all routes."""
    before = await groups_and_topics(peer)
    assert await peer.refusal(send(f"{prefix}nobody")) == R.TOPIC_NOT_EXIST
    assert await groups_and_topics(peer) == before
    await peer.ask(UpdateGroup(GroupConfig("somebody")))
    assert (await peer.send(send(f"{prefix}somebody")))[0].queue_offset == 0


async def test_topics_made_for_a_unit_are_marked(broker: LocalBroker, peer: Peer, connect: Connect) -> None:
    """The topic that its producer makes is of the unit, the retry topic of its consumers is one to which units subscribe, whoever
    makes it; what is there already stays as it is [AbstractSendMessageProcessor, ClientManageProcessor]."""
    longest = "u" * 120
    async with JavaClient.connect(broker.address) as java:
        await java.send(b"x", "Theirs", k="true")
        await java.send(b"x", "Plain")
        await java.send(b"x", "Plain", k="true")
        member = ConsumerData(longest, subscriptions=[Subscription("Theirs")], unit_mode=True)
        await java.ask(Heartbeat("10.0.0.1@7#1@east", [], [member, ConsumerData("g", unit_mode=True)]))
    place = (await peer.send(send("T")))[0].physical_offset
    assert await peer.ask(SendBack(place, "back", 0, unit_mode=True)) is None
    await peer.ask(UpdateGroup(GroupConfig("sends")))
    await peer.send(send("%RETRY%sends", unit_mode=True))
    names = ("Theirs", "Plain", f"%RETRY%{longest}", "%RETRY%g", "%RETRY%back", "%RETRY%sends")
    assert [(await peer.ask(GetTopicConfig(name))).sys_flag for name in names] == [1, 0, 2, 2, 2, 2]
    nameserver = await Peer.connect(broker.nameserver)
    retried = sorted(names[2:])
    async with asyncio.timeout(60):
        while (await nameserver.ask(GetUnitSubscribedTopics())).topics != retried:
            await broker.clock.advance(1)
    assert (await nameserver.ask(GetUnitTopics())).topics == ["Theirs"]
    assert (await nameserver.ask(GetUnitSubscribedOtherTopics())).topics == retried
    await nameserver.close()


async def test_a_group_tells_how_much_it_takes(broker: LocalBroker, peer: Peer) -> None:
    """It was 0 for ever."""
    await peer.ask(UpdateConsumerOffset("g", "T", 0, 0))
    assert (await peer.ask(GetConsumeStats("g"))).consume_tps == 0
    await peer.send(*(send("T") for _ in range(30)))
    assert len(bodies(await peer.pull("T", 0))) == 30
    await broker.clock.advance(10)
    assert 1.0 < (await peer.ask(GetConsumeStats("g"))).consume_tps <= 3.0
    assert (await peer.ask(GetConsumeStats("g", "TBW102"))).consume_tps == 0
    assert (await peer.ask(GetConsumeStats("other"))).consume_tps == 0
    for _ in range(13):
        await broker.clock.advance(10)
        await peer.ask(GetConsumeStats("other"))  # a connection that is idle for two minutes is closed
    assert (await peer.ask(GetConsumeStats("g"))).consume_tps == 0, "of the last two minutes"


async def test_there_are_so_many_topics_and_groups_and_no_more(connect: Connect) -> None:
    """Who would be one too many is told so; those that are there go on, and the broker stays in the routes."""
    async with LocalBroker(max_topics=30, max_groups=12) as broker:
        peer = await connect(broker)
        room = 30 - len((await groups_and_topics(peer))[1])
        together = UpdateTopics([TopicConfig(f"T{number}") for number in range(room + 1)])
        with pytest.raises(Refusal, match="there are 30 already; delete some, or raise max_topics"):
            await peer.ask(together)
        for number in range(room):
            await peer.ask(topic(f"T{number}"))
        for refused in (topic("More"), send("More")):
            with pytest.raises(Refusal, match="there are 30 already; delete some, or raise max_topics"):
                await peer.ask(refused)
        await peer.ask(topic("T0", 2))
        await peer.ask(beat("c", *(f"g{number}" for number in range(4))))
        with pytest.raises(Refusal, match="there are 12 already; delete some, or raise max_groups"):
            await peer.ask(beat("c", "g0", "g4"))
        assert await peer.refusal(UpdateGroup(GroupConfig("g4"))) == R.SYSTEM_ERROR
        await peer.ask(DeleteGroup("g3"))
        assert await peer.refusal(UpdateGroups([GroupConfig("g4"), GroupConfig("g3")])) == R.SYSTEM_ERROR
        await peer.ask(UpdateGroup(GroupConfig("g3")))
        groups, topics = await groups_and_topics(peer)
        assert {"g0", "g3"} <= groups
        assert {"T0", "%RETRY%g3"} <= topics, "what the broker makes for a group has room of its own"
        gone = {f"T{number}" for number in range(len(topics) - 29)}
        await asyncio.gather(*(peer.ask(DeleteTopic(name)) for name in gone))
        await peer.ask(topic("More"))
        await broker.stop_broker()
        await broker.start_broker()
        assert await groups_and_topics(await connect(broker)) == (groups, topics - gone | {"More"})


def test_the_limits_hold_while_changes_are_on_their_way() -> None:
    table, groups = TopicTable(most=2), GroupTable(most=9)
    table.stage("A", TopicConfig("A"))
    table.apply("B", list(TopicConfig("B")))
    with pytest.raises(Refusal, match="2 already"):
        table.check_room("C")
    table.check_room("A")
    table.check_room("C", ours=True)
    groups.stage("g", GroupConfig("g"))
    with pytest.raises(Refusal, match="9 already"):
        groups.plan_update(GroupConfig("h"))
    assert groups.plan_update(GroupConfig("g")).name == "g"


async def test_a_change_is_in_force_when_answered(peer: Peer) -> None:
    await peer.ask(topic("N", 2))
    assert await peer.refusal(send("N", queue_id=2)) == R.INVALID_PARAMETER
    await peer.ask(topic("N", 3))
    assert (await peer.send(send("N", queue_id=2)))[0].queue_offset == 0
    config = await peer.ask(GetTopicConfig("N"))
    assert (config.read_queue_nums, config.write_queue_nums) == (3, 3)


@pytest.mark.parametrize("wish", [{"DELAY": 5}, {"TIMER_DELAY_SEC": 60}])
async def test_a_delayed_message_for_a_queue_that_its_topic_has_no_longer(
    broker: LocalBroker, peer: Peer, wish: dict[str, int]
) -> None:
    """It comes in one that is left: nobody reads the other."""
    await peer.send(delayed(b"of 3", queue_id=3, **wish))
    await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    broker.clock.jump_wall(60_000)
    assert [one.body for one in await arrived(peer, broker.clock)] == [b"of 3"]


async def test_refused_changes_change_nothing(peer: Peer) -> None:
    for request in (topic("a b"), topic("N", 0), topic("N", perm=8), topic("TBW102"), topic("rmq_sys_STATE"), topic("%RETRY%g"),
                    topic("DefaultCluster"), topic("broker-a"), topic("N", topic_filter_type="NO")):  # fmt: skip
        assert await peer.refusal(request) == R.INVALID_PARAMETER, request
    assert await peer.refusal(topic("N", attributes="+no.such=1")) == R.SYSTEM_ERROR
    assert await peer.refusal(DeleteTopic("rmq_sys_STATE")) == R.INVALID_PARAMETER
    assert await peer.refusal(GetTopicConfig("N")) == R.TOPIC_NOT_EXIST


async def test_delete_and_make_again_has_no_ghosts(peer: Peer) -> None:
    """C3, C5: also when all of it is in work at once."""
    for round_ in range(5):
        await peer.ask(topic("N"))
        await peer.send(send("N", b"%d" % round_, count=round_ + 1))
        assert bodies(await peer.pull("N", 0)) == [b"%d" % round_] * (round_ + 1)
        await peer.ask(DeleteTopic("N"))
        assert (await peer.ask(GetMaxOffset("N", 0))).offset == (await peer.ask(GetMinOffset("N", 0))).offset == 0
    await peer.ask(DeleteTopic("N"))  # no error: repeating helps
    changes = (topic("N", 2), DeleteTopic("N"), topic("N", 3), send("N"), DeleteTopic("N"), topic("N", 4))
    await asyncio.gather(*map(peer.ask, changes), return_exceptions=True)
    await peer.ask(topic("N", 5))
    assert (await peer.ask(GetTopicConfig("N"))).read_queue_nums == 5


async def test_many_who_ask_for_one_group_at_once(connect: Connect) -> None:
    """None may be told of a group that is not there yet; under sync flush it takes a while to be."""
    async with LocalBroker(flush="sync") as broker:
        peers = [await connect(broker, f"c{n}") for n in range(4)]
        await peers[0].ask(UpdateGroup(GroupConfig("h", retry_queue_nums=0)))
        await peers[0].ask(DeleteGroup("h"))
        known = [peer.ask(beat("c", name)) for peer in peers for name in ("g", "h", "g")]
        for each in asyncio.as_completed(known):
            await each
            assert {"g", "h"} & (await groups_and_topics(peers[0]))[0]
        assert {"g", "h"} <= (await groups_and_topics(peers[0]))[0]


async def test_groups(peer: Peer) -> None:
    await peer.ask(UpdateGroup(GroupConfig("g", retry_max_times=3)))
    assert (await peer.ask(GetGroupConfig("g"))).retry_max_times == 3
    assert await peer.refusal(UpdateGroup(GroupConfig("g", retry_queue_nums=-1))) == R.INVALID_PARAMETER
    assert await peer.refusal(DeleteGroup("TOOLS_CONSUMER")) == R.INVALID_PARAMETER
    names = [group.name for group in (await peer.ask(GetAllGroupConfig())).groups]
    assert {"g", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"} <= set(names)
    await peer.ask(DeleteGroup("g"))
    assert "g" not in [group.name for group in (await peer.ask(GetAllGroupConfig())).groups]


async def test_a_change_reaches_the_nameserver_at_once(broker: LocalBroker, connect: Connect) -> None:
    """N5; nobody moves the clock here."""
    nameserver = await Peer.connect(broker.nameserver)
    peer = await connect(broker)

    async def known(name: str) -> bool:
        try:
            await nameserver.ask(GetRoute(name))
        except Refusal:
            return False
        return True

    await peer.send(send("made-by-a-send"))
    async with asyncio.timeout(10):
        while not await known("made-by-a-send"):
            pass
    await peer.ask(DeleteTopic("made-by-a-send"))
    async with asyncio.timeout(10):
        while await known("made-by-a-send"):
            pass
    await nameserver.close()


async def test_system_topics_exist_from_the_start(peer: Peer) -> None:
    """[TopicConfigManager]."""
    topics = {config.name: (config.read_queue_nums, config.perm) for config in (await peer.ask(GetAllTopicConfig())).topics}
    expected = {
        "TBW102": (8, 7), "SELF_TEST_TOPIC": (1, 6), "BenchmarkTest": (1024, 6), "DefaultCluster": (16, 7), "broker-a": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6), "SCHEDULE_TOPIC_XXXX": (18, 6), "DefaultCluster_REPLY_TOPIC": (1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6), "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6), "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6), "rmq_sys_wheel_timer": (1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 6), "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_STATE": (1, 4), "rmq_sys_EPOCH": (1, 4), "T": (4, 6),
    }  # fmt: skip
    assert topics == expected


async def test_progress_and_ends(broker: LocalBroker, peer: Peer) -> None:
    await peer.send(send("T", count=5), send("T", queue_id=2))
    await peer.ask(UpdateConsumerOffset("g", "T", 0, 3))
    stats = await peer.ask(GetTopicStats("T"))
    assert [(row.min_offset, row.max_offset, row.last_update_timestamp > 0) for row in stats.queues] == [
        (0, 5, True),
        (0, 0, False),
        (0, 1, True),
        (0, 0, False),
    ]
    progress = await peer.ask(GetConsumeStats("g"))
    assert [(row.broker_offset, row.consumer_offset) for row in progress.queues][:3:2] == [(5, 3), (1, 0)]
    assert abs(progress.queues[0].last_timestamp - broker.clock.wall_ms()) < 60_000
    assert (await peer.ask(GetConsumeStats("g", topic_list="nowhere;"))).queues == []
    assert await peer.refusal(GetTopicStats("nowhere")) == R.TOPIC_NOT_EXIST


async def test_a_topic_that_is_named_often_is_told_once(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a list of 2 MB makes a thousand times as much of answers."""
    rows = (await peer.ask(GetConsumeStats("g", topic_list="T;" * 100_000))).queues
    assert [row.queue.queue_id for row in rows] == [0, 1, 2, 3]
    monkeypatch.setattr(inspect, "MAX_ROWS", 3)
    assert await peer.refusal(GetConsumeStats("g", topic_list="T;")) == R.SYSTEM_ERROR


async def test_runtime_info_has_every_key_that_tools_parse(broker: LocalBroker, peer: Peer) -> None:
    await peer.send(send("T", count=5))
    await peer.pull("T", 0)
    table = (await peer.ask(GetRuntimeInfo())).table
    assert [key for key in RUNTIME_KEYS if not table.get(key)] == []
    assert any(key.startswith("commitLogDiskRatio_") for key in table)
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("5", "5")
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1
    assert int(table["brokerVersion"]) == 513
    assert table["commitLogDirCapacity"].split()[0] == "Total"
    assert table["putTps"].endswith(" ")


async def test_rates_follow_the_clock(broker: LocalBroker, peer: Peer) -> None:
    await broker.clock.advance(10.5)
    await peer.send(send("T", count=100))
    await broker.clock.advance(10)
    put = (await peer.ask(GetRuntimeInfo())).table["putTps"].split()
    assert 5 < float(put[0]) < 20


async def test_asking_makes_no_queue(broker: LocalBroker, peer: Peer) -> None:
    """Some are answered in a thread: a queue that it made could be another one than that to which a send appends just then, and
    one of a topic that is deleted meanwhile would stay."""
    await peer.ask(UpdateTopic("T", read_queue_nums=9, write_queue_nums=9))
    assert await peer.ask_code(beat("me", "g")) == 0
    await peer.send(send("T", b"x", queue_id=8))
    queues = broker.serving.store.queues
    known = set(queues.all())
    for asked in (
        GetTopicStats("T"), GetConsumeStats("g", "T"), GetMaxOffset("T", 0), GetMinOffset("T", 1), SearchOffset("T", 2, 0),
        GetEarliestStoreTime("T", 3), ResetOffset("T", "g"), pop(queue_id=4), pop(), GetRuntimeInfo(),
    ):  # fmt: skip
        await peer.ask_code(asked)
        made = {queue for queue in set(queues.all()) - known if queue.topic == "T" or not queue.max}
        assert not made, asked
    await peer.pull("T", 0, queue_id=5)
    assert [queue.queue_id for queue in queues.of_topic("T")] == [8]
