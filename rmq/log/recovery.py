"""Opening what a node left behind: which bytes are the log, what was torn off, which ConsumeQueues can be trusted.

For a node that stands alone (docs/storage, recovery). It reports and never guesses: a bad entry below what was durable
is damage and stops the start; above it is a torn tail and is cut.
"""

import re
from typing import NamedTuple

from rmq.errors import BadBytes, StoreError
from rmq.log import epochs, record
from rmq.log.consumequeue import ConsumeQueues
from rmq.log.disk import Disk
from rmq.log.epochs import EpochRow
from rmq.log.ownfiles import CLEAN, Progress, QueueRow, Run, Vote, load_epochs
from rmq.log.segment import FILLER, BadEntry, Segment, file_name, walk, walk_rows
from rmq.log.settings import ASYNC_FLUSH, StoreSettings
from rmq.log.snapshot import Snapshot
from rmq.model import EPOCH_TOPIC

_NAME_DIGITS = 20
_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_MAGIC_BYTES = 4
_BLOCK = 1 << 20


class Report(NamedTuple):
    """What opening the store found.

    `clean`: the last run stopped in order. `cut_bytes`: length of the torn tail that was cut off at `end`; `cut_reason`
    says why the log ends there. `records_behind`: whole records stood behind the cut (they may have been acknowledged).
    `may_have_lost`: power was lost under async flush. `queues_rebuilt`: ConsumeQueues were made anew from the log.
    """

    clean: bool
    end: int
    cut_bytes: int = 0
    cut_reason: str = ""
    records_behind: bool = False
    may_have_lost: bool = False
    queues_rebuilt: bool = False


class OpenedLog(NamedTuple):
    """The files of the log, the end of its last good record, and the rows of its epoch table."""

    segments: list[Segment]
    end: int
    stored_ms: int
    rows: tuple[EpochRow, ...]
    report: Report


def next_vote(disk: Disk, settings: StoreSettings, vote: Vote | None, lost: bool) -> Vote:
    """The vote of the run that begins: one more incarnation; a store that may have lost bytes is no longer proven."""
    if vote is None:
        return Vote(disk.random_bytes(8).hex(), settings.node_id, settings.group, 0, "-", 1, False)
    if vote.group != settings.group:
        raise StoreError(
            f"this store belongs to the broker group {vote.group!r}, the settings say {settings.group!r}: "
            "set brokerName back, or give the new group an empty directory"
        )
    return vote._replace(node_id=settings.node_id, incarnation=vote.incarnation + 1, proven=vote.proven and not lost)


def lower_bound(disk: Disk, directory: str, snapshot: Snapshot | None) -> Progress:
    """What is known to be durable where `progress` is missing: what a snapshot and the epochs' cache were saved after."""
    known = load_epochs(disk, directory)
    durable = max(snapshot.s1 if snapshot else 0, known[1] if known else 0)
    return Progress(durable, snapshot.s1 if snapshot else 0, 0, 0)


def may_have_lost(run: Run | None, boot_id: str) -> bool:
    """Whether unflushed bytes that were acknowledged may be gone: it ran under async flush, and the kernel is another."""
    if run is None or run.state == CLEAN or run.flush_mode != ASYNC_FLUSH:
        return False
    return run.boot_id in ("", "-") or run.boot_id != boot_id


# --- the log ----------------------------------------------------------------------------------------------------------


def open_log(disk: Disk, root: str, settings: StoreSettings, run: Run | None, progress: Progress) -> OpenedLog:
    """Opens the segments, finds the end, and makes everything behind it zero and durable. Raises StoreError."""
    segments = open_segments(disk, f"{root}/commitlog", settings.segment_bytes, progress.log)
    try:
        return _find_end(disk, root, segments, run, progress)
    except BaseException as error:
        for segment in segments:
            segment.close()
        if isinstance(error, OSError):
            raise StoreError(f"cannot read the log in {root}: {error}; check the disk, then start again") from error
        raise


