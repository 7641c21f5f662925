"""What a broker does every so often. Each job has a task of its own; the clock is handed in, so tests move it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rmq.clock import Clock
from rmq.errors import RmqError

log = logging.getLogger("rmq.timers")

Job = Callable[[], Awaitable[None] | None]


class Timers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, seconds: float, name: str, job: Job) -> None:
        """Run `job` each `seconds` until stopped. A refusal or store error is logged and the job tried again next time."""
        self._tasks.append(asyncio.create_task(self._run(seconds, name, job), name=f"timer-{name}"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _run(self, seconds: float, name: str, job: Job) -> None:
        while True:
            await self._clock.sleep(seconds)
            try:
                pending = job()
                if pending is not None:
                    await pending
            except RmqError as error:
                log.warning("%s: %s", name, error)
