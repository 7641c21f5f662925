"""What a leader gave and this run has checked, until it is dispatched: dispatch need not read and check the log again. And what
dispatch has looked at, until the index takes it."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rmq.log.files.segment import Records
from rmq.log.records import columns

MAX_TAKEN_BYTES = 16 << 20  # of more, dispatch reads the log
_JOINED_BYTES = 1 << 20
LARGE_BYTES = 256 * 1024  # less than that is looked at again, together with its neighbours
_MOST_LAID = 16  # of about a MiB each: of more the index reads the log


class Stretch(NamedTuple):
    """Checked records back to back from `place` of the log on; `start`: as `place`, or before the filler in front of them.
    `parts`: where their parts are, if they were checked together."""

    start: int
    place: int
    data: bytes
    parts: columns.Block | None = None

    @property
    def end(self) -> int:
        return self.place + len(self.data)

    def between(self, position: int, to: int) -> Records | None:
        """Those that were checked together, of the ones from `position` up to `to`, both ends of records."""
        if self.parts is None:
            return None
        all_ = Records(self.place, self.data, self.parts.at, self.end, self.parts)
        first, stop = np.searchsorted(self.parts.at, (position - self.place, to - self.place)).tolist()
        return all_.only(first, stop)


class TakenRecords:
    """In log order, with gaps where there were too many."""

    def __init__(self) -> None:
        self._stretches: deque[Stretch] = deque()

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(len(stretch.data) for stretch in self._stretches)

    def add(self, stretches: Sequence[Stretch]) -> None:
        """They are in the log now."""
        self._stretches.extend(stretches)
        if self._stretches[-1].end - self._stretches[0].start > MAX_TAKEN_BYTES:
            self._stretches.clear()

    def whole(self, position: int, to: int) -> int:
        """Where the last stretch ends that does so behind `position` and not behind `to`; `to` if there is none."""
        return max((stretch.end for stretch in self._stretches if position < stretch.end <= to), default=to)

    def cut(self, to: int) -> None:
        """The log ends there now."""
        while self._stretches and self._stretches[-1].end > to:
            start, place, data, _ = self._stretches.pop()
            if place < to:
                self._stretches.append(Stretch(start, place, data[: to - place]))

    def from_(self, position: int, to: int) -> Iterator[Records]:
        """Those that follow each other from `position` up to `to`, both ends of entries. Neighbours come together, as many as one
        look takes. Those before are forgotten."""
        while self._stretches and self._stretches[0].end <= position:
            self._stretches.popleft()
        begin, parts, size = position, list[bytes](), 0
        for stretch in self._stretches:
            start, place, data, _ = stretch
            if position >= to or start > position:
                break
            found = stretch.between(max(position, place), min(stretch.end, to))
            if parts and (position < place or size >= _JOINED_BYTES or found is not None):
                yield _walked(begin, b"".join(parts))
                parts, size = [], 0
            if not parts:
                begin = max(position, place)
            position = min(stretch.end, to)
            if found is not None:
                yield found
                continue
            parts.append(data[max(begin - place, 0) : position - place])
            size += len(parts[-1])
        if parts:
            yield _walked(begin, b"".join(parts))


def _walked(base: int, data: bytes) -> Records:
    at, end = columns.starts(data)
    return Records(base, data, at, base + end)


class Laid(NamedTuple):
    """Records that were dispatched, and their properties: those of the log from `start` to `end`. `base`: where in the log the
    block's data begins."""

    start: int
    end: int
    base: int
    block: columns.Block
    properties: columns.Properties


class LaidRecords:
    """In log order, with gaps. One thread adds, another one may take. `wanted`: there is an index."""

    def __init__(self) -> None:
        self.wanted = False
        self._laid: deque[Laid] = deque()

    def add(self, laid: Laid) -> None:
        """Unless it is little, or too much waits already."""
        if self.wanted and laid.end - laid.start >= LARGE_BYTES and len(self._laid) < _MOST_LAID:
            self._laid.append(laid)

    def take(self, position: int, to: int) -> Laid | None:
        """Those that begin at `position`, if they end at or before `to`. Whatever begins there or before is forgotten."""
        while self._laid and self._laid[0].start <= position:
            laid = self._laid.popleft()
            if laid.start == position and laid.end <= to:
                return laid
        return None

    def begin_at(self, to: int) -> int:
        """Where the next ones begin; `to` without any before."""
        return min(self._laid[0].start, to) if self._laid else to

    def clear(self) -> None:
        self._laid.clear()
