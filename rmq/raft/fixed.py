"""Fixed mode: RocketMQ's master and slaves. The same messages and cuts, no votes; leadership comes by configuration or by hand.

A master that may have lost bytes first pulls back what its slaves still have of them (docs/storage). Epoch entries match by epoch
and writer only, so two masters made by hand with the same number never take each other's bytes for their own. Of two
masters the one with the older epoch becomes a slave as soon as it hears of the other, and so does one that comes back.
"""

from math import inf

from rmq.raft import effects as fx, electing, epochs, events as ev, following, leading, messages as m, trust
from rmq.raft.roles import Follower, Leader, Role, StartingMaster, State

USELESS_S = 10.0  # a slave that gives nothing of use for so long while its tail is asked for is not there


def begin(state: State, now: float) -> None:
    """A configured master begins as one, and so does a slave that was promoted and has not heard of another master since.
    A node whose log is still being filled from a snapshot does not: its queue offsets are ahead of its log."""
    me = state.me
    promoted = wrote_last(state) and any((voter.node, voter.store) == (me.node, me.store) for voter in state.voters)
    if (me.master or promoted) and state.ready:
        patient = me.in_sync > 1 and not state.proven
        state.role = StartingMaster(inf if patient else now + state.timing.master_catch_up)
    else:
        state.role = Follower(inf)


def begin_again(state: State, role: Follower, now: float) -> None:
    """Its disk did not take the record of its epoch. As long as no other leads, nobody else would be the master."""
    if not role.leader and state.ready:
        electing.open_epoch(state, now, lossy=not (state.proven and wrote_last(state)))


def tick(state: State, role: StartingMaster, now: float) -> None:
    """Begins its epoch when nothing can be missing, when enough slaves have given back what was, or when the time is up."""
    if role.source and now - role.gained >= USELESS_S:  # it is asked again when it comes, unless the time is up before
        del role.heard[role.source]
        role.source, role.fetch = "", None
    if role.source:
        if now - max(role.fetch_sent, role.moved) >= following.LOST_S:
            pull(state, role, now)
        return
    has_all = state.proven and wrote_last(state)
    ahead = max(role.heard, key=lambda node: role.heard[node], default="")
    lacks = bool(ahead) and role.heard[ahead] > state.end
    if lacks and now < role.until:
        role.source, role.gained = ahead, now
        pull(state, role, now)
    elif not lacks and (has_all or not state.epoch or len(role.heard) >= max(state.me.in_sync - 1, 1)):
        electing.open_epoch(state, now, lossy=not has_all)  # readers were shown what the last master alone had
    elif now >= role.until:
        electing.open_epoch(state, now, lossy=True)


def pull(state: State, role: StartingMaster, now: float) -> None:
    me = state.me
    state.fetches += 1
    role.fetch = m.Fetch(
        state.fetches, me.group, me.node, me.store, me.incarnation, state.epoch, state.end, *epochs.last(state.epochs),
        state.ack, state.hw, state.log_start, pull_back=True, max_bytes=min(state.share, m.MAX_FETCH_BYTES), max_wait=0.0,
    )  # fmt: skip
    role.fetch_sent = now
    state.out.append(fx.Send(role.source, role.fetch))


def hear_slave(state: State, role: StartingMaster, fetch: m.Fetch) -> None:
    """A slave fetches before this master's epoch began. Its tail counts if both logs end in the same epoch entry, or the slave's
    log in a newer one that this node wrote: the power loss that took the end of an epoch may have taken its record, too."""
    last = epochs.last(state.epochs)
    same = (fetch.last_epoch, fetch.last_writer) == last
    taken = state.voted_for == fetch.last_writer == state.me.store and fetch.last_epoch > last[0]
    role.heard[fetch.node] = fetch.from_ if same or taken else 0


def on_pulled(state: State, role: StartingMaster, event: ev.PeerAnswer, now: float) -> None:
    answer = event.answer
    if event.request != role.fetch:
        return
    asked, role.fetch = role.fetch.max_bytes, None
    if isinstance(answer, m.FetchOk) and answer.from_ == state.end and answer.data:
        following.fit(state, asked, len(answer.data), now - role.fetch_sent)
        state.out.append(fx.AppendBytes(answer.from_, answer.data, state.epoch))
        return
    role.heard[role.source] = min(role.heard[role.source], state.end)  # that is all it has to give
    role.source = ""


