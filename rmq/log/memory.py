"""A disk for tests: it forgets what was not flushed, tears writes by sectors, and fails where it is told to.

Nothing here is for production, and nothing here knows records. Like a real one it has two layers: what processes see
(page cache), and what would be there after a power loss (content by 512-byte sectors, names by directory).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from rmq.errors import StoreError

SECTOR_BYTES = 512


class PowerLoss(BaseException):
    """Raised by a test's `before` hook at the operation where the machine stops. No handler may catch it."""


@dataclass(eq=False)
class _File:
    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)  # sectors
    readers_wait: bool = False  # as if not in the page cache


class MemoryDisk:
    """See `rmq.log.disk.Disk` for the calls.

    `before(operation, path)` is called ahead of each changing operation: it may raise OSError (the device fails) or
    PowerLoss. `short_write_bytes`: the next write stops there.
    """

    def __init__(self) -> None:
        self.before: Callable[[str, str], None] = lambda operation, path: None
        self.short_write_bytes: int | None = None
        self.operations: list[tuple[str, str]] = []
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._directories: set[str] = {"", "/"}
        self._handles: dict[int, tuple[str, _File]] = {}
        self._locks: dict[int, str] = {}
        self._counter = 2
        self._boots = 1

    # --- what tests do ------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process dies, the kernel lives: handles and locks are gone, every byte written stays."""
        self._handles.clear()
        self._locks.clear()
        self.before = lambda operation, path: None
        self.short_write_bytes = None

    def crash(self, keep: Callable[[], bool] = lambda: False) -> None:
        """Power loss. `keep` is asked once for each unflushed sector and each unflushed name: did it reach the device?"""
        self.kill()
        self._boots += 1
        for path in sorted(self._names.keys() | self._durable_names.keys()):
            if self._names.get(path) is not self._durable_names.get(path) and keep():
                self._make_name_durable(path)
        self._names = dict(self._durable_names)
        for file in dict.fromkeys(self._names.values()):
            self._forget(file, keep)

    def write_back(self) -> None:
        """The kernel writes what it holds to the device by itself, names apart, as it may at any time."""
        for file in self._names.values():
            file.durable = bytearray(file.seen)
            file.dirty.clear()

    def content(self, path: str) -> bytearray:
        """What processes see of a file; may be changed in place (a flipped bit on the device)."""
        return self._names[path].seen

    def flip(self, path: str, bit: int) -> None:
        """One bit of a file turns on the device and in memory."""
        file = self._names[path]
        for content in (file.seen, file.durable):
            if bit >> 3 < len(content):
                content[bit >> 3] ^= 1 << (bit & 7)

    def evict(self, path: str, evicted: bool = True) -> None:
        """The file is no longer in the page cache (until called with False)."""
        self._names[path].readers_wait = evicted

    def paths(self) -> list[str]:
        return sorted(self._names)

    def put(self, path: str, content: bytes) -> None:
        """A file that somebody else made, durable."""
        self.make_directory(path.rpartition("/")[0])
        file = _File(bytearray(content), bytearray(content))
        self._names[path] = self._durable_names[path] = file

    @staticmethod
    def _forget(file: _File, keep: Callable[[], bool]) -> None:
        size = len(file.seen) if len(file.seen) != len(file.durable) and keep() else len(file.durable)
        content = (file.durable + bytes(max(0, size - len(file.durable))))[:size]
        for sector in sorted(file.dirty):
            at = sector * SECTOR_BYTES
            if at < size and keep():
                piece = file.seen[at : min(at + SECTOR_BYTES, size)]
                content[at : at + len(piece)] = piece
        file.seen, file.durable = bytearray(content), content
        file.dirty.clear()

    def _make_name_durable(self, path: str) -> None:
        if path in self._names:
            self._durable_names[path] = self._names[path]
        else:
            self._durable_names.pop(path, None)

    def _change(self, operation: str, path: str) -> None:
        self.operations.append((operation, path))
        self.before(operation, path)

    # --- the port -----------------------------------------------------------------------------------------------------

    def open(self, path: str) -> int:
        if path not in self._names:
            raise FileNotFoundError(2, "no such file", path)
        return self._handle(path)

    def create(self, path: str) -> int:
        self._change("create", path)
        if path.rpartition("/")[0] not in self._directories:
            raise FileNotFoundError(2, "no such directory", path)
        if path in self._names:
            file = self._names[path]
            file.dirty.update(range(len(file.seen) // SECTOR_BYTES + 1))
            file.seen = bytearray()
        else:
            self._names[path] = _File()
        return self._handle(path)

    def _handle(self, path: str) -> int:
        self._counter += 1
        self._handles[self._counter] = (path, self._names[path])
        return self._counter

    def close(self, handle: int) -> None:
        self._handles.pop(handle, None)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        return bytes(self._handles[handle][1].seen[offset : offset + size])

    def pread_cached(self, handle: int, into: memoryview, offset: int) -> bool:
        file = self._handles[handle][1]
        data = file.seen[offset : offset + len(into)]
        if file.readers_wait or len(data) < len(into):
            return False
        into[:] = data
        return True

    def pwrite(self, handle: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        path, file = self._handles[handle]
        self._change("pwrite", path)
        data = bytes(data)
        if self.short_write_bytes is not None:
            data, self.short_write_bytes = data[: self.short_write_bytes], None
        if offset > len(file.seen):
            file.seen.extend(bytes(offset - len(file.seen)))
        file.seen[offset : offset + len(data)] = data
        if data:
            file.dirty.update(range(offset // SECTOR_BYTES, (offset + len(data) - 1) // SECTOR_BYTES + 1))
        return len(data)

    def fdatasync(self, handle: int) -> None:
        path, file = self._handles[handle]
        self._change("fdatasync", path)
        file.durable = bytearray(file.seen)
        file.dirty.clear()

    def allocate(self, handle: int, size: int) -> None:
        self._change("allocate", self._handles[handle][0])
        self._resize(handle, size)

    def truncate(self, handle: int, size: int) -> None:
        self._change("truncate", self._handles[handle][0])
        self._resize(handle, size)

    def _resize(self, handle: int, size: int) -> None:
        file = self._handles[handle][1]
        first = min(size, len(file.seen)) // SECTOR_BYTES
        file.dirty.update(range(first, max(size, len(file.seen)) // SECTOR_BYTES + 1))
        file.seen = file.seen[:size] + bytes(max(0, size - len(file.seen)))

    def data_from(self, handle: int, offset: int) -> int | None:
        rest = self._handles[handle][1].seen[offset:]
        zeros = len(rest) - len(rest.lstrip(b"\0"))
        return offset + zeros if zeros < len(rest) else None

    def size(self, path: str) -> int:
        if path not in self._names:
            raise FileNotFoundError(2, "no such file", path)
        return len(self._names[path].seen)

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._directories

    def listdir(self, path: str) -> list[str]:
        prefix = path + "/"
        inside = {name[len(prefix) :].partition("/")[0] for name in (*self._names, *self._directories) if name.startswith(prefix)}
        return sorted(inside - {""})

    def make_directory(self, path: str) -> None:
        while path not in self._directories:
            self._directories.add(path)
            path = path.rpartition("/")[0]

    def remove_directory(self, path: str) -> None:
        if self.listdir(path):
            raise OSError(39, "directory not empty", path)
        self._change("remove_directory", path)
        self._directories.discard(path)

    def rename(self, old: str, new: str) -> None:
        self._change("rename", new)
        file = self._names[new] = self._names.pop(old)
        self._handles.update({handle: (new, file) for handle, (_, opened) in self._handles.items() if opened is file})

    def unlink(self, path: str) -> None:
        self._change("unlink", path)
        if path not in self._names:
            raise FileNotFoundError(2, "no such file", path)
        del self._names[path]

    def fsync_directory(self, path: str) -> None:
        self._change("fsync_directory", path)
        for name in self._names.keys() | self._durable_names.keys():
            if name.rpartition("/")[0] == path:
                self._make_name_durable(name)

    def lock(self, path: str) -> int:
        if path in self._locks.values():
            raise StoreError(f"{path} is held by another process: stop that one first")
        self._names.setdefault(path, _File(bytearray(b"lock")))
        handle = self._handle(path)
        self._locks[handle] = path
        return handle

    def unlock(self, handle: int) -> None:
        del self._locks[handle]
        self.close(handle)

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def random_bytes(self, count: int) -> bytes:
        self._counter += 1
        return self._counter.to_bytes(count, "big")
