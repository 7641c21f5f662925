"""When committed messages are entered into the index: piece by piece, and at once when somebody asks.

A MiB of what was just appended takes one or two ms and is done on the loop, between two turns: a thread would take more of both
cores, and fight with the loop for the interpreter. What may wait for a device is done in a thread.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from rmq.clock import Clock
from rmq.errors import RmqError
from rmq.log.index.index import BURST_BYTES, Index

EACH_S, SOON_S = 0.1, 0.005  # between two looks, at most and at least
MORE_EACH_BYTES = 16 << 20  # for each that it is behind, a turn of the loop takes one step more,
MORE_S = 0.0015  # unless it has taken so long: steps over odd records do
IDLE_S = 2.0  # less than a burst may wait so long: one large burst costs less than many small ones
WAIT_S = 3.0  # a question waits at most so long for the index


class Indexer:
    """`committed()`: the committed offset."""

    def __init__(self, index: Index, committed: Callable[[], int], clock: Clock) -> None:
        self._index = index
        self._committed = committed
        self._clock = clock
        self._working = asyncio.Lock()
        self._worked = -IDLE_S
        self._stopped = False
        self.pause_s = EACH_S  # until `work` is to be called again: by then about one burst has come, which is in memory still

    async def work(self) -> None:
        """Called several times a second. Raises StoreError, BadBytes; entries that could not be written are tried again."""
        before = self._index.position
        await self._work()
        moved = self._index.position - before
        self.pause_s = min(EACH_S, max(SOON_S, self.pause_s * (BURST_BYTES / moved if moved > 0 else 2)))

    async def _work(self) -> None:
        now = self._clock.monotonic()
        least = 1 if now - self._worked >= IDLE_S else BURST_BYTES
        while self._committed() - self._index.position >= least and not self._stopped:
            await self._burst()
            self._worked, least = now, BURST_BYTES  # what comes meanwhile waits; after a failure the pause goes on

    def stop(self) -> None:
        """Long work ends with its present burst."""
        self._stopped = True

    async def reach(self, offset: int) -> bool:
        """Whether everything below `offset` is in the index now; waits at most 3 s for it."""
        deadline = self._clock.monotonic() + WAIT_S
        with suppress(RmqError):  # the disk is in trouble: `work` tells it
            while self._index.position < offset and self._clock.monotonic() < deadline:
                await self._burst()
        return self._index.position >= offset

    async def _burst(self) -> None:
        async with self._working:
            to, wall_ms = self._committed(), self._clock.wall_ms()
            more, until = (to - self._index.position) // MORE_EACH_BYTES, self._clock.monotonic() + MORE_S
            if self._index.step(to, wall_ms):
                while more > 0 and self._clock.monotonic() < until and self._index.step(to, wall_ms):
                    more -= 1
                await asyncio.sleep(0)
            else:
                await asyncio.to_thread(self._index.advance, to, wall_ms)
