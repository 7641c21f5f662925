"""How long a handler may take: one timer for message after message, where `asyncio.timeout` sets and cancels one for each."""

import asyncio
from types import TracebackType


def is_being_cancelled() -> bool:
    """Whether somebody cancels this task. If not, a CancelledError came from what it waits for, and is a failure like others."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Patience:
    """`with patience:` around each wait of the task that made it: after `seconds` the task is cancelled, which comes out as
    TimeoutError, as of `asyncio.timeout`. None: for ever. Times are the loop's."""

    def __init__(self, seconds: float | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._until: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancelling = 0  # how often somebody else had cancelled the task
        self._spent_s = 0.0
        self.expired = False  # the last wait was

    def less(self, spent_s: float) -> "Patience":
        """For the next wait only: so much of its time is over."""
        self._spent_s = spent_s
        return self

    def __enter__(self) -> None:
        self.expired = False
        if self._seconds is not None:
            self._cancelling = self._task.cancelling()
            self._until = self._loop.time() + self._seconds - self._spent_s
            self._spent_s = 0.0
            if self._timer is None:
                self._timer = self._loop.call_at(self._until, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._until is None:
            return
        if self._loop.time() < self._until:  # the timer was set for an earlier message
            self._timer = self._loop.call_at(self._until, self._look)
        else:
            self.expired = True
            self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._until = None
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
