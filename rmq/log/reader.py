"""Reads a store that another process owns: its segments, its committed end, its records. Writes and locks nothing.

For analytics and tools. Works on our stores, running or stopped, and on those of Apache RocketMQ (plain, not
DLedger), whose files are the same; also on one of ours that adopted such bytes. A running store's committed end is what
it last saved (at most 10 s old).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from rmq.errors import StoreError
from rmq.log.files import ownfiles, smallfile
from rmq.log.files.epochs import ROCKETMQ_EPOCH, EpochEntry, EpochHistory
from rmq.log.files.segment import BadEntry, walk_epochs
from rmq.log.records.record import Record, decode

P = TypeVar("P", str, Path)


class SegmentFile(NamedTuple):
    """One file of a CommitLog: its path, the offset of its first byte, its length, and who wrote which bytes.

    Every record of ours carries a checksum of all of it, which is checked; Apache RocketMQ's (epoch 0 in `epochs`) need not.
    """

    path: str
    base: int
    size: int
    epochs: EpochHistory = ()


def read_segments(root: str) -> list[SegmentFile]:
    """The segments of the store in `root`, oldest first. Raises StoreError if there is none."""
    directory = os.path.join(root, "commitlog")
    try:
        names = sorted(name for name in os.listdir(directory) if len(name) == 20 and name.isdecimal())
    except OSError as error:
        raise StoreError(f"{root} is no store directory (it has no readable commitlog/): {error}") from error
    history = read_epochs(root)
    paths = [os.path.join(directory, name) for name in names]
    return [SegmentFile(path, int(os.path.basename(path)), os.path.getsize(path), history) for path in paths]


def read_epochs(root: str) -> EpochHistory:
    """The epoch history from `rmq/epochs`: who wrote which bytes. Without a directory `rmq/` RocketMQ wrote everything.

    Raises StoreError if the file is damaged.
    """
    path = os.path.join(root, "rmq", "epochs")
    try:
        with named(path), open(path, "rb") as file:
            lines = smallfile.parse(path, "epochs", file.read())
    except FileNotFoundError:
        return () if os.path.isdir(os.path.join(root, "rmq")) else (EpochEntry(ROCKETMQ_EPOCH, 0, "-"),)
    return ownfiles.parse_epochs(lines)


def committed_end(root: str) -> int | None:
    """The offset below which everything is committed, as last saved; None for a store of Apache RocketMQ (all of it counts).

    Raises StoreError if the file that says so is damaged.
    """
    path = os.path.join(root, "rmq", "progress")
    try:
        with named(path), open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return 0 if os.path.isdir(os.path.join(root, "rmq")) else None
    return int(dict(smallfile.parse(path, "progress", data))["hw"])


def read_records(segment: SegmentFile, committed: int | None = None) -> Iterator[Record]:
    """The records of one segment that end at or below `committed`, checked one by one.

    None: up to the first thing that is no record, as Apache RocketMQ reads. Raises BadEntry for a bad record below
    `committed`, OSError if the file cannot be read (retention may delete it).
    """
    end = segment.base + segment.size
    to = end if committed is None else min(end, committed)
    if to <= segment.base:
        return
    with named(segment.path), open(segment.path, "rb", buffering=0) as file:

        def read(offset: int, size: int) -> bytes:
            return os.pread(file.fileno(), size, offset - segment.base)

        try:
            for place in walk_epochs(read, end, segment.base, to, segment.epochs):
                yield decode(place.buf, place.at)
        except BadEntry:
            if committed is not None:
                raise


@contextmanager
def named(path: P) -> Iterator[P]:
    """An OSError in here that names no file, as of a read, a write or a flush, names this one."""
    try:
        yield path
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
