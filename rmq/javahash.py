"""Java's `String.hashCode`, which RocketMQ keeps in its files: tag codes, index keys, heartbeat fingerprints.

Bottom floor: arithmetic only. What is hashed, and what for, is the caller's.
"""

import struct
from functools import lru_cache

MAX_HASHES = 1024  # remembered; a peer's text may have 32 KB


@lru_cache(maxsize=MAX_HASHES)
def java_hash(text: str) -> int:
    """The signed 32-bit hash of `text`: h = 31 * h + unit over its UTF-16 code units [java.lang.String.hashCode].

    Remembered for the latest texts: the same tags come again and again.
    """
    value = 0
    for unit in _utf16_units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def tags_code(tag: str) -> int:
    """The code of a message's tag in a ConsumeQueue entry, and in filters; 0 without a tag
    [MessageExtBrokerInner.tagsString2tagsCode]."""
    return java_hash(tag) if tag else 0


def utf16_length(text: str) -> int:
    """How many UTF-16 code units Java counts in it [String.length]."""
    return len(text.encode("utf-16-be", "surrogatepass")) // 2


def _utf16_units(text: str) -> bytes | tuple[int, ...]:
    if text.isascii():
        return text.encode("ascii")
    units = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(units) // 2}H", units)


def consistent_bucket(value: int, buckets: int) -> int:
    """Which of so many buckets a hash belongs to [com.google.common.hash.Hashing.consistentHash], so that another number of
    buckets moves as few as can be."""
    state, candidate = value & _LONG, 0
    while True:
        state = (2862933555777941757 * state + 1) & _LONG
        following = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if not 0 <= following < buckets:
            return candidate
        candidate = following


_LONG = (1 << 64) - 1
