"""A store's index: opens it from its files, saves how far it is, and finishes it at a stop."""

import logging

from rmq.errors import BadBytes, StoreError
from rmq.log.commitlog import CommitLog
from rmq.log.files import ownfiles, reserve
from rmq.log.files.disk import Disk
from rmq.log.index.index import Index, LastRun, delete_files
from rmq.log.index.indexfile import Shape
from rmq.log.settings import StoreSettings

MAX_LAST_BYTES = 256 * 1024 * 1024  # of the log, which a stop may still enter
_LOG = logging.getLogger(__name__)


class Indexed:
    """`index`: None when it is switched off. `to`: what `progress` says of it, durable after `save`."""

    def __init__(self, disk: Disk, root: str, settings: StoreSettings, log: CommitLog) -> None:
        self.index: Index | None = None
        self.to = 0
        self._disk = disk
        self._directory = f"{root}/index"
        self._own = f"{root}/rmq"
        self._reserved = settings.reserve_bytes > 0
        self._shape = Shape(settings.index_slots, settings.index_entries)
        self._log = log
        self._saved: LastRun | None = None
        self._flushed: LastRun | None = None
        self._trouble = ""

    def open(self, to: int, tidy: bool) -> None:
        """Opens an index that holds records below `to`; callers of `index.advance` enter the rest later.

        Without an index the old files go: nobody would notice the hole in them. Raises StoreError, OSError.
        """
        if not self._shape.slots:
            delete_files(self._disk, self._directory)
            return
        self._saved = LastRun(ownfiles.load_index(self._disk, self._own), to, tidy)
        self.to = to
        self._log.laid.wanted = True
        self.index = Index(self._disk, self._directory, self._shape, self._log, self._saved)

    def flush(self) -> None:
        """Makes it durable, as far as it is. What cannot be is entered again by the next run: on a full disk, where the store has
        given back its reserve, the index neither holds up who must save how far the log is, nor takes the room for it."""
        if self.index is None or (self._reserved and not reserve.is_kept(self._disk, self._own)):
            self._flushed = None
            return
        trouble, self._flushed = "", None
        try:
            self._flushed = self.index.flush()
        except StoreError as error:
            trouble = str(error)
        if trouble and not self._trouble:
            _LOG.warning("queries by key miss the newest messages after a restart, until they are entered again: %s", trouble)
        self._trouble = trouble

    def save(self) -> None:
        """Saves the names of its files, before `progress` speaks of them. The log is durable that far. Raises OSError."""
        flushed = self._flushed
        if flushed is not None:
            if self._saved is None or flushed.rows != self._saved.rows:
                ownfiles.save_index(self._disk, self._own, flushed.rows or ())
            self._saved, self.to = flushed, flushed.to

    def finish(self, end: int) -> None:
        """At a stop: enters what is missing below `end`, unless it is so much that the next run should do it."""
        index, wall_ms = self.index, self._log.last_stored_ms
        if index is None:
            return
        try:
            index.advance(self._log.start, wall_ms)
            while end - MAX_LAST_BYTES <= index.position < end:
                index.advance(end, wall_ms)
        except (StoreError, BadBytes) as error:
            _LOG.warning("the index is not complete; the next run goes on with it: %s", error)
        except Exception:
            _LOG.exception("the index is not complete; the next run goes on with it. This is a bug, please report it")
        if index.position < 0:
            self.to = (
                0  # nobody has looked at the files: the next run must not take them for those of a run that stopped in order
            )

    @property
    def full_ms(self) -> int:
        """End time of the newest full file, for RocketMQ's checkpoint."""
        return self.index.full_ms if self.index else 0

    def reset(self) -> None:
        """The log was emptied (`Index.reset`)."""
        self.to, self._flushed = 0, None
        if self.index is not None:
            self.index.reset()

    def delete_before(self, start: int) -> None:
        """The log begins at `start`, durably. Raises OSError."""
        if self.index is not None:
            self.index.delete_before(start)
