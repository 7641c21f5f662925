"""Which bytes of a store directory a job counts, cut into one part per segment file. No Spark here.

In a store of rmq only committed bytes count. A directory without `rmq/` was written by Apache RocketMQ, or is an archive of
rolled segments: there the whole valid prefix counts. How records are found and checked is the log's own business
(`rmq.log.reader`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmq.errors import BadBytes, InvalidArgument, StoreError
from rmq.log.reader import SegmentFile, committed_end, read_records, read_segments
from rmq.log.record import Record


class Part(NamedTuple):
    """One segment, and the log offset that its records are known to reach: anything invalid before is damage.

    None: unknown, so the first invalid byte ends it.
    """

    segment: SegmentFile
    stop: int | None


def find_parts(store: Path) -> list[Part]:
    """The parts of a store directory in log order; [] when nothing is committed yet.

    Raises InvalidArgument when the directory is not a store that can be read, BadBytes when files of it are missing.
    """
    if not (store / "commitlog").is_dir():
        raise InvalidArgument(_no_store(store))
    segments = [segment for segment in read_segments(str(store)) if segment.size]
    end = committed_end(str(store))
    if end is not None:
        return _committed(segments, end)
    while segments and _is_unused(segments[-1]):  # RocketMQ makes the next file ahead of time
        segments.pop()
    rolled = [Part(segment, segment.base + segment.size) for segment in segments[:-1]]
    return rolled + [Part(segment, None) for segment in segments[-1:]]


def read_part(part: Part) -> Iterator[Record]:
    """Every record in a part, in order, checked.

    Raises BadBytes where the file is damaged, StoreError when retention removed it meanwhile.
    """
    path = part.segment.path
    try:
        yield from read_records(part.segment, part.stop)
    except FileNotFoundError:
        raise StoreError(f"{path} is gone: retention removed it after the job began; run the job again") from None
    except BadBytes as error:
        raise BadBytes(f"{error}, in {path}; check the disk, or read a copy from another node") from error


def _committed(segments: list[SegmentFile], end: int) -> list[Part]:
    """Parts below `end`. They must join and reach it: a gap is a lost file."""
    used = [segment for segment in segments if segment.base < end]
    stops = [min(end, segment.base + segment.size) for segment in used]
    for stop, next_base in zip(stops or [0], [*(segment.base for segment in used[1:]), end], strict=True):
        if stop != next_base:
            raise BadBytes(f"the log stops at {stop} and goes on at {next_base}: a file of commitlog/ is missing or was cut")
    return [Part(segment, stop) for segment, stop in zip(used, stops, strict=True)]


def _is_unused(segment: SegmentFile) -> bool:
    with open(segment.path, "rb") as opened:
        return not any(opened.read(8))


def _no_store(store: Path) -> str:
    if any(store.glob("dledger-*")):
        return f"{store} is a DLedger store of RocketMQ; only plain stores (with commitlog/) can be read"
    return f"{store} is not a store directory: it has no commitlog/ in it"
