"""Learns the shape of a producer's JSON headers, so that its next sends need not be parsed key by key.

A producer writes the same header again and again: only the born time, the properties and the request's id change. So the
text around these three is learnt from a header that was parsed, and a later header with exactly that text is cut at the
same places. Learning proves the cut: other values are put there, and the whole must parse to the same but for them. Pure.
"""

import re
from typing import Final, NamedTuple

import orjson

from rmq.net.codec.remembered import Memory, Part
from rmq.net.remoting.headers import Header, bare

MAX_SHAPE_BYTES: Final = 2048
_BORN, _QUOTE = b'"g":"', b'"'
_PROPERTIES, _OPAQUE = b'"i":"', b'"opaque":'
_printable = re.compile(rb"[ !#-~]*+").match  # what may stand inside a JSON text as it is; others are rare, and parsed
_MAX_DIGITS = 9  # so that it fits in 32 bits with a sign


class Fields(NamedTuple):
    """The fields that are the same in all sends of one shape."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    flag: int
    sys_flag: int
    reconsume_times: int
    max_reconsume_times: int
    batch: bool


class Shape(NamedTuple):
    """The text behind the born time, behind the properties, and behind the request's id; and what it means."""

    behind_born: bytes
    behind_properties: bytes
    behind_opaque: bytes
    header: Header
    fields: Fields


Cut = tuple[Shape, int, bytes, int]
"""A header of a known shape: born timestamp, properties (raw, no longer escaped), opaque."""


class Shapes:
    """For one connection, in the memory of its server."""

    __slots__ = ("_get", "_learn")

    def __init__(self, memory: Memory[Shape]) -> None:
        part = Part(memory)
        self._get, self._learn = part.known.get, part.learn

    def cut(self, frame: bytes, stop: int) -> Cut | None:
        """The header frame[4:stop], if its shape is known."""
        born_at = frame.find(_BORN, 4, stop) + len(_BORN)
        shape = self._get(frame[4:born_at])
        if shape is None:
            return None
        behind_born, behind_properties, behind_opaque, _, _ = shape
        born_end = frame.find(_QUOTE, born_at, stop)
        properties_at = born_end + len(behind_born)
        text = _printable(frame, properties_at, stop)
        if text is None:
            return None
        properties_end = text.end()
        opaque_at = properties_end + len(behind_properties)
        opaque_end = stop - len(behind_opaque)
        born, opaque = frame[born_at:born_end], frame[opaque_at:opaque_end]
        if not (
            frame[born_end:properties_at] == behind_born
            and frame[properties_end:opaque_at] == behind_properties
            and frame[opaque_end:stop] == behind_opaque
            and born.isdigit()
            and opaque.isdigit()
            and len(opaque) <= _MAX_DIGITS
            and len(born) < 19
        ):
            return None
        properties = frame[properties_at:properties_end]
        if b"\\" in properties:
            properties = properties.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
            if b"\\" in properties:
                return None
        return shape, int(born), properties, int(opaque)

    def learn(self, data: bytes, header: Header, fields: Fields) -> None:
        """`data` is the text of a header that was read as `header`, and that means `fields`."""
        born_at = data.find(_BORN) + len(_BORN)
        born_end = data.find(_QUOTE, born_at)
        properties_at = data.find(_PROPERTIES, born_end) + len(_PROPERTIES)
        properties_end = data.find(_QUOTE, properties_at)
        opaque_at = data.find(_OPAQUE, properties_end) + len(_OPAQUE)
        opaque_end = opaque_at + len(str(header.opaque))
        if not len(_BORN) <= born_at <= born_end < properties_at <= properties_end < opaque_at < opaque_end:
            return
        if len(data) - (born_end - born_at) - (properties_end - properties_at) > MAX_SHAPE_BYTES:
            return
        shape = Shape(data[born_end:properties_at], data[properties_end:opaque_at], data[opaque_end:], header, fields)
        if _fits(data[:born_at], shape):
            self._learn(data[:born_at], shape._replace(header=bare(header)))


def _fits(before_born: bytes, shape: Shape) -> bool:
    """Whether other values at the three places change just the three fields."""
    behind_born, behind_properties, behind_opaque, header, _ = shape
    data = b"".join((before_born, b"7", behind_born, b"x", behind_properties, b"8", behind_opaque))
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    changed = header.ext | {"g": "7", "i": "x"}
    rest = (found.get("code"), found.get("flag"), found.get("version"), found.get("language"), found.get("remark", ""))
    return (
        found.get("extFields") == changed
        and found.get("opaque") == 8
        and rest == (header.code, header.flag, header.version, header.language, header.remark)
    )
