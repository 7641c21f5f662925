"""Lite topics: clients say which they want, and pop messages of any of them, in order in each. Native and remoting codec. Pure.

Times are milliseconds. A message is acknowledged by `pop.Ack`, and hidden longer by `pop.ChangeInvisibleTime`, at its place in
the light queue of its lite topic (`rmq.names.lite_queue`), queue 0.
"""

from typing import Final, NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command

COMPLETE_ADD: Final = "COMPLETE_ADD"
COMPLETE_REMOVE: Final = "COMPLETE_REMOVE"
PARTIAL_ADD: Final = "PARTIAL_ADD"
PARTIAL_REMOVE: Final = "PARTIAL_REMOVE"
ACTIONS: Final = (PARTIAL_ADD, PARTIAL_REMOVE, COMPLETE_ADD, COMPLETE_REMOVE)  # [LiteSubscriptionAction]


class LiteChange(NamedTuple):
    """What one client wants of a topic. `action`: PARTIAL_ADD and PARTIAL_REMOVE change its set, COMPLETE_ADD is the whole set,
    COMPLETE_REMOVE ends it. `version`: kept for RocketMQ. `offset_type`, `offset_value`: where a group begins in what PARTIAL_ADD
    adds: POLICY (0: where it is, 1: first message, 2: behind the last), OFFSET, TAIL_N; "": where it is [OffsetOption]."""

    action: str
    client_id: str
    group: str
    topic: str
    lite_topics: list[str] = []
    version: int = 0
    offset_type: str = ""
    offset_value: int = 0


@command(RequestCode.LITE_SUBSCRIPTION_CTL, None)
class DeclareLites(NamedTuple):
    """Nodes keep this in memory only: clients repeat it, at least every two minutes."""

    changes: list[LiteChange]


class LitePopAnswer(NamedTuple):
    """`status` 0: `messages` are stored records, back to back; 209, 210: none. Which lite topic a record is in, and where, its
    properties say. `order_count_info`: for each message "0", or "0 qo0%offset N": it was handed out N times before."""

    pop_time: int
    invisible_time: int
    revive_qid: int
    order_count_info: str = ""
    messages: bytes = b""
    status: int = 0


@command(RequestCode.POP_LITE_MESSAGE, LitePopAnswer)
class PopLite(NamedTuple):
    """Messages of the lite topics that this client declared, which nobody else of the group gets for `invisible_time`. A lite
    topic gives the next ones when these are acknowledged, or these again. Held for `poll_time` when nothing is there. `declared`:
    the client has declared its set, and is told (SUBSCRIPTION_NOT_EXIST) if this node does not know all of it."""

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: int
    invisible_time: int
    poll_time: int
    born_time: int
    attempt_id: str = ""
    declared: bool = False


@command(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, None)
class LiteTaken(NamedTuple):
    """To a client: another one has this lite topic of an exclusive group now."""

    lite_topic: str
    consumer_group: str
    client_id: str


class BrokerLiteInfo(NamedTuple):
    """`topic_meta`: minutes to live by topic; `group_meta`: groups by topic."""

    store_type: str
    max_lmq_num: int
    current_lmq_num: int
    lite_subscription_count: int
    order_info_count: int
    cq_table_size: int
    offset_table_size: int
    event_map_size: int
    topic_meta: dict[str, int]
    group_meta: dict[str, list[str]]


@command(RequestCode.GET_BROKER_LITE_INFO, BrokerLiteInfo)
class GetBrokerLiteInfo(NamedTuple):
    pass


class ParentTopicInfo(NamedTuple):
    """`ttl`: minutes; -1: for ever."""

    topic: str
    ttl: int
    groups: list[str]
    lmq_num: int
    lite_topic_count: int


@command(RequestCode.GET_PARENT_TOPIC_INFO, ParentTopicInfo)
class GetParentTopicInfo(NamedTuple):
    topic: str


class LiteSubscriber(NamedTuple):
    """Client id "*": all clients of a group that wants all lite topics."""

    client_id: str
    group: str


class LiteTopicInfo(NamedTuple):
    """`last_update_timestamp`: store time of the last message, 0: none. `sharding_to_broker`: by its name it belongs here."""

    parent_topic: str
    lite_topic: str
    subscriber: list[LiteSubscriber]
    min_offset: int
    max_offset: int
    last_update_timestamp: int
    sharding_to_broker: bool


@command(RequestCode.GET_LITE_TOPIC_INFO, LiteTopicInfo)
class GetLiteTopicInfo(NamedTuple):
    parent_topic: str
    lite_topic: str


class LiteClientInfo(NamedTuple):
    """`last_access_time`, `last_consume_time`: of its pops, -1 and 0: none. `lite_topic_count` -1: the client is not known."""

    parent_topic: str
    group: str
    client_id: str
    last_access_time: int
    last_consume_time: int
    lite_topic_count: int
    lite_topic_set: list[str]


@command(RequestCode.GET_LITE_CLIENT_INFO, LiteClientInfo)
class GetLiteClientInfo(NamedTuple):
    """`max_count`: of names in the answer."""

    parent_topic: str
    group: str
    client_id: str
    max_count: int = 1000


class LiteLag(NamedTuple):
    """`earliest_unconsumed_timestamp`: store time of the first message that the group has not consumed; -1: unknown."""

    lite_topic: str
    lag_count: int
    earliest_unconsumed_timestamp: int


class LiteGroupInfo(NamedTuple):
    """Of one lite topic, or ("") of all: then the worst by count and by time. `broker_offset` -1: the group has no offset there.
    `last_timestamp`: store time of the last message that it consumed."""

    group: str
    parent_topic: str
    lite_topic: str
    earliest_unconsumed_timestamp: int
    total_lag_count: int
    lag_count_top_k: list[LiteLag] = []
    lag_timestamp_top_k: list[LiteLag] = []
    broker_offset: int = -1
    consumer_offset: int = -1
    last_timestamp: int = 0


@command(RequestCode.GET_LITE_GROUP_INFO, LiteGroupInfo)
class GetLiteGroupInfo(NamedTuple):
    """`top_k`: how many lite topics the lists of the answer have."""

    group: str
    lite_topic: str = ""
    top_k: int = 20


@command(RequestCode.TRIGGER_LITE_DISPATCH, None)
class TriggerLiteDispatch(NamedTuple):
    """Looks for messages that a client of the group ("": each) should have heard of."""

    group: str
    client_id: str = ""


_LiteQuestion = GetBrokerLiteInfo | GetParentTopicInfo | GetLiteTopicInfo | GetLiteClientInfo | GetLiteGroupInfo
LiteRequest = DeclareLites | PopLite | LiteTaken | TriggerLiteDispatch | _LiteQuestion
LiteAnswer = LitePopAnswer | BrokerLiteInfo | ParentTopicInfo | LiteTopicInfo | LiteClientInfo | LiteGroupInfo
