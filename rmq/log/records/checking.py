"""Judges records that a client encoded, before a broker stores them.

The hot path of every send: `check` looks at the bytes directly and makes no object per field; `fastpath` does the same in
one go for the usual kind. Pure.
"""

from struct import Struct
from typing import NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import BadBytes, Refusal
from rmq.log.records.crc import crc32
from rmq.log.records.properties import CRC_BYTES, CRC_NAME, check_properties
from rmq.log.records.record import (
    CRC_MASK,
    MIN_RECORD_BYTES,
    SYS_BORN_V6,
    SYS_COMPRESSED,
    SYS_COMPRESSION_TYPE,
    SYS_MULTI_TAGS,
    SYS_PREPARED,
    decode,
    topic_field_of,
)

_SYS_FROM_CLIENT = SYS_COMPRESSED | SYS_MULTI_TAGS | SYS_PREPARED | SYS_BORN_V6 | SYS_COMPRESSION_TYPE

_new = tuple.__new__  # a NamedTuple in half the time
# totalSize, magic, bodyCRC, sysFlag, preparedTransactionOffset, bodyLength
claims, _claims_v6 = Struct(">iii24xi36xqi").unpack_from, Struct(">iii24xi48xqi").unpack_from


class Checked(NamedTuple):
    """The result of `check`: size in bytes and tag hash of each record.

    `pending`: one of the records must not be seen yet (it has a delay or a time, or is a half of a transaction), or names light
    queues.
    """

    sizes: tuple[int, ...]
    tags_codes: tuple[int, ...]
    pending: bool = False


def check(records: bytes, topic: str) -> Checked:
    """Sizes and tag hashes of records that a client encoded, if a broker may store them.

    Raises Refusal(MESSAGE_ILLEGAL) that says what is wrong: sizes, magic, flags, topic, body checksum, properties, or a
    reserved property.
    """
    magic, topic_field = topic_field_of(topic)
    at, room, pending = 0, len(records), False
    sizes: list[int] = []
    codes: list[int] = []
    while at < room or not room:
        if room - at < MIN_RECORD_BYTES:
            raise _illegal(f"a record needs {MIN_RECORD_BYTES} bytes, {room - at} came")
        total, said, body_crc, sys_flag, prepared, body_length = claims(records, at)
        body_at = at + 88
        if sys_flag:
            if sys_flag & ~_SYS_FROM_CLIENT:
                raise _illegal_head(said, magic, sys_flag)
            pending = pending or sys_flag & SYS_PREPARED != 0
            if sys_flag & SYS_BORN_V6 and room - at > 100:
                *_, prepared, body_length = _claims_v6(records, at)
                body_at = at + 100
        if said != magic or prepared:
            raise _illegal_head(said, magic, sys_flag)
        topic_at = body_at + body_length
        lengths_end = topic_at + len(topic_field) + 2
        end = at + total
        if body_length < 0 or end > room or end - lengths_end < CRC_BYTES:
            raise _illegal_parts(records, at, topic_field)
        if records[topic_at : lengths_end - 2] != topic_field or end - lengths_end != (
            records[lengths_end - 2] << 8 | records[lengths_end - 1]
        ):
            raise _illegal_parts(records, at, topic_field)
        if crc32(records[body_at:topic_at]) & CRC_MASK != body_crc:
            raise _illegal("wrong body checksum: the record was damaged on its way; send it again")
        code, asked = check_properties(records, lengths_end, end)
        pending = pending or asked
        if total == room:
            return _new(Checked, ((total,), (code,), pending))
        sizes.append(total)
        codes.append(code)
        at = end
    return _new(Checked, (tuple(sizes), tuple(codes), pending))


def _illegal(why: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, why)


def _illegal_head(said: int, magic: int, sys_flag: int) -> Refusal:
    if said != magic:
        return _illegal(f"magic {said & 0xFFFFFFFF:#010x} where {magic & 0xFFFFFFFF:#010x} belongs")
    if sys_flag & ~_SYS_FROM_CLIENT:
        return _illegal(f"sysFlag {sys_flag:#x}: a client may set only {_SYS_FROM_CLIENT:#x}")
    return _illegal("preparedTransactionOffset is the broker's to set: send 0")


def _illegal_parts(buf: bytes, at: int, topic_field: bytes) -> Refusal:
    """Why the sizes do not fit the request's topic: the record has another topic, or the sizes are wrong."""
    try:
        record = decode(buf, at)
    except BadBytes as error:
        return _illegal(str(error))
    if topic_field_of(record.topic)[1] != topic_field:
        return _illegal("the topic inside the record is not the topic of the request")
    return _illegal(f"properties must end with a {CRC_BYTES}-byte {CRC_NAME.decode()} property and be shorter than 32768 bytes")
