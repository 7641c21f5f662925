"""The machine: `step(event, now)` gives the effects. Changes of role are in `electing`.

Nothing here waits, reads or writes. The shell feeds one event at a time, carries out the effects in their order, and
feeds what they report (`Grown` after an append) before anything else. Epoch, vote, log positions and the committed
offset are known here; bytes are not. Where a rule comes from is named by its id (docs/invariants).
"""

from collections.abc import Callable
from typing import Any

from rmq.raft import epochs, following, leading, membership, messages as m, trust
from rmq.raft.electing import HURRY_S, turn
from rmq.raft.fixed import FixedMode
from rmq.raft.roles import Candidate, Follower, Leader, Opening, State

_SOON_S = 0.05  # the longest time between two ticks


class Core(FixedMode):
    """`role` and `state` are for reading. `chance()` gives numbers in [0, 1)."""

    def __init__(self, me: m.Identity, boot: m.Boot, timing: m.Timing, chance: Callable[[], float], now: float) -> None:
        super().__init__(State(me, boot, timing, chance), now)
        self.stopped = ""
        self._last_tick = now
        if me.fixed:
            self._begin_fixed(self.state, now)
        self._on: dict[type, Callable[[Any, float], None]] = {
            m.Tick: self._tick,
            m.Asked: self._asked,
            m.Answered: self._answered,
            m.Unreachable: self._unreachable,
            m.Grown: self._grown,
            m.AppendFailed: self._append_failed,
            m.Flushed: self._flushed,
            m.Health: self._health,
            m.Stop: self._stop,
            m.Retained: self._retained,
            m.Reseeded: self._reseeded,
            m.ReseedFailed: self._reseed_failed,
            m.Join: self._administer,
            m.Leave: self._administer,
            m.Transfer: self._administer,
            m.Follow: self._follow_master,
            m.Promote: self._promote,
        }
        self._asked_by: dict[type, Callable[[Any, m.Ticket, float], None]] = {
            m.Fetch: self._on_fetch,
            m.Ack: self._on_ack,
            m.Vote: self._on_vote,
            m.Announce: self._on_announce,
            m.Resign: self._on_resign,
        }

    # --- what the shell asks ------------------------------------------------------------------------------------------

    def leads(self) -> bool:
        """Whether its epoch has begun here, so that records may be appended (if it also `accepts`)."""
        return isinstance(self.role, Leader) and bool(self.role.start_end) and not self.stopped

    def accepts(self) -> bool:
        """Whether sends are taken now; not while leadership is being handed over."""
        return self.leads() and isinstance(self.role, Leader) and not self.role.handing_to

    def lease_good(self, now: float) -> bool:
        """Whether this leader may answer now; asked at each answer to a producer, each lock and each leader's read (R11)."""
        return isinstance(self.role, Leader) and now < self.role.lease

    def serves_reads(self, now: float) -> bool:
        """Whether reads may be answered: below HW, and as leader only after an entry of its own is committed (R17, R19). Not
        while this node waits for a snapshot because the leader's log lacks what was committed here."""
        if self.stopped or not self.state.ready or self.state.keep_from >= 0:
            return False
        if isinstance(self.role, Leader):
            return bool(self.role.start_end) and self.state.hw >= self.role.start_end and now < self.role.lease
        return True

    def follows(self, now: float) -> bool:
        """Whether another node leads that was heard lately. In fixed mode nobody else is looked for when it falls silent, so it
        stays known. Who is not `ready` can do nothing without it."""
        role, state = self.role, self.state
        if not isinstance(role, Follower) or role.leader in ("", state.me.node):
            return False
        return not state.ready or now - max(role.heard, role.since) < state.timing.fetch_timeout

    def wake_at(self, now: float) -> float:
        """When the next `Tick` is due at the latest."""
        at = now + _SOON_S
        if isinstance(self.role, Leader):
            for peer in self.role.peers.values():
                if peer.fetch is not None and peer.until < at:
                    at = peer.until
        elif isinstance(self.role, Follower):
            at = min(at, self.role.stand_at)
        elif isinstance(self.role, Candidate):
            at = min(at, self.role.until)
        return at

    def step(self, event: m.Event, now: float) -> list[m.Effect]:
        """The effects of one event, in the order in which they must be carried out."""
        out = self.state.out = []
        if self.stopped:
            return out
        self._on[type(event)](event, now)
        role = self.role
        if isinstance(role, Leader):
            membership.advance(self.state, role, now, begin=isinstance(event, m.Tick))
            if role.over:
                self._step_down(now)
        if out and isinstance(out[-1], m.Fatal):
            self.stopped = out[-1].reason
        return out

    # --- time ---------------------------------------------------------------------------------------------------------

    def _tick(self, _: m.Tick, now: float) -> None:
        role, state = self.role, self.state
        late = now - self._last_tick > state.timing.fetch_timeout / 2
        self._last_tick = now
        if isinstance(role, Leader):
            leading.tick(state, role, now)
        elif isinstance(role, Opening):
            self._tick_opening(role, now)
        elif late:  # after a pause nobody's silence counts yet; leases get no such grace
            if isinstance(role, Candidate):
                role.until = now + state.timing.vote
            else:
                role.stand_at, role.since = now + self._election_timeout(), now
        elif isinstance(role, Candidate):
            if now >= role.until:
                self._stand(now, pre=True, transfer=False)
        else:
            following.tick(state, role, now)
            if now >= role.stand_at:
                role.stand_at = now + self._election_timeout()
                self._stand(now, pre=True, transfer=role.transfer)

    def _unreachable(self, event: m.Unreachable, now: float) -> None:
        """The leader's process is gone: no need to wait for its silence. The voters stand one after the other."""
        role, timing = self.role, self.state.timing
        if isinstance(role, Follower) and event.node == role.leader:
            role.connected = False
            if not any(self.state.health):
                role.gone_until = now + HURRY_S
                role.stand_at = min(role.stand_at, now + turn(role.place, self.state.chance()))
            role.fetch, role.fetch_sent = None, now + timing.max_wait

    # --- fetching -----------------------------------------------------------------------------------------------------

    def _on_fetch(self, fetch: m.Fetch, ticket: m.Ticket, now: float) -> None:
        state = self.state
        if fetch.epoch > state.epoch and fetch.group == state.me.group:
            self._adopt(fetch.epoch, "", now)
        if fetch.pull_back:
            self._give_back(fetch, ticket)
        elif not isinstance(self.role, Leader) or not self.role.start_end:
            if isinstance(self.role, Opening):
                self._hear_slave(self.role, fetch)
            state.out.append(m.Reply(ticket, m.NotLeader(state.epoch, self.leader)))
        elif fetch.epoch < state.epoch:
            state.out.append(m.Reply(ticket, m.Fenced(state.epoch, "an older epoch")))
        else:
            leading.on_fetch(state, self.role, fetch, ticket, now)

    def _on_ack(self, ack: m.Ack, ticket: m.Ticket, now: float) -> None:
        if isinstance(self.role, Leader):
            leading.on_ack(self.state, self.role, ack, now)

    def _fetched(self, event: m.Answered, now: float) -> None:
        """Only the answer to the request under way, from the present leader and epoch, changes anything (R16)."""
        role, answer, state = self.role, event.answer, self.state
        if not isinstance(role, Follower) or event.request != role.fetch or event.node != role.leader:
            return
        if answer.epoch < state.epoch:
            return
        role.fetch = None
        if isinstance(answer, m.FetchOk):
            role.stand_at = now + self._election_timeout()
            following.on_ok(state, role, answer, now)
        elif isinstance(answer, m.Diverged):
            role.heard = now
            following.on_diverged(state, role, answer, now)
        elif isinstance(answer, m.ReseedFrom):
            following.on_reseed(state, role, answer)
        elif isinstance(answer, m.NotLeader) and answer.hint == event.node:
            role.heard = now  # it has no snapshot yet: the next tick asks again
        else:
            role.leader = ""
            if isinstance(answer, m.Fenced):
                state.out.append(m.Warn(f"the leader {event.node} refuses this node: {answer.reason}"))
            elif isinstance(answer, m.NotLeader) and answer.hint not in ("", state.me.node):
                self._follow(answer.hint, now)

    def _asked(self, event: m.Asked, now: float) -> None:
        doubt = trust.doubt(self.state, event.request)
        if doubt:
            self._refuse(event.ticket, doubt, now)
        else:
            self._asked_by[type(event.request)](event.request, event.ticket, now)

    def _answered(self, event: m.Answered, now: float) -> None:
        """A newer epoch in any answer is taken over first; an answer to an older question says nothing else (R12)."""
        answer = event.answer
        doubt = trust.leap(self.state, answer)
        if doubt:
            self._suspect(f"an answer of node {event.node}: {doubt}", now)
        elif isinstance(self.role, Opening):
            self._pulled(self.role, event, now)
        elif answer.epoch > self.state.epoch:
            leader = event.node if isinstance(answer, m.Fenced) else ""
            if isinstance(answer, m.NotLeader | m.VoteAnswer) and answer.hint != self.state.me.node:
                leader = answer.hint
            self._adopt(answer.epoch, leader, now)
        elif isinstance(event.request, m.Fetch):
            self._fetched(event, now)
        elif isinstance(event.request, m.Vote):
            self._voted(event, now)

    # --- what the shell reports ---------------------------------------------------------------------------------------

    def _grown(self, event: m.Grown, now: float) -> None:
        state, role = self.state, self.role
        assert event.end >= state.end, f"the log shrank from {state.end} to {event.end} (R2)"
        advanced, state.end = event.end > state.end, event.end
        for mark in event.marks:
            state.take(mark)
        if isinstance(role, Leader):
            if event.marks and not role.start_end:
                role.start_end = event.end
                leading.renew_lease(state, role)
                state.out.append(m.BecameLeader(state.epoch))
                leading.tick(state, role, now)
            elif event.marks and role.change is not None and not role.change.end and event.marks[-1].kind == membership.VOTERS:
                role.change.end = event.end
                leading.renew_lease(state, role)
            leading.grown(state, role, now)
        elif isinstance(role, Follower):
            following.grown(state, role, event, advanced, now)
        elif isinstance(role, Opening):
            self._pull(role, now)

    def _append_failed(self, event: m.AppendFailed, now: float) -> None:
        if isinstance(self.role, Leader):
            if not self.role.start_end:
                self.role.over = f"the epoch record could not be stored: {event.why}"
            membership.failed(self.state, self.role, event.why)
        elif isinstance(self.role, Follower):
            following.failed(self.role, now)

    def _flushed(self, event: m.Flushed, now: float) -> None:
        state, role = self.state, self.role
        grew = event.durable > state.durable
        state.durable = max(state.durable, min(event.durable, state.end))
        if isinstance(role, Leader):
            leading.commit(state, role, now)
        elif isinstance(role, Follower):
            following.flushed(state, role, grew)

    def _health(self, event: m.Health, now: float) -> None:
        self.state.health = event
        if any(event) and isinstance(self.role, Follower):
            self.role.stand_at = max(self.role.stand_at, now + self._election_timeout())

    def _stop(self, _: m.Stop, now: float) -> None:
        """The leader hears it with a fetch that is sent at once, though one may be parked there."""
        self.state.stopping = True
        if isinstance(self.role, Candidate):
            self._follow("", now)
        elif isinstance(self.role, Follower) and self.role.pending is None:
            following.fetch(self.state, self.role, now)

    def _retained(self, event: m.Retained, now: float) -> None:
        self.state.log_start, self.state.snapshot = event.log_start, event.snapshot
        self.state.rows = epochs.from_start(self.state.rows, event.log_start)

    def _reseeded(self, event: m.Reseeded, now: float) -> None:
        following.reseeded(self.state, event)
        if isinstance(self.role, Follower):
            following.fetch(self.state, self.role, now)

    def _reseed_failed(self, event: m.ReseedFailed, now: float) -> None:
        self.state.reseeding = False

    def _administer(self, event: m.Join | m.Leave | m.Transfer, now: float) -> None:
        role, state = self.role, self.state
        if not isinstance(role, Leader) or not role.start_end:
            state.out.append(m.Done(event.ticket, f"this node does not lead; the leader is {self.leader or 'not known yet'}"))
        elif isinstance(event, m.Join):
            membership.join(state, role, event)
        elif isinstance(event, m.Leave):
            membership.leave(state, role, event, now)
        else:
            leading.hand_over(state, role, event.node, event.ticket, now)