def _find_end(disk: Disk, root: str, segments: list[Segment], run: Run | None, progress: Progress) -> OpenedLog:
    known = load_epochs(disk, f"{root}/rmq")
    clean = run is not None and run.state == CLEAN
    if run is not None and clean and known is not None and run.end == progress.log:
        return OpenedLog(segments, run.end, progress.stored_ms, known[0], Report(True, run.end))
    for segment in segments:
        if segment.end > progress.log:
            segment.sync()  # an error of the last run's write-back shows here and is final (D4)
    tail = Tail(segments, progress, known[0] if known else rows_in(segments, progress.log))
    tail.walk()
    if tail.end < progress.log:
        raise StoreError(
            f"the log in {root} is damaged: {tail.reason or 'it ends too early'}, and bytes up to {progress.log} "
            "were durable. Nothing was changed. Restore the directory from a backup or start with an empty one "
            "(repairing from other nodes comes in a later release)"
        )
    behind = any(has_record(segment, tail.end, True) for segment in segments if segment.end > tail.end)
    for segment in segments:
        segment.rewrite(progress.log, tail.end)
    cut_bytes = cut(disk, root, segments, tail.end)
    report = Report(clean, tail.end, cut_bytes, tail.reason if cut_bytes else "", behind)
    rows = tuple(row for row in tail.rows if row.start < tail.end)
    return OpenedLog(segments, tail.end, tail.stored_ms, rows, report)


def open_segments(disk: Disk, directory: str, size: int, durable: int) -> list[Segment]:
    bases = [int(name) for name in disk.listdir(directory) if len(name) == _NAME_DIGITS and name.isdecimal()]
    bases = _without_empty_end(disk, directory, bases, size)
    found: list[Segment] = []
    for base in bases:
        path = f"{directory}/{file_name(base)}"
        if disk.size(path) != size:
            raise StoreError(
                f"{path} has {disk.size(path)} bytes, segments are set to {size}: "
                "set mappedFileSizeCommitLog to the size this store was made with"
            )
        if found and base != found[-1].end:
            if base <= durable:
                raise StoreError(f"{directory}/{file_name(found[-1].end)} is missing: restore it from a backup")
            disk.unlink(path)  # its name became durable before the one of the file ahead of it: nothing in it counts
            continue
        found.append(Segment(disk, path, base, size, disk.open(path)))
    if durable > (found[-1].end if found else 0):
        raise StoreError(f"the log in {directory} ends before {durable}, which was durable: a file is missing; restore it")
    return found


def _without_empty_end(disk: Disk, directory: str, bases: list[int], size: int) -> list[int]:
    """Drops last files of wrong length that hold nothing: whoever made them was stopped in between."""
    while bases:
        path = f"{directory}/{file_name(bases[-1])}"
        length = disk.size(path)
        if length == size:
            break
        handle = disk.open(path)
        try:
            if any(disk.pread(handle, _BLOCK, at).strip(b"\0") for at in range(0, length, _BLOCK)):
                break
        finally:
            disk.close(handle)
        disk.unlink(path)
        bases = bases[:-1]
    return bases


class Tail:
    """The walk over the segments from the one that holds the last durable byte."""

    def __init__(self, segments: list[Segment], progress: Progress, rows: tuple[EpochRow, ...]) -> None:
        self._segments = [segment for segment in segments if segment.end > progress.log]
        self.end = self._segments[0].base if self._segments else progress.log
        self.stored_ms = progress.stored_ms
        self.rows = self._known = rows
        self.reason = ""

    def walk(self) -> None:
        """Moves `end` behind the last good record; `reason` says what stood there."""
        try:
            for segment in self._segments:
                for place in walk_rows(segment.read, segment.end, segment.base, segment.end, self._known):
                    if record.has_topic(place.buf, place.at, EPOCH_TOPIC):
                        self._take_epoch(record.decode(place.buf, place.at))
                    self.end = place.offset + place.size
                    self.stored_ms = record.store_timestamp(place.buf, place.at)
        except BadEntry as error:
            self.reason = str(error)

    def _take_epoch(self, found: record.Record) -> None:
        try:
            self.rows = epochs.joined(self.rows, epochs.unpack(found.body))
        except BadBytes as error:
            raise BadEntry(self.end, str(error)) from error


