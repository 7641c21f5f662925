"""Checks each unit of the ConsumeQueue files against its record (D12), in one walk over the log.

Memory is one small window per queue. Queues of batches (46-byte units) are read too.
"""

from collections.abc import Iterator, Sequence
from struct import Struct

from rmq.log.files.disk import Disk
from rmq.log.queues.batchqueue import ROW, Row
from rmq.log.queues.consumequeue import ENTRY, ENTRY_BYTES, MOST_BLANKS
from rmq.log.records.delays import OWN_DELAY
from rmq.log.records.innerbatch import message_count
from rmq.log.records.queuenames import directory_of
from rmq.log.records.record import Record, bytes_to_properties, entry_code, queue_places
from rmq.log.records.tombstones import UNKNOWN_TOPIC, is_tombstone
from rmq.model import DELAY_TOPIC

_BLANK_SIZE = 0x7FFFFFFF
_WINDOW = 64  # units read at once
_MOST_FINDINGS = 3  # mismatches of one queue that are spelled out

Finding = tuple[str, str, bool]


class _Files:
    """Units of one queue, read in rising order through a small window."""

    def __init__(self, disk: Disk, directory: str, unit: Struct) -> None:
        self._disk = disk
        self._directory = directory
        self.unit = unit
        self._bases = [int(name) for name in disk.listdir(directory) if len(name) == 20 and name.isdecimal()]
        self._sizes = [disk.size(f"{directory}/{base:020d}") for base in self._bases]
        self._first, self._window = 0, b""

    @property
    def there(self) -> bool:
        return bool(self._bases)

    def raw(self, queue_offset: int) -> bytes:
        """The bytes of a unit; fewer, or none, where the files do not have it."""
        size = self.unit.size
        at = (queue_offset - self._first) * size
        if not 0 <= at < len(self._window):
            self._first, self._window = queue_offset, self._read(queue_offset * size, size * _WINDOW)
            at = 0
        return self._window[at : at + size]

    def _read(self, position: int, size: int) -> bytes:
        for base, length in zip(self._bases, self._sizes, strict=True):
            if base <= position < base + length:
                handle = self._disk.open(f"{self._directory}/{base:020d}")
                try:
                    return self._disk.pread(handle, min(size, base + length - position), position - base)
                finally:
                    self._disk.close(handle)
        return b""

    def first_at(self, offset: int) -> int:
        """The first unit that does not point before that place of the log."""
        index = self._bases[0] // self.unit.size if self._bases else 0
        while (found := self.behind(index)) and found[1] < offset:
            index += 1
        return index

    def behind(self, queue_offset: int) -> tuple[int, int, int] | None:
        """A written unit at or behind `queue_offset`: (its queue offset, log offset, size); None if there is none."""
        found = self.raw(queue_offset)
        if len(found) < self.unit.size:
            return None
        offset, size = ENTRY.unpack_from(found)[:2]
        return (queue_offset, offset, size) if size > 0 else None


class _Queue:
    def __init__(self, files: _Files, name: str) -> None:
        self.files = files
        self.name = name
        self.next = -1  # queue offset of the next message, as the log has it; of batches: the next unit
        self.units = 0
        self.wrong: list[tuple[str, int]] = []  # what is wrong, and the end of the record it is about
        self.missing: list[int] = []  # ends of records without a unit


