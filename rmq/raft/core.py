"""The machine: `step(event, now)` gives the effects. Changes of role are in `electing`, fixed roles in `fixed`.

Every transition, here and beside it, is a function over `State` that appends its effects to `state.out`.

Nothing here waits, reads or writes. The shell feeds one event at a time, carries out the effects in their order, and
feeds what they report (`Grown` after an append) before anything else. Epoch, vote, log positions and the committed
offset are known here; bytes are not. Where a rule comes from is named by its id (docs/invariants).
"""

from collections.abc import Callable
from typing import Any

from rmq.raft import effects as fx, electing, epochs, events as ev, fixed, following, leading, membership, messages as m, trust
from rmq.raft.electing import HURRY_S, election_timeout, turn
from rmq.raft.identity import Identity, RestoredState, Timing
from rmq.raft.roles import Candidate, Follower, Leader, Role, StartingMaster, State

_SOON_S = 0.05  # the longest time between two ticks


class Core:
    """`role` and `state` are for reading. `chance()` gives numbers in [0, 1)."""

    def __init__(self, me: Identity, restored: RestoredState, timing: Timing, chance: Callable[[], float], now: float) -> None:
        self.state = State(me, restored, timing, chance)
        self.stopped = ""
        self.state.last_tick = now
        electing.begin(self.state, now)
        if me.fixed:
            fixed.begin(self.state, now)

    @property
    def role(self) -> Role:
        return self.state.role

    @property
    def leader(self) -> str:
        """The node id of the leader, "" if unknown."""
        return self.state.leader

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

    def lately_committed(self, now: float, seconds: float) -> int | None:
        """What was committed at a moment that is so many seconds ago at most, as this follower heard; None: it has not heard."""
        if not isinstance(self.role, Follower) or now - self.role.knew[0] > seconds:
            return None
        return self.role.knew[1]

    def follows(self, now: float) -> bool:
        """Whether another node leads that was heard lately, and whose process is not known to have ended. In fixed mode nobody
        else is looked for then, so it stays known. Who is not `ready` can do nothing without it."""
        role, state = self.role, self.state
        if not isinstance(role, Follower) or role.leader in ("", state.me.node):
            return False
        return not state.ready or (role.connected and now - max(role.heard, role.since) < state.timing.fetch_timeout)

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

    def step(self, event: ev.Event, now: float) -> list[fx.Effect]:
        """The effects of one event, in the order in which they must be carried out."""
        out = self.state.out = []
        if self.stopped:
            return out
        _ON[type(event)](self.state, event, now)
        role = self.role
        if isinstance(role, Leader):
            membership.advance(self.state, role, now, begin=isinstance(event, ev.Tick))
            if role.over:
                electing.step_down(self.state, now)
        if out and isinstance(out[-1], fx.Fatal):
            self.stopped = out[-1].reason
        return out


# --- time -------------------------------------------------------------------------------------------------------------


def _tick(state: State, _: ev.Tick, now: float) -> None:
    role = state.role
    late = now - state.last_tick > state.timing.fetch_timeout / 2
    state.last_tick = now
    if isinstance(role, Leader):
        leading.tick(state, role, now)
    elif isinstance(role, StartingMaster):
        fixed.tick(state, role, now)
    elif late:  # after a pause nobody's silence counts yet; leases get no such grace
        if isinstance(role, Candidate):
            role.until = now + state.timing.vote
        else:
            role.stand_at, role.since = now + election_timeout(state), now
    elif isinstance(role, Candidate):
        if now >= role.until:
            electing.stand(state, now, pre=True, transfer=False)
    else:
        following.tick(state, role, now)
        if now >= role.stand_at:
            role.stand_at = now + election_timeout(state)
            if role.unbegun:
                fixed.begin_again(state, role, now)
            else:
                electing.stand(state, now, pre=True, transfer=role.transfer)


def _unreachable(state: State, event: ev.Unreachable, now: float) -> None:
    """The leader's process is gone: no need to wait for its silence. The voters stand one after the other."""
    role, timing = state.role, state.timing
    if isinstance(role, Follower) and event.node == role.leader:
        role.connected = False
        if not any(state.health):
            role.gone_until = now + HURRY_S
            role.stand_at = min(role.stand_at, now + turn(role.place, state.chance()))
        role.fetch, role.fetch_sent = None, now + timing.max_wait


# --- fetching ---------------------------------------------------------------------------------------------------------


