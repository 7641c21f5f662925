"""The follower: fetches, takes over what comes, cuts where its log parts from the leader's. One request is under way."""

from math import inf

from rmq.model import EpochHistory
from rmq.raft import epochs
from rmq.raft.effects import AppendBytes, Cut, Fatal, InstallSnapshot, Send, Warn
from rmq.raft.events import Grown, SnapshotInstalled
from rmq.raft.messages import MAX_CATCH_UP_BYTES, MAX_FETCH_BYTES, Ack, Diverged, Fetch, FetchOk, NeedsSnapshot, Resign
from rmq.raft.roles import BEHIND_BYTES, Follower, State

LOST_S = 0.5  # an answer that is so late counts as lost, unless a part of it came
EASY_S, LONG_S = 0.5, 1.0  # after answers that come so soon more is asked for, after those that take longer less
LEAST_BYTES = 64 << 10
UNKNOWN_END = 1 << 62


def fetch(state: State, role: Follower, now: float) -> None:
    """Asks the leader for what is behind the end."""
    if not role.leader or state.installing:
        return
    me, health = state.me, state.health
    state.fetches += 1
    far = role.leader_hw - state.end > BEHIND_BYTES
    end, history = common(state)
    request = Fetch(
        state.fetches, me.group, me.node, me.store, me.incarnation, state.epoch, end, *epochs.last(history),
        min(state.ack, end), state.hw, state.log_start, role.echo,
        learner=not state.is_named(), may_have_lost_data=not state.proven, disk_full=health.disk_full,
        wants_snapshot=state.wants_snapshot, sync_flush=me.sync_flush,
        max_bytes=min(state.share, MAX_CATCH_UP_BYTES if far else MAX_FETCH_BYTES), max_wait=state.timing.max_wait,
        stopping=state.stopping,
    )  # fmt: skip
    role.fetch, role.fetch_sent, role.pending = request, now, None
    state.out.append(Send(role.leader, request))


def common(state: State) -> tuple[int, EpochHistory]:
    """The log as far as it may be a prefix of the leader's."""
    return (state.keep_from, epochs.below(state.epochs, state.keep_from)) if state.probing else (state.end, state.epochs)


def fit(state: State, asked: int, came: int, took: float) -> None:
    """As much is asked for at once as comes in half a second: only fetches tell the leader that this node follows."""
    if took > LONG_S and came > LEAST_BYTES:
        state.share = max(int(came * EASY_S / took), LEAST_BYTES)
    elif took < EASY_S and came > asked // 2:
        state.share = min(state.share + state.share // 4, MAX_CATCH_UP_BYTES)


def tick(state: State, role: Follower, now: float) -> None:
    """Asks again when an answer was lost, or when the last one could not be used."""
    if role.successor and now - role.successor_notified >= LOST_S:
        role.successor_notified = now
        state.out.append(Send(role.successor, Resign(state.epoch, (role.successor,))))
    waited = now - max(role.fetch_sent, role.moved)
    if role.pending is None and waited >= state.timing.max_wait + (LOST_S if role.fetch else 0.0):
        fetch(state, role, now)


def on_ok(state: State, role: Follower, answer: FetchOk, now: float) -> None:
    role.heard, role.connected, role.echo, role.leader_hw = now, True, answer.stamp, answer.hw
    role.place, role.gone_until = answer.place, -inf
    if state.probing or answer.from_ != state.end:
        state.probing = False
        fetch(state, role, now)
    elif answer.data:
        role.pending = answer
        state.out.append(AppendBytes(answer.from_, answer.data, answer.epoch))
    else:
        _settle(state, role, answer, now)


def grown(state: State, role: Follower, event: Grown, advanced: bool, now: float) -> None:
    """The good bytes of the last answer are in the log now; the rest is fetched again.

    After three bad answers in a row the leader's copy counts as damaged, and only the next tick asks again.
    """
    answer, role.pending = role.pending, None
    if answer is None:
        return
    if not event.bad:
        role.bad = 0
        _settle(state, role, answer, now)
        return
    role.bad = 1 if advanced else role.bad + 1
    if role.bad == 3:
        why = f"the leader {role.leader} sends damaged bytes ({event.bad})"
        state.out.append(Warn(f"{why}: look at its disk and hand leadership over"))
    if role.bad < 3:
        fetch(state, role, now)


def failed(role: Follower, now: float) -> None:
    """The disk could not write: the next tick asks again."""
    role.pending = role.fetch = None
    role.fetch_sent = now


def _settle(state: State, role: Follower, answer: FetchOk, now: float) -> None:
    state.commit(min(answer.hw, state.end))
    role.knew = (role.fetch_sent, answer.hw)
    if state.required is None and answer.hw >= answer.epoch_start_end:
        state.required = answer.hw
        if state.ready_at == UNKNOWN_END:
            state.ready_at = answer.hw
    state.prove()
    fetch(state, role, now)


def flushed(state: State, role: Follower, grew: bool) -> None:
    """Under sync flush the leader counts what is durable; a parked fetch could not say so."""
    if state.me.sync_flush and grew and role.fetch is not None and role.leader:
        me = state.me
        state.out.append(Send(role.leader, Ack(state.epoch, me.store, me.incarnation, state.ack)))
    state.prove()


def on_diverged(state: State, role: Follower, answer: Diverged, now: float) -> None:
    """Cuts to what both logs have and asks again (R14); never cuts below what is committed (R15)."""
    end, history = common(state)
    to = max(epochs.cut_at(history, end, answer.parted_epoch, answer.end, answer.writer), state.log_start)
    if state.probing:
        state.keep_from, state.probing = to, to < end
    elif to < state.hw:
        if not (answer.lossy or state.me.fixed):
            where = f"the leader {role.leader}'s log of epoch {answer.epoch} ends at {to}, but {state.hw} was committed here"
            state.out.append(Fatal(f"{where}: committed messages would be lost. Keep this disk and ask which node is wrong"))
            return
        state.keep_from = to  # tables cannot be undone: this node begins anew from a snapshot
        state.probing = state.me.fixed
    elif to < state.end:
        state.cut(to)
        state.out.append(Cut(to, state.epochs, keep=state.me.fixed))
    else:
        state.keep_from = state.end  # nothing to cut, and still not a prefix of the leader's: only a snapshot helps
    fetch(state, role, now)


def on_needs_snapshot(state: State, role: Follower, answer: NeedsSnapshot) -> None:
    state.was_proven = state.proven
    state.save_vote(state.epoch, state.voted_for, False)
    state.installing, state.required = True, None
    state.filled_in = answer.epoch
    state.out.append(InstallSnapshot(role.leader, answer, state.keep_from))


def snapshot_installed(state: State, event: SnapshotInstalled) -> None:
    """The log is empty and begins at the leader's; nothing is served until everything committed is here."""
    state.log_start = state.end = state.durable = state.hw = event.log_start
    state.epochs = epochs.known_at(event.epochs, event.log_start)
    state.lists = [(-1, event.voters)]
    state.installing, state.keep_from, state.probing = False, -1, False
    state.required, state.ready_at = None, UNKNOWN_END
