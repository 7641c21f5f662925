"""One vocabulary: every request, its answer, and nothing about how they are spelled.

A command is a NamedTuple. Its class attribute `CODE` is RocketMQ's request code and `ANSWER` the type of a good answer
(None: an empty one). Field order is the native spelling, so fields are only added at the end, with a default; field
names are RocketMQ's ext-field names in snake_case, so the remoting spelling follows from them.

An answer that has a field `status` carries one of several "good" response codes in it (a pull that found nothing is no
error). Every other refusal is an `errors.Refusal`. Pure: no I/O, no clock.
"""
# CODE and ANSWER are plain class attributes; Python allows them in a NamedTuple, mypy does not.
# mypy: disable-error-code="misc"

from typing import NamedTuple, Union

from rmq.codes import RequestCode
from rmq.model import (
    BrokerAddresses,
    ConnectionInfo,
    ConsumerData,
    DataVersion,
    GroupConfig,
    QueueProgress,
    QueueStats,
    Route,
    Subscription,
    TopicConfig,
)

# --- connection -------------------------------------------------------------------------------------------------------


class HelloAnswer(NamedTuple):
    """`version`: the highest native version both sides speak. `store_host`: "ip:port" inside message ids."""

    version: int
    cluster: str = ""
    broker_name: str = ""
    broker_id: int = 0
    store_host: str = ""
    max_message_bytes: int = 4 * 1024 * 1024


class Hello(NamedTuple):
    """First request of a native connection. `version`: the highest native version the client speaks."""

    version: int
    client_id: str = ""
    language: str = "PYTHON"
    client_version: int = 513

    CODE = RequestCode.HELLO
    ANSWER = HelloAnswer


class Ping(NamedTuple):
    """Is anybody there? Answered by every role, before anything else is checked."""

    CODE = RequestCode.PING
    ANSWER = None


# --- routes (nameserver) ----------------------------------------------------------------------------------------------


class GetRoute(NamedTuple):
    """TOPIC_NOT_EXIST when nobody has the topic."""

    topic: str
    accept_standard_json_only: bool = False

    CODE = RequestCode.GET_ROUTEINFO_BY_TOPIC
    ANSWER = Route


class ClusterInfo(NamedTuple):
    """Every registered broker group."""

    brokers: list[BrokerAddresses]


class GetClusterInfo(NamedTuple):
    CODE = RequestCode.GET_BROKER_CLUSTER_INFO
    ANSWER = ClusterInfo


class TopicList(NamedTuple):
    topics: list[str]
    broker_addr: str = ""


class GetTopicList(NamedTuple):
    """All topics of all brokers, system, %RETRY% and %DLQ% topics included."""

    CODE = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    ANSWER = TopicList


class RegisterBroker(NamedTuple):
    """A broker says: I am here, this is what I hold. `topics` is the whole list, not a change (N5)."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    epoch: int
    topics: list[TopicConfig]
    data_version: DataVersion = DataVersion()

    CODE = RequestCode.REGISTER_BROKER
    ANSWER = None


class UnregisterBroker(NamedTuple):
    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str

    CODE = RequestCode.UNREGISTER_BROKER
    ANSWER = None


class DeleteTopicInNameserver(NamedTuple):
    topic: str
    cluster_name: str = ""

    CODE = RequestCode.DELETE_TOPIC_IN_NAMESRV
    ANSWER = None


# --- clients ----------------------------------------------------------------------------------------------------------


class HeartbeatAnswer(NamedTuple):
    is_support_heart_beat_v2: bool = False
    is_sub_change: bool = True


class Heartbeat(NamedTuple):
    """Sent at start, on every change and each 30 s to every broker the client knows [HeartbeatData]."""

    client_id: str
    producers: list[str] = []
    consumers: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False

    CODE = RequestCode.HEART_BEAT
    ANSWER = HeartbeatAnswer


class UnregisterClient(NamedTuple):
    client_id: str
    producer_group: str = ""
    consumer_group: str = ""

    CODE = RequestCode.UNREGISTER_CLIENT
    ANSWER = None


class ConsumerList(NamedTuple):
    """Client ids of a group, sorted."""

    client_ids: list[str]


class GetConsumerList(NamedTuple):
    consumer_group: str

    CODE = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    ANSWER = ConsumerList


class NotifyConsumerIdsChanged(NamedTuple):
    """Broker to client, one-way: the members of the group changed, rebalance now."""

    consumer_group: str

    CODE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    ANSWER = None


# --- sending ----------------------------------------------------------------------------------------------------------


class SendAnswer(NamedTuple):
    """`status`: 0, 10, 11 or 12 (all mean stored). Offsets are those of the first record of the request."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    status: int = 0


