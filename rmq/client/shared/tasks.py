"""Background tasks that are never lost, and waiting that obeys a Clock. Knows nothing of messages."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from rmq.background import cancel
from rmq.clock import Clock

_log = logging.getLogger("rmq.client")
_T = TypeVar("_T")
_Thing = TypeVar("_Thing")


class TaskSet:
    """Tasks held by strong references (the event loop keeps weak ones only); a failed one says so in the log."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, _T], name: str) -> "asyncio.Task[_T]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s stopped: %s", task.get_name(), error, exc_info=error)

    def running(self) -> "list[asyncio.Task[Any]]":
        return list(self._tasks)

    async def close(self) -> None:
        """Cancel what still runs and wait for its end."""
        await cancel(*self._tasks)


async def some_at_a_time(most: int, work: Callable[[_Thing], Awaitable[_T]], things: Iterable[_Thing]) -> list[_T]:
    """What `work` says of each of them, in their order. Raises what one raises; then others may go on."""
    room = asyncio.Semaphore(most)

    async def one(thing: _Thing) -> _T:
        async with room:
            return await work(thing)

    return await asyncio.gather(*map(one, things))


async def within(clock: Clock, seconds: float, work: Awaitable[_T]) -> _T:
    """The result of `work` if it comes within `seconds` of the clock; else `work` is cancelled and TimeoutError raised."""
    task = asyncio.ensure_future(work)
    alarm = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        alarm.cancel()
        task.cancel()
        await asyncio.gather(task, alarm, return_exceptions=True)
