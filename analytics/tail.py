"""A log that grows, between two of its offsets: where it ends, what lies between, how far so many messages reach. No Spark.

Only what is committed, in a store that says so; else whole records up to the last one.
"""

from collections.abc import Iterator

import numpy as np

from analytics.batches import count
from analytics.files import Directory
from analytics.options import Wanted
from analytics.segments import Part, find_parts, look_at
from analytics.walk import Block, SegmentGone, walk
from rmq.errors import StoreError


def first_offset(store: Directory, from_ms: int) -> int:
    """Where records of that time and later begin. Raises InvalidArgument, StoreError."""
    parts = find_parts(store, from_ms)
    return parts[0].start if parts else last_offset(store, 0)


def last_offset(store: Directory, after: int) -> int:
    """Behind the last record that counts; nobody need look before `after`, where a record begins.

    Raises InvalidArgument (no store), StoreError.
    """
    log = look_at(store)
    if log.committed is not None:
        return log.committed
    end = after
    for part in find_parts(store)[-1:]:
        end = begin = max(part.start, after)
        if begin < part.stop:
            for found in walk(part._replace(start=begin)):
                end = int(found.head["physical_offset"][-1] + found.head["size"][-1]) if isinstance(found, Block) else found.end
    return end


def between(store: Directory, start: int, stop: int, fail_on_loss: bool) -> list[Part]:
    """The parts of [start, stop): both are beginnings or ends of records.

    Raises StoreError when retention took some of it, or the log does not reach so far: a copy that is behind, another store.
    """
    parts = find_parts(store)
    if fail_on_loss and start < stop and parts and parts[-1].stop < stop:
        raise StoreError(behind(store, parts[-1].stop, stop))
    oldest = parts[0].start if parts else stop
    if fail_on_loss and start < min(oldest, stop):
        raise StoreError(
            f"{store}: bytes {start} to {min(oldest, stop)} of the log were not read yet and are gone, retention took them: give "
            "failOnDataLoss=false to go on behind them, and keep more (fileReservedTime), or read oftener"
        )
    return list(_clipped(parts, start, stop))


def behind(store: Directory, end: int, known: int) -> str:
    """What to say of a log that ends before an offset that was there already."""
    return (
        f"{store}: the log ends at {end}, and {known} was reached before: this is a copy that is behind, or another store; "
        "give the path of before, a new checkpointLocation, or failOnDataLoss=false to wait until the log reaches so far"
    )


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
