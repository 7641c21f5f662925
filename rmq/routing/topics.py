"""The topics of one broker group: their settings, which changes are allowed, and RocketMQ's topics.json.

Changes are planned here (a refusal or a new value) and written by the broker; the table changes when they are committed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from rmq.attributes import changed, one_of, signed_pairs, whole
from rmq.codes import ResponseCode
from rmq.errors import BadBytes, Refusal, being_deleted, no_topic
from rmq.model import (
    BATCH_QUEUE,
    CLEANUP_POLICY,
    COMPACTION,
    DELAY_TOPIC,
    DLQ_PREFIX,
    EPOCH_TOPIC,
    HALF_TOPIC,
    LIGHT_PREFIX,
    LITE,
    LITE_EXPIRATION,
    MESSAGE_TYPE,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    PRIORITY,
    QUEUE_TYPE,
    RETRY_PREFIX,
    STATE_TOPIC,
    TEMPLATE_TOPIC,
    TIMER_TOPIC,
    UNIT,
    UNIT_SUBSCRIBED,
    TopicConfig,
)
from rmq.names import check_group_name, check_known_topic, check_topic_name, is_light, lite_family
from rmq.routing.lives import EndTable, Life
from rmq.routing.rows import routable
from rmq.staged import Between, StagedTable

__all__ = [
    "TopicTable", "check_group_name", "check_topic_name", "from_json", "is_system_topic", "message_type", "not_sendable",
    "system_topics", "topics_json",
]  # fmt: skip

SYSTEM_PREFIX = "rmq_sys_"
_READ_WRITE = PERM_READ | PERM_WRITE
_INHERITED = _READ_WRITE | PERM_INHERIT
MAX_QUEUES = 1024  # of one topic at one broker group
MAX_TOPICS = 50_000
ATTRIBUTES = {  # [TopicAttributes]; those of kinds that are not served are refused
    MESSAGE_TYPE: one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", PRIORITY, LITE),
    QUEUE_TYPE: one_of("SimpleCQ", BATCH_QUEUE, fixed=True),
    CLEANUP_POLICY: one_of("DELETE", COMPACTION, fixed=True),
    "reserve.time": whole(-1),  # of RocketMQ's tiered storage: kept for it
    LITE_EXPIRATION: whole(-1, 30 * 24 * 60),  # minutes; -1: never
}
_FILTER_TYPES = frozenset({"SINGLE_TAG", "MULTI_TAG"})
_BROKERS_OWN = frozenset({  # [TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET]
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
})  # fmt: skip
_SYSTEM = _BROKERS_OWN | {TEMPLATE_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC"}
SYSTEM_STARTS = frozenset(name[:4] for name in (*_SYSTEM, SYSTEM_PREFIX))  # what no other topic begins with is surely a user's


class TopicChange(Protocol):
    """A wish to make or change a topic; `attributes` is "+name=value,-name"."""

    @property
    def topic(self) -> str: ...
    @property
    def read_queue_nums(self) -> int: ...
    @property
    def write_queue_nums(self) -> int: ...
    @property
    def perm(self) -> int: ...
    @property
    def topic_filter_type(self) -> str: ...
    @property
    def topic_sys_flag(self) -> int: ...
    @property
    def order(self) -> bool: ...
    @property
    def attributes(self) -> str: ...


def is_system_topic(name: str) -> bool:
    """Whether the name belongs to RocketMQ or to us, not to users [TopicValidator.isSystemTopic]."""
    return name in _SYSTEM or name.startswith(SYSTEM_PREFIX)


HELD_TYPES = {DELAY_TOPIC: "delay", TIMER_TOPIC: "delay", HALF_TOPIC: "transaction"}
"""Topics of messages that wait, and for what."""


def message_type(name: str, config: TopicConfig | None) -> str:
    """What is sent there, as metrics call it: what waits in a topic of held messages, or what the topic was made for."""
    made_for = config.attributes.get(MESSAGE_TYPE, "") if config else ""
    return HELD_TYPES.get(name) or made_for.lower() or "normal"


@lru_cache(maxsize=1024)
def light_topic(name: str) -> TopicConfig:
    """A light queue, as a topic."""
    return TopicConfig(name, 1, 1)


def not_sendable(name: str) -> bool:
    """Whether only the broker itself may write there. A client's record in our state topic would change settings."""
    return name in _BROKERS_OWN or name.startswith(SYSTEM_PREFIX)


