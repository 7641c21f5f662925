"""Kinds of messages: what a message is by its properties, and the queue of one with a priority."""

import pytest

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.model import TopicConfig
from rmq.routing.kinds import asks_for_kind, check_kind, kind_of, urgent_queue

TOPIC = TopicConfig("T", 4, 4)


def made_for(kind: str) -> TopicConfig:
    return TOPIC._replace(attributes={"message.type": kind})


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, "NORMAL"),
        ({"TRAN_MSG": "True", "DELAY": "3"}, "TRANSACTION"),
        ({"TRAN_MSG": "false"}, "NORMAL"),
        ({"DELAY": "3", "__SHARDINGKEY": "a"}, "DELAY"),
        ({"TIMER_DELIVER_MS": "1"}, "DELAY"),
        ({"TIMER_DELAY_SEC": "1"}, "DELAY"),
        ({"TIMER_DELAY_MS": "1"}, "DELAY"),
        ({"__SHARDINGKEY": "a", "_SYS_MSG_PRIORITY_": "1"}, "FIFO"),
        ({"_SYS_MSG_PRIORITY_": "1", "__LITE_TOPIC": "n"}, "PRIORITY"),
        ({"__LITE_TOPIC": "n"}, "LITE"),
    ],
)
def test_the_kind_of_a_message(properties: dict[str, str], kind: str) -> None:
    """[TopicMessageType.parseFromMessageProperty] of 5.5.0, in its order."""
    assert kind_of(properties) == kind
    check_kind(properties, made_for(kind))
    for any_kind in (TOPIC, made_for("UNSPECIFIED"), made_for("MIXED")):
        check_kind(properties, any_kind)
    other = "FIFO" if kind != "FIFO" else "DELAY"
    with pytest.raises(Refusal, match=f"expected type is {other}, but actual type is {kind}") as refused:
        check_kind(properties, made_for(other))
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("text", "queue_id"),
    [("0", 0), ("2", 2), ("+3", 3), ("9", 3), ("2147483647", 3)]
    + [(text, None) for text in ("-1", "", "a", "1.5", "2147483648", "9" * 30, "\u0663")],
)
def test_the_queue_of_a_priority(text: str, queue_id: int | None) -> None:
    assert urgent_queue({"_SYS_MSG_PRIORITY_": text}, made_for("PRIORITY")) == queue_id
    assert urgent_queue({"_SYS_MSG_PRIORITY_": text, "DELAY": "1"}, made_for("PRIORITY")) is None


def test_which_topics_cost_a_look_at_each_message() -> None:
    assert [asks_for_kind(made_for(kind), False) for kind in ("", "MIXED", "FIFO", "PRIORITY", "LITE")] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert [asks_for_kind(made_for(kind), True) for kind in ("", "MIXED", "FIFO", "PRIORITY")] == [False, False, True, True]
