"""Questions to nameservers: routes, topics, brokers. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.model import BrokerAddresses, QueueData, Route
from rmq.net.commands.vocabulary import command


@command(RequestCode.GET_ROUTEINFO_BY_TOPIC, Route)
class GetRoute(NamedTuple):
    """TOPIC_NOT_EXIST when nobody has the topic. `zone`: only brokers of that zone are wanted, and those without a leader, which
    are read from their followers [ZoneRouteRPCHook]; "": all."""

    topic: str
    accept_standard_json_only: bool = False
    zone: str = ""


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


@command(RequestCode.GET_TOPICS_BY_CLUSTER, TopicList)
class GetTopicsOfCluster(NamedTuple):
    """All topics of the brokers of one cluster."""

    cluster: str


@command(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, TopicList)
class GetSystemTopics(NamedTuple):
    """The names of clusters and brokers, each of which is a topic, and a broker to ask for the other system topics."""


@command(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TopicList)
class GetBrokerSystemTopics(NamedTuple):
    """The system topics that one broker has."""


@command(RequestCode.GET_UNIT_TOPIC_LIST, TopicList)
class GetUnitTopics(NamedTuple):
    """Topics that are of a unit [TopicSysFlag]."""


@command(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, TopicList)
class GetUnitSubscribedTopics(NamedTuple):
    """Topics to which units subscribe."""


@command(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, TopicList)
class GetUnitSubscribedOtherTopics(NamedTuple):
    """Topics to which units subscribe, and that are of none."""


class Wiped(NamedTuple):
    """How many topics that was."""

    wipe_topic_count: int


@command(RequestCode.WIPE_WRITE_PERM_OF_BROKER, Wiped)
class WipeWritePerm(NamedTuple):
    """Routes say from now on that no topic of this broker may be written; until `AddWritePerm`, or the nameserver's stop."""

    broker_name: str


class Added(NamedTuple):
    """How many topics that was."""

    add_topic_count: int


@command(RequestCode.ADD_WRITE_PERM_OF_BROKER, Added)
class AddWritePerm(NamedTuple):
    """Routes say again what the broker says of its topics."""

    broker_name: str


@command(RequestCode.REGISTER_TOPIC_IN_NAMESRV, None)
class RegisterTopic(NamedTuple):
    """Routes name these queues, too, until the topic is deleted there or its brokers leave. INVALID_PARAMETER: such a broker is
    not registered, or the queues are impossible."""

    topic: str
    queues: list[QueueData] = []


UnitRequest = GetUnitTopics | GetUnitSubscribedTopics | GetUnitSubscribedOtherTopics
RouteRequest = (
    GetTopicsOfCluster | GetSystemTopics | GetBrokerSystemTopics | WipeWritePerm | AddWritePerm | UnitRequest | RegisterTopic
)
RouteAnswer = Wiped | Added
