"""A log that grows: where it ends, the parts between two offsets, and where a number of messages ends. No Spark.

Only committed bytes count in a store that knows what is committed; else whole records up to the last one. `stores` are copies of
one log.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from analytics.records.batches import count
from analytics.stores.copies import log_of
from analytics.stores.files import Directory
from analytics.stores.options import Wanted
from analytics.stores.segments import Part, parts_of
from analytics.stores.walk import Block, SegmentGone, walk
from rmq.errors import StoreError


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
