"""Snapshots: the tables that the committed records below an offset made, so that a start need not read them all again.

`snapshot-<S0>` in `<store>/rmq/` is a row of blocks, each with its length and checksum: a head, blocks of (section, rows),
and an end that holds S0 and S1. Rows were read while commits went on: S0 was committed when reading began, S1 when it
ended. All rows are absolute assignments, so loading them and replaying from S0 is exact once S1 is reached. Only
the writers know what the rows mean (rmq.broker.tables.snapshot).
"""

import contextlib
import errno
from collections.abc import Iterator, Sequence
from struct import Struct
from threading import Lock
from typing import Any, NamedTuple

import msgpack

from rmq.errors import BadBytes, StoreError
from rmq.log.files.disk import Disk
from rmq.log.files.epochs import EpochHistory, written_by_rocketmq
from rmq.log.records.crc import crc32

VERSION = 1
KEPT = 2  # the older one serves when the newest is damaged
QUEUES, EPOCHS, VOTERS = (
    "queues",
    "epochs",
    "voters",
)  # sections of the store's own: (topic, queue, next queue offset), epoch entries, ...
NEW = "snapshot.new"  # one in the making
RECEIVED = "snapshot.received"  # another node's
_PREFIX, _SECOND = "snapshot-", "-2"  # where nothing was committed since the newest, the other one is of that place, too
_HEAD, _END = "rmq-snapshot", "end"
BLOCK = Struct(">II")  # length and checksum of what follows
_MAX_BLOCK_BYTES = 1 << 28


class Snapshot(NamedTuple):
    """A complete snapshot. `s0`, `s1`: see the module."""

    path: str
    s0: int
    s1: int


def path_of(directory: str, s0: int) -> str:
    return f"{directory}/{_PREFIX}{s0:020d}"


class SnapshotWriter:
    """A snapshot in the making: `add` rows, then `publish`. All methods raise OSError and may run in any thread."""

    def __init__(self, disk: Disk, directory: str, *first: tuple[str, Sequence[Any]]) -> None:
        """With its `first` sections; one that fails leaves nothing."""
        self._disk = disk
        self._directory = directory
        self._handle = disk.create(f"{directory}/{NEW}")
        self._open = True
        self._position = 0
        try:
            self._write(_HEAD, [VERSION])
            for section, rows in first:
                self.add(section, rows)
        except BaseException:
            self.abandon()
            raise

    def add(self, section: str, rows: Sequence[Any]) -> None:
        """`rows`: whatever msgpack can spell."""
        self._write(section, rows)

    def _write(self, section: str, rows: Sequence[Any]) -> None:
        data: bytes = msgpack.packb((section, rows))
        data = BLOCK.pack(len(data), crc32(data)) + data
        written = 0
        while written < len(data):
            written += self._disk.pwrite(self._handle, data[written:], self._position + written)
        self._position += len(data)

    def publish(self, s0: int, s1: int, path: str = "") -> Snapshot:
        """Ends it and gives it its name, or `path`; durable when it returns. The log must be durable to `s1` before."""
        self._write(_END, [s0, s1])
        self._disk.fdatasync(self._handle)
        self._close()
        path = path or path_of(self._directory, s0)
        self._disk.rename(f"{self._directory}/{NEW}", path)
        self._disk.fsync_directory(self._directory)
        return Snapshot(path, s0, s1)

    def abandon(self) -> None:
        """Removes what was not published: a disk that was too full for it has other use for the room."""
        if self._open:
            self._close()
            with contextlib.suppress(OSError):  # the next one overwrites it
                self._disk.unlink(f"{self._directory}/{NEW}")

    def _close(self) -> None:
        self._open = False
        self._disk.close(self._handle)


