"""The files of one CommitLog: lists them, makes the next one ahead of time, flushes all, cuts the last ones.

It knows no units. `add` and `cut` belong to the appending thread; `prepare`, `sync` and `drop_before` may run
in another. The list is replaced, never changed, so whoever reads it needs no lock.
"""

import contextlib
import errno
from collections.abc import Iterator
from threading import Lock

from rmq.log.files.disk import Disk, allocated
from rmq.log.files.epochs import EpochHistory
from rmq.log.files.segment import BadEntry, Records, Segment, file_name, gone, walk_epochs_many


class Segments:
    """All methods raise OSError. `found`: the open files, oldest first, without a gap."""

    def __init__(self, disk: Disk, root: str, segment_bytes: int, found: list[Segment]) -> None:
        self.segment_bytes = segment_bytes
        self._disk = disk
        self._directory = f"{root}/commitlog"
        self._spare_path = f"{root}/rmq/next"
        self._segments = found
        for segment in found:
            segment.read_exactly()
        self._spare: int | None = None  # handle of the next file, ready
        self._spare_lock = Lock()
        # The log lies on another disk than `rmq/`: its files are made where they stay.
        self._apart = not disk.together(f"{root}/rmq", self._directory)
        self._leaving: list[Segment] = []  # no longer in the list, perhaps still on the disk
        self._changing = Lock()  # held while the list is replaced
        self._names_dirty = True  # an earlier run may have stopped before the names of these files were durable

    def all(self) -> list[Segment]:
        return list(self._segments)

    def last(self) -> Segment | None:
        return self._segments[-1] if self._segments else None

    def last_with(self, offset: int) -> Segment | None:
        """The last file, if it is the one for a byte at `offset`."""
        last = self._segments[-1] if self._segments else None
        return last if last is not None and last.base <= offset < last.end else None

    def at(self, offset: int) -> Segment:
        """The file with the byte at `offset`."""
        segments = self._segments
        try:
            if offset < segments[0].base:
                raise IndexError
            return segments[(offset - segments[0].base) // self.segment_bytes]
        except IndexError:  # retention deleted it, or the log was cut, or begins anew
            raise gone(f"{self._directory}, byte {offset}") from None

    def end_of(self, offset: int) -> int:
        """Where the file with `offset` ends, whether it exists or not."""
        return (offset // self.segment_bytes + 1) * self.segment_bytes

    def read_ahead(self, offset: int, to: int) -> None:
        """Begins to read these bytes into the memory, as far as they lie in one file; it may fail: whoever reads them is told."""
        with contextlib.suppress(OSError):
            self.at(offset).read_ahead(offset, to)

    def records(self, from_: int, to: int, history: EpochHistory) -> Iterator[Records]:
        """The records from `from_` to `to` (both ends of records), each checked, those of a block together. Raises BadEntry,
        too."""
        position = from_
        while position < to:
            segment = self.at(position)
            for some in walk_epochs_many(segment.read, segment.end, position, min(to, segment.end), history):
                yield some
                position = some.end
            if position < to:
                if segment.end >= to or segment is self.last():
                    raise BadEntry(segment.end, f"the log should go on to {to}")
                position = segment.end

    def add(self, base: int) -> Segment:
        """The next file. Its name is durable after the next `sync`; that of a log's first file at once: if only the name of a
        later one reached the device, the log would seem to begin there."""
        path = f"{self._directory}/{file_name(base)}"
        with self._spare_lock:
            handle = self._next_at(path)
            try:
                if not self._segments:
                    self._disk.fsync_directory(self._directory)
            except OSError:
                self._disk.close(handle)
                raise
        segment = Segment(self._disk, path, base, self.segment_bytes, handle)
        segment.read_exactly()
        self._names_dirty = True
        with self._changing:
            self._segments = [*self._segments, segment]
        return segment

    def _next_at(self, path: str) -> int:
        """A handle of the next file, which has its name now."""
        handle, self._spare = self._spare, None
        if not self._apart:
            handle = self._make_spare() if handle is None else handle
            try:
                self._disk.rename(self._spare_path, path)
                return handle
            except OSError as error:
                self._disk.close(handle)
                if error.errno != errno.EXDEV:
                    raise
            self._apart = True
            self._disk.unlink(self._spare_path)
        return allocated(self._disk, path, self.segment_bytes)

    def drop_before(self, start: int) -> list[Segment]:
        """Removes the files that end at or before `start`, oldest first, never the last one; durable when it returns.

        A crash, or a failure after which it is called again, leaves a log without a gap. The caller withdraws the returned
        files: readers may still use them.
        """
        with self._changing:
            leaving = [segment for segment in self._segments[:-1] if segment.end <= start]
            self._segments = self._segments[len(leaving) :]
        self._leaving += leaving
        first = file_name(self._segments[0].base)
        for name in self._disk.listdir(self._directory):
            if len(name) == len(first) and name.isdecimal() and name < first:
                self._disk.unlink(f"{self._directory}/{name}")
                self._disk.fsync_directory(self._directory)
        leaving, self._leaving = self._leaving, []
        return leaving

    def _make_spare(self) -> int:
        """A file of zeros that have their room on the device; a recycled file could hold old records (D9)."""
        return allocated(self._disk, self._spare_path, self.segment_bytes)

    def prepare(self, end: int) -> None:
        """Makes the next file ahead of time once the last one is full to an eighth (`end`: of the log): where files are small, or
        the device is busy, the append that needs it would wait."""
        last = self.last()
        if last is None or end - last.base < self.segment_bytes // 8 or self._apart:
            return
        with self._spare_lock, contextlib.suppress(OSError):  # no room: the append that needs the file says so
            if self._spare is None:
                self._spare = self._make_spare()

    def sync(self, from_: int, to: int) -> None:
        """Makes the bytes [from_, to) durable, and the names of the files."""
        segments, size = self._segments, self.segment_bytes
        first = segments[0].base if segments else 0
        touched = segments[max(from_ - first, 0) // size : max(to - first + size - 1, 0) // size]
        if self._names_dirty:
            self._names_dirty = False  # before: a file may be added meanwhile
            self._disk.fsync_directory(self._directory)
        for segment in touched:
            segment.sync()

    def cut(self, to: int) -> None:
        """Removes the files behind `to`, zeros the rest of the one it lies in, and makes that durable."""
        while len(self._segments) > 1 and self._segments[-1].base >= to:
            with self._changing:
                *self._segments, segment = self._segments
            segment.withdraw()()  # not `close`: its handle may be another file's before a reader is done
            self._disk.unlink(segment.path)
            self._disk.fsync_directory(self._directory)  # each before the next: a crash leaves no gap
        for segment in self._segments[-1:]:
            segment.zero(to)
            segment.sync()

    def begin_at(self, base: int) -> None:
        """Removes every file, the last one first, and makes an empty one at `base`; durable."""
        while self._segments:
            with self._changing:
                *self._segments, segment = self._segments
            segment.withdraw()()
            self._disk.unlink(segment.path)
            self._disk.fsync_directory(self._directory)
        self.add(base)
        self.sync(base, base + 1)

    def close(self) -> None:
        for segment in self._segments:
            segment.close()
        if self._spare is not None:
            self._disk.close(self._spare)
            self._spare = None
