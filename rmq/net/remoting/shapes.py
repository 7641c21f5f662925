"""Learns the shape of a producer's headers, so that its next sends need not be parsed key by key.

A producer writes the same header again and again: only the born time, the properties and the request's id change. So the
bytes around these three are learnt from a parsed header, and a later header with exactly those bytes is cut at the same
places. For a JSON header, learning proves the cut: with other values there, the header must parse to the same, except for
these values. A binary header is lengths and values from left to right: the same first bytes mean the same. Pure.
"""

import re
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from itertools import count
from operator import itemgetter
from struct import Struct
from typing import Any, Final, Protocol

import orjson

from rmq.errors import Refusal
from rmq.net.codec.frames import Received
from rmq.net.codec.remembered import Memory, Part
from rmq.net.remoting.headers import Ext, Header
from rmq.net.remoting.signed import Recognise, Signing, Source, signing_of

MAX_SHAPE_BYTES: Final = 2048
_BORN, _QUOTE = b'"g":"', b'"'
_PROPERTIES, _OPAQUE = b'"i":"', b'"opaque":'
_BINARY_BORN = b"\0\1g\0\0\0\x0d"  # a key of one byte, a value of 13: milliseconds until the year 2286
_BORN_BYTES = 13
_HEADS_BYTES = 8  # of the lengths of a frame and of its header
_FIELDS_AT = 25  # in a frame, after code, language, version, opaque, flag, an empty remark, and the length of the fields
_PLAIN = r" !#-\[\]-~"  # stand for themselves in a JSON text
_DIGITS = b"0123456789"
_MAX_DIGITS = 9  # so that it fits in 32 signed bits


_numbers = count()

Fields = tuple[str, str, str, int, int, int, int, int, int, bool, bool]
"""What is the same in all sends of one shape: producer group, topic, default topic and its number of queues, queue, flag, system
flag, reconsumeTimes, maxReconsumeTimes, whether it is a batch, whether it comes from a unit.

A plain tuple: it is taken apart where sends are many, which takes four times as long with a NamedTuple.
"""

Signed = tuple[Recognise, bytes, Source]
"""Who knows signatures, the one of this request, and where it comes from."""


Maker = Callable[[int, bytes, bytes | None, bytes | None, int, bytes, int, bytes, bytes, object], Received | None]
"""Makes the sends of one shape of: born time; properties, no longer escaped (without their unique id they may be anything);
unique id; tag; the request's id; body; bytes of the frame; born host; the frame, if it is kept; who signed it. None: the request
is to be parsed. Raises Refusal."""

Layout = Struct
"""Cuts a header behind its length. One in JSON: what is before the born time, that, what is behind it; the properties with their
last quotation mark, what is behind that; the request's id, what is behind it. A binary one: code, language and version; the
request's id; flag and remark's length; length of the fields; fields up to the born time, that, what is behind it; length of the
properties, those, what is behind them."""

GivenPairs = Callable[[str, str, str], bytes]
"""`rmq.log.records.properties.given_pairs`, for sends or for halves."""
FastGiven = Callable[[bytes], "re.Match[bytes] | None"]
"""`rmq.log.records.properties.fast_given`, `fast_given_half`: that expression for properties as they are."""


class Usual:
    """Finds usual properties in a header, and what is told of them."""

    __slots__ = ("in_binary", "in_json")

    def __init__(self, given_pairs: GivenPairs, fast_given: FastGiven) -> None:
        self.in_binary = fast_given
        escaped = given_pairs(r"\\u0001", r"\\u0002", _PLAIN)
        self.in_json = re.compile(rb'(?:(%b)|(?:[%b]++|\\u000[12])*)"' % (escaped, _PLAIN.encode())).fullmatch
        """The value and the quotation mark behind it. Group 1 is None for other properties, of plain text and marks; then the
        other groups say nothing."""


class Shape(Protocol):
    """What is the same in some sends, and a function that makes them: the next one is quick to read."""

    def layout(self, data: bytes, begin: int, stop: int) -> Layout | None:
        """How a header of this shape is cut that is as long as the one between `begin` and `stop`. None: that is no such one."""
        ...

    def read(
        self, parts: tuple[Any, ...], body: bytes, size: int, born_host: bytes, kept: bytes, signed: Signed | None
    ) -> Received | None:
        """`parts`: of a header, as a layout cuts them; the rest as of `Maker`, `signed` as of `Shapes.read`. None: it has another
        shape after all, or is to be parsed. Raises Refusal."""
        ...