class Snapshots:
    """The snapshots of one store. `kept`: whole ones, oldest first; `damaged`: what is wrong with others that were there.

    Raises StoreError when made in a directory that a newer version wrote (D17). Methods raise OSError.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self.kept: list[Snapshot] = []
        self.damaged: list[str] = []
        self._lent: Snapshot | None = None  # the oldest of which another node took a part since the newest was made
        self._making: SnapshotWriter | None = None
        self._naming = Lock()  # a snapshot of ours must not get its name behind another node's
        self._disk = disk
        self._directory = directory
        for name in disk.listdir(directory):
            if name.startswith(_PREFIX):
                try:
                    self.kept.append(_checked(disk, f"{directory}/{name}"))
                except BadBytes as error:
                    self.damaged.append(str(error))
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    self.damaged.append(f"{directory}/{name} cannot be read: {error}")

    @property
    def newest(self) -> Snapshot | None:
        return self.kept[-1] if self.kept else None

    @property
    def covered(self) -> int:
        """The log below this offset is not needed: each of the newest two, replayed from its S0, gives the same tables."""
        return self.kept[-KEPT:][0].s0 if self.kept else 0

    def lost(self, start: int, history: EpochHistory) -> str:
        """Why nobody knows the tables as they were at `start`, where the log begins; "": a snapshot reaches that far, or no
        record of ours stood before."""
        if not start or (self.kept and self.kept[-1].s0 >= start) or written_by_rocketmq(history, start):
            return ""
        found = "; ".join(self.damaged) or "there is none"
        return (
            f"the log begins at {start}, and no whole snapshot says which topics, groups and offsets there were by then ({found})"
        )

    def rows(self) -> Iterator[tuple[str, list[Any]]]:
        """(section, rows) of the newest one, block by block; nothing if there is none. Raises BadBytes."""
        if self.kept:
            yield from blocks_of(self._disk, self.kept[-1].path)

    def begin(self, *first: tuple[str, Sequence[Any]]) -> SnapshotWriter:
        """With these sections."""
        self._making = SnapshotWriter(self._disk, self._directory, *first)
        return self._making

    def publish(self, writer: SnapshotWriter, s0: int, s1: int) -> None:
        """`writer`'s rows become the newest snapshot; the older of two is removed. The log must be durable to `s1` before.

        One that another node is taking stays until no part of it was asked for between two snapshots: a large one on a slow line
        takes longer than two of them last, and that node would begin again and again.
        """
        with self._naming:
            if writer is not self._making:
                raise StoreError("this snapshot speaks of a log that is gone: another node's took its place")
            path = path_of(self._directory, s0)
            made = writer.publish(s0, s1, path + _SECOND if path in [old.path for old in self.kept] else path)
            whole = [*(old for old in self.kept if old.path != made.path), made]
            self.kept = [*(old for old in whole[:-KEPT] if old == self._lent), *whole[-KEPT:]]
            self._lent = None
            self._tidy()

    def install(self) -> Snapshot:
        """Makes `snapshot.received` the only snapshot, durably: one in the making speaks of a log that is
        gone. Raises BadBytes, OSError.
        """
        with self._naming:
            return self._install()

    def _install(self) -> Snapshot:
        found = _checked(self._disk, f"{self._directory}/{RECEIVED}")
        handle = self._disk.open(found.path)
        try:
            self._disk.fdatasync(handle)
        finally:
            self._disk.close(handle)
        made = found._replace(path=path_of(self._directory, found.s0))
        self._disk.rename(found.path, made.path)
        self._disk.fsync_directory(self._directory)
        self.kept, self._making = [made], None
        self._tidy()
        return made

    def received(self) -> Iterator[tuple[str, list[Any]]]:
        """(section, rows) of what was written to `snapshot.received`. Raises BadBytes if it is not a whole one."""
        yield from blocks_of(self._disk, f"{self._directory}/{RECEIVED}")

    def drop_unfinished(self) -> None:
        """At a start: parts of snapshots that nobody goes on with may be what fills the disk."""
        self._drop(NEW)
        self.drop_received()

    def drop_received(self) -> None:
        """Nothing comes of `snapshot.received`: a disk that was too full for it has other use for the room."""
        self._drop(RECEIVED)

    def _drop(self, name: str) -> None:
        with contextlib.suppress(OSError):  # the next one overwrites it
            self._disk.unlink(f"{self._directory}/{name}")

    def read(self, s0: int, position: int, size: int) -> tuple[bytes, int]:
        """Bytes of the kept snapshot that begins at `s0`, and how many it has. For another node. Raises StoreError, OSError."""
        for snapshot in self.kept:
            if snapshot.s0 == s0:
                if self._lent is None or s0 < self._lent.s0:
                    self._lent = snapshot
                handle = self._disk.open(snapshot.path)
                try:
                    return self._disk.pread(handle, size, position), self._disk.size(snapshot.path)
                finally:
                    self._disk.close(handle)
        raise StoreError(f"there is no snapshot of {s0} here any more")

    def drop_behind(self, end: int) -> None:
        """Removes snapshots of bytes at or behind `end`, where the log was cut: other bytes will stand there."""
        self.kept = [snapshot for snapshot in self.kept if snapshot.s1 <= end]
        self._tidy()

    def _tidy(self) -> None:
        paths = {snapshot.path for snapshot in self.kept}
        for name in self._disk.listdir(self._directory):
            path = f"{self._directory}/{name}"
            if name.startswith(_PREFIX) and path not in paths:
                self._disk.unlink(path)


def blocks_of(disk: Disk, path: str) -> Iterator[tuple[str, list[Any]]]:
    """(section, rows) of that snapshot. Raises BadBytes, OSError."""
    yield from (block for block in _blocks(disk, path) if block[0] != _END)


def _checked(disk: Disk, path: str) -> Snapshot:
    for section, found in _blocks(disk, path):
        if section == _END:
            return Snapshot(path, *found)
    raise BadBytes(f"{path} has no end: whoever wrote it was stopped in between")


def _blocks(disk: Disk, path: str) -> Iterator[tuple[str, list[Any]]]:
    handle = disk.open(path)
    try:
        position = 0
        while True:
            section, found, size = _read_block(disk, handle, path, position)
            if position == 0:
                _check_head(path, section, found)
            else:
                yield section, found
            if section == _END:
                return
            position += size
    finally:
        disk.close(handle)


def _read_block(disk: Disk, handle: int, path: str, position: int) -> tuple[str, list[Any], int]:
    head = disk.pread(handle, BLOCK.size, position)
    length, crc = BLOCK.unpack(head) if len(head) == BLOCK.size else (0, 0)
    data = disk.pread(handle, length, position + BLOCK.size) if 0 < length <= _MAX_BLOCK_BYTES else b""
    if not data or len(data) != length or crc32(data) != crc:
        raise BadBytes(f"{path} is damaged at byte {position}")
    section, found = msgpack.unpackb(data, strict_map_key=False)
    return section, found, BLOCK.size + length


def _check_head(path: str, section: str, found: list[Any]) -> None:
    if section != _HEAD or found != [VERSION]:
        raise StoreError(f"{path} begins {section!r} {found}, this version reads {VERSION}: run the newer version that wrote it")
