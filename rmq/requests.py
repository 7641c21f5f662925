"""The one table of request codes: the right that a request needs, on what, and which node of a group serves it. Pure.

A super user may do all of it but what nodes say to each other; others what policies allow (`rmq.access`, `rmq.guard`). Nothing
has a default: a code without a row fails the tests, so none can be forgotten (S2).
"""

from enum import Enum
from typing import Final, NamedTuple

from rmq.codes import RequestCode


class Action(Enum):
    """What is done, under the names of policies; a right to one of several is enough [org.apache.rocketmq.auth ... Action]."""

    ANY = ()  # for everybody who may connect: hello, login, ping
    KNOWN = ("known",)  # for every user; what the answer lists is what the user may see
    PUB = ("Pub",)
    SUB = ("Sub",)
    SUB_OR_GET = ("Sub", "Get")
    SUB_OR_UPDATE = ("Sub", "Update")
    GET = ("Get",)
    SEE = ("Pub", "Sub", "Get", "List")
    CREATE = ("Create",)
    UPDATE = ("Update",)
    ADMIN = UPDATE
    DELETE = ("Delete",)
    NODE = ("node",)  # between nodes of the cluster
    CLIENT = ("client",)  # sent by brokers to clients; a broker serves it for nobody


class Resource(Enum):
    """What it is done to: all of these."""

    NONE = ()
    TOPIC = ("Topic",)
    GROUP = ("Group",)
    TOPIC_AND_GROUP = ("Topic", "Group")
    CLUSTER = ("Cluster",)


class Served(Enum):
    """Which member of a broker group answers. A broker that stands alone answers all but ELSEWHERE."""

    MEMBER = "any member, as things stand there"
    MEMBER_BUT_ASK = "any member; for clients that follow no hint the leader is asked while there is one, which knows better"
    READER = "any member that may answer reads: it follows, or leads with a good lease (R17, R19)"
    READER_BUT_ASK = "as READER, and the leader is asked as in MEMBER_BUT_ASK"
    SENDS = "the leader, also while it does not know all of earlier epochs yet"
    LEADER = "the leader: it changes tables, or answers from what only a leader knows"
    LEASED = "the leader while its lease is good: what it answers writes nothing that would tell that it leads no more"
    ELSEWHERE = "no broker: a nameserver, or a client"


class Request(NamedTuple):
    action: Action
    resource: Resource
    served: Served


ANY, KNOWN, PUB, SUB, SUB_OR_GET, SUB_OR_UPDATE, GET, SEE, CREATE, UPDATE, DELETE, NODE, CLIENT = Action
ADMIN = UPDATE
NONE, TOPIC, GROUP, TOPIC_AND_GROUP, CLUSTER = Resource
MEMBER, MEMBER_BUT_ASK, READER, READER_BUT_ASK, SENDS, LEADER, LEASED, ELSEWHERE = Served

