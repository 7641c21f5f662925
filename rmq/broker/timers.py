"""What a broker does every so often. Each job has a task of its own; the clock is handed in, so tests move it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rmq.clock import Clock
from rmq.errors import RmqError

log = logging.getLogger("rmq.timers")

Job = Callable[[], Awaitable[None] | None]


class Timers:
    """A job that fails is logged and tried again next time, whatever it raised: no job ends unnoticed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._lasting: list[asyncio.Task[None]] = []
        self._sleeping: set[asyncio.Task[None]] = set()
        self._stopped = False

    def every(
        self, seconds: float | Callable[[], float], name: str, job: Job, first_s: float | None = None, *, lasts: bool = False
    ) -> None:
        """Run `job` each `seconds` (or what that says before each wait) until stopped; the first time after `first_s`, if that
        is given. One that `lasts` runs until all others have ended, which may wait for what it does."""
        task = asyncio.create_task(self._run(first_s, seconds, name, job), name=f"timer-{name}")
        (self._lasting if lasts else self._tasks).append(task)

    @property
    def stopping(self) -> bool:
        """Asks a long job to end soon."""
        return self._stopped

    async def stop(self) -> None:
        """A running job ends first: half a file would be in the way of the next writer."""
        self._stopped = True
        await self._end(self._tasks)
        lasting, self._lasting = self._lasting, []
        await self._end(lasting)

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in self._sleeping.intersection(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        tasks.clear()

    async def _run(self, first_s: float | None, seconds: float | Callable[[], float], name: str, job: Job) -> None:
        trouble, wait_s = "", first_s
        while not self._stopped or asyncio.current_task() in self._lasting:
            if wait_s is None:
                wait_s = seconds() if callable(seconds) else seconds
            await self._sleep(wait_s)
            trouble = await self._once(name, job, trouble)
            wait_s = None

    async def _sleep(self, seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._sleeping.add(task)
        try:
            await self._clock.sleep(seconds)
        finally:
            self._sleeping.discard(task)

    async def _once(self, name: str, job: Job, before: str) -> str:
        """Notes what is wrong with the job now ("": nothing). The same trouble again is not worth another log line."""
        try:
            pending = job()
            if pending is not None:
                await pending
        except (RmqError, OSError) as error:
            trouble = str(error)
            if trouble != before:
                log.warning("%s: %s; tried again until it works", name, trouble)
            return trouble
        except Exception as error:
            if repr(error) != before:
                log.exception("%s failed; this is a bug, please report it. It is tried again", name)
            return repr(error)
        if before:
            log.info("%s: works again", name)
        return ""
