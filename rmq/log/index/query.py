"""Looks up single messages in the log, by offset or by key. Synchronous, may wait for the device: for threads.

Only committed records are found (R18), and only what really carries the key: the index knows hashes.
"""

from typing import NamedTuple, Protocol

from rmq.errors import BadBytes, StoreError
from rmq.log.files import epochs
from rmq.log.files.disk import remedy
from rmq.log.files.epochs import EpochHistory
from rmq.log.index.index import Index
from rmq.log.records import record
from rmq.log.records.indexkeys import matcher

_MAX_EXAMINED = 10_000  # records of one query: words with equal hashes can be made on purpose


class ReadableLog(Protocol):
    @property
    def start(self) -> int: ...

    @property
    def segment_bytes(self) -> int: ...

    @property
    def epochs(self) -> EpochHistory: ...

    def read(self, offset: int, size: int) -> bytes: ...


class KeyQuery(NamedTuple):
    """At most `limit` messages of `topic` that have `word` as a key or unique key (`tag`: as tag), by store time (ms)."""

    topic: str
    word: str
    tag: bool
    limit: int
    begin_ms: int
    end_ms: int


class KeyMatches(NamedTuple):
    """Stored records by their place in the log. `complete`: nothing was left out but what exceeded the limit.

    Damaged records are left out (D8).
    """

    records: list[bytes]
    complete: bool


def record_at(log: ReadableLog, offset: int, committed: int) -> bytes | None:
    """The stored bytes of the record that begins exactly at `offset`; None if none below `committed` does. Raises StoreError."""
    room = min(committed, (offset // log.segment_bytes + 1) * log.segment_bytes) - offset
    if offset < log.start or room < record.MIN_RECORD_BYTES:
        return None
    size = int.from_bytes(log.read(offset, 4), "big")
    if not record.MIN_RECORD_BYTES <= size <= room:
        return None
    data = log.read(offset, size)
    try:
        record.verify(data, 0, offset, not epochs.written_by_rocketmq(log.epochs, offset))
    except BadBytes:
        return None
    return data


def by_key(log: ReadableLog, index: Index, wanted: KeyQuery, committed: int) -> KeyMatches:
    """The newest matches, without what cannot be read. Records that the index does not hold yet are not found: compare its
    position. Raises StoreError where there are none, and the index cannot be read."""
    matches = matcher(wanted.word, tag=wanted.tag)
    found: list[bytes] = []
    complete = True
    try:
        offsets = index.find(wanted.topic, wanted.word, wanted.begin_ms, wanted.end_ms, tag=wanted.tag)
        for examined, offset in enumerate(offsets):
            if len(found) >= wanted.limit or examined >= _MAX_EXAMINED:
                return KeyMatches(found[::-1], complete and len(found) >= wanted.limit)
            data = _readable(log, offset, committed)
            if data is None:
                complete = complete and not log.start <= offset < committed
                continue
            one = record.decode(data)
            if one.topic == wanted.topic and wanted.begin_ms <= one.store_timestamp <= wanted.end_ms and matches(one):
                found.append(data)
    except OSError as error:
        if not found:
            raise StoreError(f"cannot read the index: {remedy(error, 'check the disk')}") from error
        complete = False
    return KeyMatches(found[::-1], complete)


def _readable(log: ReadableLog, offset: int, committed: int) -> bytes | None:
    """As `record_at`; None also where its bytes are damaged, or lie on a bad sector."""
    try:
        return record_at(log, offset, committed)
    except StoreError:
        return None
