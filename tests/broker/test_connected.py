"""What tools ask about who is connected, and of which topics; in RocketMQ's JSON too."""

import asyncio
import json

import pytest

from rmq.codes import RequestCode, ResponseCode as R
from rmq.errors import Refusal
from rmq.model import Subscription
from rmq.net.commands import (
    DeleteTopicInNameserver,
    GetConsumerConnection,
    Hello,
    QueryTopicConsumeByWho,
    UnregisterClient,
    UpdateConsumerOffset,
)
from rmq.net.commands.clients import GetAllProducers, GetProducerConnection, GetSubscription, GetTopicsOfGroup, Heartbeat
from rmq.net.commands.routes import (
    AddWritePerm,
    GetBrokerSystemTopics,
    GetSystemTopics,
    GetTopicsOfCluster,
    WipeWritePerm,
)
from rmq.net.remoting.bodies import write_group_subscription, write_producer_connection, write_producer_table
from rmq.net.remoting.headers import write
from rmq.testing import LocalBroker
from tests.broker.support import Peer, beat, send
from tests.dialing import dial


async def test_producers(broker: LocalBroker, peer: Peer) -> None:
    assert await peer.refusal(GetProducerConnection("sellers")) == R.SYSTEM_ERROR
    await peer.ask(Heartbeat("me", ["sellers", "others"]))
    found = await peer.ask(GetProducerConnection("sellers"))
    assert [one.client_id for one in found.connections] == ["me"]
    assert json.loads(write_producer_connection(found, False))["connectionSet"][0]["clientId"] == "me"
    table = await peer.ask(GetAllProducers())
    assert sorted(table.groups) == ["others", "sellers"]
    row = json.loads(write_producer_table(table, False))["data"]["sellers"][0]
    assert row["remoteIP"].startswith("127.0.0.1:")
    assert abs(row["lastUpdateTimestamp"] - broker.clock.wall_ms()) < 60_000


async def test_topics_and_subscriptions_of_a_group(peer: Peer) -> None:
    assert (await peer.ask(GetTopicsOfGroup("g"))).topics == []
    assert (await peer.ask(GetSubscription("g", "T"))).subscriptions == []
    await peer.send(send("T"))
    await peer.ask(UpdateConsumerOffset("g", "T", 0, 1))
    assert (await peer.ask(GetTopicsOfGroup("g"))).topics == ["T"]
    await peer.ask(beat("c", "g", topic="BenchmarkTest", expression="A || B", version=7))
    assert (await peer.ask(GetTopicsOfGroup("g"))).topics == ["BenchmarkTest", "T"]
    assert (await peer.ask(QueryTopicConsumeByWho("BenchmarkTest"))).groups == ["g"]
    assert [one.client_id for one in (await peer.ask(GetConsumerConnection("g"))).connections] == ["c"]
    found = await peer.ask(GetSubscription("g", "BenchmarkTest"))
    assert found.subscriptions == [Subscription("BenchmarkTest", "A || B", "TAG", 7)]
    assert json.loads(write_group_subscription(found, False))["subscriptionData"]["subString"] == "A || B"
    assert json.loads(write_group_subscription(found._replace(subscriptions=[]), False))["subscriptionData"] is None
    await peer.ask(UnregisterClient("c", "p", "g"))
    assert await peer.refusal(GetConsumerConnection("g")) == R.CONSUMER_NOT_ONLINE, "not 1, which tools take for a broken broker"
    assert (await peer.ask(GetTopicsOfGroup("g"))).topics == ["T"], "where its offsets are"


async def test_system_topics_and_writing(broker: LocalBroker, peer: Peer) -> None:
    """A broker whose write permission is wiped is written no more, whatever it registers; until it is added again. A topic
    that is deleted at a nameserver only is there again with the next registration, as at RocketMQ's."""
    systems = (await peer.ask(GetBrokerSystemTopics())).topics
    assert {"TBW102", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"} <= set(systems)
    assert "T" not in systems
    names = await Peer.connect(broker.nameserver)
    found = await names.ask(GetSystemTopics())
    assert (found.topics, found.broker_addr) == (["DefaultCluster", "broker-a"], broker.address)
    assert "T" in (await names.ask(GetTopicsOfCluster("DefaultCluster"))).topics
    assert (await names.ask(GetTopicsOfCluster("nowhere"))).topics == []
    count = (await names.ask(WipeWritePerm("broker-a"))).wipe_topic_count
    assert count > 10
    assert (await names.ask(WipeWritePerm("nobody"))).wipe_topic_count == 0

    async def perm() -> int:
        async with broker.client() as client:
            return int((await client.session.routes.get("T")).queues[0].perm)

    assert await perm() == 4
    await broker.create_topic("Later", 1)  # the broker registers anew
    async with asyncio.timeout(20):
        while "Later" not in (await names.ask(GetTopicsOfCluster("DefaultCluster"))).topics:
            await asyncio.sleep(0)
    assert await perm() == 4
    assert (await names.ask(AddWritePerm("broker-a"))).add_topic_count == count + 1
    assert await perm() == 6
    await names.ask(DeleteTopicInNameserver("T"))
    assert "T" not in (await names.ask(GetTopicsOfCluster("DefaultCluster"))).topics
    async with asyncio.timeout(60):  # its next registration
        while "T" not in (await names.ask(GetTopicsOfCluster("DefaultCluster"))).topics:
            await broker.clock.advance(1)
    await names.close()


async def test_a_version_that_has_no_room_in_a_list_of_members(broker: LocalBroker, peer: Peer) -> None:
    """No tool could read the list of that group any more, for as long as the client was there."""
    await peer.ask(beat("c", "g"))
    host, _, port = broker.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"clientID": "odd", "consumerDataSet": [{"groupName": "g"}]}).encode()
    writer.write(write(False, RequestCode.HEART_BEAT, 0, 1, "", None, body, version=2**63))
    await reader.read(1)  # of an answer, or the end
    assert [one.client_id for one in (await peer.ask(GetConsumerConnection("g"))).connections] == ["c"]
    writer.close()
    with pytest.raises(Refusal, match="32 bits"):
        await dial(broker.address, Hello(1, "odd", client_version=2**31))