def grown(state: State, role: StartingMaster, event: ev.Grown, advanced: bool, now: float) -> None:
    """While a tail comes back the time is not up, however long it takes."""
    if advanced:
        role.gained, role.until = now, max(role.until, now + USELESS_S)
        pull(state, role, now)
    else:
        useless(state, role, event.bad, now)


def useless(state: State, role: StartingMaster, why: str, now: float) -> None:
    """What came is not in the log: a later tick asks again."""
    electing.suspect(state, f"what slave {role.source} gives back cannot be used: {why}", now)


def give_back(state: State, fetch: m.Fetch, ticket: m.Ticket) -> None:
    """This slave gives its master the tail that the master lost."""
    right = state.me.fixed and fetch.group == state.me.group and state.log_start <= fetch.from_ <= state.end
    if not right or not epochs.holds(state.epochs, state.log_start, state.end, fetch.from_, fetch.last_epoch, fetch.last_writer):
        state.out.append(fx.Reply(ticket, m.NotLeader(state.epoch, "")))
        return
    answer = m.FetchOk(fetch.id, state.epoch, state.me.node, fetch.from_, b"", state.hw, 0, state.log_start, 0.0)
    if fetch.from_ < state.end:
        state.out.append(fx.ReplyBytes(ticket, answer, min(fetch.max_bytes, m.MAX_CATCH_UP_BYTES), fetch.store))
    else:
        state.out.append(fx.Reply(ticket, answer))


def follow_master(state: State, event: ev.Follow, now: float) -> None:
    """A newer epoch ends leadership, also one that has not begun yet. So does another master of the same epoch, whether or not it
    has begun a newer one: the nameservers name only one of the two, and one that waits for slaves would wait for ever."""
    role = state.role
    if event.node == state.me.node:
        return
    doubt = trust.leap(state, event)
    if doubt:
        electing.suspect(state, f"the nameservers name {event.node or 'nobody'} as master: {doubt}", now)
        return
    if isinstance(role, Follower):
        if event.epoch > state.epoch:
            electing.adopt(state, event.epoch, event.node or role.leader, now)
        elif event.node not in ("", role.leader):
            electing.follow(state, event.node, now)
    elif event.epoch > state.epoch or (event.epoch == state.epoch and event.node):
        _yield(state, role, event, now)


def _yield(state: State, role: Role, event: ev.Follow, now: float) -> None:
    other = event.node or "another node"
    if event.epoch > state.epoch:
        electing.adopt(state, event.epoch, event.node, now)
    else:
        if isinstance(role, Leader):
            role.over = f"{other} is the master of epoch {event.epoch} for the nameservers"
            leading.close(state, role)
        electing.follow(state, event.node, now)
    state.out.append(fx.Warn(f"{other} became master in epoch {event.epoch}: this node is a slave now (docs/operators)"))


def promote(state: State, event: ev.Promote, now: float) -> None:
    """By hand: lossy. A master that waits for slaves begins without them. Who asked hears of it once the epoch is on the disk
    (`leading.begun`): the next loss of power does not take it back."""
    if isinstance(state.role, Follower | StartingMaster) and state.me.fixed and state.ready:
        state.keep_from, state.probing = -1, False  # its log counts from now on, also where it parts from the former master's
        electing.open_epoch(state, now, lossy=True, ticket=event.ticket)
    else:
        refusal = "it leads already" if isinstance(state.role, Leader) else "this node cannot be promoted now"
        if not state.ready:
            refusal = "this node has a snapshot of another one and not the log below it yet: start that other node"
        state.out.append(fx.Done(event.ticket, refusal))


def last_epoch_led(state: State, epoch: int, voted_for: str) -> int:
    """The newest epoch in which this node led, also if power loss took its record; 0 if there was none.

    `epoch`, `voted_for`: of the vote as it is saved. Nameservers must not hear of one that the next loss of power takes back.
    """
    mine = state.me.store
    if voted_for == mine:
        return epoch
    return max((entry.epoch for entry in state.epochs if entry.writer == mine), default=0)


def wrote_last(state: State) -> bool:
    """Whether this node wrote the newest bytes of its log as leader, and has heard of no newer epoch since."""
    last, mine = epochs.last(state.epochs), state.me.store
    return not state.epochs or (last[1] == mine and (last[0] == state.epoch or state.voted_for == mine))
