"""Measures on the event loop whether it still turns, and what delays it; another thread reads the result."""

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final, Literal

from rmq import background
from rmq.clock import Clock
from rmq.measures import Family, Histogram, counter, histogram

BEAT_S: Final = 0.1
STUCK_S: Final = 10.0  # after so long without a beat only a restart helps


class LoopWatch:
    """`async with watch.running()`. `silent_seconds` may be asked in any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beat = clock.monotonic()
        self._lag = Histogram()
        self._pauses = Histogram()
        self._paused_at = 0.0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Beats until the context is left."""
        beating = background.start(self._run(), "loop watch")
        gc.callbacks.append(self._collector)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collector)
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    def silent_seconds(self) -> float:
        """How long the loop has not turned; at most about 0.1 if it does."""
        return self._clock.monotonic() - self._beat

    def collected_seconds(self) -> float:
        """How long Python's collector has run so far."""
        return self._pauses.sum

    def metrics(self) -> Iterable[Family]:
        yield histogram("rmq_loop_lag_seconds", "how much later than it was due the event loop did something", self._lag)
        yield histogram("rmq_gc_pause_seconds", "one run of Python's cycle collector, in which nothing else runs", self._pauses)
        yield counter("rmq_process_cpu_seconds_total", "CPU time of this process, user and system", time.process_time())

    async def _run(self) -> None:
        while True:
            due = self._clock.monotonic() + BEAT_S
            await self._clock.sleep(BEAT_S)
            self._beat = self._clock.monotonic()
            self._lag.observe(max(0.0, self._beat - due))

    def _collector(self, phase: Literal["start", "stop"], _about: dict[str, int]) -> None:
        if phase == "start":
            self._paused_at = time.perf_counter()
        else:
            self._pauses.observe(time.perf_counter() - self._paused_at)
