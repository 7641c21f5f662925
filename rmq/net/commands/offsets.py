"""Offsets in queues: what a group has consumed, where a queue begins and ends. Pure."""

from typing import Final, NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command

NEVER_ANY: Final = -1
"""Where a queue of batches begins that never held a message [BatchConsumeQueue]."""


class OffsetAnswer(NamedTuple):
    offset: int


@command(RequestCode.QUERY_CONSUMER_OFFSET, OffsetAnswer)
class QueryConsumerOffset(NamedTuple):
    """QUERY_NOT_FOUND when the group has none. `set_zero_if_not_found` False: also if the first message is in memory."""

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool = True


@command(RequestCode.UPDATE_CONSUMER_OFFSET, None)
class UpdateConsumerOffset(NamedTuple):
    """One-way: kept and made durable within 200 ms. As a request: answered when it is committed."""

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int


@command(RequestCode.GET_MAX_OFFSET, OffsetAnswer)
class GetMaxOffset(NamedTuple):
    topic: str
    queue_id: int


@command(RequestCode.GET_MIN_OFFSET, OffsetAnswer)
class GetMinOffset(NamedTuple):
    """The answer -1 (`NEVER_ANY`) tells of a queue of batches that never held a message; others begin at 0."""

    topic: str
    queue_id: int


@command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, OffsetAnswer)
class SearchOffset(NamedTuple):
    """`boundary_type` LOWER: first message stored at or after `timestamp` (ms); UPPER: last at or before."""

    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str = "LOWER"


class TimestampAnswer(NamedTuple):
    timestamp: int


@command(RequestCode.GET_EARLIEST_MSG_STORETIME, TimestampAnswer)
class GetEarliestStoreTime(NamedTuple):
    topic: str
    queue_id: int
