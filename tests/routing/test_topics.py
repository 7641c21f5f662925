"""The topics of one broker group: planning, staging, committing, exporting."""

import json
from typing import NamedTuple

import pytest

from rmq.codes import ResponseCode
from rmq.errors import BadBytes, Refusal
from rmq.model import EPOCH_TOPIC, STATE_TOPIC, TopicConfig
from rmq.routing import topics
from rmq.routing.topics import TopicTable


class Change(NamedTuple):
    topic: str
    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: str = ""


def a_table(*configs, own_names=(), groups=()):
    table = TopicTable(own_names, has_group=lambda name: name in groups)
    for config in (*topics.system_topics("C", "b"), *configs):
        table.apply(config.name, list(config))
    return table


def code_of(call, *args):
    with pytest.raises(Refusal) as refused:
        call(*args)
    return refused.value.code


# --- auto-creation


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (8, 8), (16, 8), (1, 1), (0, 1), (-3, 1)])
def test_a_topic_made_by_a_send_follows_the_template(asked, made):
    plan = a_table().plan_auto_create("T", "TBW102", asked, True)
    assert plan == TopicConfig("T", made, made, 6)


def test_without_auto_creation_or_template_the_topic_does_not_exist():
    table = a_table(TopicConfig("Plain"))
    assert code_of(table.plan_auto_create, "T", "TBW102", 4, False) == ResponseCode.TOPIC_NOT_EXIST
    assert code_of(table.plan_auto_create, "T", "Nobody", 4, True) == ResponseCode.TOPIC_NOT_EXIST
    assert code_of(table.plan_auto_create, "T", "Plain", 4, True) == ResponseCode.TOPIC_NOT_EXIST  # it has no inherit bit


@pytest.mark.parametrize("name", ["%RETRY%g", "%DLQ%g"])
def test_retry_and_dead_letter_topics_get_one_queue_always_and_need_their_group(name):
    assert a_table(groups="g").plan_auto_create(name, "TBW102", 4, False) == TopicConfig(name, 1, 1, 6)
    assert code_of(a_table(groups="h").plan_auto_create, name, "TBW102", 4, True) == ResponseCode.TOPIC_NOT_EXIST


def test_an_existing_topic_is_its_own_plan():
    known = TopicConfig("T", 3, 2, 4)
    assert a_table(known).plan_auto_create("T", "TBW102", 4, True) == known


@pytest.mark.parametrize("name", [STATE_TOPIC, EPOCH_TOPIC, "rmq_sys_anything", "SCHEDULE_TOPIC_XXXX"])
def test_nobody_makes_the_brokers_own_topics(name):
    """S9: a client's record in the state topic would be a change of settings."""
    assert topics.not_sendable(name)
    assert code_of(TopicTable().plan_auto_create, name, "TBW102", 4, True) == ResponseCode.NO_PERMISSION


def test_users_topics_are_sendable():
    assert not any(map(topics.not_sendable, ["T", "%RETRY%g", "TBW102", "BenchmarkTest", "rmq", "RMQ_SYS_TRACE_TOPIC"]))


# --- explicit changes


def test_create_and_change():
    table = a_table()
    made = table.plan_update(Change("T", 4, 2, 6, attributes="+message.type=FIFO"))
    assert made == TopicConfig("T", 4, 2, 6, attributes={"message.type": "FIFO"})
    table.apply("T", list(made))
    changed = table.plan_update(Change("T", 4, 4, 2))
    assert changed == TopicConfig("T", 4, 4, 2, attributes={"message.type": "FIFO"})
    assert table.plan_update(Change("T", attributes="-message.type")).attributes == {}


@pytest.mark.parametrize(
    "change",
    [
        Change(""), Change("a.b"), Change("TBW102"), Change("rmq_sys_STATE"), Change("C"), Change("T", read_queue_nums=0),
        Change("T", write_queue_nums=1025), Change("T", perm=-1), Change("T", perm=8), Change("T", topic_sys_flag=1 << 31),
        Change("T", topic_filter_type="SQL"),
        Change("%RETRY%new"), Change("%DLQ%new"),
    ],
)  # fmt: skip
def test_what_may_not_be(change):
    """S9: also names reserved for the system."""
    assert code_of(a_table(own_names=["C", "b"]).plan_update, change) == ResponseCode.INVALID_PARAMETER


def test_a_topic_that_was_adopted_with_more_queues_can_be_changed():
    """RocketMQ has no limit there; such a topic could not even be set to read only."""
    table = a_table(TopicConfig("Wide", 5000, 5000))
    assert table.plan_update(Change("Wide", 5000, 4000, 4)) == TopicConfig("Wide", 5000, 4000, 4)
    assert code_of(table.plan_update, Change("Wide", 5001, 5000)) == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    "attributes", ["+x=1", "message.type=FIFO", "+message.type=ODD", "+message.type", "+", "-x", "-message.type=FIFO"]
)
def test_wrong_attributes(attributes):
    assert code_of(a_table().plan_update, Change("T", attributes=attributes)) == ResponseCode.SYSTEM_ERROR


