"""Settings of consumer groups."""

import json

import pytest

from rmq.codes import ResponseCode
from rmq.delivery import groups
from rmq.delivery.forbidden import ForbiddenTable
from rmq.delivery.groups import GroupTable
from rmq.errors import BadBytes, Refusal
from rmq.model import GroupConfig


def code_of(call, *args):
    with pytest.raises(Refusal) as refused:
        call(*args)
    return refused.value.code


def test_system_groups_exist_from_the_start():
    table = GroupTable()
    assert table.get("TOOLS_CONSUMER") == GroupConfig("TOOLS_CONSUMER")
    assert groups.is_system_group("CID_RMQ_SYS_TRANS")
    assert not groups.is_system_group("CID_mine")
    assert code_of(table.plan_delete, "TOOLS_CONSUMER") == ResponseCode.INVALID_PARAMETER


def test_make_change_delete():
    table = GroupTable()
    plan = table.plan_update(GroupConfig("g", retry_max_times=3))
    table.stage("g", plan)
    assert table.get("g") is None
    table.apply("g", list(plan))
    assert table.get("g").retry_max_times == 3
    assert table.plan_delete("g")
    table.stage("g", None)
    assert table.get("g") is None
    assert code_of(table.plan_update, GroupConfig("g")) == ResponseCode.SYSTEM_BUSY
    table.apply("g", None)
    assert not table.plan_delete("g")


@pytest.mark.parametrize(
    "config",
    [
        GroupConfig(""),
        GroupConfig("a.b"),
        GroupConfig("g" * 121),
        GroupConfig("g", retry_queue_nums=-1),
        GroupConfig("g", retry_max_times=-2),
        GroupConfig("g", broker_id=-1),
        GroupConfig("g", consume_timeout_minute=0),
    ],
)
def test_what_may_not_be(config):
    """S9, and numbers outside their ranges."""
    assert code_of(GroupTable().plan_update, config) == ResponseCode.INVALID_PARAMETER


def test_subscriptions_nested_deep_are_refused():
    """They were kept, and then neither told nor exported, with all other groups."""

    def config(depth):
        return GroupConfig("g", subscription_data_set='[{"a":' * (depth // 2) + "1" + "}]" * (depth // 2))

    table = GroupTable()
    assert table.plan_update(config(32)) == config(32)
    assert code_of(table.plan_update, config(34)) == ResponseCode.INVALID_PARAMETER
    assert code_of(table.plan_update, config(500)) == ResponseCode.INVALID_PARAMETER


def test_unknown_attributes_are_refused_and_adopted_ones_kept():
    table = GroupTable()
    assert code_of(table.plan_update, GroupConfig("g", attributes={"+x": "1"})) == ResponseCode.SYSTEM_ERROR
    table.apply("g", list(GroupConfig("g", attributes={"of.rocketmq": "1"})))
    assert table.plan_update(GroupConfig("g", retry_max_times=1)).attributes == {"of.rocketmq": "1"}


def test_subscription_group_json_is_rocketmqs_and_comes_back():
    table = GroupTable()
    config = GroupConfig("g", consume_enable=False, retry_max_times=5)
    table.apply("g", list(config), 1_700_000_000_000)
    value = json.loads(json.dumps(groups.groups_json(table, ForbiddenTable())()))
    assert value["dataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    assert value["forbiddenTable"] == {}
    assert value["subscriptionGroupTable"]["g"] == {
        "attributes": {}, "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": False, "consumeFromMinEnable": True,
        "consumeMessageOrderly": False, "consumeTimeoutMinute": 15, "groupName": "g", "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0, "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 5, "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }  # fmt: skip
    assert config in groups.from_json(value)


def test_a_file_of_rocketmq_4_has_fewer_fields():
    value = {"subscriptionGroupTable": {"g": {"groupName": "g", "consumeEnable": False, "brokerId": 0, "retryQueueNums": 2}}}
    assert groups.from_json(value) == [GroupConfig("g", consume_enable=False, retry_queue_nums=2)]


@pytest.mark.parametrize("rows", [[], {"g": {}}, {"g": {"groupName": "g", "brokerId": "x"}}])
def test_a_broken_file_says_so(rows):
    with pytest.raises(BadBytes, match=r"subscriptionGroup\.json"):
        groups.from_json({"subscriptionGroupTable": rows})
