"""The store of one node: opens and joins the log, its queues, dispatch and the small files. No rules of its own.

Layout below the root: `commitlog/`, `consumequeue/`, `index/`, `lock`, `abort`, `checkpoint` are Apache RocketMQ's,
`rmq/` is ours.
"""

import os
from collections.abc import Callable, Iterator

from rmq.errors import NoRoom, StoreError
from rmq.log import adoption, recovery
from rmq.log.adoption import Adopted
from rmq.log.cleaning import Cleaning
from rmq.log.commitlog import CommitLog
from rmq.log.dispatch import Dispatcher
from rmq.log.files import epochs, ownfiles, reserve, smallfile
from rmq.log.files.damage import Damages
from rmq.log.files.disk import NO_ROOM, Disk, remedy
from rmq.log.files.epochs import EpochEntry, EpochHistory, EpochRecord, Voter
from rmq.log.files.ownfiles import Progress, Run, Vote
from rmq.log.files.snapshot import EPOCHS, QUEUES, VOTERS, Snapshots, SnapshotWriter
from rmq.log.index.indexed import Indexed
from rmq.log.progress import Saved
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.records.deletions import deleted_topics
from rmq.log.records.record import Record, decode, host_text
from rmq.log.recovery import OpenedLog, Report
from rmq.log.settings import ASYNC_FLUSH, MIN_SEGMENT_BYTES, SYNC_FLUSH, StoreSettings
from rmq.model import EPOCH_TOPIC, STATE_TOPIC
from rmq.staged import Between

__all__ = ["ASYNC_FLUSH", "SYNC_FLUSH", "Report", "Store", "StoreSettings"]

MOST_QUEUES = 1000  # flushed together: a new one takes four flushes of the device


