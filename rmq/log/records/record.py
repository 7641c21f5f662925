"""One record of the CommitLog: encode, decode, verify, stamp the broker's own fields.

Bytes in, values or bytes out. The layout is RocketMQ's (docs/storage) [MessageDecoder, MessageExtEncoder, CommitLog].
Pure: no file, clock, chance or logging may come in here. Properties inside a record are in
`rmq.log.records.properties`; `checking` judges what clients send.

`stamp` is the hot path of every send: it looks at the bytes directly and makes no object per field.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from ipaddress import ip_address
from string import hexdigits
from struct import Struct
from typing import NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import BadBytes, InvalidArgument, Refusal
from rmq.javahash import java_hash, tags_code
from rmq.log.records.crc import crc32
from rmq.log.records.delays import LEVELS_MS, delay_ms
from rmq.log.records.properties import (
    CRC_BYTES,
    CRC_NAME,
    LIGHT_MARK,
    LIGHT_NAMES,
    LIGHT_OFFSETS,
    MAX_PROPERTIES_BYTES,
    bytes_to_properties,
    is_number,
    kept_properties,
    properties_to_bytes,
    strip_names,
    strip_reserved,
    tags_code_in,
)
from rmq.model import DELAY_TOPIC, may_be_light

__all__ = [
    "BLANK_MAGIC",
    "CRC_BYTES",
    "MAGIC_V1",
    "MAGIC_V2",
    "Buffer",
    "Record",
    "bytes_to_properties",
    "decode",
    "draft",
    "draft_again",
    "encode",
    "entry_code",
    "has_crc",
    "has_queue_entry",
    "has_topic",
    "host_bytes",
    "host_text",
    "iterate",
    "java_hash",
    "kept_properties",
    "message_id",
    "properties_of",
    "properties_to_bytes",
    "queue_places",
    "stamp",
    "store_timestamp",
    "strip_reserved",
    "tags_code",
    "verify",
]

Buffer = bytes | bytearray | memoryview

MAGIC_V1 = -626843481  # 0xDAA320A7
MAGIC_V2 = -626843477  # 0xDAA320AB: the topic's length takes two bytes
BLANK_MAGIC = -875286124  # 0xCBD43194: the filler at a segment's end
CRC_MASK = 0x7FFFFFFF
MIN_RECORD_BYTES = 91  # V1, IPv4 hosts, everything of variable length empty

SYS_COMPRESSED, SYS_MULTI_TAGS, SYS_BORN_V6, SYS_STORE_V6 = 0x1, 0x2, 0x10, 0x20
SYS_TRANSACTION, SYS_PREPARED, SYS_COMMIT, SYS_ROLLBACK = 0xC, 0x4, 0x8, 0xC
SYS_INNER_BATCH = 0x80
SYS_COMPRESSION_TYPE = 0x700
SYS_BODY = SYS_COMPRESSED | SYS_COMPRESSION_TYPE  # how the body is compressed

EMPTY_CRC = CRC_NAME + b"\x010000000000\x02"
_CRC_HEAD = CRC_NAME + b"\x01"
CRC_MIRRORED = b"\x02%010d" + _CRC_HEAD[::-1]  # RocketMQ writes the least significant digit first [MessageExtEncoder.appendCrc]

_INT = Struct(">i")
_SHORT = Struct(">H")
# pack_into takes half the time of assigning to a slice.
_put_queue = _INT.pack_into
_put_offsets = Struct(">qq").pack_into  # queueOffset, physicalOffset
_put_digits = Struct("10s").pack_into
_PUT_STORED = {16: Struct("16s").pack_into, 28: Struct("28s").pack_into}  # storeTimestamp, storeHost
# Everything before the body; one layout for each combination of (born host IPv6, store host IPv6).
_HEADS = tuple(Struct(f">iiiiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20)))
_plain_head = Struct(">iii4xi16x4xq8s16x4x8xi").pack  # of a draft without flags and tries, from IPv4
_PLAIN_BYTES = 88
# What verify() wants: totalSize, magic, bodyCRC, physicalOffset; bodyLength stands at 84, 96 or 108.
_PLACE = Struct(">iii16xqi")


class Record(NamedTuple):
    """Every field of a record, in stored order; sizes of the body, topic and properties follow from them.

    Times are Unix ms. Hosts are 4 or 16 address bytes and the port in 4. `queue_offset` counts messages of the queue,
    `physical_offset` bytes of the log. `body` is as stored (compressed if sys_flag & 1), `topic` is text, `properties`
    are raw (`bytes_to_properties` reads them).
    """

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes


# --- reading ----------------------------------------------------------------------------------------------------------


def _layout(buf: Buffer, at: int) -> tuple[int, int, int, int, int]:
    """Where the parts are: (body, topic length field, topic, properties, end). BadBytes if they do not add up."""
    if len(buf) - at < MIN_RECORD_BYTES:
        raise BadBytes(f"a record needs {MIN_RECORD_BYTES} bytes, {len(buf) - at} are left at {at}")
    total, magic, _, _, sys_flag = _PLACE.unpack_from(buf, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise BadBytes(f"no record at {at}: magic {magic & 0xFFFFFFFF:#010x}")
    end = at + total
    if total < MIN_RECORD_BYTES or end > len(buf):
        raise BadBytes(f"record at {at} says it has {total} bytes, {len(buf) - at} are there")
    body = at + _HEADS[sys_flag >> 4 & 3].size
    wide = 1 if magic == MAGIC_V1 else 2
    length: int = _INT.unpack_from(buf, body - 4)[0] if body <= end else -1
    length_at = body + length
    if length < 0 or length_at + wide + 2 > end:
        raise BadBytes(f"record at {at}: a body of {length} bytes does not fit into {total}")
    topic = length_at + wide
    properties = topic + (buf[length_at] if wide == 1 else _SHORT.unpack_from(buf, length_at)[0]) + 2
    if properties > end or properties + _SHORT.unpack_from(buf, properties - 2)[0] != end:
        raise BadBytes(f"record at {at}: its parts do not add up to its size {total}")
    return body, length_at, topic, properties, end


def decode(buf: Buffer, at: int = 0) -> Record:
    """The record that begins at `at`. Checks that sizes add up, not the checksums (see `verify`). Raises BadBytes.

    What is not UTF-8 in a topic comes out as U+FFFD, as at RocketMQ, whose checksum does not cover it.
    """
    body, length_at, topic, properties, end = _layout(buf, at)
    head = _HEADS[buf[at + 39] >> 4 & 3].unpack_from(buf, at)
    name = str(buf[topic : properties - 2], "utf-8", "replace")
    return Record._make((*head[:-1], bytes(buf[body:length_at]), name, bytes(buf[properties:end])))


def iterate(buf: Buffer) -> Iterator[Record]:
    """All records of `buf`, which holds nothing else (a pull's answer). Raises BadBytes."""
    at, end = 0, len(buf)
    while at < end:
        record = decode(buf, at)
        yield record
        at += record.total_size


def verify(buf: Buffer, at: int, physical_offset: int, protected: bool) -> int:
    """Size of the record at `at`, if it is whole and says it is at `physical_offset` (D7, D9). Raises BadBytes.

    `protected`: it is one of ours and must carry a right `__CRC32#`. In a range that Apache RocketMQ wrote only
    structure, position and body checksum count: there the property may be a stale copy.
    """
    if len(buf) - at >= MIN_RECORD_BYTES:
        total, magic, body_crc, said, sys_flag = _PLACE.unpack_from(buf, at)
        end, length_at = at + total, at + 88 + int.from_bytes(buf[at + 84 : at + 88], "big")
        if magic == MAGIC_V1 and said == physical_offset and not sys_flag & 0x30 and length_at + 2 < end <= len(buf):
            properties = length_at + 3 + buf[length_at]
            if (
                properties <= end == properties + (buf[properties - 2] << 8 | buf[properties - 1])
                and crc32(buf[at + 88 : length_at]) & CRC_MASK == body_crc
                and (not protected or (end - CRC_BYTES >= properties and crc_is_right(buf[at:end])))
            ):
                return int(total)
    return _verify_any(buf, at, physical_offset, protected)


def _verify_any(buf: Buffer, at: int, physical_offset: int, protected: bool) -> int:
    """As `verify`, for every layout; says what is wrong."""
    body, length_at, _, properties, end = _layout(buf, at)
    _, _, body_crc, said, _ = _PLACE.unpack_from(buf, at)
    if said != physical_offset:
        raise BadBytes(f"record at {physical_offset} says it is at {said}")
    view = memoryview(buf)
    if crc32(view[body:length_at]) & CRC_MASK != body_crc:
        raise BadBytes(f"record at {physical_offset}: wrong body checksum")
    if protected and not (end - CRC_BYTES >= properties and crc_is_right(view[at:end])):
        raise BadBytes(f"record at {physical_offset}: wrong or missing record checksum")
    return end - at


def body_is_right(record: Record) -> bool:
    """Whether the body is the one that its checksum was made of."""
    return crc32(record.body) & CRC_MASK == record.body_crc


def crc_is_right(record: Buffer) -> bool:
    """Whether the checksum of a record that `has_crc` is right."""
    return record[-CRC_BYTES:] == (CRC_MIRRORED % (crc32(record[:-CRC_BYTES]) & CRC_MASK))[::-1]


def has_topic(buf: Buffer, at: int, topic: str) -> bool:
    """Whether the whole record at `at` is of that topic; cheaper than decoding it."""
    field = topic_field_of(topic)[1]
    body = at + _HEADS[buf[at + 39] >> 4 & 3].size
    start = body + int.from_bytes(buf[body - 4 : body], "big")
    return buf[start : start + len(field)] == field


def properties_of(buf: Buffer) -> bytes:
    """The raw properties of one whole record. Raises BadBytes."""
    _, _, _, start, end = _layout(buf, 0)
    return bytes(buf[start:end])


def store_timestamp(buf: Buffer, at: int) -> int:
    """Unix ms, of the whole record at `at`."""
    start = at + (68 if buf[at + 39] & SYS_BORN_V6 else 56)
    return int.from_bytes(buf[start : start + 8], "big", signed=True)


def has_crc(record: Record) -> bool:
    """Whether the record ends with a checksum of all of it [enabledAppendPropCRC]."""
    return record.properties[-CRC_BYTES:-11] == _CRC_HEAD


# --- writing ----------------------------------------------------------------------------------------------------------


def encode(record: Record) -> bytes:
    """The stored bytes. For a decoded record exactly those it came from; sizes are computed, `total_size` is not read."""
    wide_topic = record.magic == MAGIC_V2
    topic = record.topic.encode()
    length = _SHORT.pack(len(topic)) if wide_topic else bytes((len(topic),))
    head = _HEADS[record.sys_flag >> 4 & 3]
    total = head.size + len(record.body) + len(length) + len(topic) + 2 + len(record.properties)
    return b"".join(
        (
            head.pack(total, *record[1:14], len(record.body)),
            record.body,
            length,
            topic,
            _SHORT.pack(len(record.properties)),
            record.properties,
        )
    )


def draft(
    topic: str,
    body: bytes,
    properties: bytes,
    *,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int,
    born_host: bytes,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """A record ready to be stamped: the broker's fields are 0, the properties end with an empty `__CRC32#`.

    A checksum property that came in is dropped. A born host of 20 bytes sets its bit of `sys_flag`.
    Raises InvalidArgument for properties over 32 747 bytes.
    """
    if CRC_NAME in properties:
        properties = strip_names(properties, {CRC_NAME})
    if properties and properties[-1] != 2:
        properties += b"\x02"
    if len(properties) > MAX_PROPERTIES_BYTES:
        raise InvalidArgument(f"properties take {len(properties)} bytes, at most {MAX_PROPERTIES_BYTES} are allowed")
    if len(born_host) == 20:
        sys_flag |= SYS_BORN_V6
    magic, topic_field = topic_field_of(topic)
    tail = len(topic_field) + 2 + len(properties) + CRC_BYTES
    size = len(body)
    if sys_flag or reconsume_times or prepared_transaction_offset:
        head = _HEADS[sys_flag >> 4 & 3]
        fields = head.pack(
            head.size + size + tail, magic, crc32(body) & CRC_MASK, 0, flag, 0, 0, sys_flag, born_timestamp, born_host, 0,
            bytes(20 if sys_flag & SYS_STORE_V6 else 8), reconsume_times, prepared_transaction_offset, size,
        )  # fmt: skip
    else:  # nearly all
        fields = _plain_head(_PLAIN_BYTES + size + tail, magic, crc32(body) & CRC_MASK, flag, born_timestamp, born_host, size)
    return b"".join((fields, body, topic_field, _SHORT.pack(len(properties) + CRC_BYTES), properties, EMPTY_CRC))


def drafts(topic: str, born_host: bytes) -> Callable[[bytes, bytes, int, int], bytes]:
    """A function that makes drafts of messages of that topic as `draft` does, of body, properties, flag and time of birth. The
    properties are as `properties_to_bytes` gives them, without a checksum's."""
    magic, topic_field = topic_field_of(topic)
    around = _PLAIN_BYTES + len(topic_field) + 2 + CRC_BYTES

    def wide(body: bytes, properties: bytes, flag: int, born_ms: int) -> bytes:
        return draft(topic, body, properties, flag=flag, born_timestamp=born_ms, born_host=born_host)

    def plain(body: bytes, properties: bytes, flag: int, born_ms: int) -> bytes:
        size, width = len(body), len(properties)
        if width > MAX_PROPERTIES_BYTES:
            return wide(body, properties, flag, born_ms)  # which says so
        crc = crc32(body) & CRC_MASK
        head = _plain_head(around + size + width, magic, crc, flag, born_ms, born_host, size)
        return b"".join((head, body, topic_field, _SHORT.pack(width + CRC_BYTES), properties, EMPTY_CRC))

    return wide if len(born_host) == 20 else plain


def draft_again(stored: Record, topic: str, properties: bytes, reconsume_times: int = 0) -> bytes:
    """A draft for `topic` with body, flag and birth of a stored record; of its system flags only how the body is compressed."""
    return draft(
        topic,
        stored.body,
        properties,
        flag=stored.flag,
        sys_flag=stored.sys_flag & SYS_BODY,
        born_timestamp=stored.born_timestamp,
        born_host=stored.born_host,
        reconsume_times=reconsume_times,
    )


@lru_cache(maxsize=16_384)
def topic_field_of(topic: str) -> tuple[int, bytes]:
    """(magic, length and text of the topic): version 2 above 127 bytes."""
    text = topic.encode()
    if len(text) > 127:
        return MAGIC_V2, _SHORT.pack(len(text)) + text
    return MAGIC_V1, bytes((len(text),)) + text


def with_store_host(record: Record, store_host: bytes) -> Record:
    """The same message with another store host, whose length also sets its bit of `sys_flag`."""
    wide = SYS_STORE_V6 if len(store_host) == 20 else 0
    return record._replace(store_host=store_host, sys_flag=record.sys_flag & ~SYS_STORE_V6 | wide)


def stamp(run: bytearray, groups: Iterable[tuple[int, Sequence[int], int, int]], base: int, stored: bytes) -> None:
    """Writes the broker's own fields into the records of `run`, whose first byte is at `base` of the log, and their checksums.

    A group is (where in `run`, sizes of its records, queue id, queue offset of its first record). `stored` is the 8-byte
    store timestamp and the store host. The records have passed `check` or come from `draft`, so each ends with `__CRC32#`.
    """
    put_stored = _PUT_STORED[len(stored)]
    for at, sizes, queue_id, queue_offset in groups:
        for size in sizes:
            end = at + size
            _put_queue(run, at + 12, queue_id)
            _put_offsets(run, at + 20, queue_offset, base + at)
            put_stored(run, at + (68 if run[at + 39] & SYS_BORN_V6 else 56), stored)
            _put_digits(run, end - 11, (b"%010d" % (crc32(run[at : end - CRC_BYTES]) & CRC_MASK))[::-1])
            at = end
            queue_offset += 1


# --- derived from a record ---------------------------------------------------------------------------------------


def has_queue_entry(record: Record) -> bool:
    """Prepared and rollback records of RocketMQ 4's transactions have no ConsumeQueue entry."""
    return record.sys_flag & SYS_TRANSACTION not in (SYS_PREPARED, SYS_ROLLBACK)


def queue_places(record: Record) -> Iterator[tuple[str, int, int]]:
    """(topic, queue, queue offset) of each ConsumeQueue entry of a record: one, none, or more with RocketMQ's multi-dispatch.
    The one of an inner batch takes several queue offsets (`innerbatch.message_count`)."""
    if has_queue_entry(record):
        yield record.topic, record.queue_id, record.queue_offset
    if LIGHT_MARK in record.properties and may_be_light(record.topic):
        said = bytes_to_properties(record.properties)
        names, queue_offsets = (said.get(name, "").split(",") for name in (LIGHT_NAMES, LIGHT_OFFSETS))
        for name, queue_offset in zip(names, queue_offsets, strict=False):
            if is_number(queue_offset):
                yield name, 0, int(queue_offset)


def queue_offset_in(topic: str, record: Record) -> int:
    """Its offset in the queue of that topic, or light queue; -1 if it is not there."""
    return next((queue_offset for name, _, queue_offset in queue_places(record) if name == topic), -1)


def entry_code(record: Record, delays_ms: Sequence[int] = LEVELS_MS) -> int:
    """The tagsCode of its ConsumeQueue entry: the tag's hash, or the due time (ms) in the delay topic."""
    if record.topic == DELAY_TOPIC:
        said = bytes_to_properties(record.properties)
        kind, _, due_ms = said.get("RMQ_SRC", "").rpartition(" ")
        if kind.startswith("due ") and is_number(due_ms):  # carried forward: it keeps its time
            return int(due_ms)
        if waits_ms := delay_ms(said, delays_ms):
            return record.store_timestamp + waits_ms
    return tags_code_in(record.properties)


def message_id(store_host: bytes, physical_offset: int) -> str:
    """offsetMsgId: 32 hex digits (56 with an IPv6 store host) [MessageDecoder.createMessageId]."""
    return (store_host + physical_offset.to_bytes(8, "big")).hex().upper()


def offset_in(message_id: str) -> int:
    """The place that an id names [MessageDecoder.decodeMessageId]. Raises Refusal."""
    if len(message_id) not in (32, 56) or not set(message_id) <= set(hexdigits):
        about = f"{message_id!r} is no offsetMsgId: it has 32 hex digits, 56 with an IPv6 address"
        raise Refusal(ResponseCode.SYSTEM_ERROR, about)
    return int(message_id[-16:], 16)


def host_bytes(ip: str, port: int) -> bytes:
    """An address as records hold it. Raises InvalidArgument if `ip` is no IP address."""
    try:
        return ip_address(ip).packed + port.to_bytes(4, "big")
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"{ip!r}, port {port}: give an IPv4 or IPv6 address and a port from 0 to 65535") from error


def host_text(host: bytes) -> str:
    """ "ip:port", an IPv6 address in brackets."""
    address = str(ip_address(host[:-4]))
    port = int.from_bytes(host[-4:], "big")
    return f"[{address}]:{port}" if len(host) == 20 else f"{address}:{port}"
