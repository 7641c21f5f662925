"""Facts about a node, and requests to clean it. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command


class RuntimeInfo(NamedTuple):
    """Names and texts of RocketMQ's runtime info (docs/protocol lists them)."""

    table: dict[str, str]


@command(RequestCode.GET_BROKER_RUNTIME_INFO, RuntimeInfo)
class GetRuntimeInfo(NamedTuple):
    """The broker's own facts, for tools."""


@command(RequestCode.DELETE_EXPIRED_COMMITLOG, None)
class DeleteExpiredLog(NamedTuple):
    """Delete the segments that are past their time now, not at the hour of deleteWhen."""


@command(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, None)
class CleanExpiredQueues(NamedTuple):
    """Delete the queue files whose messages are all gone."""
