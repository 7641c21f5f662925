"""One file of the CommitLog, and how to walk over the entries in it.

An entry is a record with the filler before it, if there is one (docs/storage). Knows one file at a time; the CommitLog
knows which files there are and what may be appended.
"""

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from struct import Struct
from threading import Lock
from typing import NamedTuple

from rmq.errors import BadBytes
from rmq.log.files import epochs
from rmq.log.files.disk import Disk
from rmq.log.files.epochs import EpochHistory
from rmq.log.records import columns
from rmq.log.records.record import BLANK_MAGIC, Buffer, verify

FILLER = Struct(">ii")  # bytes left in the file, blank magic
_BLOCK = 1 << 20
MANY_BYTES = 1 << 16  # numpy pays from about a hundred records on
_MANY = 512  # checked together: a caller may stop at any
_ZEROS = bytes(_BLOCK)
_new = tuple.__new__  # a NamedTuple in half the time
_PAGE_BYTES = 4096


class BadEntry(BadBytes):
    """The walk stops here: `at` is the end of the last good entry."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(f"CommitLog at {at}: {why}")
        self.at = at


def gone(path: str) -> OSError:
    return OSError(errno.ESTALE, "deleted by retention", path)


class RecordView(NamedTuple):
    """A whole record: at `offset` of the log, at `at` of `buf`, `size` bytes."""

    offset: int
    buf: Buffer
    at: int
    size: int


def file_name(offset: int) -> str:
    """RocketMQ's: the offset of the first byte, 20 digits [UtilAll.offset2FileName]."""
    return f"{offset:020d}"


