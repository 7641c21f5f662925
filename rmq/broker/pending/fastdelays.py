"""The fast path for messages of the usual kind with a delay level or a time of their own: does in one go what `checking.check`
and `delays` do step by step.

Usual is: one record, IPv4 hosts, no system flags, properties of ASCII pairs, of which one is a level, or some say a time, and
none asks for a light queue or cancels a timer. Any other takes the slow path; nothing here refuses anything. Pure.
"""

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from rmq.delivery.due import CANCEL, TIMER, TIMER_SLOT_MS, Source, timer_out_ms
from rmq.delivery.proof import DUE
from rmq.log.records.checking import claims
from rmq.log.records.crc import crc32
from rmq.log.records.delays import LEVELS_MS, OUT_DIGITS, asked_time, out_property
from rmq.log.records.halves import ROOM_BYTES, target
from rmq.log.records.properties import (
    CRC_BYTES,
    MAX_PROPERTIES_BYTES,
    code_of,
    fast_delayed,
    fast_leveled,
    fast_timed,
    fast_timer,
)
from rmq.log.records.record import CRC_MASK, EMPTY_CRC, topic_field_of
from rmq.model import DELAY_TOPIC, PROOF_PROPERTY, TIMER_TOPIC
from rmq.net.commands.messages import Scheduled

_BODY: Final = 88  # where it begins
_DELAYS, _TIMERS = topic_field_of(DELAY_TOPIC), topic_field_of(TIMER_TOPIC)
_LEAST: Final = _BODY + 3 + CRC_BYTES
_LEVEL: Final = b"DELAY\x01"
_TIME: Final = b"TIMER_DEL"
_taken_out = b"TIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d\x02".__mod__
_stored_ms = Struct(">56xq").unpack_from
_length = Struct(">H").pack
_head = Struct(">ii80s").pack  # the broker's own fields come along as they are: they are stamped anew
_proof = b"%b\x01%b %%d %%d\x02%b" % (PROOF_PROPERTY.encode(), DUE.encode(), EMPTY_CRC)
_new = tuple.__new__  # a NamedTuple in half the time


class Leveled(NamedTuple):
    """A message as it is to wait."""

    draft: bytes
    level: int


class Timed(NamedTuple):
    """The same. `code`: the hash of its tag. `out_ms`: TIMER_OUT_MS. `unique_id`: "" without one."""

    draft: bytes
    code: int
    out_ms: int
    unique_id: str


class HandedOn(NamedTuple):
    """A message as it goes on, and where to. `code`: the hash of its tag."""

    topic: str
    queue_id: int
    draft: bytes
    code: int


def leveled(records: bytes, topic: str, queue_id: int) -> Leveled | None:
    """What `delays.take_level` makes of a record that was sent to that queue, where levels have RocketMQ's delays."""
    at = _properties_at(records, topic, _LEVEL)
    match = fast_leveled(records, at) if at else None
    if match is None or (level := int(match[1] or 0)) > len(LEVELS_MS) or not level:
        return None
    return _new(Leveled, (_waiting(records, topic, at, _DELAYS, target(topic, queue_id)), level))


def timed(records: bytes, topic: str, queue_id: int, now_ms: int, most_ms: int) -> Timed | None:
    """What `delays.TimerInterceptor` makes of it, if its time is within `most_ms` from now on."""
    at = _properties_at(records, topic, _TIME)
    match = fast_timed(records, at) if at else None
    if match is None:
        return None
    *asked, unique_id, tag = match.groups()
    out_ms = _out_ms(*asked_time(*asked), now_ms, most_ms)
    if out_ms is None:
        return None
    draft = _waiting(records, topic, at, _TIMERS, out_property(out_ms) + target(topic, queue_id))
    code, unique_id = 0 if tag is None else code_of(tag), unique_id or b""
    return _new(Timed, (draft, code, out_ms, unique_id.decode()))


