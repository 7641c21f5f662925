"""Taking over a directory that Apache RocketMQ wrote, or wrote in since this node stopped (docs/storage).

Its bytes stay as they are and become a *foreign* stretch of the log: epoch 0, checked by structure, position and body
checksum only, because RocketMQ need not write a checksum over the whole record. Everything here happens under the store's
lock, and may be interrupted anywhere: the next start does it again. The broker reads config/*.json
(`rmq.broker.adoption.tables`); until its content is committed too, the file `run` says `adopting`.
"""

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

from rmq.errors import InvalidArgument, StoreError
from rmq.log import recovery
from rmq.log.files import damage, epochs, ownfiles, smallfile
from rmq.log.files.disk import Disk
from rmq.log.files.epochs import ROCKETMQ_EPOCH, EpochEntry
from rmq.log.files.ownfiles import CLEAN, RUNNING, Progress, QueueRow, Run
from rmq.log.files.segment import FILLER, BadEntry, Segment, walk
from rmq.log.files.snapshot import Snapshots
from rmq.log.queues.batchqueue import ROW, Row
from rmq.log.queues.consumequeue import ENTRY, ENTRY_BYTES
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.records import record
from rmq.log.records.innerbatch import message_count
from rmq.log.settings import StoreSettings

_BLOCK = 1 << 20
_TABS = b"\n\t"  # RocketMQ indents its JSON with them, we do not
_TABLES = ("topics.json", "consumerOffset.json")
_REFUSED = {  # directory below the root -> what it means
    "kvStore": "it keeps POP's receipts in RocksDB (popConsumerKVServiceEnable), so popped messages would be lost; "
    "let consumers finish and switch that off in RocketMQ first",
    "config/topics": "its tables are in RocksDB (storeType=defaultRocksDB); go back to storeType=default in RocketMQ first",
}


class Adopted(NamedTuple):
    """What was taken over: the bytes [start, end) that RocketMQ wrote, with so many records in so many queues.

    `visited`: it is a store of ours that RocketMQ wrote in. `tidy`: RocketMQ stopped in order, so its tables are complete.
    `cut_bytes`: a torn tail behind `end`, kept in `rmq/lost-0-<end>`.
    """

    visited: bool
    tidy: bool
    start: int
    end: int
    records: int
    queues: int
    cut_bytes: int = 0


# --- is there anything to take over? ----------------------------------------------------------------------------------


def refuse(disk: Disk, root: str) -> None:
    """Raises StoreError for a directory that cannot be taken over, and says why. Nothing has been changed then."""
    if disk.exists(f"{root}/archive.json"):
        raise StoreError(f"{root} is an archive: make a store of it with `rmq restore {root} DIR`, and start the node on DIR")
    if any(name.startswith("dledger-") for name in disk.listdir(root)):
        raise StoreError(
            f"{root} is a DLedger store of Apache RocketMQ, whose log has another format: it cannot be opened; "
            "give this node an empty directory and copy the messages through a client"
        )
    for name, why in _REFUSED.items():
        if _holds_files(disk, f"{root}/{name}"):
            raise StoreError(f"{root} was written by Apache RocketMQ and cannot be adopted: {why}. Nothing was changed")


def _refuse_compacted(disk: Disk, root: str) -> None:
    """RocketMQ keeps messages of compacted topics a second time, in files that are not read here. Raises StoreError if the log
    may not have them all any more."""
    if min(map(int, _segment_names(disk, root)), default=0) and _holds_files(disk, f"{root}/compaction/compactionLog"):
        raise StoreError(
            f"{root} was written by Apache RocketMQ and cannot be adopted: it has compacted topics (cleanup.policy=COMPACTION), "
            "and the beginning of its log is deleted, so some of their messages are in compaction/ only. Copy these topics "
            "through a client of RocketMQ, move compaction/ away, and start again. Nothing was changed"
        )


def _holds_files(disk: Disk, path: str) -> bool:
    try:
        names = disk.listdir(path)
    except NotADirectoryError:
        return False
    return bool(names)


