"""Threads of a node, a proxy and a dashboard. All that their work on files takes stand from their start on: where one is refused
later, Python keeps the work that it was for and says that it failed, so that work is done again while another thread does it for
the first time."""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Final

from rmq.errors import StoreError

MOST: Final = 32
FOR_OTHERS: Final = 16
"""Those that come beside them: the flusher, the page for Prometheus, reads that wait for the disk, names that are looked up."""


def pool(others: int = FOR_OTHERS) -> ThreadPoolExecutor:
    """As many threads as asyncio would take in the end, all of them running. Raises StoreError if the system has no room for
    them and for the others that come."""
    size = min(MOST, (os.cpu_count() or 1) + 4)
    found = started(size)
    try:
        started(others).shutdown()
    except StoreError:
        found.shutdown()
        raise
    return found


def started(size: int) -> ThreadPoolExecutor:
    """Raises StoreError."""
    found, all_there = ThreadPoolExecutor(size, "work"), Event()
    waiting: list[Future[bool]] = []
    try:
        for _ in range(size):  # each waits, so the next one needs a thread of its own
            waiting.append(found.submit(all_there.wait))
    except RuntimeError as error:
        all_there.set()
        found.shutdown()
        raise StoreError(
            f"the system gives this process {len(waiting)} more threads, not {size}: allow it more (the container's pids limit, "
            "TasksMax in its systemd unit, ulimit -u, or memory)"
        ) from error
    all_there.set()
    return found
