"""Messages looked up by key or id. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command


class QueryMessageAnswer(NamedTuple):
    """`status` 0: `messages` are stored records by their offset in the log; 22: there is none.

    `index_last_...`: store time and log offset of the last index entry. Not `complete`: there may be more.
    """

    index_last_update_timestamp: int = 0
    index_last_update_phyoffset: int = 0
    messages: bytes = b""
    status: int = 0
    complete: bool = True


@command(RequestCode.QUERY_MESSAGE, QueryMessageAnswer)
class QueryMessage(NamedTuple):
    """The newest messages with `key` as one of their keys or as unique key; `index_type` "T": as their tag.

    At most 64, with `unique_key_query` at most 32, stored from `begin_timestamp` to `end_timestamp` (ms). SYSTEM_BUSY
    while nothing is found and the index is still being built. `last_key` is not looked at.
    """

    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    unique_key_query: bool = False
    index_type: str = ""
    last_key: str = ""


class MessageAnswer(NamedTuple):
    """One stored record."""

    message: bytes


@command(RequestCode.VIEW_MESSAGE_BY_ID, MessageAnswer)
class ViewMessage(NamedTuple):
    """The message whose record begins at this offset of the log, which is part of its message id."""

    offset: int
    topic: str = ""