class Send(NamedTuple):
    """One or more records in store format, back to back, for one queue; stored together or not at all.

    Each record is a draft as `rmq.log.record.draft` makes it: fields that are the broker's are blank, the properties
    end with the 20 bytes of the CRC property. `queue_id` < 0: the broker chooses. `default_topic*`: how to make the
    topic if it is missing. `batch` only tells how the remoting spelling writes it and that batch rules apply.
    """

    producer_group: str
    topic: str
    queue_id: int
    records: bytes
    reconsume_times: int = 0
    default_topic: str = "TBW102"
    default_topic_queue_nums: int = 4
    batch: bool = False
    max_reconsume_times: int = -1

    CODE = RequestCode.SEND_MESSAGE_V2
    ANSWER = SendAnswer


# --- pulling and offsets ----------------------------------------------------------------------------------------------

PULL_COMMIT_OFFSET, PULL_SUSPEND, PULL_SUBSCRIPTION = 1, 2, 4  # sys_flag bits [PullSysFlag]


class PullAnswer(NamedTuple):
    """`status` 0: `messages` are stored records, back to back, as they lie in the log. 19, 20, 21: none (remark says why).

    `next_begin_offset`: where to pull next, behind everything that was *examined*.
    """

    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: bytes = b""
    status: int = 0
    suggest_which_broker_id: int = 0


