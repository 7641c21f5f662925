"""Answers to many calls of a connection at once, for handlers that take requests together (`connection.Take`)."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Final

from rmq.net.codec.frames import Context, Stored
from rmq.net.commands import PullAnswer
from rmq.net.transport.connection import Call, Connection

_CONNECTION: Final = itemgetter(0)

Asked = tuple[Connection, int, bool, Context, int, int]
"""A send that waits for its answer: the parts of its call (a plain tuple is cheaper), and the number of its first record."""


StoredFor = tuple[Sequence[Asked], int, int, Sequence[int]]
"""Of a unit: who sent its records, their queue, the message that the first of them is there, and the places of all."""


def answer_stored(units: Iterable[StoredFor], status: int) -> None:
    """Tells senders where their records are."""
    connection: Connection | None = None
    frames: list[bytes] = []
    freed = 0
    for asked, queue_id, queue_offset, places in units:
        encode: Stored | None = None
        for owner, call_id, oneway, context, size, index in asked:
            if owner is not connection:
                if connection is not None:
                    connection._answered_calls(len(frames), freed, frames)
                connection, frames, freed, encode = owner, [], 0, None
            encode = encode or owner._codec.stored(queue_id, status)
            freed += size
            frames.append(b"" if oneway else encode(call_id, context, queue_offset + index, places[index]))
    if connection is not None:
        connection._answered_calls(len(frames), freed, frames)


def answer_held(
    asked: Iterable[Asked], queue_offset: int, places: Iterable[int], status: int, handles: Iterable[str] = repeat("")
) -> None:
    """The same for messages that wait in another queue, the first at `queue_offset` there. Asked last: the queue that it is for,
    which the answer names. `handles`: in URL-safe Base64."""
    connection: Connection | None = None
    frames: list[bytes] = []
    freed, forms = 0, dict[int, Stored]()
    held = enumerate(zip(asked, places, handles, strict=False), queue_offset)
    for at, ((owner, call_id, oneway, context, size, queue_id), place, handle) in held:
        if owner is not connection:
            if connection is not None:
                connection._answered_calls(len(frames), freed, frames)
            connection, frames, freed, forms = owner, [], 0, {}
        freed += size
        encode = forms.get(queue_id)
        if encode is None:
            encode = forms[queue_id] = owner._codec.stored(queue_id, status)
        frames.append(b"" if oneway else encode(call_id, context, at, place, handle))
    if connection is not None:
        connection._answered_calls(len(frames), freed, frames)


def answer_done(calls: Iterable[Call]) -> None:
    """Answers each with success and nothing else: one write for those of a connection that stand together."""
    for connection, together in groupby(calls, _CONNECTION):
        freed, frames = 0, list[bytes]()
        last: Context = frames  # that of no request
        encode: Callable[[int], bytes]
        for _, call_id, oneway, context, size in together:
            if context is not last:  # nearly all requests of one shape share it
                last, encode = context, connection._codec.done(context)
            freed += size
            frames.append(b"" if oneway else encode(call_id))
        connection._answered_calls(len(frames), freed, frames)


class FoundAnswers:
    """Answers with messages, to calls of one connection that are not under way: `write` must follow. `room`: so many bytes may
    still be answered before the peer has to read."""

    __slots__ = ("_connection", "_encode", "_pieces", "room")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._encode = connection._codec.found
        self._pieces: list[bytes] = []
        self.room = connection._limits.write_high_bytes - connection._out_bytes

    def add(self, call_id: int, context: Context, answer: PullAnswer, remark: str) -> None:
        self._pieces += self._encode(call_id, context, answer, remark)
        self.room -= len(answer.messages)

    def write(self) -> None:
        if self._pieces and self._connection._transport is not None:
            self._connection._send_pieces(self._pieces)