class ShapeMemory:
    """Of a server: shapes of one kind of header, and how headers of a connection were cut, the last one of each length."""

    def __init__(self) -> None:
        self.shapes: Memory[Hashable, Shape] = Memory()
        self.layouts: Memory[int, Layout] = Memory()


class Shapes:
    """The shapes of one kind of header, of one connection. `key_of`: by what a shape is known, of the parts of a header."""

    __slots__ = ("_first", "_key_of", "_layouts", "_shapes")

    def __init__(self, memory: ShapeMemory, key_of: Callable[[tuple[Any, ...]], Hashable]) -> None:
        self._key_of = key_of
        self._shapes, self._layouts = Part(memory.shapes), Part(memory.layouts)
        self._first = next(_numbers) << 32  # the key of a layout is this and the header's length

    def read(
        self, data: bytes, begin: int, stop: int, body: bytes, size: int, born_host: bytes, kept: bytes, signed: Signed | None
    ) -> Received | None:
        """The send whose frame begins at `begin` of `data`, with a header up to `stop`; the rest as of `Maker`. `signed`: its
        signature, blank in the header, if it must have one. None if its shape is not known, or it is to be parsed. Raises
        Refusal."""
        known, length = self._shapes.known, self._first + stop - begin
        layout = self._layouts.known.get(length)
        if layout is not None:
            parts = layout.unpack_from(data, begin + 4)
            shape = known.get(self._key_of(parts))
            if shape is not None and (sent := shape.read(parts, body, size, born_host, kept, signed)) is not None:
                return sent
        shape = known.get(self._key_in(data, begin, stop))
        layout = None if shape is None else shape.layout(data, begin, stop)
        if shape is None or layout is None:
            return None
        self._layouts.learn(length, layout)
        return shape.read(layout.unpack_from(data, begin + 4), body, size, born_host, kept, signed)

    def read_alike(self, data: bytes, at: int, length: int, header: int, born_host: bytes, keeps: bool) -> list[Received]:
        """What `read` would make of the frames from `at` on that are so long, with so long a header, as far as their shapes are
        known: cut by one call. `keeps`: whether frames are kept."""
        layout, size = self._layouts.known.get(self._first + 4 + header), 4 + length
        if layout is None:
            return []
        start, known, key_of = data[at : at + _HEADS_BYTES], self._shapes.known, self._key_of
        received: list[Received] = []
        for parts in _alike(layout.format, length - 4 - header)(memoryview(data)[at : len(data) - (len(data) - at) % size]):
            shape = known.get(key_of(header_parts := parts[1:-1])) if parts[0] == start else None
            if shape is None:
                break
            kept = data[at + 4 : at + size] if keeps else b""
            try:
                sent = shape.read(header_parts, parts[-1], length, born_host, kept, None)
            except Refusal:
                break  # said where it is read alone
            if sent is None:
                break
            received.append(sent)
            at += size
        return received

    def learn(self, frame: bytes, stop: int, header: Header, usual: Usual, maker: Maker) -> None:
        """Learns from `frame`: its header ends at `stop` and was read as `header`; `usual` finds its properties, `maker` makes
        what it means."""
        raise NotImplementedError

    def _key_in(self, data: bytes, begin: int, stop: int) -> Hashable:
        """As `_key_of` its parts, before they are known."""
        raise NotImplementedError


class JsonShapes(Shapes):
    __slots__ = ()

    def __init__(self, memory: ShapeMemory) -> None:
        super().__init__(memory, itemgetter(0))

    def _key_in(self, data: bytes, begin: int, stop: int) -> bytes:
        return data[begin + 4 : data.find(_BORN, begin + 4, stop) + len(_BORN)]

    def learn(self, frame: bytes, stop: int, header: Header, usual: Usual, maker: Maker) -> None:
        data = frame[4:stop]
        born_at = data.find(_BORN) + len(_BORN)
        born_end = data.find(_QUOTE, born_at)
        properties_at = data.find(_PROPERTIES, born_end) + len(_PROPERTIES)
        properties_end = data.find(_QUOTE, properties_at)
        opaque_at = data.find(_OPAQUE, properties_end) + len(_OPAQUE)
        opaque_end = opaque_at + len(str(header.opaque))
        if (
            born_end - born_at != _BORN_BYTES
            or not len(_BORN) <= born_at < properties_at <= properties_end < opaque_at < opaque_end
        ):
            return
        if len(data) - (born_end - born_at) - (properties_end - properties_at) > MAX_SHAPE_BYTES:
            return
        behind = data[born_end:properties_at], data[properties_end:opaque_at], data[opaque_end:]
        if _fits(data[:born_at], behind, header):
            self._shapes.learn(data[:born_at], _JsonShape(born_at, *behind, usual.in_json, maker, signing_of(header.ext)))


