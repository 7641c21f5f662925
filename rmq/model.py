"""The nouns: values that several rooms share. No behaviour beyond what a value knows of itself, no I/O.

Value types are NamedTuples: cheap, immutable, comparable, and their field order is the native codec on the wire
(so fields are only ever added at the end, with a default).
"""

from typing import NamedTuple

PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
TEMPLATE_TOPIC = "TBW102"  # new topics inherit from it [TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC]
EPOCH_TOPIC = "rmq_sys_EPOCH"  # our epoch records (docs/storage)
STATE_TOPIC = "rmq_sys_STATE"  # our state records
PROOF_PROPERTY = "RMQ_SRC"  # says where a message that the broker handed on comes from (`rmq.delivery.proof`)
RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
LIGHT_PREFIX = "%LMQ%"  # of light queues, and of groups that keep nothing but an offset in each [MixAll.LMQ_PREFIX]
LITE_PREFIX = "%LMQ%$"  # of lite topics: the light queue `%LMQ%$parent$name` [LiteUtil]
LITE_PROPERTY = "__LITE_TOPIC"  # names the lite topic of a message in a topic of type LITE
MESSAGE_TYPE, PRIORITY, LITE = "message.type", "PRIORITY", "LITE"  # a topic's attribute, and values of it [TopicMessageType]
LITE_EXPIRATION = "lite.topic.expiration"  # another: minutes after which a lite topic goes that nobody writes to
CLEANUP_POLICY, COMPACTION = "cleanup.policy", "COMPACTION"  # another, and its value for topics that keep the newest of each key
QUEUE_TYPE, BATCH_QUEUE = "queue.type", "BatchCQ"  # another, and the value for inner batches [CQType]
UNIT, UNIT_SUBSCRIBED = 1, 2  # bits of a topic's `sys_flag`: it is of a unit; units subscribe to it [TopicSysFlag]
DELAY_TOPIC, TIMER_TOPIC = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"  # the cluster's name follows
MAX_TOPIC_LENGTH, MAX_GROUP_LENGTH = 127, 120
MAX_DRIFT_MS = 3_600_000  # a wall clock, or a time written by one, so far from what is expected is not believed (T1)


def is_pending_topic(name: str) -> bool:
    """Whether its messages wait there for something (their time, a resolution, an acknowledgement) before they go on."""
    return name in (DELAY_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC) or name.startswith(REVIVE_PREFIX)


def may_be_light(topic: str) -> bool:
    """Whether messages stored in that topic go to the light queues that they name, too
    [MultiDispatchUtils.isNeedHandleMultiDispatch]: one that failed and waits for its next try does not go there again."""
    return topic != DELAY_TOPIC and not topic.startswith((RETRY_PREFIX, "rmq_sys_"))


class EpochEntry(NamedTuple):
    """Bytes of the log from `start` on, up to the next entry, were appended by `writer` (a storeId, 16 hex digits) in `epoch`.

    `lossy`: committed bytes may be gone before it. Two entries are the same if epoch and writer are. [EpochEntry]
    """

    epoch: int
    start: int
    writer: str
    lossy: bool = False


EpochHistory = tuple[EpochEntry, ...]


class Voter(NamedTuple):
    """One who counts in the elections of a group. `store` is "" as long as the disk behind a configured peer is unknown."""

    node: str
    store: str
    address: str


class MessageQueue(NamedTuple):
    """One queue of a topic at one broker group. Sorts as RocketMQ sorts: topic, broker name, queue id."""

    topic: str
    broker_name: str
    queue_id: int


class DataVersion(NamedTuple):
    """RocketMQ's DataVersion: rises with every change of a table."""

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0

    def risen(self, time_ms: int) -> "DataVersion":
        """After a change that was stored then."""
        return DataVersion(self.counter + 1, max(time_ms, self.timestamp))

    def json(self) -> dict[str, int]:
        """As RocketMQ's files have it."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}


class TopicConfig(NamedTuple):
    """Settings of one topic at one broker group [TopicConfig]."""

    name: str
    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = PERM_READ | PERM_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}


BROADCASTING = "BROADCASTING"  # a message model: every member of the group gets every message [MessageModel]


class GroupConfig(NamedTuple):
    """Settings of one consumer group [SubscriptionGroupConfig]. `retry_policy`: how long a failed message waits before it comes
    again, as RocketMQ writes it in JSON [GroupRetryPolicy]; "": by the delay levels, 10 s, 30 s, 1 m, ...
    `subscription_data_set`: kept for RocketMQ's tools in its JSON [SimpleSubscriptionData]; "": none."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = {}
    retry_policy: str = ""
    subscription_data_set: str = ""


class BrokerAddresses(NamedTuple):
    """One broker group in a route. Key 0 of `addresses` is the leader (RocketMQ's master). `zone`: where it stands, "" if nobody
    said it."""

    cluster: str
    name: str
    addresses: dict[int, str]
    epoch: int = 0
    zone: str = ""


class QueueData(NamedTuple):
    """How many queues of a topic one broker group has, and what may be done with them."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    sys_flag: int = 0


class Route(NamedTuple):
    """Where a topic lives [TopicRouteData]."""

    brokers: list[BrokerAddresses]
    queues: list[QueueData]
    order_conf: str = ""


class Subscription(NamedTuple):
    """What one consumer group wants of one topic [SubscriptionData]. `version` rises when the client changes it."""

    topic: str
    expression: str = "*"
    expression_type: str = "TAG"
    version: int = 0
    tags: list[str] = []
    codes: list[int] = []


class ConsumerData(NamedTuple):
    """One consumer group as a client's heartbeat describes it. `unit_mode`: it is of a unit (one of several sites that share the
    topics); this marks its retry topic."""

    group: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: list[Subscription] = []
    unit_mode: bool = False


class ConnectionInfo(NamedTuple):
    """One connected client, as the connection lists show it."""

    client_id: str
    address: str
    language: str
    version: int


class QueueStats(NamedTuple):
    """One queue of a topic: its first and next offset, and the store time (ms) of its last message (0: unknown)."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update_timestamp: int


class QueueProgress(NamedTuple):
    """How far a group is in one queue. `last_timestamp`: store time (ms) of the last consumed message (0: unknown)."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int
