"""How a member of a group appends and commits: the live shell of `member`.

Only the leader accepts sends. The group commits them, and they are answered while a majority certainly follows this
leader (R11). The state machine decides about reads.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from rmq.broker.replication.appender import Appender, answer
from rmq.broker.replication.filework import FileWork
from rmq.broker.replication.flusher import Flusher
from rmq.broker.replication.latencies import Latencies
from rmq.broker.replication.measured import slaves_are_there
from rmq.broker.replication.member import Member, Shell
from rmq.broker.replication.peers import Peers
from rmq.broker.replication.peerwire import encode_answer
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.errors import NotLeading, Refusal, StoreError
from rmq.log.store import Store
from rmq.log.units import Unit
from rmq.net.transport.server import Call
from rmq.raft import effects as fx, events as ev, messages as m
from rmq.raft.roles import Candidate, Leader

log = logging.getLogger("rmq.elected")

SUCCESSOR_S = 2.0  # a node that stops waits so long for the next leader
ANSWER_WITHIN_S = 5.0  # a send that is not committed by then has an unknown outcome


class LeadershipEvents(Protocol):
    """What the rest of the broker does when records are committed, and when this node's place in the group changes."""

    def committed(self, units: Sequence[Unit], stored_ms: int, /) -> None:
        """The units of each advance, in log order, before their waiters are answered."""
        ...

    def leader_ready(self) -> None:
        """As leader: everything of earlier epochs is committed and applied; tables may be changed, routes told."""
        ...

    def leadership_lost(self) -> None:
        """Leadership is lost: whatever was not committed is forgotten."""
        ...

    def log_replaced(self) -> None:
        """The log began anew from the leader's snapshot: the tables are to be read again."""
        ...

    def registration_changed(self) -> None:
        """This node has another broker id, or other nodes may lead after it: nameservers have to know."""
        ...


