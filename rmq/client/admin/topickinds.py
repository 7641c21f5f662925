"""What kind of topic a topic is, and which groups are the system's, as tools sort them. Pure. [rocketmq-dashboard]"""

from rmq.delivery import groups
from rmq.model import DLQ_PREFIX, RETRY_PREFIX, TopicConfig
from rmq.routing.topics import is_system_topic

_OF_TOOLS = frozenset(
    {
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "SCHEDULE_CONSUMER",
        "__MONITOR_CONSUMER",
        "CLIENT_INNER_PRODUCER",
        "SELF_TEST_P_GROUP",
    }
)
KINDS = ("NORMAL", "DELAY", "FIFO", "TRANSACTION", "MIXED", "UNSPECIFIED", "RETRY", "DLQ", "SYSTEM")


def kind(config: TopicConfig, clusters: frozenset[str], brokers: frozenset[str]) -> str:
    """One of KINDS. `clusters`, `brokers`: names; each has a topic of its own."""
    name = config.name
    if name.startswith(RETRY_PREFIX):
        return "RETRY"
    if name.startswith(DLQ_PREFIX):
        return "DLQ"
    if is_system_topic(name) or name in clusters or name in brokers or name.endswith("_REPLY_TOPIC"):
        return "SYSTEM"
    return config.attributes.get("message.type", "UNSPECIFIED")


def is_system_group(name: str) -> bool:
    """Whether it is there without anybody having made it, or is of RocketMQ's tools [MixAll.isPredefinedGroup]."""
    return groups.is_system_group(name) or name in _OF_TOOLS
