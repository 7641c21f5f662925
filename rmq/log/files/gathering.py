"""Reads records with few reads, whether they are near each other or far apart, from what is in memory."""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from rmq.errors import BadBytes
from rmq.log.files import epochs
from rmq.log.files.epochs import EpochHistory
from rmq.log.files.segments import Segments
from rmq.log.files.verified import Verified
from rmq.log.records import record

MAX_GAP_BYTES = 8192  # one read fetches two records if at most so many bytes are between them

Spans = Sequence[tuple[int, int]]  # (offset, size)
_size_of = itemgetter(1)


def _groups(spans: Spans, end_of: Callable[[int], int]) -> Iterator[tuple[int, int, int, int]]:
    """(first, after, offset, size): spans so near that one read fetches them. `end_of(offset)`: where its file ends."""
    first, (offset, size) = 0, spans[0]
    stop, limit = offset + size, end_of(offset)
    for index, (at, size) in enumerate(spans):
        if at - stop > MAX_GAP_BYTES or at >= limit:
            yield first, index, offset, stop - offset
            first, offset, limit = index, at, end_of(at)
        stop = at + size
    yield first, len(spans), offset, stop - offset


def gather_groups(files: Segments, spans: Spans) -> bytes | None:
    """Reads records that lie far apart: one read for each group of neighbours."""
    parts: list[memoryview] = []
    for first, after, offset, size in _groups(spans, files.end_of):
        view = memoryview(bytearray(size))
        if not files.at(offset).read_cached(offset, view):
            return None
        parts += parts_of(view, offset, spans[first:after])
    return b"".join(parts)


def parts_of(view: memoryview, offset: int, spans: Spans) -> list[memoryview]:
    """The records at `spans` in `view`, which begins at `offset` with the first and ends with the last; in one piece where they
    stand back to back, as those of a batch do."""
    if len(view) == sum(map(_size_of, spans)):
        return [view]
    return [view[at - offset : at - offset + length] for at, length in spans]


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
