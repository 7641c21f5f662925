"""A log that grows: where it ends, the parts between two offsets, and where a number of messages ends. No Spark.

Only committed bytes count in a store that knows what is committed; else whole records up to the last one. `stores` are copies of
one log.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from analytics.records.batches import count
from analytics.stores.copies import log_of
from analytics.stores.files import Directory
from analytics.stores.options import Wanted
from analytics.stores.segments import Part, parts_of
from analytics.stores.walk import Block, SegmentGone, walk
from rmq.errors import StoreError
from rmq.log.files.epochs import EpochHistory

Epoch = list[Any]  # number, start, writer: as JSON has it


def first_offset(stores: Sequence[Directory], from_ms: int) -> int:
    """The offset where records of that time and later begin. Raises InvalidArgument, StoreError."""
    parts = parts_of(log_of(stores), from_ms)
    return parts[0].start if parts else last_offset(stores, 0)


def last_offset(stores: Sequence[Directory], after: int) -> int:
    """The end of the last record that counts. The search starts at `after`, where a record begins.

    Raises InvalidArgument (no store), StoreError.
    """
    log = log_of(stores)
    if log.committed is not None:
        return log.committed
    end = after
    for part in parts_of(log)[-1:]:
        end = begin = max(part.start, after)
        if begin < part.stop:
            for found in walk(part._replace(start=begin)):
                end = int(found.head["physical_offset"][-1] + found.head["size"][-1]) if isinstance(found, Block) else found.end
    return end


def between(stores: Sequence[Directory], start: int, stop: int, fail_on_loss: bool) -> list[Part]:
    """The parts of [start, stop): both are beginnings or ends of records.

    Raises StoreError if retention took some of it, or if the log ends before (a copy that is behind, or another store).
    """
    parts = parts_of(log_of(stores))
    if fail_on_loss and start < stop and parts and parts[-1].stop < stop:
        raise StoreError(behind(stores, parts[-1].stop, stop))
    oldest = parts[0].start if parts else stop
    if fail_on_loss and start < min(oldest, stop):
        raise StoreError(
            f"{_names(stores)}: bytes {start} to {min(oldest, stop)} of the log were not read yet and are gone, retention took "
            "them: give failOnDataLoss=false to go on behind them, and keep more (fileReservedTime), or read oftener"
        )
    return list(_clipped(parts, start, stop))


def epoch_below(history: EpochHistory, end: int) -> Epoch | None:
    """Of the last byte before `end` that it tells of. None: of none."""
    return next((list(entry[:3]) for entry in reversed(history) if entry.start < end), None)


def goes_on_otherwise(was: Epoch | None, history: EpochHistory, stop: int, end: int) -> bool:
    """Whether a log with that history, which ends at `stop`, has other bytes before `end` than one with the epoch `was` there:
    a slave was promoted without the last messages, or a backup was put in place. False for a copy that is behind."""
    now = epoch_below(history, end)
    return bool(was and now and was != now and (stop >= end or now[0] > was[0]))


def parting(was: Epoch, history: EpochHistory, first: int) -> int:
    """Where such a log goes on otherwise. `first`: where it begins, for one that was made anew; it may have another epoch of that
    number."""
    if any(entry.epoch == was[0] and list(entry[:3]) != was for entry in history):
        return first
    return next((entry.start for entry in history if entry.epoch > was[0]), first)


def another(stores: Sequence[Directory], name: str) -> str:
    """The error text for a log that is not the one of before."""
    return (
        f"{_names(stores)}: another log of {name} than the one that was read before (it was restored, or made anew, or lost "
        "messages that were read)"
    )


def behind(stores: Sequence[Directory], end: int, known: int) -> str:
    """The error text for a log that ends before an offset that was reached already."""
    return (
        f"{_names(stores)}: the log ends at {end}, and {known} was reached before: this is a copy that is behind, or another "
        "store; give the path of before, a new checkpointLocation, or failOnDataLoss=false to wait until the log reaches so far"
    )


def _names(stores: Sequence[Directory]) -> str:
    return " and ".join(map(str, stores))


def _clipped(parts: list[Part], start: int, stop: int) -> Iterator[Part]:
    for part in parts:
        low, high = max(part.start, start), min(part.stop, stop)
        if low < high:
            yield part._replace(start=low, stop=high, reach=high)


def reach(parts: list[Part], stop: int, wanted: Wanted, most: int) -> int:
    """The offset that ends the first `most` wanted messages of the parts; `stop` if there are no more. Reads up to there.

    Raises SegmentGone unless loss is allowed.
    """
    left = most
    for part in parts:
        try:
            for found in walk(part):
                if isinstance(found, Block):
                    counted = np.cumsum(count(found, wanted))
                    over = np.flatnonzero(counted > left)
                    if len(over):
                        return int(found.head["physical_offset"][over[0]])
                    left -= int(counted[-1])
        except SegmentGone:
            if wanted.fail_on_loss:
                raise
    return stop
