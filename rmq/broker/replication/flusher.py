"""When the log is flushed: one fsync for many appends, always in a thread, which is the flusher's own.

Asynchronous flush: every `interval_s`, or as soon as 32 MiB wait (so that the kernel's own throttling of writers is
never reached). Synchronous flush: at once, and again as long as somebody asked meanwhile (group commit). What a flush
makes durable is the log's business (`CommitLog.flush` notes the end before it begins); this file only says when.

A sender waits for each step from its append to the flush and back, so there are few: a queue wakes the thread, a byte in a pipe
wakes the loop. `asyncio.to_thread`, with its futures and tasks, takes a tenth of a millisecond more.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

from rmq import background
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

    def prepare(self) -> None: ...


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
        self._level_at = self._began = clock.monotonic()  # what was appended before `_level_at` is durable
        self._orders: SimpleQueue[bool] = SimpleQueue()  # for the thread: flush; or end
        self._thread = Thread(target=self._serve, name="flusher", daemon=True)
        self._pipe = -1, -1  # its ends for the loop and for the thread
        self._error: Exception | None = None  # of the flush that has ended
        self._again = self._stopped = False
        self._idle = asyncio.Event()  # no flush runs
        self._idle.set()
        self._timer: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[0], False)  # the loop must never wait there
        asyncio.get_running_loop().add_reader(self._pipe[0], self._done)
        self._thread.start()
        self._timer = background.start(self._tick(), "flush-timer")

    def ask(self) -> None:
        """Flush now, or as soon as the running flush has ended."""
        if not self._idle.is_set():
            self._again = True
            return
        if self._stopped or self._error is not None:
            return
        self._began = self._clock.monotonic()
        if self._log.durable_end >= self._log.end:
            self._level_at = self._began
            return
        self._idle.clear()
        self._orders.put(True)

    def appended(self) -> None:
        """Called after each append under asynchronous flush: too many bytes that wait start a flush early."""
        if self._log.end - self._log.durable_end >= ASYNC_FLUSH_BYTES:
            self.ask()

    def unflushed_seconds(self) -> float:
        """How old the oldest byte that is not durable may be; 0 if there is none."""
        return 0.0 if self._log.durable_end >= self._log.end else self._clock.monotonic() - self._level_at

    async def stop(self) -> None:
        """Stop flushing once a running flush has ended. The store's own close flushes what is left."""
        if self._timer is None or self._stopped:
            return
        self._stopped = True
        self._timer.cancel()
        await asyncio.gather(self._timer, return_exceptions=True)
        await self._idle.wait()
        self._orders.put(False)
        self._thread.join()
        asyncio.get_running_loop().remove_reader(self._pipe[0])
        for end in self._pipe:
            os.close(end)

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(self._interval_s)
            self.ask()

    def _serve(self) -> None:
        """In the thread."""
        while self._orders.get():
            try:
                self._log.flush()
                os.write(self._pipe[1], b"\0")
                self._log.prepare()  # behind the news: a new file of 1 GiB may take as long as many flushes
            except Exception as error:  # whatever it was: from here on nothing may count as durable
                self._error = error
                os.write(self._pipe[1], b"\0")

    def _done(self) -> None:
        """On the loop, in a callback of its own: a bug in `on_flushed` ends the node."""
        os.read(self._pipe[0], 1)
        self._idle.set()
        if self._error is not None:
            self._failed(self._error)
            return
        self._level_at = self._began
        self._seconds.observe(self._clock.monotonic() - self._began)
        if self._again:
            self._again = False
            self.ask()
        self._on_flushed()

    def _failed(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            log.error("this broker stops writing: %s", error)
        else:
            log.error("this broker stops writing; restart it", exc_info=error)
            error = StoreError(f"flushing failed: {error!r}; restart the node")
        self._on_failed(error)