class TopicTable(StagedTable[TopicConfig]):
    """`own_names`: the cluster's, the broker's and the reply topic's name, which are system topics here. `most`: how many
    topics users may make. `has_group(name)`: whether there is such a consumer group. `ends`: of topics that were deleted.
    `lights`: the light queues that there are; each is a topic of its own to readers, and no row. None: none is served."""

    def __init__(
        self,
        own_names: Iterable[str] = (),
        most: int = MAX_TOPICS,
        has_group: Callable[[str], bool] = lambda _: False,
        lights: Collection[str] | None = None,
    ) -> None:
        super().__init__()
        self._lights = lights
        self._own_names = frozenset(own_names)
        self._most = most
        self._has_group = has_group
        self.ends = EndTable()

    def get(self, name: str) -> TopicConfig | None:
        """A light queue can be read before its first message came [LmqTopicConfigManager]."""
        found = self._visible.get(name)
        return found if found is not None or self._lights is None else self._light(name)

    def _light(self, name: str) -> TopicConfig | None:
        return light_topic(name) if is_light(name) and not self.is_leaving(name) else None

    def stage(self, name: str, value: TopicConfig | None) -> None:
        """See `StagedTable`. Raises Refusal (SYSTEM_BUSY) for a topic whose deletion is on its way: its next life begins
        behind that."""
        if value is not None:
            self._not_leaving(name)
        super().stage(name, value)

    def life(self, name: str, stored_at: int) -> Life:
        """Of the topic that something was for when it was stored at that offset of the log."""
        if self.ends.of(name) > stored_at:
            return Life.OVER
        if self.is_leaving(name):
            return Life.ENDING
        return Life.GOES_ON if name in self._committed or name.startswith(LIGHT_PREFIX) else Life.NEVER

    def lives_from(self, name: str) -> int:
        """What was stored at this offset, or behind it, is for the topic's present life; -1: it has none, or is being deleted."""
        return -1 if self.is_leaving(name) or name not in self._committed else max(self.ends.of(name), 0)

    def is_gone(self, name: str) -> bool:
        """Whether it was deleted and not made again."""
        return name not in self._committed and self.ends.of(name) >= 0

    def apply(self, name: str, value: list[Any] | None, time_ms: int = 0) -> None:
        """A committed state line: the fields of a TopicConfig, or None for a deletion. `time_ms`: when it was stored."""
        self._commit(name, None if value is None else TopicConfig(*value[: len(TopicConfig._fields)]), time_ms)

    def plan_auto_create(
        self, topic: str, default_topic: str, queue_nums: int, auto_create_enabled: bool, unit_mode: bool = False
    ) -> TopicConfig:
        """The topic that a send to a missing topic makes, from its template [TopicConfigManager.createTopicInSendMessageMethod].

        %RETRY% and %DLQ% topics get one queue, always, and need their group. `unit_mode`: the producer is of a unit, so the topic
        is too [AbstractSendMessageProcessor.msgCheck]. Raises Refusal: TOPIC_NOT_EXIST, NO_PERMISSION,
        INVALID_PARAMETER, SYSTEM_ERROR when there are too many.
        """
        if not_sendable(topic):
            raise Refusal(ResponseCode.NO_PERMISSION, f"topic {topic} is the broker's own")
        known = self._not_leaving(topic)
        if known is not None:
            return known
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return self._plan_of_group(topic, unit_mode)
        check_topic_name(topic)
        template = self.decided(default_topic)
        if not auto_create_enabled or template is None or not template.perm & PERM_INHERIT:
            raise no_topic(topic, ": create it (rmq admin updateTopic), or allow autoCreateTopicEnable")
        self.check_room(topic)
        queues = max(1, min(queue_nums, template.write_queue_nums))
        return TopicConfig(topic, queues, queues, template.perm & ~PERM_INHERIT, sys_flag=UNIT if unit_mode else 0)

    def _plan_of_group(self, topic: str, unit_mode: bool) -> TopicConfig:
        check_known_topic(topic)
        if not self._has_group(topic.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)):
            raise no_topic(topic, ", nor does its group: consumers make their groups when they connect")
        self.check_room(topic, ours=True)
        return TopicConfig(topic, 1, 1, sys_flag=UNIT_SUBSCRIBED if unit_mode and topic.startswith(RETRY_PREFIX) else 0)

    def check_room(self, topic: str, *, ours: bool = False) -> None:
        """Raises Refusal if the topic would be one too many. `ours`: the broker makes it itself, for a group; then there may be
        twice as many, so that users' topics leave room for it."""
        most = 2 * self._most if ours else self._most
        if not self.has_room(topic, most):
            about = f"topic {topic} is not made: there are {most} already; delete some, or raise max_topics"
            raise Refusal(ResponseCode.SYSTEM_ERROR, about)

    def plan_update(self, change: TopicChange) -> TopicConfig:
        """The wanted topic. Raises Refusal (INVALID_PARAMETER; SYSTEM_ERROR for attributes, as RocketMQ)."""
        name = change.topic
        if self.is_reserved(name):
            raise _invalid(f"topic {name} is a system topic and cannot be changed")
        if name.startswith(LIGHT_PREFIX):
            raise _invalid(f"topic {name}: such a name is a light queue's; the first message for it makes it, with one queue")
        known = self._not_leaving(name)
        if known is None:
            check_topic_name(name)
            self.check_room(name)
        if known is None and name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise _invalid(f"topic {name}: names that begin so are reserved; the broker makes it when its group needs it")
        _check_queues("readQueueNums", change.read_queue_nums, known.read_queue_nums if known else 0)
        _check_queues("writeQueueNums", change.write_queue_nums, known.write_queue_nums if known else 0)
        if change.topic_filter_type not in _FILTER_TYPES:
            raise _invalid(f"topicFilterType {change.topic_filter_type!r}: use SINGLE_TAG or MULTI_TAG")
        wrong = routable(name, change.read_queue_nums, change.write_queue_nums, change.perm, change.topic_sys_flag)
        if wrong:  # nameservers would leave it out
            raise _invalid(wrong)
        attributes = changed(known and known.attributes, signed_pairs(change.attributes), ATTRIBUTES)
        _check_compacted(attributes)
        return TopicConfig(
            name, change.read_queue_nums, change.write_queue_nums, change.perm, change.topic_filter_type, change.topic_sys_flag,
            change.order, attributes,
        )  # fmt: skip

    def plan_delete(self, name: str) -> bool:
        """Whether there is something to delete; a missing topic is no error, so that repeating helps. One whose deletion is on
        its way is deleted once more: the answer waits for a record. Raises Refusal."""
        if self.is_reserved(name):
            raise _invalid(f"topic {name} is a system topic and cannot be deleted")
        return self.decided(name) is not None or self.is_leaving(name) or name in (self._lights or ())

    def lites_of(self, topic: str) -> list[str]:
        """The light queues of its lite topics, which go with it."""
        family = lite_family(topic)
        return [name for name in self._lights or () if name.startswith(family) and not self.is_leaving(name)]

    def is_reserved(self, name: str) -> bool:
        """Whether it is a system topic here."""
        return is_system_topic(name) or name in self._own_names

    def _not_leaving(self, name: str) -> TopicConfig | None:
        if self.is_leaving(name):
            raise being_deleted(f"topic {name}")
        return self.decided(name)


