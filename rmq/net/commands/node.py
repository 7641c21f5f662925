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


@command(RequestCode.CLEAN_UNUSED_TOPIC, None)
class CleanUnusedTopics(NamedTuple):
    """Delete what is left of topics that are no more. A deleted topic leaves only files, which go soon; this waits for it."""


@command(RequestCode.RESET_MASTER_FLUSH_OFFSET, None)
class ResetFlushOffset(NamedTuple):
    """Nothing is done: a node of ours that follows goes by what a leader proves, not by an offset that somebody tells it."""

    master_flush_offset: int


@command(RequestCode.SWITCH_TIMER_ENGINE, None)
class SwitchTimerEngine(NamedTuple):
    """`engine`: F (files), which is the only one here. INVALID_PARAMETER for another."""

    engine: str = ""


NodeRequest = CleanUnusedTopics | ResetFlushOffset | SwitchTimerEngine
