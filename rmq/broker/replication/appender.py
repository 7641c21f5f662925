"""The leader's side of the log: what a turn of the loop proposes is appended together, once.

When it is committed, and who may append, is a policy: `alone` for a node that no other node follows, `elected` for a member of a
group. Everything that sees records (queues, tables, waiters, long polls) sees committed ones only, and a waiter is answered
after dispatch. Only a sender may hear right before it where its message is: the loop does nothing else between the two, so he
finds it in its queue all the same.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rmq.broker.replication.latencies import Latencies
from rmq.codes import ResponseCode
from rmq.errors import PerhapsStored, Refusal, RmqError, StoreError
from rmq.log.commitlog import CommitLog
from rmq.log.files.segment import FILLER
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.units import Unit

log = logging.getLogger("rmq.replica")

MAX_UNCOMMITTED_BYTES = 64 * 1024 * 1024

Waiter = tuple[Callable[[Any, Unit, RmqError | None, int], None], Any]
"""Who waits for a unit: `function, argument`. Called once as function(argument, unit, error, late): committed (no error),
stored but flushed or copied late (code 10, 11 or 12), or failed. A tuple because one is made for every message."""


class Policy(Protocol):
    """Decides when appended bytes are committed. `committed_end`: everything below it is."""

    committed_end: int

    def check(self) -> None:
        """Raises Refusal if this node may not append now."""

    def check_state(self) -> None:
        """Raises Refusal if this node may not change tables now."""

    def write(self, units: Sequence[Unit]) -> None:
        """Appends all units, or none. Raises StoreError, Refusal."""

    def appended(self, units: Sequence[Unit]) -> None:
        """The units are in the log: commit them, then answer their waiters."""


class Turn(Protocol):
    """Of the loop, and of the server whose senders wait."""

    def at_turn_end(self, work: Callable[[], None]) -> None:
        """Calls `work` behind everything that is ready to run now."""

    def write(self) -> None:
        """Writes what is answered."""


class LoopTurn:
    """Where no server is."""

    def at_turn_end(self, work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(work)

    def write(self) -> None:
        return


class Appender:
    """Nobody asks which `policy` it has. Each queue counts what came, for metrics. `turn`: of the server, if there is one."""

    def __init__(self, log: CommitLog, policy: Policy, latencies: Latencies) -> None:
        self._log = log
        self._policy = policy
        self.latencies = latencies
        self.turn: Turn = LoopTurn()
        self._burst: list[Unit] = []
        self._full = ("", "", "")  # why sends, why state records, and why those that make room are refused
        self._makes_room = 0  # so many are at it
        self._checked = False  # in this turn
        self._trouble = ""
        self._watched: dict[ConsumeQueue, list[Unit]] = {}

    @property
    def max_unit_bytes(self) -> int:
        """The most that one record, or batch, may take."""
        return self._log.max_unit_bytes

    @property
    def committed_end(self) -> int:
        """Everything below is committed, dispatched and applied."""
        return self._policy.committed_end

    def propose(self, unit: Unit) -> None:
        """Append `unit` with everything else this loop turn brings; `unit.owner` (a Waiter or None) hears what became of it.

        More records may be added to it as long as it is open, which is at most to the end of the turn.
        Raises Refusal SYSTEM_BUSY when too much is uncommitted, SERVICE_NOT_AVAILABLE after a failed flush: not stored.
        """
        if not self._checked:
            self._check_room(self._full[0])
            self._checked = True
        if not self._burst:
            self.turn.at_turn_end(self._append)
        self._burst.append(unit)

    def propose_state(self, unit: Unit) -> None:
        """As `propose`, for the broker's own records: they still go when the disk is too full for messages."""
        self._policy.check_state()
        _, everything, making_room = self._full
        self._check_room(making_room if everything and self._makes_room and self._fits(unit) else everything)
        if not self._burst:
            self.turn.at_turn_end(self._append)
        self._burst.append(unit)

    def watch(self, queues: Iterable[ConsumeQueue]) -> None:
        """From now on what is appended for these queues, and no others, is noted for `came`."""
        self._watched = {queue: [] for queue in queues}

    def came(self, queue: ConsumeQueue) -> list[Unit]:
        """What was appended for a watched queue since this was last asked, and what this turn has brought for it so far. What
        comes later is stored behind what is proposed next, also where it would have gone to one of these."""
        appended, self._watched[queue] = self._watched[queue], []
        brought = [unit for unit in self._burst if unit.queue is queue]
        for unit in brought:
            unit.open = False
        return appended + brought

    def refuse(self, sends: str, everything: str, making_room: str) -> None:
        """From now on `propose`, `propose_state`, and that in `making_room`, refuse for these reasons; "" ends it."""
        self._full = (sends, everything, making_room)

    @contextmanager
    def making_room(self) -> Iterator[None]:
        """Meanwhile state records go though the disk is too full for anything: with them old files can be deleted. They take none
        of its room, only what is left in the log's last file, which is allocated."""
        self._makes_room += 1
        try:
            yield
        finally:
            self._makes_room -= 1

    @property
    def full(self) -> bool:
        """Whether the disk has no room for anything more."""
        return bool(self._full[1])

    @property
    def trouble(self) -> str:
        """Why the last burst was not stored; "" if it was."""
        return self._trouble

    # --- a turn's burst -----------------------------------------------------------------------------------------------

    def _fits(self, unit: Unit) -> bool:
        """Into the log's last file, behind what this turn has brought."""
        return sum(one.size for one in self._burst) + unit.size + FILLER.size <= self._log.segments()[-1].end - self._log.end

    def _check_room(self, full: str) -> None:
        """Called once a turn. The connections' limits bound what one turn brings."""
        self._policy.check()
        if full:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"not stored: {full}")
        if self._log.end - self._policy.committed_end > MAX_UNCOMMITTED_BYTES:
            raise Refusal(ResponseCode.SYSTEM_BUSY, "64 MiB are waiting to be committed: send slower, or look at the disk")

    def behind_this_turn(self, work: Callable[[], None]) -> None:
        """Calls `work` when everything that this turn of the loop brings is appended."""
        self.turn.at_turn_end(self._append)
        self.turn.at_turn_end(work)

    def _append(self) -> None:
        if not self._burst:
            return
        burst, self._burst, self._checked = self._burst, [], False
        for unit in burst:
            unit.open = False
        timed = self.latencies.begin(burst)
        try:
            self._policy.write(burst)
            self.latencies.appended(timed)
        except Refusal:
            self.latencies.drop(timed)
            burst = self._append_one_by_one(burst)
        except StoreError as error:
            self.latencies.drop(timed)
            self._tell_trouble(str(error))
            _refuse(burst, error)
            return
        if not burst:
            return
        if self._trouble:
            self._tell_trouble("")
        for unit in burst if self._watched else ():
            if unit.queue in self._watched:
                self._watched[unit.queue].append(unit)
        self._policy.appended(burst)
        for unit in burst:
            unit.queue.came += unit.inner or len(unit.sizes)
            unit.queue.came_bytes += unit.size

    def _tell_trouble(self, trouble: str) -> None:
        """A disk that takes nothing is worth one log line, and so is its recovery, not one for each send (D14)."""
        if trouble and not self._trouble:
            log.error("%s; sends are refused until it is well", trouble)
        elif self._trouble and not trouble:
            log.warning("the disk takes records again")
        self._trouble = trouble

    def _append_one_by_one(self, burst: list[Unit]) -> list[Unit]:
        """Refuses a unit that fits no segment, alone of its burst. Returns the others."""
        stored = []
        for unit in burst:
            try:
                self._policy.write([unit])
            except (StoreError, Refusal) as error:
                _refuse([unit], error)
            else:
                stored.append(unit)
        return stored


def _refuse(units: Sequence[Unit], error: StoreError | Refusal) -> None:
    """None of these units was stored, or nobody knows."""
    if isinstance(error, PerhapsStored):
        error = Refusal(ResponseCode.SYSTEM_ERROR, f"outcome unknown: {error}")
    answer(units, error if isinstance(error, Refusal) else Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)))


def answer(units: Sequence[Unit], error: RmqError | None, late: int = 0) -> None:
    """Tells the owners of these units what became of them. `late`: the code of what did not come in time."""
    if error is None:
        tell_senders(units, late)
    tell_others(units, error, late)


def tell_senders(units: Sequence[Unit], late: int = 0) -> None:
    """Answers those who only want to know where their messages are."""
    together, tell = list[Unit](), None
    for unit in units:
        if unit.tells is not None and unit.owner is not None:
            tell = unit.tells
            together.append(unit)
    if tell is not None:
        tell(together, late)


def tell_others(units: Sequence[Unit], error: RmqError | None, late: int = 0) -> None:
    for unit in units:
        waiter: Waiter | None = unit.owner
        if waiter is not None:
            unit.owner = None
            waiter[0](waiter[1], unit, error, late)
