"""Connected clients: heartbeats, members of groups. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.model import ConnectionInfo, ConsumerData, Subscription
from rmq.net.commands.routes import TopicList
from rmq.net.commands.vocabulary import command


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


@command(RequestCode.CHECK_CLIENT_CONFIG, None)
class CheckClient(NamedTuple):
    """Asks whether the group may subscribe so, before the first heartbeat with an expression that is not of tags."""

    client_id: str
    group: str
    subscription: Subscription


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


class ProducerConnection(NamedTuple):
    connections: list[ConnectionInfo]


@command(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerConnection)
class GetProducerConnection(NamedTuple):
    """SYSTEM_ERROR when nobody produces for the group."""

    producer_group: str


class ProducerInfo(NamedTuple):
    """One connected producer. `last_update_timestamp`: its last heartbeat, Unix ms."""

    client_id: str
    address: str
    language: str
    version: int
    last_update_timestamp: int


class ProducerTable(NamedTuple):
    """By group."""

    groups: dict[str, list[ProducerInfo]]


@command(RequestCode.GET_ALL_PRODUCER_INFO, ProducerTable)
class GetAllProducers(NamedTuple):
    """Everybody who produces here, at most 50 000."""


@command(RequestCode.QUERY_TOPICS_BY_CONSUMER, TopicList)
class GetTopicsOfGroup(NamedTuple):
    """Topics of which the group has an offset, or to which it subscribes now."""

    group: str


class GroupSubscription(NamedTuple):
    """`subscriptions`: one, or none if no member subscribes to the topic."""

    group: str
    topic: str
    subscriptions: list[Subscription]


@command(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, GroupSubscription)
class GetSubscription(NamedTuple):
    group: str
    topic: str


ConnectedRequest = GetProducerConnection | GetAllProducers | GetTopicsOfGroup | GetSubscription
ConnectedAnswer = ProducerConnection | ProducerTable | GroupSubscription
