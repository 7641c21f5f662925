"""The epoch table: which leader wrote which bytes, and where two logs part. Starts strictly rise.

The epoch of an entry is that of the last row whose start is not behind the entry's. Two rows are the same if both epoch and
writer are, because two masters made by hand can pick the same number.
"""

from typing import NamedTuple

from rmq.model import EpochRow
from rmq.raft.messages import Rows


class Parting(NamedTuple):
    """The largest row of the leader not above the follower's, and where it ends. `lossy`: the row after it is."""

    epoch: int
    end: int
    writer: str
    lossy: bool


def last(rows: Rows) -> tuple[int, str]:
    """(epoch, writer) of the newest row; (0, "") when there is none."""
    return (rows[-1].epoch, rows[-1].writer) if rows else (0, "")


def end_of(rows: Rows, index: int, end: int) -> int:
    """Where the row ends: the start of the next one, or the end of the log."""
    return rows[index + 1].start if index + 1 < len(rows) else end


def find(rows: Rows, epoch: int, writer: str) -> int:
    """The index of that row, -1 if there is none."""
    for index in range(len(rows) - 1, -1, -1):
        if rows[index].epoch == epoch and rows[index].writer == writer:
            return index
    return -1


def merged(rows: Rows, row: EpochRow) -> Rows:
    """The table with that row, if it is newer than all others."""
    return (*rows, row) if not rows or row.epoch > rows[-1].epoch else rows


def below(rows: Rows, end: int) -> Rows:
    """The rows of a log that is cut to `end`."""
    return tuple(row for row in rows if row.start < end)


def known_at(rows: Rows, log_start: int) -> Rows:
    """The rows of an empty log that begins at `log_start`. Later rows come again with their records; foreign bytes have none."""
    return tuple(row for row in rows if row.start < log_start or row.epoch == 0)


def from_start(rows: Rows, log_start: int) -> Rows:
    """Without rows whose bytes are all gone; the one that covers the start stays."""
    first = 0
    while first + 1 < len(rows) and rows[first + 1].start <= log_start:
        first += 1
    return rows[first:]


def holds(rows: Rows, log_start: int, end: int, offset: int, epoch: int, writer: str) -> bool:
    """Leader: whether a log that ends at `offset` in that epoch is a prefix of this one (R14). `offset` >= log_start.

    An empty log is one, unless this log begins with bytes of Apache RocketMQ: those a follower must take from a snapshot.
    """
    index = find(rows, epoch, writer)
    if index < 0:
        foreign = bool(rows) and rows[0].epoch == 0
        return epoch == 0 and not writer and offset == log_start and not foreign
    return offset <= end_of(rows, index, end)


def parting(rows: Rows, end: int, epoch: int) -> Parting | None:
    """Leader: where to go on looking for the common part; None if nothing is in common."""
    for index in range(len(rows) - 1, -1, -1):
        if rows[index].epoch <= epoch:
            row = rows[index]
            lossy = index + 1 < len(rows) and rows[index + 1].lossy
            return Parting(row.epoch, end_of(rows, index, end), row.writer, lossy)
    return None


def cut_at(rows: Rows, end: int, epoch: int, parted_end: int, writer: str) -> int:
    """Follower: where to cut its own log when the leader's row (epoch, writer) ends at `parted_end`.

    Every round drops a row or ends, so there are at most as many rounds as rows (R14).
    """
    index = find(rows, epoch, writer)
    if index >= 0:
        return min(parted_end, end_of(rows, index, end))
    for row in rows:
        if row.epoch >= epoch:
            return row.start
    return end
