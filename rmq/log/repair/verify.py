"""Walks everything in a store directory and says what is right, what is damaged, and what could not be checked.

For a stopped store, a copy of a live one, and directories of Apache RocketMQ. Nothing is written or locked. A damaged
stretch does not end the walk: it goes on at the next whole record. This file does not know what config/*.json should look like.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple, TypeVar

from rmq.errors import StoreError
from rmq.log import adoption, recovery
from rmq.log.files import epochs, ownfiles, smallfile
from rmq.log.files.damage import find_record
from rmq.log.files.disk import Disk, Unreadable
from rmq.log.files.epochs import ROCKETMQ_EPOCH, EpochEntry, EpochHistory
from rmq.log.files.ownfiles import ADOPTING, CLEAN, Progress, Run
from rmq.log.files.segment import BadEntry, Segment, walk_epochs
from rmq.log.files.snapshot import Snapshots
from rmq.log.records import record
from rmq.log.records.deletions import deleted_topics
from rmq.log.records.record import Record
from rmq.log.records.tombstones import UNKNOWN_TOPIC, is_tombstone
from rmq.log.repair.verifyindex import IndexWalk
from rmq.log.repair.verifyqueues import QueueWalk
from rmq.model import EPOCH_TOPIC, STATE_TOPIC

_CHECKPOINT = Struct(">6q")
_CHECKPOINT_BYTES = 4096
_T = TypeVar("_T")
_STEP_BYTES = 1 << 20  # between two calls of `on_progress`


class Finding(NamedTuple):
    """`damage`: something is wrong and needs repair; else only worth knowing. `at`: offset in the log, -1 if it has none."""

    damage: bool
    where: str
    what: str
    at: int = -1


class Hole(NamedTuple):
    """A stretch [start, end) of the log without a whole record, between good ones."""

    start: int
    end: int
    why: str


class Report(NamedTuple):
    """`checked`: what was checked, and how many. `unchecked`: what could not be checked. `end`: of the last record.

    `rmq.log.repair.repair` can repair `holes`; `epochs`: the epoch history that was used.
    """

    start: int
    end: int
    checked: dict[str, int]
    findings: list[Finding]
    unchecked: list[str]
    holes: list[Hole]
    epochs: EpochHistory = ()

    @property
    def clean(self) -> bool:
        return not any(found.damage for found in self.findings)


class Verifier:
    """`run()` does it all, once. `on_progress(bytes)` hears how far the walk over the log is. `index_slots`: [maxHashSlotNum].
    `delays_ms`: of delay levels, None if they are not known."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        index_slots: int,
        on_progress: Callable[[int], None] = lambda _: None,
        delays_ms: Sequence[int] | None = None,
    ) -> None:
        self._delays_ms = delays_ms
        self._disk = disk
        self._root = root
        self._own = f"{root}/rmq"
        self._on_progress = on_progress
        self._findings: list[Finding] = []
        self._unchecked: list[str] = []
        self._checked: dict[str, int] = {}
        self._holes: list[Hole] = []
        self._ours = disk.exists(self._own)
        self._run: Run | None = None
        self._snapshots: Snapshots | None = None
        self._progress: Progress | None = None
        self._epochs: EpochHistory = ()
        self._index_slots = index_slots

    def run(self) -> Report:
        """Raises StoreError if this is no store directory, or the device cannot read it, OSError for other reasons."""
        if any(name.startswith("dledger-") for name in self._disk.listdir(self._root)):
            self._unchecked.append("a DLedger log has another format: neither the log nor what points into it was checked")
            return Report(0, 0, self._checked, self._findings, self._unchecked, self._holes)
        if not self._disk.exists(f"{self._root}/commitlog"):
            raise StoreError(f"{self._root} is no store directory: it has no commitlog/")
        self._check_own_files()
        segments = self._open_segments()
        try:
            start, end = (segments[0].base if segments else 0), self._walk_log(segments)
            self._check_tables(start)
        except Unreadable as error:
            raise StoreError(f"{error}; {error.advice}") from error
        finally:
            for segment in segments:
                segment.close()
        return Report(start, end, self._checked, self._findings, self._unchecked, self._holes, self._epochs)

    @property
    def _killed(self) -> bool:
        """Whether this store of ours was left by a node that did not stop in order: the next start tidies up."""
        return self._run is not None and self._run.state != CLEAN

    def _found(self, where: str, what: str, at: int = -1, *, damage: bool = True) -> None:
        self._findings.append(Finding(damage, where, what, at))

    # --- our own files ------------------------------------------------------------------------------------------------

    def _check_own_files(self) -> None:
        if not self._ours:
            self._epochs = (EpochEntry(ROCKETMQ_EPOCH, 0, "-"),)
            return
        vote = self._load("vote", ownfiles.load_vote)
        self._run = self._load("run", ownfiles.load_run)
        known = self._load("epochs", ownfiles.load_epochs)
        self._progress = self._load("progress", ownfiles.load_progress)
        self._load("queues", ownfiles.load_queues)
        self._load("index", ownfiles.load_index)
        self._epochs = known[0] if known else ()
        try:
            snapshots = self._snapshots = Snapshots(self._disk, self._own)
            self._checked["snapshots"] = len(snapshots.kept)
            for what in snapshots.damaged:
                self._found("snapshot", what)
        except StoreError as error:
            self._found("snapshot", str(error))
        last = max((entry.epoch for entry in self._epochs), default=0)
        if vote and vote.epoch < last:
            self._found("rmq/vote", f"it says epoch {vote.epoch}, the log {last}: the next start sets that right", damage=False)
        if vote and not vote.proven:
            self._found("rmq/vote", "this store is not proven: it may have lost what it acknowledged", damage=False)
        for name in self._disk.listdir(self._own):
            if name.startswith("lost-"):
                self._found(f"rmq/{name}", "bytes that were cut off the log before are kept here", damage=False)

    def _check_tables(self, start: int) -> None:
        adopting = self._run is not None and self._run.state == ADOPTING
        if self._snapshots is not None and not adopting and (lost := self._snapshots.lost(start, self._epochs)):
            self._found("tables", lost)

    def _load(self, kind: str, load: Callable[[Disk, str], _T | None]) -> _T | None:
        try:
            found = load(self._disk, self._own)
        except StoreError as error:
            self._found(f"rmq/{kind}", str(error))
            return None
        if found is None:
            if kind != "index":  # there is none without an index
                self._found(f"rmq/{kind}", "is missing", damage=kind in ("vote", "run"))
        else:
            self._checked["own files"] = self._checked.get("own files", 0) + 1
        return found

    # --- the log ------------------------------------------------------------------------------------------------------

    def _open_segments(self) -> list[Segment]:
        directory = f"{self._root}/commitlog"
        found: list[Segment] = []
        names = [name for name in self._disk.listdir(directory) if len(name) == 20 and name.isdecimal()]
        for name in names:
            path = f"{directory}/{name}"
            size, base = self._disk.size(path), int(name)
            if not size and name == names[-1]:
                self._found(path, "is empty: whoever made it was stopped in between", damage=False)
                continue
            if found and base > found[-1].end and (base - found[-1].end) % found[-1].size == 0:
                self._holes.append(Hole(found[-1].end, base, "the file is missing"))
            if found and base != found[-1].end:
                self._found(path, f"the file before it, for offset {found[-1].end}, is missing or of another length", base)
            found.append(Segment(self._disk, path, base, size, self._disk.open(path)))
        self._checked["segments"] = len(found)
        return found

    def _walk_log(self, segments: list[Segment]) -> int:
        durable = self._progress.log if self._progress else 0
        clean = self._run.state == CLEAN if self._run else not self._disk.exists(f"{self._root}/abort")
        if self._ours and not self._epochs:  # the file is lost or damaged, or nothing was written yet
            self._epochs = recovery.epochs_in(segments, 0)
        queues = QueueWalk(self._disk, f"{self._root}", segments[0].base if segments else 0, self._delays_ms)
        index = IndexWalk(self._disk, f"{self._root}/index", self._index_slots)
        seen = _Seen(queues, index, segments[0].base if segments else 0)
        for segment in segments:
            if segment.base > seen.end and any(hole.end == segment.base for hole in self._holes):
                seen.pass_over(segment.base)
            self._walk_segment(segment, segments, seen, durable)
        end = seen.end
        if end < durable:
            self._found("commitlog", f"the log ends at {end}, and bytes up to {durable} were durable", end)
        self._check_behind(segments, end, clean)
        self._check_epochs(seen, end)
        self._checked |= {"records": seen.count, "bytes": max(end - (segments[0].base if segments else 0), 0)}
        must_queues = self._progress.cq if self._progress else (end if clean and not self._ours else 0)
        for where, what, damage in queues.finish(end, must_queues, self._ours, self._killed):
            self._found(where, what, damage=damage)
        for where, what, damage in index.finish(end, self._progress.indexed if self._progress else 0):
            self._found(where, what, damage=damage)
        self._checked |= {"queues": queues.count, "queue units": queues.units}
        self._checked |= {"index files": index.files, "index entries": index.entries}
        self._unchecked += index.unchecked
        if queues.delays_unchecked:
            self._unchecked.append(
                f"{queues.delays_unchecked} due times are none of RocketMQ's usual delay levels: not checked; "
                "give --config FILE with its messageDelayLevel"
            )
        if self._ours is False or any(entry.epoch == ROCKETMQ_EPOCH for entry in self._epochs):
            self._unchecked.append(
                "headers unprotected: records of Apache RocketMQ carry no checksum of the whole, so a flip in "
                "a header field, topic or property is not seen there"
            )
        timers = [name for name in ("timerwheel", "timerlog") if self._disk.exists(f"{self._root}/{name}")]
        if timers:
            self._unchecked.append(f"{' and '.join(timers)}: written for RocketMQ, never read here")
        self._check_checkpoint(seen.stored_ms, end)
        self._check_visit(end)
        return end

    def _walk_segment(self, segment: Segment, segments: list[Segment], seen: "_Seen", durable: int) -> None:
        """Every record of one file; a hole is passed over where whole records stand behind it."""
        position, reported = segment.base, segment.base
        while True:
            try:
                for place in walk_epochs(segment.read, segment.end, position, segment.end, self._epochs):
                    seen.take(record.decode(place.buf, place.at), self._epochs)
                    position = place.offset + place.size
                    if position - reported > _STEP_BYTES:
                        self._on_progress(position - reported)
                        reported = position
                break
            except BadEntry as error:
                behind = find_record(segment, error.at + 1, self._is_protected(error.at))
                if behind is None and (segment is segments[-1] or not self._goes_on(segments, segment.end)):
                    break
                resume = segment.end if behind is None else behind
                self._holes.append(Hole(error.at, resume, str(error)))
                torn = error.at >= durable and self._progress is not None
                what = _hole(str(error), resume, torn, self._killed)
                self._found("commitlog", what, error.at, damage=not (torn and self._killed))
                seen.pass_over(resume)
                position = resume
                if position >= segment.end:
                    break
        self._on_progress(segment.end - reported)

    def _is_protected(self, offset: int) -> bool:
        return not epochs.written_by_rocketmq(self._epochs, offset)

    def _goes_on(self, segments: list[Segment], offset: int) -> bool:
        later = [segment for segment in segments if segment.base >= offset]
        return any(find_record(one, one.base, self._is_protected(one.base)) is not None for one in later)

    def _check_behind(self, segments: list[Segment], end: int, clean: bool) -> None:
        """Behind the end of our log there must be nothing, or the torn tail of a run that was killed."""
        for segment in segments:
            for at, data in segment.blocks(max(end, segment.base), segment.end) if segment.end > end else ():
                kind = "bytes of a torn tail, which the next start cuts off, stand" if not clean else "bytes stand"
                size = len(data.rstrip(b"\0"))
                what = f"{kind} behind the end of the log at {end} ({size} in the block at {at})"
                self._found("commitlog", what, end, damage=self._ours and clean)
                return

    def _check_epochs(self, seen: "_Seen", end: int) -> None:
        self._checked["epochs"] = sum(entry.epoch != ROCKETMQ_EPOCH for entry in self._epochs)
        if not self._ours:
            return
        cached = {entry.start: entry for entry in self._epochs if entry.start < end}
        for entry in seen.epochs:
            if cached.get(entry.start, entry) != entry:
                self._found("rmq/epochs", f"it says {cached[entry.start]}, a record in the log says {entry}", entry.start)

    # --- checkpoint, and whether another program wrote here ---------------------------------------------------------------

    def _check_checkpoint(self, stored_ms: int, end: int) -> None:
        data = smallfile.read_file(self._disk, f"{self._root}/checkpoint")
        if data is None:
            self._found("checkpoint", "is missing; only RocketMQ reads it", damage=False)
            return
        if len(data) != _CHECKPOINT_BYTES:
            self._found("checkpoint", f"has {len(data)} bytes, not {_CHECKPOINT_BYTES}")
            return
        said = _CHECKPOINT.unpack_from(data)
        self._checked["checkpoint"] = 1
        later = "; the next start writes it anew" if self._killed else ""
        if max(said[:3]) > stored_ms:
            what = f"it says that messages to {max(said[:3])} ms are flushed, the last one is of {stored_ms}{later}"
            self._found("checkpoint", what, damage=not self._killed)
        if said[5] > end:
            what = f"it says that queues are flushed up to {said[5]}, the log ends at {end}{later}"
            self._found("checkpoint", what, damage=not self._killed)

    def _check_visit(self, end: int) -> None:
        run = self._run
        if run is None or run.state != CLEAN:
            return
        if run.end != end:
            self._found(
                "rmq/run",
                f"the log ended at {run.end} when this node stopped, it ends at {end}: another program wrote "
                "here; the next start takes that over",
                end,
                damage=end < run.end,
            )
        if changed := adoption.changed_exports(self._disk, self._root, run):
            what = "what RocketMQ wrote there the next start takes over, anything else it writes anew"
            self._found("config", f"{', '.join(changed)} changed since this node stopped: {what}", damage=False)
        self._checked["exports"] = len(run.exports)


