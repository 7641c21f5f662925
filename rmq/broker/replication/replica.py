"""The leader's side of the log: what a loop turn proposes is appended together, what is committed comes out in order.

Standing alone (fixed mode without a slave, docs/storage): the committed offset is this node's own acknowledgement, the
end of the log under asynchronous flush, its durable end under synchronous flush. Everything that sees records (queues,
tables, waiters, long polls) sees committed ones only, and a waiter is answered after dispatch, never before.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from rmq.broker.replication.flusher import Flusher
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.errors import PerhapsStored, Refusal, RmqError, StoreError
from rmq.log.commitlog import CommitLog, Unit
from rmq.log.dispatch import Dispatcher

log = logging.getLogger("rmq.replica")

MAX_UNCOMMITTED_BYTES = 64 * 1024 * 1024
SYNC_FLUSH_TIMEOUT_S = 5.0


Waiter = tuple[Callable[[Any, Unit, RmqError | None, int], None], Any]
"""Who waits for a unit: `function, argument`. Called once as function(argument, unit, error, late): committed (no error),
stored but flushed or copied late (code 10, 11 or 12), or failed. A tuple because one is made for every message."""


class Replica:
    """`on_committed(units, stored_ms)` gets the units of each advance, in log order, before their waiters are answered."""

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        clock: Clock,
        sync_flush: bool,
        on_committed: Callable[[Sequence[Unit], int], None],
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._clock = clock
        self._sync_flush = sync_flush
        self._on_committed = on_committed
        self._burst: list[Unit] = []
        self._unflushed: deque[tuple[float, list[Unit]]] = deque()
        self._failure: StoreError | None = None
        self._full = ("", "")  # why sends, and why state records, are refused
        self._checked = False  # in this turn
        self._trouble = ""
        self.committed_end = log.durable_end
        self.flusher = Flusher(log, clock, 0.5, self._flushed, self._flush_failed)

    def start(self) -> None:
        """Takes over what the log appended by itself when it began its epoch, and starts flushing."""
        self.flusher.start()
        self._advance(self._log.end)

    def propose(self, unit: Unit) -> None:
        """Append `unit` with everything else this loop turn brings; `unit.owner` (a Waiter or None) hears what became of it.

        More records may be added to it as long as it is open, which is at most to the end of the turn.
        Raises Refusal SYSTEM_BUSY when too much is uncommitted, SERVICE_NOT_AVAILABLE after a failed flush: not stored.
        """
        if not self._checked:
            self._check_room(self._full[0])
            self._checked = True
            self._begin_burst()
        self._burst.append(unit)

    def propose_state(self, unit: Unit) -> None:
        """As `propose`, for the broker's own records: they still go when the disk is too full for messages."""
        self._check_room(self._full[1])
        self._begin_burst()
        self._burst.append(unit)

    def refuse(self, sends: str, everything: str) -> None:
        """From now on `propose` (and `propose_state`) refuse for that reason; "" ends it."""
        self._full = (sends, everything)

    @property
    def full(self) -> bool:
        """Whether the disk has no room for anything more."""
        return bool(self._full[1])

    # --- what an elected member does otherwise (`.elected`) ----------------------------------------------------

    def _write(self, units: Sequence[Unit]) -> None:
        self._log.append(units, self._clock.wall_ms())

    def _appended(self, burst: list[Unit]) -> None:
        if self._sync_flush:
            self._unflushed.append((self._clock.monotonic() + SYNC_FLUSH_TIMEOUT_S, burst))
            self.flusher.ask()
        else:
            self.flusher.appended()
            self._advance(self._log.end)

    def _check_office(self) -> None:
        """Raises Refusal if this node may not append now."""

    # --- a turn's burst -----------------------------------------------------------------------------------------------

    def _begin_burst(self) -> None:
        if not self._burst:
            asyncio.get_running_loop().call_soon(self._append)

    def _check_room(self, full: str) -> None:
        """Once a turn: what one turn brings is bounded by the connections' limits."""
        self._check_office()
        if full:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"not stored: {full}")
        if self._failure is not None:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"this broker stopped writing: {self._failure}")
        if self._log.end - self.committed_end > MAX_UNCOMMITTED_BYTES:
            raise Refusal(ResponseCode.SYSTEM_BUSY, "64 MiB are waiting to be committed: send slower, or look at the disk")

    def _append(self) -> None:
        burst, self._burst, self._checked = self._burst, [], False
        for unit in burst:
            unit.open = False
        try:
            self._write(burst)
        except Refusal:
            burst = self._append_one_by_one(burst)
        except StoreError as error:
            self._tell_trouble(str(error))
            _refuse(burst, error)
            return
        if not burst:
            return
        self._tell_trouble("")
        self._appended(burst)

    def _tell_trouble(self, trouble: str) -> None:
        """A disk that takes nothing is worth one line, and so is its recovery, not one for each send (D14)."""
        if trouble and not self._trouble:
            log.error("%s; sends are refused until it is well", trouble)
        elif self._trouble and not trouble:
            log.warning("the disk takes records again")
        self._trouble = trouble

    def _append_one_by_one(self, burst: list[Unit]) -> list[Unit]:
        """One unit of the burst fits no segment: it alone is refused. Returns the others."""
        stored = []
        for unit in burst:
            try:
                self._write([unit])
            except (StoreError, Refusal) as error:
                _refuse([unit], error)
            else:
                stored.append(unit)
        return stored

    def _flushed(self) -> None:
        if self._sync_flush:
            self._advance(self._log.durable_end)
            while self._unflushed and self._unflushed[0][1][-1].end <= self.committed_end:
                self._unflushed.popleft()

    def _flush_failed(self, error: StoreError) -> None:
        self._failure = error
        unknown = Refusal(ResponseCode.SYSTEM_ERROR, f"outcome unknown: {error}")
        for _, burst in self._unflushed:
            answer(burst, unknown)
        self._unflushed.clear()

    def _advance(self, offset: int) -> None:
        self.committed_end = offset
        try:
            units = self._dispatcher.advance(offset)
            self._on_committed(units, self._log.last_stored_ms)
            answer(units, None)
        except Exception as bug:  # half of a turn is done: nobody may go on from there
            raise AssertionError(f"applying committed records broke off: {bug!r}") from bug

    def answer_late(self) -> None:
        """Stored in memory, not on disk within syncFlushTimeout: the producer hears FLUSH_DISK_TIMEOUT (10)."""
        now = self._clock.monotonic()
        for deadline, burst in self._unflushed:
            if deadline > now:
                return
            answer(burst, None, ResponseCode.FLUSH_DISK_TIMEOUT)


def _refuse(units: Sequence[Unit], error: StoreError | Refusal) -> None:
    """Nothing of these was stored, or nobody knows."""
    if isinstance(error, PerhapsStored):
        error = Refusal(ResponseCode.SYSTEM_ERROR, f"outcome unknown: {error}")
    answer(units, error if isinstance(error, Refusal) else Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)))


def answer(units: Sequence[Unit], error: RmqError | None, late: int = 0) -> None:
    for unit in units:
        waiter = cast("Waiter | None", unit.owner)
        if waiter is not None:
            unit.owner = None
            waiter[0](waiter[1], unit, error, late)
