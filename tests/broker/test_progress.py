"""How far a group is in a topic, and what stands in a queue; topics that a group may not read; jobs that tools ask for."""

import json

from rmq.codes import ResponseCode as R
from rmq.model import GroupConfig
from rmq.net.commands import (
    DeleteTopic,
    GetAllGroupConfig,
    GetConsumeStats,
    Pull,
    UpdateConsumerOffset,
    UpdateForbidden,
    UpdateGroup,
    UpdateTopic,
)
from rmq.net.commands.node import CleanUnusedTopics, ResetFlushOffset, SwitchTimerEngine
from rmq.net.commands.pop import Pop
from rmq.net.commands.progress import Corrections, GetCorrections, GetQueueEntries, GetTimeSpans
from rmq.net.commands.statistics import GetBrokerConsumeStats
from rmq.testing import LocalBroker, until
from tests.broker.conftest import Connect
from tests.broker.support import Peer, beat, bodies, send
from tests.broker.toolcalls import Tool


async def test_from_when_to_when(broker: LocalBroker, peer: Peer) -> None:
    """303: store times of a queue's ends and of where the group is; how long the next message waits for it."""
    stored = []
    for number in range(3):
        await peer.send(send("T", b"%d" % number))
        stored.append(broker.clock.wall_ms())
        await broker.clock.advance(100)
    await peer.ask(UpdateConsumerOffset("g", "T", 0, 2))
    span, empty = (await peer.ask(GetTimeSpans("T", "g"))).spans[:2]
    times = (span.min_time_stamp, span.consume_time_stamp, span.max_time_stamp)
    assert all(abs(found - wanted) < 50_000 for found, wanted in zip(times, stored, strict=True))
    assert sorted(set(times)) == list(times)
    assert 90_000 < span.delay_time < 200_000
    assert empty[1:] == (-1, -1, -1, 0)
    await peer.ask(UpdateConsumerOffset("g", "T", 0, 3))
    assert (await peer.ask(GetTimeSpans("T", "g"))).spans[0].delay_time == 0
    assert (await peer.ask(GetTimeSpans("T", "new"))).spans[0].consume_time_stamp == span.min_time_stamp
    assert await peer.refusal(GetTimeSpans("Missing", "g")) == R.TOPIC_NOT_EXIST
    tool = await Tool.connect(broker.address, "dashboard")
    rows = (await tool.ask(303, {"topic": "T", "group": "g"})).json()["consumeTimeSpanSet"]
    assert (rows[0]["messageQueue"]["queueId"], rows[0]["minTimeStamp"], rows[0]["delayTime"]) == (0, span.min_time_stamp, 0)
    await tool.close()


async def test_offsets_that_nobody_needs_any_more(broker: LocalBroker, peer: Peer) -> None:
    """308: the lowest offset of all groups, those of some left out; no group loses its offsets by that."""
    await peer.send(send("T", count=5), send("T", queue_id=1, count=5))
    for group, offset in (("g", 4), ("slow", 1), ("out", 0)):
        await peer.ask(beat("c", group))
        await peer.ask(UpdateConsumerOffset(group, "T", 0, offset))
    await peer.ask(UpdateConsumerOffset("g", "T", 1, 3))
    assert await peer.ask(GetCorrections("g", "T", "out,nobody")) == Corrections({0: 1, 1: 3})
    assert await peer.ask(GetCorrections("out", "T", "out")) == Corrections({0: 2**63 - 1, 1: 3})
    assert await peer.ask(GetCorrections("g", "T")) == Corrections({0: 0, 1: 3})
    assert await peer.ask(GetCorrections("g", "Missing")) == Corrections({})
    tool = await Tool.connect(broker.address, "dashboard")
    answer = (await tool.ask(308, {"topic": "T", "compareGroup": "g", "filterGroups": "out"})).json()
    assert answer == {"correctionOffsets": {"0": 1, "1": 3}}
    await tool.close()


async def test_the_entries_of_a_queue(broker: LocalBroker, peer: Peer) -> None:
    """321, as mqadmin's queryCq asks."""
    await peer.send(send("T", tags="red"), send("T", tags="blue"), send("T", tags="red"))
    await peer.ask(beat("c", "g", expression="red"))
    found = await peer.ask(GetQueueEntries("T", 0, 1, 10, "g"))
    assert (found.min_queue_index, found.max_queue_index, found.filter_data) == (0, 3, "null")
    assert [row.eval for row in found.queue_data] == [False, True]
    assert found.subscription[0].expression == "red"
    assert all(row.physic_offset > 0 and row.physic_size > 100 for row in found.queue_data)
    assert (await peer.ask(GetQueueEntries("T", 0, 0, 1, "nobody"))).filter_data == "nobody@T is not online!"
    assert (await peer.ask(GetQueueEntries("T", 0, 99, 10))).queue_data == []
    assert await peer.refusal(GetQueueEntries("T", 9, 0)) == R.SYSTEM_ERROR
    assert await peer.refusal(GetQueueEntries("Missing", 0, 0)) == R.TOPIC_NOT_EXIST
    tool = await Tool.connect(broker.address, "dashboard")
    answer = (await tool.ask(321, {"topic": "T", "queueId": 0, "index": 0, "count": 1})).json()
    assert answer["queueData"][0].keys() == {"physicOffset", "physicSize", "tagsCode", "eval"}
    assert (answer["maxQueueIndex"], answer["subscriptionData"], answer["filterData"]) == (3, None, None)
    await tool.close()


