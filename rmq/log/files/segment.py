"""One file of the CommitLog, and how to walk over the entries in it.

An entry is a record with the filler before it, if there is one (docs/storage). Knows one file at a time; the CommitLog
knows which files there are and what may be appended.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import Struct
from threading import Lock
from typing import NamedTuple

import numpy as np

from rmq.errors import BadBytes
from rmq.log.files import epochs
from rmq.log.files.disk import PAGE_BYTES, Disk, Unreadable
from rmq.log.files.epochs import EpochHistory
from rmq.log.records import columns
from rmq.log.records.record import BLANK_MAGIC, Buffer, verify

FILLER = Struct(">ii")  # bytes left in the file, blank magic
_BLOCK = 1 << 20
MANY_BYTES = 1 << 16  # numpy pays from about a hundred records on
_ZEROS = bytes(_BLOCK)
_new = tuple.__new__  # a NamedTuple in half the time


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


class Records(NamedTuple):
    """Whole records that stand back to back in `buf`, each `at` one of these. `base`: where in the log the buffer begins; `end`:
    where in the log the last of them ends. `parts`: where their parts are, if somebody has looked."""

    base: int
    buf: bytes
    at: columns.Ints
    end: int
    parts: columns.Block | None = None

    def each(self) -> Iterator[RecordView]:
        base, buf, starts = self.base, self.buf, self.at.tolist()
        for at, stop in zip(starts, [*starts[1:], self.end - base], strict=True):
            yield _new(RecordView, (base + at, buf, at, stop - at))

    def block(self) -> columns.Block:
        return self.parts if self.parts is not None else columns.layout(self.buf, self.at)[0]

    def up_to(self, enough: int) -> "Records":
        """Without those that begin at or behind `enough` of the log, but for the first."""
        return self.only(0, max(int(np.searchsorted(self.at, enough - self.base)), 1))

    def only(self, first: int, stop: int) -> "Records":
        """Those from number `first` to before `stop`."""
        if first == 0 and stop == len(self.at):
            return self
        end = self.base + int(self.at[stop]) if stop < len(self.at) else self.end
        parts = None if self.parts is None else self.parts.only(slice(first, stop))
        return Records(self.base, self.buf, self.at[first:stop], end, parts)


def file_name(offset: int) -> str:
    """RocketMQ's: the offset of the first byte, 20 digits [UtilAll.offset2FileName]."""
    return f"{offset:020d}"


class Segment:
    """An open file of the log. Offsets are the log's. All methods raise OSError."""

    def __init__(self, disk: Disk, path: str, base: int, size: int, handle: int) -> None:
        self.path = path
        self.base = base
        self.size = size
        self.end = base + size
        self._disk = disk
        self._handle = handle
        self._readers = 0
        self._withdrawn = False
        self._counting = Lock()

    def read(self, offset: int, size: int) -> bytes:
        """In any thread."""
        with self._counting:
            if self._withdrawn:
                raise gone(self.path)
            self._readers += 1
        try:
            return self._disk.pread(self._handle, size, offset - self.base)
        except OSError as error:
            if error.errno == errno.EIO:
                raise Unreadable(error.errno, error.strerror, self.path) from error
            raise
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._counting:
            self._readers -= 1
            if self._withdrawn and not self._readers:
                self._disk.close(self._handle)

    def withdraw(self) -> Callable[[], None]:
        """No reads from now on. For the thread of `read_cached`, which cannot be in it.

        What it gives has to be called, in any thread (to free a large file takes a while): the file is closed once its last
        reader is done (D15).
        """
        with self._counting:
            self._withdrawn = True
            self._readers += 1
        return self._leave

    def read_exactly(self) -> None:
        """See `Disk.read_exactly`."""
        self._disk.read_exactly(self._handle)

    def read_ahead(self, offset: int, to: int) -> None:
        """Begins to read [offset, to), as far as it lies here, into the memory. In any thread."""
        with self._counting:
            if not self._withdrawn:
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
            if data.endswith(_ZEROS[:PAGE_BYTES]):
                self._disk.forget(self._handle, (offset - self.base) // PAGE_BYTES * PAGE_BYTES)

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
    """The whole records of one segment from `from_`, which is the end of an entry, up to `to`, each checked.

    Ends at `to` or at the filler. `read(offset, size)` gives bytes of the segment. Raises BadEntry at the first thing
    that is neither; it never looks for another record behind it (D6).
    """
    for some in walk_many(read, segment_end, from_, to, protected):
        yield from some.each()


def walk_many(read: Callable[[int, int], bytes], segment_end: int, from_: int, to: int, protected: bool) -> Iterator[Records]:
    """As `walk`: those of a block together."""
    position = from_
    while position < to:
        buf = _read_for(read, position, to)
        starts, at = _whole(buf, position, protected)
        if at:
            yield Records(position, buf, starts, position + at)
        else:
            left, magic = FILLER.unpack_from(buf) if len(buf) >= FILLER.size else (0, 0)
            if magic == BLANK_MAGIC and left == segment_end - position:
                return
            if magic == BLANK_MAGIC:
                raise BadEntry(position, f"a filler of {left} bytes where the file has {segment_end - position} left")
            try:
                at = verify(buf, 0, position, protected)
            except BadBytes as error:
                raise BadEntry(position, str(error)) from error
            yield Records(position, buf, np.zeros(1, np.int64), position + at)
        position += at


def _whole(buf: bytes, position: int, protected: bool) -> tuple[columns.Ints, int]:
    """Where the whole records at the beginning of `buf` begin, whose first byte is at `position` of the log, and where the last
    one ends."""
    if len(buf) < MANY_BYTES:
        starts, at = list[int](), 0
        for size in _sizes_one_by_one(buf, position, protected):
            starts.append(at)
            at += size
        return np.array(starts, np.int64), at
    some, end = columns.starts(buf)
    if not len(some):
        return some, 0
    block, good = columns.layout(buf, some)
    count = _count(columns.are_whole(block.only(slice(0, _count(good))), position, protected))
    return some[:count], end if count == len(some) else int(some[count])


def _count(flags: columns.Flags) -> int:
    """How many are true before the first that is not."""
    return len(flags) if flags.all() else int(flags.argmin())


def _sizes_one_by_one(buf: bytes, position: int, protected: bool) -> Iterator[int]:
    at = 0
    with suppress(BadBytes):
        while at < len(buf):
            size = verify(buf, at, position + at, protected)
            yield size
            at += size


def walk_epochs(
    read: Callable[[int, int], bytes], segment_end: int, from_: int, to: int, history: EpochHistory
) -> Iterator[RecordView]:
    """As `walk`; checks each stretch as its writer demands, by the epoch history: ours or Apache RocketMQ's."""
    for some in walk_epochs_many(read, segment_end, from_, to, history):
        yield from some.each()


def walk_epochs_many(
    read: Callable[[int, int], bytes], segment_end: int, from_: int, to: int, history: EpochHistory
) -> Iterator[Records]:
    """As `walk_epochs`: those of a block, which all have one writer, together."""
    for start, end, ours in epochs.pieces(history, from_, to):
        yield from walk_many(read, segment_end, start, end, ours)


def _read_for(read: Callable[[int, int], bytes], position: int, to: int) -> bytes:
    """A block from there, or the whole record if it is larger; nothing behind `to`."""
    buf = read(position, min(_BLOCK, to - position))
    size = int.from_bytes(buf[:4], "big")
    if len(buf) < size <= to - position:
        buf = read(position, size)
    return buf