def is_due(disk: Disk, root: str, settings: StoreSettings, run: Run | None) -> bool:
    """Whether another program wrote here: this is no store of ours yet, or RocketMQ opened it since our last run."""
    if run is None:
        vote = ownfiles.load_vote(disk, f"{root}/rmq")
        return bool(_segment_names(disk, root)) and (vote is None or not vote.epoch)
    if run.state == CLEAN:
        return _is_longer(disk, root, run.end) or _has_tabs(disk, root, changed_exports(disk, root, run))
    return run.state == RUNNING and (_has_tabs(disk, root, _TABLES) or _has_stranger(disk, root, settings, run))


def refuse_visited(disk: Disk, root: str) -> None:
    """For tools that take all of a store of ours for ours. Raises InvalidArgument if RocketMQ wrote in it since our last run."""
    with suppress(StoreError):  # such a file is damaged, and is told as that
        run = ownfiles.load_run(disk, f"{root}/rmq")
        if run is None or run.state not in (CLEAN, RUNNING):
            return
        names = changed_exports(disk, root, run) if run.state == CLEAN else _TABLES
        if _has_tabs(disk, root, names) or (run.state == CLEAN and _goes_on(disk, root, run.end)):
            raise InvalidArgument(
                f"Apache RocketMQ wrote in {root} since rmq stopped there. Nothing is wrong with that: `rmq store adopt {root}`, "
                "or the start of a node, takes it over; then come again"
            )


def _goes_on(disk: Disk, root: str, end: int) -> bool:
    """Whether a record stands behind our last one; after a stop in order that is none of ours."""
    for name in _segment_names(disk, root):
        base, path = int(name), f"{root}/commitlog/{name}"
        if base <= end < base + disk.size(path):
            segment = Segment(disk, path, base, disk.size(path), disk.open(path))
            try:
                return _first_behind([segment], end) is not None
            finally:
                segment.close()
    return False


def changed_exports(disk: Disk, root: str, run: Run) -> list[str]:
    """Names of files in config/ that are not what we left there at our last stop in order, sorted. Only those with RocketMQ's
    indentation say anything: our tables are in our log, and whatever else became of their exports, they are written anew."""
    left, found = dict(run.exports), export_sums(disk, root) if run.exports else {}
    return sorted(name for name in left.keys() | found.keys() if left.get(name) != found.get(name))


def export_sums(disk: Disk, root: str) -> dict[str, str]:
    """SHA-256 of each config/*.json."""
    names = [name for name in disk.listdir(f"{root}/config") if name.endswith(".json")]
    return {name: sha256(smallfile.read_file(disk, f"{root}/config/{name}") or b"").hexdigest() for name in names}


def _is_longer(disk: Disk, root: str, end: int) -> bool:
    """After a clean stop of ours nothing stands behind the end."""
    for name in _segment_names(disk, root):
        path, base = f"{root}/commitlog/{name}", int(name)
        if base + disk.size(path) > end and _read(disk, path, max(end - base, 0), FILLER.size).strip(b"\0"):
            return True
    return False


def _has_tabs(disk: Disk, root: str, names: Iterable[str]) -> bool:
    return any(_TABS in (smallfile.read_file(disk, f"{root}/config/{name}") or b"") for name in names)


def _has_stranger(disk: Disk, root: str, settings: StoreSettings, run: Run) -> bool:
    """After a crash of ours: `abort` is not ours, and behind our last record stands a whole one without our checksum."""
    if smallfile.read_file(disk, f"{root}/abort") == b"%d" % run.pid:
        return False
    progress = _progress(disk, f"{root}/rmq")
    known = ownfiles.load_epochs(disk, f"{root}/rmq")
    segments = recovery.open_segments(disk, f"{root}/commitlog", settings.segment_bytes, progress.log)
    try:
        tail = recovery.Tail(segments, progress, known[0] if known else ())
        tail.walk()
        return tail.end >= progress.log and _begins_rocketmq(segments, tail.end)
    finally:
        for segment in segments:
            segment.close()


