"""Every request of rocketmq-exporter and rocketmq-dashboard is answered, with every key that they read."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from rmq.broker.shared.facts import put_times
from rmq.client import Client, Message
from rmq.log.records import record
from rmq.measures import Histogram
from rmq.testing import LocalBroker, until
from tests.broker.toolcalls import Reply, Tool, read_runtime_info

READ = {  # code -> what is read of the body; [name]: of each value of that map or list, a bar between its keys
    106: "brokerAddrTable clusterAddrTable [brokerAddrTable].brokerAddrs|brokerName|cluster",
    206: "topicList",
    304: "topicList",
    305: "topicList",
    105: "[queueDatas].brokerName|perm|readQueueNums|writeQueueNums [brokerDatas].brokerAddrs|brokerName|cluster",
    202: "[offsetTable].minOffset|maxOffset|lastUpdateTimestamp",
    300: "groupList",
    203: "[connectionSet].clientId|clientAddr|language|version messageModel consumeType consumeFromWhere "
    "[subscriptionTable].subString|topic",
    204: "[connectionSet].clientId|clientAddr|language|version",
    208: "consumeTps [offsetTable].brokerOffset|consumerOffset|lastTimestamp",
    21: "[topicConfigTable].topicName|readQueueNums|writeQueueNums|perm|order|attributes dataVersion",
    201: "[subscriptionGroupTable].groupName|consumeEnable|consumeBroadcastEnable|retryQueueNums|retryMaxTimes|brokerId"
    "|whichBrokerWhenConsumeSlowly|consumeMessageOrderly dataVersion",
    351: "topicName readQueueNums writeQueueNums perm",
    328: "data",
    315: "statsMinute.sum|tps statsHour.sum statsDay.sum|avgpt",
    307: "mqTable properties [subscriptionSet].topic|subString "
    "[statusTable].pullRT|pullTPS|consumeRT|consumeOKTPS|consumeFailedTPS|consumeFailedMsgs",
    309: "consumeResult spentTimeMills order autoCommit",
}


def read(code: int, answer: Any) -> None:
    """Each key is there."""
    for path in READ[code].split():
        values = [answer]
        for step in path.split("."):
            names = step.strip("[]").split("|")
            for name in names:
                assert all(name in value for value in values), f"{code}: {path}: no {name} in {str(values)[:500]}"
            values = [value[names[0]] for value in values]
            if step.startswith("["):
                values = [each for value in values for each in (value.values() if isinstance(value, Mapping) else value)]
                assert values, f"{code}: {step} is empty"


class Shop:
    """A broker with messages of a topic, a producer that is connected, a group that has consumed one, and one that is offline."""

    def __init__(self, broker: LocalBroker, client: Client, names: Tool, asked: Tool) -> None:
        self.broker = broker
        self.client_id = client.client_id
        self.names = names
        self.asked = asked

    async def reply(self, code: int, **fields: object) -> Any:
        """What the broker answers, with all that is read of it."""
        answer = (await self.asked.ask(code, fields)).json()
        read(code, answer)
        return answer

    async def told(self, code: int, **fields: object) -> Any:
        """The same of the nameserver."""
        answer = (await self.names.ask(code, fields)).json()
        read(code, answer)
        return answer

    async def done(self, code: int, body: object = None, **fields: object) -> Reply:
        found = await self.asked.ask(code, fields, b"" if body is None else json.dumps(body).encode())
        assert found.code == 0, (code, found)
        return found


@pytest.fixture(params=["exporter", "dashboard"])
async def shop(request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    handled: list[object] = []

    async def handle(message: object) -> None:
        handled.append(message)

    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("Orders", 2)
        names, asked = await Tool.connect(broker.nameserver, request.param), await Tool.connect(broker.address, request.param)
        async with client.producer("sellers") as producer:
            for number in range(3):
                await producer.send(Message("Orders", b"%d" % number, "new", [f"order-{number}"]))
            await producer.send(Message("Orders", b"later", delay_level=3))
            async with client.consumer("shipping", {"Orders": "new"}, start="first") as consumer:
                working = asyncio.create_task(consumer.run(handle))
                await asked.ask(200, {}, json.dumps({"groupName": "offline"}).encode())
                await until(lambda: len(handled) == 3)
                yield Shop(broker, client, names, asked)
                working.cancel()
        await names.close()
        await asked.close()


@pytest.mark.parametrize("shop", ["exporter"], indirect=True)
async def test_the_exporter(shop: Shop) -> None:
    """Every minute: topics, producers, groups and their lag, rates, and the runtime info, where one bad key loses them all."""
    assert set((await shop.told(206))["topicList"]) >= {"Orders", "%RETRY%shipping"}
    assert (await shop.told(106))["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {"0": shop.broker.address}
    await shop.told(105, topic="Orders")
    assert (await shop.names.ask(105, {"topic": "%DLQ%shipping"})).code == 17
    assert len((await shop.reply(202, topic="Orders"))["offsetTable"]) == 2
    assert (await shop.reply(300, topic="Orders"))["groupList"] == ["shipping"]
    assert (await shop.reply(203, consumerGroup="shipping"))["messageModel"] == "CLUSTERING"
    assert (await shop.asked.ask(203, {"consumerGroup": "offline"})).code == 206
    progress = await shop.reply(208, consumerGroup="shipping", topic="Orders")
    for queue, row in progress["offsetTable"].items():
        where = json.loads(queue)
        fields = {"consumerGroup": "TOOLS_CONSUMER", "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0}
        fields |= {"topic": "Orders", "queueId": where["queueId"], "queueOffset": row["consumerOffset"], "subscription": "*"}
        assert (await shop.asked.ask(11, {**fields, "subVersion": 0, "expressionType": "TAG"})).code in (0, 19, 20)
    await shop.broker.clock.advance(70)
    own = ("BROKER_PUT_NUMS", "DefaultCluster"), ("BROKER_GET_NUMS", "DefaultCluster")
    of_topic = ("TOPIC_PUT_NUMS", "Orders"), ("TOPIC_PUT_SIZE", "Orders")
    of_group = ("GROUP_GET_NUMS", "Orders@shipping"), ("GROUP_GET_SIZE", "Orders@shipping")
    for name, key in (*own, *of_topic, *of_group):
        await shop.reply(315, statsName=name, statsKey=key)
    assert (await shop.asked.ask(315, {"statsName": "SNDBCK_PUT_NUMS", "statsKey": "Orders@shipping"})).code in (0, 1)
    assert "sellers" in (await shop.reply(328))["data"]
    running = await shop.reply(307, consumerGroup="shipping", clientId=shop.client_id, jstackEnable="false")
    assert {json.loads(queue)["topic"] for queue in running["mqTable"]} >= {"Orders"}
    found = read_runtime_info((await shop.asked.ask(28)).json()["table"])
    assert found["msgPutTotalTodayNow"] >= 3
    assert sum(found["putMessageDistributeTime"].values()) > 0
    assert found["brokerVersion"] > 0


@pytest.mark.parametrize("shop", ["dashboard"], indirect=True)
async def test_the_dashboard_looks(shop: Shop) -> None:
    """Its pages, in the order of its menu."""
    await shop.told(106)
    await shop.told(206)
    await shop.told(304)
    await shop.reply(305)
    await shop.told(105, topic="Orders")
    table = (await shop.asked.ask(28)).json()["table"]
    assert float(table["getTotalTps"].split(" ")[0]) >= 0
    config = (await shop.asked.ask(26)).body.decode().splitlines()
    assert {"brokerName=broker-a", "brokerClusterName=DefaultCluster"} <= set(config)
    await shop.reply(21)
    assert (await shop.asked.ask(21)).code == 0, "without a map of fields"
    topics = await shop.asked.ask(21, {"topicSeq": 0, "maxTopicNum": 1, "dataVersion": ""})
    groups = await shop.asked.ask(201, {"groupSeq": 0, "maxGroupNum": 1, "dataVersion": ""})
    assert {"Orders", "%RETRY%shipping"} <= topics.json()["topicConfigTable"].keys()
    assert {"shipping", "offline"} <= groups.json()["subscriptionGroupTable"].keys()
    assert not {"totalTopicNum", "totalGroupNum"} & {*topics.fields, *groups.fields}, "so the first page is all of it"
    await shop.reply(351, topic="Orders")
    await shop.reply(202, topic="Orders")
    await shop.reply(300, topic="Orders")
    await shop.reply(201)
    await shop.reply(208, consumerGroup="shipping", topic="")
    assert (await shop.asked.ask(208, {"consumerGroup": "offline"})).json()["offsetTable"] == {}
    await shop.reply(203, consumerGroup="shipping")
    assert (await shop.asked.ask(203, {"consumerGroup": "offline"})).code == 206
    await shop.reply(307, consumerGroup="shipping", clientId=shop.client_id, jstackEnable="false")
    await shop.reply(204, producerGroup="sellers")
    await shop.broker.clock.advance(70)
    await shop.reply(315, statsName="TOPIC_PUT_NUMS", statsKey="Orders")
    await shop.reply(315, statsName="GROUP_GET_NUMS", statsKey="Orders@shipping")


@pytest.mark.parametrize("shop", ["dashboard"], indirect=True)
async def test_the_dashboard_finds_messages_and_gives_them_again(shop: Shop) -> None:
    for queue in range(2):
        for at_ms in (0, 2**62):
            found = await shop.done(29, topic="Orders", queueId=queue, timestamp=at_ms)
            assert int(found.fields["offset"]) >= 0
        assert (await shop.done(30, topic="Orders", queueId=queue)).fields["offset"].isdecimal()
    wanted = {"topic": "Orders", "key": "order-1", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 2**63 - 1}
    (message,) = record.iterate((await shop.done(12, **wanted)).body)
    assert (await shop.done(33, offset=message.physical_offset)).body
    where = {"msgId": record.message_id(message.store_host, message.physical_offset), "topic": "Orders"}
    await shop.reply(309, consumerGroup="shipping", clientId=shop.client_id, **where)
    assert (await shop.asked.ask(309, {"consumerGroup": "offline", "clientId": "nobody", **where})).code == 1


@pytest.mark.parametrize("shop", ["dashboard"], indirect=True)
async def test_the_dashboard_changes(shop: Shop) -> None:
    topic = {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": "false"}
    await shop.done(17, **topic, topicFilterType="SINGLE_TAG", topicSysFlag=0, attributes="+message.type=NORMAL")
    group = {"groupName": "new", "consumeEnable": True, "consumeBroadcastEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16,
             "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1, "consumeMessageOrderly": False}  # fmt: skip
    await shop.done(200, group)
    await shop.done(222, topic="Orders", group="shipping", timestamp=-1, isForce="true")
    user = {"username": "ann", "password": "correct horse", "userType": "Normal"}
    await shop.done(3001, user, username="ann")
    await shop.done(3002, {"userStatus": "disable"}, username="ann")
    assert (await shop.done(3004, username="ann")).json()["userStatus"] == "disable"
    assert [one["username"] for one in (await shop.done(3005, filter="")).json()] == ["ann"]
    entry = {"resource": "Topic:Orders", "actions": ["Pub"], "sourceIps": [], "decision": "Allow"}
    policy = {"subject": "User:ann", "policies": [{"policyType": "Custom", "entries": [entry]}]}
    await shop.done(3006, policy, subject="User:ann")
    await shop.done(3007, policy, subject="User:ann")
    assert [one["subject"] for one in (await shop.done(3010, subjectFilter="", resourceFilter="")).json()] == ["User:ann"]
    await shop.done(3008, subject="User:ann", resource="Topic:Orders")
    await shop.done(3003, username="ann")
    await shop.done(207, groupName="new", cleanOffset="true")
    await shop.done(215, topic="New")
    assert (await shop.names.ask(216, {"topic": "New"})).code == 0


def test_times_of_puts_are_told_from_the_start() -> None:
    """`null` would lose all numbers of the broker."""
    times = Histogram()
    assert dict(put_times(times))["putLatency99"] == 0.0
    for seconds in (0.0002, 0.002, 0.02, 0.7, 99.0):
        times.observe(seconds)
    found = dict(put_times(times))
    assert str(found["putMessageDistributeTime"]).startswith("[<=0ms]:1 [0~10ms]:1 [10~50ms]:1 [50~100ms]:0")
    assert str(found["putMessageDistributeTime"]).endswith("[500ms~1s]:1 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 ")
    assert found["putLatency99"] == 10_000.0
