"""One file of the index: header, hash slots, entries that form a chain for each slot [IndexFile, IndexHeader].

    header    begin and end store time (ms), begin and end offset of the log, slots in use, index of the next entry
    slots     index of the newest entry with such a hash
    entries   hash, offset of the record, seconds since the begin time, index of the entry before in this slot

Entry 0 is never used. The newest file is filled through memory: entries are written as they come, slots and header by
`sync`, the header last, so that what it counts is on the disk. Which files there are is `rmq.log.index.index`'s business.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from struct import Struct
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmq.errors import StoreError
from rmq.log.files.disk import Disk
from rmq.log.index.harvest import Entries
from rmq.log.records.columns import Flags, Ints

HEADER_BYTES = 40
ENTRY = Struct(">iqii")
ENTRY_BYTES = 20
_SLOT_BYTES = 4
_STORED = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("before", ">i4")])
_STORED_SLOT = np.dtype(">i4")
_HEADER = Struct(">qqqqii")
_PAGE_SLOTS = 1024  # 4 KiB
_RUN_PAGES = 256  # written together
_TOUCHED_SLOTS = 1 << 18  # a MiB, made ready together
_BLOCK_ENTRIES = 50_000
_MAX_SECONDS = 2**31 - 1

Slots = npt.NDArray[np.int32]


class Shape(NamedTuple):
    """[maxHashSlotNum, maxIndexNum] The last of `entries` is never filled: one index stands for "full"."""

    slots: int = 5_000_000
    entries: int = 20_000_000

    @property
    def entries_at(self) -> int:
        return HEADER_BYTES + self.slots * _SLOT_BYTES

    @property
    def file_bytes(self) -> int:
        return self.entries_at + self.entries * ENTRY_BYTES


class Header(NamedTuple):
    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    next: int = 1  # index of the next entry


def file_name(wall_ms: int, after: str = "") -> str:
    """17 digits of local time, later than those of the file before: names have to sort, whatever the clock does."""
    moment = datetime.fromtimestamp(wall_ms // 1000) + timedelta(milliseconds=wall_ms % 1000)
    name = _digits(moment)
    return name if name > after else _digits(datetime.strptime(after + "000", "%Y%m%d%H%M%S%f") + timedelta(milliseconds=1))


def _digits(moment: datetime) -> str:
    return moment.strftime("%Y%m%d%H%M%S%f")[:17]


class IndexFile:
    """`header` says what was put in, written or not. One thread at a time changes a file; others may look things up."""

    def __init__(self, disk: Disk, directory: str, name: str, shape: Shape, header: Header) -> None:
        self.name = name
        self.header = header
        self.shape = shape
        self._disk = disk
        self._path = f"{directory}/{name}"
        self._synced: Header | None = None
        self._slots: Slots | None = None  # while it is filled
        self._changed = np.zeros(-(-shape.slots // _PAGE_SLOTS), np.bool_)  # pages of slots, since the last sync
        self._tail = bytearray()  # entries from `_tail_from` on, not written yet
        self._tail_from = header.next
        self._moving = Lock()  # held while the beginning of the tail must not move

    @classmethod
    def create(cls, disk: Disk, directory: str, name: str, shape: Shape, before: Header) -> "IndexFile":
        """A new file; it begins where the one before ended. Raises OSError."""
        header = Header(before.end_ms, before.end_ms, before.end_offset, before.end_offset)
        file = cls(disk, directory, name, shape, header)
        handle = disk.create(file._path)
        try:
            disk.truncate(handle, shape.file_bytes)
            disk.pwrite(handle, _HEADER.pack(*header), 0)
        finally:
            disk.close(handle)
        disk.fsync_directory(directory)
        file._slots = _fresh_slots(shape.slots)
        return file

    @classmethod
    def open(cls, disk: Disk, directory: str, name: str, shape: Shape) -> "IndexFile":
        """A file that is there, ours or RocketMQ's. Raises StoreError if it cannot be one of this shape, OSError."""
        path = f"{directory}/{name}"
        if disk.size(path) != shape.file_bytes:
            raise StoreError(f"{path} has {disk.size(path)} bytes, the settings ask for {shape.file_bytes}")
        handle = disk.open(path)
        try:
            header = Header(*_HEADER.unpack(disk.pread(handle, HEADER_BYTES, 0)))
        finally:
            disk.close(handle)
        if not (0 <= header.used_slots <= shape.slots and header.next <= shape.entries):
            raise StoreError(f"{path}: a header with {header.used_slots} slots and {header.next} entries is damaged")
        return cls(disk, directory, name, shape, header._replace(next=max(header.next, 1)))

    @property
    def room(self) -> int:
        return self.shape.entries - self.header.next

    @property
    def filling(self) -> bool:
        """Whether its slots are in memory."""
        return self._slots is not None

    # --- filling ------------------------------------------------------------------------------------------------------

    def put(self, entries: Entries) -> None:
        """At least one entry, at most `room`, as `harvest` finds them. Nothing is written yet."""
        if self._slots is None:
            self._slots = self._load_slots()
        begin_ms, _, begin_offset, _, used, first = self.header
        stored = np.empty(len(entries), _STORED)
        stored["hash"], stored["offset"] = entries["hash"], entries["offset"]
        times = entries["stored_ms"]
        stored["seconds"] = _seconds(times, begin_ms)
        if first == 1:  # its own time counts from what the file began with; all others from its time
            begin_offset, begin_ms = int(entries["offset"][0]), int(times[0])
            stored["seconds"][1:] = _seconds(times[1:], begin_ms)
        touched = entries["hash"] % self.shape.slots
        with self._moving:  # all of it: who finds a slot must find its entry
            before = stored["before"] = _chain(self._slots, touched, first)
            self._tail += stored.tobytes()
            used += len(before) - int(np.count_nonzero(before))
            last = entries[-1]
            self.header = Header(begin_ms, int(last["stored_ms"]), begin_offset, int(last["offset"]), used, first + len(entries))
        self._changed[touched // _PAGE_SLOTS] = True

    def write(self) -> None:
        """Writes the entries that were put. After an OSError nothing is lost: call it again."""
        if self._tail:
            self._write(lambda handle: self._pwrite(handle, self._tail, self._entry_at(self._tail_from)))
            with self._moving:
                self._tail_from += len(self._tail) // ENTRY_BYTES
                self._tail = bytearray()

    def sync(self) -> None:
        """Everything that was put is on the disk. Raises OSError."""
        self.write()
        header = self.header
        if header == self._synced:
            return
        self._write(self._sync_slots)
        self._write(lambda handle: self._sync_header(handle, header))
        self._synced = header

    def _sync_header(self, handle: int, header: Header) -> None:
        self._pwrite(handle, _HEADER.pack(*header), 0)
        self._disk.fdatasync(handle)

    def _sync_slots(self, handle: int) -> None:
        slots = self._slots if self._slots is not None else np.empty(0, np.int32)  # then nothing has changed
        for first, end in _runs(np.flatnonzero(self._changed)):
            data = slots[first * _PAGE_SLOTS : end * _PAGE_SLOTS].astype(_STORED_SLOT).tobytes()
            self._pwrite(handle, data, HEADER_BYTES + first * _PAGE_SLOTS * _SLOT_BYTES)
        self._disk.fdatasync(handle)
        self._changed[:] = False

    def finish(self) -> None:
        """The file is full: durable, and only read from now on. Raises OSError."""
        self.sync()
        self._slots = None

    def _write(self, work: Callable[[int], None]) -> None:
        handle = self._disk.open(self._path)
        try:
            work(handle)
        finally:
            self._disk.close(handle)

    def _pwrite(self, handle: int, data: bytes | bytearray, at: int) -> None:
        if self._disk.pwrite(handle, data, at) != len(data):
            raise OSError(28, "short write", self._path)

    def _entry_at(self, entry_index: int) -> int:
        return self.shape.entries_at + entry_index * ENTRY_BYTES

    def _load_slots(self) -> Slots:
        handle = self._disk.open(self._path)
        try:
            return np.frombuffer(self._disk.pread(handle, self.shape.slots * _SLOT_BYTES, HEADER_BYTES), _STORED_SLOT).astype(
                np.int32
            )
        finally:
            self._disk.close(handle)

    # --- looking up ---------------------------------------------------------------------------------------------------

    def find(self, value: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Offsets of records whose key may have this hash and whose store time may lie in between, newest first.

        May wait for the device; a file that is deleted meanwhile is read to its end. Ends at a broken link. Raises OSError.
        """
        with self._moving:
            header, slots, tail, tail_from = self.header, self._slots, self._tail, self._tail_from
            entry_index = int(slots[value % self.shape.slots]) if slots is not None else 0
            tail = tail[:] if entry_index >= tail_from else tail[:0]
        handle = self._disk.open(self._path)
        try:
            if slots is None:
                at = HEADER_BYTES + value % self.shape.slots * _SLOT_BYTES
                entry_index = int.from_bytes(self._disk.pread(handle, _SLOT_BYTES, at), "big", signed=True)
            above = header.next
            while 0 < entry_index < above:  # links go down, or they are broken
                at = (entry_index - tail_from) * ENTRY_BYTES
                data = (
                    tail[at : at + ENTRY_BYTES] if at >= 0 else self._disk.pread(handle, ENTRY_BYTES, self._entry_at(entry_index))
                )
                found, offset, seconds, before = ENTRY.unpack(data)
                if found == value and _may_lie(entry_index, seconds, header.begin_ms, begin_ms, end_ms):
                    yield offset
                above, entry_index = entry_index, before
        finally:
            self._disk.close(handle)

    # --- recovery -----------------------------------------------------------------------------------------------------

    def first_offset(self) -> int:
        """Offset of the record of the first entry; there must be one. Raises OSError."""
        return self._offset(1)

    def cut(self, offset: int, store_time: Callable[[int], int]) -> None:
        """Takes out the entries of records from `offset` on. `rebuild` must follow. Raises OSError."""
        count = bisect_left(range(1, self.header.next), offset, key=self._offset) + 1
        if count < self.header.next:
            last = self._offset(count - 1)
            self.header = self.header._replace(end_ms=store_time(last), end_offset=last, next=count)
            self._tail_from = count

    def rebuild(self) -> None:
        """Makes the slots anew from the entries: after a crash they may be older or newer than the header. Raises OSError."""
        slots, end = np.zeros(self.shape.slots, np.int32), self.header.next
        for entry_index in range(1, end, _BLOCK_ENTRIES):
            entries = np.frombuffer(self._read(entry_index, min(_BLOCK_ENTRIES, end - entry_index)), _STORED)
            _chain(slots, entries["hash"] % self.shape.slots, entry_index)
        self.header = self.header._replace(used_slots=int(np.count_nonzero(slots)))
        self._slots = slots
        self._changed[:] = True
        handle = self._disk.open(self._path)
        try:  # nothing stays behind the last entry
            self._disk.truncate(handle, self._entry_at(end))
            self._disk.truncate(handle, self.shape.file_bytes)
        finally:
            self._disk.close(handle)
        self.sync()

    def _offset(self, entry_index: int) -> int:
        offset: int = ENTRY.unpack(self._read(entry_index, 1))[1]
        return offset

    def _read(self, entry_index: int, count: int) -> bytes:
        handle = self._disk.open(self._path)
        try:
            return self._disk.pread(handle, count * ENTRY_BYTES, self._entry_at(entry_index))
        finally:
            self._disk.close(handle)


def _fresh_slots(count: int) -> Slots:
    """Empty ones, in memory that is there. Else the system would make each page when it is first met, which for the entries of
    one MiB of log takes 20 to 40 ms, and the event loop would wait for that."""
    slots = np.zeros(count, np.int32)
    for at in range(0, count, _TOUCHED_SLOTS):  # in pieces: who waits for the interpreter gets it in between
        slots[at : at + _TOUCHED_SLOTS : _PAGE_SLOTS] = 0
    return slots


def _chain(slots: Slots, touched: Slots, first: int) -> Slots:
    """Enters the entries from `first` on into these slots, and returns what stood in each before."""
    indexes = np.arange(first, first + len(touched), dtype=np.int32)
    before: Slots = slots[touched]
    slots[touched] = indexes
    stays = slots[touched]  # one of those that share a slot
    shared: Flags = stays != indexes
    if shared.any():
        shared[stays[shared] - first] = True
        places = np.flatnonzero(shared)
        places = places[np.argsort(touched[places], kind="stable")]  # those of one slot stand together, in order
        slot = touched[places]
        follows: Flags = slot[1:] == slot[:-1]
        before[places[1:][follows]] = indexes[places[:-1][follows]]
        last = places[np.append(~follows, True)]
        slots[touched[last]] = indexes[last]
    return before


def _runs(pages: Ints) -> Iterator[tuple[int, int]]:
    """(first, end) of neighbouring pages, at most a MiB at a time."""
    for run in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1):
        for at in range(0, len(run), _RUN_PAGES):
            yield int(run[at]), int(run[min(at + _RUN_PAGES, len(run)) - 1]) + 1


def _seconds(times: Ints, begin_ms: int) -> Ints:
    """What entries say of their store times (ms): whole seconds since the begin time, none before it."""
    if begin_ms <= 0:
        return np.zeros(len(times), np.int64)
    found: Ints = np.minimum((np.maximum(times, begin_ms) - begin_ms) // 1000, _MAX_SECONDS)
    return found


def _may_lie(entry_index: int, seconds: int, file_begin_ms: int, begin_ms: int, end_ms: int) -> bool:
    """Whether the store time of an entry can be in [begin_ms, end_ms].

    The first entry counts from the end of the file before, but is the one that the begin time is of. No seconds may also
    stand for an earlier time (the clock had been set back).
    """
    begun = file_begin_ms if entry_index == 1 else file_begin_ms + seconds * 1000
    return begin_ms < begun + 1000 and (begun <= end_ms or not seconds)
