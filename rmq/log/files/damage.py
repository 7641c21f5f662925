"""Damage: bytes below the durable end that are no records any more (D8). It is found and named, never cut off or passed over.

Readers ask `Damages` first. Repair is the business of `rmq.log.repair.peerrepair` and of `rmq store repair`.
"""

import errno
import re
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Final, NamedTuple

from rmq.errors import BadBytes, StoreError
from rmq.log.files import epochs
from rmq.log.files.epochs import EpochHistory
from rmq.log.files.segment import BadEntry, Segment
from rmq.log.records import record

_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_MAGIC_BYTES = 4
WHAT_HELPS: Final = "a member of a group takes them from the others by itself; of a broker alone, see `rmq store repair`"
"""The same words for both: a reader does not know where it stands, and in a group a repair by hand may lose what others have."""


class DamagedRange(NamedTuple):
    """[start, end) of the log holds nothing that can be believed; `why` in words."""

    start: int
    end: int
    why: str


class Damages:
    """The damaged ranges of one log, in order. False when there are none. In any thread."""

    def __init__(self, ranges: Sequence[DamagedRange] = ()) -> None:
        self.ranges = _united(ranges)
        self._changing = Lock()

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __str__(self) -> str:
        return "; ".join(f"bytes {start} to {end} of the log are damaged ({why})" for start, end, why in self.ranges)

    def add(self, found: DamagedRange) -> None:
        with self._changing:
            self.ranges = _united((*self.ranges, found))

    def drop(self, repaired: DamagedRange) -> None:
        with self._changing:
            self.ranges = tuple(one for one in self.ranges if one != repaired)

    def drop_before(self, log_start: int) -> None:
        """The log begins at that offset now."""
        with self._changing:
            self.ranges = tuple(one for one in self.ranges if one.end > log_start)

    def check(self, offset: int, size: int) -> None:
        """Raises StoreError if a byte of [offset, offset + size) is damaged."""
        for one in self.ranges:
            if one.start < offset + size and offset < one.end:
                about = f"bytes {one.start} to {one.end} of the log are damaged ({one.why})"
                raise StoreError(f"{about}: {WHAT_HELPS}")

    def checked(
        self, read: Callable[[int, int], bytes], offset: int, size: int, file_at: Callable[[int], Segment], history: EpochHistory
    ) -> bytes:
        """Returns what `read` gives, if it is the record at `offset`, which is in that file. If it is not, or the device cannot
        read it any more, notes the damage and raises StoreError; so it does where who asked has a wrong place."""
        try:
            data = read(offset, size)
            if record.verify(data, 0, offset, not epochs.written_by_rocketmq(history, offset)) != size:
                raise wrong_entry(offset, size)
        except BadBytes as error:
            if is_whole_around(file_at(offset), offset, history):
                raise wrong_entry(offset, size) from error
            self.add(DamagedRange(offset, offset + size, str(error)))
            self.check(offset, size)
        except StoreError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO:
                self.add(DamagedRange(offset, offset + size, str(error.__cause__)))
            raise
        return data

    def count_good(self, spans: Sequence[tuple[int, int]]) -> int:
        """How many of the first ones (offset, size) lie before the first that is damaged."""
        for count, (offset, size) in enumerate(spans):
            if any(one.start < offset + size and offset < one.end for one in self.ranges):
                return count
        return len(spans)

    def at(self, position: int) -> DamagedRange | None:
        """The range that begins at or holds `position`."""
        return next((one for one in self.ranges if one.start <= position < one.end), None)

    def discover(self, error: BadEntry, segments: Sequence[Segment], history: EpochHistory, end: int) -> int:
        """A walk stopped below the log's end: notes that as damage, if it is new, and returns where to go on."""
        found = self.at(error.at)
        if found is None:
            good = first_record(segments, error.at, history)
            if good == error.at:
                raise StoreError(f"a whole record stands where the log should end at {end} ({error}): run `rmq store verify`")
            found = DamagedRange(error.at, end if good is None else min(good, end), str(error))
            self.add(found)
        return found.end

    def before(self, position: int) -> DamagedRange | None:
        """The last range that ends at or before `position`."""
        return next((one for one in reversed(self.ranges) if one.end <= position), None)


def _united(ranges: Sequence[DamagedRange]) -> tuple[DamagedRange, ...]:
    """The ranges in order, with overlapping ones joined: a range can be repaired only if whole records stand around it."""
    found: list[DamagedRange] = []
    for one in sorted(ranges):
        if found and one.start < found[-1].end:
            found[-1] = found[-1]._replace(end=max(found[-1].end, one.end))
        else:
            found.append(one)
    return tuple(found)


class MissingSegment(Segment):
    """Stands for a missing file of the log: it holds no bytes."""

    def __init__(self, path: str, base: int, size: int) -> None:
        self.path = path
        self.base = base
        self.size = size
        self.end = base + size

    def read(self, offset: int, size: int) -> bytes:
        return b""

    def read_cached(self, offset: int, into: memoryview) -> bool:
        return False

    def blocks(self, offset: int, to: int) -> Iterator[tuple[int, bytes]]:
        return iter(())

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def withdraw(self) -> Callable[[], None]:
        return lambda: None

    def read_exactly(self) -> None: ...

    def read_ahead(self, offset: int, to: int) -> None: ...


def wrong_entry(offset: int, size: int) -> StoreError:
    return StoreError(
        f"a queue says that a message stands at {offset} to {offset + size} of the log, where none does: a file of it in "
        "consumequeue/ is damaged. Stop the node, delete the queue's files there, and start it: they are made anew from the log"
    )


def is_whole_around(segment: Segment, offset: int, history: EpochHistory) -> bool:
    """Whether whole records stand back to back from before `offset` to behind it. May take long in a damaged log."""
    protected, back = not epochs.written_by_rocketmq(history, offset), 1 << 16
    while (at := find_record(segment, offset - back, protected)) is None or at > offset:
        if offset - back <= segment.base:
            return False
        back <<= 3
    while at <= offset:
        if (size := _record_size(segment, at, protected)) is None:
            return False
        at += size
    return True


def first_record(segments: Sequence[Segment], from_: int, history: EpochHistory = ()) -> int | None:
    """Where the first whole record at or behind `from_` stands. By `history` it must carry our checksum, or need not."""
    for segment in segments:
        if segment.end > from_:
            found = find_record(segment, from_, not epochs.written_by_rocketmq(history, max(from_, segment.base)))
            if found is not None:
                return found
    return None


def has_record(segment: Segment, from_: int, protected: bool) -> bool:
    """Whether a whole record (`protected`: of ours) stands somewhere behind: then a cut may have hit a flipped bit."""
    return find_record(segment, from_, protected) is not None


def find_record(segment: Segment, from_: int, protected: bool) -> int | None:
    """Where the first whole record at or behind `from_` begins."""
    for at, data in segment.blocks(max(from_, segment.base), segment.end):
        data += segment.read(at + len(data), min(_MAGIC_BYTES, segment.end - at - len(data)))  # one that lies across
        for place in _MAGIC.finditer(data):
            start = at + place.start() - 4
            if start >= max(from_, segment.base) and _record_size(segment, start, protected) is not None:
                return start
    return None


def _record_size(segment: Segment, start: int, protected: bool) -> int | None:
    """Of the whole record at `start`; None if there is none."""
    size = int.from_bytes(segment.read(start, 4), "big")
    if size > segment.end - start:
        return None
    try:
        return record.verify(segment.read(start, size), 0, start, protected)
    except BadBytes:
        return None
