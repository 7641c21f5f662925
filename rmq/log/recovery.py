"""Recovery opens what a node left behind: which bytes are the log, what was torn off, which ConsumeQueues can be trusted.

For a node that stands alone (docs/storage, recovery). It reports and never guesses: a bad entry below what was durable
is damage, which stays as it is and is walked around; above it is a torn tail and is cut.
"""

import errno
import logging
from typing import NamedTuple

from rmq.errors import BadBytes, StoreError
from rmq.log.files import epochs
from rmq.log.files.damage import DamagedRange, MissingSegment, first_record, has_record
from rmq.log.files.disk import Disk, Unreadable, remedy
from rmq.log.files.epochs import EpochHistory
from rmq.log.files.ownfiles import CLEAN, Progress, QueueRow, Run, Vote, load_epochs
from rmq.log.files.segment import FILLER, BadEntry, Records, Segment, file_name, walk, walk_epochs_many
from rmq.log.files.snapshot import Snapshot
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.records import record
from rmq.log.records.queuenames import directory_of
from rmq.log.settings import ASYNC_FLUSH, StoreSettings
from rmq.model import EPOCH_TOPIC

_LOG = logging.getLogger(__name__)
_NAME_DIGITS = 20
_BLOCK = 1 << 20


class Report(NamedTuple):
    """What recovery found.

    `clean`: the last run stopped in order. `cut_bytes`: length of the torn tail that was cut off at `end`; `cut_reason`
    says why the log ends there. `records_behind`: whole records stood behind the cut (they may have been acknowledged).
    `may_have_lost`: power was lost under async flush. `queues_rebuilt`: ConsumeQueues were made anew from the log.
    `damaged`: ranges below what was durable that cannot be read; then nothing may be written.
    """

    clean: bool
    end: int
    cut_bytes: int = 0
    cut_reason: str = ""
    records_behind: bool = False
    may_have_lost: bool = False
    queues_rebuilt: bool = False
    damaged: tuple[DamagedRange, ...] = ()


class OpenedLog(NamedTuple):
    """The files of the log, the end of its last good record, and its epoch history."""

    segments: list[Segment]
    end: int
    stored_ms: int
    epochs: EpochHistory
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
    node_id = vote.node_id if settings.alone else settings.node_id  # a member that is alone now keeps the name its group knows
    return vote._replace(node_id=node_id, incarnation=vote.incarnation + 1, proven=vote.proven and not lost)


def distrusted(vote: Vote, now_s: int) -> Vote:
    """Of a disk that may be an old copy: the others heard of later runs of it, and refuse those before. The number that a run
    has by the wall clock is larger, also if that copy comes back once more."""
    return vote._replace(proven=False, incarnation=max(vote.incarnation, now_s))


def lower_bound(disk: Disk, directory: str, snapshot: Snapshot | None, rolled: int = 0) -> Progress:
    """The durable offset if `progress` is missing: up to where snapshots and the epochs' cache prove it."""
    known = load_epochs(disk, directory)
    durable = max(snapshot.s1 if snapshot else 0, known[1] if known else 0, rolled)
    return Progress(durable, snapshot.s1 if snapshot else 0, 0, 0)


def rolled_to(disk: Disk, directory: str) -> int:
    """The log before its last three files with content is durable: a torn tail spans two at most."""
    names = [name for name in disk.listdir(directory) if len(name) == _NAME_DIGITS and name.isdecimal()]
    while names and not _beginning(disk, f"{directory}/{names[-1]}").strip(b"\0"):
        names.pop()
    return int(names[-3]) if len(names) > 2 else 0


def _beginning(disk: Disk, path: str) -> bytes:
    handle = disk.open(path)
    try:
        return disk.pread(handle, FILLER.size, 0)
    finally:
        disk.close(handle)


def may_have_lost(run: Run | None, boot_id: str) -> bool:
    """Whether acknowledged bytes may be lost: the store ran under async flush, and the machine was started again since."""
    if run is None or run.state == CLEAN or run.flush_mode != ASYNC_FLUSH:
        return False
    return run.boot_id in ("", "-") or run.boot_id != boot_id


# --- the log ----------------------------------------------------------------------------------------------------------


