"""The right each request code needs (S2). A code without a row fails the tests, so none can be forgotten.

Today everybody may do everything; the table is what will be asked once there are users. Pure: codes in, rights out.
"""

from enum import Enum
from typing import Final, NamedTuple

from rmq.codes import RequestCode


class Action(Enum):
    """What is done [org.apache.rocketmq.auth ... Action]."""

    ANY = "any"  # for everybody who may connect: hello, ping
    PUB = "pub"
    SUB = "sub"
    GET = "get"
    ADMIN = "admin"
    NODE = "node"  # between nodes of the cluster
    CLIENT = "client"  # sent by brokers to clients; a broker serves it for nobody


class Resource(Enum):
    """What it is done to."""

    NONE = "none"
    TOPIC = "topic"
    GROUP = "group"
    TOPIC_AND_GROUP = "topic and group"
    CLUSTER = "cluster"


class Right(NamedTuple):
    action: Action
    resource: Resource


_ANY = Right(Action.ANY, Resource.NONE)
_PUB = Right(Action.PUB, Resource.TOPIC)
_SUB = Right(Action.SUB, Resource.TOPIC_AND_GROUP)
_SUB_GROUP = Right(Action.SUB, Resource.GROUP)
_GET_TOPIC = Right(Action.GET, Resource.TOPIC)
_GET_GROUP = Right(Action.GET, Resource.GROUP)
_GET_CLUSTER = Right(Action.GET, Resource.CLUSTER)
_ADMIN_TOPIC = Right(Action.ADMIN, Resource.TOPIC)
_ADMIN_GROUP = Right(Action.ADMIN, Resource.GROUP)
_ADMIN_CLUSTER = Right(Action.ADMIN, Resource.CLUSTER)
_NODE = Right(Action.NODE, Resource.CLUSTER)
_CLIENT = Right(Action.CLIENT, Resource.NONE)

RIGHTS: Final[dict[RequestCode, Right]] = {
    RequestCode.HELLO: _ANY,
    RequestCode.PING: _ANY,
    RequestCode.GOODBYE: _CLIENT,
    RequestCode.SEND_MESSAGE: _PUB,
    RequestCode.SEND_MESSAGE_V2: _PUB,
    RequestCode.SEND_BATCH_MESSAGE: _PUB,
    RequestCode.END_TRANSACTION: _PUB,
    RequestCode.RECALL_MESSAGE: _PUB,
    RequestCode.CHECK_TRANSACTION_STATE: _CLIENT,
    RequestCode.PULL_MESSAGE: _SUB,
    RequestCode.LITE_PULL_MESSAGE: _SUB,
    RequestCode.QUERY_CONSUMER_OFFSET: _SUB,
    RequestCode.UPDATE_CONSUMER_OFFSET: _SUB,
    RequestCode.LOCK_BATCH_MQ: _SUB,
    RequestCode.CONSUMER_SEND_MSG_BACK: _SUB_GROUP,
    RequestCode.POP_MESSAGE: _SUB,
    RequestCode.ACK_MESSAGE: _SUB,
    RequestCode.BATCH_ACK_MESSAGE: _SUB,  # of each group and topic in it
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _SUB,
    RequestCode.PEEK_MESSAGE: _SUB,
    RequestCode.NOTIFICATION: _SUB,
    RequestCode.QUERY_ASSIGNMENT: _SUB,
    RequestCode.UNLOCK_BATCH_MQ: _SUB,
    RequestCode.GET_MAX_OFFSET: _GET_TOPIC,
    RequestCode.GET_MIN_OFFSET: _GET_TOPIC,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _GET_TOPIC,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _GET_TOPIC,
    RequestCode.QUERY_MESSAGE: _GET_TOPIC,
    RequestCode.VIEW_MESSAGE_BY_ID: _GET_CLUSTER,  # the topic it names is not looked at
    RequestCode.HEART_BEAT: _SUB_GROUP,
    RequestCode.UNREGISTER_CLIENT: _SUB_GROUP,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _SUB_GROUP,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _CLIENT,
    RequestCode.REGISTER_BROKER: _NODE,
    RequestCode.UNREGISTER_BROKER: _NODE,
    RequestCode.INTRODUCE_PEER: _NODE,
    RequestCode.FETCH_LOG: _NODE,
    RequestCode.ACK_LOG: _NODE,
    RequestCode.ASK_VOTE: _NODE,
    RequestCode.ANNOUNCE_LEADER: _NODE,
    RequestCode.RESIGN_LEADER: _NODE,
    RequestCode.READ_SNAPSHOT: _NODE,
    RequestCode.READ_LOG: _NODE,
    RequestCode.FORWARDED_CLIENT: _NODE,
    RequestCode.ADD_PEER: _ADMIN_CLUSTER,
    RequestCode.REMOVE_PEER: _ADMIN_CLUSTER,
    RequestCode.TRANSFER_LEADER: _ADMIN_CLUSTER,
    RequestCode.PROMOTE: _ADMIN_CLUSTER,
    RequestCode.GET_GROUP_STATUS: _GET_CLUSTER,
    RequestCode.GET_BROKER_HA_STATUS: _GET_CLUSTER,
    RequestCode.GET_BROKER_EPOCH_CACHE: _GET_CLUSTER,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _GET_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO: _GET_CLUSTER,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _GET_CLUSTER,
    RequestCode.GET_ALL_TOPIC_CONFIG: _GET_CLUSTER,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _GET_CLUSTER,
    RequestCode.GET_BROKER_RUNTIME_INFO: _GET_CLUSTER,
    RequestCode.GET_TOPIC_CONFIG: _GET_TOPIC,
    RequestCode.GET_TOPIC_STATS_INFO: _GET_TOPIC,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _GET_TOPIC,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _GET_GROUP,
    RequestCode.GET_CONSUME_STATS: _GET_GROUP,
    RequestCode.POLLING_INFO: _GET_GROUP,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _GET_GROUP,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _ADMIN_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER: _ADMIN_TOPIC,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _ADMIN_TOPIC,
    RequestCode.DELETE_KV_CONFIG: _ADMIN_CLUSTER,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _ADMIN_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _ADMIN_GROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _ADMIN_GROUP,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _ADMIN_GROUP,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _ADMIN_GROUP,
    RequestCode.DELETE_EXPIRED_COMMITLOG: _ADMIN_CLUSTER,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _ADMIN_CLUSTER,
}


def right_of(code: int) -> Right | None:
    """The right a request needs; None for a code we do not know, which nobody may use."""
    return RIGHTS.get(code)  # type: ignore[call-overload,no-any-return]


def may(subject: str, code: int, resource: str = "") -> bool:
    """Whether `subject` ("" = not logged in) may send this code for this topic or group. Unknown codes: nobody.

    There are no users yet, so everybody may do everything we know.
    """
    return right_of(code) is not None
