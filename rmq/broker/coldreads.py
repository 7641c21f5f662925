"""Reads that wait for the device: in a few threads of their own, so that nobody else waits, and not without bound (D18)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rmq.codes import ResponseCode
from rmq.errors import Refusal

T = TypeVar("T")
THREADS = 4
MAX_WAITING = 1024


class ColdReads:
    """`max_messages`, `max_bytes`: of one answer that has to be read from the device
    [maxTransferCountOnMessageInDisk, maxTransferBytesOnMessageInDisk]."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self._pool = ThreadPoolExecutor(THREADS, "cold-read")
        self._waiting = 0

    async def run(self, read: Callable[[], T]) -> T:
        """What `read` gives. Raises Refusal SYSTEM_BUSY when too many wait already, and whatever `read` raises."""
        if self._waiting >= MAX_WAITING:
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"{MAX_WAITING} reads wait for the disk: try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, read)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Returns once running reads have ended."""
        self._pool.shutdown(cancel_futures=True)
