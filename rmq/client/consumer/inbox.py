"""Where pulled messages wait for their handlers. Queues take turns, so a busy one does not starve the others."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from rmq.client.consumer.window import Window
from rmq.client.shared.message import ReceivedMessage

T = TypeVar("T")


class Delivery(NamedTuple):
    """A message that was handed out, and the queue it must be finished in."""

    window: Window
    message: ReceivedMessage


IN_A_ROW: Final = 32  # messages; then heartbeats, pulls and notices get a turn, even if handlers never wait


class Inbox:
    """The queues that have something ready. Once closed it hands nothing out."""

    def __init__(self) -> None:
        self._queues: deque[Window] = deque()
        self._arrived = asyncio.Event()
        self.taken = 0  # in a row
        self.closed = False

    def offer(self, window: Window) -> None:
        """Notes that the queue has something ready."""
        self.put_back(window)
        self._arrived.set()

    def take_now(self) -> Delivery | None:
        """A message if one is ready; if none is, `until_arrived` waits from now on."""
        while (window := self._window_now()) is not None:
            message = window.take()
            if message is not None:
                self.put_back(window)
                return tuple.__new__(Delivery, (window, message))
        return None

    def _window_now(self) -> Window | None:
        while self._queues and not self.closed:
            window = self._queues.popleft()
            if window.has_ready:
                return window
        if not self.closed:
            self._arrived.clear()
        return None

    def put_back(self, window: Window) -> None:
        """Others had their turn first: the queue stays here while it has something ready."""
        if window.has_ready and window not in self._queues:
            self._queues.append(window)

    def forget(self, window: Window) -> None:
        """It was dropped: nobody takes its messages any more."""
        if window in self._queues:
            self._queues.remove(window)

    async def take(self, stop: asyncio.Event) -> Delivery | None:
        """The next message; None once the inbox is closed or `stop` is set (call `wake` after setting it)."""
        self.taken += 1
        return await self._wait_for(self.take_now, stop)

    async def next_window(self, stop: asyncio.Event) -> Window | None:
        """As `take`: a queue with something ready, to be taken from at once, at most `IN_A_ROW` messages, and to be put back."""
        return await self._wait_for(self._window_now, stop)

    async def _wait_for(self, ready: Callable[[], T | None], stop: asyncio.Event) -> T | None:
        if self.taken >= IN_A_ROW:
            self.taken = 0
            await asyncio.sleep(0)
        while not self.closed and not stop.is_set():
            found = ready()
            if found is not None:
                return found
            await self.until_arrived()
        return None

    async def until_arrived(self) -> None:
        """Until something was offered since `take_now` found nothing, or the inbox was woken or closed."""
        await self._arrived.wait()

    def wake(self) -> None:
        self._arrived.set()

    def close(self) -> None:
        self.closed = True
        self._arrived.set()
