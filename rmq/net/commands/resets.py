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


@command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, None)
class FollowReset(NamedTuple):
    """Broker to client, one-way: go on there in those of the queues that you hold. Sent to RocketMQ's clients only, where the
    broker is told to (useServerSideResetOffset=false). `for_c`: the body is as the C++ client reads it."""

    topic: str
    group: str
    timestamp: int
    is_force: bool = True
    offsets: list[QueueOffset] = []
    for_c: bool = False


@command(RequestCode.CLONE_GROUP_OFFSET, None)
class CloneOffsets(NamedTuple):
    """`dest_group` goes on where `src_group` is, in that topic, or in all of its topics (""). Unless `offline`, only in topics to
    which the source's members subscribe, if it has members."""

    src_group: str
    dest_group: str
    topic: str = ""
    offline: bool = False


ResetRequest = ResetOffset | FollowReset | CloneOffsets
