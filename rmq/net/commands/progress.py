"""How far groups are in the queues of a topic, and what stands in a queue, as RocketMQ's tools ask. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.model import MessageQueue, Subscription
from rmq.net.commands.vocabulary import command


class TimeSpan(NamedTuple):
    """One queue [QueueTimeSpan]. Store times in Unix ms, -1: none, or unknown: of its first message, of its last one, and of the
    last one that the group consumed. `delay_time`: age in ms of the first one that it did not consume; 0: there is none."""

    message_queue: MessageQueue
    min_time_stamp: int = -1
    max_time_stamp: int = -1
    consume_time_stamp: int = -1
    delay_time: int = 0


class TimeSpans(NamedTuple):
    spans: list[TimeSpan]


@command(RequestCode.QUERY_CONSUME_TIME_SPAN, TimeSpans)
class GetTimeSpans(NamedTuple):
    """From when to when the messages of a topic are, and how far the group is in them. TOPIC_NOT_EXIST."""

    topic: str
    group: str


class Corrections(NamedTuple):
    """By queue id."""

    offsets: dict[int, int]


@command(RequestCode.QUERY_CORRECTION_OFFSET, Corrections)
class GetCorrections(NamedTuple):
    """The lowest offset of all groups in each queue of a topic, `filter_groups` ("a,b") left out; 2**63 - 1 where
    `compare_group` is behind it."""

    compare_group: str
    topic: str
    filter_groups: str = ""


class QueueEntry(NamedTuple):
    """One message, as its queue knows it [ConsumeQueueData]. `eval`: the group wants it."""

    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = False


class QueueEntries(NamedTuple):
    """`subscription`: of the group, if it has one. `filter_data`: why it has none; "null" if it has one."""

    queue_data: list[QueueEntry]
    min_queue_index: int
    max_queue_index: int
    subscription: list[Subscription] = []
    filter_data: str = ""


@command(RequestCode.QUERY_CONSUME_QUEUE, QueueEntries)
class GetQueueEntries(NamedTuple):
    """At most 1 000 entries of a queue from `start` on. TOPIC_NOT_EXIST; SYSTEM_ERROR: there is no such queue."""

    topic: str
    queue_id: int
    start: int
    most: int = 10
    consumer_group: str = ""


ProgressRequest = GetTimeSpans | GetCorrections | GetQueueEntries
ProgressAnswer = TimeSpans | Corrections | QueueEntries
