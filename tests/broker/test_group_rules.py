"""What administrators set for a group, and what its consumers notice: switches and attributes."""

import json

import orjson
import pytest

from rmq.codes import ResponseCode as R
from rmq.delivery.groups import GroupTable, from_json, groups_json
from rmq.errors import Refusal
from rmq.log.records import record
from rmq.model import BROADCASTING, ConsumerData, GroupConfig, MessageQueue, Subscription
from rmq.net.commands import (
    GetAllGroupConfig,
    GetConsumerList,
    GetGroupConfig,
    Heartbeat,
    NotifyConsumerIdsChanged,
    Pull,
    QueryConsumerOffset,
    UnregisterClient,
    UpdateConsumerOffset,
    UpdateGroup,
)
from rmq.net.commands.configuration import UpdateBrokerConfig
from rmq.net.commands.locks import LockQueues
from rmq.net.commands.pop import Pop, SetRequestMode
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.javaclient import JavaClient
from tests.broker.support import HELD, Peer, beat, bodies, send

HEARD = 0  # sys_flag of a pull that goes by what the heartbeat said


async def test_a_group_that_may_not_broadcast(broker: LocalBroker, peer: Peer) -> None:
    """consumeBroadcastEnable=false [PullMessageProcessor]; as a cluster its members read on."""
    await peer.send(send("T"))
    await peer.ask(UpdateGroup(GroupConfig("g", consume_broadcast_enable=False)))
    data = ConsumerData("g", message_model=BROADCASTING, subscriptions=[Subscription("T")])
    await peer.ask(Heartbeat("c", [], [data]))
    for flag in (HEARD, HELD):
        with pytest.raises(Refusal, match="broadcast way") as refused:
            await peer.pull("T", 0, flag=flag)
        assert refused.value.code == R.NO_PERMISSION
    await peer.ask(Heartbeat("c", [], [data._replace(message_model="CLUSTERING")]))
    assert bodies(await peer.pull("T", 0, flag=HEARD)) == [b"body"]


async def test_what_a_group_did_before_it_was_switched_off_counts(peer: Peer) -> None:
    """consumeEnable=false [PullMessageProcessor, PopMessageProcessor]: nothing is handed out; what members have is theirs."""
    await peer.send(send("T", count=3))
    await peer.ask(beat("c", "g"))
    assert (await peer.pull("T", 0)).messages
    await peer.ask(UpdateGroup(GroupConfig("g", consume_enable=False)))
    assert await peer.refusal(Pull("g", "T", 0, 2)) == R.NO_PERMISSION
    held = [MessageQueue("T", "broker-a", 0)]
    assert (await peer.ask(LockQueues("g", "c", held))).queues == held  # else it lets go what it is about to handle
    await peer.ask(UpdateConsumerOffset("g", "T", 0, 2))
    assert (await peer.ask(QueryConsumerOffset("g", "T", 0))).offset == 2
    await peer.ask(SetRequestMode("T", "g", "POP"))


async def test_members_hear_of_each_other_unless_broker_or_group_says_no(broker: LocalBroker, connect: Connect) -> None:
    first = await connect(broker, "first")
    await first.ask(beat("first", "g"))
    await first.wait_for_pushes(1)
    await first.ask(UpdateBrokerConfig("notifyConsumerIdsChangedEnable=false"))
    await (await connect(broker, "second")).ask(beat("second", "g"))
    await first.ask(UpdateBrokerConfig("notifyConsumerIdsChangedEnable=true"))
    await first.ask(UpdateGroup(GroupConfig("g", notify_consumer_ids_changed_enable=False)))
    await (await connect(broker, "third")).ask(beat("third", "g"))
    await first.ask(UpdateGroup(GroupConfig("g")))
    await (await connect(broker, "fourth")).ask(beat("fourth", "g"))
    await first.wait_for_pushes(2)
    assert first.pushed == [NotifyConsumerIdsChanged("g")] * 2


