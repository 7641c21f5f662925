"""The epoch history: which leader wrote which bytes of the log, and where two logs part. The starts of its entries strictly rise.

A record belongs to the last entry that starts at or before it. Two entries are the same if both epoch and writer are, because
two masters made by hand can pick the same epoch.
"""

from typing import NamedTuple

from rmq.model import EpochEntry, EpochHistory


class Parting(NamedTuple):
    """The leader's newest entry that is not newer than the follower's, and where it ends. `lossy`: the next entry is."""

    epoch: int
    end: int
    writer: str
    lossy: bool


def last(history: EpochHistory) -> tuple[int, str]:
    """(epoch, writer) of the newest entry; (0, "") when there is none."""
    return (history[-1].epoch, history[-1].writer) if history else (0, "")


def end_of(history: EpochHistory, index: int, end: int) -> int:
    """Where the entry ends: the start of the next one, or the end of the log."""
    return history[index + 1].start if index + 1 < len(history) else end


def find(history: EpochHistory, epoch: int, writer: str) -> int:
    """The index of that entry, -1 if there is none."""
    for index in range(len(history) - 1, -1, -1):
        if history[index].epoch == epoch and history[index].writer == writer:
            return index
    return -1


def merged(history: EpochHistory, entry: EpochEntry) -> EpochHistory:
    """The history with that entry, if the entry is newer than all others. It may start before bytes of RocketMQ that are known
    from a snapshot and still to come."""
    if history and entry.epoch <= max(one.epoch for one in history):
        return history
    return (*below(history, entry.start), entry, *(one for one in history if one.start >= entry.start))


def below(history: EpochHistory, end: int) -> EpochHistory:
    """The history of a log that is cut to `end`."""
    return tuple(entry for entry in history if entry.start < end)


def known_at(history: EpochHistory, log_start: int) -> EpochHistory:
    """The history of an empty log that begins at `log_start`. Later entries come again with their records; bytes that RocketMQ
    wrote have no such record."""
    return tuple(entry for entry in history if entry.start < log_start or entry.epoch == 0)


def from_start(history: EpochHistory, log_start: int) -> EpochHistory:
    """The history without entries whose bytes are all gone. The entry that covers the start stays."""
    first = 0
    while first + 1 < len(history) and history[first + 1].start <= log_start:
        first += 1
    return history[first:]


def holds(history: EpochHistory, log_start: int, end: int, offset: int, epoch: int, writer: str) -> bool:
    """Leader: whether a log that ends at `offset` in that epoch is a prefix of this one (R14). `offset` >= log_start.

    An empty log is one, unless this log has bytes of Apache RocketMQ: where those are a follower learns from a snapshot only.
    """
    index = find(history, epoch, writer)
    if index < 0:
        by_rocketmq = any(entry.epoch == 0 for entry in history)
        return epoch == 0 and not writer and offset == log_start and not by_rocketmq
    return offset <= end_of(history, index, end)


def misses_rocketmqs(history: EpochHistory, offset: int, epoch: int, writer: str) -> bool:
    """Leader: whether Apache RocketMQ wrote at or behind `offset`, where a log of that epoch ends, and its node does not know it:
    who knows that names the newest bytes of RocketMQ's until an epoch behind them begins."""
    index = find(history, epoch, writer)
    return index >= 0 and any(entry.epoch == 0 and entry.start >= offset for entry in history[index + 1 :])


def parting(history: EpochHistory, end: int, epoch: int) -> Parting | None:
    """Leader: where to go on looking for the common part; None if nothing is in common."""
    for index in range(len(history) - 1, -1, -1):
        if history[index].epoch <= epoch:
            entry = history[index]
            lossy = index + 1 < len(history) and history[index + 1].lossy
            return Parting(entry.epoch, end_of(history, index, end), entry.writer, lossy)
    return None


def cut_at(history: EpochHistory, end: int, epoch: int, parted_end: int, writer: str) -> int:
    """Follower: where to cut its own log when the leader's entry (epoch, writer) ends at `parted_end`.

    Every round drops an entry or ends, so there are at most as many rounds as entries (R14).
    """
    index = find(history, epoch, writer)
    if index >= 0:
        return min(parted_end, end_of(history, index, end))
    for entry in history:
        if entry.epoch >= epoch:
            return entry.start
    return end
