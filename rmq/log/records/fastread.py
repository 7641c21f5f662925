"""The fast path for a reader of stored records of the usual kind: whole or not in one go, the rest when it is asked for. So a
follower looks at what its leader sends, too.

Usual is: version 1, IPv4 hosts, no inner batch, both checksums there and right. Any other record takes the slow path
(`record.decode` and its siblings); nothing here says what is wrong. The hot path of every consumer and follower. Pure.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Final

from rmq.log.records.crc import crc32
from rmq.log.records.properties import CRC_BYTES
from rmq.log.records.record import (
    CRC_MASK,
    CRC_MIRRORED,
    MAGIC_V1,
    SYS_BORN_V6,
    SYS_COMPRESSED,
    SYS_INNER_BATCH,
    SYS_STORE_V6,
    topic_field_of,
)

_peek = Struct(">iiii4xq8xi44xi").unpack_from  # sizes, magic, bodyCRC, queueId, queueOffset, sysFlag, bodyLength
_look = Struct(">iii16xqi44xi").unpack_from  # size, magic, bodyCRC, physicalOffset, sysFlag, bodyLength
_BODY: Final = 88  # where the body begins
_LEAST: Final = _BODY + 3 + CRC_BYTES
_WIDE: Final = SYS_BORN_V6 | SYS_STORE_V6
_UNUSUAL: Final = _WIDE | SYS_INNER_BATCH
MAX_TOPICS: Final = 4096  # remembered


Whole = tuple[bytes, int, int, int]
"""A record, its queue offset, how many bytes its stored body has, and where in the record that begins, -1 if it is compressed."""


@lru_cache(maxsize=MAX_TOPICS)
def fast_read(topic: str) -> Callable[[bytes, int, int, int, int], tuple[list[Whole], int]]:
    """A function for stored records of that topic. It takes bytes, a place in them, a queue and two offsets, and gives the
    records from there on up to one that is not whole or not usual, and the place behind them. All are of that queue; their
    offsets rise, from the first one given to below the second."""
    _, topic_field = topic_field_of(topic)
    width = len(topic_field)

    def usual_at(buf: bytes, at: int, queue_id: int, lowest: int, highest: int) -> tuple[list[Whole], int]:
        found: list[Whole] = []
        end = len(buf)
        while end - at >= _LEAST:
            total, magic, body_crc, queue, queue_offset, sys_flag, length = _peek(buf, at)
            stop, body = at + total, at + _BODY
            sealed, topic_at = stop - CRC_BYTES, body + length
            topic_end = topic_at + width
            if (
                magic != MAGIC_V1
                or queue != queue_id
                or not lowest <= queue_offset < highest
                or sys_flag & _UNUSUAL
                or length < 0
                or not topic_end + 2 <= sealed <= end - CRC_BYTES
                or buf[topic_at:topic_end] != topic_field
                or topic_end + 2 + (buf[topic_end] << 8 | buf[topic_end + 1]) != stop
                or crc32(buf[body:topic_at]) & CRC_MASK != body_crc
                or buf[sealed:stop] != (CRC_MIRRORED % (crc32(buf[at:sealed]) & CRC_MASK))[::-1]
            ):
                break
            found.append((buf[at:stop], queue_offset, length, -1 if sys_flag & SYS_COMPRESSED else _BODY))
            at, lowest = stop, queue_offset + 1
        return found, at

    return usual_at


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
        end, topic_at = at + total, at + _BODY + length
        sealed, properties = end - CRC_BYTES, topic_at + 3 + buf[topic_at]
        if (
            properties > sealed
            or properties + (buf[properties - 2] << 8 | buf[properties - 1]) != end
            or crc32(buf[at + _BODY : topic_at]) & CRC_MASK != body_crc
            or buf[sealed:end] != (CRC_MIRRORED % (crc32(buf[at:sealed]) & CRC_MASK))[::-1]
        ):
            break
        last, at = at, end
    return last, at