def open_log(disk: Disk, root: str, settings: StoreSettings, run: Run | None, progress: Progress) -> OpenedLog:
    """Opens the segments, finds the end, and makes everything behind it zero and durable. Raises StoreError."""
    holes: list[DamagedRange] = []
    segments = open_segments(disk, f"{root}/commitlog", settings.segment_bytes, progress.log, holes)
    try:
        return _find_end(disk, root, segments, holes, run, progress)
    except BaseException as error:
        for segment in segments:
            segment.close()
        if isinstance(error, OSError):
            usual = error.advice if isinstance(error, Unreadable) else "check the disk, then start again"
            raise StoreError(f"cannot read the log in {root}: {remedy(error, usual)}") from error
        raise


def _find_end(
    disk: Disk, root: str, segments: list[Segment], holes: list[DamagedRange], run: Run | None, progress: Progress
) -> OpenedLog:
    known = load_epochs(disk, f"{root}/rmq")
    clean = run is not None and run.state == CLEAN
    if run is not None and clean and known is not None and run.end == progress.log:
        # nobody has what is behind the end, and the others need not have written so far
        damaged = tuple(hole._replace(end=min(hole.end, run.end)) for hole in holes if hole.start < run.end)
        return OpenedLog(segments, run.end, progress.stored_ms, known[0], Report(True, run.end, damaged=damaged))
    for segment in segments:
        if segment.end > progress.log:
            segment.sync()  # an error of the last run's write-back shows here and is final (D4)
    tail = Tail(segments, progress, known[0] if known else epochs_in(segments, progress.log))
    tail.walk(around=True)
    history = epochs.up_to(tail.epochs, tail.end)
    damaged = (*(hole for hole in holes if hole.end <= tail.first), *tail.damaged)
    if damaged:  # nothing is cut or written: a repair must find everything that was there
        return OpenedLog(segments, tail.end, tail.stored_ms, history, Report(clean, tail.end, damaged=damaged))
    behind = any(has_record(segment, tail.end, True) for segment in segments if segment.end > tail.end)
    for segment in segments:
        segment.rewrite(progress.log, tail.end)
    cut_bytes = cut(disk, root, segments, tail.end)
    report = Report(clean, tail.end, cut_bytes, tail.reason if cut_bytes else "", behind)
    return OpenedLog(segments, tail.end, tail.stored_ms, history, report)


def open_segments(disk: Disk, directory: str, size: int, durable: int, holes: list[DamagedRange] | None = None) -> list[Segment]:
    """The files, oldest first, without a gap. `holes` gets missing parts of files below `durable`; without `holes` those are
    refused. Raises StoreError."""
    bases = [int(name) for name in disk.listdir(directory) if len(name) == _NAME_DIGITS and name.isdecimal()]
    bases = _without_empty_end(disk, directory, bases, size)
    found: list[Segment] = []
    for base in bases:
        path = f"{directory}/{file_name(base)}"
        length = disk.size(path)
        if length < size and holes is not None and any(disk.size(f"{directory}/{file_name(other)}") == size for other in bases):
            holes.append(DamagedRange(base + length, base + size, f"{path} has {length} bytes of {size}"))
        elif length != size:
            raise StoreError(
                f"{path} has {length} bytes, segments are set to {size}: "
                "set mappedFileSizeCommitLog to the size this store was made with"
            )
        if found and base <= durable:
            _fill_gap(directory, found, base, holes)
        if found and base != found[-1].end:
            disk.unlink(path)  # its name became durable before the one of the file ahead of it: nothing in it counts
            continue
        found.append(Segment(disk, path, base, size, disk.open(path)))
    if not found and durable:
        raise StoreError(f"the log in {directory} is empty, and bytes up to {durable} were durable: restore it from a backup")
    if found:
        _fill_gap(directory, found, durable, holes)
    return found


def _fill_gap(directory: str, found: list[Segment], to: int, holes: list[DamagedRange] | None) -> None:
    """Adds files that are missing before the one that ends at or begins at `to`."""
    size = found[-1].size
    while found[-1].end < to:
        path, base = f"{directory}/{file_name(found[-1].end)}", found[-1].end
        if holes is None:
            raise StoreError(f"{path} is missing: restore it from a backup")
        holes.append(DamagedRange(base, base + size, f"{path} is missing"))
        found.append(MissingSegment(path, base, size))