def rows_in(segments: list[Segment], from_: int) -> tuple[EpochRow, ...]:
    """What the epoch records behind `from_` say, when the file `epochs` is lost: without it nobody knows which bytes are
    Apache RocketMQ's and carry no checksum of ours, so none is asked for here."""
    rows: tuple[EpochRow, ...] = ()
    for segment in segments:
        if segment.end <= from_:
            continue
        try:
            for place in walk(segment.read, segment.end, segment.base, segment.end, False):
                if record.has_topic(place.buf, place.at, EPOCH_TOPIC):
                    rows = epochs.joined(rows, epochs.unpack(record.decode(place.buf, place.at).body))
        except BadBytes:  # the walk that decides says what it is
            break
    return rows


def has_record(segment: Segment, from_: int, protected: bool) -> bool:
    """Whether a whole record (`protected`: of ours) stands somewhere behind: then the cut may have hit a flipped bit."""
    return find_record(segment, from_, protected) is not None


def find_record(segment: Segment, from_: int, protected: bool) -> int | None:
    """Where the first whole record at or behind `from_` begins."""
    for at, data in segment.blocks(max(from_, segment.base), segment.end):
        data += segment.read(at + len(data), min(_MAGIC_BYTES, segment.end - at - len(data)))  # one that lies across
        found = sorted(at + place.start() - 4 for place in _MAGIC.finditer(data))
        for start in found:
            if start >= max(from_, segment.base) and _is_record(segment, start, protected):
                return start
    return None


def _is_record(segment: Segment, start: int, protected: bool) -> bool:
    size = int.from_bytes(segment.read(start, 4), "big")
    if size > segment.end - start:
        return False
    try:
        record.verify(segment.read(start, size), 0, start, protected)
    except BadBytes:
        return False
    return True


def cut(disk: Disk, root: str, segments: list[Segment], end: int) -> int:
    """Zeros behind `end`, later files removed, all of it durable. How many bytes were there."""
    length = 0
    while len(segments) > 1 and segments[-1].base >= end:
        segment = segments.pop()
        behind = len(segment.read(segment.base, FILLER.size).strip(b"\0"))
        length = segment.end - end if behind else length
        segment.close()
        disk.unlink(segment.path)
    disk.fsync_directory(f"{root}/commitlog")
    if segments:
        length = max(length, segments[-1].zero(end))
        segments[-1].sync()
    return length


# --- the ConsumeQueues ------------------------------------------------------------------------------------------------


def open_queues(
    disk: Disk,
    root: str,
    queues: ConsumeQueues,
    rows: list[QueueRow] | None,
    start: int,
    trusted_to: int,
    tidy: bool,
) -> bool:
    """Takes over the queue files for records in [start, trusted_to); False if all must be rebuilt (then none is left).

    `tidy`: the last run stopped in order, so nothing stands in the files behind their rows.
    """
    if rows is None or not all(_take_over(queues, row, start, trusted_to, tidy) for row in rows):
        queues.delete_all()
        return False
    known = {row.topic for row in rows}
    for topic in disk.listdir(f"{root}/consumequeue"):
        if topic not in known:
            queues.delete(topic)
    return True


def _take_over(queues: ConsumeQueues, row: QueueRow, start: int, trusted_to: int, tidy: bool) -> bool:
    queue = queues.get(row.topic, row.queue_id)
    if not queue.files_hold(row.min, row.max):
        return False
    queue.begin_at(row.min, row.max)
    low = queue.first_at_or_behind(start) if start else row.min
    end = queue.first_at_or_behind(trusted_to)
    if not tidy:
        queue.cut_files(end)
    queue.begin_at(min(low, end), end)
    return True
