"""Learns the shape of a producer's headers, so that its next sends need not be parsed key by key.

A producer writes the same header again and again: only the born time, the properties and the request's id change. So the
bytes around these three are learnt from a parsed header, and a later header with exactly those bytes is cut at the same
places. For a JSON header, learning proves the cut: with other values there, the header must parse to the same, except for
these values. A binary header is lengths and values from left to right: the same first bytes mean the same. Pure.
"""

import re
from collections.abc import Callable
from typing import Final

import orjson

from rmq.net.codec.remembered import Memory, Part
from rmq.net.remoting.headers import Ext, Header, bare
from rmq.net.remoting.signed import Signing, signing_of

MAX_SHAPE_BYTES: Final = 2048
_BORN, _QUOTE = b'"g":"', b'"'
_PROPERTIES, _OPAQUE = b'"i":"', b'"opaque":'
_BINARY_BORN = b"\0\1g\0\0\0\x0d"  # a key of one byte, a value of 13: milliseconds until the year 2286
_BORN_BYTES = 13
_FIELDS_AT = 25  # in a frame, after code, language, version, opaque, flag, an empty remark, and the length of the fields
_PLAIN = r" !#-\[\]-~"  # stand for themselves in a JSON text
_MAX_DIGITS = 9  # so that it fits in 32 signed bits


Fields = tuple[str, str, str, int, int, int, int, int, int, bool, bool]
"""What is the same in all sends of one shape: producer group, topic, default topic and its number of queues, queue, flag, system
flag, reconsumeTimes, maxReconsumeTimes, whether it is a batch, whether it comes from a unit.

A plain tuple, as a `Shape` is: both are taken apart for each send, which takes four times as long with a NamedTuple.
"""

Shape = tuple[bytes, bytes, bytes, Header, Fields, "Signing | None"]
"""The bytes after the born time, after the properties, and (JSON) after the request's id; and what they mean."""

Cut = tuple[Shape, int, bytes, bytes | None, bytes | None, int]
"""A header of a known shape: born timestamp, properties (raw, no longer escaped), their unique id and tag, opaque. Without a
unique id the properties may be anything."""

GivenPairs = Callable[[str, str, str], bytes]
"""`rmq.log.records.properties.given_pairs`."""
FastGiven = Callable[[bytes], "re.Match[bytes] | None"]
"""`rmq.log.records.properties.fast_given`: that expression for properties as they are."""


class Usual:
    """Finds usual properties in a header, and what is told of them."""

    __slots__ = ("in_binary", "in_json")

    def __init__(self, given_pairs: GivenPairs, fast_given: FastGiven) -> None:
        self.in_binary = fast_given
        escaped = given_pairs(r"\\u0001", r"\\u0002", _PLAIN)
        self.in_json = re.compile(rb'(?:(%b)|(?:[%b]++|\\u000[12])*)"' % (escaped, _PLAIN.encode())).match
        """The value and the quotation mark behind it. Group 1 is None for other properties, of plain text and marks; then the
        other groups say nothing."""


class Shapes:
    """The shapes of one connection, in the memory of its server."""

    __slots__ = ("_get", "_in_binary", "_in_json", "_learn")

    def __init__(self, memory: Memory[Shape], usual: Usual) -> None:
        part = Part(memory)
        self._get, self._learn = part.known.get, part.learn
        self._in_binary, self._in_json = usual.in_binary, usual.in_json

    def cut(self, frame: bytes, stop: int) -> Cut | None:
        """The header frame[4:stop], if its shape is known."""
        born_at = frame.find(_BORN, 4, stop) + len(_BORN)
        shape = self._get(frame[4:born_at])
        if shape is None:
            return None
        behind_born, behind_properties, behind_opaque, _, _, _ = shape
        born_end, opaque_end = born_at + _BORN_BYTES, stop - len(behind_opaque)
        properties_at = born_end + len(behind_born)
        match = self._in_json(frame, properties_at, stop)
        if match is None:
            return None  # something else than marks and plain text is in it: rare, and parsed
        properties_end = match.end() - 1
        born, opaque = frame[born_at:born_end], frame[properties_end + len(behind_properties) : opaque_end]
        if not (
            frame.startswith(behind_born, born_end)
            and frame.startswith(behind_properties, properties_end)
            and frame.startswith(behind_opaque, opaque_end)
            and born.isdigit()
            and opaque.isdigit()
            and len(opaque) <= _MAX_DIGITS
        ):
            return None
        text, unique_key, tag = match.groups()
        if text is None:
            text, unique_key = frame[properties_at:properties_end], None
        properties = text.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
        return shape, int(born), properties, unique_key, tag, int(opaque)

    def cut_binary(self, frame: bytes, stop: int) -> Cut | None:
        """Like `cut`, for a binary header."""
        born_at = frame.find(_BINARY_BORN, _FIELDS_AT, stop) + len(_BINARY_BORN)
        shape = self._get(_binary_key(frame, born_at))
        if shape is None:
            return None
        behind_born, behind_properties, _, _, _, _ = shape
        born_end = born_at + _BORN_BYTES
        length_at = born_end + len(behind_born)
        properties_at = length_at + 4
        properties_end = properties_at + int.from_bytes(frame[length_at:properties_at], "big")
        born, properties = frame[born_at:born_end], frame[properties_at:properties_end]
        if not (
            properties_end + len(behind_properties) == stop <= len(frame)
            and frame[born_end:length_at] == behind_born
            and frame[properties_end:stop] == behind_properties
            and int.from_bytes(frame[21:25], "big") == stop - _FIELDS_AT
            and born.isdigit()
            and properties.isascii()
        ):
            return None
        match = self._in_binary(properties)
        unique_key, tag = (None, None) if match is None else match.groups()
        return shape, int(born), properties, unique_key, tag, int.from_bytes(frame[9:13], "big", signed=True)

    def learn_binary(self, frame: bytes, stop: int, header: Header, fields: Fields) -> None:
        """Learns from `frame`: its binary header ends at `stop` and was read as `header`, which means `fields`."""
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
            behind = (frame[born_end : properties_at - 4], frame[properties_end:stop], b"")
            self._learn(_binary_key(frame, born_at), (*behind, bare(header), fields, signing_of(header.ext)))

    def learn(self, data: bytes, header: Header, fields: Fields) -> None:
        """Learns from `data`, the text of a header that was read as `header`, which means `fields`."""
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
            self._learn(data[:born_at], (*behind, bare(header), fields, signing_of(header.ext)))


def _binary_key(frame: bytes, born_at: int) -> bytes:
    """The bytes up to the born time, without the request's id and the length of the fields."""
    return frame[4:9] + frame[13:21] + frame[_FIELDS_AT:born_at]


def _fits(before_born: bytes, behind: tuple[bytes, bytes, bytes], header: Header) -> bool:
    """Whether other values at the three places change only the three fields."""
    behind_born, behind_properties, behind_opaque = behind
    data = b"".join((before_born, b"7", behind_born, b"x", behind_properties, b"8", behind_opaque))
    return says(data, header, {"g": "7", "i": "x"}, 8)


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
