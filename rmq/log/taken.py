"""What a leader gave and this run has checked, until it is dispatched: dispatch need not read and check the log again."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MAX_TAKEN_BYTES = 16 << 20  # of more, dispatch reads the log
_JOINED_BYTES = 256 * 1024


class Stretch(NamedTuple):
    """Checked records back to back from `place` of the log on; `start`: as `place`, or before the filler in front of them."""

    start: int
    place: int
    data: bytes

    @property
    def end(self) -> int:
        return self.place + len(self.data)


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

    def cut(self, to: int) -> None:
        """The log ends there now."""
        while self._stretches and self._stretches[-1].end > to:
            start, place, data = self._stretches.pop()
            if place < to:
                self._stretches.append(Stretch(start, place, data[: to - place]))

    def from_(self, position: int, to: int) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of those that follow each other from `position` up to `to`, both ends of entries. Neighbours come
        together, as many as one look takes. Those before are forgotten."""
        while self._stretches and self._stretches[0].end <= position:
            self._stretches.popleft()
        begin, parts, size = position, list[bytes](), 0
        for start, place, data in self._stretches:
            if position >= to or start > position:
                break
            if parts and (position < place or size >= _JOINED_BYTES):
                yield begin, b"".join(parts)
                parts, size = [], 0
            if not parts:
                begin = max(position, place)
            position = min(place + len(data), to)
            parts.append(data[max(begin - place, 0) : position - place])
            size += len(parts[-1])
        if parts:
            yield begin, b"".join(parts)
