"""How long it takes until what was appended is committed, and until it is flushed: a note for each burst, none for a message."""

from collections import deque
from typing import Final

from rmq.clock import Clock
from rmq.measures import Histogram

MAX_BURSTS: Final = 10_000  # that wait for their commit and are noted


class Latencies:
    """Seconds. `commit`: from the append of a burst until its senders are answered. `fsync`: of one flush of the log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bursts: deque[tuple[int, float]] = deque(maxlen=MAX_BURSTS)
        self.commit = Histogram()
        self.fsync = Histogram()

    def now(self) -> float:
        return self._clock.monotonic()

    def appended(self, end: int, began: float) -> None:
        """Notes a burst: when its append began, and where it ends in the log."""
        self._bursts.append((end, began))

    def committed(self, end: int) -> None:
        """Bursts that end there or before are answered."""
        bursts = self._bursts
        if bursts and bursts[0][0] <= end:
            now = self._clock.monotonic()
            while bursts and bursts[0][0] <= end:
                self.commit.observe(now - bursts.popleft()[1])

    def forget(self) -> None:
        """Forgets bursts that wait: their outcome is unknown."""
        self._bursts.clear()
