"""Epochs: which leader wrote which bytes. The epoch history (epoch -> first offset), and the log records that carry it.

An epoch record is an ordinary record of the topic rmq_sys_EPOCH; its body is a msgpack map. The history can be rebuilt
from the log alone; the file `epochs` is a cache. This file does not decide who may begin an epoch.
"""

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, NamedTuple

import msgpack

from rmq.errors import BadBytes
from rmq.model import EPOCH_TOPIC, EpochEntry, EpochHistory, Voter

__all__ = ["EpochEntry", "EpochHistory", "EpochRecord", "Voter", "merged", "pack", "unpack"]

START, ROLL = "start", "roll"
ROCKETMQ_EPOCH = 0  # the epoch of bytes that Apache RocketMQ wrote; their entries may stand between ours
MAX_ENTRIES = 64  # in a record


class EpochRecord(NamedTuple):
    """The body of an epoch record. `kind`: "start" is a leader's first append, "roll" the first record of a segment.

    `lossy`: acknowledged bytes may be gone before it. `voters`: (node id, storeId, address) of every voter.
    `epochs`: the newest 64 entries of the epoch history, this epoch's included.
    """

    epoch: int
    start: int
    writer: str
    node_id: str
    kind: str
    lossy: bool
    voters: tuple[Voter, ...]
    epochs: EpochHistory

    def entry(self) -> EpochEntry:
        return EpochEntry(self.epoch, self.start, self.writer, self.lossy)


def pack(record: EpochRecord) -> bytes:
    values = (*record[:6], record.voters, record.epochs[-MAX_ENTRIES:])
    return bytes(msgpack.packb(dict(zip(_KEYS, values, strict=True))))


def unpack(body: bytes) -> EpochRecord:
    """Raises BadBytes."""
    try:
        found: dict[str, Any] = msgpack.unpackb(body)
        e, s, w, n, k, lossy, voters, entries = (found[key] for key in _KEYS)
        history = tuple(EpochEntry(*entry) for entry in entries)
        return EpochRecord(int(e), int(s), str(w), str(n), str(k), bool(lossy), tuple(Voter(*voter) for voter in voters), history)
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise BadBytes(f"an epoch record of {len(body)} bytes cannot be read: {error!r}") from error


MARK = EPOCH_TOPIC.encode()[-5:]  # what epoch records have: looked for in many bytes much sooner than the whole name
_start, _epoch = attrgetter("start"), attrgetter("epoch")
_KEYS = ("e", "s", "w", "n", "k", "lossy", "voters", "table")


def merged(history: EpochHistory, entry: EpochEntry) -> EpochHistory:
    """The history with that entry as its newest; entries that start at or behind it go, but bytes of RocketMQ there, which a
    follower knows from a snapshot, are still to come."""
    before = (old for old in history if old.start < entry.start)
    behind = (old for old in history if old.start > entry.start and old.epoch == ROCKETMQ_EPOCH)
    return (*(old for old in before if old.epoch < entry.epoch or entry.epoch == ROCKETMQ_EPOCH), entry, *behind)


def joined(history: EpochHistory, record: EpochRecord) -> EpochHistory:
    """The history with all entries of an epoch record found in the log; entries that the record does not name stay."""
    said = {entry.start: entry for entry in (*record.epochs, record.entry())}
    return tuple(entry for _, entry in sorted(({entry.start: entry for entry in history} | said).items()))


def pieces(history: EpochHistory, from_: int, to: int) -> Iterator[tuple[int, int, bool]]:
    """[from_, to) cut where the writer changes: (start, end, whether we wrote the bytes). Bytes without an entry are ours."""
    start, ours = from_, True
    for entry in history:
        if entry.start > start:
            end = min(entry.start, to)
            yield start, end, ours
            start = end
        if start >= to:
            return
        ours = entry.epoch != ROCKETMQ_EPOCH
    if start < to:
        yield start, to, ours


def with_rocketmqs(history: EpochHistory, newer: EpochHistory) -> EpochHistory:
    """The history, and of a newer one of the same log the bytes that RocketMQ wrote since."""
    since = history[-1].start if history else -1
    return (*history, *(entry for entry in newer if entry.epoch == ROCKETMQ_EPOCH and entry.start > since))


def up_to(history: EpochHistory, end: int) -> EpochHistory:
    """The history of a log that ends there. Where RocketMQ's bytes begin a follower knows before it has the first of them."""
    return tuple(one for one in history if one.start < end or (one.start == end and one.epoch == ROCKETMQ_EPOCH))


def newest(history: EpochHistory) -> EpochEntry | None:
    """Of the largest epoch: bytes of RocketMQ may stand behind it."""
    return max(history, key=_epoch, default=None)


def risen(history: EpochHistory, entry: EpochEntry) -> EpochHistory:
    """The history with that entry, if its epoch is newer than all others."""
    last = newest(history)
    return merged(history, entry) if last is None or entry.epoch > last.epoch else history


def written_by_rocketmq(history: EpochHistory, offset: int) -> bool:
    """Whether Apache RocketMQ wrote the byte at `offset`."""
    after = bisect_right(history, offset, key=_start)
    return after > 0 and history[after - 1].epoch == ROCKETMQ_EPOCH
