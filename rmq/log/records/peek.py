"""The few fields of an everyday record that its queue entry needs, without decoding the rest. Pure.

Rebuilding queues reads every record of the log, so this is most of its time. Anything unusual is left to `record.decode`.
"""

from struct import Struct

from rmq.log.records.pending import HANDED_ON
from rmq.log.records.properties import LIGHT_MARK, tags_code_in
from rmq.log.records.record import (
    MAGIC_V1,
    MAGIC_V2,
    SYS_BORN_V6,
    SYS_COMPRESSED,
    SYS_COMPRESSION_TYPE,
    SYS_MULTI_TAGS,
    SYS_STORE_V6,
    Buffer,
)

_fields = Struct(">4xi4xi4xq8xi").unpack_from  # magic, queueId, queueOffset, sysFlag
EVERYDAY = (
    SYS_COMPRESSED | SYS_MULTI_TAGS | SYS_COMPRESSION_TYPE
)  # flags that change nothing: no transaction, no IPv6 host, no inner batch


def peek(buf: Buffer, at: int, size: int) -> tuple[bytes, int, int, int] | None:
    """(topic, queue, queue offset, tags code) of the whole record of `size` bytes at `at`; None for one that is not everyday."""
    magic, queue_id, queue_offset, sys_flag = _fields(buf, at)
    if magic != MAGIC_V1 or sys_flag & ~EVERYDAY:
        return None
    topic_at = at + 89 + int.from_bytes(buf[at + 84 : at + 88], "big")
    properties_at = topic_at + buf[topic_at - 1]
    properties = bytes(buf[properties_at + 2 : at + size])
    if LIGHT_MARK in properties or HANDED_ON in properties:
        return None
    return bytes(buf[topic_at:properties_at]), queue_id, queue_offset, tags_code_in(properties)


def properties_of(record: bytes) -> bytes:
    """The raw properties of a whole record, of any kind."""
    magic, _, _, sys_flag = _fields(record, 0)
    body_at = 84 + (12 if sys_flag & SYS_BORN_V6 else 0) + (12 if sys_flag & SYS_STORE_V6 else 0)
    topic_at = body_at + 4 + int.from_bytes(record[body_at : body_at + 4], "big")
    width = 2 if magic == MAGIC_V2 else 1
    return record[topic_at + width + int.from_bytes(record[topic_at : topic_at + width], "big") + 2 :]
