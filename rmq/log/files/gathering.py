"""Reads records with few reads, whether they are near each other or far apart, from what is in memory."""

from collections.abc import Callable, Iterator, Sequence

from rmq.errors import BadBytes
from rmq.log.files import epochs
from rmq.log.files.epochs import EpochHistory
from rmq.log.files.segments import Segments
from rmq.log.files.verified import Verified
from rmq.log.records import record

MAX_GAP_BYTES = 8192  # one read fetches two records if at most so many bytes are between them

Spans = Sequence[tuple[int, int]]  # (offset, size)


def _groups(spans: Spans, end_of: Callable[[int], int]) -> Iterator[tuple[int, int, int, int]]:
    """(first, after, offset, size): spans so near that one read fetches them. `end_of(offset)`: where its file ends."""
    count, index = len(spans), 0
    while index < count:
        first = index
        offset, size = spans[index]
        stop = offset + size
        limit = end_of(offset)
        index += 1
        while index < count:
            at, size = spans[index]
            if at - stop > MAX_GAP_BYTES or at >= limit:
                break
            stop = at + size
            index += 1
        yield first, index, offset, stop - offset


def gather_groups(files: Segments, spans: Spans) -> bytes | None:
    """Reads records that lie far apart: one read for each group of neighbours."""
    parts: list[memoryview] = []
    for first, after, offset, size in _groups(spans, files.end_of):
        view = memoryview(bytearray(size))
        if not files.at(offset).read_cached(offset, view):
            return None
        parts.extend([view[at - offset : at - offset + length] for at, length in spans[first:after]])
    return b"".join(parts)


def gather_checked(files: Segments, spans: Spans, history: EpochHistory, verified: Verified) -> bytes | None:
    data = gather_groups(files, spans)
    if data is None or not _are_whole(data, spans, history):
        return None
    verified.add(spans)
    return data


def _are_whole(data: bytes, spans: Spans, history: EpochHistory) -> bool:
    """Whether `data` holds exactly the records of `spans`."""
    at = 0
    try:
        for offset, size in spans:
            record.verify(data, at, offset, not epochs.written_by_rocketmq(history, offset))
            at += size
    except BadBytes:
        return False
    return True