class Pull(NamedTuple):
    """`sys_flag`: PULL_* bits. `suspend_timeout_millis`: how long the broker may hold the request when nothing is there."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int = 32
    sys_flag: int = PULL_SUSPEND | PULL_SUBSCRIPTION
    commit_offset: int = 0
    suspend_timeout_millis: int = 15_000
    subscription: str = "*"
    sub_version: int = 0
    expression_type: str = "TAG"
    max_msg_bytes: int = 0

    CODE = RequestCode.PULL_MESSAGE
    ANSWER = PullAnswer


class OffsetAnswer(NamedTuple):
    offset: int


class QueryConsumerOffset(NamedTuple):
    """QUERY_NOT_FOUND when the group has none. `set_zero_if_not_found` False: also for a young queue."""

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool = True

    CODE = RequestCode.QUERY_CONSUMER_OFFSET
    ANSWER = OffsetAnswer


class UpdateConsumerOffset(NamedTuple):
    """One-way: kept and made durable within 200 ms. As a request: answered when it is committed."""

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int

    CODE = RequestCode.UPDATE_CONSUMER_OFFSET
    ANSWER = None


class GetMaxOffset(NamedTuple):
    topic: str
    queue_id: int

    CODE = RequestCode.GET_MAX_OFFSET
    ANSWER = OffsetAnswer


class GetMinOffset(NamedTuple):
    topic: str
    queue_id: int

    CODE = RequestCode.GET_MIN_OFFSET
    ANSWER = OffsetAnswer


class SearchOffset(NamedTuple):
    """`boundary_type` LOWER: first message stored at or after `timestamp` (ms); UPPER: last at or before."""

    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str = "LOWER"

    CODE = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    ANSWER = OffsetAnswer


class TimestampAnswer(NamedTuple):
    timestamp: int


class GetEarliestStoreTime(NamedTuple):
    topic: str
    queue_id: int

    CODE = RequestCode.GET_EARLIEST_MSG_STORETIME
    ANSWER = TimestampAnswer


# --- administration ---------------------------------------------------------------------------------------------------


class UpdateTopic(NamedTuple):
    """Make a topic or change it. `attributes`: "+key=value,-key"."""

    topic: str
    default_topic: str = "TBW102"
    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: str = ""
    force: bool = False

    CODE = RequestCode.UPDATE_AND_CREATE_TOPIC
    ANSWER = None


class DeleteTopic(NamedTuple):
    topic: str

    CODE = RequestCode.DELETE_TOPIC_IN_BROKER
    ANSWER = None


class GetTopicConfig(NamedTuple):
    topic: str

    CODE = RequestCode.GET_TOPIC_CONFIG
    ANSWER = TopicConfig


class TopicConfigs(NamedTuple):
    topics: list[TopicConfig]
    data_version: DataVersion = DataVersion()


class GetAllTopicConfig(NamedTuple):
    CODE = RequestCode.GET_ALL_TOPIC_CONFIG
    ANSWER = TopicConfigs


class TopicStats(NamedTuple):
    queues: list[QueueStats]
    topic_put_tps: float = 0.0


class GetTopicStats(NamedTuple):
    topic: str

    CODE = RequestCode.GET_TOPIC_STATS_INFO
    ANSWER = TopicStats


class UpdateGroup(NamedTuple):
    config: GroupConfig

    CODE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    ANSWER = None


class DeleteGroup(NamedTuple):
    group_name: str
    clean_offset: bool = False

    CODE = RequestCode.DELETE_SUBSCRIPTIONGROUP
    ANSWER = None


class GetGroupConfig(NamedTuple):
    group: str

    CODE = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    ANSWER = GroupConfig


class GroupConfigs(NamedTuple):
    groups: list[GroupConfig]
    data_version: DataVersion = DataVersion()


class GetAllGroupConfig(NamedTuple):
    CODE = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    ANSWER = GroupConfigs


class ConsumeStats(NamedTuple):
    queues: list[QueueProgress]
    consume_tps: float = 0.0


class GetConsumeStats(NamedTuple):
    """`topic` "": every topic of the group. `topic_list`: "a;b;" narrows it (RocketMQ 5.3 and later)."""

    consumer_group: str
    topic: str = ""
    topic_list: str = ""

    CODE = RequestCode.GET_CONSUME_STATS
    ANSWER = ConsumeStats


class ConsumerConnection(NamedTuple):
    connections: list[ConnectionInfo]
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: list[Subscription]


class GetConsumerConnection(NamedTuple):
    """CONSUMER_NOT_ONLINE when the group has no member."""

    consumer_group: str

    CODE = RequestCode.GET_CONSUMER_CONNECTION_LIST
    ANSWER = ConsumerConnection


class GroupList(NamedTuple):
    groups: list[str]


class QueryTopicConsumeByWho(NamedTuple):
    topic: str

    CODE = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    ANSWER = GroupList


class RuntimeInfo(NamedTuple):
    """Names and texts of RocketMQ's runtime info (docs/protocol lists them)."""

    table: dict[str, str]


class GetRuntimeInfo(NamedTuple):
    CODE = RequestCode.GET_BROKER_RUNTIME_INFO
    ANSWER = RuntimeInfo


Request = Union[
    Hello, Ping,
    GetRoute, GetClusterInfo, GetTopicList, RegisterBroker, UnregisterBroker, DeleteTopicInNameserver,
    Heartbeat, UnregisterClient, GetConsumerList, NotifyConsumerIdsChanged,
    Send, Pull, QueryConsumerOffset, UpdateConsumerOffset, GetMaxOffset, GetMinOffset, SearchOffset, GetEarliestStoreTime,
    UpdateTopic, DeleteTopic, GetTopicConfig, GetAllTopicConfig, GetTopicStats,
    UpdateGroup, DeleteGroup, GetGroupConfig, GetAllGroupConfig,
    GetConsumeStats, GetConsumerConnection, QueryTopicConsumeByWho, GetRuntimeInfo,
]  # fmt: skip
Answer = Union[
    None, HelloAnswer, Route, ClusterInfo, TopicList, HeartbeatAnswer, ConsumerList, SendAnswer, PullAnswer, OffsetAnswer,
    TimestampAnswer, TopicConfig, TopicConfigs, TopicStats, GroupConfig, GroupConfigs, ConsumeStats, ConsumerConnection,
    GroupList, RuntimeInfo,
]  # fmt: skip

REQUESTS: dict[int, type[Request]] = {cls.CODE: cls for cls in Request.__args__}  # type: ignore[attr-defined]
