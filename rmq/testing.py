"""Help for tests of programs that use this package: a clock that tests move, and a real node in the test's process.

Nothing here is imported by the rest of the package.
"""

import asyncio
import heapq
import itertools
import time


class TestClock:
    """A `Clock` that runs like the machine's and can be moved forward at once.

    With `running=False` it stands still and moves only by `advance`. `wall_ms` (Unix ms) is where its wall clock
    begins, by default the present.
    """

    __test__ = False  # pytest: no test case

    def __init__(self, *, running: bool = True, wall_ms: int | None = None) -> None:
        self._running = running
        self._origin = time.monotonic()
        self._ahead_s = 0.0
        self._wall_ms = time.time_ns() // 1_000_000 if wall_ms is None else wall_ms
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def monotonic(self) -> float:
        """Seconds since this clock was made, the jumps included."""
        ran_s = time.monotonic() - self._origin if self._running else 0.0
        return ran_s + self._ahead_s

    def wall_ms(self) -> int:
        return self._wall_ms + int(self.monotonic() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Until the clock, by itself or by `advance`, has moved that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self.monotonic() + seconds, next(self._numbers), woken))
        alarm = loop.call_later(seconds, _wake, woken) if self._running else None
        try:
            await woken
        finally:
            if alarm is not None:
                alarm.cancel()
            woken.cancel()

    async def advance(self, seconds: float) -> None:
        """Move `seconds` ahead, stopping at each due time on the way so that every sleeper sees its own hour.

        Returns after the woken tasks had some turns of the loop; what they start over sockets takes its own time, so
        wait for its effect.
        """
        target = self.monotonic() + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, woken = heapq.heappop(self._sleepers)
            if woken.done():
                continue
            self._move_to(due)
            _wake(woken)
            await _turns()
        self._move_to(target)
        await _turns()

    def jump_wall(self, milliseconds: int) -> None:
        """Set the wall clock forward or back; the monotonic one does not notice (T1)."""
        self._wall_ms += milliseconds

    def _move_to(self, moment: float) -> None:
        self._ahead_s += max(0.0, moment - self.monotonic())


def _wake(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)


async def _turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
