"""One vocabulary: every request, its answer, and nothing about how they are spelled.

A command is a NamedTuple; `CODES` tells its request code and `ANSWERS` the type of a good answer (None: an empty one).
Field order is the native spelling, so fields are only added at the end, with a default; field
names are RocketMQ's ext-field names in snake_case, so the remoting spelling follows from them.

An answer that has a field `status` carries one of several "good" response codes in it (a pull that found nothing is no
error). Every other refusal is an `errors.Refusal`. Pure: no I/O, no clock.
"""

from typing import NamedTuple, Union, cast

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
from rmq.net.linkcommands import Goodbye as Goodbye
from rmq.net.linkcommands import Hello as Hello
from rmq.net.linkcommands import HelloAnswer as HelloAnswer
from rmq.net.linkcommands import Ping as Ping
from rmq.net.lockcommands import LockedQueues, LockQueues, UnlockQueues
from rmq.net.peercommands import PeerAnswer, PeerRequest
from rmq.net.popcommands import PopRelatedAnswer, PopRequest
from rmq.net.registercommands import DeleteSetting as DeleteSetting
from rmq.net.registercommands import DeleteTopicInNameserver as DeleteTopicInNameserver
from rmq.net.registercommands import RegisterBroker as RegisterBroker
from rmq.net.registercommands import Registered as Registered
from rmq.net.registercommands import UnregisterBroker as UnregisterBroker
from rmq.net.resetcommands import ResetOffsets, ResetRequest
from rmq.net.retrycommands import RetryRequest
from rmq.net.timercommands import TimerAnswer, TimerRequest
from rmq.net.transactioncommands import TransactionRequest
from rmq.net.vocabulary import ANSWERS as ANSWERS
from rmq.net.vocabulary import CODES as CODES
from rmq.net.vocabulary import command

# --- routes (nameserver) ----------------------------------------------------------------------------------------------


@command(RequestCode.GET_ROUTEINFO_BY_TOPIC, Route)
class GetRoute(NamedTuple):
    """TOPIC_NOT_EXIST when nobody has the topic."""

    topic: str
    accept_standard_json_only: bool = False


class ClusterInfo(NamedTuple):
    brokers: list[BrokerAddresses]


@command(RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo)
class GetClusterInfo(NamedTuple):
    """Every broker group the nameserver knows."""


class TopicList(NamedTuple):
    topics: list[str]
    broker_addr: str = ""


@command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList)
class GetTopicList(NamedTuple):
    """All topics of all brokers, system, %RETRY% and %DLQ% topics included."""


# --- clients ----------------------------------------------------------------------------------------------------------


class HeartbeatAnswer(NamedTuple):
    is_support_heart_beat_v2: bool = False
    is_sub_change: bool = True


@command(RequestCode.HEART_BEAT, HeartbeatAnswer)
class Heartbeat(NamedTuple):
    """Sent at start, on every change and each 30 s to every broker the client knows [HeartbeatData]."""

    client_id: str
    producers: list[str] = []
    consumers: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


@command(RequestCode.UNREGISTER_CLIENT, None)
class UnregisterClient(NamedTuple):
    client_id: str
    producer_group: str = ""
    consumer_group: str = ""


class ConsumerList(NamedTuple):
    """Client ids of a group, sorted."""

    client_ids: list[str]


@command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerList)
class GetConsumerList(NamedTuple):
    consumer_group: str


@command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, None)
class NotifyConsumerIdsChanged(NamedTuple):
    """Broker to client, one-way: the members of the group changed, rebalance now."""

    consumer_group: str


# --- sending ----------------------------------------------------------------------------------------------------------


class SendAnswer(NamedTuple):
    """`status`: 0, 10, 11 or 12 (all mean stored). Offsets are those of the first record of the request.

    Of a message that is to be delivered later they are its place until then. `recall_handle`: takes a timed one back.
    """

    queue_id: int
    queue_offset: int
    physical_offset: int
    status: int = 0
    recall_handle: str = ""


@command(RequestCode.SEND_MESSAGE_V2, SendAnswer)
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


