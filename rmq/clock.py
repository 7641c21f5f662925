"""The one reader of time. Everything that waits or asks for the time is handed a Clock; tests hand in one they move."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from rmq.model import MAX_DRIFT_MS


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Unix time in ms: stamps messages, due times and retention. It may jump; nothing safe depends on it (T1)."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: timeouts, leases and expiries."""
        ...

    def since_boot(self) -> float:
        """Seconds that never go back, and go on while the machine sleeps: what the wall clock is to have moved by."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on the monotonic clock."""
        ...


_since_boot: Callable[[], float]
if sys.platform == "linux":
    _since_boot = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
elif sys.platform == "darwin":  # where this one goes on, and Python's own does not
    _since_boot = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
else:
    _since_boot = time.monotonic


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # asked at each read: a call less

    since_boot = staticmethod(_since_boot)  # asked at each read of a group's member

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def latest_ms(clock: Clock) -> int:
    """A message of a later store time is of a clock that was ahead: what stands behind it may be of any time."""
    return clock.wall_ms() + MAX_DRIFT_MS


class WallDrift:
    """How far a wall clock has moved by itself since this was made. Says in the log when that is more than is believed, with the
    consequence, and when it is back."""

    def __init__(self, clock: Clock, log: logging.Logger, consequence: str) -> None:
        self._clock = clock
        self._log = log
        self._consequence = consequence
        self._origin_ms = self._ahead_ms()
        self._drifted = False

    def _ahead_ms(self) -> float:
        return self._clock.wall_ms() - self._clock.since_boot() * 1000

    def ms(self) -> int:
        drift_ms = int(self._ahead_ms() - self._origin_ms)
        drifted = abs(drift_ms) > MAX_DRIFT_MS
        if drifted != self._drifted:
            self._drifted = drifted
            about = self._consequence if drifted else "it is back"
            self._log.warning("the wall clock moved by %d s by itself: %s", drift_ms // 1000, about)
        return drift_ms