def _on_fetch(state: State, fetch: m.Fetch, ticket: m.Ticket, now: float) -> None:
    if fetch.epoch > state.epoch and fetch.group == state.me.group:
        electing.adopt(state, fetch.epoch, "", now)
    if fetch.pull_back:
        fixed.give_back(state, fetch, ticket)
    elif not isinstance(state.role, Leader) or not state.role.start_end:
        if isinstance(state.role, StartingMaster):
            fixed.hear_slave(state, state.role, fetch)
        state.out.append(fx.Reply(ticket, m.NotLeader(state.epoch, state.leader)))
    elif fetch.epoch < state.epoch:
        state.out.append(fx.Reply(ticket, m.Fenced(state.epoch, "an older epoch")))
    else:
        leading.on_fetch(state, state.role, fetch, ticket, now)


def _on_ack(state: State, ack: m.Ack, ticket: m.Ticket, now: float) -> None:
    if isinstance(state.role, Leader):
        leading.on_ack(state, state.role, ack, now)


def _fetched(state: State, event: ev.PeerAnswer, now: float) -> None:
    """Only the answer to the request under way, from the present leader and epoch, changes anything (R16)."""
    role, answer = state.role, event.answer
    if not isinstance(role, Follower) or event.request != role.fetch or event.node != role.leader:
        return
    if answer.epoch < state.epoch:
        return
    asked, role.fetch = role.fetch.max_bytes, None
    if isinstance(answer, m.FetchOk):
        following.fit(state, asked, len(answer.data), now - role.fetch_sent)
        role.stand_at = now + election_timeout(state)
        following.on_ok(state, role, answer, now)
    elif isinstance(answer, m.Diverged):
        role.heard, role.connected = now, True
        following.on_diverged(state, role, answer, now)
    elif isinstance(answer, m.NeedsSnapshot):
        following.on_needs_snapshot(state, role, answer)
    elif isinstance(answer, m.NotLeader) and answer.hint == event.node:
        role.heard, role.connected = now, True  # it has no snapshot yet: the next tick asks again
    else:
        role.leader = ""
        if isinstance(answer, m.Fenced):
            electing.suspect(state, f"the leader {event.node} refuses this node: {answer.reason}", now)
        elif isinstance(answer, m.NotLeader) and answer.hint not in ("", state.me.node):
            electing.follow(state, answer.hint, now)


def _arriving(state: State, event: ev.Arriving, now: float) -> None:
    """Who sends a large answer on a slow line is there, and asking again would only bring the same bytes twice."""
    role = state.role
    if isinstance(role, Follower) and role.fetch is not None and event.node == role.leader:
        role.moved = role.heard = now
        role.stand_at = max(role.stand_at, now + state.timing.fetch_timeout)
    elif isinstance(role, StartingMaster) and event.node == role.source:
        role.moved = now


def _asked(state: State, event: ev.PeerRequest, now: float) -> None:
    doubt = trust.doubt(state, event.request)
    if doubt:
        electing.refuse(state, event.ticket, doubt, now)
    else:
        _ASKED[type(event.request)](state, event.request, event.ticket, now)


def _answered(state: State, event: ev.PeerAnswer, now: float) -> None:
    """A newer epoch in any answer is taken over first; an answer to an older question says nothing else (R12)."""
    answer = event.answer
    doubt = trust.leap(state, answer)
    if doubt:
        electing.suspect(state, f"an answer of node {event.node}: {doubt}", now)
    elif isinstance(state.role, StartingMaster):
        fixed.on_pulled(state, state.role, event, now)
    elif answer.epoch > state.epoch:
        leader = event.node if isinstance(answer, m.Fenced) else ""
        if isinstance(answer, m.NotLeader | m.VoteAnswer) and answer.hint != state.me.node:
            leader = answer.hint
        electing.adopt(state, answer.epoch, leader, now)
    elif isinstance(event.request, m.Fetch):
        _fetched(state, event, now)
    elif isinstance(event.request, m.Vote):
        electing.on_voted(state, event, now)
    elif isinstance(event.request, m.Announce) and isinstance(answer, m.EpochAnswer) and isinstance(state.role, Leader):
        membership.answered(state, state.role, event.node, event.request.at, answer.node)


# --- what the shell reports -------------------------------------------------------------------------------------------


def _grown(state: State, event: ev.Grown, now: float) -> None:
    role = state.role
    assert event.end >= state.end, f"the log shrank from {state.end} to {event.end} (R2)"
    advanced, state.end = event.end > state.end, event.end
    for mark in event.marks:
        state.take(mark)
    if isinstance(role, Leader):
        if event.marks and not role.start_end:
            role.start_end = event.end
            leading.renew_lease(state, role)
            state.out.append(fx.BecameLeader(state.epoch))
            leading.tick(state, role, now)
        elif event.marks and role.change is not None and not role.change.end and event.marks[-1].kind == membership.VOTERS:
            role.change.end = event.end
            leading.renew_lease(state, role)
        leading.grown(state, role, now)
    elif isinstance(role, Follower):
        following.grown(state, role, event, advanced, now)
    elif isinstance(role, StartingMaster):
        fixed.grown(state, role, event, advanced, now)