def system_topics(
    cluster: str, broker_name: str, *, auto_create: bool = True, template_queue_nums: int = 8, trace_topic: str = ""
) -> list[TopicConfig]:
    """The topics that exist from the start [TopicConfigManager], and our two, which clients may not write to. `trace_topic`: ""
    if the broker has none."""
    templates = [_topic(TEMPLATE_TOPIC, template_queue_nums, _INHERITED)] if auto_create else []
    return [
        *templates,
        *([_topic(trace_topic, 1)] if trace_topic else []),
        *(_topic(name, 1) for name in sorted(_BROKERS_OWN - {"SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC"})),
        _topic("SCHEDULE_TOPIC_XXXX", 18),
        _topic("BenchmarkTest", 1024),
        _topic(cluster, 16, _INHERITED),
        _topic(broker_name, 1, _INHERITED),
        _topic(f"{cluster}_REPLY_TOPIC", 1),
        _topic(f"{SYSTEM_PREFIX}REVIVE_LOG_{cluster}", 8),
        _topic(f"{SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{broker_name}", 1, PERM_INHERIT),
        _topic(f"{SYSTEM_PREFIX}wheel_timer", 1),
        _topic(STATE_TOPIC, 1, PERM_READ),
        _topic(EPOCH_TOPIC, 1, PERM_READ),
    ]