class Store:
    """One node's directory, open. One thread at a time appends, dispatches and closes; `save_progress` may run beside it.

    `log`, `queues` and `dispatcher` do the work; `recovered` says what opening found; `vote` who this store is. `adopting`:
    tables of Apache RocketMQ wait to be taken over (`rmq.broker.adoption`); `adopted`: what of its log was, at this opening.
    `visited`, `tidy`: as of `Adopted`, also where an earlier opening took the log over.
    `rebuild_to`: until `finish_rebuild` only `log` may be used, its queues are being made anew to that offset (0: they are
    there). `read_only`: the log was found damaged when it was opened; nothing is appended, cut or saved until it is repaired.
    """

    def __init__(
        self, disk: Disk, root: str, settings: StoreSettings, lock: int, vote: Vote, opened: OpenedLog, snapshots: Snapshots
    ) -> None:
        self.vote = vote
        self.recovered = opened.report
        self.voters: tuple[Voter, ...] = ()
        self.snapshots = snapshots
        self.adopting = False
        self.adopted: Adopted | None = None
        self.visited = self.tidy = False
        self.queues = ConsumeQueues(disk, root, settings.queue_file_entries, settings.batch_file_entries)
        self.log = CommitLog(disk, root, settings, opened.segments, opened.end, opened.stored_ms, self.queues.end)
        self.queues.read = self.log.read
        self.log.epochs = opened.epochs
        self.log.damages = Damages(opened.report.damaged)
        self.read_only = False
        self.rebuild_to = 0
        self._progress = Progress(0, 0, 0, 0)
        self.dispatcher = Dispatcher(self.log, self.queues, opened.end)
        self.indexed = Indexed(disk, root, settings, self.log)
        self.saved = Saved(disk, root, self.log, self.queues, self.indexed)
        self.cleaning = Cleaning(disk, root, settings.reserve_bytes, self.log, self.queues, self.indexed, self.save_progress)
        self._disk = disk
        self._root = root
        self._own = f"{root}/rmq"
        self._settings = settings
        self._lock = lock

    @classmethod
    def open(cls, disk: Disk, root: str, settings: StoreSettings) -> "Store":
        """Locks and recovers the directory, making a new one if it is empty.

        When it returns, everything below `log.end` is durable and dispatched. Raises StoreError, which says what to do:
        the directory is in use, damaged, no store, or belongs to another group.
        """
        if settings.segment_bytes < MIN_SEGMENT_BYTES:
            raise StoreError(f"segments of {settings.segment_bytes} bytes are too small: at least {MIN_SEGMENT_BYTES}")
        try:
            disk.make_directory(root)
            lock = disk.lock(f"{root}/lock")
        except OSError as error:
            raise StoreError(f"cannot use {root} as a store: {error}") from error
        try:
            while True:
                try:
                    return _opened(disk, root, settings, lock)
                except (OSError, StoreError) as error:
                    if not reserve.give_back(disk, f"{root}/rmq", error):
                        raise
        except OSError as error:
            disk.unlock(lock)
            raise StoreError(f"cannot open the store {root}: {error}") from error
        except BaseException:
            disk.unlock(lock)
            raise

    @property
    def epochs(self) -> EpochHistory:
        return self.log.epochs

    @epochs.setter
    def epochs(self, history: EpochHistory) -> None:
        self.log.epochs = history

    def finish_opening(self, progress: Progress) -> None:
        log, report = self.log, self.recovered
        self.saved.settled_ms = progress.settled_ms
        last_epoch = max((entry.epoch for entry in self.epochs), default=0)
        if last_epoch > self.vote.epoch:  # the vote file is older than the log: what it promised in that epoch is unknown
            self._save_vote(self.vote._replace(epoch=last_epoch, voted_for="-"))
        if report.records_behind:
            self._save_vote(self.vote._replace(proven=False))
        committed = log.end if self._settings.alone else _known_committed(log, self.snapshots, progress.hw)
        if self._settings.alone:
            self.snapshots.drop_behind(log.end)  # a member that installed a snapshot is still catching up with it
        trusted = min(progress.cq, committed)
        rows = ownfiles.load_queues(self._disk, self._own) if trusted >= max(log.start, 1) else None  # 0: `progress` is lost
        tidy = bool(log.damages) or (report.clean and trusted == committed)
        kept = recovery.open_queues(self._disk, self._root, self.queues, rows, log.start, trusted, tidy)
        self.recovered = report._replace(queues_rebuilt=not kept and log.end > log.start)
        self.dispatcher = Dispatcher(log, self.queues, trusted if kept else log.start)
        if not kept and 0 < self._settings.apart_above < committed - log.start and not log.damages:
            self.saved.save_epochs(log.end)
            ownfiles.remove_queues(self._disk, self._own)
            self.rebuild_to, self._progress = committed, progress
        else:
            self._finish_queues(progress, committed, kept)

    def finish_rebuild(self) -> None:
        """The queues to `rebuild_to` were made anew (`rmq.log.rebuild`); if that failed it is done now. Raises StoreError."""
        committed, self.rebuild_to = self.rebuild_to, 0
        try:
            rows = ownfiles.load_queues(self._disk, self._own)
            if recovery.open_queues(self._disk, self._root, self.queues, rows, self.log.start, committed, tidy=True):
                self.dispatcher = Dispatcher(self.log, self.queues, committed)
            self._finish_queues(self._progress, committed, kept=False)
        except OSError as error:
            raise StoreError(f"cannot take over the queues of {self._root}: {remedy(error, 'check the disk')}") from error

    def _finish_queues(self, progress: Progress, committed: int, kept: bool) -> None:
        log, report = self.log, self.recovered
        self.dispatcher.catch_up(committed)
        self._check_voters()
        self.read_only = bool(log.damages)
        self.recovered = self.recovered._replace(damaged=log.damages.ranges)
        if not self.read_only:
            self.indexed.open(min(progress.indexed, committed), report.clean and not self.adopting)
        if not kept and (self._settings.alone or not self.ready_at):
            self.restore_counters()
        if self.read_only:
            return
        self.saved.save_epochs(log.end)
        self.save_progress(MOST_QUEUES)

    def _check_voters(self) -> None:
        """Who votes is read at each start, however old the record: damage there counts as found then (D8). Raises StoreError."""
        queue = self.queues.find(EPOCH_TOPIC, 0)
        if queue is None or queue.min == queue.max or self.log.damages:
            return
        try:
            self.log.gather_cold(queue.find(queue.max - 1, 1, 1, None).spans)
        except StoreError:
            if not self.log.damages:
                raise

    @property
    def ready_at(self) -> int:
        """Where the newest snapshot's tables are exact, if a member that installed it has not fetched so far yet; else 0."""
        newest = self.snapshots.newest
        return newest.s1 if newest and newest.s1 > self.log.end else 0

    def restore_counters(self) -> None:
        """Queue offsets outlive records: a queue whose messages are all gone goes on where it was, not at 0 (story 33). For a
        log that reaches its newest snapshot."""
        deleted = {topic for one in self.state_records() for topic in deleted_topics(one.body)}
        for section, rows in self.snapshots.rows():
            for topic, queue_id, next_offset in rows if section == QUEUES else ():
                known = self.queues.find(topic, queue_id)
                if topic not in deleted and (known is None or known.max < next_offset):
                    self.queues.get(topic, queue_id).begin_at(next_offset, next_offset)

    def _save_vote(self, vote: Vote) -> None:
        ownfiles.save_vote(self._disk, self._own, vote)
        self.vote = vote

    def save_vote(self, epoch: int, voted_for: str, proven: bool) -> None:
        """Durable when it returns (R8). Raises StoreError; NoRoom: it may be called again."""
        try:
            self._save_vote(self.vote._replace(epoch=epoch, voted_for=voted_for, proven=proven))
        except OSError as error:
            self._make_room(error)
            kind = NoRoom if error.errno in NO_ROOM else StoreError
            raise kind(f"cannot save the vote in {self._own}: {remedy(error, 'free space or repair the disk')}") from error

    # --- epochs -------------------------------------------------------------------------------------------------------

    @property
    def queue_file_entries(self) -> tuple[int, int]:
        return self._settings.queue_file_entries, self._settings.batch_file_entries

    @property
    def epoch(self) -> int:
        return self.vote.epoch

    def open_epoch(self, wall_ms: int) -> int:
        """Begins the next epoch with this node as the only writer (fixed mode, alone), and returns it.

        The epoch is durable before its first record is appended; the record is flushed and dispatched by the usual
        path. Appends are possible from here on. Raises StoreError.
        """
        assert not self.read_only, "a damaged log is not written to"
        log, vote = self.log, self.vote
        lossy = not vote.proven and log.end > log.start
        self._save_vote(vote._replace(epoch=vote.epoch + 1, voted_for=vote.store_id))
        entry = EpochEntry(self.vote.epoch, log.end, vote.store_id, lossy)
        self.epochs = epochs.merged(self.epochs, entry)
        self.voters = (Voter(vote.node_id, vote.store_id, host_text(self._settings.store_host)),)
        record = EpochRecord(entry.epoch, entry.start, entry.writer, vote.node_id, epochs.START, lossy, self.voters, self.epochs)
        log.begin_epoch(record, self.queues.get(EPOCH_TOPIC, 0), wall_ms)
        log.flush()
        self.saved.save_epochs(log.durable_end)
        self._save_vote(self.vote._replace(proven=True))
        return self.vote.epoch

    def finish_adoption(self) -> None:
        """Apache RocketMQ's tables are in the log now, and durable: this store is like any other. Raises OSError."""
        ownfiles.save_run(self._disk, self._own, _run(self._disk, self._settings, ownfiles.RUNNING))
        self.adopting = False

    # --- reading ------------------------------------------------------------------------------------------------------

    def records(self, topic: str, queue_id: int, from_queue_offset: int = 0) -> Iterator[Record]:
        """The dispatched records of one queue in order; may wait for the device. Raises StoreError, BadBytes.

        Of a damaged log only what can be read.
        """
        queue = self.queues.find(topic, queue_id)
        queue_offset = max(from_queue_offset, queue.min) if queue else 0
        while queue and queue_offset < queue.max:
            found = queue.find(queue_offset, 256, 1 << 20, None)
            for offset, size in found.spans:
                if self.log.damages.count_good([(offset, size)]):
                    yield decode(self.log.read(offset, size))
            queue_offset = found.next_offset

    def state_records(self) -> Iterator[Record]:
        """The committed state records that the newest snapshot does not cover, to fill the tables at a start."""
        queue, newest = self.queues.get(STATE_TOPIC, 0), self.snapshots.newest
        return self.records(STATE_TOPIC, 0, queue.first_at_or_behind(newest.s0) if newest else 0)

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def begin_snapshot(self) -> SnapshotWriter:
        """In any thread; the caller adds its sections. Raises StoreError."""
        try:
            return self.snapshots.begin((EPOCHS, self.epochs), (VOTERS, self.voters))
        except OSError as error:
            self._make_room(error)
            raise StoreError(f"no snapshot in {self._own}: {remedy(error, 'free space or repair the disk')}") from error

    def publish_snapshot(self, writer: SnapshotWriter, s0: int, s1: int) -> None:
        """The log is flushed first: a snapshot must never know more than the log (story 45). In any thread. Raises StoreError."""
        try:
            self.log.flush()
            assert self.log.durable_end >= s1, (self.log.durable_end, s1)
            self.snapshots.publish(writer, s0, s1)
        except OSError as error:
            self._make_room(error)
            raise StoreError(f"no snapshot in {self._own}: {remedy(error, 'free space or repair the disk')}") from error

    # --- saving and stopping ------------------------------------------------------------------------------------------

    def save_progress(self, most: int = 0, between: Between = iter, enough: Callable[[], bool] | None = None) -> bool:
        """Makes files of `most` queues (0: all) durable, and saves how far (D11). False if some are left. See `Saved.save`."""
        try:
            return self.read_only or self.saved.save(lambda: self.dispatcher.position, most, between, enough)
        except StoreError as error:
            self._make_room(error)
            raise

    def _make_room(self, error: Exception) -> None:
        """What failed for want of room is tried again by whoever asked for it, and finds some."""
        reserve.give_back(self._disk, self._own, error)

    def close(self) -> None:
        """A clean stop: everything appended is flushed, dispatched and saved; the next start need not look. Raises StoreError."""
        if self.read_only or self.rebuild_to:
            self.abandon()
            return
        try:
            try:
                self._finish()
            except (OSError, StoreError) as error:
                if self.log.broken or not reserve.give_back(self._disk, self._own, error):
                    raise
                self._finish()
        except OSError as error:
            raise StoreError(f"{self._root} could not be closed in order: {error}; the next start will recover it") from error
        finally:
            self.abandon()

    def _finish(self) -> None:
        """May be tried twice. Raises OSError, StoreError."""
        end = self.log.flush()
        if self._settings.alone:
            self.dispatcher.advance(end)
        self.indexed.finish(self.dispatcher.position)
        complete = self.saved.save(lambda: self.dispatcher.position, MOST_QUEUES)
        if not self.adopting:
            self._save_clean_run(end)
        if complete:  # else RocketMQ has to look at the log itself, as our next start does
            self._disk.unlink(f"{self._root}/abort")
            self._disk.fsync_directory(self._root)

    def _save_clean_run(self, end: int) -> None:
        sums = tuple(adoption.export_sums(self._disk, self._root).items())
        run = _run(self._disk, self._settings, ownfiles.CLEAN)
        ownfiles.save_run(self._disk, self._own, run._replace(end=end, exports=sums))

    def check_place(self) -> None:
        """For who writes files without its disk. Raises OSError: another directory has this one's place."""
        self._disk.check_place(self._lock)

    def abandon(self) -> None:
        """Releases the directory as a killed process would: nothing is flushed or saved."""
        self.log.close()
        self._disk.unlock(self._lock)