def _turn_ended(state: State, _: ev.TurnEnded, now: float) -> None:
    if isinstance(state.role, Leader):
        leading.turn_ended(state, state.role, now)


def _append_failed(state: State, event: ev.AppendFailed, now: float) -> None:
    if isinstance(state.role, Leader):
        if not state.role.start_end:
            state.role.over = f"the epoch record could not be stored: {event.why}"
        membership.failed(state, state.role, event.why)
    elif isinstance(state.role, Follower):
        electing.suspect(state, f"the leader's bytes could not be stored here: {event.why}", now)
        following.failed(state.role, now)
    elif isinstance(state.role, StartingMaster):
        fixed.useless(state, state.role, event.why, now)


def _flushed(state: State, event: ev.Flushed, now: float) -> None:
    role = state.role
    grew = event.durable > state.durable
    state.durable = max(state.durable, min(event.durable, state.end))
    if isinstance(role, Leader):
        leading.begun(state, role)
        leading.commit(state, role, now)
    elif isinstance(role, Follower):
        following.flushed(state, role, grew)


def _health(state: State, event: ev.Health, now: float) -> None:
    state.health = event
    if any(event) and isinstance(state.role, Follower):
        state.role.stand_at = max(state.role.stand_at, now + election_timeout(state))


def _stop(state: State, _: ev.Stop, now: float) -> None:
    """The leader hears it with a fetch that is sent at once, though one may be parked there."""
    state.stopping = True
    if isinstance(state.role, Candidate):
        electing.follow(state, "", now)
    elif isinstance(state.role, Follower) and state.role.pending is None:
        following.fetch(state, state.role, now)


def _retained(state: State, event: ev.Retained, now: float) -> None:
    state.log_start, state.snapshot = event.log_start, event.snapshot
    state.epochs = epochs.from_start(state.epochs, event.log_start)


def _snapshot_installed(state: State, event: ev.SnapshotInstalled, now: float) -> None:
    following.snapshot_installed(state, event)
    if isinstance(state.role, Follower):
        following.fetch(state, state.role, now)


def _install_failed(state: State, event: ev.InstallFailed, now: float) -> None:
    """Nothing of the log is gone yet, and none of the snapshot is here. So its vote says what it said before: a leader that died
    while it gave the snapshot must not leave the others without a majority that counts (D3)."""
    state.installing, state.filled_in = False, 0
    if state.was_proven and not state.proven:
        state.save_vote(state.epoch, state.voted_for, True)


def _administer(state: State, event: ev.Join | ev.Leave | ev.Transfer, now: float) -> None:
    role = state.role
    if not isinstance(role, Leader) or not role.start_end:
        state.out.append(fx.Done(event.ticket, f"this node does not lead; the leader is {state.leader or 'not known yet'}"))
    elif isinstance(event, ev.Join):
        membership.join(state, role, event)
    elif isinstance(event, ev.Leave):
        membership.leave(state, role, event, now)
    else:
        leading.hand_over(state, role, event.node, event.ticket, now)


# --- which function takes what ----------------------------------------------------------------------------------------

_ON: dict[type, Callable[[State, Any, float], None]] = {
    ev.Tick: _tick,
    ev.PeerRequest: _asked,
    ev.PeerAnswer: _answered,
    ev.Arriving: _arriving,
    ev.Unreachable: _unreachable,
    ev.Grown: _grown,
    ev.TurnEnded: _turn_ended,
    ev.AppendFailed: _append_failed,
    ev.Flushed: _flushed,
    ev.Health: _health,
    ev.Stop: _stop,
    ev.Retained: _retained,
    ev.SnapshotInstalled: _snapshot_installed,
    ev.InstallFailed: _install_failed,
    ev.Join: _administer,
    ev.Leave: _administer,
    ev.Transfer: _administer,
    ev.Follow: fixed.follow_master,
    ev.Promote: fixed.promote,
}
_ASKED: dict[type, Callable[[State, Any, m.Ticket, float], None]] = {
    m.Fetch: _on_fetch,
    m.Ack: _on_ack,
    m.Vote: electing.on_vote,
    m.Announce: electing.on_announce,
    m.Resign: electing.on_resign,
}
