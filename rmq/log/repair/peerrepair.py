"""Repairs a damaged range of the log with the bytes of another node of the group.

Undamaged bytes of one offset, epoch and writer are the same at every node: a leader never writes twice to an offset. So any
node may give them, and exactly the old bytes are written back. Everything is checked, and kept in a file of its own, before
the first byte of the log is touched. Synchronous, for threads; the caller knows whom to ask.
"""

from bisect import bisect_right
from operator import attrgetter

from rmq.errors import BadBytes, StoreError
from rmq.log.commitlog import CommitLog
from rmq.log.files import epochs
from rmq.log.files.damage import DamagedRange
from rmq.log.files.disk import Disk, allocated
from rmq.log.files.epochs import EpochHistory
from rmq.log.files.segment import FILLER, BadEntry, Segment, file_name, walk_epochs
from rmq.log.records import record
from rmq.log.records.record import BLANK_MAGIC
from rmq.log.records.tombstones import is_tombstone
from rmq.model import EPOCH_TOPIC

PART_BYTES = 1 << 20
MAX_PART_BYTES = 16 << 20  # the largest record, and more
_start = attrgetter("start")


def epochs_over(history: EpochHistory, start: int, end: int) -> EpochHistory:
    """Who wrote the bytes [start, end), in a form that two nodes can compare; () if that is not known."""
    first = bisect_right(history, start, key=_start) - 1
    if first < 0:
        return ()
    inside = [entry for entry in history[first + 1 :] if entry.start < end]
    return tuple(entry._replace(lossy=False) for entry in (history[first]._replace(start=start), *inside))


