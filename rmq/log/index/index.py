"""The index: where messages with a certain key, unique key or tag are in the log [IndexService].

Derived from committed records and disposable (D10). It is built later, piece by piece; no send waits for it.
`position` says how far it is, so a lookup can tell whether it saw everything.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import NamedTuple, Protocol

from rmq.errors import BadBytes, StoreError
from rmq.log.files.disk import Disk, remedy
from rmq.log.files.ownfiles import IndexRow
from rmq.log.files.segment import FILLER
from rmq.log.index.harvest import MAX_ENTRIES, NO_ENTRIES, harvest, harvest_all
from rmq.log.index.indexfile import Header, IndexFile, Shape, file_name
from rmq.log.records.indexkeys import key_hash
from rmq.log.records.record import BLANK_MAGIC
from rmq.log.taken import LaidRecords

BURST_BYTES = 1 << 20  # of the log, read at once: numpy costs the same for a few records as for hundreds
_NEAR_BYTES = 1 << 26  # so much of the log's end is certainly in memory
_NAME_DIGITS = 17
_LOG = logging.getLogger(__name__)


class LastRun(NamedTuple):
    """What the last run left: its files (None: unknown), durable for records below `to`; `tidy`: it stopped in order."""

    rows: Sequence[IndexRow] | None
    to: int
    tidy: bool


class LogBytes(Protocol):
    """What the index needs of the log."""

    @property
    def start(self) -> int: ...

    @property
    def segment_bytes(self) -> int: ...

    @property
    def laid(self) -> LaidRecords: ...

    def read(self, offset: int, size: int) -> bytes: ...

    def store_time(self, offset: int) -> int: ...


class Index:
    """See the module. One thread at a time advances, flushes or deletes (others wait); any may look things up.

    `position`: everything below it in the log is in here; -1 until the first `advance` has opened what is there.
    """

    def __init__(self, disk: Disk, directory: str, shape: Shape, log: LogBytes, last_run: LastRun) -> None:
        self.position = -1
        self._disk = disk
        self._directory = directory
        self._shape = shape
        self._log = log
        self._last_run = last_run
        self._files: tuple[IndexFile, ...] = ()
        self._entries = NO_ENTRIES  # taken out of the log below `_taken`, not put into a file yet
        self._taken = 0
        self._busy = Lock()

    # --- opening ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Goes on where the last run was, or begins at the start of the log. Raises OSError."""
        rows, to, _ = self._last_run
        try:
            self._files = tuple(self._take_over(rows)) if rows is not None else ()
        except (StoreError, OSError) as error:
            _LOG.warning("the index is built anew from the log: %s", error)
            rows = None
        if rows is None:
            self._files, to = (), 0
            delete_files(self._disk, self._directory)
        self.position = self._taken = max(to, self._log.start)

    def _take_over(self, rows: Sequence[IndexRow]) -> list[IndexFile]:
        """The files, with the entries of records below `to` only."""
        _, to, tidy = self._last_run
        needed = [row.name for row in rows if not 0 <= row.end < self._log.start]  # retention may have deleted the others
        self._delete(set(_names(self._disk, self._directory)).difference(needed))
        files = [IndexFile.open(self._disk, self._directory, name, self._shape) for name in needed]
        if any(file.room for file in files[:-1]):
            raise StoreError(f"in {self._directory} a file before the last one is not full")
        while files and (files[-1].header.next == 1 or files[-1].first_offset() >= to):
            self._delete([files.pop().name])
            tidy = False
        if files and not tidy:
            files[-1].cut(to, self._log.store_time)
            files[-1].rebuild()
        return files

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._disk.unlink(f"{self._directory}/{name}")

    # --- building -----------------------------------------------------------------------------------------------------

    def advance(self, to: int, wall_ms: int) -> None:
        """Enters the records from `position` on, a block of one file, none behind `to` (the end of a committed record).

        `wall_ms` names a new file. Raises StoreError, BadBytes; nothing is lost or entered twice if it is called again.
        """
        with self._busy:
            self._advance(to, wall_ms)

    def step(self, to: int, wall_ms: int) -> bool:
        """Half of what `advance` does, for the event loop: what is to be entered is found by one call and entered by the next,
        about a ms each. Raises as it does.

        False if that might wait for a device or for another thread: nothing was done, `advance` is needed.
        """
        last = self._files[-1] if self._files else None
        if last is None or not last.filling or last.room < MAX_ENTRIES or to - self.position > _NEAR_BYTES:
            return False
        if not self._busy.acquire(blocking=False):
            return False
        try:
            self._advance(to, wall_ms, half=True)
        finally:
            self._busy.release()
        return True

    def _advance(self, to: int, wall_ms: int, half: bool = False) -> None:
        try:
            if self.position < 0:
                self._open()
            left = len(self._entries)  # by a full disk, or a step
            self._put(wall_ms)
            self._taken = self.position = max(self.position, self._log.start)  # retention may be faster
            if self.position < to and not (half and left):
                self._take(to)
                if not half:
                    self._put(wall_ms)
        except OSError as error:
            del error.filename  # a new file has the time in its name: each try would be told in words of its own
            about = f"the index in {self._directory} cannot be written: {remedy(error, 'free space on the disk')}"
            raise StoreError(about) from error

    def _take(self, to: int) -> None:
        """The entries of one block."""
        at, read, segment_bytes = self._taken, self._log.read, self._log.segment_bytes
        laid = self._log.laid.take(at, to)
        entries = None if laid is None else harvest_all(laid.block, laid.properties, laid.base)
        if laid is not None and entries is not None:
            self._entries, self._taken = entries, laid.end
            return
        room = self._log.laid.begin_at(min(to, (at // segment_bytes + 1) * segment_bytes)) - at
        entries, taken = harvest(read(at, min(room, BURST_BYTES)), at)
        if not taken:  # a filler, or a record larger than a block
            size, magic = FILLER.unpack(read(at, FILLER.size))
            if magic == BLANK_MAGIC:
                taken = size
            else:
                entries, taken = harvest(read(at, min(size, room)), at)
        if taken <= 0:
            raise BadBytes(f"CommitLog at {at}: no record; the index stops here")
        self._entries = entries
        self._taken += taken

    def _put(self, wall_ms: int) -> None:
        while len(self._entries):
            file = self._filled(wall_ms)
            room = file.room
            file.put(self._entries[:room])
            self._entries = self._entries[room:]
        if self._files:
            self._files[-1].write()
        self.position = self._taken

    def _filled(self, wall_ms: int) -> IndexFile:
        """The file with room."""
        last = self._files[-1] if self._files else None
        if last is not None and last.room:
            return last
        if last is None:
            self._disk.make_directory(self._directory)
        else:
            last.finish()
        name = file_name(wall_ms, last.name if last else "")
        file = IndexFile.create(self._disk, self._directory, name, self._shape, last.header if last else Header())
        self._files = (*self._files, file)
        return file

    def flush(self) -> LastRun | None:
        """Makes everything durable; returns what to save for the next run. None while nothing is open. Raises StoreError."""
        with self._busy:
            if self.position < 0:
                return None
            try:
                if self._files:
                    self._files[-1].sync()
            except OSError as error:
                raise StoreError(f"cannot write {self._directory}: {remedy(error, 'free space or repair the disk')}") from error
            rows = [IndexRow(file.name, -1 if file.room else file.header.end_offset) for file in self._files]
            return LastRun(rows, self.position, True)

    def reset(self) -> None:
        """The log was emptied: the index is void, and the next `advance` begins at the log's start."""
        with self._busy:
            self._log.laid.clear()
            self._last_run = LastRun(None, 0, False)
            self.position, self._files, self._taken = -1, (), 0
            self._entries = NO_ENTRIES

    def delete_before(self, offset: int) -> int:
        """Drops the files that hold only records below `offset`, the start of the log; never the last one. How many.

        Raises OSError. The start of the log must be durable before.
        """
        with self._busy:
            gone = [file for file in self._files[:-1] if file.header.end_offset < offset]
            self._files = self._files[len(gone) :]
            self._delete([file.name for file in gone])
            return len(gone)

    # --- looking up ---------------------------------------------------------------------------------------------------

    def find(self, topic: str, word: str, begin_ms: int, end_ms: int, *, tag: bool = False) -> Iterator[int]:
        """Offsets of records that may match, newest first; the caller checks the records.

        `word`: a key, a unique key, or a tag. `begin_ms`, `end_ms`: store time. Raises OSError behind those of the files that can
        be read.
        """
        value, last = key_hash(topic, word, tag=tag), -1
        trouble: OSError | None = None
        for file in reversed(self._files):
            try:
                for offset in file.find(value, begin_ms, end_ms):
                    if offset != last:  # a restart of RocketMQ may enter the last message again
                        yield offset
                        last = offset
            except FileNotFoundError:  # retention was faster
                break
            except OSError as error:  # as of a bad sector
                trouble = trouble or error
        if trouble is not None:
            raise trouble

    @property
    def last(self) -> Header:
        """The last entry; zeros if there is none."""
        files = self._files
        return files[-1].header if files else Header(0, 0, 0, 0)

    @property
    def full_ms(self) -> int:
        """End time of the newest full file [indexMsgTimestamp]; 0 without one."""
        return max((file.header.end_ms for file in self._files if not file.room), default=0)


def delete_files(disk: Disk, directory: str) -> None:
    """Removes every file of an index. Raises OSError."""
    for name in _names(disk, directory):
        disk.unlink(f"{directory}/{name}")


def _names(disk: Disk, directory: str) -> list[str]:
    return [name for name in disk.listdir(directory) if len(name) == _NAME_DIGITS and name.isdecimal()]
