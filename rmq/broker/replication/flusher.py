"""When the log is flushed: one fsync for many appends, always in a thread, which is the flusher's own.

Asynchronous flush: every `interval_s`, or as soon as 32 MiB wait (so that the kernel's own throttling of writers is
never reached). Synchronous flush: at once, and again as long as somebody asked meanwhile (group commit). What a flush
makes durable is the log's business (`CommitLog.flush` notes the end before it begins); this file only says when.

Where senders send again as soon as they are answered, the first ones to come would begin a flush, and the others would take turns
with them for ever: each flush has some of them. So a flush waits until most of what the last one made durable has come again, for
a moment at most. Where less comes, that is given up for a while. A sender that is alone never waits for others.

Who saves tables flushes the log, too, in a thread of its own. What that made durable is told as if it were flushed here: else
whoever waits for it would wait for the next append.

A sender waits for each step from its append to the flush and back, so there are few: a queue wakes the thread, a byte in a pipe
wakes the loop. `asyncio.to_thread`, with its futures and tasks, takes a tenth of a millisecond more.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from math import inf
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

from rmq import background
from rmq.clock import Clock
from rmq.errors import StoreError
from rmq.measures import Histogram

log = logging.getLogger("rmq.flusher")

ASYNC_FLUSH_BYTES = 32 * 1024 * 1024
GATHER_S = 0.002  # waits at most so long for more
IN_VAIN = 64  # flushes that do not wait after one that did in vain


class Flushable(Protocol):
    @property
    def end(self) -> int: ...

    @property
    def durable_end(self) -> int: ...

    def flush(self) -> int: ...

    def prepare(self) -> None: ...


class Flusher:
    """`on_flushed` runs on the loop after each good flush, `on_failed` once after the first bad one (D4: final). `seconds`:
    what each took is noted there. `gathers`: it may wait for more, see above."""

    def __init__(
        self,
        log: Flushable,
        clock: Clock,
        interval_s: float,
        on_flushed: Callable[[], None],
        on_failed: Callable[[StoreError], None],
        seconds: Histogram,
        gathers: bool = False,
    ) -> None:
        self._log = log
        self._clock = clock
        self._interval_s = interval_s
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._seconds = seconds
        self._level_at = self._began = clock.monotonic()  # what was appended before `_level_at` is durable
        self._flush_began = self._began
        self._gathers, self._quick = gathers, 0  # so many flushes begin at once
        self._durable, self._ended = log.durable_end, -inf  # what was told last, and when that flush had ended
        self._answered = 0  # bytes that it made durable
        self._wanted = 0  # where the log must end for a flush that waits
        self._alarm: asyncio.TimerHandle | None = None  # ends its patience
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
        elif self._alarm is None:
            self._begin(self._answered - (self._log.end - self._durable))
        elif self._log.end >= self._wanted:
            self._flush()

    def _begin(self, more: int) -> None:
        """`more`: so many bytes are expected to come in a moment, too."""
        now = self._clock.monotonic()
        if self._stopped or self._error is not None:
            return
        if self._log.end <= self._log.durable_end == self._durable:  # what others make durable is told, too
            self._level_at = now
        elif self._gathers and more > 0 and not self._quick and now - self._ended < GATHER_S:
            self._wanted = self._log.end + more - more // 4  # the last ones may be long in coming
            self._alarm = asyncio.get_running_loop().call_later(GATHER_S, self._waited_in_vain)
        else:
            self._flush()

    def _waited_in_vain(self) -> None:
        self._quick = IN_VAIN
        self._flush()

    def _stop_waiting(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _flush(self) -> None:
        self._stop_waiting()
        self._quick = max(0, self._quick - 1)
        self._began = self._clock.monotonic()
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
        self._stop_waiting()
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
                self._flush_began = self._clock.monotonic()
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
        self._level_at, self._ended = self._began, self._clock.monotonic()
        self._seconds.observe(self._ended - self._flush_began)
        self._answered, self._durable = self._log.durable_end - self._durable, self._log.durable_end
        if self._again:
            self._again = False
            self._begin(self._answered)
        self._on_flushed()

    def _failed(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            log.error("this broker stops writing: %s", error)
        else:
            log.error("this broker stops writing; restart it", exc_info=error)
            error = StoreError(f"flushing failed: {error!r}; restart the node")
        self._on_failed(error)
