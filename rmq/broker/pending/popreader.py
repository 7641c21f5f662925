"""Hands out messages of a queue from the group's offset on, with a receipt that is committed before anybody sees them.

One pop at a time has a queue of a group, until its receipt is committed or refused: so no message is handed out twice, and
the group's offset never moves without a receipt (story 41).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from rmq.broker.pending.receipts import NewReceipt, ReceiptWriter
from rmq.broker.pending.singled import singled
from rmq.broker.shared.ports import Reader
from rmq.broker.shared.state import Line, is_unknown
from rmq.delivery.filters import Selection
from rmq.delivery.offsets import OffsetKey, OffsetTable
from rmq.delivery.popping import MAX_MESSAGES, Part, retry_flag
from rmq.delivery.receipts import ReceiptKey, ReceiptTable
from rmq.errors import RmqError, no_group, no_topic
from rmq.log.queues.consumequeue import ConsumeQueue, MatchingEntries
from rmq.log.records.record import iterate, queue_offset_in
from rmq.log.units import Unit
from rmq.model import LIGHT_PREFIX, RETRY_PREFIX

MAX_BYTES = 256 * 1024  # of one queue in one answer [maxTransferBytesOnMessageInMemory]
FIRST, LAST = 0, 1  # where a group without an offset begins [ConsumeInitMode]

GroupQueue = tuple[str, str, int]
"""Group, topic, queue."""


class Wish(NamedTuple):
    """What one pop asks for. `begin`: FIRST or LAST. `since`: where in the log the life of its topic begins: what came back
    before that is of another one, whose messages these were."""

    group: str
    invisible_ms: int
    pop_time: int
    begin: int
    wanted: Selection
    revive_queue: int
    since: int = 0


class Taken(NamedTuple):
    """Messages of one queue. They may be shown once `committed` is done; if it fails, nobody has them."""

    topic: str
    part: Part
    messages: bytes
    committed: "asyncio.Future[None]"


class Read(NamedTuple):
    """`epoch`: in which this node led then. `queue`: as it was then. `start`: where the reading began, `next`: where the next one
    begins; `spans` and `queue_offsets` of the messages between."""

    epoch: int | None
    queue: ConsumeQueue
    start: int
    next: int
    spans: Sequence[tuple[int, int]]
    queue_offsets: Sequence[int]
    messages: bytes


class QueueReader:
    """A group's offset in a queue, and the messages there. `commit(lines)`: state lines, done when committed.
    `is_leaving(topic)`: its deletion is on its way, and what is written behind that would be of its next life; `has_group(name)`:
    it is there, and is not being deleted either. `epoch()`: the one that this node leads; None: it does not."""

    def __init__(
        self,
        reader: Reader,
        offsets: OffsetTable,
        commit: Callable[[list[Line]], Awaitable[None]],
        is_leaving: Callable[[str], bool],
        has_group: Callable[[str], object],
        epoch: Callable[[], int | None],
    ) -> None:
        self.reader = reader
        self.has_group = has_group
        self.is_leaving = is_leaving
        self._log = reader.log
        self._queues = reader.queues
        self._offsets = offsets
        self.commit = commit
        self._epoch = epoch
        self._leaving = 0  # what stands before this offset of the log is about to be deleted

    def leave(self, below: int) -> None:
        """Messages before that log offset are handed out no more: they are about to be deleted."""
        self._leaving = max(self._leaving, below)

    def reached(self, group: str, topic: str, queue_id: int) -> int:
        """The group's offset there; 0 if it has none."""
        return self._offsets.query(group, topic, queue_id) or 0

    def has_offset(self, group: str, topic: str, queue_id: int) -> bool:
        return self._offsets.query(group, topic, queue_id) is not None

    def is_at(self, place: GroupQueue, queue_offset: int) -> bool:
        """Whether that is the group's offset there."""
        return self._offsets.query(*place) == queue_offset

    def end(self, _group: str, topic: str, queue_id: int) -> int:
        """The offset behind the last message."""
        return self._queues.look(topic, queue_id).max

    def left(self, group: str, topic: str, queue_id: int) -> int:
        """How many messages the group has not been given yet."""
        queue, known = self._queues.look(topic, queue_id), self._offsets.query(group, topic, queue_id)
        return max(queue.max - max(known or 0, queue.min), 0)

    def has_more(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a look is worth it, also where the group is in front of what is left, or behind the end."""
        queue, known = self._queues.look(topic, queue_id), self._offsets.query(group, topic, queue_id) or 0
        return queue.max > max(known, queue.min) or not queue.min <= known <= queue.max

    def is_moving(self, place: GroupQueue) -> bool:
        """Whether a tool is setting the group to another place there."""
        return self._offsets.resets.is_staged(OffsetKey(*place))

    def was_moved(self, place: GroupQueue) -> bool:
        """Whether a tool did, and nobody has followed yet."""
        return OffsetKey(*place) in self._offsets.resets.pending

    def is_still_at(self, place: GroupQueue, read: "Read") -> bool:
        """Whether what was read is still what comes next for the group."""
        over = read.queue.ended or self.is_leaving(place[1]) or self.is_moving(place) or not self.has_group(place[0])
        return not over and self.start(*place) == read.start

    def overtake(self, place: GroupQueue) -> bool:
        """See `OffsetTable.overtake`. Where it is False, the next look of a pop settles it first."""
        return self._offsets.overtake(OffsetKey(*place))

    async def settle(self, wish: Wish, topic: str, queue_id: int) -> None:
        """Makes the group's offset in that queue one that a failover keeps. Raises Refusal."""
        if self.is_leaving(topic):
            raise no_topic(topic, " any more: it is being deleted")
        if not self.has_group(wish.group):
            raise no_group(wish.group, ": it is being deleted")
        key, queue = OffsetKey(wish.group, topic, queue_id), self._queues.look(topic, queue_id)
        while (waiting := self._offsets.take(*key)) is not None:
            try:
                await self.commit([("offset", key, waiting)])
            except RmqError:
                self._offsets.give_back((key,))
                raise
        if wish.begin == LAST and not topic.startswith(RETRY_PREFIX) and self._offsets.query(*key) is None:
            first = queue.min == 0 and queue.max > 0 and self.reader.in_memory(queue.entry(0).offset)
            await self.commit([("offset", key, 0 if first else max(queue.max - 1, 0))])
        if (self._offsets.query(*key) or 0) > queue.max:  # messages were lost (docs/storage): their offsets have new messages
            await self._set(key, queue.max)
        start = self.start(*key)
        if (alive := self._alive(queue, start, wish.since)) != start:
            await self._set(key, alive)  # or what leaves could not be deleted

    async def _set(self, key: OffsetKey, offset: int) -> None:
        self._offsets.overtake(key)
        await self.commit([("offset", key, offset)])

    def start(self, group: str, topic: str, queue_id: int) -> int:
        """The next message for the group."""
        queue, known = self._queues.look(topic, queue_id), self._offsets.query(group, topic, queue_id)
        return min(max(known or 0, queue.min), queue.max)

    def _alive(self, queue: ConsumeQueue, start: int, since: int) -> int:
        """The first message from there on that is not about to be deleted, and not before `since` in the log."""
        below = max(self._leaving, since)
        stale = start < queue.max and below > self._log.start and queue.entry(start).offset < below
        return queue.first_at_or_behind(below) if stale else start

    async def read(
        self, group: str, topic: str, queue_id: int, count: int, wanted: Selection, since: int = 0, behind: int = 0
    ) -> Read:
        """Messages that the group wants, from where it is, or from `behind` on in the queue; none from before `since` in the log.

        Raises StoreError, OSError, Refusal.
        """
        epoch, queue = self._epoch(), self._queues.look(topic, queue_id)
        start = max(self._alive(queue, self.start(group, topic, queue_id), since), behind)
        count = min(count, MAX_MESSAGES)
        found, messages = await self._read(group, queue, start, count, wanted)
        if queue.holds_batches:
            found, messages = singled(found, messages, start, count, wanted)
        return Read(epoch, queue, start, found.next_offset, found.spans, _queue_offsets(topic, start, found, messages), messages)

    async def _read(
        self, group: str, queue: ConsumeQueue, start: int, count: int, wanted: Selection
    ) -> tuple[MatchingEntries, bytes]:
        if start >= queue.max:
            return MatchingEntries(start, [], 0), b""
        read = self.reader.read_now(queue, start, count, MAX_BYTES, wanted)
        if read is None:
            read = await self.reader.read(group, queue, start, count, MAX_BYTES, wanted)
        return read.found, read.messages

    def passed(self, place: GroupQueue, read: Read) -> None:
        """No wanted message stands before `read.next`, so the group is there. Nothing is written for it now: the next pop writes
        where that ends, or all that is noted is written together."""
        led = read.epoch is not None and read.epoch == self._epoch()  # else others know better by now
        if led and read.next > self.reached(*place) and self.is_still_at(place, read):
            self._offsets.passed(OffsetKey(*place), read.next)


class PopReader:
    """Takes messages of one queue for one pop."""

    def __init__(
        self, reader: QueueReader, receipts: ReceiptTable, writer: ReceiptWriter, freed: Callable[[str, str, int], None]
    ) -> None:
        """`freed(group, topic, queue)`: the next pop may have that queue."""
        self.reader = reader
        self._receipts = receipts
        self._writer = writer
        self._freed = freed
        self._busy: set[GroupQueue] = set()
        self._undecided: dict[GroupQueue, tuple[Unit, int]] = {}

    def may_have(self, place: GroupQueue) -> bool:
        """Whether `take` is worth a try."""
        return place not in self._busy and not self._receipts.is_full(*place) and self.reader.has_more(*place)

    async def take(self, wish: Wish, topic: str, queue_id: int, count: int) -> Taken | None:
        """Up to `count` messages; None: nothing there, or another pop has the queue. Raises Refusal, StoreError, OSError."""
        place = (wish.group, topic, queue_id)
        if not self.may_have(place):
            return None
        self._busy.add(place)
        try:
            taken = await self._take(wish, topic, queue_id, count)
        except BaseException:
            self._free(place)
            raise
        if taken is not None:
            opened, unit = taken
            decided = partial(self._decided, place, unit, self._receipts.leadership)
            opened.committed.add_done_callback(decided)
            return opened
        if self.reader.has_more(*place):
            self._free(place)
        else:  # there is nothing for others either
            self._busy.discard(place)
        return None

    def _decided(self, place: GroupQueue, unit: Unit, leadership: int, committed: "asyncio.Future[None]") -> None:
        """A receipt that was not committed in time may be so later: until then its messages are nobody else's."""
        error = committed.exception()
        if isinstance(error, RmqError) and is_unknown(error):
            self._undecided[place] = unit, leadership
            self.free_decided()
        else:
            self._free(place)

    def free_decided(self) -> None:
        """Frees queues whose receipts were not committed in time: they are by now, or this node has lost its leadership since."""
        committed, leadership = self.reader.reader.committed(), self._receipts.leadership
        for place, (unit, taken_in) in list(self._undecided.items()):
            if unit.end <= committed or taken_in != leadership:
                del self._undecided[place]
                self._free(place)

    def _free(self, place: GroupQueue) -> None:
        self._busy.discard(place)
        if self.reader.left(*place):
            self._freed(*place)

    async def _take(self, wish: Wish, topic: str, queue_id: int, count: int) -> tuple[Taken, Unit] | None:
        await self.reader.settle(wish, topic, queue_id)
        place, wanted = (wish.group, topic, queue_id), None if topic.startswith(RETRY_PREFIX) else wish.wanted
        read = await self.reader.read(wish.group, topic, queue_id, count, wanted)
        if not read.queue_offsets:
            self.reader.passed(place, read)
            return None
        if not self.reader.is_still_at(place, read):
            return None
        start = read.queue_offsets[0]
        key = ReceiptKey(wish.group, topic, queue_id, start, wish.pop_time)
        if self._receipts.get(key) is not None:  # a pop in the same millisecond, from the same offset
            return None
        if not self.reader.overtake(place):
            return None
        lowest = min(offset for offset, _ in read.spans)
        opened = NewReceipt(key, wish.invisible_ms, read.queue_offsets, read.next, lowest)
        unit, committed = self._writer.open(wish.revive_queue, opened, read.queue)
        part = Part(retry_flag(wish.group, topic), queue_id, start, read.queue_offsets)
        return Taken(topic, part, read.messages, committed), unit


def _queue_offsets(topic: str, begin: int, found: MatchingEntries, messages: bytes) -> list[int]:
    """Of the messages in the queue from which they were read, from `begin` on."""
    spans = found.spans
    if len(spans) == found.next_offset - begin:  # none was left out
        return [*range(begin, found.next_offset)]
    if topic.startswith(LIGHT_PREFIX):  # a record's own queue offset is that in the queue of its topic
        return [queue_offset_in(topic, stored) for stored in iterate(messages)]
    starts = accumulate((size for _, size in spans[:-1]), initial=0) if spans else ()
    return [int.from_bytes(messages[at + 20 : at + 28], "big") for at in starts]