class DraftedSend(Send):
    """A send whose one record the border made of a message in another spelling, and has checked. It has no spelling itself.

    One element more than `Send`: the hash of the record's tag.
    """

    __slots__ = ()

    @property
    def tags_code(self) -> int:
        return cast(int, tuple.__getitem__(self, 9))


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


@command(RequestCode.PULL_MESSAGE, PullAnswer)
class Pull(NamedTuple):
    """`sys_flag`: PULL_* bits. `suspend_timeout_millis`: how long it may be held when nothing is there. `after`: where in the
    log the message before `queue_offset` stood when it was read (-1: unknown)."""

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
    after: int = -1


class OffsetAnswer(NamedTuple):
    offset: int


@command(RequestCode.QUERY_CONSUMER_OFFSET, OffsetAnswer)
class QueryConsumerOffset(NamedTuple):
    """QUERY_NOT_FOUND when the group has none. `set_zero_if_not_found` False: also for a young queue."""

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool = True


@command(RequestCode.UPDATE_CONSUMER_OFFSET, None)
class UpdateConsumerOffset(NamedTuple):
    """One-way: kept and made durable within 200 ms. As a request: answered when it is committed."""

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int


@command(RequestCode.GET_MAX_OFFSET, OffsetAnswer)
class GetMaxOffset(NamedTuple):
    topic: str
    queue_id: int


@command(RequestCode.GET_MIN_OFFSET, OffsetAnswer)
class GetMinOffset(NamedTuple):
    topic: str
    queue_id: int


@command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, OffsetAnswer)
class SearchOffset(NamedTuple):
    """`boundary_type` LOWER: first message stored at or after `timestamp` (ms); UPPER: last at or before."""

    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str = "LOWER"


class TimestampAnswer(NamedTuple):
    timestamp: int


@command(RequestCode.GET_EARLIEST_MSG_STORETIME, TimestampAnswer)
class GetEarliestStoreTime(NamedTuple):
    topic: str
    queue_id: int


# --- looking messages up ----------------------------------------------------------------------------------------------


class QueryMessageAnswer(NamedTuple):
    """`status` 0: `messages` are stored records by their place in the log; 22: there is none.

    `index_last_...`: store time and offset of what was entered into the index last. Not `complete`: there may be more.
    """

    index_last_update_timestamp: int = 0
    index_last_update_phyoffset: int = 0
    messages: bytes = b""
    status: int = 0
    complete: bool = True


@command(RequestCode.QUERY_MESSAGE, QueryMessageAnswer)
class QueryMessage(NamedTuple):
    """The newest messages with `key` as one of their keys or as unique key; `index_type` "T": as their tag.

    At most 64, with `unique_key_query` at most 32, stored from `begin_timestamp` to `end_timestamp` (ms). SYSTEM_BUSY
    while nothing is found and the index is still being built. `last_key` is not looked at.
    """

    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    unique_key_query: bool = False
    index_type: str = ""
    last_key: str = ""


class MessageAnswer(NamedTuple):
    """One stored record."""

    message: bytes


@command(RequestCode.VIEW_MESSAGE_BY_ID, MessageAnswer)
class ViewMessage(NamedTuple):
    """The message whose record begins at this offset of the log, which is part of its message id."""

    offset: int
    topic: str = ""


# --- administration ---------------------------------------------------------------------------------------------------


@command(RequestCode.UPDATE_AND_CREATE_TOPIC, None)
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


@command(RequestCode.DELETE_TOPIC_IN_BROKER, None)
class DeleteTopic(NamedTuple):
    topic: str


@command(RequestCode.GET_TOPIC_CONFIG, TopicConfig)
class GetTopicConfig(NamedTuple):
    topic: str


class TopicConfigs(NamedTuple):
    topics: list[TopicConfig]
    data_version: DataVersion = DataVersion()


@command(RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigs)
class GetAllTopicConfig(NamedTuple):
    """All topics of one broker group with their settings."""


class TopicStats(NamedTuple):
    queues: list[QueueStats]
    topic_put_tps: float = 0.0


