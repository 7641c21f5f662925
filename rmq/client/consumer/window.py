"""One owned queue: pulled messages, messages being handled, and up to where all are finished. No network, no sharing rules.

    pulled -> ready -> handed -> finished
                ^        |
                +- held -+   (the handler failed: the queue waits, or goes on, and the same message comes again)

The offset that may be committed is that of the lowest message that is not finished (C6).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from rmq.client.consumer.plan import MAX_SPAN
from rmq.client.shared.message import ReceivedMessage
from rmq.model import MessageQueue


class Window:
    """`next_offset`: where to pull next; `began`: where the first pull was. `committed`: the last offset that was committed (-1:
    none). Not `sure`: a follower said where to begin, so nothing is committed before the leader was asked; or another window
    takes its place. `doubted`: the leader lost our connection, and with it forgot us: another member may be further. `last`:
    queue offset and place in the log of the last message that was pulled, wanted or not. `pulled_s`, `handled_s`: when last, by
    the monotonic clock. With `locked`, which tells whether the queue is locked for us, messages are handed out one at a time,
    and only while it is."""

    def __init__(
        self, queue: MessageQueue, next_offset: int, committed: int = -1, locked: Callable[[], bool] | None = None
    ) -> None:
        self.queue = queue
        self.began = self.next_offset = next_offset
        self.committed = committed
        self.last = (-1, -1)
        self.pulled_s: float | None = None
        self.handled_s: float | None = None
        self.handed = 0
        self.held = 0
        self.dropped = False
        self.sure = True
        self.doubted = False
        self._locked = locked
        self._ready: deque[ReceivedMessage] = deque()
        self._unfinished: dict[int, int] = {}  # offset -> body bytes, rising offsets
        self._failures: dict[int, int] = {}  # offset -> how often its handler failed
        self._held_alone: set[int] = set()  # offsets of messages that are held while the queue goes on
        self._bytes = 0
        self._changed = asyncio.Event()

    @property
    def count(self) -> int:
        """Messages in memory, those being handled too."""
        return len(self._unfinished)

    @property
    def bytes_held(self) -> int:
        """Of the bodies of these."""
        return self._bytes

    @property
    def ends(self) -> tuple[int, int]:
        """Offsets of the first and the last of these; 0, 0 without any."""
        return (next(iter(self._unfinished)), next(reversed(self._unfinished))) if self._unfinished else (0, 0)

    @property
    def committable(self) -> int:
        """Everything below is finished, filtered out or was never there."""
        return next(iter(self._unfinished), self.next_offset)

    @property
    def after(self) -> int:
        """Where in the log the message before `next_offset` stood; -1 if that message did not come here."""
        queue_offset, place = self.last
        return place if queue_offset + 1 == self.next_offset else -1

    @property
    def has_ready(self) -> bool:
        if not self._ready or self.held or self.dropped:
            return False
        return self._locked is None or (not self.handed and self._locked())

    def add(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """What a pull brought; `next_offset` lies behind everything the broker examined."""
        for message in messages:
            size = message.body_bytes
            self._unfinished[message.queue_offset] = size
            self._bytes += size
            self._ready.append(message)
        self.next_offset = next_offset

    def take(self) -> ReceivedMessage | None:
        """The next ready message, now handed out."""
        if not self._ready or self.held or self.dropped:
            return None
        if self._locked is not None and (self.handed or not self._locked()):
            return None
        self.handed += 1
        return self._ready.popleft()

    def finish(self, message: ReceivedMessage) -> None:
        """The message is finished. A message of a dropped queue still counts for the queue's last commit."""
        self.handed -= 1
        self._bytes -= self._unfinished.pop(message.queue_offset)
        if self._failures:
            self._failures.pop(message.queue_offset, None)
        self._changed.set()

    def hold(self, message: ReceivedMessage, *, alone: bool = False) -> int:
        """Its handler failed: nothing more of this queue is handed out until `again`, or with `alone` everything but this
        message. Returns how often it failed."""
        self.handed -= 1
        if alone:
            self._held_alone.add(message.queue_offset)
        else:
            self.held += 1
        self._changed.set()
        failures = self._failures[message.queue_offset] = self._failures.get(message.queue_offset, 0) + 1
        return failures

    def failures(self, message: ReceivedMessage) -> int:
        """How often its handler failed here until now."""
        return self._failures.get(message.queue_offset, 0)

    def again(self, message: ReceivedMessage) -> None:
        """The pause after `hold` is over: the message is next again."""
        if message.queue_offset in self._held_alone:
            self._held_alone.remove(message.queue_offset)
        else:
            self.held -= 1
        self._ready.appendleft(message)
        if len(self._ready) > 1 and self._ready[1].queue_offset < message.queue_offset:
            self._ready = deque(sorted(self._ready, key=lambda each: each.queue_offset))

    def is_full(self, max_messages: int, max_bytes: int) -> bool:
        """Whether pulling must wait (C18)."""
        if not self._unfinished:
            return False
        first, last = self.ends
        return self.count >= max_messages or self._bytes >= max_bytes or last - first > MAX_SPAN

    async def until_changed(self) -> None:
        """Until something was finished or held. Several may wait."""
        self._changed.clear()
        await self._changed.wait()
