"""Resetting offsets of consumer groups [ResetOffsetRequestHeader, ResetOffsetBody]. Native and remoting codec. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.model import MessageQueue
from rmq.net.commands.vocabulary import command


class QueueOffset(NamedTuple):
    queue: MessageQueue
    offset: int


class ResetOffsets(NamedTuple):
    """The group's new offset in each requested queue."""

    offsets: list[QueueOffset]


@command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsets)
class ResetOffset(NamedTuple):
    """The group, with its connected members, goes on at another offset. Answered when that is committed.

    `queue_id` with `offset`: there. Else in every queue (or that one) at the first message stored at or after `timestamp` (ms;
    -1: behind the last one); without `is_force` only where that is back.
    """

    topic: str
    group: str
    queue_id: int = -1
    offset: int = -1
    timestamp: int = -1
    is_force: bool = True


ResetRequest = ResetOffset
