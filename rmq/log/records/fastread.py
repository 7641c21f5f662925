"""The fast path for a reader of stored records of the usual kind: whole or not in one go, the rest when it is asked for. So a
follower looks at what its leader sends, too.

Usual is: version 1, IPv4 hosts, no inner batch, both checksums there and right. Any other record takes the slow path
(`record.decode` and its siblings); nothing here says what is wrong. The hot path of every consumer and follower. Pure.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from rmq.log.records.crc import crc32
from rmq.log.records.properties import CRC_BYTES
from rmq.log.records.record import (
    CRC_MASK,
    MAGIC_V1,
    SYS_BORN_V6,
    SYS_COMPRESSED,
    SYS_INNER_BATCH,
    SYS_STORE_V6,
    crc_is_right,
    topic_field_of,
)

_peek = Struct(">iiii4xq8xi44xi").unpack_from  # sizes, magic, bodyCRC, queueId, queueOffset, sysFlag, bodyLength
_look = Struct(">iii16xqi44xi").unpack_from  # size, magic, bodyCRC, physicalOffset, sysFlag, bodyLength
_BODY: Final = 88  # where the body begins
_LEAST: Final = _BODY + 3 + CRC_BYTES
_WIDE: Final = SYS_BORN_V6 | SYS_STORE_V6
_UNUSUAL: Final = _WIDE | SYS_INNER_BATCH
MAX_TOPICS: Final = 4096  # remembered


class Whole(NamedTuple):
    """A record, and what its reader needs at once. `body_bytes`: of the body as it is stored; `body_at`: where it begins in the
    record, -1 if it is compressed."""

    record: bytes
    queue_id: int
    queue_offset: int
    body_bytes: int
    body_at: int


@lru_cache(maxsize=MAX_TOPICS)
def fast_read(topic: str) -> Callable[[bytes, int], Whole | None]:
    """A function for stored records of that topic: the one that begins at a place, if it is whole and of the usual kind."""
    _, topic_field = topic_field_of(topic)
    new, between = tuple.__new__, len(topic_field) + 2  # from the body's end to the properties

    def whole_at(buf: bytes, at: int) -> Whole | None:
        if len(buf) - at < _LEAST:
            return None
        total, magic, body_crc, queue_id, queue_offset, sys_flag, length = _peek(buf, at)
        properties, record = _BODY + length + between, buf[at : at + total]
        if (
            magic != MAGIC_V1
            or sys_flag & _UNUSUAL
            or length < 0
            or not properties + CRC_BYTES <= total == len(record)
            or properties + int.from_bytes(record[properties - 2 : properties], "big") != total
            or not record.startswith(topic_field, _BODY + length)
            or crc32(record[_BODY : _BODY + length]) & CRC_MASK != body_crc
            or not crc_is_right(record)
        ):
            return None
        return new(Whole, (record, queue_id, queue_offset, length, -1 if sys_flag & SYS_COMPRESSED else _BODY))

    return whole_at


def usual_records(buf: bytes, at: int, physical_offset: int, stop: int) -> tuple[int, int]:
    """Of the records that begin `at`, which is at `physical_offset` of the log, and end at `stop` or before, up to the first
    that `record.verify` would not pass or that is not of the usual kind: where the last one begins, and where it ends."""
    last, shift = at, physical_offset - at
    while stop - at >= _LEAST:
        total, magic, body_crc, said, sys_flag, length = _look(buf, at)
        if (
            magic != MAGIC_V1
            or said != shift + at
            or sys_flag & _WIDE
            or not (0 <= length <= total - _LEAST <= stop - at - _LEAST)
        ):
            break
        record = buf[at : at + total]
        topic_at = _BODY + length
        properties = topic_at + 3 + record[topic_at]
        if (
            properties + CRC_BYTES > total
            or properties + (record[properties - 2] << 8 | record[properties - 1]) != total
            or crc32(record[_BODY:topic_at]) & CRC_MASK != body_crc
            or not crc_is_right(record)
        ):
            break
        last, at = at, at + total
    return last, at
