"""The disk as a port: the few calls the log needs, and the real one. Tests hand in `rmq.log.files.memory.MemoryDisk`.

All calls are synchronous and raise OSError. Paths are text with "/"; names in them have been checked before (S9).
Each call says what it makes durable; nothing else is durable. This file knows nothing of records.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from pathlib import Path
from typing import ClassVar, Final, Protocol

from rmq.errors import StoreError, no_topic

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})  # passes without a new start
PAGE_BYTES = 4096  # of the page cache: `data_from` and `forget` know no less


class Disk(Protocol):
    def open(self, path: str) -> int:
        """A handle for reading and writing an existing file."""
        ...

    def create(self, path: str) -> int:
        """A handle of a new, empty file; an old one of that name is emptied."""
        ...

    def close(self, handle: int) -> None: ...

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """At most `size` bytes; fewer only at the end of the file."""
        ...

    def pread_cached(self, handle: int, into: memoryview, offset: int) -> bool:
        """Fills `into`, never waiting for the device: False when not all bytes are there, or not in memory."""
        ...

    def pwrite(self, handle: int, data: bytes | bytearray | memoryview, offset: int, /) -> int:
        """Bytes written; may be fewer than given."""
        ...

    def fdatasync(self, handle: int) -> None:
        """Makes content and length of the file durable; not its name."""
        ...

    def allocate(self, handle: int, size: int) -> None:
        """Gives an empty file `size` zero bytes that have their room on the device (later writes cannot run out). Where there is
        not room for all, the file may keep some."""
        ...

    def truncate(self, handle: int, size: int) -> None:
        """Cuts, or extends with zeros that take no room."""
        ...

    def data_from(self, handle: int, offset: int) -> int | None:
        """The first place at or behind `offset` that may hold something else than zeros; None if there is none."""
        ...

    def forget(self, handle: int, offset: int) -> None:
        """What was only read from there on leaves the memory, as `data_from` takes zeros that were read ahead for data."""
        ...

    def read_exactly(self, handle: int) -> None:
        """The system reads what is asked for, and nothing behind it. In a file that is still being written it would make zeros
        in memory while the reader waits: 8 MiB at a time, or 23 ms, where a disk is set up so."""
        ...

    def read_ahead(self, handle: int, offset: int, size: int) -> None:
        """Begins to read these bytes into the memory."""
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """When the file was last changed, Unix ms."""
        ...

    def used_ratio(self, path: str) -> float:
        """How full the disk with that path is, 0 to 1, as its users see it: what is kept for root counts as used."""
        ...

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Sorted names; [] when there is no such directory."""
        ...

    def make_directory(self, path: str) -> None:
        """With its parents; nothing happens if it is there. Flushes the parents, so the new names are durable."""
        ...

    def remove_directory(self, path: str) -> None:
        """An empty one."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def together(self, one: str, other: str) -> bool:
        """False if the two directories lie on different devices, so that nothing can be renamed from one to the other. It may be
        so, too, though this says True."""
        ...

    def unlink(self, path: str) -> None: ...

    def fsync_directory(self, path: str) -> None:
        """Makes names made, renamed or removed in it durable."""
        ...

    def lock(self, path: str) -> int:
        """Takes the store's lock for this process. StoreError if another holds it (D16)."""
        ...

    def unlock(self, handle: int) -> None: ...

    def check_place(self, lock: int) -> None:
        """Raises `Misplaced` where another directory has the place of the one that this lock is of. So do all calls that take
        paths below it and change something, or open a file."""
        ...

    def claim(self, path: str) -> None:
        """Everything below the directory is its owner's alone from here on. StoreError for a symbolic link there."""
        ...

    def boot_id(self) -> str:
        """Changes whenever unflushed bytes may have been lost; "" when nobody knows."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """Chance, for the identity of a new store."""
        ...


_PLAIN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


def private(path: str, flags: int) -> int:
    """An opener for files that `open` writes into a store: mode 0600 whatever the umask, never through a link (S13)."""
    handle = os.open(path, flags | _PLAIN, 0o600)
    os.fchmod(handle, 0o600)  # it may have been there before
    return handle


class Misplaced(OSError):
    """A store is not where it was opened. What is there now may be another one, and must not be written to."""


class Unreadable(OSError):
    """The device cannot give what is in that file of the log."""

    advice: Final = (
        "the disk cannot give what is there. A member of a group: start it with an empty directory, the others give it all. "
        "A broker alone: copy the directory to another disk, with zeros for what cannot be read (as ddrescue does), run "
        "`rmq store repair` on the copy, and start it there"
    )


class RealDisk:
    """The operating system's files. Files are made 0600, directories 0700, and links are not followed (S13)."""

    _locked: ClassVar[dict[int, str]] = {}  # POSIX locks do not exclude the same process, so it remembers its own
    _flags = os.O_RDWR | _PLAIN

    def __init__(self) -> None:
        self._places: dict[int, tuple[str, int]] = {}  # of each lock: its directory, and a handle of that

    def open(self, path: str) -> int:
        self._check(path)
        return os.open(path, self._flags)

    def create(self, path: str) -> int:
        self._check(path)
        return os.open(path, self._flags | os.O_CREAT | os.O_TRUNC, 0o600)

    def close(self, handle: int) -> None:
        os.close(handle)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        data = os.pread(handle, size, offset)
        while len(data) < size and (more := os.pread(handle, size - len(data), offset + len(data))):
            data += more
        return data

    def pread_cached(self, handle: int, into: memoryview, offset: int) -> bool:
        try:
            return os.preadv(handle, (into,), offset, _NOWAIT) == len(into)
        except BlockingIOError:
            return False
        except OSError:  # this file system does not know the flag: reading may wait
            return os.preadv(handle, (into,), offset) == len(into)

    pwrite = staticmethod(os.pwrite)  # asked at each append: a call less

    def fdatasync(self, handle: int) -> None:
        _fdatasync(handle)

    def allocate(self, handle: int, size: int) -> None:
        free = os.fstatvfs(handle)  # says nothing on some file systems
        if free.f_blocks and free.f_bavail * free.f_frsize < size:  # else others find no room at all until it has failed
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for a file of {size} bytes (segment_bytes)")
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
            return
        for at in range(0, size, _BLOCK):
            os.pwrite(handle, bytes(min(_BLOCK, size - at)), at)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def data_from(self, handle: int, offset: int) -> int | None:
        if not hasattr(os, "SEEK_DATA"):
            return offset if offset < os.fstat(handle).st_size else None
        try:
            return os.lseek(handle, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise

    def forget(self, handle: int, offset: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, offset, 0, os.POSIX_FADV_DONTNEED)

    def read_exactly(self, handle: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)

    def read_ahead(self, handle: int, offset: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, offset, size, os.POSIX_FADV_WILLNEED)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def used_ratio(self, path: str) -> float:
        usage = shutil.disk_usage(path)
        return usage.used / max(usage.used + usage.free, 1)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_directory(self, path: str) -> None:
        self._check(path)
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, 0o700)
            self.fsync_directory(os.path.dirname(directory) or ".")

    def remove_directory(self, path: str) -> None:
        self._check(path)
        os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        self._check(new)
        os.replace(old, new)

    def together(self, one: str, other: str) -> bool:
        return os.stat(one).st_dev == os.stat(other).st_dev

    def unlink(self, path: str) -> None:
        self._check(path)
        os.unlink(path)

    def fsync_directory(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def lock(self, path: str) -> int:
        """RocketMQ's own lock: byte 0 of the file, which holds the word "lock"."""
        name, folder = os.path.realpath(path), os.path.dirname(path)
        if name in self._locked.values():
            raise _locked(path)
        handle = os.open(path, self._flags | os.O_CREAT, 0o600)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(handle)
            raise _locked(path) from error
        os.pwrite(handle, b"lock", 0)
        self._locked[handle] = name
        self._places[handle] = f"{folder}/", os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        return handle

    def unlock(self, handle: int) -> None:
        del self._locked[handle]
        _, folder = self._places.pop(handle)
        os.close(folder)
        os.close(handle)

    def check_place(self, lock: int) -> None:
        path, handle = self._places[lock]
        try:
            there = os.path.samestat(os.stat(path), os.fstat(handle))
        except FileNotFoundError:
            there = False
        if not there:
            raise Misplaced(errno.ESTALE, "not the directory that was opened: that was moved, or something mounted over it", path)

    def _check(self, path: str) -> None:
        for lock, (folder, _) in self._places.items():
            if path.startswith(folder):
                self.check_place(lock)

    def claim(self, path: str) -> None:
        for folder, directories, files in os.walk(path):
            for name in (*directories, *files):
                found = f"{folder}/{name}"
                mode = os.lstat(found).st_mode
                if stat.S_ISLNK(mode):
                    raise StoreError(
                        f"{found} is a symbolic link, and what it leads to may be somebody else's: move that into the store's "
                        "directory, or mount the other disk there (mount --bind)"
                    )
                if mode & 0o077:
                    with contextlib.suppress(PermissionError):  # its owner is another, who decides
                        os.chmod(found, mode & 0o700)

    def boot_id(self) -> str:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


class ReadOnlyDisk(RealDisk):
    """For directories that another process may be using: no byte of a file can be changed through it."""

    _flags = os.O_RDONLY | _PLAIN

    def create(self, path: str) -> int:
        raise PermissionError(errno.EROFS, "opened for reading only", path)


def remedy(error: OSError, usual: str) -> str:
    """What went wrong, and what to do: the usual advice, unless this process just has too many files and connections open, or its
    store was moved."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        usual = "allow the node more open files (LimitNOFILE in its systemd unit, or ulimit -n), or lower max_connections"
    if isinstance(error, Misplaced):
        usual = "stop this node, put its store back in its place, and start it again"
    return f"{error}; {usual}"


def allocated(disk: Disk, path: str, size: int) -> int:
    """A handle of a new file of that many zero bytes, which have their room, durably. If it fails nothing is left of it. Raises
    OSError."""
    handle = disk.create(path)
    try:
        disk.allocate(handle, size)
        disk.fdatasync(handle)
    except OSError:
        disk.close(handle)
        with contextlib.suppress(OSError):  # a full disk may not even take that
            disk.unlink(path)
        raise
    return handle


def open_file(disk: Disk, path: str, deleted: str) -> int:
    """A handle of an existing file. `deleted`: the file's topic, if it is deleted by now; then a missing file is no fault of the
    disk. Raises Refusal (TOPIC_NOT_EXIST), OSError."""
    try:
        return disk.open(path)
    except FileNotFoundError:
        if deleted:
            raise no_topic(deleted, " any more: it was deleted while it was read") from None
        raise


_BLOCK = 1 << 20
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has only the second


def _locked(path: str) -> StoreError:
    return StoreError(
        f"{os.path.dirname(path)} is in use by another process (lock file {path}): "
        "stop that one first, or give this node a directory of its own"
    )
