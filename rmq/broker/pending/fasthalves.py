"""The fast path for halves of the usual kind: does in one go what `checking.check` and `halves` do step by step.

Usual is: one record, IPv4 hosts, no system flag but that of a half, properties of ASCII pairs, of which none asks for a delay,
a light queue or a time of its own for checks. Any other half takes the slow path; nothing here refuses anything. Pure.
"""

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from rmq.delivery.proof import HALF, Proof
from rmq.delivery.transactions import Target
from rmq.log.records.checking import claims
from rmq.log.records.crc import crc32
from rmq.log.records.halves import ASKED, LONGEST_GROUP, ROOM_BYTES, target, transaction_id
from rmq.log.records.properties import CRC_BYTES, MAX_PROPERTIES_BYTES, code_of, fast_half, fast_waiting
from rmq.log.records.record import CRC_MASK, EMPTY_CRC, SYS_COMMIT, SYS_PREPARED, topic_field_of
from rmq.model import HALF_TOPIC, PROOF_PROPERTY

_BODY: Final = 88  # where it begins
_MAGIC, _TOPIC_FIELD = topic_field_of(HALF_TOPIC)
_length = Struct(">H").pack
# The broker's own fields come along as they are: they are stamped anew. Between them sysFlag, preparedTransactionOffset.
_waiting_head = Struct(">ii28si48s").pack
_committed_head = Struct(">ii28si36sq4s").pack
_proof = b"%b\x01%b %%d %d\x02%b" % (PROOF_PROPERTY.encode(), HALF.encode(), Proof(HALF, 0).detail, EMPTY_CRC)
_LEAST: Final = _BODY + 3 + CRC_BYTES
_MAX_TARGETS: Final = 4096  # remembered
_new = tuple.__new__  # a NamedTuple in half the time


class Waiting(NamedTuple):
    """A half as it is to wait. `code`: the hash of its tag. `group`: of its producers."""

    draft: bytes
    code: int
    group: str


class Committed(NamedTuple):
    """A message as a commit stores it, and where."""

    topic: str
    queue_id: int
    draft: bytes
    code: int


@lru_cache(maxsize=_MAX_TARGETS)
def _fields_of(topic: str, queue_id: int) -> tuple[int, bytes, bytes]:
    """Of halves for that queue: magic number and topic as they are sent, and how they end as they wait."""
    return *topic_field_of(topic), target(topic, queue_id) + EMPTY_CRC


def waiting(records: bytes, topic: str, queue_id: int) -> Waiting | None:
    """What `half_interceptor` makes of a half that was sent to that queue."""
    total = len(records)
    if total < _LEAST:
        return None
    said_total, said, body_crc, sys_flag, prepared, body_length = claims(records)
    if body_length < 0 or records.find(ASKED, _BODY + body_length) < 0:
        return None
    magic, topic_field, tail = _fields_of(topic, queue_id)
    if total != said_total or said != magic or sys_flag & ~SYS_PREPARED or prepared:
        return None
    topic_at = _BODY + body_length
    properties_at = topic_at + len(topic_field) + 2
    size = total - properties_at
    body = records[_BODY:topic_at]
    if (
        not CRC_BYTES <= size <= MAX_PROPERTIES_BYTES - ROOM_BYTES
        or not records.startswith(topic_field + _length(size), topic_at)
        or crc32(body) & CRC_MASK != body_crc
        or records[72:76] != b"\0\0\0\0"  # reconsumeTimes: one that failed and comes again is whole
    ):
        return None
    match = fast_half(records, properties_at)
    if match is None:
        return None
    asked, group, unique_id, tag = match.groups()
    if asked is None or group is None or unique_id is None or len(group) > LONGEST_GROUP:
        return None
    properties = records[properties_at:-CRC_BYTES] + transaction_id(unique_id) + tail
    size = len(properties)
    head = _waiting_head(topic_at + len(_TOPIC_FIELD) + 2 + size, _MAGIC, records[8:36], 0, records[40:_BODY])
    draft = b"".join((head, body, _TOPIC_FIELD, _length(size), properties))
    return _new(Waiting, (draft, 0 if tag is None else code_of(tag), group.decode()))


def committed(stored: bytes, first: int, target: Target | None = None) -> Committed | None:
    """What `halves.committed` makes of the half that is stored so (a whole record) at `first`. `target`: it is of the usual kind,
    as `waiting` or the codec made it, and this is what it says."""
    if len(stored) < _LEAST:
        return None
    _, magic, _, sys_flag, prepared, body_length = claims(stored)
    topic_at = _BODY + body_length
    if magic != _MAGIC or sys_flag or prepared or not stored.startswith(_TOPIC_FIELD, topic_at):
        return None
    properties_at = topic_at + len(_TOPIC_FIELD) + 2
    if target is None:
        match = fast_waiting(stored, properties_at)
        if match is None:
            return None
        kept, tag, real_topic, real_queue = match.groups()
        topic, queue_id, code = real_topic.decode(), int(real_queue), 0 if tag is None else code_of(tag)
        magic, topic_field, _ = _fields_of(topic, queue_id)
    else:
        topic, queue_id, code = target
        magic, topic_field, tail = _fields_of(topic, queue_id)
        kept = stored[properties_at : -len(tail)]
    proof = _proof % first
    size = len(kept) + len(proof)
    if size > MAX_PROPERTIES_BYTES:
        return None
    total = topic_at + len(topic_field) + 2 + size
    head = _committed_head(total, magic, stored[8:36], SYS_COMMIT, stored[40:76], first, stored[84:_BODY])
    draft = b"".join((head, stored[_BODY:topic_at], topic_field, _length(size), kept, proof))
    return _new(Committed, (topic, queue_id, draft, code))
