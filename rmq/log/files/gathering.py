"""Reads records with few reads, whether they are near each other or far apart, from what is in memory."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from rmq.errors import BadBytes, StoreError
from rmq.log.files import epochs
from rmq.log.files.damage import wrong_entry
from rmq.log.files.epochs import EpochHistory
from rmq.log.files.segments import Segments
from rmq.log.files.tail import Tail
from rmq.log.files.verified import Verified
from rmq.log.records import record

NEAR_BYTES = 128 * 1024  # what one read fetches at once, whatever lies between the records
KEPT_BYTES = 2 * NEAR_BYTES  # of what was read last
ROOM_BYTES = 2 * 1024 * 1024  # for records that lie far apart; fresh memory for each such read would be made zero first
OLD_READS = 64  # whose ends are remembered
ON_BYTES = 128 * 1024  # between two messages of a queue that somebody reads
MAX_GAP_BYTES = 8192  # one read fetches two records if at most so many bytes are between them
STEP = 31  # records that are looked at together

Spans = Sequence[tuple[int, int]]  # (offset, size)
Read = Callable[[int, int], bytes]  # the bytes at an offset, so many
_size_of = itemgetter(1)


def wrong_span(spans: Spans, end: int) -> tuple[int, int] | None:
    """The first that cannot be: what a queue says of its messages has no checksum (its form is RocketMQ's). `end`: of the log."""
    stop = 0
    for span in spans:
        offset, size = span
        if size < record.MIN_RECORD_BYTES or offset < stop or offset + size > end:
            return span
        stop = offset + size
    return None


def check_spans(spans: Spans, end: int) -> None:
    """Raises StoreError for what `wrong_span` finds."""
    if wrong := wrong_span(spans, end):
        raise wrong_entry(*wrong)


def _groups(spans: Spans, end_of: Callable[[int], int]) -> Iterator[tuple[int, int, int, int]]:
    """(first, after, offset, size): spans so near that one read fetches them. `end_of(offset)`: where its file ends."""
    first, index, count = 0, 0, len(spans)
    stop = offset = spans[0][0]
    limit = end_of(offset)
    while index < count:
        at, size = spans[index]
        if at - stop > MAX_GAP_BYTES or at >= limit:
            yield first, index, offset, stop - offset
            first, offset, limit = index, at, end_of(at)
        far = index + STEP
        if far < count and spans[far][0] - at < NEAR_BYTES and spans[far][0] < limit:
            index = far  # so many lie near each other: no look at each
            at, size = spans[index]
        stop = at + size
        index += 1
    yield first, count, offset, stop - offset


class NearReads:
    """Reads what is in memory: in `tail`, the log's last bytes (as many as `tail_bytes`), or in the page cache. In one thread.

    What was read last is kept, and only what is missing behind it is read: queues of a topic lie among each other, so pulls of
    them want nearly the same stretch of the log.
    """

    def __init__(self, files: Segments, tail_bytes: int) -> None:
        self.tail = Tail(tail_bytes)
        self._files = files
        self._room = memoryview(bytearray(ROOM_BYTES))
        self._from = self._to = 0  # what is kept in it, of the log

    def cut(self, to: int) -> None:
        """The log ends there now, or begins there anew."""
        self.tail.cut(to)
        self.forget()

    def forget(self) -> None:
        """Records are being checked as they are now. What is kept, as it lay between others, may be damaged, and whole since."""
        self._from = self._to = 0

    def gather(self, spans: Spans) -> bytes | None:
        """The records at `spans`, joined; None if a byte is not in memory, or a span wrong. Raises OSError."""
        offset, (last, size) = spans[0][0], spans[-1]
        extent = last + size - offset
        if self._from <= offset and last + size <= self._to:
            view = self._room[offset - self._from : last + size - self._from]
        elif (near := self.tail.view(offset, extent)) is not None:
            view = near
        elif extent > NEAR_BYTES or last >= self._files.end_of(offset):
            self._from = self._to = 0
            return None if wrong_span(spans, last + size) else gather_groups(self._files, spans, self._room)
        elif (read := self._read(offset, last + size)) is not None:
            view = read
        else:
            return None
        if len(view) == (wanted := sum(map(_size_of, spans))):  # back to back, as those of a batch are
            return bytes(view)
        data = b"".join(parts_of(view, offset, spans))
        return data if len(data) == wanted else None

    def _read(self, offset: int, end: int) -> memoryview | None:
        """The bytes [offset, end), of which some may be kept. None if the others are not in memory."""
        if not (self._from <= offset <= self._to <= end <= self._from + KEPT_BYTES):
            self._from = self._to = offset
        into = self._room[self._to - self._from : end - self._from]
        if not self._files.at(self._to).read_cached(self._to, into):
            return None
        self._to = end
        return self._room[offset - self._from : end - self._from]


class OldReads:
    """Where the last reads ended that waited for the device. In any thread."""

    def __init__(self) -> None:
        self._ends: deque[int] = deque(maxlen=OLD_READS)

    def go_on(self, begin: int, end: int) -> bool:
        """Whether one of them ended not far from `begin`: somebody reads on there, or several do, and what follows will be
        wanted. For one who looks here and there it would only keep the device busy. Notes this one."""
        known = tuple(self._ends)
        self._ends.append(end)
        return any([abs(begin - last) <= ON_BYTES for last in known])


def together(read: Read, spans: Spans, end_of: Callable[[int], int]) -> Read:
    """As `read` for each of these spans, but neighbours are fetched by one call: a thread that waits for the device disturbs the
    event loop each time that it has to have the interpreter again. Where that fails each is read by itself, and has its error."""
    found: dict[int, bytes] = {}
    for first, after, offset, size in _groups(spans, end_of) if spans else ():
        with contextlib.suppress(StoreError):
            data = read(offset, size)
            if len(data) == size:
                found |= {at: data[at - offset : at - offset + length] for at, length in spans[first:after]}
    return lambda offset, size: found[offset] if offset in found else read(offset, size)


def gather_groups(files: Segments, spans: Spans, room: memoryview) -> bytes | None:
    """Reads records that lie far apart: one read for each group of neighbours, into `room` as far as there is some."""
    parts: list[memoryview] = []
    for first, after, offset, size in _groups(spans, files.end_of):
        view = room[:size] if size <= len(room) else memoryview(bytearray(size))
        if not files.at(offset).read_cached(offset, view):
            return None
        room = room[size:]
        parts += parts_of(view, offset, spans[first:after])
    return b"".join(parts)


def parts_of(view: memoryview, offset: int, spans: Spans) -> list[memoryview]:
    """The records at `spans` in `view`, which begins at `offset` with the first and ends with the last; those that stand back to
    back in one piece."""
    parts: list[memoryview] = []
    begin = end = offset
    for at, size in spans:
        if at != end:
            parts.append(view[begin - offset : end - offset])
            begin = end = at
        end += size
    parts.append(view[begin - offset :])
    return parts


def gather_checked(files: Segments, spans: Spans, end: int, history: EpochHistory, verified: Verified) -> bytes | None:
    data = None if wrong_span(spans, end) else gather_groups(files, spans, memoryview(b""))
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