class BinaryShapes(Shapes):
    __slots__ = ()

    def __init__(self, memory: ShapeMemory) -> None:
        super().__init__(memory, itemgetter(0, 2, 4))

    def _key_in(self, data: bytes, begin: int, stop: int) -> tuple[bytes, bytes, bytes]:
        born_at = data.find(_BINARY_BORN, begin + _FIELDS_AT, stop) + len(_BINARY_BORN)
        return data[begin + 4 : begin + 9], data[begin + 13 : begin + 21], data[begin + _FIELDS_AT : born_at]

    def learn(self, frame: bytes, stop: int, header: Header, usual: Usual, maker: Maker) -> None:
        if header.remark or int.from_bytes(frame[21:25], "big") != stop - _FIELDS_AT:
            return
        places: dict[bytes, int] = {}
        at = _FIELDS_AT
        while at < stop:
            value_at = at + 6 + int.from_bytes(frame[at : at + 2], "big")
            name = frame[at + 2 : value_at - 4]
            if name in places:
                return  # if it comes twice, the last one counts, and that may be anywhere
            places[name] = value_at
            at = value_at + int.from_bytes(frame[value_at - 4 : value_at], "big")
        born_at, properties_at = places.get(b"g", 0), places.get(b"i", 0)
        born_end, properties_end = born_at + _BORN_BYTES, properties_at + len(header.ext.get("i", "").encode())
        if not frame.endswith(_BINARY_BORN, 0, born_at) or frame.find(_BINARY_BORN, _FIELDS_AT) + len(_BINARY_BORN) != born_at:
            return
        if born_end <= properties_at - 4 and stop - _FIELDS_AT - (properties_end - properties_at) <= MAX_SHAPE_BYTES:
            behind = frame[born_end : properties_at - 4], frame[properties_end:stop]
            shape = _BinaryShape(born_at - _FIELDS_AT, *behind, usual.in_binary, maker, signing_of(header.ext))
            self._shapes.learn(self._key_in(frame, 0, stop), shape)


class _JsonShape:
    """Known by the bytes after the born time, after the properties, and after the request's id. `before`: the length of what is
    before the born time."""

    __slots__ = ("_around", "_before", "_fixed", "_maker", "_signing", "_usual")

    def __init__(
        self,
        before: int,
        behind_born: bytes,
        behind_properties: bytes,
        behind_opaque: bytes,
        usual: FastGiven,
        maker: Maker,
        signing: Signing | None,
    ) -> None:
        self._before, self._around = before, (behind_born, behind_properties[len(_QUOTE) :], behind_opaque)
        self._fixed = before + _BORN_BYTES + sum(map(len, self._around))
        self._usual, self._maker, self._signing = usual, maker, signing

    def layout(self, data: bytes, begin: int, stop: int) -> Layout | None:
        """Also for an id with as many digits."""
        around = [*map(len, self._around)]
        opaque = data[max(begin, stop - around[2] - _MAX_DIGITS) : stop - around[2]]
        digits = len(opaque) - len(opaque.rstrip(_DIGITS))
        width = stop - begin - 4 - self._fixed - digits
        return _json_layout(self._before, around[0], width, around[1], digits, around[2]) if width > 0 < digits else None

    def read(
        self, parts: tuple[Any, ...], body: bytes, size: int, born_host: bytes, kept: bytes, signed: Signed | None
    ) -> Received | None:
        _, born, behind_born, properties, behind_properties, opaque, behind_opaque = parts
        if not ((behind_born, behind_properties, behind_opaque) == self._around and born.isdigit() and opaque.isdigit()):
            return None
        match = self._usual(properties)
        if match is None:
            return None  # something else than marks and plain text is in it: rare, and parsed
        text, unique_key, tag = match.groups()
        if text is None:
            text, unique_key = properties[: -len(_QUOTE)], None
        properties = text.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
        born_ms, who = int(born), None
        if signed is not None and (who := _signer(self._signing, signed, born_ms, properties, body)) is None:
            return None
        return self._maker(born_ms, properties, unique_key, tag, int(opaque), body, size, born_host, kept, who)


