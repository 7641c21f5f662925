"""What one node answers, for whoever asks several and shows also who did not answer.

Every function raises Refusal (with the reason), Unreachable or Unknown.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from rmq.client.client import Client
from rmq.codes import ResponseCode
from rmq.errors import Refusal, RmqError, Unknown, Unreachable
from rmq.net.commands import (
    ClusterInfo as ClusterInfo,
    ConsumerConnection as ConsumerConnection,
    ConsumeStats as ConsumeStats,
    GetClusterInfo,
    GetConsumerConnection,
    GetConsumeStats,
    GetTopicList,
    GetTopicStats,
    GroupList,
    QueryTopicConsumeByWho,
    TopicList,
    TopicStats as TopicStats,
)
from rmq.net.commands.clients import GetAllProducers, ProducerInfo as ProducerInfo, ProducerTable
from rmq.net.commands.progress import GetQueueEntries as GetQueueEntries, QueueEntries as QueueEntries
from rmq.net.commands.statistics import BrokerConsumeStats, GetBrokerConsumeStats, GetStatsData, StatsData

T = TypeVar("T")
_ABSENT = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


async def if_there(asked: Awaitable[T]) -> T | None:
    """What is answered; None if that is a refusal which means "it does not exist", not a failure."""
    try:
        return await asked
    except Refusal as refusal:
        if refusal.code in _ABSENT:
            return None
        raise


async def unless_silent(asked: Awaitable[T], silent: Mapping[str, RmqError] | None) -> T | None:
    """What is answered; None where nobody answers but some are in `silent`, so that it is known who may have it."""
    try:
        return await asked
    except (Unreachable, Unknown):
        if silent:
            return None
        raise


def known(found: Sequence[T | None], silent: Mapping[str, RmqError] | None) -> list[T]:
    """What of it is there. Where that is nothing, raises why one of the `silent` does not answer."""
    there = [each for each in found if each is not None]
    if silent and not there:
        raise next(iter(silent.values()))
    return there


async def cluster_info(client: Client, nameserver: str) -> ClusterInfo:
    """The broker groups that this nameserver knows."""
    answer = await client.session.connections.request(nameserver, GetClusterInfo())
    assert isinstance(answer, ClusterInfo)
    return answer


async def topics(client: Client, nameserver: str) -> list[str]:
    """The topics that this nameserver knows."""
    answer = await client.session.connections.request(nameserver, GetTopicList())
    assert isinstance(answer, TopicList)
    return answer.topics


async def topic_stats(client: Client, topic: str, address: str) -> TopicStats:
    """Queues of the topic at one broker."""
    answer = await client.session.leaders.request_from(address, GetTopicStats(topic))
    assert isinstance(answer, TopicStats)
    return answer


async def consume_stats(client: Client, group: str, address: str, topic: str = "") -> ConsumeStats:
    """How far the group is at one broker; no queues if that one does not know it."""
    answer = await if_there(client.session.leaders.request_from(address, GetConsumeStats(group, topic)))
    assert answer is None or isinstance(answer, ConsumeStats)
    return answer or ConsumeStats([])


async def connection(client: Client, group: str, address: str) -> ConsumerConnection | None:
    """Members of the group that are connected to one broker; None if there are none."""
    answer = await if_there(client.session.connections.request(address, GetConsumerConnection(group)))
    assert answer is None or isinstance(answer, ConsumerConnection)
    return answer


async def groups_of_topic(client: Client, topic: str, address: str) -> list[str]:
    """Groups that consume the topic at one broker."""
    answer = await client.session.leaders.request_from(address, QueryTopicConsumeByWho(topic))
    assert isinstance(answer, GroupList)
    return answer.groups


async def producers(client: Client, address: str) -> dict[str, list[ProducerInfo]]:
    """Everybody who produces at one broker, by group."""
    answer = await client.session.leaders.request_from(address, GetAllProducers())
    assert isinstance(answer, ProducerTable)
    return answer.groups


async def all_progress(client: Client, address: str, *, only_ordered: bool = False) -> dict[str, list[ConsumeStats]]:
    """How far each group is at one broker, topic by topic. SYSTEM_ERROR if that is too much for one answer."""
    answer = await client.session.leaders.request_from(address, GetBrokerConsumeStats(only_ordered))
    assert isinstance(answer, BrokerConsumeStats)
    return answer.groups


async def counted(client: Client, name: str, key: str, address: str) -> StatsData | None:
    """What one broker counted under that name, as TOPIC_PUT_NUMS, and key; None: nothing in the last day."""
    try:
        answer = await client.session.leaders.request_from(address, GetStatsData(name, key))
    except Refusal as refusal:
        if refusal.code == ResponseCode.SYSTEM_ERROR:
            return None
        raise
    assert isinstance(answer, StatsData)
    return answer


def of_a_day(found: StatsData) -> int:
    """Messages of the last day; of the last hour or minute where the broker has counted no longer. [StatsAllSubCommand]"""
    return next((some.sum for some in (found.day, found.hour, found.minute) if some.sum), 0)


async def queue_entries(client: Client, asked: GetQueueEntries, address: str) -> QueueEntries:
    """What the consume queue at one broker knows of its messages."""
    answer = await client.session.leaders.request_from(address, asked)
    assert isinstance(answer, QueueEntries)
    return answer