def _progress(disk: Disk, own: str) -> Progress:
    return ownfiles.load_progress(disk, own) or recovery.lower_bound(disk, own, Snapshots(disk, own).newest)


def _begins_rocketmq(segments: list[Segment], end: int) -> bool:
    first = _first_behind(segments, end)
    return first is not None and not record.has_crc(first)


def _first_behind(segments: list[Segment], end: int) -> record.Record | None:
    """The whole record that begins at `end`, or behind what a file ends with."""
    for segment in segments:
        if segment.end > end:
            try:
                place = next(walk(segment.read, segment.end, max(end, segment.base), segment.end, False), None)
            except BadEntry:
                return None
            if place is not None:
                return record.decode(place.buf, place.at)
    return None


# --- taking over ------------------------------------------------------------------------------------------------------


def take_over(disk: Disk, root: str, settings: StoreSettings, writer: str, run: Run | None) -> Adopted:
    """Finds what RocketMQ wrote, cuts its torn tail, and notes that in our own files, `run` not among them.

    `writer`: this store's id, so that two directories never count as one. Raises StoreError, having changed nothing,
    when whole records stand behind a bad one: RocketMQ would drop them all.
    """
    _refuse_compacted(disk, root)
    own = f"{root}/rmq"
    tidy = not disk.exists(f"{root}/abort") and (run is None or run.state == CLEAN)
    known, progress = ownfiles.load_epochs(disk, own), _progress(disk, own)
    visited = run is not None
    last = max(map(int, _segment_names(disk, root)), default=0)
    segments = recovery.open_segments(disk, f"{root}/commitlog", settings.segment_bytes, last)
    try:
        history, start = (known[0] if known else ()), (segments[0].base if segments else 0)
        if visited:
            ours = recovery.Tail(segments, progress, history)
            ours.walk()
            history, start, progress = ours.epochs, ours.end, progress._replace(stored_ms=ours.stored_ms)
        walked = _Walked(start, progress.stored_ms)
        walked.walk(segments)
        behind = [segment for segment in segments if segment.end > walked.end]
        if walked.end < progress.log or any(damage.has_record(segment, walked.end, False) for segment in behind):
            raise StoreError(
                f"the log in {root} is damaged at {walked.end} ({walked.reason}), and whole records that RocketMQ would drop "
                "stand behind. Nothing was changed. `rmq store verify` shows the place, `rmq store repair` saves the rest"
            )
        cut_bytes = keep_lost(disk, own, segments, ROCKETMQ_EPOCH, walked.end, segments[-1].end) if segments else 0
        for segment in segments:
            segment.sync()  # RocketMQ's bytes may be in the page cache only; our files are going to say that they are durable
        recovery.cut(disk, root, segments, walked.end)
    finally:
        for segment in segments:
            segment.close()
    if not visited:
        progress = progress._replace(cq=start)
        _note_queues(disk, root, walked)
    if walked.end > start:
        history = epochs.merged(
            tuple(entry for entry in history if entry.start < start), EpochEntry(ROCKETMQ_EPOCH, start, writer)
        )
    ownfiles.save_epochs(disk, own, history, walked.end)
    ownfiles.save_progress(disk, own, progress._replace(log=walked.end, hw=walked.end, stored_ms=walked.stored_ms))
    return Adopted(visited, tidy, start, walked.end, walked.count, len(walked.next), cut_bytes)


class _Walked:
    """The foreign records from `start` on. `next`: the next queue offset of each queue."""

    def __init__(self, start: int, stored_ms: int) -> None:
        self.end = start
        self.stored_ms = stored_ms
        self.count = 0
        self.next: dict[tuple[str, int], int] = {}
        self.reason = ""

    def walk(self, segments: list[Segment]) -> None:
        try:
            for segment in segments:
                if segment.end <= self.end:
                    continue
                for place in walk(segment.read, segment.end, max(self.end, segment.base), segment.end, False):
                    found = record.decode(place.buf, place.at)
                    for topic, queue_id, queue_offset in record.queue_places(found):
                        self.next[topic, queue_id] = queue_offset + message_count(found)
                    self.count += 1
                    self.end, self.stored_ms = place.offset + place.size, found.store_timestamp
        except BadEntry as error:
            self.reason = str(error)


