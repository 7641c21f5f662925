"""Records that say more than a message does: of topics where messages wait (held ones), and those handed on from there. Pure."""

import re

from rmq.log.records.record import Buffer, Record
from rmq.model import DELAY_TOPIC, HALF_TOPIC, OP_TOPIC, REVIVE_PREFIX, STATE_TOPIC, TIMER_TOPIC, is_held_topic

HANDED_ON = b"RMQ_SRC\x01"  # begins the proof in a message that the broker handed on (`rmq.delivery.proof`)
_NAMES = (STATE_TOPIC, DELAY_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, REVIVE_PREFIX)
_find = re.compile(b"|".join([HANDED_ON, *(name.encode() for name in _NAMES)])).search


def is_special(record: Record) -> bool:
    """Whether it is of a topic of held messages, or was handed on from one."""
    return is_held_topic(record.topic) or HANDED_ON in record.properties


def may_be_special(buf: Buffer, at: int, size: int) -> bool:
    """Of the whole record at `at`, cheaper than decoding it: False only for those that are neither special nor state records."""
    topic_at = at + 88 + int.from_bytes(buf[at + 84 : at + 88], "big")
    return buf[at + 39] != 0 or _find(buf, topic_at, at + size) is not None  # with flags the topic may stand elsewhere
