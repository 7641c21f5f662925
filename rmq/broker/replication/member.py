"""A member of a broker group: feeds events to the state machine (rmq.raft) and carries out its effects, in order.

No network, no loop, no clock: those are the shell's. The live broker and the seeded simulation are two shells of it.
What takes time (fsync of the vote, a cut) may be carried out elsewhere: the shell says so, and events wait meanwhile.
"""

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol

from rmq.errors import BadBytes, StoreError
from rmq.log.files import epochs
from rmq.log.files.epochs import EpochRecord
from rmq.log.replicated import FoundEpoch, ReplicatedLog
from rmq.log.store import Store
from rmq.log.units import Unit
from rmq.model import EpochHistory
from rmq.raft import effects as fx, events as ev, messages as m
from rmq.raft.core import Core
from rmq.raft.identity import Identity, RestoredState, Timing
from rmq.raft.roles import Follower, Leader

DISPATCH_ON = ev.Grown(-2)  # no event of the machine: more of what is committed is to be dispatched
LOG_GREW = ev.Grown(-1)  # the log's end is looked up when its turn comes
LOG_FLUSHED = ev.Flushed(-1)  # so is what is durable: a cut may come before it, and other bytes behind the cut (R7)
DISPATCH_BYTES = 1024 * 1024  # in one turn: a follower that was away learns of many committed megabytes at once
LITTLE_BYTES = 16 * 1024  # when only so much came, perhaps nothing follows
_TOLD_AGAIN = frozenset({ev.Tick, ev.Health, ev.Retained, ev.Follow})  # what is told every so often, whether it is news or not
TRY_AGAIN_S = 30.0  # behind an append that failed: a leader, since it refuses sends meanwhile
FETCH_AGAIN_S = 1.0  # a follower, since the group may need it


