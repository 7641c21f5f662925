"""The ConsumeQueue: where in the log each message of one queue is [ConsumeQueue].

20-byte entries (offset of the record, its size, hash of its tag), derived from committed records and disposable (D10).
New entries are kept in memory and written behind by `flush`. One thread puts and trims; flush and readers may be others.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from struct import Struct
from threading import Lock
from typing import ClassVar, NamedTuple

from rmq.errors import InvalidArgument
from rmq.log.files.disk import PAGE_BYTES, Disk, open_file
from rmq.log.files.segment import file_name
from rmq.log.records.everyday import alike

ENTRY = Struct(">qiq")
ENTRY_BYTES = 20
MAX_SCANNED = 800  # entries examined by one pull [maxFilterMessageSize 16000 / 20]
LOWER, UPPER = "LOWER", "UPPER"
BLANK_SIZE = 0x7FFFFFFF
_BLANK = ENTRY.pack(0, BLANK_SIZE, 0)  # before the first entry of a queue that does not begin at 0
_BLOCK_ENTRIES = 512  # read from a file at once
_MOST_BLOCKS = 8  # of a queue, until the next `trim`: readers of one queue are at several places
_MANY = 24  # entries, from which on numpy pays
MOST_BLANKS = 1 << 22  # for messages that Apache RocketMQ left out, one after the other
KEPT = 2048  # flushed entries kept in memory when older ones are dropped
_PLACES = Struct(">qi8x")  # an entry without its code
_pack = ENTRY.pack
_new = tuple.__new__  # a NamedTuple in half the time


def first_where(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first place of [low, high) at which this holds, as at all behind it; `high` if there is none."""
    return bisect_left(range(high), True, low, high, key=holds)


class MatchingEntries(NamedTuple):
    """`spans`: (offset, size) of the matching records; `next_offset`: behind the last of the `examined` entries."""

    next_offset: int
    spans: list[tuple[int, int]]
    examined: int


class Entry(NamedTuple):
    offset: int
    size: int
    tags_code: int


def _packed(offset: int, sizes: Sequence[int], tags_codes: Sequence[int]) -> bytes:
    """Entries of records that stand back to back from `offset`."""
    count = len(sizes)
    if count >= _MANY and sizes.count(sizes[0]) == count == tags_codes.count(tags_codes[0]):
        return alike(count, offset, sizes[0], tags_codes[0])
    return b"".join(map(_pack, accumulate(sizes, initial=offset), sizes, tags_codes))


def _fitting(spans: list[tuple[int, int]], room: int) -> list[tuple[int, int]]:
    """As many of the first spans as fit into `room` bytes; the first always does."""
    if not spans or spans[-1][0] + spans[-1][1] - spans[0][0] <= room:
        return spans
    for count, (_, size) in enumerate(spans):
        room -= size
        if room < 0 and count:
            return spans[:count]
    return spans


def _pieces(first: int, end: int, file_entries: int) -> Iterator[tuple[int, int, int]]:
    """(base, first, end) of the entries [first, end) in each file."""
    while first < end:
        base = first // file_entries * file_entries
        stop = min(end, base + file_entries)
        yield base, first, stop
        first = stop