async def test_members_that_subscribe_to_something_else_are_found_at_once(
    broker: LocalBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """Warned of once, or refused, or neither; mqadmin's own group may."""
    first, second = await connect(broker, "first"), await connect(broker, "second")
    await first.ask(beat("first", "g", "TOOLS_CONSUMER", expression="red"))
    for _ in range(2):
        await second.ask(beat("second", "g", "TOOLS_CONSUMER", expression="blue", version=2))
    [said] = [one.getMessage() for one in caplog.records if one.name == "rmq.clients"]
    assert "group g" in said
    assert "second subscribes to T: blue, but first does not" in said
    await second.ask(UnregisterClient("second", "", "g"))
    await first.ask(UpdateBrokerConfig("differing_subscriptions=refuse"))
    with pytest.raises(Refusal, match="group g: second subscribes to T: blue.*subscribe alike") as refused:
        await second.ask(beat("second", "g", "h", expression="blue", version=3))
    assert refused.value.code == R.INVALID_PARAMETER
    assert [(await first.ask(GetConsumerList(name))).client_ids for name in ("g", "h")] == [["first"], ["second"]]
    await second.ask(beat("second", "g", "h", expression="red", version=4))
    await first.ask(UpdateBrokerConfig("differing_subscriptions=allow"))
    await second.ask(beat("second", "g", "h", expression="blue", version=5))
    assert len([one for one in caplog.records if one.name == "rmq.clients"]) == 1


async def test_a_group_that_mqadmin_made_begins_at_the_first_message(broker: LocalBroker, peer: Peer) -> None:
    """It says consumeFromMinEnable=false of each, which no broker of RocketMQ looks at."""
    await peer.send(*(send("T") for _ in range(3)))
    for group in ("g", "free"):
        await peer.ask(UpdateGroup(GroupConfig(group, consume_from_min_enable=group == "free")))
        assert (await peer.ask(QueryConsumerOffset(group, "T", 0))).offset == 0
        popped = await peer.ask(Pop(group, "T", 0, 1, 60_000, 0, 0, 1))
        assert [one.queue_offset for one in record.iterate(popped.messages)] == [0]


ALL = {
    "+priority.factor": "50", "+lite.bind.topic": "L", "+lite.sub.model": "Exclusive", "+lite.sub.client.quota": "-1",
    "+lite.sub.client.max.event.cnt": "10", "+lite.sub.reset.offset.exclusive": "true",
    "+lite.sub.reset.offset.unsubscribe": "false", "+lite.sub.wildcard": "L",
}  # fmt: skip


async def test_all_that_a_group_of_5_5_0_says_is_kept_and_told(broker: LocalBroker, peer: Peer) -> None:
    """Attributes, its own subscriptions and the policy: by 201 and 352, in subscriptionGroup.json, over a restart."""
    subscribed = [{"expression": "a", "expressionType": "TAG", "topic": "T", "version": 7}]
    numbers = {"broker_id": 2, "which_broker_when_consume_slowly": 3, "group_sys_flag": 1, "consume_timeout_minute": 9}
    wanted = GroupConfig("g", consume_from_min_enable=False, consume_message_orderly=True)._replace(
        attributes=ALL, subscription_data_set=json.dumps(subscribed), **numbers
    )
    await peer.ask(UpdateGroup(wanted))
    for again in ({}, {"priority.factor": "50"}):  # who changes something else gives back what it read
        await peer.ask(UpdateGroup(wanted._replace(attributes=again)))
    async with JavaClient.connect(broker.address) as java:
        told = orjson.loads((await java.ask(GetGroupConfig("g")))[1])
        assert orjson.loads((await java.ask(GetAllGroupConfig()))[1])["subscriptionGroupTable"]["g"] == told
    exported = groups_json(broker.serving.tables.groups, broker.serving.tables.forbidden)()
    assert exported["subscriptionGroupTable"]["g"] == told
    assert told["attributes"] == {name[1:]: value for name, value in ALL.items()}
    assert told["subscriptionDataSet"] == subscribed
    assert (told["brokerId"], told["whichBrokerWhenConsumeSlowly"], told["consumeTimeoutMinute"]) == (2, 3, 9)
    [read] = [one for one in from_json(exported) if one.name == "g"]
    before = await peer.ask(GetGroupConfig("g"))
    assert read == before._replace(subscription_data_set=read.subscription_data_set)
    await broker.stop_broker()
    await broker.start_broker()
    peer = await Peer.connect(broker.address)
    assert await peer.ask(GetGroupConfig("g")) == before
    await peer.close()


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"+x": "1"}, "unsupported key: x"),
        ({"+priority.factor": "101"}, "a whole number from 0 to 100"),
        ({"+priority.factor": "a"}, "a whole number"),
        ({"+lite.sub.model": "Mine"}, "one of Exclusive, Shared"),
        ({"+lite.sub.reset.offset.exclusive": "1"}, "one of false, true"),
        ({"priority.factor": "1"}, "unsupported key"),
        ({"+lite.bind.topic": "x" * 256}, "at most 255"),
    ],
)
def test_attributes_that_may_not_be(attributes: dict[str, str], said: str) -> None:
    with pytest.raises(Refusal, match=said) as refused:
        GroupTable().plan_update(GroupConfig("g", attributes=attributes))
    assert refused.value.code == R.SYSTEM_ERROR, "as RocketMQ"


def test_an_attribute_goes_again() -> None:
    table = GroupTable()
    table.apply("g", list(GroupConfig("g", attributes={"priority.factor": "5", "of.an.older.one": "1"})))
    changed = table.plan_update(GroupConfig("g", attributes={"-priority.factor": ""}))
    assert changed.attributes == {"of.an.older.one": "1"}


@pytest.mark.parametrize("text", ["{}", "[", "x" * 70_000])
def test_subscriptions_that_may_not_be(text: str) -> None:
    with pytest.raises(Refusal, match="JSON list"):
        GroupTable().plan_update(GroupConfig("g", subscription_data_set=text))