class QueueWalk:
    """`take` each record in log order, then `finish`. `count`: queues, `units`: right ones."""

    def __init__(self, disk: Disk, root: str, start: int, delays_ms: Sequence[int] | None = None) -> None:
        """`start`: where the log begins. `delays_ms`: of RocketMQ's delay levels; None: its configuration is not known, and due
        times that its usual ones do not give are not checked (`delays_unchecked`)."""
        self.count = self.units = self.delays_unchecked = 0
        self._delays_ms = delays_ms
        self._from = start
        self._deleted: set[str] = set()
        self._disk = disk
        self._root = root
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._batches = set(disk.listdir(f"{root}/batchconsumequeue"))
        self._findings: list[Finding] = []

    def delete(self, topic: str) -> None:
        """A committed line deletes the topic: errors in its deleted queues do not matter."""
        self._deleted.add(topic)
        for key in [key for key in self._queues if key[0] == topic]:
            del self._queues[key]

    def take(self, found: Record, by_rocketmq: bool, holes: bool) -> None:
        """`holes`: some records before it could not be read, so queue offsets may be missing."""
        if directory_of(found.topic) in self._batches:
            self._take_batch(found)
            return
        if is_tombstone(found):
            self._take_tombstone(found)
        for topic, queue_id, queue_offset in queue_places(found):
            queue = self._queue(topic, queue_id)
            if by_rocketmq and (queue_id < 0 or 0 <= queue.next < queue_offset - MOST_BLANKS):  # as dispatch does
                what = f"the record at {found.physical_offset} has queue {queue_id} and offset {queue_offset}"
                self._findings.append((queue.name, f"{what}: a bit of it flipped, where RocketMQ has no checksum", False))
                continue
            if queue.next >= 0 and queue_offset != queue.next:
                queue = self._at_another_offset(queue, (topic, queue_id), queue_offset, found, by_rocketmq, holes)
            queue.next = max(queue_offset + message_count(found), queue.next)
            self._compare(queue, queue_offset, found)

    def _take_tombstone(self, found: Record) -> None:
        """A lost record was replaced: its offset stays, its unit is blank (or its queue begins behind it)."""
        if found.topic == UNKNOWN_TOPIC:
            what = f"{found.total_size} bytes at {found.physical_offset} are lost, and were replaced"
            self._findings.append(("commitlog", what, False))
            return
        queue, queue_offset = self._queue(found.topic, found.queue_id), found.queue_offset
        what = f"message {queue_offset} at {found.physical_offset} is lost, and was replaced"
        self._findings.append((_name(found.topic, found.queue_id), what, False))
        if queue.next in (-1, queue_offset):
            queue.next = queue_offset + 1
            if queue.files.raw(queue_offset)[8:12] not in (b"", bytes(4), _BLANK_SIZE.to_bytes(4, "big")):
                queue.wrong.append((f"unit {queue_offset} is not blank", found.physical_offset + found.total_size))

    def _queue(self, topic: str, queue_id: int) -> _Queue:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            name = _name(topic, queue_id)
            queue = self._queues[topic, queue_id] = _Queue(_Files(self._disk, f"{self._root}/{name}", ENTRY), name)
        return queue

    def _at_another_offset(
        self, queue: _Queue, key: tuple[str, int], queue_offset: int, found: Record, by_rocketmq: bool, holes: bool
    ) -> _Queue:
        if by_rocketmq and queue_offset == 0:  # RocketMQ deleted the topic, which leaves no trace in the log
            self.delete(key[0])
            return self._queue(*key)
        if queue_offset == 0 and (self._from or key[0] in self._deleted):  # as dispatch does
            behind = f"the record at {found.physical_offset} begins the queue anew at 0, {queue.next} would be next: an older "
            behind += (
                "release stored messages behind the deletion of their topic; those have no queue offset any more, only their ids"
            )
            self._findings.append((_name(*key), behind, False))
            del self._queues[key]
            return self._queue(*key)
        damage = not (by_rocketmq or (holes and queue_offset > queue.next))
        what = f"the record at {found.physical_offset} has queue offset {queue_offset}, {queue.next} would be next"
        self._findings.append((_name(*key), what, damage))
        return queue

    def _compare(self, queue: _Queue, queue_offset: int, found: Record) -> None:
        raw, end = queue.files.raw(queue_offset), found.physical_offset + found.total_size
        expected = ENTRY.pack(found.physical_offset, found.total_size, entry_code(found))
        if raw == expected or self._is_delayed(raw, expected, found):
            queue.units += 1
        elif not raw.strip(b"\0"):
            queue.missing.append(end)
        else:
            said = ENTRY.unpack(raw) if len(raw) == ENTRY_BYTES else raw.hex()
            queue.wrong.append((f"unit {queue_offset} says {said}, its record {ENTRY.unpack(expected)}", end))

    def _is_delayed(self, raw: bytes, expected: bytes, found: Record) -> bool:
        """Whether the unit has the due time of a level by RocketMQ's own list of delays."""
        own = OWN_DELAY in bytes_to_properties(found.properties)
        if found.topic != DELAY_TOPIC or own or len(raw) != ENTRY_BYTES or raw[:-8] != expected[:-8]:
            return False
        if self._delays_ms is None:
            self.delays_unchecked += 1
            return True
        return raw == ENTRY.pack(found.physical_offset, found.total_size, entry_code(found, self._delays_ms))

    def _take_batch(self, found: Record) -> None:
        """A unit of a queue of batches: an inner batch, or a single message in such a topic."""
        key = (found.topic, found.queue_id)
        queue = self._queues.get(key)
        if queue is None:
            name = f"batch{_name(*key)}"
            queue = self._queues[key] = _Queue(_Files(self._disk, f"{self._root}/{name}", ROW), name)
            queue.next = queue.files.first_at(found.physical_offset)
        place, end = (found.physical_offset, found.total_size), found.physical_offset + found.total_size
        expected = Row(*place, entry_code(found), found.store_timestamp, found.queue_offset, message_count(found))
        raw = queue.files.raw(queue.next)
        if raw == ROW.pack(*expected):
            queue.units += 1
        elif not raw.strip(b"\0"):
            queue.missing.append(end)
        else:
            said = Row(*ROW.unpack(raw)) if len(raw) == ROW.size else raw.hex()
            queue.wrong.append((f"unit {queue.next} says {said}, its record {expected}", end))
        queue.next += 1

    def finish(self, end: int, must: int, ours: bool, killed: bool) -> Iterator[Finding]:
        """Reports what is wrong. Units of records that end at or below `must` have to be there; the next start may add others.
        `killed`: the node was not stopped in order; then its next start may make a whole queue anew.

        Units behind the last record are damage in a store of ours only when `must` covers the whole log: RocketMQ leaves
        old ones behind its cuts.
        """
        yield from self._findings
        for _, queue in sorted(self._queues.items()):
            name = queue.name
            self.count += 1
            self.units += queue.units
            if not queue.files.there and not ours:
                yield name, "has messages in the log and no files: did RocketMQ delete the topic?", False
                continue
            if not queue.files.there and killed:
                yield name, "has messages in the log and no files: the next start makes the queues anew", False
                continue
            yield from self._problems(name, queue, must)
            behind = queue.files.behind(queue.next)
            if behind and behind[2] != _BLANK_SIZE:
                yield name, f"unit {behind[0]} points to {behind[1]}, which is no record of it", ours and must >= end

    def _problems(self, name: str, queue: _Queue, must: int) -> Iterator[Finding]:
        lacking = [end for end in queue.missing if end <= must]
        if lacking:
            yield name, f"{len(lacking)} units are missing, the first for the record that ends at {lacking[0]}", True
        if len(queue.missing) > len(lacking):
            late = len(queue.missing) - len(lacking)
            yield name, f"{late} units are not written yet; the next start makes them", False
        for what, end in queue.wrong[:_MOST_FINDINGS]:
            yield name, what, end <= must or not must
        if len(queue.wrong) > _MOST_FINDINGS:
            yield name, f"{len(queue.wrong) - _MOST_FINDINGS} more units are wrong", True


def _name(topic: str, queue_id: int) -> str:
    return f"consumequeue/{directory_of(topic)}/{queue_id}"