def test_an_existing_retry_topic_may_be_changed():
    assert a_table(TopicConfig("%RETRY%g", 1, 1)).plan_update(Change("%RETRY%g", 2, 2)).read_queue_nums == 2


def test_delete():
    table = a_table(TopicConfig("T"))
    assert table.plan_delete("T")
    assert not table.plan_delete("Gone")  # repeating is no error
    assert code_of(table.plan_delete, "TBW102") == ResponseCode.INVALID_PARAMETER


# --- committed and staged


def test_a_new_topic_is_seen_when_it_is_committed():
    table = a_table()
    table.stage("T", TopicConfig("T", 2, 2))
    assert table.get("T") is None
    assert table.plan_auto_create("T", "TBW102", 4, True) == TopicConfig("T", 2, 2)  # decided already: not decided again
    table.apply("T", list(TopicConfig("T", 2, 2)))
    assert table.get("T") == TopicConfig("T", 2, 2)


def test_a_topic_on_its_way_out_takes_nothing_more():
    table = a_table(TopicConfig("T"))
    table.stage("T", None)
    assert table.get("T") is None
    assert all(config.name != "T" for config in table.all())
    assert code_of(table.plan_auto_create, "T", "TBW102", 4, True) == ResponseCode.SYSTEM_BUSY
    assert code_of(table.plan_update, Change("T")) == ResponseCode.SYSTEM_BUSY
    table.apply("T", None)
    assert table.plan_auto_create("T", "TBW102", 4, True).name == "T"


def test_changes_are_committed_in_order_while_others_wait():
    table = a_table(TopicConfig("T", 1, 1))
    table.stage("T", TopicConfig("T", 2, 2))
    table.stage("T", None)
    table.apply("T", list(TopicConfig("T", 2, 2)))
    assert table.get("T") is None  # its deletion is still on the way
    table.apply("T", None)
    table.apply("T", list(TopicConfig("T", 3, 3)))
    assert table.get("T") == TopicConfig("T", 3, 3)


def test_a_failed_change_is_forgotten_and_no_other_one():
    table = a_table(TopicConfig("T"))
    table.stage("T", None)
    table.stage("New", TopicConfig("New"))
    table.unstage("New")
    assert table.decided("New") is None
    assert table.get("T") is None  # its deletion is still on the way
    table.stage("T", None)
    table.unstage("T")
    assert table.get("T") is None
    table.unstage("T")
    assert table.get("T") == TopicConfig("T")


def test_who_leads_no_more_forgets_what_is_on_its_way():
    table = a_table(TopicConfig("T"))
    table.stage("T", None)
    table.drop_overlay()
    assert table.get("T") == TopicConfig("T")
    table.unstage("T")  # that it failed is told afterwards
    assert table.get("T") == TopicConfig("T")


def test_each_commit_raises_the_version():
    table = TopicTable()
    table.apply("T", list(TopicConfig("T")), 1000)
    table.apply("T", None, 900)
    assert table.data_version[:2] == (2, 1000)


def test_lines_of_older_and_newer_releases():
    """A shorter line takes the defaults; what a newer release added is not ours to know."""
    table = TopicTable()
    table.apply("T", ["T", 2, 3])
    table.apply("U", [*TopicConfig("U"), "new", 7])
    assert table.get("T") == TopicConfig("T", 2, 3)
    assert table.get("U") == TopicConfig("U")


# --- the start, and RocketMQ's file


def test_system_topics():
    rows = {config.name: config for config in topics.system_topics("C", "b")}
    assert rows["TBW102"] == TopicConfig("TBW102", 8, 8, 7)
    assert (rows["C"].read_queue_nums, rows["C"].perm, rows["b"].perm) == (16, 7, 7)
    assert rows["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 18
    assert rows[STATE_TOPIC].perm == 4
    assert "TBW102" not in {config.name for config in topics.system_topics("C", "b", auto_create=False)}
    assert all(topics.is_system_topic(name) for name in rows if name not in ("C", "b", "C_REPLY_TOPIC"))


def test_topics_json_is_rocketmqs_and_comes_back():
    config = TopicConfig("T", 4, 2, 6, attributes={"message.type": "FIFO"})
    table = TopicTable()
    table.apply("T", list(config), 1_700_000_000_000)
    value = json.loads(json.dumps(topics.topics_json(table)()))
    assert value["dataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    assert value["topicConfigTable"]["T"] == {
        "attributes": {"message.type": "FIFO"}, "order": False, "perm": 6, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG",
        "topicName": "T", "topicSysFlag": 0, "writeQueueNums": 2,
    }  # fmt: skip
    assert topics.from_json(value) == [config]


@pytest.mark.parametrize("value", [{}, {"topicConfigTable": []}, {"topicConfigTable": {"T": {}}}, {"topicConfigTable": {"T": 3}}])
def test_a_broken_file_says_so(value):
    with pytest.raises(BadBytes, match=r"topics\.json"):
        topics.from_json(value)