async def test_a_topic_forbidden_to_a_group(broker: LocalBroker, connect: Connect) -> None:
    """353: pulls and pops of it are refused, also after a restart, those of other topics and groups are not; until it is allowed
    again, or the topic is made anew."""
    peer = await connect(broker)
    await peer.ask(UpdateTopic("Other", read_queue_nums=1, write_queue_nums=1))
    await peer.send(send("T", b"one"), send("Other", b"two"))
    await peer.ask(beat("c", "h"))
    assert (await peer.ask(UpdateForbidden("g", "T"))).readable
    assert await peer.ask(UpdateForbidden("g", "T", "false")) == ("T", "g", False)
    assert await peer.ask_code(Pull("g", "T", 0, 0)) == R.NO_PERMISSION
    assert await peer.refusal(Pop("g", "T", 0, 1, 60_000, 0, 0, 0)) == R.NO_PERMISSION
    assert bodies(await peer.pull("Other", 0)) == [b"two"]
    assert bodies(await peer.ask(Pull("h", "T", 0, 0)))[0] == b"one"
    assert await peer.refusal(UpdateForbidden("g", "Missing", "false")) == R.TOPIC_NOT_EXIST
    assert await peer.refusal(UpdateForbidden("nobody", "T", "false")) == R.SUBSCRIPTION_GROUP_NOT_EXIST
    await broker.stop_broker()
    kept = json.loads((broker.store_dir / "config" / "subscriptionGroup.json").read_text())["forbiddenTable"]
    assert kept == {"g": {"T": 4}}
    await broker.start_broker()
    peer = await connect(broker, "d")
    assert (await peer.ask(GetAllGroupConfig())).forbidden == {"g": {"T": 4}}
    assert await peer.ask_code(Pull("g", "T", 0, 0)) == R.NO_PERMISSION
    tool = await Tool.connect(broker.address, "dashboard")
    answer = (await tool.ask(353, {"group": "g", "topic": "T", "readable": "true"})).json()
    assert answer == {"topic": "T", "group": "g", "readable": True}
    assert (await tool.ask(201)).json()["forbiddenTable"] == {}
    await tool.close()
    assert bodies(await peer.pull("T", 0))[0] == b"one"
    await peer.ask(UpdateForbidden("g", "T", "false"))
    await peer.ask(DeleteTopic("T"))
    await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await peer.send(send("T", b"new"))
    assert bodies(await peer.pull("T", 0)) == [b"new"]


async def test_jobs_that_tools_ask_for(broker: LocalBroker, peer: Peer) -> None:
    """316, 908, 5001."""
    await peer.send(send("T"))
    await broker.clock.advance(30)  # its queues are written
    await peer.ask(DeleteTopic("T"))
    await peer.ask(CleanUnusedTopics())
    assert not (broker.store_dir / "consumequeue" / "T").exists()
    await peer.ask(ResetFlushOffset(0))
    await peer.ask(SwitchTimerEngine("F"))
    assert await peer.refusal(SwitchTimerEngine("R")) == R.INVALID_PARAMETER
    tool = await Tool.connect(broker.address, "dashboard")
    assert [(await tool.ask(5001, fields)).code for fields in ({"E_T": "F"}, {"E_T": "R"}, {})] == [0, 29, 29]
    await tool.close()


async def test_a_topic_that_a_group_has_left(broker: LocalBroker, peer: Peer) -> None:
    """Its members subscribe to others now: what waits there is not told, neither to tools nor to Prometheus, unless somebody asks
    for that topic. Nobody was delayed by it, and alerts never ended. [AdminBrokerProcessor.getConsumeStats]"""
    for topic in ("Left", "Read"):
        await peer.ask(UpdateTopic(topic, read_queue_nums=1, write_queue_nums=1))
        await peer.send(send(topic))
        await peer.ask(UpdateGroup(GroupConfig("g")))
        await peer.ask(UpdateConsumerOffset("g", topic, 0, 0))

    async def told(*asked: str) -> set[str]:
        found = (await peer.ask(GetConsumeStats("g", *asked))).queues
        return {row.queue.topic for row in found if row.broker_offset}

    def lags() -> set[str]:
        families = {family.name: family for family in broker.serving.metrics()}
        return {labels[0] for labels, _ in families["rocketmq_consumer_inflight_messages"].rows}

    assert (await told(), lags()) == ({"Left", "Read"}, {"Left", "Read"})
    member = await Peer.connect(broker.address)
    await member.ask(beat("c", "g", topic="Read"))
    assert (await told(), lags()) == ({"Read"}, {"Read"})
    assert (await told("Left"), await told("", "Left;Missing;")) == (set(), {"Left"})
    rows = (await peer.ask(GetBrokerConsumeStats())).groups["g"]
    assert [row.queue.topic for stats in rows for row in stats.queues] == ["Read"]
    await member.close()
    await until(lambda: lags() == {"Left", "Read"})
    assert await told() == {"Left", "Read"}
