"""What kind of topic a topic is, and which groups are the system's, as tools sort them. Pure. [rocketmq-dashboard]"""

from rmq.delivery.groups import SYSTEM_GROUPS
from rmq.model import DLQ_PREFIX, RETRY_PREFIX, TopicConfig
from rmq.routing.topics import is_system_topic

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
    """Whether it is there without anybody having made it."""
    return name in SYSTEM_GROUPS or name.startswith("CID_RMQ_SYS_")
