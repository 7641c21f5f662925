"""Decides about a message that a consumer could not handle: it comes again later, or becomes a dead letter. Pure.

It comes again in the retry topic of its group, with a longer delay each time. After as many times as the group allows it goes to
the group's dead letters, where it stays [SendMessageProcessor, AbstractSendMessageProcessor].
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rmq.delivery import backoff
from rmq.model import DLQ_PREFIX, RETRY_PREFIX

RETRY_TOPIC, ORIGIN_MESSAGE_ID, DELAY, WAIT = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY", "WAIT"
DELAY_MS: Final = "TIMER_DELAY_MS"
FIRST_LEVEL: Final = 3  # 10 s, then 30 s, 1 m, 2 m ...
MOST_TIMES: Final = 2**31 - 1

DROPPED: Final = frozenset({
    "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES", "TIMER_ROLL_LABEL", "TIMER_DELAY_LEVEL", "TIMER_DEL_UNIQKEY", "REAL_TOPIC", "REAL_QID", "TRAN_MSG",
    "POP_CK", "POP_CK_OFFSET",
})  # fmt: skip
"""Properties of its first delivery (a delay, a transaction, a pop), which would send it that way again."""


class Fate(NamedTuple):
    """`topic`: where it goes. `delay_level`, or `delay_ms` by the group's policy: the delay before it is visible there."""

    topic: str
    delay_level: int
    delay_ms: int = 0

    @property
    def dead(self) -> bool:
        return self.delay_level == self.delay_ms == 0


def counted(reconsume_times: int) -> int:
    """The count of a message that comes once more, limited to what a record can hold, whatever its sender claimed."""
    return min(max(reconsume_times, 0), MOST_TIMES - 1) + 1


def after_failure(group: str, reconsume_times: int, asked_level: int, most: int, policy: str = "") -> Fate:
    """`reconsume_times`: how often it came again until now; `most`: how often it may. `asked_level`: the consumer's wish. 0: the
    group's `policy` decides, or without one, the delay grows with each failure. Below 0: it is given up."""
    if asked_level < 0 or reconsume_times >= most:
        return Fate(DLQ_PREFIX + group, 0)
    if policy and not asked_level:
        return Fate(RETRY_PREFIX + group, 0, max(1, backoff.delay_ms(policy, max(reconsume_times, 0))))
    return Fate(RETRY_PREFIX + group, asked_level or FIRST_LEVEL + max(reconsume_times, 0))


def is_given_up(reconsume_times: int, most: int, ordered: bool) -> bool:
    """Whether a message that a consumer itself sends to its retry topic is a dead letter. `reconsume_times` includes the coming
    retry. `ordered`: a member holds a queue for itself, so the message cannot come again in its place."""
    return ordered or reconsume_times > most


def properties_of(known: Mapping[str, str], topic: str, message_id: str, delay_level: int, delay_ms: int = 0) -> dict[str, str]:
    """Properties to set. `topic` and `message_id` tell where the message was when it failed first; later failures keep them."""
    by_policy = {DELAY_MS: str(delay_ms)} if delay_ms else {}
    return by_policy | {
        RETRY_TOPIC: known.get(RETRY_TOPIC) or topic,
        ORIGIN_MESSAGE_ID: known.get(ORIGIN_MESSAGE_ID) or message_id,
        WAIT: "false",
        DELAY: str(delay_level),
    }


def group_of(topic: str) -> str:
    """The group of a retry topic."""
    return topic.removeprefix(RETRY_PREFIX)
