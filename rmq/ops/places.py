"""Storage of an archive: a directory, or whatever pyarrow's file systems reach by a URI (s3, gs, hdfs ...).

Both offer the few operations that an archive needs. A file exists whole or not at all: it is written under another
name and renamed. pyarrow is imported only for a URI.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from rmq.errors import InvalidArgument, StoreError
from rmq.log.reader import named
from rmq.secretfiles import without_keys

BLOCK_BYTES = 4 << 20
UNFINISHED = ".new"  # ending of the name of a file that does not count yet


class ArchiveStorage(Protocol):
    """Paths are relative, with "/". All methods raise OSError."""

    name: str

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of each file in a folder; {} if it is not there."""
        ...

    def blocks(self, path: str) -> Iterator[bytes]: ...

    def write(self, path: str, blocks: Iterable[bytes]) -> None:
        """Writes a file, or replaces an older one; it is durable on return."""
        ...

    def remove(self, path: str) -> None: ...


class Folder:
    """A directory of this machine."""

    def __init__(self, root: Path) -> None:
        self.name = str(root)
        self._root = root

    def sizes(self, folder: str) -> dict[str, int]:
        path = self._root / folder
        return {entry.name: entry.stat().st_size for entry in path.iterdir() if entry.is_file()} if path.is_dir() else {}

    def blocks(self, path: str) -> Iterator[bytes]:
        with named(self._root / path) as source, open(source, "rb", buffering=0) as file:
            while block := file.read(BLOCK_BYTES):
                yield block

    def write(self, path: str, blocks: Iterable[bytes]) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(target.name + UNFINISHED)
        with named(temporary), open(temporary, "wb") as file:
            for block in blocks:
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        sync_folder(target.parent)

    def remove(self, path: str) -> None:
        (self._root / path).unlink()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One job at a time. Raises StoreError if another one is at work."""
        self._root.mkdir(parents=True, exist_ok=True)
        with open(self._root / ".lock", "wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(f"another job is at work in {self.name}: try again when it has ended") from None
            yield


class Remote:
    """A folder in a file system of pyarrow's."""

    def __init__(self, files: Any, root: str, name: str) -> None:
        self.name = name
        self._files = files
        self._root = root.rstrip("/")

    def sizes(self, folder: str) -> dict[str, int]:
        from pyarrow import fs

        found = self._files.get_file_info(fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True))
        return {each.base_name: each.size for each in found if each.is_file}

    def blocks(self, path: str) -> Iterator[bytes]:
        with self._files.open_input_stream(f"{self._root}/{path}") as file:
            while block := file.read(BLOCK_BYTES):
                yield block

    def write(self, path: str, blocks: Iterable[bytes]) -> None:
        target = f"{self._root}/{path}"
        self._files.create_dir(target.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(target + UNFINISHED) as file:
            for block in blocks:
                file.write(block)
        self._files.move(target + UNFINISHED, target)

    def remove(self, path: str) -> None:
        self._files.delete_file(f"{self._root}/{path}")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Object stores have no locks: run one job at a time."""
        yield


def place_of(where: str) -> Folder | Remote:
    """The storage at a path or a URI. Raises InvalidArgument if nothing here can open it."""
    url = urlsplit(where)
    if len(url.scheme) < 2:
        return Folder(Path(where))
    if url.scheme == "file":
        return Folder(Path(unquote(url.path)))
    try:
        import pyarrow as pa
        from pyarrow import fs
    except ModuleNotFoundError:
        about = "only directories can be used without pyarrow: pip install 'rmq[spark]'"
        raise InvalidArgument(f"{without_keys(where)}: {about}") from None
    try:
        files, root = fs.FileSystem.from_uri("s3" + where[3:] if url.scheme == "s3a" else where)
    except pa.ArrowInvalid as error:
        raise InvalidArgument(without_keys(f"{where} cannot be opened: {error}")) from None
    return Remote(files, root, without_keys(where))


def sync_folder(folder: Path) -> None:
    """Makes the names in the folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
