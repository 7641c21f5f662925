"""What a leader gave and this run has checked, until it is dispatched: dispatch need not read and check the log again."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rmq.log.files.segment import RecordView

MAX_TAKEN_BYTES = 16 << 20  # of more, dispatch reads the log
_new = tuple.__new__  # a NamedTuple in half the time


class TakenRecord(NamedTuple):
    """A checked record: from `start` (before a filler, if there was one) to `end` of the log, and at `at` of `buf`."""

    start: int
    end: int
    buf: bytes
    at: int
    size: int


class TakenRecords:
    """In log order, with gaps where there were too many."""

    def __init__(self) -> None:
        self._records: deque[TakenRecord] = deque()

    def __len__(self) -> int:
        return len(self._records)

    def add(self, records: Sequence[TakenRecord]) -> None:
        """They are in the log now."""
        self._records.extend(records)
        if self._records[-1].end - self._records[0].start > MAX_TAKEN_BYTES:
            self._records.clear()

    def cut(self, to: int) -> None:
        """The log ends there now."""
        while self._records and self._records[-1].end > to:
            self._records.pop()

    def from_(self, position: int, to: int) -> Iterator[RecordView]:
        """Those that follow each other from `position`, the end of an entry, up to `to`; they and those before are forgotten."""
        records = self._records
        while records and records[0].start < position:
            records.popleft()
        while records and records[0].start == position and records[0].end <= to:
            _, position, buf, at, size = records.popleft()
            yield _new(RecordView, (position - size, buf, at, size))
