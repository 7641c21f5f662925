"""When the index is brought behind the committed offset: piece by piece, and at once when somebody asks.

A piece of what was just appended takes some tenths of a ms and is done on the loop, between two turns: a thread would take
more of both cores, and fight with the loop for the interpreter. What may wait for a device is done in a thread.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from rmq.clock import Clock
from rmq.errors import RmqError
from rmq.log.index.index import BURST_BYTES, Index

IDLE_S = 2.0  # less than a burst may wait so long: one large burst costs less than many small ones
WAIT_S = 3.0  # what a question waits for the index at most


class Indexer:
    """`committed()`: the committed offset."""

    def __init__(self, index: Index, committed: Callable[[], int], clock: Clock) -> None:
        self._index = index
        self._committed = committed
        self._clock = clock
        self._working = asyncio.Lock()
        self._worked = -IDLE_S
        self._stopped = False

    async def work(self) -> None:
        """For several times a second. Raises StoreError, BadBytes; what could not be entered is tried again."""
        now = self._clock.monotonic()
        if self._committed() - self._index.position < BURST_BYTES and now - self._worked < IDLE_S:
            return
        while self._index.position < self._committed() and not self._stopped:
            await self._burst()
        self._worked = now  # who failed has not rested

    def stop(self) -> None:
        """A long work ends with its present burst."""
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
            if self._index.step(to, wall_ms):
                await asyncio.sleep(0)
            else:
                await asyncio.to_thread(self._index.advance, to, wall_ms)
