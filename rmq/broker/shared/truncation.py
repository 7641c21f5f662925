"""Readers that are ahead of a log that lost bytes: they are sent back, so that they see what came instead.

After a leadership that may lack acknowledged bytes (a lossy epoch, which begins at `s`), the numbers above a queue's count at `s`
are given to new messages. A reader of the old messages would take the new ones for known. So the first pull of each
reader of a queue is checked: our client names the log offset of the message before; for others only the group's stored
offset tells. The queue itself knows its count at `s`: its first message at or behind `s`.
"""

from collections.abc import Awaitable, Callable, Sequence

from rmq.delivery.groups import ConsumerRegistry
from rmq.delivery.offsets import OffsetKey, OffsetTable
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.queues.queues import ConsumeQueues
from rmq.model import EpochEntry
from rmq.net.commands import Pull, UpdateConsumerOffset
from rmq.net.transport.server import Call

MAX_CHECKED = 200_000
Commit = Callable[[UpdateConsumerOffset, Call], Awaitable[None] | None]


class TruncationGuard:
    """`starts`: where the lossy epochs of this log begin; nothing needs to be asked while there is none."""

    def __init__(self, offsets: OffsetTable, queues: ConsumeQueues, registry: ConsumerRegistry) -> None:
        self.starts: tuple[int, ...] = ()
        self._offsets = offsets
        self._queues = queues
        self._registry = registry
        self._checked: dict[OffsetKey, str] = {}  # the reader of the queue that certainly reads this log

    def learn(self, history: Sequence[EpochEntry]) -> None:
        """Takes note of the epoch history as it is now."""
        starts = tuple(entry.start for entry in history if entry.lossy)
        if starts != self.starts:
            self.starts = starts
            self._checked.clear()

    def send_back(self, request: Pull, reader: str) -> int | None:
        """From where this reader has to begin again; None if it may go on. Raises StoreError."""
        key = OffsetKey(request.consumer_group, request.topic, request.queue_id)
        queue = self._queues.find(request.topic, request.queue_id)
        if queue is None or self._checked.get(key) == reader:
            return None
        if request.after >= 0:
            back = self._by_place(queue, request.queue_offset, request.after, self._offsets.query(*key))
        else:
            back = self._by_count(queue, request.queue_offset, key)
        if back is None:
            if len(self._checked) >= MAX_CHECKED:
                self._checked.clear()  # they are checked once more
            self._checked[key] = reader
        return back

    def guarding(self, commit: Commit) -> Commit:
        """Wraps a commit: drops that of a reader that may be ahead and did not pull here yet. An administrator's counts."""

        def checked(request: UpdateConsumerOffset, call: Call) -> Awaitable[None] | None:
            if self.starts and self.is_early(request, reader_of(call), call.oneway):
                return None
            return commit(request, call)

        return checked

    def is_early(self, request: UpdateConsumerOffset, reader: str, oneway: bool) -> bool:
        """Whether this commit may be about offsets that now have other messages. Raises StoreError."""
        key = OffsetKey(request.consumer_group, request.topic, request.queue_id)
        queue = self._queues.find(request.topic, request.queue_id)
        if queue is None or self._checked.get(key) == reader:
            return False
        consumes = oneway or reader in self._registry.members(request.consumer_group)
        return consumes and self._by_count(queue, request.commit_offset, key) is not None

    def _by_place(self, queue: ConsumeQueue, offset: int, after: int, stored: int | None) -> int | None:
        """The message before `offset` stood at `after` in the log that this reader read."""
        crossed = [start for start in self.starts if start <= after]
        if not crossed or offset <= queue.min or (offset <= queue.max and queue.entry(offset - 1).offset == after):
            return None
        count = queue.first_at_or_behind(crossed[-1])
        if offset <= count:
            return None
        return max(queue.min, count if stored is None else min(count, stored))

    def _by_count(self, queue: ConsumeQueue, offset: int, key: OffsetKey) -> int | None:
        """`offset` lies behind a lossy start; the group's stored offset, which belongs to this log, does not.

        Back to the stored one, not only to the count: a client of RocketMQ drops what it pulled and did not handle yet. A
        group without one may be anybody (a tool, a broadcast group that keeps its own): they are left alone.
        """
        stored = self._offsets.query(*key)
        if stored is None or stored >= offset:
            return None
        if any(stored <= queue.first_at_or_behind(start) < offset for start in self.starts):
            return max(queue.min, stored)
        return None


def reader_of(call: Call) -> str:
    """The reader's name: a client keeps it when it connects again."""
    return call.connection.client_id or str(call.connection.id)