@command(RequestCode.GET_TOPIC_STATS_INFO, TopicStats)
class GetTopicStats(NamedTuple):
    topic: str


@command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None)
class UpdateGroup(NamedTuple):
    config: GroupConfig


@command(RequestCode.DELETE_SUBSCRIPTIONGROUP, None)
class DeleteGroup(NamedTuple):
    group_name: str
    clean_offset: bool = False


@command(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupConfig)
class GetGroupConfig(NamedTuple):
    group: str


class GroupConfigs(NamedTuple):
    groups: list[GroupConfig]
    data_version: DataVersion = DataVersion()


@command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupConfigs)
class GetAllGroupConfig(NamedTuple):
    """All consumer groups of one broker group with their settings."""


class ConsumeStats(NamedTuple):
    queues: list[QueueProgress]
    consume_tps: float = 0.0


@command(RequestCode.GET_CONSUME_STATS, ConsumeStats)
class GetConsumeStats(NamedTuple):
    """`topic` "": every topic of the group. `topic_list`: "a;b;" narrows it (RocketMQ 5.3 and later)."""

    consumer_group: str
    topic: str = ""
    topic_list: str = ""


class ConsumerConnection(NamedTuple):
    connections: list[ConnectionInfo]
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: list[Subscription]


@command(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection)
class GetConsumerConnection(NamedTuple):
    """CONSUMER_NOT_ONLINE when the group has no member."""

    consumer_group: str


class GroupList(NamedTuple):
    groups: list[str]


@command(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList)
class QueryTopicConsumeByWho(NamedTuple):
    topic: str


class RuntimeInfo(NamedTuple):
    """Names and texts of RocketMQ's runtime info (docs/protocol lists them)."""

    table: dict[str, str]


@command(RequestCode.GET_BROKER_RUNTIME_INFO, RuntimeInfo)
class GetRuntimeInfo(NamedTuple):
    """What the broker says of itself, for tools."""


@command(RequestCode.DELETE_EXPIRED_COMMITLOG, None)
class DeleteExpiredLog(NamedTuple):
    """Delete the segments that are past their time now, not at the hour of deleteWhen."""


@command(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, None)
class CleanExpiredQueues(NamedTuple):
    """Delete the queue files whose messages are all gone."""


Request = Union[
    Hello, Ping, Goodbye, GetRoute, GetClusterInfo, GetTopicList, RegisterBroker, UnregisterBroker, DeleteTopicInNameserver,
    DeleteSetting,
    Heartbeat, UnregisterClient, GetConsumerList, NotifyConsumerIdsChanged,
    Send, Pull, QueryConsumerOffset, UpdateConsumerOffset, GetMaxOffset, GetMinOffset, SearchOffset, GetEarliestStoreTime,
    LockQueues, UnlockQueues, QueryMessage, ViewMessage, UpdateTopic, DeleteTopic, GetTopicConfig, GetAllTopicConfig,
    GetTopicStats, UpdateGroup, DeleteGroup, GetGroupConfig, GetAllGroupConfig,
    GetConsumeStats, GetConsumerConnection, QueryTopicConsumeByWho, GetRuntimeInfo, DeleteExpiredLog,
    CleanExpiredQueues, PeerRequest, RetryRequest, TransactionRequest, TimerRequest, PopRequest,
    ResetRequest,
]  # fmt: skip
Answer = Union[
    None, HelloAnswer, Route, ClusterInfo, TopicList, HeartbeatAnswer, ConsumerList, SendAnswer, PullAnswer, OffsetAnswer,
    TimestampAnswer, TopicConfig, TopicConfigs, TopicStats, GroupConfig, GroupConfigs, ConsumeStats, ConsumerConnection,
    GroupList, RuntimeInfo, PeerAnswer, Registered, QueryMessageAnswer, MessageAnswer, LockedQueues, TimerAnswer,
    PopRelatedAnswer, ResetOffsets,
]  # fmt: skip

REQUESTS: dict[int, type[Request]] = {code: cls for cls, code in CODES.items()}
