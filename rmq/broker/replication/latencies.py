"""How long it takes until what was appended is committed, and until it is flushed: a note for each burst, none for a message.
Which requests took long, and where, is made of the same notes.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, cast

from rmq.clock import Clock
from rmq.log.units import Unit
from rmq.measures import Histogram
from rmq.net.transport.answering import Asked
from rmq.net.transport.requestlog import RequestLog, request_id

MAX_BURSTS: Final = 10_000  # that wait for their commit and are noted
MAX_MARKS: Final = 256  # flushes and commits that are remembered
_NEAR: Final = 64  # bursts before the end of the log, among which a follower's next one is


class Burst:
    """What is appended together. Times are monotonic seconds; `appended` 0: not yet."""

    __slots__ = ("appended", "began", "units")

    def __init__(self, units: Sequence[Unit], began: float) -> None:
        self.units = units
        self.began = began
        self.appended = 0.0

    @property
    def came(self) -> float:
        """When the first of its requests was read."""
        return self.units[0].came or self.began


class Latencies:
    """Seconds. `commit`: from the append of a burst until it is dispatched and answered. `fsync`: of one flush of the log.
    `requests` hears of those that took long."""

    def __init__(self, clock: Clock, requests: RequestLog) -> None:
        self._clock = clock
        self._bursts: deque[Burst] = deque(maxlen=MAX_BURSTS)
        self._flushes: deque[tuple[int, float]] = deque(maxlen=MAX_MARKS)  # where the log was durable, since when
        self._commits: deque[tuple[int, float]] = deque(maxlen=MAX_MARKS)  # the same of what the group committed
        self._copies: deque[tuple[int, float, float, str]] = deque(maxlen=MAX_MARKS)
        self.commit = Histogram()
        self.fsync = Histogram()
        self._requests = requests

    # --- a leader's bursts

    def begin(self, units: Sequence[Unit]) -> Burst:
        """Notes a burst that is about to be appended."""
        burst = Burst(units, self._clock.monotonic())
        self._bursts.append(burst)
        return burst

    def appended(self, burst: Burst) -> None:
        burst.appended = self._clock.monotonic()

    def drop(self, burst: Burst) -> None:
        """It was not appended as a whole."""
        if self._bursts and self._bursts[-1] is burst:
            self._bursts.pop()

    def replicated(self, end: int) -> None:
        """Enough nodes have everything below `end`."""
        self._commits.append((end, self._clock.monotonic()))

    def committed(self, end: int) -> None:
        """Bursts that end there or before are answered."""
        bursts, now, slow_s = self._bursts, 0.0, self._requests.slow_s
        while bursts and 0 <= bursts[0].units[-1].end <= end:
            burst = bursts.popleft()
            now = now or self._clock.monotonic()
            self.commit.observe(now - burst.began)
            if slow_s and now - burst.came > slow_s:
                self._tell(burst, now)

    def forget(self) -> None:
        """Forgets bursts that wait: their outcome is unknown."""
        slow_s = self._requests.slow_s
        now = self._clock.monotonic()
        for burst in self._bursts if slow_s else ():
            if now - burst.came > slow_s:
                self._tell(burst, 0.0)
        self._bursts.clear()

    def request_at(self, offset: int) -> str:
        """The id of a request that waits for what stands there or a little behind; "" if none does."""
        found: Burst | None = None
        for _, burst in zip(range(_NEAR), reversed(self._bursts), strict=False):
            if 0 <= burst.units[-1].end <= offset:
                break
            found = burst
        return next(_ids(found.units), "") if found is not None else ""

    def _tell(self, burst: Burst, answered: float) -> None:
        """A line for each kind of request."""
        asked = [unit for unit in burst.units if unit.asked is not None]
        for kind in dict.fromkeys(unit.kind for unit in asked):
            units = [unit for unit in asked if unit.kind == kind]
            start, end = units[0].start, units[-1].end
            messages = sum(len(unit.sizes) for unit in units)
            came = units[0].came or burst.began
            stages = {stage: moment - came for stage, moment in self._stages(burst, end, answered)}
            self._requests.slow(kind, [*_ids(units)], stages, messages=messages, log_from=start, log_to=end)

    def _stages(self, burst: Burst, end: int, answered: float) -> Iterator[tuple[str, float]]:
        """Those that are over."""
        yield "queued", burst.began
        if burst.appended:
            yield "appended", burst.appended
        for stage, marks in (("flushed", self._flushes), ("replicated", self._commits)):
            if moment := next((moment for reached, moment in marks if reached >= end), 0.0):
                yield stage, moment
        if answered:
            yield "answered", answered

    # --- every node

    def flushed(self, durable_end: int) -> None:
        self._flushes.append((durable_end, self._clock.monotonic()))
        while self._copies and self._copies[0][0] <= durable_end:
            end, came, appended, request = self._copies.popleft()
            self._tell_copy(end, request, came, {"appended": appended, "flushed": self._flushes[-1][1]})

    def copied(self, end: int, came: float, request: str, waits: bool) -> None:
        """A follower appended what its leader gave it at `came`. `request`: one that waits for it. `waits`: for its flush."""
        now = self._clock.monotonic()
        if waits:
            self._copies.append((end, came, now, request))
        else:
            self._tell_copy(end, request, came, {"appended": now})

    def _tell_copy(self, end: int, request: str, came: float, stages: dict[str, float]) -> None:
        if 0 < self._requests.slow_s < max(stages.values()) - came:
            after = {stage: moment - came for stage, moment in stages.items()}
            self._requests.slow("copy", [request], after, log_to=end)


def _ids(units: Sequence[Unit]) -> Iterator[str]:
    """Of the first request of each unit."""
    for unit in units:
        if unit.asked is not None:
            connection, call_id, *_ = cast(Asked, unit.asked)
            yield request_id(connection.client, call_id)
