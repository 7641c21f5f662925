"""Learns how a client writes the requests that it makes again and again: its next ones need not be parsed key by key.

It writes the same JSON header each time: of a pull only the offset that it asks for, the one that it commits and the
request's id change (`VALUES`). What is around these values is learnt from a parsed header, as that of sends (`shapes`): with
others in their places, the header must parse to the same, except for them. One as long as an earlier one is cut at the same
places, and all such that come together are cut by one call. Pure.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import chain, pairwise
from struct import Struct
from typing import Any, Final, NamedTuple

from rmq.net.codec.frames import Context, Received
from rmq.net.codec.remembered import Memory, Part
from rmq.net.commands import Pull
from rmq.net.commands.pop import Ack
from rmq.net.commands.transactions import EndTransaction
from rmq.net.remoting.fields import java_name
from rmq.net.remoting.headers import ONEWAY_FLAG, Header, bare
from rmq.net.remoting.shapes import MAX_SHAPE_BYTES, another, says

# Which of their numbers, and which of their texts, change from request to request.
VALUES: Final[dict[type[Any], tuple[tuple[str, ...], tuple[str, ...]]]] = {
    Pull: (("queue_offset", "commit_offset"), ()),
    Ack: (("queue_id", "offset"), ("extra_info",)),
    EndTransaction: (("tran_state_table_offset", "commit_log_offset"), ("msg_id", "transaction_id")),
}
_MAX_DIGITS, _MAX_ID_DIGITS = 18, 9  # so that they fit in 64 and in 32 signed bits
_ZERO: Final = 0x30
MAX_LENGTHS: Final = 64  # of frames, whose layouts a connection keeps
_is_plain = re.compile(rb"[ !#-\[\]-~]*").fullmatch  # it stands for itself in a JSON text
_new = tuple.__new__  # a NamedTuple in half the time

Key = tuple[bytes, ...]
"""What is before, between and behind the values."""
MakeContext = Callable[[Header, bool, bytes], Context]
"""What the answer needs of a request: of its header, whether its client wants quoted numbers, and the frame if it is kept."""


class Known(NamedTuple):
    """What is the same in all requests of one shape. `numbers`, `texts`: where each of these values is among the pieces of a
    frame, and among the fields of the command; `id_at`: where the id is. `context`: of all of them where no frame is kept."""

    kind: type[Any]
    fields: tuple[Any, ...]
    numbers: tuple[tuple[int, int], ...]
    texts: tuple[tuple[int, int], ...]
    id_at: int
    header: Header
    quoted: bool
    context: Context


class _Layout(NamedTuple):
    """Cuts a frame into the length of its header, what is before the first value, that, what is behind it, and so on. `whole`:
    with both lengths, as it lies among others."""

    alone: Struct
    whole: Struct


class KnownRequests:
    """The shapes of one connection, in the memory of its server. `keeps`: whether frames are kept."""

    __slots__ = ("_context", "_known", "_layouts")

    def __init__(self, memory: Memory[Key, Known], context: MakeContext) -> None:
        self._known = Part(memory)
        self._context = context
        self._layouts: dict[int, _Layout] = {}  # by the length of a frame

    def read(self, data: bytes, begin: int, stop: int, keeps: bool) -> Received | None:
        """The request between `begin` and `stop`, a header in JSON and nothing else, without the frame's length. None if its
        shape is not known."""
        length = stop - begin
        layout = self._layouts.get(length)
        if layout is None:
            return None
        made = self._made((layout.alone.unpack_from(data, begin),), data[begin : begin + 4], data, begin, length, keeps)
        return made[0] if made else None

    def read_alike(self, data: bytes, at: int, length: int, keeps: bool) -> list[Received]:
        """See `Codec.alike`; the first frame is a header in JSON and nothing else."""
        layout = self._layouts.get(length)
        if layout is None:
            return []
        frames = memoryview(data)[at : len(data) - (len(data) - at) % (length + 4)]
        return self._made(layout.whole.iter_unpack(frames), data[at : at + 8], data, at + 4, length, keeps)

    def _made(
        self, cuts: Iterable[tuple[Any, ...]], start: bytes, data: bytes, begin: int, length: int, keeps: bool
    ) -> list[Received]:
        """The requests of frames that were cut so, up to the first that does not begin with `start`, or has no known shape."""
        received: list[Received] = []
        known = self._known.known
        for pieces in cuts:
            shape = known.get(pieces[1::2])
            if shape is None or pieces[0] != start:
                break
            kind, fields, numbers, texts, id_at, header, quoted, context = shape
            call_id = pieces[id_at]
            if not call_id.isdigit() or call_id[0] == _ZERO or len(call_id) > _MAX_ID_DIGITS:
                break
            values = list(fields)
            for at, field in numbers:
                if not (value := pieces[at]).isdigit() or len(value) > _MAX_DIGITS:
                    return received
                values[field] = int(value)
            for at, field in texts:
                if _is_plain(value := pieces[at]) is None:
                    return received
                values[field] = value.decode()
            if keeps:
                context = self._context(header, quoted, data[begin : begin + length])
            begin += length + 4
            received.append((_new(kind, values), int(call_id), header.flag & ONEWAY_FLAG != 0, context, length))
        return received

    def learn(self, frame: bytes, header: Header, quoted: bool, request: Any) -> None:
        """Learns from `frame`, without its length, whose header in JSON was read as `header`, which means `request`."""
        if type(request) not in VALUES:
            return
        if int.from_bytes(frame[:4], "big") != len(frame) - 4 or len(frame) > MAX_SHAPE_BYTES:
            return
        kind, found = type(request), _find_values(frame, type(request), header)
        if found is None:
            return
        edges = (0, 4, *chain.from_iterable(place[:2] for place in found), len(frame))
        layout = _layout(*(stop - start for start, stop in pairwise(edges)))
        pieces = layout.alone.unpack(frame)
        key = pieces[1::2]
        if key not in self._known.known:
            at = {value: 2 * number for number, (_, _, value) in enumerate(found, 1)}
            if not _fits(pieces, at, header):
                return
            id_at, same = at.pop(_ID), bare(header)._replace(opaque=0)
            numbers, texts = (
                tuple((place, kind._fields.index(value.field)) for value, place in at.items() if value.is_number is which)
                for which in (True, False)
            )
            known = Known(kind, tuple(request), numbers, texts, id_at, same, quoted, self._context(same, quoted, b""))
            self._known.learn(key, known)
        if len(self._layouts) >= MAX_LENGTHS:
            self._layouts.clear()
        self._layouts[len(frame)] = layout


class _Value(NamedTuple):
    """A value that changes from request to request, `name` in the header and `field` in the command; in a frame it stands
    between `before` and `behind`."""

    field: str
    name: str
    is_number: bool
    before: bytes
    behind: bytes = b'"'


_ID: Final = _Value("", "", True, b'"opaque":', b",")


def _value(kind: type[Any], field: str, is_number: bool) -> _Value:
    name = java_name(kind, field)
    return _Value(field, name, is_number, b'"%b":"' % name.encode())


_VALUES: Final[dict[type[Any], list[_Value]]] = {
    kind: [_ID, *(_value(kind, field, field in numbers) for field in numbers + texts)]
    for kind, (numbers, texts) in VALUES.items()
}


def _find_values(frame: bytes, kind: type[Any], header: Header) -> list[tuple[int, int, _Value]] | None:
    """Where each value begins and ends, in the order of the frame; a field that the header leaves out is none. None: one of
    them is not written as usual."""
    found = []
    for value in _VALUES[kind]:
        if value is not _ID and value.name not in header.ext:
            continue
        at = frame.find(value.before) + len(value.before)
        text = frame[at : frame.find(value.behind, at)]
        if at < len(value.before) or not _is_usual(text, value):
            return None
        found.append((at, at + len(text), value))
    return sorted(found)


def _is_usual(text: bytes, value: _Value) -> bool:
    if not value.is_number:
        return _is_plain(text) is not None
    if value is _ID:
        return text.isdigit() and text[0] != _ZERO and len(text) <= _MAX_ID_DIGITS
    return text.isdigit() and len(text) <= _MAX_DIGITS


def _fits(pieces: tuple[bytes, ...], places: dict[_Value, int], header: Header) -> bool:
    """Whether others in the places of these values change nothing else."""
    others, ext = list(pieces), dict[str, str]()
    for value, place in places.items():
        other = another(str(header.opaque) if value is _ID else header.ext[value.name])
        others[place] = other.encode()
        if value is not _ID:
            ext[value.name] = other
    return says(b"".join(others[1:]), header, ext, int(others[places[_ID]]))


@lru_cache(maxsize=1024)
def _layout(*sizes: int) -> _Layout:
    cut = "".join(f"{size}s" for size in sizes[1:])
    return _Layout(Struct(f"4s{cut}"), Struct(f"8s{cut}"))
