"""A disk for tests: it forgets what was not flushed, tears writes by sectors, and fails where it is told to.

Nothing here is for production, and nothing here knows records. Like a real one it has two layers: what processes see
(page cache), and what would be there after a power loss (content by sectors, names by directory).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from rmq.errors import StoreError

_BLOCK = 4096


class PowerLoss(BaseException):
    """Raised by a test's `before` hook at the operation where the machine stops. No handler may catch it."""


@dataclass(eq=False)
class _File:
    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)  # sectors
    readers_wait: bool = False  # as if not in the page cache
    handles: list[int] = field(default_factory=list)  # given out, perhaps closed

    def touch(self, at: int, end: int, sector_bytes: int) -> None:
        """Bytes [at, end) changed."""
        if end > at:
            self.dirty.update(range(at // sector_bytes, (end - 1) // sector_bytes + 1))

    def settle(self, sector_bytes: int) -> None:
        """All that changed, and the length, is on the device."""
        seen, durable = self.seen, self.durable
        _resize(durable, len(seen))
        for sector in self.dirty:
            at = sector * sector_bytes
            durable[at : at + sector_bytes] = seen[at : at + sector_bytes]
        self.dirty.clear()

    def forget(self, sector_bytes: int, keep: Callable[[], bool]) -> None:
        """Of changes that are not on the device only those sectors (and perhaps the length) survive that `keep` names."""
        size = len(self.seen) if len(self.seen) != len(self.durable) and keep() else len(self.durable)
        _resize(self.durable, size)
        for sector in sorted(self.dirty):
            at = sector * sector_bytes
            if at < size and keep():
                piece = self.seen[at : min(at + sector_bytes, size)]
                self.durable[at : at + len(piece)] = piece
        self.seen = bytearray(self.durable)
        self.dirty.clear()


def _resize(content: bytearray, size: int) -> None:
    """Cuts, or extends with zeros."""
    del content[size:]
    content.extend(bytes(size - len(content)))


class MemoryDisk:
    """See `rmq.log.files.disk.Disk` for the calls.

    `before(operation, path)` is called ahead of each changing operation: it may raise OSError (the device fails) or
    PowerLoss. A flush that failed so is lost: the next one succeeds without those bytes, as with Linux. `short_write_bytes`:
    the next write stops there. Sectors of `sector_bytes` reach the device whole or not at all.
    """

    def __init__(self, sector_bytes: int = 512) -> None:
        self.sector_bytes = sector_bytes
        self.before: Callable[[str, str], None] = lambda operation, path: None
        self.short_write_bytes: int | None = None
        self.operations: list[tuple[str, str]] = []
        self.modified: dict[str, int] = {}  # ms, as a test says
        self.used = 0.0
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._changed_names: set[str] = set()  # since their directory was flushed
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
        for path in sorted(self._changed_names):
            if self._names.get(path) is not self._durable_names.get(path) and keep():
                self._make_name_durable(path)
        self._changed_names.clear()
        self._names = dict(self._durable_names)
        for file in dict.fromkeys(self._names.values()):
            file.forget(self.sector_bytes, keep)

    def write_back(self) -> None:
        """The kernel writes what it holds to the device by itself, names apart, as it may at any time."""
        for file in self._names.values():
            file.settle(self.sector_bytes)

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

    def is_directory(self, path: str) -> bool:
        return path in self._directories

    def paths(self) -> list[str]:
        return sorted(self._names)

    def open_paths(self) -> list[str]:
        """Of the handles that were not closed."""
        return sorted(path for path, _ in self._handles.values())

    def put(self, path: str, content: bytes) -> None:
        """A file that somebody else made, durable."""
        directory = path
        while directory:
            directory = directory.rpartition("/")[0]
            self._directories.add(directory)
        file = _File(bytearray(content), bytearray(content))
        self._names[path] = self._durable_names[path] = file

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
            file.touch(0, len(file.seen), self.sector_bytes)
            file.seen.clear()
        else:
            self._names[path] = _File()
            self._changed_names.add(path)
        return self._handle(path)

    def _handle(self, path: str) -> int:
        self._counter += 1
        file = self._names[path]
        file.handles.append(self._counter)
        self._handles[self._counter] = (path, file)
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
            _resize(file.seen, offset)
        file.seen[offset : offset + len(data)] = data
        file.touch(offset, offset + len(data), self.sector_bytes)
        return len(data)

    def fdatasync(self, handle: int) -> None:
        path, file = self._handles[handle]
        try:
            self._change("fdatasync", path)
        except OSError:
            file.dirty.clear()
            raise
        file.settle(self.sector_bytes)

    def allocate(self, handle: int, size: int) -> None:
        self._change("allocate", self._handles[handle][0])
        self._set_length(handle, size)

    def truncate(self, handle: int, size: int) -> None:
        self._change("truncate", self._handles[handle][0])
        self._set_length(handle, size)

    def _set_length(self, handle: int, size: int) -> None:
        file = self._handles[handle][1]
        file.touch(min(size, len(file.seen)), max(size, len(file.seen)), self.sector_bytes)
        _resize(file.seen, size)

    def data_from(self, handle: int, offset: int) -> int | None:
        content = self._handles[handle][1].seen
        while offset < len(content):
            block = content[offset : offset + _BLOCK]
            if rest := block.lstrip(b"\0"):
                return offset + len(block) - len(rest)
            offset += len(block)
        return None

    def forget(self, handle: int, offset: int) -> None:
        return

    def read_exactly(self, handle: int) -> None:
        return

    def read_ahead(self, handle: int, offset: int, size: int) -> None:
        return

    def size(self, path: str) -> int:
        if path not in self._names:
            raise FileNotFoundError(2, "no such file", path)
        return len(self._names[path].seen)

    def modified_ms(self, path: str) -> int:
        return self.modified.get(path, 0)

    def used_ratio(self, path: str) -> float:
        return self.used

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._directories

    def listdir(self, path: str) -> list[str]:
        prefix = path + "/"
        inside = {name[len(prefix) :].partition("/")[0] for name in (*self._names, *self._directories) if name.startswith(prefix)}
        return sorted(inside - {""})

    def make_directory(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if path not in self._directories:
            self.make_directory(parent)
            self._change("make_directory", path)
            self._directories.add(path)

    def remove_directory(self, path: str) -> None:
        if self.listdir(path):
            raise OSError(39, "directory not empty", path)
        self._change("remove_directory", path)
        self._directories.discard(path)

    def rename(self, old: str, new: str) -> None:
        self._change("rename", new)
        file = self._names[new] = self._names.pop(old)
        self._changed_names.update((old, new))
        for handle in file.handles:
            if handle in self._handles:
                self._handles[handle] = (new, file)

    def together(self, one: str, other: str) -> bool:
        return True

    def unlink(self, path: str) -> None:
        self._change("unlink", path)
        if path not in self._names:
            raise FileNotFoundError(2, "no such file", path)
        del self._names[path]
        self._changed_names.add(path)

    def fsync_directory(self, path: str) -> None:
        self._change("fsync_directory", path)
        inside = {name for name in tuple(self._changed_names) if name.rpartition("/")[0] == path}  # other threads make files
        for name in inside:
            self._make_name_durable(name)
        self._changed_names -= inside

    def lock(self, path: str) -> int:
        if path in self._locks.values():
            raise StoreError(f"{path} is held by another process: stop that one first")
        if path not in self._names:
            self._names[path] = _File(bytearray(b"lock"))
            self._changed_names.add(path)
        handle = self._handle(path)
        self._locks[handle] = path
        return handle

    def unlock(self, handle: int) -> None:
        del self._locks[handle]
        self.close(handle)

    def check_place(self, lock: int) -> None:
        return

    def claim(self, path: str) -> None:
        pass

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def random_bytes(self, count: int) -> bytes:
        self._counter += 1
        return self._counter.to_bytes(count, "big")
