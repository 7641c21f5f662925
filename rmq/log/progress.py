"""Saves how far everything is durable, in an order that is true after a crash between any two steps (D11).

Knows the log, its queues and our small files; the caller decides when to save. In any thread, one at a time.
"""

from collections.abc import Callable
from struct import Struct
from threading import Lock

from rmq.errors import StoreError
from rmq.log.commitlog import CommitLog
from rmq.log.files import ownfiles, smallfile
from rmq.log.files.disk import Disk, remedy
from rmq.log.files.epochs import EpochHistory
from rmq.log.files.ownfiles import Progress, QueueRow
from rmq.log.index.indexed import Indexed
from rmq.log.queues.queues import ConsumeQueues
from rmq.staged import Between

_CHECKPOINT = Struct(">qqqqqq")
_CHECKPOINT_BYTES = 4096


def queue_rows(queues: ConsumeQueues, between: Between = iter) -> list[QueueRow]:
    """What is durable of each queue, in no order: sorting 10 000 of them would keep the interpreter from the loop for 20 ms."""
    return [
        QueueRow(queue.topic, queue.queue_id, queue.min, queue.flushed)
        for queue in between(queues.all())
        if queue.flushed > queue.min or queue.min
    ]


class Saved:
    """What `progress`, `queues`, `epochs` and RocketMQ's `checkpoint` say."""

    def __init__(self, disk: Disk, root: str, log: CommitLog, queues: ConsumeQueues, indexed: Indexed) -> None:
        self._disk = disk
        self._root = root
        self._own = f"{root}/rmq"
        self._log = log
        self._queues = queues
        self._indexed = indexed
        self._queues_ms = 0  # store time of a record up to which the queues' files surely are (D11)
        self._rows: list[QueueRow] | None = None
        self._epochs: EpochHistory = ()
        self._saving = Lock()
        self.awaited = False  # somebody waits for the end of a save
        self.trouble = ""  # why the last save failed, "" if it did not: meanwhile entries of queues stay in memory
        self.settled_ms = 0  # as of `Progress`

    def save(
        self, position: Callable[[], int], most: int = 0, between: Between = iter, enough: Callable[[], bool] | None = None
    ) -> bool:
        """Flushes log and queues, then says so. `position()`: up to where the queues hold everything. Raises StoreError.

        `most`: queues that are flushed, 0: all. `between`: for a thread that rests. `enough()`: whether it is to end early; who
        gives it lets it end, too, when somebody waits for its end. False if some queues are left: `progress` says then from where
        the log is to be dispatched again.
        """
        early = None if enough is None else lambda: self.awaited or enough()
        with self._saving:
            try:
                complete = self._save(position(), most, between, early)
            except StoreError as error:
                self.trouble = str(error)
                raise
            self.trouble = ""
            return complete

    def _save(self, position: int, most: int, between: Between, enough: Callable[[], bool] | None) -> bool:
        self._log.flush()  # before entries of a topic made anew reach the files: the deletion before it must be durable
        left = self._queues.flush(most, between, enough)
        rows = queue_rows(self._queues, between)
        self._indexed.flush()
        durable = self._log.flush()  # and before rows are saved that lack a deleted topic
        stored_ms = self._log.durable_stored_ms
        try:
            if self._log.epochs != self._epochs:
                self.save_epochs(durable)
            if rows != self._rows:
                ownfiles.save_queues(self._disk, self._own, rows, between)
                self._rows = rows
            self._indexed.save()
            done = min(position, durable)
            queued = done if left is None else min(done, left)
            said = Progress(durable, done, queued, stored_ms, self._indexed.to, self.settled_ms)
            ownfiles.save_progress(self._disk, self._own, said)
            self._save_checkpoint(stored_ms, queued)
        except OSError as error:
            raise StoreError(f"cannot save progress in {self._own}: {remedy(error, 'free space or repair the disk')}") from error
        return left is None

    def save_epochs(self, checked_to: int) -> None:
        """Saves the epoch history below `checked_to`; `progress` never passes that. Raises OSError."""
        history = self._log.epochs
        ownfiles.save_epochs(self._disk, self._own, history, checked_to)
        self._epochs = history

    def rewind(self, to: int, history: EpochHistory, shorten: Callable[[], None]) -> None:
        """`shorten` takes everything behind `to` from the log, then `history` is the epoch history. Raises StoreError.

        First `progress` says no more than `to`, last the epochs are saved: a crash anywhere leaves a valid prefix of the
        old log (stories 2, 65). Nobody saves progress meanwhile.
        """
        self.awaited = True
        with self._saving:
            self.awaited = False
            try:
                known = ownfiles.load_progress(self._disk, self._own)
                if known is not None and known.log > to:
                    self.settled_ms = known.settled_ms if to >= known.hw else 0
                    done = min(known.hw, to), min(known.cq, to)
                    lower = Progress(to, *done, known.stored_ms, min(known.indexed, to), self.settled_ms)
                    ownfiles.save_progress(self._disk, self._own, lower)
                shorten()
                self._log.epochs = history
                self.save_epochs(self._log.end)
            except OSError as error:
                about = f"cannot shorten the log in {self._root}: {remedy(error, 'repair the disk and restart')}"
                raise StoreError(about) from error

    def _save_checkpoint(self, stored_ms: int, position: int) -> None:
        """For Apache RocketMQ [StoreCheckpoint]; never read here. Only times of flushed records (D11)."""
        if position >= self._log.durable_end:
            self._queues_ms = stored_ms
        data = _CHECKPOINT.pack(stored_ms, self._queues_ms, self._indexed.full_ms, 0, 0, position).ljust(_CHECKPOINT_BYTES, b"\0")
        smallfile.write_file(self._disk, f"{self._root}/checkpoint.new", data)
        self._disk.rename(f"{self._root}/checkpoint.new", f"{self._root}/checkpoint")
