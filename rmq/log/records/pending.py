"""Records that change what is pending: those of topics where messages wait, and those handed on from there. Pure."""

import re

from rmq.log.records.record import Buffer, Record
from rmq.model import DELAY_TOPIC, HALF_TOPIC, OP_TOPIC, PROOF_PROPERTY, REVIVE_PREFIX, STATE_TOPIC, TIMER_TOPIC, is_pending_topic

HANDED_ON = PROOF_PROPERTY.encode() + b"\x01"  # begins the proof in a message that the broker handed on (`rmq.delivery.proof`)
_TOPICS = (STATE_TOPIC, DELAY_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, REVIVE_PREFIX)
_NAMES = (HANDED_ON, *(topic.encode() for topic in _TOPICS))
_find = re.compile(b"|".join(_NAMES)).search


def is_pending_change(record: Record) -> bool:
    """Whether the record is in a topic of pending messages, or was handed on from one."""
    return is_pending_topic(record.topic) or HANDED_ON in record.properties


def may_be_pending_change(buf: Buffer, at: int, size: int) -> bool:
    """Cheaper than decoding the whole record at `at`: False only if it changes neither what is pending nor a table."""
    topic_at = at + 88 + int.from_bytes(buf[at + 84 : at + 88], "big")
    return buf[at + 39] != 0 or _find(buf, topic_at, at + size) is not None  # with flags the topic may stand elsewhere


def names_pending_change(text: bytes) -> bool:
    """The same for topics and properties of many records, joined."""
    return any(name in text for name in _NAMES)  # a third of what one search for all of them takes
