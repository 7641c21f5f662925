"""Epochs: which leader wrote which bytes. The epoch table (epoch -> first offset), and the log records that carry it.

An epoch record is an ordinary record of the topic rmq_sys_EPOCH; its body is a msgpack map. The table can be rebuilt
from the log alone; the file `epochs` is a cache. This file does not decide who may begin an epoch.
"""

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, NamedTuple

import msgpack

from rmq.errors import BadBytes
from rmq.model import EpochRow, Voter

__all__ = ["EpochRecord", "EpochRow", "Voter", "merged", "pack", "unpack"]

START, ROLL = "start", "roll"
ROCKETMQ_EPOCH = 0  # the epoch of bytes that Apache RocketMQ wrote; their rows may stand between ours
MAX_ROWS = 64  # in a record


class EpochRecord(NamedTuple):
    """The body of an epoch record. `kind`: "start" is a leader's first append, "roll" the first record of a segment.

    `lossy`: acknowledged bytes may be gone before it. `voters`: (node id, storeId, address) of every voter.
    `table`: the newest 64 rows, this epoch's included.
    """

    epoch: int
    start: int
    writer: str
    node_id: str
    kind: str
    lossy: bool
    voters: tuple[Voter, ...]
    table: tuple[EpochRow, ...]

    def row(self) -> EpochRow:
        return EpochRow(self.epoch, self.start, self.writer, self.lossy)


def pack(record: EpochRecord) -> bytes:
    values = (*record[:6], record.voters, record.table[-MAX_ROWS:])
    return bytes(msgpack.packb(dict(zip(_KEYS, values, strict=True))))


def unpack(body: bytes) -> EpochRecord:
    """Raises BadBytes."""
    try:
        found: dict[str, Any] = msgpack.unpackb(body)
        e, s, w, n, k, lossy, voters, table = (found[key] for key in _KEYS)
        rows = tuple(EpochRow(*row) for row in table)
        return EpochRecord(int(e), int(s), str(w), str(n), str(k), bool(lossy), tuple(Voter(*voter) for voter in voters), rows)
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise BadBytes(f"an epoch record of {len(body)} bytes cannot be read: {error!r}") from error


_start = attrgetter("start")
_KEYS = ("e", "s", "w", "n", "k", "lossy", "voters", "table")


def merged(table: tuple[EpochRow, ...], row: EpochRow) -> tuple[EpochRow, ...]:
    """The table with that row as its newest; rows that begin at or behind it go."""
    return (*(old for old in table if old.start < row.start and (old.epoch < row.epoch or row.epoch == ROCKETMQ_EPOCH)), row)


def joined(table: tuple[EpochRow, ...], record: EpochRecord) -> tuple[EpochRow, ...]:
    """The table with all rows of an epoch record found in the log; rows that the record does not know stay."""
    said = {row.start: row for row in (*record.table, record.row())}
    return tuple(row for _, row in sorted(({row.start: row for row in table} | said).items()))


def pieces(rows: tuple[EpochRow, ...], from_: int, to: int) -> Iterator[tuple[int, int, bool]]:
    """[from_, to) cut where the writer changes: (start, end, whether we wrote the bytes). Bytes without a row are ours."""
    start, ours = from_, True
    for row in rows:
        if row.start > start:
            end = min(row.start, to)
            yield start, end, ours
            start = end
        if start >= to:
            return
        ours = row.epoch != ROCKETMQ_EPOCH
    if start < to:
        yield start, to, ours


def written_by_rocketmq(rows: tuple[EpochRow, ...], offset: int) -> bool:
    """Whether Apache RocketMQ wrote the byte at `offset`."""
    after = bisect_right(rows, offset, key=_start)
    return after > 0 and rows[after - 1].epoch == ROCKETMQ_EPOCH