def _hole(error: str, resume: int, torn: bool, killed: bool) -> str:
    if torn and killed:
        return (
            f"a torn tail ({error}): the next start cuts the log there. Whole records stand behind it, from {resume} on: "
            "they go with it, unless `rmq store repair` keeps them"
        )
    return f"{error}; the next whole record stands at {resume}{' (not known to be durable)' if torn else ''}"


class _Seen:
    """Notes a record: its queue, times, epoch and deletions."""

    def __init__(self, queues: QueueWalk, index: IndexWalk, start: int) -> None:
        self.end = start
        self.count = 0
        self.stored_ms = 0
        self.epochs: EpochHistory = ()
        self.holes = False
        self._queues = queues
        self._index = index

    def pass_over(self, to: int) -> None:
        """A hole up to `to`."""
        self.holes = True
        self._index.skip(to)

    def take(self, found: Record, history: EpochHistory) -> None:
        self.holes = self.holes or (is_tombstone(found) and found.topic == UNKNOWN_TOPIC)
        by_rocketmq = epochs.written_by_rocketmq(history, found.physical_offset)
        self._queues.take(found, by_rocketmq, self.holes)
        if is_tombstone(found):
            self._index.skip(found.physical_offset + found.total_size)
        else:
            self._index.take(found)
        if found.topic == STATE_TOPIC:
            for topic in deleted_topics(found.body):
                self._queues.delete(topic)
        elif found.topic == EPOCH_TOPIC and not by_rocketmq:
            self.epochs = epochs.joined(self.epochs, epochs.unpack(found.body))
        self.end = found.physical_offset + found.total_size
        self.stored_ms = max(self.stored_ms, found.store_timestamp)
        self.count += 1