class Segment:
    """An open file of the log. Offsets are the log's. All methods raise OSError."""

    def __init__(self, disk: Disk, path: str, base: int, size: int, handle: int) -> None:
        self.path = path
        self.base = base
        self.size = size
        self._disk = disk
        self._handle = handle
        self._readers = 0
        self._retired = False
        self._counting = Lock()

    @property
    def end(self) -> int:
        return self.base + self.size

    def read(self, offset: int, size: int) -> bytes:
        """In any thread."""
        with self._counting:
            if self._retired:
                raise gone(self.path)
            self._readers += 1
        try:
            return self._disk.pread(self._handle, size, offset - self.base)
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._counting:
            self._readers -= 1
            if self._retired and not self._readers:
                self._disk.close(self._handle)

    def retire(self) -> None:
        """Closes the file once its last reader is done (D15). For the thread of `read_cached`, which cannot be in it."""
        self.withdraw()()

    def withdraw(self) -> Callable[[], None]:
        """The same, but what it gives has to be called, in any thread: to free a large file takes a while."""
        with self._counting:
            self._retired = True
            self._readers += 1
        return self._leave

    def read_exactly(self) -> None:
        """See `Disk.read_exactly`."""
        self._disk.read_exactly(self._handle)

    def read_ahead(self, offset: int, to: int) -> None:
        """Begins to read [offset, to), as far as it lies here, into the memory. In any thread."""
        with self._counting:
            if not self._retired:
                self._disk.read_ahead(self._handle, offset - self.base, min(to, self.end) - offset)

    def read_cached(self, offset: int, into: memoryview) -> bool:
        """False when reading would wait for the device. In one thread only."""
        return self._disk.pread_cached(self._handle, into, offset - self.base)

    def write(self, offset: int, data: bytes | bytearray) -> int:
        return self._disk.pwrite(self._handle, data, offset - self.base)

    def sync(self) -> None:
        self._disk.fdatasync(self._handle)

    def close(self) -> None:
        self._disk.close(self._handle)

    def blocks(self, offset: int, to: int) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of every block of [offset, to) that does not hold zeros only; holes in the file cost nothing.

        The kernel reads ahead into a hole, and takes what it read for data, behind which it reads ahead again.
        """
        while offset < to:
            found = self._disk.data_from(self._handle, offset - self.base)
            offset = to if found is None else self.base + found
            data = self.read(offset, min(_BLOCK, to - offset)) if offset < to else b""
            if data != _ZEROS[: len(data)]:
                yield offset, data
            offset += len(data)
            if data.endswith(_ZEROS[:_PAGE_BYTES]):
                self._disk.forget(self._handle, (offset - self.base) // _PAGE_BYTES * _PAGE_BYTES)

    def rewrite(self, offset: int, to: int) -> None:
        """Writes the part of [offset, to) in this file once more, and makes it durable.

        After a failed flush the kernel takes the pages for clean although the device never got them: a later flush, also
        by the next process, would report success falsely (D4).
        """
        for at, data in self.blocks(max(offset, self.base), min(to, self.end)):
            if self.write(at, data) != len(data):
                raise OSError(28, f"short write at {at}", self.path)
        if offset < self.end and to > self.base:
            self.sync()

    def zero(self, offset: int, to: int | None = None) -> int:
        """Zeros from `offset` to `to` (the end), writing only where something else is (stale bytes are poison).

        The number of bytes up to the last one that was not zero.
        """
        behind = 0
        for at, data in self.blocks(offset, self.end if to is None else to):
            used = len(data.rstrip(b"\0"))  # what lies behind may be a hole, and the disk full
            behind = at - offset + used
            if self.write(at, _ZEROS[:used]) != used:
                raise OSError(28, f"short write while zeroing at {at}", self.path)
        return behind


def walk(
    read: Callable[[int, int], bytes],
    segment_end: int,
    from_: int,
    to: int,
    protected: bool,
) -> Iterator[RecordView]:
    """The whole records of one segment from `from_`, which is the end of an entry, up to `to`, checked one by one.

    Ends at `to` or at the filler. `read(offset, size)` gives bytes of the segment. Raises BadEntry at the first thing
    that is neither; it never looks for another record behind it (D6).
    """
    position = from_
    while position < to:
        buf, at = _read_for(read, position, to), 0
        for sizes in _whole_sizes(buf, position, protected):
            for size in sizes:
                yield _new(RecordView, (position + at, buf, at, size))
                at += size
        if not at:
            left, magic = FILLER.unpack_from(buf) if len(buf) >= FILLER.size else (0, 0)
            if magic == BLANK_MAGIC and left == segment_end - position:
                return
            if magic == BLANK_MAGIC:
                raise BadEntry(position, f"a filler of {left} bytes where the file has {segment_end - position} left")
            try:
                at = verify(buf, 0, position, protected)
            except BadBytes as error:
                raise BadEntry(position, str(error)) from error
            yield RecordView(position, buf, 0, at)
        position += at


def _whole_sizes(buf: bytes, position: int, protected: bool) -> Iterator[Iterable[int]]:
    """The sizes of the whole records at the beginning of `buf`, whose first byte is at `position` of the log, many at a time."""
    if len(buf) < MANY_BYTES:
        yield _sizes_one_by_one(buf, 0, position, protected)
        return
    starts, _ = columns.starts(buf)
    for first in range(0, len(starts), _MANY):
        block, good = columns.layout(buf, starts[first : first + _MANY])
        whole = columns.are_whole(block.only(slice(0, _count(good))), position, protected)
        yield block.head["size"][: _count(whole)].tolist()
        if _count(whole) < len(block):
            return


def _count(flags: columns.Flags) -> int:
    """How many are true before the first that is not."""
    return len(flags) if flags.all() else int(flags.argmin())


def _sizes_one_by_one(buf: bytes, at: int, position: int, protected: bool) -> Iterator[int]:
    with suppress(BadBytes):
        while at < len(buf):
            size = verify(buf, at, position + at, protected)
            yield size
            at += size


def walk_epochs(
    read: Callable[[int, int], bytes], segment_end: int, from_: int, to: int, history: EpochHistory
) -> Iterator[RecordView]:
    """As `walk`; checks each stretch as its writer demands, by the epoch history: ours or Apache RocketMQ's."""
    for start, end, ours in epochs.pieces(history, from_, to):
        yield from walk(read, segment_end, start, end, ours)


def _read_for(read: Callable[[int, int], bytes], position: int, to: int) -> bytes:
    """A block from there, or the whole record if it is larger; nothing behind `to`."""
    buf = read(position, min(_BLOCK, to - position))
    size = int.from_bytes(buf[:4], "big")
    if len(buf) < size <= to - position:
        buf = read(position, size)
    return buf
