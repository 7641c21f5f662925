"""Which bytes of a store directory count, cut into one part per segment file, and the records in a part. No Spark here.

In a store of rmq only committed bytes count: those below `hw` of `rmq/progress`. A directory without `rmq/` was written by
Apache RocketMQ, or is an archive of rolled segments: there the whole valid prefix counts.
"""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmq.errors import BadBytes, InvalidArgument, StoreError
from rmq.log.disk import RealDisk
from rmq.log.ownfiles import load_progress
from rmq.log.record import Record, decode, verify

_BLANK_MAGIC = b"\xcb\xd4\x31\x94"  # ends the used part of a segment [CommitLog.BLANK_MAGIC_CODE]
_NAME_DIGITS = 20


class Part(NamedTuple):
    """Bytes of one segment: `file` starts at log offset `base`; records from there up to log offset `stop` count.

    `exact`: the log is known to reach `stop`, so anything invalid before is damage; else the first invalid byte ends it.
    `protected`: the records are ours and carry a checksum of the whole record.
    """

    file: str
    base: int
    stop: int
    exact: bool
    protected: bool


class _ReadOnlyDisk(RealDisk):
    """Opens for reading only: a report may run as a user who cannot write to the store."""

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDONLY)


def find_parts(store: Path) -> list[Part]:
    """The parts of a store directory in log order; [] when nothing is committed yet.

    Raises InvalidArgument when the directory is not a store that can be read.
    """
    segments = _segments(store)
    if (store / "rmq").is_dir():
        return _committed(segments, committed_end(store))
    while segments and _is_unused(segments[-1]):  # RocketMQ makes the next file ahead of time
        segments.pop()
    return [_whole(file, last=file is segments[-1]) for file in segments]


def committed_end(store: Path) -> int:
    """Log offset up to which a store of rmq says everything is committed; 0 before the first message was."""
    progress = load_progress(_ReadOnlyDisk(), str(store / "rmq"))
    return progress.hw if progress else 0


def read_part(part: Part) -> Iterator[Record]:
    """Every record in a part, in order, checked as the store checks them.

    Raises BadBytes where the file is damaged, StoreError when retention removed it meanwhile.
    """
    try:
        file = open(part.file, "rb")  # noqa: SIM115 -- only the opening is guarded, not the reader's work
    except FileNotFoundError:
        raise StoreError(f"{part.file} is gone: retention removed it after the job began; run the job again") from None
    with file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Never closed by hand: an error's traceback may still hold slices of it. It goes with its last user.
    yield from _records(memoryview(mapped), part)


def _records(view: memoryview, part: Part) -> Iterator[Record]:
    at, stop = 0, min(part.stop - part.base, len(view))
    while at < stop and view[at + 4 : at + 8] != _BLANK_MAGIC:
        try:
            size = verify(view, at, part.base + at, part.protected)
        except BadBytes as error:
            if part.exact:
                raise BadBytes(f"{error} (byte {at} of {part.file}); check the disk, or read a copy from another node") from error
            return
        yield decode(view, at)
        at += size


def _segments(store: Path) -> list[Path]:
    folder = store / "commitlog"
    if not folder.is_dir():
        if any(store.glob("dledger-*")):
            raise InvalidArgument(f"{store} is a DLedger store of RocketMQ; only plain stores (with commitlog/) can be read")
        raise InvalidArgument(f"{store} is not a store directory: it has no commitlog/ in it")
    files = [file for file in folder.iterdir() if len(file.name) == _NAME_DIGITS and file.name.isdecimal()]
    return sorted(file for file in files if file.stat().st_size > 0)


def _committed(segments: list[Path], end: int) -> list[Part]:
    """Parts below `end`. They must join and reach it: a gap is a lost file."""
    parts = [Part(str(file), int(file.name), min(end, int(file.name) + file.stat().st_size), True, True) for file in segments]
    parts = [part for part in parts if part.base < end]
    joints = [part.base for part in parts[1:]] + [end] if parts else []
    for part, next_base in zip(parts, joints, strict=True):
        if part.stop != next_base:
            raise BadBytes(f"the log ends at {part.stop} in {part.file} and goes on at {next_base}: a file is missing or was cut")
    return parts


def _whole(file: Path, *, last: bool) -> Part:
    base = int(file.name)
    return Part(str(file), base, base + file.stat().st_size, not last, False)


def _is_unused(file: Path) -> bool:
    with file.open("rb") as opened:
        return not any(opened.read(8))