def _without_empty_end(disk: Disk, directory: str, bases: list[int], size: int) -> list[int]:
    """Drops last files of wrong length that hold nothing: the node was stopped while it made them."""
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
    """The walk over the segments from `first`, the beginning of the one that holds the last durable byte."""

    def __init__(self, segments: list[Segment], progress: Progress, history: EpochHistory) -> None:
        self._segments = [segment for segment in segments if segment.end > progress.log]
        self._durable = progress.log
        self.damaged: list[DamagedRange] = []
        self.end = self.first = self._segments[0].base if self._segments else progress.log
        self.stored_ms = progress.stored_ms
        self.epochs = self._known = history
        self.reason = ""

    def walk(self, around: bool = False) -> None:
        """Moves `end` behind the last good record; `reason` says what stands there.

        `around`: a bad entry below what was durable goes into `damaged`, and the walk goes on behind it.
        """
        position = self.end
        for segment in self._segments:
            position = max(position, segment.base)
            while position < segment.end:
                try:
                    self._walk(segment, position)
                    break
                except BadEntry as error:
                    self.reason = str(error)
                    resumed = self._around(error.at) if around else None
                    if resumed is None:
                        return
                    position = resumed
        if around and self.end < self._durable:
            self._around(self.end)

    def _walk(self, segment: Segment, from_: int) -> None:
        for some in walk_epochs_many(segment.read, segment.end, from_, segment.end, self._known):
            if epochs.MARK in some.buf and not epochs.written_by_rocketmq(self._known, some.base):
                self._take_epochs(some)  # in RocketMQ's bytes they belong to another store
            self._end_behind(some, int(some.at[-1]), some.end)

    def _take_epochs(self, some: Records) -> None:
        before = -1
        for at in some.at.tolist():
            if record.has_topic(some.buf, at, EPOCH_TOPIC):
                if before >= 0:
                    self._end_behind(some, before, some.base + at)
                self._take_epoch(record.decode(some.buf, at))
            before = at

    def _end_behind(self, some: Records, at: int, end: int) -> None:
        """The last good record is the one there."""
        self.end, self.stored_ms = end, record.store_timestamp(some.buf, at)

    def _around(self, bad: int) -> int | None:
        """Where to go on behind a bad entry; None if the log ends there."""
        if bad >= self._durable:
            return None
        good = first_record(self._segments, bad, self._known)
        self.end = self._durable if good is None else min(good, self._durable)
        self.damaged.append(DamagedRange(bad, self.end, self.reason or "the log ends too early"))
        return good if good is not None and good <= self._durable else None

    def _take_epoch(self, found: record.Record) -> None:
        try:
            self.epochs = epochs.joined(self.epochs, epochs.unpack(found.body))
        except BadBytes as error:
            raise BadEntry(self.end, str(error)) from error


def epochs_in(segments: list[Segment], from_: int) -> EpochHistory:
    """What the epoch records behind `from_` say, when the file `epochs` is lost: without it nobody knows which bytes are
    Apache RocketMQ's and carry no checksum of ours, so none is asked for here."""
    history: EpochHistory = ()
    for segment in segments:
        if segment.end <= from_:
            continue
        try:
            for place in walk(segment.read, segment.end, segment.base, segment.end, False):
                if record.has_topic(place.buf, place.at, EPOCH_TOPIC):
                    history = epochs.joined(history, epochs.unpack(record.decode(place.buf, place.at).body))
        except BadBytes:  # the walk that decides reports it
            break
    return history


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
    of_batches = {*disk.listdir(f"{root}/batchconsumequeue")}
    for row in rows or ():
        if directory_of(row.topic) in of_batches:
            queues.hold_batches(row.topic)
    if rows is None or not _take_all_over(queues, rows, start, trusted_to, tidy):
        queues.delete_all()
        return False
    known = {directory_of(row.topic) for row in rows}
    for topic in (*disk.listdir(f"{root}/consumequeue"), *of_batches):
        if topic not in known:
            queues.delete(topic)
    queues.remove_deleted()
    return True


def _take_all_over(queues: ConsumeQueues, rows: list[QueueRow], start: int, trusted_to: int, tidy: bool) -> bool:
    """Files with a bad sector are not there, as far as that goes: the log says what stood in them."""
    try:
        return all(_take_over(queues, row, start, trusted_to, tidy) for row in rows)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        _LOG.warning("a file of the queues cannot be read, they are made anew from the log: %s", error)
        return False


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
