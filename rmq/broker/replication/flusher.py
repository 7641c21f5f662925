"""When the log is flushed: one fsync for many appends, always in a thread.

Asynchronous flush: every `interval_s`, or as soon as 32 MiB wait (so that the kernel's own throttling of writers is
never reached). Synchronous flush: at once, and again as long as somebody asked meanwhile (group commit). What a flush
makes durable is the log's business (`CommitLog.flush` notes the end before it begins); this file only says when.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from rmq.clock import Clock
from rmq.errors import StoreError
from rmq.measures import Histogram

log = logging.getLogger("rmq.flusher")

ASYNC_FLUSH_BYTES = 32 * 1024 * 1024


class Flushable(Protocol):
    @property
    def end(self) -> int: ...

    @property
    def durable_end(self) -> int: ...

    def flush(self) -> int: ...


class Flusher:
    """`on_flushed` runs on the loop after each good flush, `on_failed` once after the first bad one (D4: final). `seconds`:
    what each took is noted there."""

    def __init__(
        self,
        log: Flushable,
        clock: Clock,
        interval_s: float,
        on_flushed: Callable[[], None],
        on_failed: Callable[[StoreError], None],
        seconds: Histogram,
    ) -> None:
        self._log = log
        self._clock = clock
        self._interval_s = interval_s
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._seconds = seconds
        self._level_at = clock.monotonic()  # what was appended before that is durable
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="flusher")
        self._timer = asyncio.create_task(self._tick(), name="flush-timer")

    def ask(self) -> None:
        """Flush as soon as the running flush, if any, has ended."""
        self._asked.set()

    def appended(self) -> None:
        """Called after each append under asynchronous flush: too many bytes that wait start a flush early."""
        if self._log.end - self._log.durable_end >= ASYNC_FLUSH_BYTES:
            self._asked.set()

    def unflushed_seconds(self) -> float:
        """How old the oldest byte that is not durable may be; 0 if there is none."""
        return 0.0 if self._log.durable_end >= self._log.end else self._clock.monotonic() - self._level_at

    async def stop(self) -> None:
        """Stop flushing once a running flush has ended. The store's own close flushes what is left."""
        self._stopped = True
        self._asked.set()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*(task for task in (self._task, self._timer) if task is not None), return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(self._interval_s)
            self._asked.set()

    async def _run(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            if self._stopped:
                return
            began = self._clock.monotonic()
            if self._log.durable_end >= self._log.end:
                self._level_at = began
                continue
            try:
                await asyncio.to_thread(self._log.flush)
            except Exception as error:  # whatever it was: from here on nothing may count as durable
                self._failed(error)
                return
            self._level_at = began
            self._seconds.observe(self._clock.monotonic() - began)
            asyncio.get_running_loop().call_soon(self._on_flushed)  # in a callback of its own: a bug there ends the node

    def _failed(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            log.error("this broker stops writing: %s", error)
        else:
            log.error("this broker stops writing; restart it", exc_info=error)
            error = StoreError(f"flushing failed: {error!r}; restart the node")
        self._on_failed(error)
