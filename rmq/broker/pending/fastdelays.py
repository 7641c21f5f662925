"""The fast path for messages with a delay level of the usual kind: does in one go what `checking.check` and `delays` do step by
step.

Usual is: one record, IPv4 hosts, no system flags, properties of ASCII pairs, of which one is a delay level and none asks for a
time or a light queue. Any other takes the slow path; nothing here refuses anything. Pure.
"""

from struct import Struct
from typing import Final, NamedTuple

from rmq.delivery.due import Source
from rmq.delivery.proof import DUE
from rmq.log.records.checking import claims
from rmq.log.records.crc import crc32
from rmq.log.records.delays import LEVELS_MS
from rmq.log.records.halves import ROOM_BYTES, target
from rmq.log.records.properties import CRC_BYTES, MAX_PROPERTIES_BYTES, code_of, fast_delayed, fast_leveled
from rmq.log.records.record import CRC_MASK, EMPTY_CRC, topic_field_of
from rmq.model import DELAY_TOPIC, PROOF_PROPERTY

_BODY: Final = 88  # where it begins
_MAGIC, _TOPIC_FIELD = topic_field_of(DELAY_TOPIC)
_LEAST: Final = _BODY + 3 + CRC_BYTES
_ASKED: Final = b"DELAY\x01"
_length = Struct(">H").pack
_head = Struct(">ii80s").pack  # the broker's own fields come along as they are: they are stamped anew
_proof = b"%b\x01%b %%d %%d\x02%b" % (PROOF_PROPERTY.encode(), DUE.encode(), EMPTY_CRC)
_new = tuple.__new__  # a NamedTuple in half the time


class Waiting(NamedTuple):
    """A message as it is to wait."""

    draft: bytes
    level: int


class HandedOn(NamedTuple):
    """A message as it goes on, and where to. `code`: the hash of its tag."""

    topic: str
    queue_id: int
    draft: bytes
    code: int


def waiting(records: bytes, topic: str, queue_id: int) -> Waiting | None:
    """What `delays.take_level` makes of a record that was sent to that queue, where levels have RocketMQ's delays."""
    total = len(records)
    if total < _LEAST:
        return None
    said_total, said, body_crc, sys_flag, prepared, body_length = claims(records)
    if body_length < 0 or records.find(_ASKED, _BODY + body_length) < 0:
        return None
    magic, topic_field = topic_field_of(topic)
    if total != said_total or said != magic or sys_flag or prepared:
        return None
    topic_at = _BODY + body_length
    properties_at = topic_at + len(topic_field) + 2
    size = total - properties_at
    if (
        not CRC_BYTES <= size <= MAX_PROPERTIES_BYTES - ROOM_BYTES
        or not records.startswith(topic_field + _length(size), topic_at)
        or crc32(records[_BODY:topic_at]) & CRC_MASK != body_crc
    ):
        return None
    match = fast_leveled(records, properties_at)
    if match is None or (level := int(match[1] or 0)) > len(LEVELS_MS) or not level:
        return None
    properties = records[properties_at:-CRC_BYTES] + target(topic, queue_id) + EMPTY_CRC
    size = len(properties)
    head = _head(topic_at + len(_TOPIC_FIELD) + 2 + size, _MAGIC, records[8:_BODY])
    return _new(Waiting, (b"".join((head, records[_BODY:topic_at], _TOPIC_FIELD, _length(size), properties)), level))


def handed_on(stored: bytes, source: Source) -> HandedOn | None:
    """What is made of the message with a level that is stored so (a whole record), when it is due."""
    if len(stored) < _LEAST:
        return None
    _, magic, _, sys_flag, prepared, body_length = claims(stored)
    topic_at = _BODY + body_length
    if magic != _MAGIC or sys_flag or prepared or not stored.startswith(_TOPIC_FIELD, topic_at):
        return None
    properties_at = topic_at + len(_TOPIC_FIELD) + 2
    match = fast_delayed(stored, properties_at)
    if match is None:
        return None
    tag, real_topic, real_queue = match.groups()
    topic = real_topic.decode()
    magic, topic_field = topic_field_of(topic)
    properties = stored[properties_at:-CRC_BYTES] + _proof % (source.offset, source.due_ms)
    size = len(properties)
    if size > MAX_PROPERTIES_BYTES + CRC_BYTES:
        return None
    head = _head(topic_at + len(topic_field) + 2 + size, magic, stored[8:_BODY])
    draft = b"".join((head, stored[_BODY:topic_at], topic_field, _length(size), properties))
    return _new(HandedOn, (topic, int(real_queue), draft, 0 if tag is None else code_of(tag)))