def topics_json(table: TopicTable) -> Callable[..., dict[str, Any]]:
    """RocketMQ's config/topics.json as a JSON value. The table is copied now; the value may be made in any thread, which rests
    (`Between`)."""
    rows, version = table.all(), table.data_version.json()

    def value(between: Between = iter) -> dict[str, Any]:
        return {"dataVersion": version, "topicConfigTable": {config.name: _to_json(config) for config in between(rows)}}

    return value


def from_json(value: Mapping[str, Any]) -> list[TopicConfig]:
    """The topics of a topics.json of RocketMQ (4.9 has no attributes). Raises BadBytes."""
    try:
        return [_from_json(row) for row in value["topicConfigTable"].values()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadBytes(f"topics.json: {type(error).__name__} {error}; is it RocketMQ's file?") from error


def _to_json(config: TopicConfig) -> dict[str, Any]:
    return {
        "attributes": config.attributes,
        "order": config.order,
        "perm": config.perm,
        "readQueueNums": config.read_queue_nums,
        "topicFilterType": config.filter_type,
        "topicName": config.name,
        "topicSysFlag": config.sys_flag,
        "writeQueueNums": config.write_queue_nums,
    }


def _from_json(row: Mapping[str, Any]) -> TopicConfig:
    return TopicConfig(
        str(row["topicName"]), int(row["readQueueNums"]), int(row["writeQueueNums"]), int(row["perm"]),
        str(row.get("topicFilterType", "SINGLE_TAG")), int(row.get("topicSysFlag", 0)), bool(row.get("order", False)),
        {str(name): str(setting) for name, setting in row.get("attributes", {}).items()},
    )  # fmt: skip


def _topic(name: str, queue_nums: int, perm: int = _READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queue_nums, queue_nums, perm)


def _check_compacted(attributes: Mapping[str, str]) -> None:
    """A batch that is one record has no key, and messages of a lite topic go with it, not with their key."""
    for name, value in ((QUEUE_TYPE, BATCH_QUEUE), (MESSAGE_TYPE, LITE)):
        if attributes.get(CLEANUP_POLICY) == COMPACTION and attributes.get(name) == value:
            raise _invalid(f"{CLEANUP_POLICY}={COMPACTION} does not go together with {name}={value}")


def _check_queues(kind: str, count: int, known: int) -> None:
    """`known`: how many there are; a topic that was adopted from RocketMQ may have more."""
    if not 1 <= count <= max(MAX_QUEUES, known):
        raise _invalid(f"{kind} {count}: 1 to {MAX_QUEUES} are allowed")


def _invalid(about: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, about)
