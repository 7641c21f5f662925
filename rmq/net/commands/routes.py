"""Questions to nameservers: routes, topics, brokers. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.model import BrokerAddresses, Route
from rmq.net.commands.vocabulary import command


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