def scheduled(records: bytes, known: Scheduled, now_ms: int, most_ms: int) -> Timed | None:
    """The same of a message that the codec drafted as it waits, but for its time."""
    code, unique_id, ms, is_delay, at = known
    out_ms = _out_ms(ms, is_delay, now_ms, most_ms)
    if out_ms is None:
        return None
    digits = b"%d" % out_ms
    if len(digits) != OUT_DIGITS:
        return None
    return _new(Timed, (b"".join((records[:at], digits, records[at + OUT_DIGITS :])), code, out_ms, unique_id))


def _out_ms(ms: int, is_delay: bool, now_ms: int, most_ms: int) -> int | None:
    """TIMER_OUT_MS for what `asked_time` says; None: that is over, or too far ahead."""
    wanted_ms = ms + now_ms if is_delay else ms
    return timer_out_ms(wanted_ms) if 0 < wanted_ms - now_ms <= most_ms else None


def _properties_at(records: bytes, topic: str, asked: bytes) -> int:
    """Where the properties of a sent record begin, in which `asked` is; 0: it is not, or the record must be looked at closer."""
    total = len(records)
    if total < _LEAST:
        return 0
    said_total, said, body_crc, sys_flag, prepared, body_length = claims(records)
    if body_length < 0 or records.find(asked, _BODY + body_length) < 0:
        return 0
    magic, topic_field = topic_field_of(topic)
    if total != said_total or said != magic or sys_flag or prepared:
        return 0
    topic_at: int = _BODY + body_length
    properties_at = topic_at + len(topic_field) + 2
    size = total - properties_at
    if (
        not CRC_BYTES <= size <= MAX_PROPERTIES_BYTES - ROOM_BYTES
        or not records.startswith(topic_field + _length(size), topic_at)
        or crc32(records[_BODY:topic_at]) & CRC_MASK != body_crc
    ):
        return 0
    return properties_at


def _waiting(records: bytes, topic: str, at: int, where: tuple[int, bytes], more: bytes) -> bytes:
    """The record as it waits in that topic, with `more` properties. `at`: where the properties begin."""
    magic, topic_field = where
    topic_at = at - 2 - len(topic_field_of(topic)[1])
    properties = records[at:-CRC_BYTES] + more + EMPTY_CRC
    size = len(properties)
    head = _head(topic_at + len(topic_field) + 2 + size, magic, records[8:_BODY])
    return b"".join((head, records[_BODY:topic_at], topic_field, _length(size), properties))


@lru_cache(maxsize=4096)
def _place(topic: bytes, queue_id: bytes) -> tuple[str, int, int, bytes]:
    """Of REAL_TOPIC and REAL_QID: topic, queue, and what a record of that topic says."""
    return topic.decode(), int(queue_id), *topic_field_of(topic.decode())


def handed_on(stored: bytes, source: Source, now_ms: int) -> HandedOn | None:
    """What is made of the message that is stored so (a whole record), when it is due and not cancelled."""
    if len(stored) < _LEAST or source.level == CANCEL:
        return None
    _, magic, _, sys_flag, prepared, body_length = claims(stored)
    topic_at = _BODY + body_length
    waited_magic, waited_field = _DELAYS if source.level else _TIMERS
    if magic != waited_magic or sys_flag or prepared or not stored.startswith(waited_field, topic_at):
        return None
    properties_at = topic_at + len(waited_field) + 2
    match = (fast_delayed if source.level else fast_timer)(stored, properties_at)
    if match is None:
        return None
    tag, real_topic, real_queue = match.groups()
    topic, queue_id, magic, topic_field = _place(real_topic, real_queue)
    properties = stored[properties_at:-CRC_BYTES]
    if source.level == TIMER:
        properties += _taken_out((_stored_ms(stored)[0] // TIMER_SLOT_MS * TIMER_SLOT_MS, now_ms))
    properties += _proof % (source.offset, source.due_ms)
    size = len(properties)
    if size > MAX_PROPERTIES_BYTES + CRC_BYTES:
        return None
    head = _head(topic_at + len(topic_field) + 2 + size, magic, stored[8:_BODY])
    draft = b"".join((head, stored[_BODY:topic_at], topic_field, _length(size), properties))
    return _new(HandedOn, (topic, queue_id, draft, 0 if tag is None else code_of(tag)))