def _is_written(disk: Disk, handle: int, at: int, size: int) -> bool:
    """Whether something else than zeros stands at or behind `at`."""
    page = min(-(-at // PAGE_BYTES) * PAGE_BYTES, size)
    rest = disk.pread(handle, page - at, at)
    return bool(rest.strip(b"\0")) or disk.data_from(handle, page) is not None


class ConsumeQueue:
    """Entries `min` <= n < `max` of one life of the topic. `next` is the queue offset that the leader gives to the next appended
    message; there is none once it has `ended`: a line of the log deletes the topic."""

    ENTRY_BYTES: ClassVar[int] = ENTRY_BYTES
    BLANK: ClassVar[bytes] = _BLANK
    holds_batches: ClassVar[bool] = False

    def __init__(self, disk: Disk, directory: str, topic: str, queue_id: int, file_entries: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min = self.max = self.next = 0
        self.came = self.came_bytes = 0  # messages and their bytes that this process appended, counted by who appends
        self.ended = False
        self.flushed = 0  # entries below are in the files and durable
        self._disk = disk
        self._directory = directory
        self._file_entries = file_entries
        self._tail = bytearray()  # entries [_tail_start, max)
        self._tail_start = 0
        self._blocks: list[tuple[int, bytes]] = []  # lately read from files, newest first: queue offset of the first, entries
        self._has_blanks = False  # blank entries exist, so readers look for them
        self._moving = Lock()  # held while the beginning of the tail must not move
        self._whole = -1  # first entry of the file written last: its name and length are durable

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}/{self.queue_id} [{self.min}, {self.max}) next {self.next}>"

    def begin_at(self, minimum: int, maximum: int) -> None:
        """Takes over what the files hold (recovery): entries of [minimum, maximum), all durable."""
        self.min = minimum
        self.max = self.next = self.flushed = self._tail_start = maximum
        self._tail.clear()
        self._blocks = []
        self._whole = (maximum - 1) // self._file_entries * self._file_entries if maximum > minimum else -1

    def put_many(self, queue_offset: int, offset: int, sizes: Sequence[int], tags_codes: Sequence[int]) -> None:
        """Entries of records that stand back to back from `offset`; the first is message `queue_offset` of the queue (D12)."""
        if queue_offset != self.max:
            self._begin_behind(queue_offset)
        count = len(sizes)
        self._tail += _pack(offset, sizes[0], tags_codes[0]) if count == 1 else _packed(offset, sizes, tags_codes)
        self.max = queue_offset + count
        if self.flushed - self._tail_start > 2 * KEPT:
            self.trim(KEPT)

    def _begin_behind(self, queue_offset: int) -> None:
        """A queue whose older messages are gone begins at a queue offset above 0."""
        if self.max or queue_offset < 0:
            raise AssertionError(f"queue {self.topic}/{self.queue_id} has {self.max} entries, a record says {queue_offset} (D12)")
        self._tail_start = self.min = self.flushed = queue_offset

    def skip_to(self, queue_offset: int) -> None:
        """Blank entries for messages that the log does not have, up to `queue_offset`; readers pass over them."""
        if queue_offset > self.max > self.min:
            self._tail += _BLANK * (queue_offset - self.max)
            self.max = queue_offset
            self._has_blanks = True
        elif queue_offset > self.max:
            self.begin_at(queue_offset, queue_offset)

    def trim(self, kept: int = 0) -> None:
        """Drops durable entries from memory but for the last `kept`. For the thread that calls put_many only."""
        with self._moving:
            drop = min(self.flushed, self.max - kept) - self._tail_start
            if drop > 0:
                del self._tail[: drop * self.ENTRY_BYTES]
                self._tail_start += drop
        if not kept:
            self._blocks = []

    # --- reading ------------------------------------------------------------------------------------------------------

    def find(self, offset: int, max_count: int, max_bytes: int, codes: frozenset[int] | None) -> MatchingEntries:
        """Records from message `offset` on whose tag hash is one of `codes` (None: all).

        Stops at `max_count` records, before `max_bytes` would be exceeded (the first record always passes), or when
        800 entries (or `max_count`, if more) are examined. Nothing at or above `max`. An offset below `min` begins there.
        """
        offset = max(offset, self.min)
        if codes is None:
            spans = _fitting(list(_PLACES.iter_unpack(self._entries(offset, min(offset + max_count, self.max)))), max_bytes)
            if self._has_blanks:
                return self._without_blanks(offset, max_count, max_bytes)
            return MatchingEntries(offset + len(spans), spans, len(spans))
        queue_offset, room, limit = offset, max_bytes, max(MAX_SCANNED, max_count)
        spans = []
        for position, size, code in ENTRY.iter_unpack(self._entries(offset, min(offset + limit, self.max))):
            if code in codes and size != BLANK_SIZE:
                if spans and (room < size or len(spans) == max_count):
                    break
                spans.append((position, size))
                room -= size
            queue_offset += 1
        return MatchingEntries(queue_offset, spans, queue_offset - offset)

    def _without_blanks(self, offset: int, max_count: int, max_bytes: int) -> MatchingEntries:
        entries = list(_PLACES.iter_unpack(self._entries(offset, min(offset + max_count, self.max))))
        spans = _fitting([span for span in entries if span[1] != BLANK_SIZE], max_bytes)
        last = entries.index(spans[-1]) + 1 if spans else len(entries)
        return MatchingEntries(offset + last, spans, last)

    def find_now(self, offset: int, max_count: int, max_bytes: int, codes: frozenset[int] | None) -> MatchingEntries | None:
        """As `find`, of an offset between `min` and `max`; None where it would wait for the device. For the thread that puts."""
        if codes is None and not self._has_blanks:
            entries: bytes | bytearray = self._tail
            first, end = self._tail_start, min(offset + max_count, self.max)
            if offset < first and (block := self._block_with(offset, end)) is not None:
                first, entries = block
            if offset >= first:
                spans = list(_PLACES.iter_unpack(entries[(offset - first) * ENTRY_BYTES : (end - first) * ENTRY_BYTES]))
                if spans[-1][0] + spans[-1][1] - spans[0][0] > max_bytes:
                    spans = _fitting(spans, max_bytes)
                return _new(MatchingEntries, (offset + len(spans), spans, len(spans)))
        if not self.is_at_hand(offset, max_count if codes is None else MAX_SCANNED):
            return None
        return self.find(offset, max_count, max_bytes, codes)

    def is_at_hand(self, offset: int, count: int) -> bool:
        """Whether so many entries from there on can be read without waiting for the device. For the thread that puts."""
        end = min(offset + count, self._tail_start)
        if offset >= end or self._block_with(offset, end) is not None:
            return True
        try:
            base = offset // self._file_entries * self._file_entries
            stop = min(offset + _BLOCK_ENTRIES, base + self._file_entries, self._tail_start)
            return (end <= stop and (self._load(base, offset, stop) or self._load(base, offset, end))) or all(
                self._load(*piece) for piece in _pieces(offset, end, self._file_entries)
            )
        except OSError:  # deleted meanwhile: whoever reads it will see
            return False

    def _block_with(self, first: int, end: int) -> tuple[int, bytes] | None:
        for block in self._blocks:
            if block[0] <= first and (end - block[0]) * self.ENTRY_BYTES <= len(block[1]):
                return block
        return None

    def _load(self, base: int, first: int, end: int) -> bool:
        """Keeps entries [first, end) of one file for the next reads, if they are in memory. Durable entries never change."""
        block = bytearray((end - first) * self.ENTRY_BYTES)
        handle = self._disk.open(self._path(base))
        try:
            if not self._disk.pread_cached(handle, memoryview(block), (first - base) * self.ENTRY_BYTES):
                return False
        finally:
            self._disk.close(handle)
        self._has_blanks = self._has_blanks or _BLANK in block
        self._blocks = [(first, bytes(block)), *self._blocks[: _MOST_BLOCKS - 1]]
        return True

    def entry(self, queue_offset: int) -> Entry:
        """One entry. InvalidArgument outside [min, max)."""
        if not self.min <= queue_offset < self.max:
            raise InvalidArgument(f"{self.topic}/{self.queue_id} has messages {self.min} to {self.max - 1}, not {queue_offset}")
        return Entry(*ENTRY.unpack(self._entries(queue_offset, queue_offset + 1)))

    def _entries(self, first: int, end: int) -> bytes | bytearray:
        """The bytes of entries [first, end), from memory or the files. In any thread."""
        if first >= end:
            return b""
        with self._moving:
            begin = self._tail_start
            recent = self._tail[max(first - begin, 0) * self.ENTRY_BYTES : max(end - begin, 0) * self.ENTRY_BYTES]
        if first >= begin:
            return recent
        stop = min(end, begin)
        if (found := self._block_with(first, stop)) is not None:
            at, block = found
            return block[(first - at) * self.ENTRY_BYTES : (stop - at) * self.ENTRY_BYTES] + recent
        return self._from_files(first, stop) + recent

    def _from_files(self, first: int, end: int) -> bytes:
        data = b""
        for base, start, stop in _pieces(first, end, self._file_entries):
            handle = open_file(self._disk, self._path(base), self.topic if self.ended else "")
            try:
                data += self._disk.pread(handle, (stop - start) * self.ENTRY_BYTES, (start - base) * self.ENTRY_BYTES)
            finally:
                self._disk.close(handle)
        self._has_blanks = self._has_blanks or _BLANK in data
        return data

    def search(self, timestamp: int, boundary: str, store_time: Callable[[int], int]) -> int:
        """The message by store time (ms): LOWER the first at or after it (max if none), UPPER the last at or before it.

        `store_time(offset)` reads the time of the record there. The result lies in [min, max].
        """
        if boundary == LOWER:
            return first_where(self.min, self.max, lambda at: store_time(self._solid(at).offset) >= timestamp)
        return max(first_where(self.min, self.max, lambda at: store_time(self._solid(at).offset) > timestamp) - 1, self.min)

    def _solid(self, queue_offset: int) -> Entry:
        """The entry; for a blank one that of the message before it, which has its place in the order of the log."""
        found = self.entry(queue_offset)
        while found.size == BLANK_SIZE and queue_offset > self.min:
            queue_offset -= 1
            found = self.entry(queue_offset)
        return found

    def first_at_or_behind(self, offset: int) -> int:
        """The first message whose record is not before `offset` of the log; max if none."""
        low, high = self.min, self.max
        if low < high and self.entry(low).offset >= offset:  # the usual cases: retention, a start
            return low
        if low < high and self.entry(high - 1).offset < offset:
            return high
        return first_where(low, high, lambda at: self._solid(at).offset >= offset)

    # --- files --------------------------------------------------------------------------------------------------------

    def _path(self, base: int) -> str:
        return f"{self._directory}/{file_name(base * self.ENTRY_BYTES)}"

    def flush(self) -> None:
        """Writes entries that are only in memory and makes them durable. May run in another thread. Raises OSError."""
        end = self.max
        while self.flushed < end:
            base = self.flushed // self._file_entries * self._file_entries
            stop = min(end, base + self._file_entries)
            with self._moving:
                at = (self.flushed - self._tail_start) * self.ENTRY_BYTES
                data = self._tail[at : at + (stop - self.flushed) * self.ENTRY_BYTES]
            self._write(base, (self.flushed - base) * self.ENTRY_BYTES, data)
            self.flushed = stop

    def _write(self, base: int, at: int, data: bytearray) -> None:
        path = self._path(base)
        fresh = base != self._whole or not self._disk.exists(path)  # whatever a failed attempt or a deleted topic left there
        if fresh:
            self._disk.make_directory(self._directory)
            data[:0], at = self.BLANK * (at // self.ENTRY_BYTES), 0  # for RocketMQ, which ends a queue at its first zeros
        handle = self._disk.create(path) if fresh else self._disk.open(path)
        try:
            if fresh:
                self._disk.truncate(handle, self._file_entries * self.ENTRY_BYTES)
            if self._disk.pwrite(handle, data, at) != len(data):
                raise OSError(28, "short write", path)
            self._disk.fdatasync(handle)
        finally:
            self._disk.close(handle)
        if fresh:
            self._disk.fsync_directory(self._directory)
            self._whole = base

    def begin_behind(self, offset: int) -> None:
        """Moves `min` before messages below `offset` of the log are deleted (D15). In any thread."""
        if self.min < self.max:
            self.min = self.first_at_or_behind(offset)

    def drop_files(self, empty_too: bool = False) -> None:
        """Removes files that hold only messages below `min`; the last one stays, unless `empty_too` and all are gone.

        In any thread. Raises OSError.
        """
        end = self._path(self.min // self._file_entries * self._file_entries)
        names = [f"{self._directory}/{name}" for name in self._disk.listdir(self._directory)]
        if not (empty_too and self.min == self.max == self.flushed):
            names = [path for path in names[:-1] if path < end]
        for path in names:
            self._disk.unlink(path)
        if names:
            self._disk.fsync_directory(self._directory)

    def cut_files(self, end: int) -> None:
        """Entries from `end` on become zero in the files, later files go (recovery). `begin_at` must follow."""
        base = end // self._file_entries * self._file_entries
        size = self._file_entries * self.ENTRY_BYTES
        for name in reversed(self._disk.listdir(self._directory)):
            if int(name) > base * self.ENTRY_BYTES:
                self._disk.unlink(f"{self._directory}/{name}")
                self._disk.fsync_directory(self._directory)
        path = self._path(base)
        if self._disk.exists(path):
            handle = self._disk.open(path)
            try:
                if self._disk.size(path) != size or _is_written(self._disk, handle, (end - base) * self.ENTRY_BYTES, size):
                    self._disk.truncate(handle, (end - base) * self.ENTRY_BYTES)
                    self._disk.truncate(handle, size)
                    self._disk.fdatasync(handle)
            finally:
                self._disk.close(handle)

    def files_hold(self, minimum: int, maximum: int) -> bool:
        """Whether the files are there, at full length, for entries [minimum, maximum), and the last one is written."""
        size = self._file_entries * self.ENTRY_BYTES
        if minimum == maximum:  # its records are all expired: the queue offset is all there is
            return True
        for base in range(minimum // self._file_entries * self._file_entries, maximum, self._file_entries):
            path = self._path(base)
            if not self._disk.exists(path) or self._disk.size(path) != size:  # perhaps the setting was another
                return False
        return self._from_files(maximum - 1, maximum)[8:12] > b"\0\0\0\0"

    def unflushed_from(self) -> int:
        """The log offset of the first entry that is not durable; 0 if it is a blank one. For the thread that flushes."""
        return int.from_bytes(self._entries(self.flushed, self.flushed + 1)[:8], "big")


def put_packed(queue: ConsumeQueue, entries: bytes) -> None:
    """Puts the queue's next entries as they are stored, of records that may stand anywhere. For the thread that puts."""
    queue._tail += entries
    queue.max += len(entries) // ENTRY_BYTES
    queue.next = max(queue.next, queue.max)
    if queue.flushed - queue._tail_start > 2 * KEPT:
        queue.trim(KEPT)