class ElectedReplica:
    """An `appender.Policy`. `make_member(shell)`: the machine, whose shell this is."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        latencies: Latencies,
        events: LeadershipEvents,
        peers: Peers,
        make_member: Callable[[Shell], Member],
        fetch_snapshot: Callable[[fx.InstallSnapshot], None],
    ) -> None:
        self._log = store.log
        self._clock = clock
        self._on_committed = events.committed
        self._dispatcher = store.dispatcher
        self.committed_end = store.dispatcher.position
        self.latencies = latencies
        self.appender = Appender(store.log, self, self.latencies)
        self.flusher = Flusher(store.log, clock, 0.5, self._flushed, self._file_failed, self.latencies.fsync)
        self._events = events
        self._fetch_snapshot = fetch_snapshot
        self._waiting: deque[tuple[float, Unit]] = deque()
        self._leader_ready = False
        self._replicated: int | None = None  # fixed roles, SYNC_MASTER: what enough nodes have
        self._ticking: asyncio.Task[None] | None = None
        self.files = FileWork(clock, self._file_failed)
        self._leader_addresses: dict[str, str] = {}
        self._stopped = False
        self._peers = peers
        self._member = make_member(self)
        self._sync_flush = self._member.core.state.me.sync_flush

    # --- what the broker asks -----------------------------------------------------------------------------------------

    @property
    def member(self) -> Member:
        return self._member

    @property
    def leader_ready(self) -> bool:
        """Whether this node leads and all of earlier epochs is applied."""
        return self._leader_ready

    @property
    def leader_address(self) -> str:
        """Where clients reach the leader; "" if nobody knows."""
        return self._leader_addresses.get(self._member.core.leader, "")

    @property
    def role(self) -> str:
        role = self._member.core.role
        return "leader" if isinstance(role, Leader) else "candidate" if isinstance(role, Candidate) else "follower"

    def note_leader(self, node: str, address: str) -> None:
        self._leader_addresses[node] = address

    def check_reads(self) -> None:
        """Raises Refusal if this node may not answer reads now (R17, R19)."""
        if not self._member.serves_reads(self.monotonic()):
            raise NotLeading("this node may not answer reads now: ask again, or another one", self.leader_address)

    def not_current(self) -> NotLeading:
        return NotLeading("this node may not know the newest policies: ask again, or another one", self.leader_address)

    def check_accepts(self) -> None:
        """Raises Refusal if this node takes no sends now."""
        if not self._leader_ready:
            self.check()

    def check_leads(self) -> None:
        """Raises Refusal if this node may not change tables now."""
        if not self._leader_ready or not self._member.core.accepts():
            raise self.not_leader()

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.flusher.start()
        self._ticking = asyncio.create_task(self._tick(), name="group-ticks")

    async def hand_over(self) -> None:
        """Called before a stop: hands leadership over, so that nobody waits for an election. Takes a few seconds at most."""
        core = self._member.core
        self._member.handle(ev.Stop())
        if not core.leads() or len(core.state.voters) < 2:
            return
        if refusal := await self._transfer() and await self._transfer():  # the first one asked may just be stopping too
            log.warning("leadership could not be handed over: %s", refusal)
            return
        until = self.monotonic() + SUCCESSOR_S
        while core.leader in ("", core.state.me.node) and self.monotonic() < until:
            await self._clock.sleep(0.02)  # the successor needs this node's vote
            if not self._peers.reach_any():
                return

    async def _transfer(self) -> str:
        """Why leadership could not be handed over; "" when it was. A node that waits for room handles nothing meanwhile."""
        handed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._member.handle(ev.Transfer("", handed))
        while not handed.done() and not self.files.unsaved:
            await self._clock.sleep(0.02)
        return self.files.unsaved or handed.result()

    async def stop(self) -> None:
        """After this no request is answered any more."""
        self._stopped = True
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        await self.files.stop()
        await self._peers.close()
        await self.flusher.stop()

    def hurry(self) -> None:
        """The next tick may be due earlier than it was."""
        if self._ticking is not None and not self._stopped:
            self._ticking.cancel()
            self._ticking = asyncio.create_task(self._tick(), name="group-ticks")

    async def _tick(self) -> None:
        while True:
            now = self.monotonic()
            await self._clock.sleep(max(0.0, self._member.core.wake_at(now) - now))
            for node in self._peers.arriving():
                self._member.handle(ev.Arriving(node))
            self._member.handle(ev.Tick())
            try:
                self._release()
            except Exception as bug:
                self.fatal(f"answering senders broke off: {bug!r}")
                raise

    # --- appending ----------------------------------------------------------------------------------------------------

    def check_state(self) -> None:
        self.check_leads()

    def check(self) -> None:
        if not self._member.core.accepts():
            raise self.not_leader()

    def not_leader(self, here_too: bool = False) -> NotLeading:
        core = self._member.core
        hint = "" if core.leader == core.state.me.node else self.leader_address  # while leadership changes hands
        where = f"the leader is {hint}" if hint else "no leader is known yet; try again"
        return NotLeading(f"not stored: this node does not lead its group now; {where}", hint, here_too)

    def write(self, units: Sequence[Unit]) -> None:
        self.check()
        until, known = self.monotonic() + ANSWER_WITHIN_S, len(self._waiting)
        self._waiting.extend((until, unit) for unit in units)
        try:
            self._member.append(units)
        except (StoreError, Refusal):
            while len(self._waiting) > known:
                self._waiting.pop()
            raise

    def appended(self, units: Sequence[Unit]) -> None:
        if self._sync_flush:
            self.flusher.ask()
        else:
            self.flusher.appended()

    def answer_late(self) -> None:
        """Answers late sends, and forgets them: nobody knows their outcome. With fixed roles they are stored here."""
        now, fixed, told = self.monotonic(), self._member.core.state.me.fixed, 0
        missing = fixed and not slaves_are_there(self._member.core, now)
        while self._waiting:
            until, unit = self._waiting[0]
            stored = fixed and 0 <= unit.end <= self.committed_end
            if until > now and not (stored and missing):
                break
            self._waiting.popleft()
            if stored:
                told = unit.end
                answer([unit], None, ResponseCode.SLAVE_NOT_AVAILABLE if missing else ResponseCode.FLUSH_SLAVE_TIMEOUT)
            elif fixed:
                answer([unit], None, ResponseCode.FLUSH_DISK_TIMEOUT)
            else:
                answer([unit], Refusal(ResponseCode.SYSTEM_ERROR, "outcome unknown: the group did not commit it in time"))
        self.latencies.committed(told)

    def _release(self) -> None:
        """Answers senders whose records are committed, while the lease is good; else they wait on."""
        waiting, enough = self._waiting, self._replicated
        limit = self.committed_end if enough is None else min(self.committed_end, enough)
        if waiting and waiting[0][1].end <= limit and self._member.core.lease_good(self.monotonic()):
            done = []
            while waiting and 0 <= waiting[0][1].end <= limit:
                done.append(waiting.popleft()[1])
            answer(done, None)
            self.latencies.committed(limit)
        if waiting and enough is not None:  # nobody has to wait to hear that slaves are away
            self.answer_late()

    def _flushed(self) -> None:
        self.latencies.flushed(self._log.durable_end)
        if not self._stopped:
            self._member.flushed()

    def _file_failed(self, error: Exception) -> None:
        self.fatal(f"{error}", error)

    # --- as the member's shell ----------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        return self._clock.since_boot()  # also while the machine sleeps: the others may have elected somebody meanwhile (T2)

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def chance(self) -> float:
        return random.random()

    def soon(self, work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(self._carry_on, work)

    def await_turn_end(self) -> None:
        self.appender.behind_this_turn(lambda: self._carry_on(lambda: self._member.handle(ev.TurnEnded())))

    def offload(self, work: Callable[[], None], then: Callable[[], None]) -> bool:
        self.files.write(work, then)
        return False

    def aside(self, asker: str, work: Callable[[], bytes], then: Callable[[bytes], None]) -> None:
        self.files.read(asker, work, then)

    def _carry_on(self, work: Callable[[], None]) -> None:
        if not self._stopped:
            work()

    def send(self, node: str, request: m.Request) -> None:
        if not self._stopped:
            self._peers.send(node, request)

    def reply(self, ticket: m.Ticket, answer: m.Answer) -> None:
        if isinstance(ticket, Call):
            request = self.latencies.request_at(answer.from_) if isinstance(answer, m.FetchOk) and answer.data else ""
            ticket.answer(encode_answer(answer, request))

    def grew(self) -> None:
        self.appended(())

    def committed(self, units: Sequence[Unit]) -> None:
        self.committed_end = self._dispatcher.position
        self.latencies.replicated(self.committed_end)
        try:
            self._on_committed(units, self._log.last_stored_ms)
        except Exception as bug:  # half of a turn is done: nobody may go on from there
            raise AssertionError(f"applying committed records broke off: {bug!r}") from bug
        role = self._member.core.role
        if not self._leader_ready and isinstance(role, Leader) and role.start_end and self.committed_end >= role.start_end:
            self._leader_ready = True
            log.info("this node leads the group in epoch %d", self._member.core.state.epoch)
            self._events.leader_ready()
        self._release()

    def replicated(self, offset: int) -> None:
        self._replicated = offset
        self._release()

    def became_leader(self, epoch: int) -> None:
        me = self._member.core.state.me
        self.note_leader(me.node, me.address)
        if me.in_sync > 1:
            self._replicated = -1

    def stepped_down(self, epoch: int, reason: str) -> None:
        log.warning("this node no longer leads the group (epoch %d): %s", epoch, reason)
        self._leader_ready, self._replicated = False, None
        waiting, self._waiting = self._waiting, deque()
        unknown = Refusal(ResponseCode.SYSTEM_ERROR, f"outcome unknown: this node lost leadership ({reason})")
        answer([unit for _, unit in waiting], unknown)
        self.latencies.forget()
        self._events.leadership_lost()

    def install_snapshot(self, order: fx.InstallSnapshot) -> None:
        log.warning("this node's log cannot go on: it begins anew from the snapshot of %s", order.node)
        self._fetch_snapshot(order)

    def done(self, ticket: m.Ticket, refusal: str) -> None:
        if isinstance(ticket, Call):
            if refusal:
                ticket.refuse(Refusal(ResponseCode.SYSTEM_ERROR, refusal, self.leader_address))
            else:
                ticket.answer(None)
        elif isinstance(ticket, asyncio.Future) and not ticket.done():
            ticket.set_result(refusal)

    def warn(self, text: str) -> None:
        log.warning("%s", text)

    def fatal(self, reason: str, cause: Exception | None = None) -> None:
        """Ends the process, as kill -9 would; the group goes on without it. `cause`: a StoreError says that the disk failed."""
        error = AssertionError(reason)
        error.__cause__ = cause
        asyncio.get_running_loop().call_exception_handler({"message": reason, "exception": error})
