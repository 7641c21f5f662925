"""Work that goes on beside: tasks, how they end, and threads that leave the loop its time."""

import asyncio
import time
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, Final, TypeVar

from rmq.clock import Clock

SLICE_S: Final = 0.002  # the longest slice of the loop's time, and of a thread's that holds the interpreter meanwhile
REST_S: Final = 0.001  # of the thread after each slice
_LOOK_S: Final = 1.0  # between two looks whether the machine slept
T = TypeVar("T")


def start(work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    """A task that only its owner ends, by cancelling it. If an error ends it, the loop's exception handler hears of it at once;
    asyncio would say nothing for as long as somebody keeps the task."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell)
    return task


def _tell(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": f"{task.get_name()} broke off", "exception": error, "task": task})


async def cancel(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they have ended; their results and errors are not raised here."""
    own = asyncio.current_task()
    others = [task for task in tasks if task is not own]
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)


async def first(*waits: Coroutine[Any, Any, object]) -> None:
    """Until one of them has ended."""
    tasks = [asyncio.create_task(one) for one in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def pause(clock: Clock, seconds: float, *ends: asyncio.Event) -> None:
    """Returns after that time, or when one of `ends` is set. In short steps: a timer stands still while the machine sleeps, and
    this time goes on."""
    due_s = clock.since_boot() + seconds
    while not any(end.is_set() for end in ends) and (left_s := due_s - clock.since_boot()) > 0:
        await first(clock.sleep(min(left_s, _LOOK_S)), *(end.wait() for end in ends))


class Rests:
    """In a thread with much to do: lets the loop's have the interpreter to itself for a moment after each `SLICE_S`.

    Otherwise the loop would have to ask for it again after each call of the system, for as long as the work takes.
    """

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_S

    def between(self, things: Iterable[T]) -> Iterator[T]:
        """The same things; after some of them the thread sleeps."""
        for thing in things:
            yield thing
            if time.perf_counter() > self._until:
                time.sleep(REST_S)
                self._until = time.perf_counter() + SLICE_S
