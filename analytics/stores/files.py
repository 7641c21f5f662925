"""Where the files of stores lie: on this machine, or in whatever pyarrow's file systems reach (S3, HDFS ...). No Spark.

A `Directory` is a Path or a `Remote`. A link inside a store of this machine is refused, as the broker refuses it. A remote file
system takes its settings (keys, endpoint) from the environment of each process, or from the address
[pyarrow.fs.FileSystem.from_uri].
"""

import errno
import os
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from rmq.errors import InvalidArgument, StoreError
from rmq.log.files.disk import Disk, ReadOnlyDisk
from rmq.secretfiles import without_keys

_LINKED = "is a symbolic link, and a store has none inside: mount the other directory there (mount --bind), or copy it"
_PYARROWS = {"s3a": "s3", "s3n": "s3"}  # Hadoop's names
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


class Entry(NamedTuple):
    """One entry of a directory. `path`: for `open_file`."""

    name: str
    path: str
    size: int


class Opened(Protocol):
    def read(self, size: int, offset: int) -> bytes:
        """At most `size` bytes; fewer only at the end of the file. Raises OSError."""
        ...

    def close(self) -> None: ...


class Remote(NamedTuple):
    """A place in another file system: `address` without its query, and `query` (the same for the whole file system).

    It has those methods of a Path that are used here.
    """

    address: str
    query: str = ""

    def __str__(self) -> str:
        """For people: without keys."""
        return without_keys(self.full)

    @property
    def full(self) -> str:
        return f"{self.address}?{self.query}" if self.query else self.address

    def __truediv__(self, name: str) -> "Remote":
        return self._replace(address=self.address + ("" if self.address.endswith("/") else "/") + name)

    @property
    def name(self) -> str:
        return self.address.rstrip("/").rpartition("/")[2]

    def exists(self) -> bool:
        return bool(_kind(self.full) != fs.FileType.NotFound)

    def is_dir(self) -> bool:
        return bool(_kind(self.full) == fs.FileType.Directory)

    def iterdir(self) -> Iterator["Remote"]:
        system, path = system_of(self.full)
        return (self / info.base_name for info in system.get_file_info(fs.FileSelector(path)))

    def read_bytes(self) -> bytes:
        system, path = system_of(self.full)
        with system.open_input_file(path) as file:
            return bytes(file.read())


Directory: TypeAlias = Path | Remote


def directory(text: str) -> Directory:
    """The place that a path or address names. Raises InvalidArgument for an unknown scheme."""
    url = urlsplit(text)
    if url.scheme == "file":
        return Path(unquote(url.path))
    if len(url.scheme) < 2 or not text.startswith(f"{url.scheme}:/"):
        return Path(text)
    address, _, query = text.partition("?")
    scheme = _PYARROWS.get(url.scheme, url.scheme)
    place = Remote(scheme + address[len(url.scheme) :], query)
    system_of(place.full)
    return place


def entries(place: Directory) -> list[Entry]:
    """The entries of a directory, by name; one that goes meanwhile may be missing. Raises OSError, StoreError for a link."""
    if isinstance(place, Remote):
        system, path = system_of(place.full)
        found = [
            Entry(info.base_name, (place / info.base_name).full, info.size or 0)
            for info in system.get_file_info(fs.FileSelector(path))
        ]
        return sorted(found)
    refuse_links(place)
    there = []
    for name in sorted(os.listdir(str(place))):
        path = os.path.join(place, name)
        try:
            state = os.lstat(path)
        except FileNotFoundError:
            continue  # retention took it since
        if stat.S_ISLNK(state.st_mode):
            raise StoreError(f"{path} {_LINKED}")
        there.append(Entry(name, path, state.st_size))
    return there


def refuse_links(*places: Directory) -> None:
    """Raises StoreError if one of them is a symbolic link."""
    for place in places:
        if isinstance(place, Path) and place.is_symlink():
            raise StoreError(f"{place} {_LINKED}")


def exists(path: str) -> bool:
    return _kind(path) != fs.FileType.NotFound if is_remote(path) else os.path.exists(path)


def open_file(path: str) -> Opened:
    """Opens a local or remote file for reading. Raises OSError, StoreError for a link."""
    if is_remote(path):
        system, inner = system_of(path)
        return _RemoteFile(system.open_input_file(inner))
    try:
        return _LocalFile(os.open(path, os.O_RDONLY | _NOFOLLOW))
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StoreError(f"{path} {_LINKED}") from error
        raise


def own_files(store: Directory) -> tuple[Disk, str] | None:
    """The arguments of `rmq.log.files.ownfiles` for a store; None if rmq did not write the directory."""
    own = store / "rmq"
    refuse_links(own)
    if not own.is_dir():
        return None
    return (_RemoteDisk(own), without_keys(own.address)) if isinstance(own, Remote) else (ReadOnlyDisk(), str(own))


class _LocalFile:
    def __init__(self, handle: int) -> None:
        self._handle = handle

    def read(self, size: int, offset: int) -> bytes:
        return os.pread(self._handle, size, offset)

    def close(self) -> None:
        os.close(self._handle)


class _RemoteFile:
    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, size: int, offset: int) -> bytes:
        size = min(size, self._file.size() - offset)  # else S3 answers with an error
        found: bytes = self._file.read_at(size, offset) if size > 0 else b""
        return found

    def close(self) -> None:
        self._file.close()


class _RemoteDisk(ReadOnlyDisk):
    """The part of the disk port that reading small files of `folder` needs; of a path only the name counts."""

    def __init__(self, folder: Remote) -> None:
        self._folder = folder
        self._files: dict[int, Opened] = {}

    def open(self, path: str) -> int:
        self._files[len(self._files)] = open_file((self._folder / os.path.basename(path)).full)
        return len(self._files) - 1

    def close(self, handle: int) -> None:
        self._files[handle].close()

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        return self._files[handle].read(size, offset)

    def exists(self, path: str) -> bool:
        return (self._folder / os.path.basename(path)).exists()


def is_remote(path: str) -> bool:
    return "://" in path  # a Path has no two slashes


def _kind(path: str) -> Any:
    system, inner = system_of(path)
    return system.get_file_info([inner])[0].type


def system_of(path: str) -> tuple[Any, str]:
    """The file system of a path or address, and the path inside it."""
    address, _, query = path.partition("?")
    scheme, _, rest = address.partition("://")
    host, _, inner = rest.partition("/")
    system, root = _opened(f"{scheme}://{host}/" + (f"?{query}" if query else ""))
    return system, f"{root.rstrip('/')}/{inner}".rstrip("/") or "/"


@lru_cache(maxsize=64)
def _opened(address: str) -> tuple[Any, str]:
    try:
        system, root = fs.FileSystem.from_uri(address)
    except (pa.ArrowException, OSError, ValueError) as error:
        why = without_keys(str(error).partition("\n")[0])
        raise InvalidArgument(
            f"{without_keys(address)} cannot be reached: {why}; give a directory of this machine, or an address that "
            "pyarrow's file systems know (s3:, hdfs:, gs:, abfs:)"
        ) from None
    return system, root
