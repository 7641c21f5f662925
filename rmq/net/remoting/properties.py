"""The properties that RocketMQ's clients send with a message, and those among them that a broker writes. Pure."""

import re

_BROKERS = frozenset({  # a consumer gives them back when it sends the message on, or to its retry topic
    b"POP_CK", b"POP_CK_OFFSET", b"RMQ_SRC", b"REAL_TOPIC", b"REAL_QID", b"TIMER_OUT_MS", b"TIMER_ENQUEUE_MS",
    b"TIMER_DEQUEUE_MS", b"TIMER_ROLL_TIMES", b"TIMER_ROLL_LABEL", b"TIMER_DELAY_LEVEL", b"INNER_MULTI_QUEUE_OFFSET",
})  # fmt: skip
_DROPPED = _BROKERS | {b"__CRC32#", b"MSG_REGION", b"TRACE_ON", b"CLUSTER"}  # or replaced by our values
_DROPPED_IN_BATCH = _BROKERS | {b"TRAN_MSG"}  # no half is in a batch: it is a committed one, which a consumer sends on
_TIMES = frozenset({b"DELAY", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS"})  # stay with a message that has waited
_HAS_WAITED = frozenset({b"REAL_TOPIC", b"TIMER_OUT_MS"})
_finds_dropped = re.compile(rb"\x02(?:" + b"|".join(map(re.escape, sorted(_DROPPED))) + rb")\x01").search


def pairs_in(text: bytes) -> list[tuple[bytes, bytes]]:
    pairs = []
    for entry in text.split(b"\x02"):
        name, mark, value = entry.partition(b"\x01")
        if name and mark:
            pairs.append((name, value))
    return pairs


def joined(pairs: dict[bytes, bytes]) -> bytes:
    return b"".join([b"%b\x01%b\x02" % pair for pair in pairs.items()])


def has_dropped(text: bytes) -> bool:
    """Whether a single message brings properties that are dropped."""
    return _finds_dropped(b"\x02" + text) is not None


def without_dropped(text: bytes) -> bytes:
    return joined({name: value for name, value in pairs_in(text) if name not in _DROPPED})


def sent_on(text: bytes) -> bytes:
    """Those of a message in a batch, which are stored as they come but for what only brokers write. One that a consumer sends on
    does not wait again."""
    pairs = pairs_in(text)
    dropped = _DROPPED_IN_BATCH if _HAS_WAITED.isdisjoint(name for name, _ in pairs) else _DROPPED_IN_BATCH | _TIMES
    kept = {name: value for name, value in pairs if name not in dropped}
    return text if len(kept) == len(pairs) else joined(kept)
