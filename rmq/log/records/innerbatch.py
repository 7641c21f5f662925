"""Inner batches: many messages in one record, of topics with queue.type=BatchCQ [MessageSysFlag.INNER_BATCH_FLAG]. Pure.

The record's body is what a producer puts into a batch [MessageDecoder.encodeMessage]; its properties INNER_NUM and INNER_BASE
say how many messages there are and the queue offset of the first. They take as many queue offsets, and one queue entry.
"""

from collections.abc import Sequence
from struct import Struct

from rmq.errors import BadBytes
from rmq.log.records.crc import crc32
from rmq.log.records.properties import CRC_BYTES, is_number
from rmq.log.records.record import (
    CRC_MASK,
    SYS_BODY,
    SYS_BORN_V6,
    SYS_INNER_BATCH,
    SYS_MULTI_TAGS,
    SYS_STORE_V6,
    Record,
    bytes_to_properties,
    draft,
    has_crc,
)

SYS_UNWRAP = 0x40  # clients take the record apart [MessageSysFlag.NEED_UNWRAP_FLAG]
MOST_MESSAGES = 32_767  # in one record: a queue entry counts them in 16 bits
_BASE_DIGITS = 18
_BASE_AT = CRC_BYTES + 1 + _BASE_DIGITS  # from the record's end
_ITEM = Struct(">iiiii")  # size, magic, checksum, flag, length of the body
_SHORT = Struct(">H")


def wrap(messages: Sequence[Record], properties: bytes) -> bytes:
    """One draft that holds the messages of these drafts, whose bodies are not compressed. `properties`: of the batch itself.

    Raises InvalidArgument for properties that are too long.
    """
    first = messages[0]
    count = b"INNER_NUM\x01%d\x02INNER_BASE\x01%0*d\x02" % (len(messages), _BASE_DIGITS, 0)
    return draft(
        first.topic,
        b"".join(map(_item, messages)),
        properties + count,
        sys_flag=first.sys_flag & SYS_MULTI_TAGS | SYS_INNER_BATCH | SYS_UNWRAP,
        born_timestamp=first.born_timestamp,
        born_host=first.born_host,
    )


def _item(message: Record) -> bytes:
    properties = message.properties[:-CRC_BYTES] if has_crc(message) else message.properties
    size = _ITEM.size + len(message.body) + _SHORT.size + len(properties)
    head = _ITEM.pack(size, 0, 0, message.flag, len(message.body))
    return b"".join((head, message.body, _SHORT.pack(len(properties)), properties))


def put_base(run: bytearray, end: int, queue_offset: int) -> None:
    """Writes the queue offset of the first message into a record that `wrap` made and that ends at `end` of `run`; before the
    record gets its checksum."""
    run[end - _BASE_AT : end - _BASE_AT + _BASE_DIGITS] = b"%0*d" % (_BASE_DIGITS, queue_offset)


def is_inner_batch(stored: Record) -> bool:
    return stored.sys_flag & SYS_INNER_BATCH != 0


def message_count(stored: Record) -> int:
    """How many queue offsets the record takes. One that says no possible number takes one."""
    if not is_inner_batch(stored):
        return 1
    said = bytes_to_properties(stored.properties).get("INNER_NUM", "")
    return max(int(said), 1) if is_number(said) and int(said) <= MOST_MESSAGES else 1


def messages_in(stored: Record, body: bytes | None = None) -> list[Record]:
    """The messages of a record, each as a record of its own at the same place of the log: all of an inner batch, or the record
    itself. `body`: of the batch, if the stored one is compressed. Raises BadBytes for a batch that is not as it says.
    """
    if not is_inner_batch(stored):
        return [stored]
    about = f"the inner batch at {stored.physical_offset}"
    if body is None and stored.sys_flag & SYS_BODY:
        raise BadBytes(f"{about} is compressed")
    found = _take_apart(stored, stored.body if body is None else body, about)
    if len(found) != message_count(stored):
        raise BadBytes(f"{about} holds {len(found)} messages and says {message_count(stored)}")
    return found


def singles(stored: Record) -> list[Record]:
    """As `messages_in`; a batch that cannot be taken apart is one message."""
    try:
        return messages_in(stored)
    except BadBytes:
        return [stored]


def _take_apart(stored: Record, body: bytes, about: str) -> list[Record]:
    found: list[Record] = []
    at, flags = 0, stored.sys_flag & (SYS_BORN_V6 | SYS_STORE_V6 | SYS_MULTI_TAGS)
    while at < len(body):
        text = at + _ITEM.size
        if text + _SHORT.size > len(body) or len(found) == MOST_MESSAGES:
            raise BadBytes(f"{about}: {len(body) - at} bytes are left behind message {len(found)}")
        size, _, _, flag, length = _ITEM.unpack_from(body, at)
        properties = text + length + _SHORT.size
        if length < 0 or properties > len(body):
            raise BadBytes(f"{about}: message {len(found)} has a body of {length} bytes")
        end = properties + _SHORT.unpack_from(body, properties - _SHORT.size)[0]
        if end > len(body) or size != end - at:
            raise BadBytes(f"{about}: the lengths of message {len(found)} do not add up")
        found.append(_message(stored, flags, flag, len(found), body[text : text + length], body[properties:end]))
        at = end
    return found


def _message(stored: Record, flags: int, flag: int, number: int, body: bytes, properties: bytes) -> Record:
    return stored._replace(
        total_size=stored.total_size - len(stored.body) - len(stored.properties) + len(body) + len(properties),
        body_crc=crc32(body) & CRC_MASK,
        sys_flag=flags,
        flag=flag,
        queue_offset=stored.queue_offset + number,
        body=body,
        properties=properties,
    )


def message_at(stored: Record, queue_offset: int) -> Record:
    """The message with that queue offset; the record itself if it is no batch, or one that cannot be taken apart."""
    try:
        found = messages_in(stored)
    except BadBytes:
        return stored
    number = queue_offset - stored.queue_offset
    return found[number] if 0 <= number < len(found) else stored
