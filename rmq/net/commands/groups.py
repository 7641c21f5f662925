"""Consumer groups, as administrators change and see them. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.model import DataVersion, GroupConfig, QueueProgress
from rmq.net.commands.vocabulary import command


@command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None)
class UpdateGroup(NamedTuple):
    config: GroupConfig


@command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None)
class UpdateGroups(NamedTuple):
    """Makes or changes all of them, or none."""

    groups: list[GroupConfig]


@command(RequestCode.DELETE_SUBSCRIPTIONGROUP, None)
class DeleteGroup(NamedTuple):
    group_name: str
    clean_offset: bool = False


@command(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupConfig)
class GetGroupConfig(NamedTuple):
    group: str


class GroupConfigs(NamedTuple):
    """`forbidden`: by group and topic, RocketMQ's bits of what the group may not do there."""

    groups: list[GroupConfig]
    data_version: DataVersion = DataVersion()
    forbidden: dict[str, dict[str, int]] = {}


@command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupConfigs)
class GetAllGroupConfig(NamedTuple):
    """All consumer groups of one broker group with their settings."""


class ConsumeStats(NamedTuple):
    queues: list[QueueProgress]
    consume_tps: float = 0.0


@command(RequestCode.GET_CONSUME_STATS, ConsumeStats)
class GetConsumeStats(NamedTuple):
    """`topic` "": every topic of the group. Topics to which none of its members subscribes are left out, unless `topic_list`
    names them: "a;b;", in place of `topic` (RocketMQ 5.3 and later)."""

    consumer_group: str
    topic: str = ""
    topic_list: str = ""


class Forbidden(NamedTuple):
    topic: str
    group: str
    readable: bool


@command(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, Forbidden)
class UpdateForbidden(NamedTuple):
    """Whether a group may read a topic [SubscriptionGroupManager.updateForbidden]. `readable`: "true" or "false" sets it, "" only
    asks. A group that may not is refused with NO_PERMISSION."""

    group: str
    topic: str
    readable: str = ""
