"""What a record is found by in the index: its unique key, its keys, its tag, and their hashes. Pure: no I/O, no clock.

A key is hashed as `topic#word`, a tag as `topic#T#tag`: Java's hash without its sign [IndexFile.indexKeyHashMethod].
`rmq.log.index.harvest` does the same for many records at once.
"""

from collections.abc import Callable

from rmq.javahash import java_hash
from rmq.log.records.properties import bytes_to_properties
from rmq.log.records.record import Record

_MAX_INT32 = 0x7FFF_FFFF


def key_hash(topic: str, word: str, *, tag: bool = False) -> int:
    """The hash under which a message of `topic` is found by a key, its unique key, or (`tag`) its tag."""
    value = abs(java_hash(f"{topic}#T#{word}" if tag else f"{topic}#{word}"))
    return value if value <= _MAX_INT32 else 0


def hashes_of(topic: str, properties: bytes) -> list[int]:
    """The hashes of one record, in RocketMQ's order: unique key, keys, tag [IndexService.buildIndex]."""
    said = bytes_to_properties(properties)
    words = [said.get("UNIQ_KEY", ""), *said.get("KEYS", "").split(" ")]
    found = [key_hash(topic, word) for word in words if word]
    return [*found, key_hash(topic, said["TAGS"], tag=True)] if "TAGS" in said else found


def matcher(word: str, *, tag: bool = False) -> Callable[[Record], bool]:
    """Whether a record really matches the query: hashes of different words may be equal."""

    def matches(found: Record) -> bool:
        properties = bytes_to_properties(found.properties)
        if tag:
            return properties.get("TAGS") == word
        return properties.get("UNIQ_KEY") == word or word in properties.get("KEYS", "").split(" ")

    return matches
