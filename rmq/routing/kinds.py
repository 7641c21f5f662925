"""What kind a message is, by its properties, and what a topic made for one kind does with it [TopicMessageType]. Pure."""

from collections.abc import Mapping
from typing import Final

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.model import (
    BATCH_QUEUE,
    CLEANUP_POLICY,
    COMPACTION,
    LITE,
    LITE_PROPERTY,
    MESSAGE_TYPE,
    PRIORITY,
    QUEUE_TYPE,
    TopicConfig,
)

PRIORITY_PROPERTY: Final = "_SYS_MSG_PRIORITY_"
_SIGNS: Final = {  # in this order [TopicMessageType.parseFromMessageProperty]
    "DELAY": ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"),
    "FIFO": ("__SHARDINGKEY",),
    PRIORITY: (PRIORITY_PROPERTY,),
    LITE: (LITE_PROPERTY,),
}
_ANY: Final = frozenset({"", "UNSPECIFIED", "MIXED"})


def kind_of(properties: Mapping[str, str]) -> str:
    """Of the message with those properties."""
    if properties.get("TRAN_MSG", "").lower() == "true":
        return "TRANSACTION"
    return next((kind for kind, names in _SIGNS.items() if any(name in properties for name in names)), "NORMAL")


def is_by_urgency(config: TopicConfig) -> bool:
    """Whether the queues of the topic stand for the urgency of their messages."""
    return config.attributes.get(MESSAGE_TYPE) == PRIORITY


def has_lite_topics(config: TopicConfig) -> bool:
    """Whether a message goes to the lite topic that it names, too."""
    return config.attributes.get(MESSAGE_TYPE) == LITE


def holds_batches(config: TopicConfig) -> bool:
    """Whether a batch is stored there as one record [QueueTypeUtils.isBatchCq]."""
    return config.attributes.get(QUEUE_TYPE) == BATCH_QUEUE


def is_compacted(config: TopicConfig) -> bool:
    """Whether the newest message of each key stays [CleanupPolicyUtils.isCompaction]."""
    return config.attributes.get(CLEANUP_POLICY) == COMPACTION


def check_key(properties: Mapping[str, str], config: TopicConfig) -> None:
    """Raises Refusal (MESSAGE_ILLEGAL) for a message without a key, if the topic is compacted."""
    if is_compacted(config) and not properties.get("KEYS", "").strip():
        about = f"required message key is missing: topic {config.name} keeps the newest message of each key"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, about)


def asks_for_kind(config: TopicConfig, checked: bool) -> bool:
    """Whether each send must be looked at. `checked`: only messages of the topic's type are taken (check_message_types)."""
    made_for = config.attributes.get(MESSAGE_TYPE, "")
    return made_for in (PRIORITY, LITE) or (checked and made_for not in _ANY) or holds_batches(config) or is_compacted(config)


def check_kind(properties: Mapping[str, str], config: TopicConfig) -> None:
    """Raises Refusal (MESSAGE_ILLEGAL) for a message of another kind [DefaultTopicMessageTypeValidator]."""
    expected, actual = config.attributes.get(MESSAGE_TYPE, ""), kind_of(properties)
    if expected not in _ANY and actual != expected:
        about = f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"{about}; not stored in topic {config.name}")


def urgent_queue(properties: Mapping[str, str], config: TopicConfig) -> int | None:
    """The queue of a message with a priority [SendMessageProcessor]; None: the usual one."""
    text = properties.get(PRIORITY_PROPERTY, "").removeprefix("+")
    if not (text.isascii() and text.isdigit() and len(text) < 11) or kind_of(properties) != PRIORITY or int(text) >= 2**31:
        return None
    return min(int(text), config.write_queue_nums - 1)