class Shell(Protocol):
    """What a member needs of the world around it."""

    def monotonic(self) -> float: ...

    def wall_ms(self) -> int: ...

    def chance(self) -> float:
        """In [0, 1)."""
        ...

    def soon(self, work: Callable[[], None]) -> None:
        """Calls `work` in one of the next turns, after whatever has come in meanwhile."""
        ...

    def await_turn_end(self) -> None:
        """Feeds `TurnEnded` when everything that came in this turn is appended."""
        ...

    def offload(self, work: Callable[[], None], then: Callable[[], None]) -> bool:
        """Carries out `work`. True: it is done; otherwise `then` is called when it is. An error in it ends the node."""
        ...

    def aside(self, asker: str, work: Callable[[], bytes], then: Callable[[bytes], None]) -> None:
        """Calls `then` with what `work` gives, which may take long; events go on meanwhile. `work` raises nothing. `then` may be
        given nothing if the same `asker` has asked again."""
        ...

    def send(self, node: str, request: m.Request) -> None:
        """The answer comes back as `Answered`, with this request."""
        ...

    def reply(self, ticket: m.Ticket, answer: m.Answer) -> None: ...

    def grew(self) -> None:
        """A leader's bytes were appended: flush them."""
        ...

    def committed(self, units: Sequence[Unit]) -> None:
        """Dispatched: apply them, then answer who waits (while `core.lease_good`). What is committed may come in parts."""
        ...

    def replicated(self, offset: int) -> None: ...

    def became_leader(self, epoch: int) -> None:
        """Sends may be taken."""
        ...

    def stepped_down(self, epoch: int, reason: str) -> None:
        """All who wait get "unknown"."""
        ...

    def install_snapshot(self, order: fx.InstallSnapshot) -> None:
        """Fetch the snapshot, then call `install_from` or feed `InstallFailed`."""
        ...

    def done(self, ticket: m.Ticket, refusal: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def fatal(self, reason: str, cause: Exception | None = None) -> None:
        """The node must stop. `cause`: a StoreError where a disk failed, or says other things than before."""
        ...


class Member:
    """`handle` takes events. `core` tells who leads and what may be answered."""

    def __init__(
        self,
        replicated: ReplicatedLog,
        me: Identity,
        peers: m.Voters,
        timing: Timing,
        shell: Shell,
        dispatch_bytes: int = DISPATCH_BYTES,
    ) -> None:
        """`peers`: the voters as configured; they count only while the log names none."""
        store = replicated.store
        lists = replicated.voter_lists()
        store.voters = lists[-1][1] if lists else peers
        vote, log = store.vote, store.log
        restored = RestoredState(
            vote.epoch, vote.voted_for, vote.proven, log.start, log.end, store.dispatcher.position, store.epochs,
            lists or ((-1, peers),), store.ready_at, _newest(store),
        )  # fmt: skip
        self.core = Core(me, restored, timing, shell.chance, shell.monotonic())
        self._replicated = replicated
        self._store: Store = store
        self._log = log
        self._me = me
        self._shell = shell
        self._dispatch_bytes = dispatch_bytes
        self._committed_end = store.dispatcher.position  # dispatch up to here
        self._dispatch_waits = False  # for its next turn
        self._events: deque[ev.Event] = deque()
        self._effects: deque[fx.Effect] = deque()
        self._busy = False
        self._failed_at = -inf  # the last append
        self._does: dict[type, Callable[..., None]] = {
            fx.AppendEpoch: self._append_epoch,
            fx.AppendBytes: self._append_bytes,
            fx.Send: lambda effect: shell.send(*effect),
            fx.Reply: lambda effect: shell.reply(*effect),
            fx.ReplyBytes: self._reply_bytes,
            fx.AwaitTurnEnd: lambda effect: shell.await_turn_end(),
            fx.Commit: self._commit,
            fx.Replicated: lambda effect: shell.replicated(*effect),
            fx.BecameLeader: lambda effect: shell.became_leader(effect.epoch),
            fx.SteppedDown: self._stepped_down,
            fx.InstallSnapshot: self._install_snapshot,
            fx.Done: lambda effect: shell.done(*effect),
            fx.Warn: lambda effect: shell.warn(*effect),
            fx.Fatal: lambda effect: shell.fatal(effect.reason, StoreError(effect.reason)),  # no bug: a disk was set back
        }
        self._works: dict[type, Callable[..., None]] = {
            fx.SaveVote: lambda effect: store.save_vote(*effect),
            fx.Cut: self._cut,
        }
        self._ready_at = store.ready_at  # the tables of a snapshot are ahead of the log until then

    def serves_reads(self, now: float) -> bool:
        """Whether reads may be answered: what `core` wants committed must be applied here, too (R17)."""
        if self._ready_at or not self.core.serves_reads(now):
            return False
        role = self.core.role
        return not isinstance(role, Leader) or self._store.dispatcher.position >= role.start_end

    @property
    def filling(self) -> bool:
        """Whether the tables are ahead of the log, which is being filled up to a leader's snapshot, or will be in a moment."""
        return bool(self._ready_at) or self.core.state.installing

    @property
    def takes_nothing(self) -> bool:
        """Whether the log lately took no bytes: then another node should lead. After a while this one may try again."""
        return self._failed_within(TRY_AGAIN_S)

    @property
    def rests(self) -> bool:
        """Whether the log is not even to be tried: nobody sends this node bytes, or it hands its leadership over."""
        return self._failed_within(TRY_AGAIN_S if isinstance(self.core.role, Leader) else FETCH_AGAIN_S)

    def _failed_within(self, seconds: float) -> bool:
        return self._shell.monotonic() - self._failed_at < seconds

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: ev.Event) -> None:
        """Handles the event now, or as soon as the running effect is done."""
        if self._busy and type(event) in _TOLD_AGAIN and self._waits(event):
            return  # once is enough, however long the effect takes
        self._events.append(event)
        if not self._busy:
            self._busy = True
            self._run()

    def _waits(self, event: ev.Event) -> bool:
        """Whether the newest event of its kind that is not handled yet says the same."""
        return next((one for one in reversed(self._events) if type(one) is type(event)), None) == event

    def append(self, units: Sequence[Unit]) -> None:
        """As leader (`core.accepts()`): raises as `CommitLog.append`, then nothing was."""
        try:
            self._log.append(units, self._shell.wall_ms())
        except StoreError as error:
            self._append_failed(error)
            raise
        self.handle(LOG_GREW)

    def catch_up(self) -> None:
        """Dispatches what is committed and waits for more, because somebody reads here."""
        if self._store.dispatcher.position < self._committed_end and not self._busy:
            self.handle(DISPATCH_ON)

    def flushed(self) -> None:
        self.handle(LOG_FLUSHED)

    def retained(self) -> None:
        """Old segments were deleted, or there is a new snapshot."""
        self.handle(ev.Retained(self._log.start, _newest(self._store)))
        self._store.epochs = self.core.state.epochs

    def _resume(self) -> None:
        """An effect that was carried out elsewhere is done."""
        self._run()

    def _run(self) -> None:
        try:
            self._go_on()
        except Exception as bug:  # no event would be handled any more, while the node looks alive
            self._shell.fatal(f"a step of the group's machine broke off: {bug!r}")
            raise

    def _go_on(self) -> None:
        effects, events = self._effects, self._events
        while True:
            while effects:
                effect = effects.popleft()
                work = self._works.get(type(effect))
                if work is None:
                    self._does[type(effect)](effect)
                elif not self._shell.offload(lambda work=work, effect=effect: work(effect), self._resume):  # type: ignore[misc]
                    return
            if not events:
                self._busy = False
                return
            event = events.popleft()
            if event is DISPATCH_ON:
                self._dispatch_waits = False
                self._dispatch()
                continue
            if event is LOG_GREW:
                event = ev.Grown(self._log.end)
            elif event is LOG_FLUSHED:
                event = ev.Flushed(self._log.durable_end)
            elif type(event) is ev.Tick and self._store.dispatcher.position < self._committed_end:
                self._dispatch()
            effects.extend(self.core.step(event, self._shell.monotonic()))

    def _report(self, event: ev.Event) -> None:
        """The effects of an append come before anything else."""
        self._events.appendleft(event)

    # --- effects ------------------------------------------------------------------------------------------------------

    def _append_epoch(self, effect: fx.AppendEpoch) -> None:
        entry = effect.entry
        found = EpochRecord(
            entry.epoch, entry.start, entry.writer, self._me.node, effect.kind, entry.lossy, effect.voters, effect.epochs
        )  # fmt: skip
        try:
            self._replicated.restore_queue_offsets()
            stood = self._replicated.append_epoch(found, self._shell.wall_ms())
        except StoreError as error:
            self._append_failed(error)
            self._report(ev.AppendFailed(str(error)))
            return
        self._grown((stood,))

    def _append_bytes(self, effect: fx.AppendBytes) -> None:
        try:
            taken = self._replicated.take(*effect)
        except StoreError as error:
            self._append_failed(error)
            self._report(ev.AppendFailed(str(error)))
            return
        self._failed_at = -inf
        self._grown(taken.epochs, taken.bad)
        self._shell.grew()

    def _append_failed(self, error: StoreError) -> None:
        """A log that can take nothing more until the next start ends the node (D4): the group goes on without it."""
        self._failed_at = self._shell.monotonic()
        if self._log.broken:
            self._shell.fatal(self._log.broken, error)

    def _grown(self, found: Sequence[FoundEpoch], bad: str = "") -> None:
        """The store learns the table first: it is saved with whatever is flushed from now on."""
        store = self._store
        for one in found:
            store.epochs = epochs.risen(store.epochs, one.record.entry())
            store.voters = one.record.voters
        marks = tuple(ev.EpochMark(one.start, one.record.entry(), one.record.kind, one.record.voters) for one in found)
        self._report(ev.Grown(self._log.end, marks, bad))

    def _cut(self, effect: fx.Cut) -> None:
        self._replicated.cut(effect.to, effect.epochs, effect.keep)
        self._store.voters = self.core.state.voters

    def _reply_bytes(self, effect: fx.ReplyBytes) -> None:
        """A leader reads what is not in memory apart: a follower that was away must not hold up everybody else. What was read
        says nothing once it does not lead any more, since only then its log may be cut (R2)."""
        answer = effect.answer
        if not isinstance(self.core.role, Leader) or answer.from_ >= self._log.tail.start:
            self._shell.reply(effect.ticket, answer._replace(data=self._bytes_for(effect, self._replicated.read)))
            return

        def give(data: bytes) -> None:
            leads = isinstance(self.core.role, Leader) and self.core.state.epoch == answer.epoch
            self._shell.reply(effect.ticket, answer._replace(data=data) if leads else m.NotLeader(self.core.state.epoch, ""))

        self._shell.aside(effect.asker, lambda: self._bytes_for(effect, self._replicated.read_apart), give)

    def _bytes_for(self, effect: fx.ReplyBytes, read: Callable[[int, int], bytes]) -> bytes:
        try:
            return read(effect.answer.from_, effect.max_bytes)
        except (StoreError, BadBytes) as error:
            self._shell.warn(f"{error}: a follower that needs these bytes must wait")
            return b""

    def _commit(self, effect: fx.Commit) -> None:
        self._committed_end = effect.hw
        if not self._more_will_come():
            self._dispatch(whole=isinstance(self.core.role, Follower))

    def _more_will_come(self) -> bool:
        """Many records together cost less: a follower lets few of them wait for more, for the next tick, or for a reader
        (`catch_up`), while the leader goes on sending."""
        waiting = self._committed_end - self._store.dispatcher.position
        if waiting >= self._dispatch_bytes or not isinstance(self.core.role, Follower):
            return False
        return self._committed_end < self._log.end or waiting >= LITTLE_BYTES

    def _dispatch(self, whole: bool = False) -> None:
        """Dispatches a part at a time, so that a vote need not wait for all of it. `whole`: but no part of an answer."""
        dispatcher, to = self._store.dispatcher, self._committed_end
        if whole:
            to = self._log.taken.whole(dispatcher.position, to)
        enough = dispatcher.position + self._dispatch_bytes
        units = dispatcher.advance(to, self._dispatch_bytes)
        if self._ready_at and dispatcher.position >= self._ready_at:
            self._ready_at = 0
            self._store.restore_counters()
        self._shell.committed(units)
        more = enough <= dispatcher.position < self._committed_end and not self._more_will_come()
        if more and not self._dispatch_waits:
            self._dispatch_waits = True
            self._shell.soon(lambda: self.handle(DISPATCH_ON))

    def _stepped_down(self, effect: fx.SteppedDown) -> None:
        self._log.end_epoch()
        self._shell.stepped_down(effect.epoch, effect.reason)

    def _install_snapshot(self, effect: fx.InstallSnapshot) -> None:
        if effect.keep_from >= 0:
            self._replicated.keep(effect.keep_from)
        self._shell.install_snapshot(effect)

    def install_from(self, log_start: int, s1: int, history: EpochHistory, voters: m.Voters, place: Callable[[], None]) -> None:
        """The leader's snapshot is here (`place` puts it there): the log begins anew at `log_start`. Raises RmqError."""
        self._replicated.reset(log_start, history, voters, place)
        self._committed_end = log_start
        self._ready_at = s1
        self.handle(ev.SnapshotInstalled(log_start, history, voters, s1))
        self.handle(ev.Retained(log_start, _newest(self._store)))


def _newest(store: Store) -> tuple[int, int] | None:
    snapshot = store.snapshots.newest
    return (snapshot.s0, snapshot.s1) if snapshot else None
