"""Reads that wait for the device run in a few threads of their own: nobody else waits, and their number is bounded (D18)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rmq.codes import ResponseCode
from rmq.errors import Refusal

T = TypeVar("T")
THREADS = 4
MAX_WAITING = 1024
MAX_WAITING_OF_GROUP = 256  # consumer group


class ColdReads:
    """`max_messages`, `max_bytes`: of one answer that has to be read from the device
    [maxTransferCountOnMessageInDisk, maxTransferBytesOnMessageInDisk]. `waiting`: how many there are now."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self._pool = ThreadPoolExecutor(THREADS, "cold-read")
        self.waiting = 0
        self._of_group: Counter[str] = Counter()

    async def run(self, group: str, read: Callable[[], T]) -> T:
        """Returns what `read` returns. Raises Refusal SYSTEM_BUSY when too many wait already, and whatever `read` raises."""
        if self.waiting >= MAX_WAITING or self._of_group[group] >= MAX_WAITING_OF_GROUP:
            mine = self._of_group[group]
            about = f"{mine} reads of group {group}, {self.waiting} in all, wait for the disk: try again in a moment"
            raise Refusal(ResponseCode.SYSTEM_BUSY, about)
        self.waiting += 1
        self._of_group[group] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, read)
        finally:
            self.waiting -= 1
            self._of_group[group] -= 1
            if not self._of_group[group]:
                del self._of_group[group]

    def close(self) -> None:
        """Returns once running reads have ended."""
        self._pool.shutdown(cancel_futures=True)
