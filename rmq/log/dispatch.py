"""Dispatch gives committed records, and only them, their ConsumeQueue entries, in log order (docs/storage).

A topic's queues go at the place of the line that deletes it, and their queue offsets begin again at 0. In Apache RocketMQ's bytes
offset 0 alone says so: its deletions leave no trace. The same holds for a topic that was deleted before: an older release
stored messages behind that line with offsets of the former life, and the first of the next life says 0 (docs/storage, deleted
topics).

Bytes that this node appended come as units; others (recovery) are read from the log. This file does not decide what is
committed.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from struct import Struct

from rmq.errors import InvalidArgument, StoreError
from rmq.log.commitlog import CommitLog
from rmq.log.files import epochs
from rmq.log.files.segment import BadEntry, Records, RecordView
from rmq.log.queues.consumequeue import MOST_BLANKS, ConsumeQueue, put_packed
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.records import columns
from rmq.log.records.deletions import deleted_topics, topics_of_batches
from rmq.log.records.everyday import ENTRY_BYTES, Everyday, everyday
from rmq.log.records.innerbatch import is_inner_batch
from rmq.log.records.peek import peek
from rmq.log.records.pending import is_pending_change
from rmq.log.records.record import MIN_RECORD_BYTES, Record, decode, entry_code, iterate, queue_places
from rmq.log.records.tombstones import UNKNOWN_TOPIC, is_tombstone
from rmq.log.taken import Laid
from rmq.log.units import Fan, Unit
from rmq.model import STATE_TOPIC, is_pending_topic

REPORT_BYTES = 64 * 1024 * 1024
_FLIPPED = "the record at %d, which Apache RocketMQ wrote, has no place in its queue, where it is left out: %s"
_FEW = 96  # records: from so many on numpy pays
_LOG = logging.getLogger(__name__)
_size_at = Struct(">i").unpack_from


class Dispatcher:
    """`position`: everything below it is in the ConsumeQueues (in memory; durable after `ConsumeQueues.flush`)."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, position: int) -> None:
        self.position = position
        self._offsets_lost = False  # behind a repaired stretch
        self._log = log
        self._queues = queues
        self._cached_queues: dict[tuple[bytes, int], ConsumeQueue] = {}  # by a topic's bytes

    def advance(self, hw: int, most_bytes: int = sys.maxsize) -> list[Unit]:
        """Dispatches the records that end at or below `hw`, and returns them as units, in log order; stops after `most_bytes`.

        What this node appended itself comes as it was appended, as soon as all of a unit is committed; a leader's bytes are
        read from the log. A record whose queue offset is not the next of its queue is a bug or damage and ends the process (D12).
        """
        pending = self._log.pending
        done: list[Unit] = []
        enough = self.position + most_bytes
        to = min(hw, enough)
        while self.position < to:
            if not pending or self.position < pending[0].start:
                done += self._walked(min(pending[0].start, hw) if pending else hw, enough)
            elif pending[0].end <= hw:
                unit = pending.popleft()
                if unit.pending_change:
                    self._read_stamped(unit)
                elif unit.delay_ms:
                    unit.tags_codes = [unit.stored_ms + unit.delay_ms] * len(unit.sizes)
                unit.queue.put_many(unit.queue_offset, unit.physical_offset, unit.sizes, unit.tags_codes)
                self.position = unit.end
                if unit.queue.topic == STATE_TOPIC:
                    for one in iterate(unit.records):
                        self._change_topics(one)
                done.append(unit)
                if unit.fan is not None:
                    done += self._spread(unit, unit.fan)
            else:
                break
        return done

    def _spread(self, unit: Unit, fan: Fan) -> list[Unit]:
        """Dispatches an own message to its light queues: a unit for each, for those who wait there."""
        lights = []
        for queue, offset in zip(fan.queues, unit.light_offsets, strict=True):
            queue.put_many(offset, unit.physical_offset, unit.sizes, unit.tags_codes)
            light = Unit(b"", unit.sizes, unit.tags_codes, queue)
            light.queue_offset, light.physical_offset, light.start, light.end = offset, unit.physical_offset, unit.start, unit.end
            lights.append(light)
        return lights

    def begin_at(self, position: int) -> None:
        """All queues were deleted, and the log begins anew there."""
        self.position = position
        self._cached_queues.clear()

    def catch_up(self, to: int, tell: Callable[[int], None] = lambda position: None) -> None:
        """As `advance`, for a start: keeps nothing in memory, and notes damage in the log's `damages`."""
        reported = self.position
        while self.position < to:
            try:
                for some in self._log.records(self.position, to):
                    self._put_all(some)
                    if self.position - reported > REPORT_BYTES:
                        reported = self.position
                        tell(reported)
            except BadEntry as error:
                self.position = self._log.damages.discover(error, self._log.segments(), self._log.epochs, to)

    def _put_all(self, some: Records) -> list[Unit]:
        """Dispatches records: what is everyday among many of them at once. Units of everyday records have no parts: nobody looks
        into them again."""
        units: list[Unit] = []
        if len(some.at) < _FEW:
            self._put_each(some, 0, len(some.at), units)
            return units
        block = some.block()
        properties = columns.properties(block)
        found, done = everyday(block, properties, some.base), 0
        while done < len(found.stretches):
            together = self._put_those(found, done, some.base + block.at, units)
            done += together
            if together:
                self.position = some.base + int(block.end[found.stretches[done - 1].stop - 1])
            if done < len(found.stretches):
                self._put_each(some, found.stretches[done].first, found.stretches[done].stop, units)
                done += 1
        self._log.laid.add(Laid(some.base + int(block.at[0]), some.end, some.base, block, properties))
        return units

    def _put_those(self, found: Everyday, done: int, offsets: columns.Ints, units: list[Unit]) -> int:
        """Dispatches the stretches behind the first `done` up to one that `_put_everyday` would not take: how many. A unit for
        each queue. `offsets`: of the records in the log."""
        cached, mine = self._cached_queues.get, dict[ConsumeQueue, tuple[Unit, list[bytes]]]()
        count = 0
        for first, stop, topic, queue_id, queue_offset, is_everyday in found.stretches[done:]:
            queue = cached((topic, queue_id)) if is_everyday else None
            if queue is None:
                break
            unit, entries = mine.get(queue) or (Unit(b"", (), (), queue), [])
            if queue_offset != queue.max + len(unit.sizes):
                break
            if not entries:
                mine[queue] = unit, entries
                unit.queue_offset, unit.start = queue_offset, int(offsets[first])
            unit.sizes += found.sizes[first:stop]
            unit.tags_codes += found.codes[first:stop]
            unit.end = int(offsets[stop - 1]) + unit.sizes[-1]
            entries.append(found.entries[first * ENTRY_BYTES : stop * ENTRY_BYTES])
            count += 1
        for queue, (unit, entries) in mine.items():
            unit.physical_offset, unit.size = unit.start, sum(unit.sizes)
            put_packed(queue, b"".join(entries))
            units.append(unit)
        return count

    def _put_each(self, some: Records, first: int, stop: int, units: list[Unit]) -> None:
        for at in some.at[first:stop].tolist():
            (size,) = _size_at(some.buf, at)
            units += self._put_one(RecordView(some.base + at, some.buf, at, size), units[-1] if units else None)
            self.position = some.base + at + size

    def _put_one(self, place: RecordView, last: Unit | None) -> list[Unit]:
        """Dispatches any record. Its units; none if it was added to the `last` one, of the same queue right before it."""
        if found := self._put_everyday(place):
            queue, queue_offset, code = found
            if last is None or last.parts[0] or last.queue is not queue or last.end != place.offset:
                alone = _unit(b"", place, code, queue, queue_offset, self.position)
                alone.size = place.size
                return [alone]
            last.sizes.append(place.size)
            last.tags_codes.append(code)
            last.size += place.size
            last.end = place.offset + place.size
            return []
        record = decode(place.buf, place.at)
        put, code = self._put(record), entry_code(record)
        pending = is_pending_change(record) and not epochs.written_by_rocketmq(self._log.epochs, place.offset)
        data = bytes(place.buf[place.at : place.at + place.size])
        units = []
        for queue, queue_offset in put:
            unit = _unit(data, place, code, queue, queue_offset, self.position)
            unit.pending_change = pending and queue.topic == record.topic
            unit.decoded = (record,)
            units.append(unit)
        return units

    def _put_everyday(self, place: RecordView) -> tuple[ConsumeQueue, int, int] | None:
        """Queue, queue offset and tags code of a record that goes to a queue seen before, at the next queue offset, and nowhere
        else."""
        found = peek(place.buf, place.at, place.size)
        if found is None:
            return None
        topic, queue_id, queue_offset, code = found
        queue = self._cached_queues.get((topic, queue_id))
        if queue is None or queue_offset != queue.max:
            return None
        queue.put_many(queue_offset, place.offset, (place.size,), (code,))
        queue.next = max(queue.next, queue.max)
        return queue, queue_offset, code

    def _groups(self, to: int, enough: int) -> Iterator[Records]:
        """The records up to `to`: as they came and were checked, if a leader gave them to this run; else from the log."""
        for some in self._log.taken.from_(self.position, to):
            yield some.up_to(enough) if some.parts is None else some  # what was checked together stays together
        if self.position < to:
            for some in self._log.records(self.position, to):
                yield some.up_to(enough)

    def _walked(self, to: int, enough: int) -> list[Unit]:
        units: list[Unit] = []
        for some in self._groups(to, enough):
            units += self._put_all(some)
            if self.position >= enough:
                break
        return units

    def _read_stamped(self, unit: Unit) -> None:
        """Every node must note the same of a pending change: offsets and time as they are in the log."""
        unit.parts = [self._log.read(unit.physical_offset, unit.size)]
        unit.decoded = [*iterate(unit.parts[0])]
        unit.tags_codes = [entry_code(stored) for stored in unit.decoded]

    def _put(self, record: Record) -> list[tuple[ConsumeQueue, int]]:
        """Dispatches any record; returns the queues that got an entry, and its offset in each."""
        put = []
        if is_tombstone(record):
            self._bury(record)
        if is_inner_batch(record):  # RocketMQ stored it, whose topics do not stand in the log before their messages
            self._hold_batches(record.topic)
        for topic, queue_id, queue_offset in queue_places(record):
            try:
                queue = self._queues.get(topic, queue_id)
            except InvalidArgument as error:
                if epochs.written_by_rocketmq(self._log.epochs, record.physical_offset):
                    _LOG.warning(_FLIPPED, record.physical_offset, f"{error}")
                    continue
                raise StoreError(f"CommitLog at {record.physical_offset}: {error}; this store needs another version") from error
            if queue_offset != queue.max and epochs.written_by_rocketmq(self._log.epochs, record.physical_offset):
                if _is_nonsense(queue, queue_offset, record.physical_offset):
                    continue
                queue = self._fit(queue, queue_offset)
                if queue_offset < queue.max:  # RocketMQ passes over it too [ConsumeQueue.putMessagePositionInfo]
                    continue
            elif queue_offset != queue.max and self._log.damages:
                queue = self._fill(queue, queue_offset, record.physical_offset)
            if queue_offset == 0 < queue.max and self._topic_was_deleted(topic):
                queue = self._restart(queue, record.physical_offset)
            if self._offsets_lost:
                queue.skip_to(queue_offset)
            queue.put_many(queue_offset, record.physical_offset, (record.total_size,), (entry_code(record),))
            queue.next = max(queue.next, queue.max)
            put.append((queue, queue_offset))
            if topic != STATE_TOPIC and not is_pending_topic(topic) and not queue.holds_batches:
                self._cached_queues[topic.encode(), queue_id] = queue
        if record.topic == STATE_TOPIC:
            self._change_topics(record)
        return put

    def _fit(self, queue: ConsumeQueue, queue_offset: int) -> ConsumeQueue:
        """Queue offsets in Apache RocketMQ's bytes need not go on where the queue ends: it deletes a topic without a trace in
        the log (then they begin at 0 again), and it may leave some out (then blank entries stand for them)."""
        if queue_offset == 0:
            self._delete(queue.topic)
            return self._queues.get(queue.topic, queue.queue_id)
        queue.skip_to(queue_offset)
        return queue

    def _topic_was_deleted(self, topic: str) -> bool:
        """Whether a line deletes the topic, or did before the log's beginning. Looks at all state records: for one case in many
        logs."""
        state = self._queues.find(STATE_TOPIC, 0)
        if self._log.start or state is None:
            return bool(self._log.start)
        queue_offset = state.min
        while queue_offset < state.max:
            found = state.find(queue_offset, 256, REPORT_BYTES, None)
            if any(topic in deleted_topics(decode(self._log.read(*span)).body) for span in found.spans):
                return True
            queue_offset = found.next_offset
        return False

    def _restart(self, queue: ConsumeQueue, offset: int) -> ConsumeQueue:
        """Begins the queue anew in bytes of ours (see the module): earlier messages can still be found by id and key."""
        about = "%s/%d begins anew with the record at %d: messages %d to %d, stored behind the deletion of their topic, leave it"
        _LOG.warning(about, queue.topic, queue.queue_id, offset, queue.min, queue.max - 1)
        self._cached_queues.clear()
        return self._queues.restart(queue)

    def _bury(self, record: Record) -> None:
        """A lost message keeps its offset; where nobody knows what was lost, later offsets may leave some out."""
        if record.topic == UNKNOWN_TOPIC:
            self._offsets_lost = True
        else:
            queue = self._queues.get(record.topic, record.queue_id)
            queue.skip_to(record.queue_offset + 1)
            queue.next = max(queue.next, queue.max)

    def _fill(self, queue: ConsumeQueue, queue_offset: int, offset: int) -> ConsumeQueue:
        """Messages between the queue's last one and `queue_offset` are damaged. Their entries point there, so that readers hear
        of the damage. A lower queue offset begins the queue anew: the record that deleted the topic is damaged."""
        hole = self._log.damages.before(offset)
        if hole is None or (not queue.max and self._log.start):
            return queue
        if queue_offset < queue.max:
            self._delete(queue.topic)
            queue = self._queues.get(queue.topic, queue.queue_id)
        while queue.max < queue_offset:
            queue.put_many(queue.max, hole.start, (MIN_RECORD_BYTES,), (0,))
        return queue

    def _change_topics(self, record: Record) -> None:
        """A topic's queues go at the position of the line that deletes it, so a rebuild ends the same."""
        for topic in deleted_topics(record.body):
            self._delete(topic)
        for topic in topics_of_batches(record.body):
            self._hold_batches(topic)

    def _hold_batches(self, topic: str) -> None:
        if self._queues.hold_batches(topic):
            self._cached_queues.clear()

    def _delete(self, topic: str) -> None:
        self._queues.delete(topic)
        self._cached_queues.clear()


def _is_nonsense(queue: ConsumeQueue, queue_offset: int, offset: int) -> bool:
    """A bit of it flipped: RocketMQ's checksum is of the body alone. The message has no place in its queue then; id and keys find
    it."""
    if not queue.min < queue.max < queue_offset - MOST_BLANKS:
        return False
    about = f"it says that it is message {queue_offset} of {queue.topic}/{queue.queue_id}, behind {queue.max - 1}"
    _LOG.warning(_FLIPPED, offset, about)
    return True


def _unit(data: bytes, place: RecordView, code: int, queue: ConsumeQueue, queue_offset: int, start: int) -> Unit:
    unit = Unit(data, (place.size,), (code,), queue)
    unit.queue_offset, unit.physical_offset = queue_offset, place.offset
    unit.start, unit.end = start, place.offset + place.size
    return unit
