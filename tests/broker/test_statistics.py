"""What was counted in a minute, an hour, a day; how far all groups are; lists of topics and groups at once."""

import asyncio
import tracemalloc

from rmq.broker.shared.history import History
from rmq.broker.shared.stats import BrokerStats
from rmq.codes import ResponseCode as R
from rmq.log.files.memory import MemoryDisk
from rmq.log.queues.queues import ConsumeQueues
from rmq.model import GroupConfig, TopicConfig
from rmq.net.commands import (
    DeleteTopic,
    GetGroupConfig,
    GetRuntimeInfo,
    GetTopicConfig,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateGroups,
    UpdateTopics,
)
from rmq.net.commands.statistics import GetBrokerConsumeStats, GetStatsData, StatsRate
from rmq.testing import LocalBroker
from tests.broker.support import Peer, send
from tests.broker.test_delays import delayed


def test_a_minute_an_hour_and_a_day() -> None:
    """Only what grew while somebody looked; a counter that begins anew counts from 0."""
    history, now = History(), 100.0
    history.sample(now, {"a": 50, "b": 7})
    assert history.of("a") is None
    for count in (60, 70, 5):
        now += 10
        history.sample(now, {"a": count, "b": 7})
    found = history.of("a")
    assert found is not None
    assert found.minute == found.hour == found.day == StatsRate(25, 25 / 30)
    assert history.of("b") is None
    for _ in range(60):
        now += 10
        history.sample(now, {"a": 5})
    found = history.of("a")
    assert found is not None
    assert (found.minute.sum, found.hour.sum, found.day.sum) == (0, 25, 25)
    for _ in range(9000):
        now += 10
        history.sample(now, {"a": 5})
    assert history.of("a") is None


def test_a_steady_counter_has_one_rate() -> None:
    """Seven tens of seconds were counted as six, so a minute told up to a sixth too much."""
    history = History()
    for look in range(10_000):
        history.sample(look * 10.0, {"a": look * 1000})
        found = history.of("a")
        assert found is None or {found.minute.tps, found.hour.tps, found.day.tps, history.per_second("a")} == {100.0}
    assert found is not None
    assert found.minute.sum == 6000
    assert 360_000 <= found.hour.sum < 420_000
    assert 8_640_000 <= found.day.sum < 9_000_000


async def test_rates_and_progress_of_a_broker(broker: LocalBroker, peer: Peer) -> None:
    assert await peer.refusal(GetStatsData("TOPIC_PUT_NUMS", "T")) == R.SYSTEM_ERROR
    await peer.send(send("T", count=3))
    await peer.send(delayed(DELAY=18))
    await peer.pull("T", 0)
    await broker.clock.advance(15)

    async def total(name: str, key: str) -> int:
        async with asyncio.timeout(20):
            while await peer.ask_code(GetStatsData(name, key)):
                await broker.clock.advance(5)
        return int((await peer.ask(GetStatsData(name, key))).day.sum)

    assert await total("TOPIC_PUT_NUMS", "T") == 3
    assert await total("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX") == 1, "exportMetrics tells them apart"
    assert await total("TOPIC_PUT_SIZE", "T") > 100
    assert await total("GROUP_GET_NUMS", "T@g") == 3
    assert await total("GROUP_GET_SIZE", "T@g") > 100
    assert await total("BROKER_PUT_NUMS", "DefaultCluster") >= 3
    await peer.ask(UpdateGroup(GroupConfig("g")))
    await peer.ask(UpdateConsumerOffset("g", "T", 0, 1))
    found = await peer.ask(GetBrokerConsumeStats())
    assert (found.broker_addr, list(found.groups), found.total_diff) == (broker.address, ["g"], 2)
    assert [row.consumer_offset for row in found.groups["g"][0].queues if row.broker_offset] == [1]
    assert (await peer.ask(GetBrokerConsumeStats(True))).groups == {}


async def test_the_average_size_is_that_of_messages(broker: LocalBroker, peer: Peer) -> None:
    """It was that of all that is in the log, by users' messages: 1 300 bytes where each had 240, and more with every commit."""

    async def counted() -> list[float]:
        table = (await peer.ask(GetRuntimeInfo())).table
        return [float(table[f"putMessage{name}"]) for name in ("TimesTotal", "SizeTotal", "AverageSize")]

    assert await counted() == [0, 0, 0]
    await peer.send(send("T", count=3))
    await peer.send(delayed(DELAY=18))  # of a system topic until its time comes
    size = len((await peer.pull("T", 0)).messages)
    await peer.ask(UpdateGroup(GroupConfig("g")))
    for offset in range(4):
        await peer.ask(UpdateConsumerOffset("g", "T", 0, offset))
    times, total, average = await counted()
    assert (times, average) == (4, round(total / 4, 1))
    assert size < total < 2 * size
    await peer.ask(DeleteTopic("T"))
    assert await counted() == [times, total, average]
    await peer.send(send("T"))
    assert (await counted())[0] == 5


async def test_lists_of_topics_and_groups(peer: Peer) -> None:
    """All or none."""
    await peer.ask(UpdateTopics([TopicConfig("A", 2, 2, attributes={"+message.type": "FIFO"}), TopicConfig("B", 1, 1)]))
    assert (await peer.ask(GetTopicConfig("A"))).attributes == {"message.type": "FIFO"}
    assert await peer.refusal(UpdateTopics([TopicConfig("C", 1, 1), TopicConfig("no name!", 1, 1)])) == R.INVALID_PARAMETER
    assert await peer.refusal(UpdateTopics([TopicConfig("C", 1, 1), TopicConfig("C", 2, 2)])) == R.INVALID_PARAMETER
    assert await peer.refusal(GetTopicConfig("C")) == R.TOPIC_NOT_EXIST
    await peer.ask(UpdateGroups([GroupConfig("g", retry_max_times=3), GroupConfig("h", consume_enable=False)]))
    assert (await peer.ask(GetGroupConfig("g"))).retry_max_times == 3
    assert not (await peer.ask(GetGroupConfig("h"))).consume_enable
    assert await peer.refusal(UpdateGroups([GroupConfig("i", consume_enable=False), GroupConfig("no name!")])) != 0
    assert (await peer.ask(GetGroupConfig("i"))).consume_enable  # as it would be made


async def test_many_topics_are_looked_at_some_at_a_time() -> None:
    """The loop serves others meanwhile."""
    queues = ConsumeQueues(MemoryDisk(), "/q", 100, 100)
    for number in range(20_000):
        queues.get(f"T{number}", 0)
    stats, turns = BrokerStats(queues.all), 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    for number in range(2):
        before = turns
        await stats.sample(10.0 * number, "C")
        assert turns - before >= 4 * 20_000 / 2_000
    beside.cancel()


async def test_topics_at_rest_take_no_more_memory() -> None:
    """A number each ten seconds for each topic made a node with 10 000 topics 31 MB larger within ten minutes."""
    queues = ConsumeQueues(MemoryDisk(), "/q", 100, 100)
    for number in range(1000):
        queues.get(f"T{number}", 0)
    stats = BrokerStats(queues.all)
    tracemalloc.start()
    for look in range(80):
        await stats.sample(10.0 * look, "C")
        if look == 10:
            before, _ = tracemalloc.get_traced_memory()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 100_000
