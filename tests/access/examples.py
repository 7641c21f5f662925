"""A request of every type, about one topic and one group; it waits for nothing."""

from typing import Any, Final, get_origin, get_type_hints

from rmq.model import ConsumerData, DataVersion, GroupConfig, MessageQueue, Subscription, TopicConfig
from rmq.net.commands import (
    ChangeTopics,
    Heartbeat,
    LockQueues,
    RegisterBroker,
    UnlockQueues,
    UpdateGroup,
    UpdateGroups,
    UpdateTopics,
)
from rmq.net.commands.lites import COMPLETE_ADD, DeclareLites, LiteChange
from rmq.net.commands.pop import AckedRange, BatchAck
from rmq.net.commands.resets import CloneOffsets

TOPIC, GROUP, CLUSTER = "topic", "group", "cluster"
_QUEUE: Final = MessageQueue(TOPIC, "b", 0)
_SPECIAL: Final[dict[type[Any], Any]] = {
    Heartbeat: Heartbeat("c", [], [ConsumerData(GROUP, subscriptions=[Subscription(TOPIC)])]),
    LockQueues: LockQueues(GROUP, "c", [_QUEUE]),
    UnlockQueues: UnlockQueues(GROUP, "c", [_QUEUE]),
    UpdateGroup: UpdateGroup(GroupConfig(GROUP)),
    UpdateGroups: UpdateGroups([GroupConfig(GROUP)]),
    UpdateTopics: UpdateTopics([TopicConfig(TOPIC, 1, 1)]),
    CloneOffsets: CloneOffsets(GROUP, GROUP),
    BatchAck: BatchAck("b", [AckedRange(GROUP, TOPIC, "0", 0, 0, 0, 0, 0, b"")]),
    DeclareLites: DeclareLites([LiteChange(COMPLETE_ADD, "c", GROUP, TOPIC, ["x"])]),
    RegisterBroker: RegisterBroker("c", "b", 0, "127.0.0.1:1", 0, []),
    ChangeTopics: ChangeTopics("b", 0, "127.0.0.1:1", 0, [], [], DataVersion(), DataVersion()),
}
_NAMES: Final = {"topic": TOPIC, "parent_topic": TOPIC, "consumer_group": GROUP, "group": GROUP, "group_name": GROUP}
_VALUES: Final[dict[Any, Any]] = {str: "x", int: 0, bool: False, bytes: b"", float: 0.0}


def example(kind: type[Any]) -> Any:
    if kind in _SPECIAL:
        return _SPECIAL[kind]
    hints = get_type_hints(kind)
    return kind(*(_NAMES.get(name) or _value(hints[name]) for name in kind._fields))


def _value(hint: Any) -> Any:
    if hint in _VALUES:
        return _VALUES[hint]
    if get_origin(hint) in (list, dict):
        return get_origin(hint)()
    return hint(*(_value(part) for part in get_type_hints(hint).values()))
