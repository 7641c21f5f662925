"""The one reader of time. Everything that waits or asks for the time is handed a Clock; tests hand in one they move."""

import asyncio
import sys
import time
from typing import Protocol


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


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # asked at each read: a call less

    def since_boot(self) -> float:
        if sys.platform == "linux":
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        elif sys.platform == "darwin":  # where this one goes on, and Python's own does not
            return time.clock_gettime(time.CLOCK_MONOTONIC)
        else:
            return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