class _BinaryShape:
    """Known by the bytes between the born time and the length of the properties, and after those. `before`: the length of the
    fields before the born time."""

    __slots__ = ("_around", "_before", "_fixed", "_maker", "_signing", "_usual")

    def __init__(
        self, before: int, behind_born: bytes, behind_properties: bytes, usual: FastGiven, maker: Maker, signing: Signing | None
    ) -> None:
        self._before, self._around = before, (behind_born, behind_properties)
        self._fixed = before + _BORN_BYTES + len(behind_born) + 4 + len(behind_properties)  # of the fields, without properties
        self._usual, self._maker, self._signing = usual, maker, signing

    def layout(self, _data: bytes, begin: int, stop: int) -> Layout | None:
        behind, after = map(len, self._around)
        width = stop - begin - _FIELDS_AT - self._fixed
        return None if width < 0 else _binary_layout(self._before, behind, width, after)

    def read(
        self, parts: tuple[Any, ...], body: bytes, size: int, born_host: bytes, kept: bytes, signed: Signed | None
    ) -> Received | None:
        _, opaque, _, fields_bytes, _, born, behind, width, properties, after = parts
        if not (
            (behind, after) == self._around
            and width == len(properties) == fields_bytes - self._fixed
            and born.isdigit()
            and properties.isascii()
        ):
            return None
        match = self._usual(properties)
        unique_key, tag = (None, None) if match is None else match.groups()
        born_ms, who = int(born), None
        if signed is not None and (who := _signer(self._signing, signed, born_ms, properties, body)) is None:
            return None
        return self._maker(born_ms, properties, unique_key, tag, opaque, body, size, born_host, kept, who)


@lru_cache(maxsize=1024)
def _alike(header: str, body_bytes: int) -> Callable[[memoryview], Iterator[tuple[Any, ...]]]:
    """Cuts frames: the lengths of frame and header, the header as that layout does, the body."""
    return Struct(f">{_HEADS_BYTES}s{header.removeprefix('>')}{body_bytes}s").iter_unpack


def _json_layout(before: int, behind_born: int, width: int, behind_properties: int, digits: int, behind_opaque: int) -> Layout:
    return Struct(f"{before}s{_BORN_BYTES}s{behind_born}s{width}s{behind_properties}s{digits}s{behind_opaque}s")


def _binary_layout(before: int, behind: int, width: int, after: int) -> Layout:
    return Struct(f">5si8sI{before}s{_BORN_BYTES}s{behind}sI{width}s{after}s")


def _signer(signing: Signing | None, signed: Signed, born_ms: int, properties: bytes, body: bytes) -> object:
    """Who signed a send of such a shape; None: it must be parsed to tell."""
    recognise, signature, source = signed
    return None if signing is None else recognise(signing.user, signing.content(born_ms, properties, body), signature, source)


def _fits(before_born: bytes, behind: tuple[bytes, bytes, bytes], header: Header) -> bool:
    """Whether other values at the three places change only the three fields."""
    behind_born, behind_properties, behind_opaque = behind
    born, properties, opaque = map(another, (header.ext["g"], header.ext["i"], str(header.opaque)))
    parts = (born.encode(), behind_born, properties.encode(), behind_properties, opaque.encode(), behind_opaque)
    return says(b"".join((before_born, *parts)), header, {"g": born, "i": properties}, int(opaque))


def another(value: str) -> str:
    """To be put in the place of a value that was read. If it were the same, a field that comes twice, where the last one counts,
    would seem to follow what is put in the place of the first."""
    return "7" if value != "7" else "8"


def says(data: bytes, header: Header, changed: Ext, opaque: int) -> bool:
    """Whether `data` is a header in JSON that is as `header`, but for the fields in `changed` and the request's id."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    rest = (found.get("code"), found.get("flag"), found.get("version"), found.get("language"), found.get("remark", ""))
    return (
        found.get("extFields") == header.ext | changed
        and found.get("opaque") == opaque
        and rest == (header.code, header.flag, header.version, header.language, header.remark)
    )
