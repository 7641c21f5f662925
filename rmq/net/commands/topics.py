"""Topics, as administrators change and see them. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.model import DataVersion, QueueStats, TopicConfig
from rmq.net.commands.vocabulary import command


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


@command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None)
class UpdateTopics(NamedTuple):
    """Makes or changes all of them, or none. Attributes with a sign before each key: "+key", "-key"."""

    topics: list[TopicConfig]


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


class GroupList(NamedTuple):
    groups: list[str]


@command(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList)
class QueryTopicConsumeByWho(NamedTuple):
    topic: str
