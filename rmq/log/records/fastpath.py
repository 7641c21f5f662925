"""The fast path for the usual kind of record: does in one go what `checking.check` and `record.draft` do step by step.

Usual is: one record, IPv4 hosts, no system flags, properties of ASCII pairs without a reserved name. Any other record
takes the slow path; nothing here refuses anything. The hot path of every send. Pure.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any

from rmq.log.records.checking import claims
from rmq.log.records.crc import crc32
from rmq.log.records.delays import LEVELS_MS, OUT_DIGITS, OUT_ROOM, asked_time
from rmq.log.records.halves import ASKED, LONGEST_GROUP, ROOM_BYTES, target, transaction_id
from rmq.log.records.many import draft_many
from rmq.log.records.properties import (
    CRC_BYTES,
    MAX_PROPERTIES_BYTES,
    code_of,
    fast_given,
    fast_given_half,
    fast_given_leveled,
    fast_given_timed,
    fast_properties,
    given_pairs,
)
from rmq.log.records.record import CRC_MASK, EMPTY_CRC, draft, topic_field_of
from rmq.model import DELAY_TOPIC, HALF_TOPIC, TIMER_TOPIC

__all__ = [
    "draft", "draft_many", "fast_check", "fast_draft", "fast_given", "fast_given_half", "given_pairs", "matched_delayed",
    "matched_draft", "matched_half", "matched_timed",
]  # fmt: skip

MatchedDelayed = Callable[[bytes, bytes, int, int, bytes], tuple[bytes, bytes, int] | None]
MatchedTimed = Callable[[bytes, bytes, int, int, bytes], tuple[bytes, bytes, int, int, bool, int] | None]
MatchedDraft = Callable[[bytes, bytes, bytes, bytes | None, int, int, bytes, int], tuple[bytes, int] | None]

_length = Struct(">H").pack
_head = Struct(">iii4xi16x4xq8s16xi8xi").pack  # the broker's own fields are blank
MAX_TOPICS = 4096  # remembered, in each of two tables
MAX_LENGTHS = 64  # of properties that are remembered for a topic
_GROUP = b"\x02PGROUP\x01"


@lru_cache(maxsize=MAX_TOPICS)
def fast_check(topic: str) -> Callable[[bytes], int | None]:
    """A function for the records of that topic: the tag's hash, if it is given exactly one record of the usual kind.

    It sees at once what `check` finds step by step; where it returns None nothing is wrong yet, but `check` must look.
    """
    magic, topic_field = topic_field_of(topic)
    fixed = 90 + len(topic_field)
    middles: dict[int, bytes] = {}  # length of the properties -> what stands before them

    def tag_of(records: bytes) -> int | None:
        if len(records) < fixed:
            return None
        total, said, body_crc, sys_flag, prepared, body_length = claims(records)
        if total != len(records) or said != magic or sys_flag or prepared or body_length < 0:
            return None
        length = total - fixed - body_length
        middle = middles.get(length)
        if middle is None:
            if not CRC_BYTES <= length <= MAX_PROPERTIES_BYTES + CRC_BYTES:
                return None
            if len(middles) >= MAX_LENGTHS:
                middles.clear()
            middle = middles[length] = topic_field + _length(length)
        topic_at = 88 + body_length
        if not records.startswith(middle, topic_at) or crc32(records[88:topic_at]) & CRC_MASK != body_crc:
            return None
        match = fast_properties(records, total - length)
        if match is None:
            return None
        tag = match[1]
        return 0 if tag is None else code_of(tag)

    return tag_of


@lru_cache(maxsize=MAX_TOPICS)
def matched_draft(topic: str, added: bytes) -> MatchedDraft:
    """A function for the messages of that topic: `draft` and `check` in one, for a message whose properties have been matched by
    `given_pairs`.

    It takes body, properties, unique id, tag, flag, born timestamp, born host and reconsumeTimes, and returns the record and the
    hash of its tag; None: the message must take the slow path. `added`: the properties that the broker adds to the client's.
    Raises struct.error for numbers that do not fit.
    """
    magic, topic_field = topic_field_of(topic)
    fixed, more, tail = 90 + len(topic_field), len(added) + CRC_BYTES, added + EMPTY_CRC
    middles: dict[int, bytes] = {}  # length of the properties -> what stands before them

    def draft_matched(
        body: bytes,
        properties: bytes,
        _unique_id: bytes,
        tag: bytes | None,
        flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> tuple[bytes, int] | None:
        length, size = len(properties) + more, len(body)
        middle = middles.get(length)
        if middle is None:
            if length > MAX_PROPERTIES_BYTES + CRC_BYTES:
                return None
            if len(middles) >= MAX_LENGTHS:
                middles.clear()
            middle = middles[length] = topic_field + _length(length)
        if len(born_host) != 8:
            return None
        crc, total = crc32(body) & CRC_MASK, fixed + size + length
        head = _head(total, magic, crc, flag, born_timestamp, born_host, reconsume_times, size)
        return b"".join((head, body, middle, properties, tail)), 0 if tag is None else code_of(tag)

    return draft_matched


def matched_half(topic: str, queue_id: int, group: str, added: bytes) -> MatchedDraft:
    """As `matched_draft`, for halves of that producer group for that queue, whose properties have been matched by `given_pairs`
    for halves: their records as they wait."""
    draft = matched_draft(HALF_TOPIC, added + target(topic, queue_id))
    owner, asked = _GROUP + group.encode() + b"\x02", b"\x02" + ASKED
    most = MAX_PROPERTIES_BYTES - ROOM_BYTES - CRC_BYTES - len(added) if len(group) <= LONGEST_GROUP else -1

    def draft_half(body: bytes, properties: bytes, unique_id: bytes, *others: Any) -> tuple[bytes, int] | None:
        marked = b"\x02" + properties
        if asked not in marked or not marked.startswith(owner, marked.rfind(_GROUP)) or len(properties) > most:
            return None
        return draft(body, properties + transaction_id(unique_id), unique_id, *others)

    return draft_half


def matched_delayed(topic: str, queue_id: int, added: bytes) -> MatchedDelayed:
    """A function for messages with a delay level for that queue, whose properties nobody has looked at.

    It takes body, properties, flag, born timestamp and born host, and returns the record as it waits, its UNIQ_KEY and the level.
    None: the message must take the slow path; it may have no level. Raises struct.error for numbers that do not fit.
    """
    draft = matched_draft(DELAY_TOPIC, added + target(topic, queue_id))
    most = MAX_PROPERTIES_BYTES - ROOM_BYTES - CRC_BYTES - len(added)

    def draft_delayed(
        body: bytes, properties: bytes, flag: int, born_timestamp: int, born_host: bytes
    ) -> tuple[bytes, bytes, int] | None:
        match = fast_given_leveled(properties)
        if match is None:
            return None
        unique_id, level, _ = match.groups()
        if unique_id is None or level is None or len(properties) > most or (number := int(level)) > len(LEVELS_MS):
            return None
        made = draft(body, properties, unique_id, None, flag, born_timestamp, born_host, 0)
        return None if made is None else (made[0], unique_id, number)

    return draft_delayed


def matched_timed(topic: str, queue_id: int, added: bytes) -> MatchedTimed:
    """As `matched_delayed`, for messages with a time of their own. It returns the record as it waits, with room for
    TIMER_OUT_MS, its UNIQ_KEY, the hash of its tag, the time in ms, whether that counts from now on, and where the room is."""
    behind = target(topic, queue_id)
    draft = matched_draft(TIMER_TOPIC, added + OUT_ROOM + behind)
    most = MAX_PROPERTIES_BYTES - ROOM_BYTES - CRC_BYTES - len(added)
    room = OUT_DIGITS + 1 + len(behind) + CRC_BYTES

    def draft_timed(
        body: bytes, properties: bytes, flag: int, born_timestamp: int, born_host: bytes
    ) -> tuple[bytes, bytes, int, int, bool, int] | None:
        match = fast_given_timed(properties)
        if match is None:
            return None
        unique_id, *asked, tag = match.groups()
        ms, is_delay = asked_time(*asked)
        if unique_id is None or not ms or len(properties) > most:
            return None
        made = draft(body, properties, unique_id, tag, flag, born_timestamp, born_host, 0)
        if made is None:
            return None
        records, code = made
        return records, unique_id, code, ms, is_delay, len(records) - room

    return draft_timed


def fast_draft(
    topic: str,
    added: bytes,
    body: bytes,
    properties: bytes,
    flag: int,
    born_timestamp: int,
    born_host: bytes,
    reconsume_times: int,
) -> tuple[bytes, int, bytes] | None:
    """As `matched_draft`, for properties that nobody has looked at: the record, the hash of its tag and its UNIQ_KEY."""
    match = fast_given(properties)
    if match is None or match[1] is None:
        return None
    made = matched_draft(topic, added)(body, properties, match[1], match[2], flag, born_timestamp, born_host, reconsume_times)
    return None if made is None else (*made, match[1])
