"""Our own small text files under `<store>/rmq/`: vote, run, epochs, progress, queues.

Line 1 `rmq-<kind> 1`, then `key value ...` lines, last `crc <8 hex>` over all before. Content is saved to
a temporary file, flushed and renamed, then the directory is flushed, so that a crash at any point leaves the old or the new
content (D5). A file with a wrong checksum or a newer version is never guessed at (D17). Only the owners of the files know
what the lines mean.
"""

import errno
from collections.abc import Iterable

from rmq.errors import StoreError
from rmq.log.files.disk import Disk
from rmq.log.records.crc import crc32

VERSION = 1
_READ_BYTES = 1 << 16
_REMEDY = "run `rmq store repair` on the store's directory, which says what that costs, or restore a backup of it"
Lines = list[list[str]]


def save(disk: Disk, directory: str, kind: str, lines: Iterable[list[str]]) -> None:
    """Replaces `<directory>/<kind>`; durable when it returns. Words hold neither spaces nor line ends. Raises OSError."""
    text = f"rmq-{kind} {VERSION}\n" + "".join([" ".join(line) + "\n" for line in lines])
    data = text.encode()
    data += b"crc %08x\n" % crc32(data)
    path = f"{directory}/{kind}"
    write_file(disk, path + ".new", data)
    disk.rename(path + ".new", path)
    disk.fsync_directory(directory)


def write_file(disk: Disk, path: str, data: bytes) -> None:
    """A new file with this content, which is durable; its name is not yet."""
    handle = disk.create(path)
    try:
        written = 0
        while written < len(data):
            written += disk.pwrite(handle, data[written:], written)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)


def read_file(disk: Disk, path: str) -> bytes | None:
    """The whole content; None if there is no such file. Raises OSError, which names the file."""
    if not disk.exists(path):
        return None
    handle = disk.open(path)
    try:
        data = b""
        while more := disk.pread(handle, _READ_BYTES, len(data)):  # the size of `path` may be that of a newer file by now
            data += more
        return data
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        disk.close(handle)


def load(disk: Disk, directory: str, kind: str) -> Lines | None:
    """The words of each line between head and checksum; None if there is no such file. Raises StoreError."""
    path = f"{directory}/{kind}"
    try:
        data = read_file(disk, path)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise StoreError(f"{path} cannot be read ({error.strerror}): {_REMEDY}") from error
    return None if data is None else parse(path, kind, data)


def parse(path: str, kind: str, data: bytes) -> Lines:
    """The words of each line of such a file. Raises StoreError."""
    text, mark, crc = data.rpartition(b"crc ")
    if not mark or crc != b"%08x\n" % crc32(text):
        raise StoreError(f"{path} is damaged (wrong checksum): {_REMEDY}")
    head, *lines = text.decode().splitlines()
    if head != f"rmq-{kind} {VERSION}":
        raise StoreError(
            f"{path} begins {head!r}, this version reads 'rmq-{kind} {VERSION}': run the newer version that wrote it"
        )
    return [line.split(" ") for line in lines]