def read_part(log: CommitLog, from_: int, to: int) -> bytes:
    """Bytes of the log as they stand, from `from_` at most to `to`, the end of their file, or a place that is damaged here; not
    more than `PART_BYTES`, unless a larger record begins there: then that one.

    Raises StoreError if there is nothing to give.
    """
    limit = min(to, log.end, from_ + MAX_PART_BYTES, (from_ // log.segment_bytes + 1) * log.segment_bytes)
    limit = min([limit, *(one.start for one in log.damages.ranges if one.start > from_)])
    if not log.start <= from_ < limit:
        raise StoreError(f"its log goes from {log.start} to {log.end}")
    if log.damages.at(from_):
        raise StoreError(f"damaged there at {from_}, too")
    size = _record_size(log.read(from_, min(FILLER.size, limit - from_)))
    return log.read(from_, min(max(size, PART_BYTES), limit - from_))


def _record_size(head: bytes) -> int:
    """As the beginning of a record says; 0 if no record begins there."""
    size, magic = FILLER.unpack(head) if len(head) == FILLER.size else (0, 0)
    return size if magic in (record.MAGIC_V1, record.MAGIC_V2) else 0


class Tombstone(BadBytes):
    """A node was repaired by hand there; another one may have the message itself."""


class PeerRepair:
    """`take` what others have from `position` on until that is `end`, then `put`, then `close`. All raise OSError.

    `wanted`: how many bytes should be asked for.
    """

    def __init__(self, disk: Disk, root: str, segment_bytes: int, history: EpochHistory, damaged: DamagedRange) -> None:
        self._disk = disk
        self._root = root
        self._segment_bytes = segment_bytes
        self._epochs = history
        self.start = self.position = self._last_good(damaged.start)
        self.end = damaged.end
        self.wanted = PART_BYTES
        self._path = f"{root}/rmq/mending"
        self._temporary = disk.create(self._path)
        disk.truncate(self._temporary, self.end - self.start)

    def _last_good(self, start: int) -> int:
        """The end of the last whole record of a file that is too short, which may end anywhere."""
        base = start // self._segment_bytes * self._segment_bytes
        path = f"{self._root}/commitlog/{file_name(base)}"
        if not self._disk.exists(path) or self._disk.size(path) == self._segment_bytes:
            return start
        good, segment = base, Segment(self._disk, path, base, self._segment_bytes, self._disk.open(path))
        try:
            for place in walk_epochs(segment.read, segment.end, base, start, self._epochs):
                good = place.offset + place.size
        except BadEntry:
            return good
        finally:
            segment.close()
        return start

    def take(self, data: bytes, history: EpochHistory, tombstones: bool = False) -> None:
        """Takes the next bytes from another node; `history`: who wrote them there. `position` moves past the whole records among
        them. `tombstones`: takes also records that a repair by hand put in place of lost ones. Raises BadBytes: the bytes
        do not belong here."""
        first = self.position
        ours = epochs_over(self._epochs, first, first + len(data))
        if not ours or ours != history:
            raise BadBytes(f"at {first} it has bytes of another leader's epoch ({_said(history)}, here {_said(ours)})")
        try:
            size = self._walk(data, tombstones)
        except BadBytes:
            if len(data) == self.end - self.start and self._stands_here(data, first):
                why = "it has the same bytes: not the log is damaged but the queue that leads there"
                raise BadBytes(f"at {first} {why}; stop this node, remove consumequeue/ and start it") from None
            raise
        self._write(self._temporary, data[:size], first - self.start)

    def _walk(self, data: bytes, tombstones: bool) -> int:
        """Bytes of whole entries, past which `position` moves; if there is none `wanted` says what one needs."""
        at = 0
        try:
            while self.position < self.end and at < len(data) and (size := self._entry(data, at, tombstones)):
                at += size
                if self.position % self._segment_bytes == 0:
                    break  # behind a filler nothing stands
        except BadBytes:
            if not at:  # else the good part is taken, and the rest is checked when it comes again
                raise
        if at:
            self.wanted = PART_BYTES
        else:
            self._want_more(data)
        return at

    def _stands_here(self, data: bytes, offset: int) -> bool:
        base = offset // self._segment_bytes * self._segment_bytes
        path = f"{self._root}/commitlog/{file_name(base)}"
        if not self._disk.exists(path):
            return False
        handle = self._disk.open(path)
        try:
            return self._disk.pread(handle, len(data), offset - base) == data
        finally:
            self._disk.close(handle)

    def _entry(self, data: bytes, at: int, tombstones: bool) -> int:
        """Bytes of the filler or whole record there; 0: only a part of one is."""
        position = self.position
        segment_end = (position // self._segment_bytes + 1) * self._segment_bytes
        left, magic = FILLER.unpack_from(data, at) if len(data) - at >= FILLER.size else (0, 0)
        if magic == BLANK_MAGIC:
            if left != segment_end - position or segment_end > self.end:
                raise BadBytes(f"at {position} it has the end of a file, which is not here")
            self.position = segment_end
            return FILLER.size
        if int.from_bytes(data[at : at + 4], "big") > len(data) - at:
            return 0
        by_rocketmq = epochs.written_by_rocketmq(self._epochs, position)
        size = record.verify(data, at, position, not by_rocketmq)
        if position + size > min(segment_end, self.end):
            raise BadBytes(f"at {position} it has a record of {size} bytes, which reaches into what is whole here")
        if not tombstones and is_tombstone(record.decode(data[at : at + size])):
            raise Tombstone(f"at {position} it has a tombstone of a lost message")
        if record.has_topic(data, at, EPOCH_TOPIC) and not by_rocketmq:
            self._check_epoch(data[at : at + size])
        self.position += size
        return size

    def _check_epoch(self, data: bytes) -> None:
        found = epochs.unpack(record.decode(data).body)
        (covering,) = epochs_over(self._epochs, self.position, self.position + 1)
        if (found.epoch, found.writer) != (covering.epoch, covering.writer):
            raise BadBytes(f"at {self.position} it has a record of epoch {found.epoch}, here it is of {covering.epoch}")

    def _want_more(self, data: bytes) -> None:
        """Not one whole record came: ask next time for as many bytes as the record says it has."""
        size = int.from_bytes(data[:4], "big")
        if self.wanted >= size or size > min(MAX_PART_BYTES, self.end - self.position):
            raise BadBytes(f"at {self.position} it has no whole record")
        self.wanted = size

    # --- writing it back ----------------------------------------------------------------------------------------------

    def put(self) -> None:
        """Writes the range into the log; durable when it returns. After a crash in between, the rest is found damaged again."""
        assert self.position == self.end
        for base in range(self.start // self._segment_bytes * self._segment_bytes, self.end, self._segment_bytes):
            path = f"{self._root}/commitlog/{file_name(base)}"
            start, end = max(self.start, base), min(self.end, base + self._segment_bytes)
            if self._disk.exists(path) and self._disk.size(path) == self._segment_bytes:
                handle = self._disk.open(path)
                try:
                    self._copy(handle, start, end, base)
                finally:
                    self._disk.close(handle)
            else:
                self._make_whole(path, start, end, base)

    def _make_whole(self, path: str, start: int, end: int, base: int) -> None:
        """A missing or short file is put in place with all its bytes: half of it might not be noticed again. It is made beside
        its place, since the log may lie on a disk of its own."""
        temporary = f"{path}.new"
        handle = allocated(self._disk, temporary, self._segment_bytes)
        try:
            if self._disk.exists(path):
                self._copy_old(path, handle, base)
            self._copy(handle, start, end, base)
        finally:
            self._disk.close(handle)
        self._disk.rename(temporary, path)
        self._disk.fsync_directory(f"{self._root}/commitlog")

    def _copy_old(self, path: str, to: int, base: int) -> None:
        old = Segment(self._disk, path, base, self._disk.size(path), self._disk.open(path))
        try:
            for offset, data in old.blocks(base, old.end):
                self._write(to, data, offset - base)
        finally:
            old.close()

    def _copy(self, handle: int, start: int, end: int, base: int) -> None:
        for at in range(start, end, PART_BYTES):
            data = self._disk.pread(self._temporary, min(PART_BYTES, end - at), at - self.start)
            self._write(handle, data, at - base)
        self._disk.fdatasync(handle)

    def _write(self, handle: int, data: bytes, at: int) -> None:
        if self._disk.pwrite(handle, data, at) != len(data):
            raise OSError(28, "short write", self._path)

    def close(self) -> None:
        self._disk.close(self._temporary)
        self._disk.unlink(self._path)


def _said(history: EpochHistory) -> str:
    return ", ".join(f"epoch {entry.epoch} from {entry.start}" for entry in history) or "not known whose"
