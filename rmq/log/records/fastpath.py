"""The fast path for the usual kind of record: does in one go what `checking.check` and `record.draft` do step by step.

Usual is: one record, IPv4 hosts, no system flags, properties of ASCII pairs without a reserved name. Any other record
takes the slow path; nothing here refuses anything. The hot path of every send. Pure.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct

from rmq.log.records.checking import claims
from rmq.log.records.crc import crc32
from rmq.log.records.many import draft_many
from rmq.log.records.properties import CRC_BYTES, MAX_PROPERTIES_BYTES, code_of, fast_given, fast_properties
from rmq.log.records.record import CRC_MASK, EMPTY_CRC, draft, topic_field_of

__all__ = ["draft", "draft_many", "fast_check", "fast_draft"]

FastDraft = Callable[[bytes, bytes, int, int, bytes, int], tuple[bytes, int, bytes] | None]

_length = Struct(">H").pack
_head = Struct(">iii4xi16x4xq8s16xi8xi").pack  # the broker's own fields are blank
MAX_TOPICS = 4096  # remembered, in each of two tables
MAX_LENGTHS = 64  # of properties that are remembered for a topic


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
def fast_draft(topic: str, added: bytes) -> FastDraft:
    """A function for the messages of that topic: `draft` and `check` in one, for a message of the usual kind.

    It takes body, properties, flag, born timestamp, born host and reconsumeTimes, and returns the record, the hash of its
    tag and its UNIQ_KEY; None: the message must take the slow path. `added`: the properties that the broker adds to the
    client's. Raises struct.error for numbers that do not fit.
    """
    magic, topic_field = topic_field_of(topic)
    fixed, more, tail = 90 + len(topic_field), len(added) + CRC_BYTES, added + EMPTY_CRC
    middles: dict[int, bytes] = {}  # length of the properties -> what stands before them

    def draft_fast(
        body: bytes, properties: bytes, flag: int, born_timestamp: int, born_host: bytes, reconsume_times: int
    ) -> tuple[bytes, int, bytes] | None:
        match = fast_given(properties)
        if match is None or len(born_host) != 8:
            return None
        unique_key, tag = match.groups()
        if unique_key is None:
            return None
        length, size = len(properties) + more, len(body)
        middle = middles.get(length)
        if middle is None:
            if length > MAX_PROPERTIES_BYTES + CRC_BYTES:
                return None
            if len(middles) >= MAX_LENGTHS:
                middles.clear()
            middle = middles[length] = topic_field + _length(length)
        crc, total = crc32(body) & CRC_MASK, fixed + size + length
        head = _head(total, magic, crc, flag, born_timestamp, born_host, reconsume_times, size)
        return b"".join((head, body, middle, properties, tail)), 0 if tag is None else code_of(tag), unique_key

    return draft_fast
