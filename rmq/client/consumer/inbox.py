"""Where pulled messages wait for their handlers. Queues take turns, so a busy one does not starve the others."""

import asyncio
from collections import deque
from typing import NamedTuple

from rmq.client.consumer.window import Window
from rmq.client.shared.message import ReceivedMessage


class Delivery(NamedTuple):
    """A message that was handed out, and the queue it must be finished in."""

    window: Window
    message: ReceivedMessage


_TAKES_IN_A_ROW = 32  # then heartbeats, pulls and notices get a turn, even if handlers never wait


class Inbox:
    """The queues that have something ready. Once closed it hands nothing out."""

    def __init__(self) -> None:
        self._queues: deque[Window] = deque()
        self._arrived = asyncio.Event()
        self._takes = 0
        self.closed = False

    def offer(self, window: Window) -> None:
        """Notes that the queue has something ready."""
        if window.has_ready and window not in self._queues:
            self._queues.append(window)
        self._arrived.set()

    def take_now(self) -> Delivery | None:
        """A message if one is ready; if none is, `until_arrived` waits from now on."""
        while self._queues and not self.closed:
            window = self._queues.popleft()
            if window.has_ready:
                message = window.take()
                if window.has_ready:
                    self._queues.append(window)
                return tuple.__new__(Delivery, (window, message))
        if not self.closed:
            self._arrived.clear()
        return None

    async def take(self, stop: asyncio.Event) -> Delivery | None:
        """The next message; None once the inbox is closed or `stop` is set (call `wake` after setting it)."""
        self._takes += 1
        if self._takes % _TAKES_IN_A_ROW == 0:
            await asyncio.sleep(0)
        while not self.closed and not stop.is_set():
            delivery = self.take_now()
            if delivery is not None:
                return delivery
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
