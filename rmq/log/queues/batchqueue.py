"""The queue of a topic with queue.type=BatchCQ: where in the log each batch of messages is [BatchConsumeQueue].

46-byte rows: a row is one record, with one message or with the many of an inner batch, and says the queue offset of the first.
So a queue offset is found by a search, and queue offsets may be left out.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import ClassVar, NamedTuple

from rmq.errors import InvalidArgument, StoreError
from rmq.log.files.disk import Disk
from rmq.log.queues.consumequeue import BLANK_SIZE, KEPT, LOWER, MAX_SCANNED, ConsumeQueue, Entry, MatchingEntries, first_where
from rmq.log.records.innerbatch import message_count
from rmq.log.records.record import decode

ROW = Struct(">qiqqqh8s")
_TAIL = (-1).to_bytes(4, "big", signed=True) + bytes(4)  # nothing is compacted; reserved


class Row(NamedTuple):
    """A record: its place, tag hash and store time (ms); so many `messages` from queue offset `base` on."""

    offset: int
    size: int
    tags_code: int
    stored_ms: int
    base: int
    messages: int
    tail: bytes = _TAIL

    @property
    def end(self) -> int:
        """The queue offset behind the last message."""
        return self.base + self.messages


class _Rows(ConsumeQueue):
    """The files of a batch queue: `min`, `max` and `flushed` count rows, from the first one that was ever written."""

    ENTRY_BYTES: ClassVar[int] = ROW.size
    BLANK: ClassVar[bytes] = ROW.pack(0, BLANK_SIZE, 0, 0, 0, 0, _TAIL)

    def add(self, row: Row) -> None:
        self._tail += ROW.pack(*row)
        self.max += 1
        if self.flushed - self._tail_start > 2 * KEPT:
            self.trim(KEPT)

    def row(self, index: int) -> Row:
        return Row(*ROW.unpack(self._entries(index, index + 1)))

    def rows(self, first: int, end: int) -> list[Row]:
        return [Row(*each) for each in ROW.iter_unpack(self._entries(first, min(end, self.max)))]

    def first(self, low: int, is_behind: Callable[[Row], bool]) -> int:
        """The first row from `low` on for which this holds, as for all behind it; `max` if there is none."""
        return first_where(low, self.max, lambda index: is_behind(self.row(index)))

    @property
    def in_memory(self) -> int:
        """The first row that is read without the disk."""
        return max(self._tail_start, self.min)

    def take_files(self, minimum: int, maximum: int) -> None:
        """Takes over the rows of messages [minimum, maximum), which the files hold."""
        low, high = self._written()
        high = first_where(low, high, lambda index: self._stored(index).end > maximum)
        low = first_where(low, high, lambda index: self._stored(index).end > minimum)
        self.begin_at(low, high)
        last = max(high - 1, 0) // self._file_entries * self._file_entries
        self._whole = last if self._disk.exists(self._path(last)) else -1
        recent = max(low, high - KEPT)
        self._tail, self._tail_start = bytearray(self._from_files(recent, high)), recent

    def _written(self) -> tuple[int, int]:
        """The first row in the files, and the end of those written."""
        bases = self._bases()
        if not bases:
            return 0, 0
        return bases[0], first_where(bases[-1], bases[-1] + self._file_entries, lambda index: not self._stored(index).size)

    def _bases(self) -> list[int]:
        names = [name for name in self._disk.listdir(self._directory) if len(name) == 20 and name.isdecimal()]
        return [int(name) // self.ENTRY_BYTES for name in names]

    def _stored(self, index: int) -> Row:
        """As it is in the files. One that is torn, or not written, is behind all others."""
        found = Row(*ROW.unpack(self._from_files(index, index + 1).ljust(ROW.size, b"\0")))
        return found if found.size > 0 and found.messages > 0 else found._replace(size=0, base=1 << 62)

    def hold(self, maximum: int) -> bool:
        """Whether the files are there, at full length, and a row in them ends at that queue offset."""
        bases, size = self._bases(), self._file_entries * self.ENTRY_BYTES
        if not bases or bases != [*range(bases[0], bases[-1] + 1, self._file_entries)]:
            return False
        low, high = self._written()
        high = first_where(low, high, lambda index: self._stored(index).end > maximum)
        if any(self._disk.size(self._path(base)) != size for base in bases if base < high):  # perhaps the setting was another
            return False
        return high > low and self._stored(high - 1).end == maximum


class BatchQueue(ConsumeQueue):
    """A `ConsumeQueue` whose queue offsets `min` <= n < `max` may be several of one record. `read(offset, size)`: bytes of the
    log: how many messages a record holds, and its store time, are read from it when it is put."""

    holds_batches: ClassVar[bool] = True

    def __init__(
        self, disk: Disk, directory: str, topic: str, queue_id: int, file_entries: int, read: Callable[[int, int], bytes]
    ) -> None:
        super().__init__(disk, directory, topic, queue_id, file_entries)
        self._rows = _Rows(disk, directory, topic, queue_id, file_entries)
        self._read = read

    def begin_at(self, minimum: int, maximum: int) -> None:
        self.min = minimum
        self.max = self.next = self.flushed = maximum
        self._rows.take_files(minimum, maximum)

    def put_many(self, queue_offset: int, offset: int, sizes: Sequence[int], tags_codes: Sequence[int]) -> None:
        if queue_offset < self.max:
            raise AssertionError(f"queue {self.topic}/{self.queue_id} has {self.max} entries, a record says {queue_offset} (D12)")
        if not self.max:  # its older messages are gone
            self.min = self.flushed = queue_offset
        for size, code in zip(sizes, tags_codes, strict=True):
            stored_ms, count = self._said(offset, size)
            self._rows.add(Row(offset, size, code, stored_ms, queue_offset, count))
            queue_offset += count
            offset += size
        self.max = queue_offset

    def _said(self, offset: int, size: int) -> tuple[int, int]:
        """Store time and number of messages. A damaged place counts as one message, stored with the one before it."""
        try:
            stored = decode(self._read(offset, size))
        except StoreError:
            rows = self._rows
            return (rows.row(rows.max - 1).stored_ms if rows.max > rows.min else 0), 1
        return stored.store_timestamp, message_count(stored)

    def skip_to(self, queue_offset: int) -> None:
        """No row stands for messages that the log does not have."""
        if queue_offset > self.max > self.min:
            self.max = queue_offset
        elif queue_offset > self.max:
            self.min = self.max = self.next = self.flushed = queue_offset

    def trim(self, kept: int = 0) -> None:
        self._rows.trim(kept)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _row_at(self, queue_offset: int) -> int:
        """The number of the first row with messages at or behind it."""
        rows = self._rows
        low = rows.in_memory
        if low > rows.min and (low == rows.max or rows.row(low).base > queue_offset):
            low = rows.min
        return rows.first(low, lambda row: row.end > queue_offset)

    def find(self, offset: int, max_count: int, max_bytes: int, codes: frozenset[int] | None) -> MatchingEntries:
        """Records with messages from `offset` on; the first may begin before it. Counts messages, as RocketMQ does.

        Inner batches have no tag of their own, so each passes: who gets it looks at the tags of its messages.
        """
        offset = max(offset, self.min)
        spans: list[tuple[int, int]] = []
        first, room, left, at = self._row_at(offset), max_bytes, max_count, offset
        limit = max_count if codes is None else max(MAX_SCANNED, max_count)
        found = self._rows.rows(first, first + limit)
        for row in found:
            if codes is None or row.tags_code in codes or not row.tags_code:
                if spans and (room < row.size or left < row.messages):
                    break
                spans.append((row.offset, row.size))
                room -= row.size
                left -= row.messages
            at = row.end
        else:
            if first + len(found) == self._rows.max:
                at = self.max
        return MatchingEntries(at, spans, at - offset)

    def find_now(self, offset: int, max_count: int, max_bytes: int, codes: frozenset[int] | None) -> MatchingEntries | None:
        return self.find(offset, max_count, max_bytes, codes) if self.is_at_hand(offset, max_count) else None

    def is_at_hand(self, offset: int, count: int) -> bool:
        rows = self._rows
        low = rows.in_memory
        return low == rows.min or (low < rows.max and rows.row(low).base <= max(offset, self.min))

    def entry(self, queue_offset: int) -> Entry:
        """Of the record that holds that message, or of the next one if the log does not have it. InvalidArgument outside
        [min, max)."""
        index = self._row_at(queue_offset) if self.min <= queue_offset < self.max else self._rows.max
        if index == self._rows.max:
            raise InvalidArgument(f"{self.topic}/{self.queue_id} has messages {self.min} to {self.max - 1}, not {queue_offset}")
        row = self._rows.row(index)
        return Entry(row.offset, row.size, row.tags_code)

    def search(self, timestamp: int, boundary: str, store_time: Callable[[int], int]) -> int:
        """As of a plain queue; the first message of a record stands for all of it. (RocketMQ answers the last record for a time
        behind all, and 0 for UPPER between two: nobody can want that.)"""
        rows = self._rows
        if boundary == LOWER:
            index = rows.first(rows.min, lambda row: row.stored_ms >= timestamp)
            return rows.row(index).base if index < rows.max else self.max
        index = rows.first(rows.min, lambda row: row.stored_ms > timestamp)
        return max(rows.row(index - 1).base if index > rows.min else self.min, self.min)

    def first_at_or_behind(self, offset: int) -> int:
        rows = self._rows
        index = rows.first(rows.min, lambda row: row.offset >= offset)
        return rows.row(index).base if index < rows.max else self.max

    # --- files --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        end = self.max
        self._rows.flush()
        self.flushed = max(self.flushed, end)

    def unflushed_from(self) -> int:
        rows = self._rows
        return rows.row(rows.flushed).offset if rows.flushed < rows.max else 0

    def drop_files(self, empty_too: bool = False) -> None:
        rows = self._rows
        rows.min = self._row_at(self.min)
        rows.drop_files(empty_too)

    def cut_files(self, end: int) -> None:
        self._rows.cut_files(self._row_at(end))

    def files_hold(self, minimum: int, maximum: int) -> bool:
        return minimum == maximum or self._rows.hold(maximum)