REQUESTS: Final[dict[RequestCode, Request]] = {
    RequestCode.HELLO: Request(ANY, NONE, MEMBER),
    RequestCode.PING: Request(ANY, NONE, MEMBER),
    RequestCode.BEGIN_LOGIN: Request(ANY, NONE, MEMBER),
    RequestCode.FINISH_LOGIN: Request(ANY, NONE, MEMBER),
    RequestCode.SIGNED_LOGIN: Request(ANY, NONE, MEMBER),
    RequestCode.GOODBYE: Request(CLIENT, NONE, ELSEWHERE),
    RequestCode.SEND_MESSAGE: Request(PUB, TOPIC, SENDS),
    RequestCode.SEND_MESSAGE_V2: Request(PUB, TOPIC, SENDS),
    RequestCode.SEND_BATCH_MESSAGE: Request(PUB, TOPIC, SENDS),
    RequestCode.SEND_REPLY_MESSAGE: Request(PUB, TOPIC, LEADER),
    RequestCode.SEND_REPLY_MESSAGE_V2: Request(PUB, TOPIC, LEADER),
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: Request(CLIENT, NONE, ELSEWHERE),
    RequestCode.END_TRANSACTION: Request(KNOWN, NONE, LEADER),  # PUB of the half's topic: its handler looks
    RequestCode.RECALL_MESSAGE: Request(PUB, TOPIC, LEADER),
    RequestCode.CHECK_TRANSACTION_STATE: Request(CLIENT, NONE, ELSEWHERE),
    RequestCode.PULL_MESSAGE: Request(SUB, TOPIC_AND_GROUP, READER),
    RequestCode.LITE_PULL_MESSAGE: Request(SUB, TOPIC_AND_GROUP, READER),
    RequestCode.QUERY_CONSUMER_OFFSET: Request(SUB_OR_GET, TOPIC_AND_GROUP, READER_BUT_ASK),
    RequestCode.UPDATE_CONSUMER_OFFSET: Request(SUB_OR_UPDATE, TOPIC_AND_GROUP, LEADER),
    RequestCode.LOCK_BATCH_MQ: Request(SUB, TOPIC_AND_GROUP, LEASED),
    RequestCode.CONSUMER_SEND_MSG_BACK: Request(SUB, GROUP, LEADER),
    RequestCode.POP_MESSAGE: Request(SUB, TOPIC_AND_GROUP, LEADER),
    RequestCode.ACK_MESSAGE: Request(SUB, TOPIC_AND_GROUP, LEADER),
    RequestCode.BATCH_ACK_MESSAGE: Request(SUB, TOPIC_AND_GROUP, LEADER),  # of each group and topic in it
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Request(SUB, TOPIC_AND_GROUP, LEADER),
    RequestCode.POP_LITE_MESSAGE: Request(SUB, TOPIC_AND_GROUP, LEADER),
    RequestCode.LITE_SUBSCRIPTION_CTL: Request(SUB, TOPIC_AND_GROUP, LEADER),  # of each group and topic in it
    RequestCode.NOTIFY_UNSUBSCRIBE_LITE: Request(CLIENT, NONE, ELSEWHERE),
    RequestCode.GET_BROKER_LITE_INFO: Request(GET, CLUSTER, LEADER),
    RequestCode.GET_PARENT_TOPIC_INFO: Request(GET, TOPIC, LEADER),
    RequestCode.GET_LITE_TOPIC_INFO: Request(GET, TOPIC, LEADER),
    RequestCode.GET_LITE_CLIENT_INFO: Request(GET, TOPIC_AND_GROUP, LEADER),
    RequestCode.GET_LITE_GROUP_INFO: Request(GET, GROUP, LEADER),
    RequestCode.TRIGGER_LITE_DISPATCH: Request(UPDATE, GROUP, LEADER),
    RequestCode.PEEK_MESSAGE: Request(SUB, TOPIC_AND_GROUP, LEASED),
    RequestCode.NOTIFICATION: Request(SUB, TOPIC_AND_GROUP, LEASED),
    RequestCode.QUERY_ASSIGNMENT: Request(SUB, TOPIC_AND_GROUP, MEMBER_BUT_ASK),
    RequestCode.UNLOCK_BATCH_MQ: Request(SUB, TOPIC_AND_GROUP, LEADER),
    RequestCode.GET_MAX_OFFSET: Request(SUB_OR_GET, TOPIC, READER_BUT_ASK),
    RequestCode.GET_MIN_OFFSET: Request(SUB_OR_GET, TOPIC, READER),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Request(SUB_OR_GET, TOPIC, READER_BUT_ASK),
    RequestCode.GET_EARLIEST_MSG_STORETIME: Request(SUB_OR_GET, TOPIC, READER),
    RequestCode.QUERY_MESSAGE: Request(SUB_OR_GET, TOPIC, READER),
    RequestCode.VIEW_MESSAGE_BY_ID: Request(KNOWN, NONE, READER),  # SUB_OR_GET of the topic of what is there: its handler looks
    RequestCode.HEART_BEAT: Request(SUB, TOPIC_AND_GROUP, MEMBER),
    RequestCode.CHECK_CLIENT_CONFIG: Request(SUB, GROUP, MEMBER),
    RequestCode.UNREGISTER_CLIENT: Request(SUB, GROUP, MEMBER),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Request(SUB_OR_GET, GROUP, MEMBER_BUT_ASK),
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: Request(CLIENT, NONE, ELSEWHERE),
    RequestCode.REGISTER_BROKER: Request(NODE, CLUSTER, ELSEWHERE),
    RequestCode.UNREGISTER_BROKER: Request(NODE, CLUSTER, ELSEWHERE),
    RequestCode.QUERY_DATA_VERSION: Request(NODE, CLUSTER, ELSEWHERE),
    RequestCode.INTRODUCE_PEER: Request(NODE, CLUSTER, MEMBER),
    RequestCode.FETCH_LOG: Request(NODE, CLUSTER, MEMBER),
    RequestCode.ACK_LOG: Request(NODE, CLUSTER, MEMBER),
    RequestCode.ASK_VOTE: Request(NODE, CLUSTER, MEMBER),
    RequestCode.ANNOUNCE_LEADER: Request(NODE, CLUSTER, MEMBER),
    RequestCode.RESIGN_LEADER: Request(NODE, CLUSTER, MEMBER),
    RequestCode.READ_SNAPSHOT: Request(NODE, CLUSTER, MEMBER),
    RequestCode.READ_LOG: Request(NODE, CLUSTER, MEMBER),
    RequestCode.FORWARDED_CLIENT: Request(NODE, CLUSTER, MEMBER),
    RequestCode.ADD_PEER: Request(UPDATE, CLUSTER, MEMBER),
    RequestCode.REMOVE_PEER: Request(UPDATE, CLUSTER, MEMBER),
    RequestCode.TRANSFER_LEADER: Request(UPDATE, CLUSTER, MEMBER),
    RequestCode.PROMOTE: Request(UPDATE, CLUSTER, MEMBER),
    RequestCode.GET_GROUP_STATUS: Request(GET, CLUSTER, MEMBER),
    RequestCode.GET_BROKER_HA_STATUS: Request(GET, CLUSTER, MEMBER),
    RequestCode.GET_BROKER_EPOCH_CACHE: Request(GET, CLUSTER, MEMBER),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Request(SEE, TOPIC, ELSEWHERE),
    RequestCode.GET_BROKER_CLUSTER_INFO: Request(KNOWN, CLUSTER, ELSEWHERE),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Request(KNOWN, TOPIC, ELSEWHERE),
    RequestCode.GET_ALL_TOPIC_CONFIG: Request(KNOWN, TOPIC, MEMBER),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Request(KNOWN, GROUP, MEMBER),
    RequestCode.GET_TOPICS_BY_CLUSTER: Request(GET, CLUSTER, ELSEWHERE),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: Request(GET, CLUSTER, ELSEWHERE),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: Request(ADMIN, CLUSTER, ELSEWHERE),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: Request(ADMIN, CLUSTER, ELSEWHERE),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Request(GET, CLUSTER, MEMBER),
    RequestCode.GET_ALL_PRODUCER_INFO: Request(GET, CLUSTER, MEMBER_BUT_ASK),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: Request(GET, CLUSTER, MEMBER_BUT_ASK),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: Request(GET, GROUP, MEMBER_BUT_ASK),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Request(GET, TOPIC_AND_GROUP, MEMBER_BUT_ASK),
    RequestCode.GET_BROKER_RUNTIME_INFO: Request(GET, CLUSTER, MEMBER),
    RequestCode.GET_BROKER_CONFIG: Request(GET, CLUSTER, MEMBER),
    RequestCode.VIEW_BROKER_STATS_DATA: Request(GET, CLUSTER, MEMBER_BUT_ASK),
    RequestCode.QUERY_CONSUME_TIME_SPAN: Request(GET, TOPIC_AND_GROUP, READER),
    RequestCode.QUERY_CORRECTION_OFFSET: Request(GET, TOPIC_AND_GROUP, READER_BUT_ASK),
    RequestCode.QUERY_CONSUME_QUEUE: Request(GET, TOPIC_AND_GROUP, READER),
    RequestCode.GET_BROKER_CONSUME_STATS: Request(GET, CLUSTER, READER_BUT_ASK),
    RequestCode.CLEAN_UNUSED_TOPIC: Request(UPDATE, CLUSTER, MEMBER),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: Request(UPDATE, CLUSTER, MEMBER),
    RequestCode.SWITCH_TIMER_ENGINE: Request(UPDATE, CLUSTER, MEMBER),
    RequestCode.UPDATE_BROKER_CONFIG: Request(UPDATE, CLUSTER, MEMBER),
    RequestCode.GET_NAMESRV_CONFIG: Request(GET, CLUSTER, ELSEWHERE),
    RequestCode.UPDATE_NAMESRV_CONFIG: Request(UPDATE, CLUSTER, ELSEWHERE),
    RequestCode.GET_TOPIC_CONFIG: Request(SEE, TOPIC, MEMBER),
    RequestCode.GET_TOPIC_STATS_INFO: Request(GET, TOPIC, READER),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Request(GET, TOPIC, MEMBER),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Request(SEE, GROUP, MEMBER),
    RequestCode.GET_CONSUME_STATS: Request(GET, TOPIC_AND_GROUP, READER),
    RequestCode.POLLING_INFO: Request(GET, TOPIC_AND_GROUP, LEADER),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Request(GET, GROUP, MEMBER_BUT_ASK),
    RequestCode.GET_CONSUMER_RUNNING_INFO: Request(GET, GROUP, MEMBER_BUT_ASK),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: Request(SUB, TOPIC_AND_GROUP, READER_BUT_ASK),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Request(GET, TOPIC_AND_GROUP, MEMBER_BUT_ASK),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: Request(CLIENT, NONE, ELSEWHERE),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: Request(CLIENT, NONE, ELSEWHERE),
    RequestCode.UPDATE_AND_CREATE_TOPIC: Request(CREATE, TOPIC, LEADER),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Request(CREATE, TOPIC, LEADER),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Request(CREATE, GROUP, LEADER),
    RequestCode.CLONE_GROUP_OFFSET: Request(UPDATE, GROUP, LEADER),
    RequestCode.DELETE_TOPIC_IN_BROKER: Request(DELETE, TOPIC, LEADER),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: Request(DELETE, TOPIC, ELSEWHERE),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: Request(CREATE, TOPIC, ELSEWHERE),
    RequestCode.PUT_KV_CONFIG: Request(UPDATE, CLUSTER, ELSEWHERE),
    RequestCode.GET_KV_CONFIG: Request(GET, CLUSTER, ELSEWHERE),
    RequestCode.DELETE_KV_CONFIG: Request(UPDATE, CLUSTER, ELSEWHERE),
    RequestCode.GET_KVLIST_BY_NAMESPACE: Request(GET, CLUSTER, ELSEWHERE),
    RequestCode.GET_UNIT_TOPIC_LIST: Request(GET, CLUSTER, ELSEWHERE),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: Request(GET, CLUSTER, ELSEWHERE),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Request(GET, CLUSTER, ELSEWHERE),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: Request(UPDATE, TOPIC, LEADER),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Request(CREATE, GROUP, LEADER),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: Request(DELETE, GROUP, LEADER),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: Request(UPDATE, TOPIC_AND_GROUP, LEADER),
    RequestCode.SET_MESSAGE_REQUEST_MODE: Request(UPDATE, GROUP, LEADER),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Request(UPDATE, TOPIC_AND_GROUP, LEADER),
    RequestCode.DELETE_EXPIRED_COMMITLOG: Request(UPDATE, CLUSTER, MEMBER),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Request(UPDATE, CLUSTER, MEMBER),
    RequestCode.CHANGE_TOPICS: Request(NODE, CLUSTER, ELSEWHERE),
    RequestCode.SHARE_ACCESS: Request(NODE, CLUSTER, ELSEWHERE),
    RequestCode.SET_QUOTA: Request(UPDATE, CLUSTER, LEADER),
    RequestCode.DELETE_QUOTA: Request(UPDATE, CLUSTER, LEADER),
    RequestCode.LIST_QUOTAS: Request(GET, CLUSTER, READER_BUT_ASK),
    RequestCode.LIST_HALVES: Request(GET, CLUSTER, READER_BUT_ASK),
    RequestCode.AUTH_CREATE_USER: Request(UPDATE, CLUSTER, LEADER),
    RequestCode.AUTH_UPDATE_USER: Request(UPDATE, CLUSTER, LEADER),
    RequestCode.AUTH_DELETE_USER: Request(UPDATE, CLUSTER, LEADER),
    RequestCode.AUTH_GET_USER: Request(GET, CLUSTER, READER_BUT_ASK),
    RequestCode.AUTH_LIST_USER: Request(GET, CLUSTER, READER_BUT_ASK),
    RequestCode.AUTH_CREATE_ACL: Request(UPDATE, CLUSTER, LEADER),
    RequestCode.AUTH_UPDATE_ACL: Request(UPDATE, CLUSTER, LEADER),
    RequestCode.AUTH_DELETE_ACL: Request(UPDATE, CLUSTER, LEADER),
    RequestCode.AUTH_GET_ACL: Request(GET, CLUSTER, READER_BUT_ASK),
    RequestCode.AUTH_LIST_ACL: Request(GET, CLUSTER, READER_BUT_ASK),
}