def keep_lost(disk: Disk, own: str, segments: list[Segment], epoch: int, from_: int, to: int) -> int:
    """Copies the log's bytes from `from_` up to the last one before `to` that is not zero into `lost-<epoch>-<from_>`.

    Returns how many. Durable when it returns. Raises OSError.
    """
    length = 0
    for segment in segments:
        for at, data in segment.blocks(max(from_, segment.base), min(segment.end, to)):
            length = at + len(data.rstrip(b"\0")) - from_
    if length <= 0:
        return 0
    handle = disk.create(f"{own}/lost-{epoch}-{from_}")
    try:
        for segment in segments:
            for at in range(max(from_, segment.base), min(segment.end, from_ + length), _BLOCK):
                disk.pwrite(handle, segment.read(at, min(_BLOCK, segment.end - at, from_ + length - at)), at - from_)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    disk.fsync_directory(own)
    return length


def _note_queues(disk: Disk, root: str, walked: _Walked) -> None:
    """Queues whose records are all expired go on counting where RocketMQ's files end. Then its files are removed, to be made
    anew from the log: they may have another length, and hold entries of records that are gone."""
    own = f"{root}/rmq"
    ends = {(row.topic, row.queue_id): row.max for row in ownfiles.load_queues(disk, own) or ()}
    for there, end_below in ((f"{root}/consumequeue", _entries_below), (f"{root}/batchconsumequeue", _messages_below)):
        for topic in disk.listdir(there):
            for queue_id in filter(str.isdecimal, disk.listdir(f"{there}/{topic}")):
                key = (topic, int(queue_id))
                ends[key] = max(ends.get(key, 0), end_below(disk, f"{there}/{topic}/{queue_id}", walked.end))
    rows = [QueueRow(*key, end, end) for key, end in sorted(ends.items()) if end and key not in walked.next]
    ownfiles.save_queues(disk, own, rows)
    ConsumeQueues(disk, root, 1, 1).delete_all()


def _entries_below(disk: Disk, directory: str, end: int) -> int:
    """The queue offset behind the last entry in RocketMQ's files of one queue that points below `end` of the log."""
    place, _ = _last_below(disk, directory, end, ENTRY_BYTES)
    return place // ENTRY_BYTES + 1


def _messages_below(disk: Disk, directory: str, end: int) -> int:
    """The same of a queue of batches."""
    _, raw = _last_below(disk, directory, end, ROW.size)
    return Row(*ROW.unpack(raw)).end if raw else 0


def _last_below(disk: Disk, directory: str, end: int, entry_bytes: int) -> tuple[int, bytes]:
    """That entry, and at which byte of the queue it is; below 0 if there is none."""
    for name in reversed([name for name in disk.listdir(directory) if name.isdecimal()]):
        data = (smallfile.read_file(disk, f"{directory}/{name}") or b"").rstrip(b"\0")
        data = data.ljust(-(-len(data) // entry_bytes) * entry_bytes, b"\0")
        for at in range(len(data) - entry_bytes, -1, -entry_bytes):
            offset, size, _ = ENTRY.unpack_from(data, at)
            if size > 0 and 0 <= offset < end:
                return int(name) + at, data[at : at + entry_bytes]
    return -entry_bytes, b""


def _segment_names(disk: Disk, root: str) -> list[str]:
    return [name for name in disk.listdir(f"{root}/commitlog") if len(name) == 20 and name.isdecimal()]


def _read(disk: Disk, path: str, at: int, size: int) -> bytes:
    handle = disk.open(path)
    try:
        return disk.pread(handle, size, at)
    finally:
        disk.close(handle)
