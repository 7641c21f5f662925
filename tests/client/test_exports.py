"""What administrators export, and how consumer groups are: with long names, and with what is deleted meanwhile."""

from collections.abc import AsyncIterator

import pytest

from rmq.client import Client, InvalidArgument, Message
from rmq.client.admin import calls as admin, exports, monitoring
from rmq.client.admin.monitoring import GroupHealth, Waiting
from rmq.model import DLQ_PREFIX, RETRY_PREFIX, GroupConfig
from rmq.testing import LocalBroker

TOPIC, GROUP = "T" * 127, "g" * 120  # as long as names may be


@pytest.fixture
async def brokers() -> AsyncIterator[tuple[LocalBroker, LocalBroker]]:
    """Two of one cluster."""
    async with LocalBroker() as first:
        second = LocalBroker(clock=first.clock, broker_name="broker-b")
        second.nameserver = first.nameserver
        try:
            await second.start_broker()
            yield first, second
        finally:
            await second.close()


async def test_queues_of_several_brokers_are_added_up(brokers: tuple[LocalBroker, LocalBroker]) -> None:
    """And what nobody made is left out. [ExportMetadataCommand]"""
    first, second = brokers
    async with first.client() as client:
        await admin.update_topic(
            client, TOPIC, cluster="DefaultCluster", read_queues=3, write_queues=2, attributes="+message.type=FIFO"
        )
        await admin.update_topic(client, "Single", broker=second.address, read_queues=1, write_queues=1, perm=4)
        await admin.update_group(client, GroupConfig(GROUP, retry_queue_nums=2), cluster="DefaultCluster")
        found = await exports.metadata(client, cluster="DefaultCluster")
        assert list(found.topics) == ["Single", TOPIC]
        long = found.topics[TOPIC]
        assert (long["readQueueNums"], long["writeQueueNums"], long["attributes"]) == (6, 4, {"message.type": "FIFO"})
        assert (found.topics["Single"]["readQueueNums"], found.topics["Single"]["perm"]) == (1, 4)
        assert {name: group["retryQueueNums"] for name, group in found.groups.items()} == {GROUP: 4}
        async with client.consumer(GROUP, "Single", start="first"):  # brokers make its retry topic
            await first.clock.advance_until(lambda: second.serving.tables.topics.get(RETRY_PREFIX + GROUP))
        single = await exports.metadata(client, broker=second.address, special=True)
        assert (list(single.topics), single.topics[TOPIC]["readQueueNums"]) == ([RETRY_PREFIX + GROUP, "Single", TOPIC], 3)


async def test_an_export_of_a_cluster_that_is_not_there(brokers: tuple[LocalBroker, LocalBroker]) -> None:
    async with brokers[0].client() as client:
        for export in (exports.configs, exports.metrics):
            with pytest.raises(InvalidArgument, match="no broker of a cluster Nowhere"):
                await export(client, "Nowhere")
        with pytest.raises(InvalidArgument, match="Nowhere"):
            await exports.metadata(client, cluster="Nowhere")


async def test_settings_and_scale_of_a_cluster(brokers: tuple[LocalBroker, LocalBroker]) -> None:
    async with brokers[0].client() as client:
        found = await exports.configs(client, "DefaultCluster")
        assert found["clusterScale"] == {"masterBrokerSize": 2, "namesrvSize": 1, "slaveBrokerSize": 0}
        assert {name: config["brokerName"] for name, config in found["brokerConfigs"].items()} == {
            "broker-a": "broker-a",
            "broker-b": "broker-b",
        }
        assert found["brokerConfigs"]["broker-b"].keys() <= set(exports.SETTINGS)


async def test_what_goes_through_a_cluster(brokers: tuple[LocalBroker, LocalBroker]) -> None:
    first, _ = brokers
    async with first.client() as client:
        await admin.update_topic(client, TOPIC, cluster="DefaultCluster")
        await client.producer().send(Message(TOPIC, b"x", delay_level=1))
        async with client.consumer(GROUP, TOPIC):
            await first.clock.advance(25)  # statistics are taken every 10 s
            found = await exports.metrics(client, "DefaultCluster")
        quotas = {name: one["runtimeQuota"] for name, one in found["evaluateReport"].items()}
        assert {name: (each["topicSize"], each["groupSize"]) for name, each in quotas.items()} == {
            "broker-a": (1, 1),
            "broker-b": (1, 1),
        }
        assert found["totalData"]["totalOneDayNum"]["scheduleOneDayInNum"] == 1
        assert found["totalData"]["totalTps"].keys() == {
            "totalNormalInTps",
            "totalNormalOutTps",
            "totalScheduleInTps",
            "totalTransInTps",
        }
        assert [one["runtimeVersion"]["clientInfo"] for one in found["evaluateReport"].values()] == [["PYTHON%V5_5_0"]] * 2


async def failed_for_good(client: Client, broker: LocalBroker) -> None:
    """A message of TOPIC whose handler fails until it is a dead letter."""
    await admin.update_group(client, GroupConfig(GROUP, retry_max_times=0), broker=broker.address)
    async with client.consumer(GROUP, TOPIC, start="first", max_retries=0) as consumer:
        (message,) = await consumer.receive(timeout=20)
        await consumer.retry_later(message)
        await consumer.commit()


async def health(client: Client) -> GroupHealth:
    (found,) = await monitoring.health_of_groups(client)
    return found


async def test_how_a_group_is() -> None:
    """What waits, how long, dead letters, members; of what is deleted nothing is left. [MonitorService]"""
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic(TOPIC, 1)
        assert await monitoring.health_of_groups(client) == []
        await client.producer().send(Message(TOPIC, b"bad"))
        await failed_for_good(client, broker)
        nothing = [Waiting(topic, 0, 0, 0) for topic in (RETRY_PREFIX + GROUP, TOPIC)]
        assert await health(client) == GroupHealth(GROUP, 0, nothing, 1, [])
        await broker.clock.advance(60)
        for _ in range(3):
            await client.producer().send(Message(TOPIC, b"waits"))
        found = await health(client)
        assert (found.members, found.dead_letters) == (0, 1)
        waiting = found.waiting[-1]
        assert (waiting.topic, waiting.total, waiting.most) == (TOPIC, 3, 3)
        assert 60_000 <= waiting.behind_ms < 120_000
        await admin.delete_topic(client, DLQ_PREFIX + GROUP, broker=broker.address)
        await admin.delete_topic(client, TOPIC, broker=broker.address)
        assert await health(client) == GroupHealth(GROUP, 0, nothing[:1], 0, [])
        await admin.delete_group(client, GROUP, cluster="DefaultCluster")


async def test_members_that_want_different_topics_are_a_trouble() -> None:
    async with LocalBroker() as broker, broker.client(instance="1") as client, broker.client(instance="2") as other:
        for topic in ("A", "B"):
            await broker.create_topic(topic, 2)
        async with client.consumer(GROUP, "A"), other.consumer(GROUP, {"A": "red"}):
            await broker.clock.advance_until(lambda: broker.serving.tables.groups.get(GROUP))
            found = await health(client)
        assert found.members == 2
        assert any("subscribes to other topics or tags" in each for each in found.troubles), found
