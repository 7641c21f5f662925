"""Makes the guard that a node's settings ask for."""

import secrets
from collections.abc import Callable
from typing import Any

from rmq.access.directory import Directory
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.guard.guard import Guard
from rmq.guard.rules import Rules
from rmq.model import RETRY_PREFIX
from rmq.net.commands import (
    ConsumeStats,
    GetAllGroupConfig,
    GetAllTopicConfig,
    GetConsumeStats,
    GetTopicList,
    GroupConfigs,
    GroupList,
    QueryTopicConsumeByWho,
    Request,
    TopicConfigs,
    TopicList,
)
from rmq.net.commands.clients import GetTopicsOfGroup
from rmq.net.commands.routes import (
    GetTopicsOfCluster,
    GetUnitSubscribedOtherTopics,
    GetUnitSubscribedTopics,
    GetUnitTopics,
)
from rmq.net.transport.server import Handler

Sees = Callable[[str, str], bool]


def guard_of(settings: NodeSettings, directory: Directory, clock: Clock) -> Guard | None:
    """The guard; None if whoever reaches the ports may do everything."""
    if not settings.authentication:
        return None
    rules = Rules(
        settings.cluster_name,
        settings.node_credentials,
        settings.authorization,
        frozenset(settings.no_login_codes),
        frozenset(settings.no_policy_codes),
        settings.login_optional,
        settings.signed_in_tls_only,
        settings.tls_mode != "disabled",
    )
    return Guard(directory, rules, clock, secrets.token_bytes)


def guarded(guard: Guard | None, handlers: dict[type[Request], Handler]) -> dict[type[Request], Handler]:
    """The same handlers; those that list things show only what the sender may see (S2)."""
    if guard is None:
        return handlers
    cut = {kind: guard.listing(handlers[kind], how) for kind, how in _CUTS.items() if kind in handlers}
    return {**handlers, **cut, **guard.logins.handlers}


def _topics(answer: TopicConfigs, sees: Sees) -> TopicConfigs:
    return answer._replace(topics=[topic for topic in answer.topics if sees("Topic", topic.name)])


def _names(answer: TopicList, sees: Sees) -> TopicList:
    return answer._replace(topics=[topic for topic in answer.topics if sees("Topic", topic)])


def _names_of_group(answer: TopicList, sees: Sees) -> TopicList:
    return answer._replace(topics=[topic for topic in answer.topics if topic.startswith(RETRY_PREFIX) or sees("Topic", topic)])


def _progress(answer: ConsumeStats, sees: Sees) -> ConsumeStats:
    """The retry topics in it are those of the group."""
    queues = [row for row in answer.queues if row.queue.topic.startswith(RETRY_PREFIX) or sees("Topic", row.queue.topic)]
    return answer._replace(queues=queues)


def _groups(answer: GroupConfigs, sees: Sees) -> GroupConfigs:
    return answer._replace(groups=[group for group in answer.groups if sees("Group", group.name)])


def _readers(answer: GroupList, sees: Sees) -> GroupList:
    return answer._replace(groups=[group for group in answer.groups if sees("Group", group)])


_CUTS: dict[type[Any], Callable[[Any, Sees], Any]] = {
    GetAllTopicConfig: _topics,
    GetTopicList: _names,
    GetAllGroupConfig: _groups,
    GetTopicsOfCluster: _names,
    GetUnitTopics: _names,
    GetUnitSubscribedTopics: _names,
    GetUnitSubscribedOtherTopics: _names,
    GetTopicsOfGroup: _names_of_group,
    QueryTopicConsumeByWho: _readers,
    GetConsumeStats: _progress,
}
