"""The index entries of records: the hashes of unique key, keys and tag, for many records at once.

A key is hashed as `topic#word`, a tag as `topic#T#tag`: Java's hash without its sign [IndexFile.indexKeyHashMethod]. Such
a hash is a number written in base 31 with the characters as digits, and `int` reads numbers in C: every character becomes
one digit for its remainder by 31 and one for its quotient. Pure: bytes in, numbers out.
"""

import re
from collections.abc import Callable, Iterator
from struct import Struct

from rmq.errors import BadBytes
from rmq.javahash import java_hash
from rmq.log.records.properties import bytes_to_properties
from rmq.log.records.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    SYS_BORN_V6,
    SYS_ROLLBACK,
    SYS_STORE_V6,
    SYS_TRANSACTION,
    Record,
    decode,
)

_UINT32, _INT32 = 0xFFFF_FFFF, 0x7FFF_FFFF
MAX_TOPICS, MAX_TAGS = 2048, 128  # remembered; tags of one topic
_WORD = 64  # characters; longer words are rare and take the slow way

_DIGITS = b"0123456789abcdefghijklmnopqrstu"
_LOW = bytes(_DIGITS[code % 31] for code in range(128)) + bytes(128)
_HIGH = bytes(0 if code == 32 else _DIGITS[code // 31] for code in range(128)) + bytes(128)  # a space ends a word
_HEX = bytes(_DIGITS[code - 48] if 0 <= code - 48 < 31 else 0 for code in range(256))
"""0 to 9 and A to F (in fact to N) as one digit each: clients' unique keys need no quotients. A zero byte is no digit."""

_POWERS = [pow(31, count, 1 << 32) for count in range(_WORD + 1)]
_ZEROS = [java_hash("0" * count) & _UINT32 for count in range(_WORD + 1)]  # `_HEX` leaves these out

_head = Struct(">ii28xi16xq20xi").unpack_from  # totalSize, magic, sysFlag, storeTimestamp, bodyLength; IPv4 hosts
_HEAD_BYTES = 88
_ODD = SYS_BORN_V6 | SYS_STORE_V6 | SYS_TRANSACTION

_pairs = re.compile(
    rb"(?:UNIQ_KEY\x01([^\x02]++)\x02|TAGS\x01([^\x02]++)\x02|KEYS\x01([^\x02]++)\x02|(?![UTK](?:NIQ_KEY|AGS|EYS)\x01)[^\x02]++\x02)*"
).fullmatch
"""All pairs of a record; a group is the last of its name, as RocketMQ reads them. No pair can be read in two ways (S10).

Empty values and RocketMQ 4's records, without the last 0x02, do not match. (Nor may they: a group that is entered and left
by another way has a wrong span in Python 3.11.)
"""


def key_hash(topic: str, word: str, *, tag: bool = False) -> int:
    """The hash under which a message of `topic` is found by a key, its unique key, or (`tag`) its tag."""
    return _without_sign(java_hash(f"{topic}#T#{word}" if tag else f"{topic}#{word}"))


def _without_sign(value: int) -> int:
    """|value| of a 32-bit number, given with or without its sign; 0 for -2^31."""
    value &= _UINT32
    return value if value <= _INT32 else -value & _INT32


def _goes_on(begin: int, word: bytes) -> int:
    """The hash of a text whose beginning has the hash `begin` and that goes on with `word` (UTF-8)."""
    text = word.decode("utf-8", "replace")
    units = len(text.encode("utf-16-be", "surrogatepass")) // 2
    return _without_sign(begin * pow(31, units, 1 << 32) + java_hash(text))


class _Topic:
    """What is remembered of a topic. `words`: what `topic#` adds to the hash of a word of so many characters.

    `uniques`: the same, and the zeros, for words of hexadecimal digits. `tags`: finished hashes.
    """

    __slots__ = ("_begin", "_begin_tag", "tags", "uniques", "words")

    def __init__(self, topic: bytes) -> None:
        text = topic.decode("utf-8", "replace")
        self._begin = java_hash(text + "#") & _UINT32
        self._begin_tag = java_hash(text + "#T#") & _UINT32
        self.words = [self._begin * power & _UINT32 for power in _POWERS]
        self.uniques = [word + zeros for word, zeros in zip(self.words, _ZEROS, strict=True)]
        self.tags: dict[bytes, int] = {}

    def hashes(self, unique: bytes | None, keys: bytes | None, tag: bytes | None) -> Iterator[int]:
        """In RocketMQ's order: unique key, keys, tag [IndexService.buildIndex]."""
        if unique:
            yield self._hash_unique(unique)
        for word in keys.split(b" ") if keys else ():
            if word:
                yield self._hash_word(word)
        if tag:
            yield self.tags.get(tag) or self._hash_tag(tag)

    def _hash_unique(self, unique: bytes) -> int:
        try:
            return _without_sign(self.uniques[len(unique)] + int(unique.translate(_HEX), 31))
        except (IndexError, ValueError):  # no client's generator made it
            return self._hash_word(unique)

    def _hash_word(self, word: bytes) -> int:
        if len(word) > _WORD or not word.isascii() or b" " in word:  # a unique key may hold blanks: it is one word
            return _goes_on(self._begin, word)
        return _without_sign(self.words[len(word)] + int(word.translate(_LOW), 31) + 31 * int(word.translate(_HIGH), 31))

    def _hash_tag(self, tag: bytes) -> int:
        value = _goes_on(self._begin_tag, tag)
        if len(tag) <= _WORD:
            if len(self.tags) >= MAX_TAGS:
                self.tags.clear()
            self.tags[tag] = value
        return value


class Harvester:
    """Takes the entries out of log bytes; remembers topics it has met."""

    def __init__(self) -> None:
        self._topics: dict[bytes, _Topic] = {}

    def harvest(self, buf: bytes, base: int, entries: list[int]) -> int:
        """Adds the entries of the whole records at the beginning of `buf`, whose first byte is at `base` of the log.

        Of each entry four numbers: hash, offset of the record, its store time (ms), 0 (for the number of the entry
        before). How many bytes the records take: it stops before a filler and before one that is cut off. Raises BadBytes.
        """
        at, room = 0, len(buf)
        topics, pairs = self._topics, _pairs
        while at + _HEAD_BYTES <= room:
            total, magic, flags, stored, length = _head(buf, at)
            end = at + total
            if end > room or magic == BLANK_MAGIC:
                break
            name = at + 89 + length
            begin = name + buf[name - 1] + 2 if at + 88 < name < end else end + 1
            match = pairs(buf, begin, end)
            if magic != MAGIC_V1 or flags & _ODD or begin > end or match is None:
                at += self._take_odd(buf, at, base, entries)
                continue
            unique, tag, keys = match.groups()
            if unique or tag or keys:
                field = buf[name : begin - 2]
                topic = topics.get(field) or self._topic(field)
                offset = base + at
                if unique and keys and tag:  # in one go, without calls
                    try:
                        high = 31 * int(keys.translate(_HIGH), 31)
                        first = topic.uniques[len(unique)] + int(unique.translate(_HEX), 31) & _UINT32
                        second = topic.words[len(keys)] + high + int(keys.translate(_LOW), 31) & _UINT32
                        third = topic.tags[tag]
                    except (LookupError, ValueError):  # several keys, or something new or unusual
                        pass
                    else:
                        first = first if first <= _INT32 else -first & _INT32
                        second = second if second <= _INT32 else -second & _INT32
                        entries += (first, offset, stored, 0, second, offset, stored, 0, third, offset, stored, 0)
                        at = end
                        continue
                for value in topic.hashes(unique, keys, tag):
                    entries += (value, offset, stored, 0)
            at = end
        return at

    def _topic(self, field: bytes) -> _Topic:
        if len(self._topics) >= MAX_TOPICS:
            self._topics.clear()
        topic = self._topics[field] = _Topic(field)
        return topic

    def _take_odd(self, buf: bytes, at: int, base: int, entries: list[int]) -> int:
        """Any record, slowly: long topics, IPv6 hosts, transactions, RocketMQ 4's properties. Its size."""
        try:
            found = decode(buf, at)
        except BadBytes as error:
            raise BadBytes(f"CommitLog at {base + at}: {error}") from error
        if found.sys_flag & SYS_TRANSACTION != SYS_ROLLBACK:
            properties = bytes_to_properties(found.properties)
            words = (properties.get(name, "").encode() for name in ("UNIQ_KEY", "KEYS", "TAGS"))
            topic = found.topic.encode()
            for value in (self._topics.get(topic) or self._topic(topic)).hashes(*words):
                entries += (value, base + at, found.store_timestamp, 0)
        return found.total_size


def matcher(word: str, *, tag: bool = False) -> Callable[[Record], bool]:
    """Whether a record really matches the query: hashes of different words may be equal."""

    def matches(found: Record) -> bool:
        properties = bytes_to_properties(found.properties)
        if tag:
            return properties.get("TAGS") == word
        return properties.get("UNIQ_KEY") == word or word in properties.get("KEYS", "").split(" ")

    return matches