def _opened(disk: Disk, root: str, settings: StoreSettings, lock: int) -> Store:
    """In this order: vote, run, abort, log, queues (docs/storage, recovery)."""
    adoption.refuse(disk, root)
    ownfiles.check_lowered(disk, root)
    disk.claim(root)
    own = f"{root}/rmq"
    for directory in (own, f"{root}/commitlog", f"{root}/consumequeue"):
        disk.make_directory(directory)
    run, boot_id = ownfiles.load_run(disk, own), disk.boot_id()
    lost = recovery.may_have_lost(run, boot_id)
    vote = recovery.next_vote(disk, settings, ownfiles.load_vote(disk, own), lost)
    adopted = None
    due = adoption.is_due(disk, root, settings, run)
    if not settings.alone and (due or (run is not None and run.state == ownfiles.ADOPTING)):
        raise StoreError(
            f"Apache RocketMQ wrote in {root}, and this node belongs to a group: run `rmq store adopt {root}` first "
            "(with --config and this node's file, if it has one), then start the other nodes with empty directories"
        )
    if due:
        adopted = adoption.take_over(disk, root, settings, vote.store_id, run)
        vote = vote._replace(proven=adopted.tidy and (vote.proven or run is None))
    current = _run(disk, settings, ownfiles.RUNNING)
    if adopted:
        current = current._replace(state=ownfiles.ADOPTING, visited=adopted.visited, tidy=adopted.tidy)
    elif run is not None and run.state == ownfiles.ADOPTING:  # by a run that did not finish it
        current = current._replace(state=ownfiles.ADOPTING, visited=run.visited, tidy=run.tidy)
    snapshots = Snapshots(disk, own)
    snapshots.drop_unfinished()
    progress = ownfiles.load_progress(disk, own) or recovery.lower_bound(
        disk, own, snapshots.newest, recovery.rolled_to(disk, f"{root}/commitlog")
    )
    ownfiles.save_vote(disk, own, vote)
    # That power was lost stays known until the store is open: it may take several attempts, and several starts.
    ownfiles.save_run(disk, own, current._replace(boot_id=run.boot_id, flush_mode=run.flush_mode) if run and lost else current)
    smallfile.write_file(disk, f"{root}/abort", b"%d" % os.getpid())
    disk.fsync_directory(root)
    if disk.exists(f"{own}/next"):
        disk.unlink(f"{own}/next")
    opened = recovery.open_log(disk, root, settings, None if adopted else run, progress)
    opened = opened._replace(report=opened.report._replace(may_have_lost=lost))
    store = Store(disk, root, settings, lock, vote, opened, snapshots)
    store.adopting, store.adopted = current.state == ownfiles.ADOPTING, adopted
    store.visited, store.tidy = current.visited, current.tidy
    try:
        store.finish_opening(progress)
        reserve.keep(disk, own, settings.reserve_bytes)
        if lost:
            ownfiles.save_run(disk, own, current)
    except BaseException:
        store.log.close()
        raise
    return store


def _run(disk: Disk, settings: StoreSettings, state: str) -> Run:
    return Run(state, disk.boot_id() or "-", settings.flush_mode, os.getpid(), 0, in_group=not settings.alone)


def _known_committed(log: CommitLog, snapshots: Snapshots, saved: int) -> int:
    """A member's committed offset: as saved, or that of its newest snapshot if the log reaches it."""
    newest = snapshots.newest
    exact = newest.s1 if newest and newest.s1 <= log.end else 0
    return min(max(saved, exact, log.start), log.end)
