"""The leader: answers fetches, moves the committed offset, keeps its lease, hands leadership over. It never cuts (R2)."""

from math import inf

from rmq.raft import epochs
from rmq.raft.effects import AwaitTurnEnd, Done, Replicated, Reply, ReplyBytes, Send, SteppedDown
from rmq.raft.messages import (
    MAX_CATCH_UP_BYTES,
    Ack,
    Announce,
    Diverged,
    Fenced,
    Fetch,
    FetchOk,
    NeedsSnapshot,
    NotLeader,
    Resign,
    Ticket,
    Voters,
)
from rmq.raft.quorum import held_by_majority
from rmq.raft.roles import Leader, Peer, State
from rmq.raft.trust import newer_run

HW_WAIT_S = 0.02  # how long a follower without new bytes waits to hear of a new HW
ANNOUNCE_S, SILENT_S = 0.25, 0.5
NEAR_BYTES = 1 << 20
GONE_S = 1.0  # who has not fetched for so long is not there
LEFT_S = 8.0  # and so long, without being a voter, has left: before operators hear that it is missing


def on_fetch(state: State, role: Leader, request: Fetch, ticket: Ticket, now: float) -> None:
    peer = _peer(state, role, request)
    if isinstance(peer, str):
        state.out.append(Reply(ticket, Fenced(state.epoch, peer)))
        return
    _release(state, role, peer, now)
    peer.touched, peer.ticket, peer.disk_full, peer.may_have_lost_data, peer.stopping = (
        now,
        ticket,
        request.disk_full,
        request.may_have_lost_data,
        request.stopping,
    )
    unknown = epochs.misses_rocketmqs(state.epochs, request.from_, request.last_epoch, request.last_writer)
    if request.from_ < state.log_start or request.wants_snapshot or unknown:
        _answer_needs_snapshot(state, request, ticket)
        return
    if not epochs.holds(state.epochs, state.log_start, state.end, request.from_, request.last_epoch, request.last_writer):
        _diverge(state, request, ticket)
        return
    assert request.from_ <= state.end, f"store {request.store} has {request.from_}, this log ends at {state.end}"
    peer.end = max(peer.end, request.from_)  # within one incarnation and epoch its log only grows
    peer.ack = max(peer.ack, min(request.ack, request.from_))
    peer.seen = max(peer.seen, min(request.echo, now))
    peer.hw = request.hw
    peer.sent_hw = state.hw if request.disk_full else request.hw
    renew_lease(state, role)
    _note_near(state, peer, now)
    _note_level(state, peer, now)
    peer.fetch = request
    peer.until = now + min(request.max_wait, state.timing.max_wait)
    commit(state, role, now)
    if peer.fetch is not None:
        _serve(state, role, peer, now)


def _peer(state: State, role: Leader, request: Fetch) -> Peer | str:
    """Who asks; a text if it is refused."""
    if request.group != state.me.group:
        return f"this is group {state.me.group!r}, not {request.group!r}: look at brokerName and the peers' addresses"
    peer = role.peers.get(request.store)
    if peer is None:
        refusal = _refusal(state, role, request)
        if refusal:
            return refusal
        peer = role.peers[request.store] = Peer(request.node, request.store)
    if request.incarnation < peer.incarnation:
        return newer_run(peer.incarnation)
    if request.incarnation > peer.incarnation:
        _release(state, role, peer, 0.0)
        seen = peer.seen if peer.incarnation == 0 else -inf  # of its vote
        peer = role.peers[request.store] = Peer(request.node, request.store, request.incarnation, seen=seen)
    return peer


def _refusal(state: State, role: Leader, request: Fetch) -> str:
    """Voters and joining nodes may come; a new disk of a known node becomes a learner, an old one that was replaced does not."""
    if state.me.fixed or request.node in role.joining or any(voter.store == request.store for voter in state.voters):
        return ""
    if not any(voter.node == request.node for voter in state.voters):
        return f"node {request.node!r} is no member of this group: add it with 'rmq admin addPeer'"
    if not request.learner or request.store in role.removed:
        return f"another disk took the place of this one at node {request.node!r}: give the node an empty directory"
    return ""


def _answer_needs_snapshot(state: State, request: Fetch, ticket: Ticket) -> None:
    if state.snapshot is None:
        state.out.append(Reply(ticket, NotLeader(state.epoch, state.me.node)))  # one is being made: ask again
        return
    state.out.append(Reply(ticket, NeedsSnapshot(request.id, state.epoch, *state.snapshot, state.log_start)))


def _diverge(state: State, request: Fetch, ticket: Ticket) -> None:
    found = epochs.parting(state.epochs, state.end, request.last_epoch)
    if found is None:
        _answer_needs_snapshot(state, request, ticket)
    else:
        answer = Diverged(request.id, state.epoch, found.epoch, found.end, found.writer, found.lossy)
        state.out.append(Reply(ticket, answer))


def _note_near(state: State, peer: Peer, now: float) -> None:
    if state.end - peer.end > NEAR_BYTES:
        peer.caught_up = inf
    elif peer.caught_up == inf:
        peer.caught_up = now


def _note_level(state: State, peer: Peer, now: float) -> None:
    """A follower is level when it has what there was at its last fetch: under load there is always something newer."""
    if peer.end >= state.end:
        peer.level = now
    elif peer.end >= peer.goal >= 0:
        peer.level = peer.goal_at
    peer.goal, peer.goal_at = state.end, now


def on_ack(state: State, role: Leader, ack: Ack, now: float) -> None:
    """One-way, so it may come late, or early: what is durable there may be a tail that this leader has not compared yet. So it
    counts as far as the fetches of its run have shown the same log (R4)."""
    peer = role.peers.get(ack.store)
    if peer is not None and ack.epoch == state.epoch and ack.incarnation == peer.incarnation:
        peer.ack = max(peer.ack, min(ack.ack, peer.end))
        commit(state, role, now)


# --- answers ----------------------------------------------------------------------------------------------------------


def _serve(state: State, role: Leader, peer: Peer, now: float) -> None:
    """Answers the parked fetch if there is something to say: at the end of the turn, which may bring more, or soon."""
    assert peer.fetch is not None
    if peer.until <= now:
        _release(state, role, peer, now)
    elif _lacks(state, peer):
        if not role.awaits_turn:
            role.awaits_turn = True
            state.out.append(AwaitTurnEnd())
    elif peer.sent_hw < state.hw:
        peer.until = min(peer.until, now + HW_WAIT_S)


def _lacks(state: State, peer: Peer) -> bool:
    """Whether there are bytes for its parked fetch."""
    return peer.fetch is not None and peer.fetch.from_ < state.end and not peer.disk_full


def turn_ended(state: State, role: Leader, now: float) -> None:
    role.awaits_turn = False
    for peer in role.peers.values():
        if _lacks(state, peer):
            _release(state, role, peer, now)


def _release(state: State, role: Leader, peer: Peer, now: float) -> None:
    """Answers the parked fetch, if there is one, with what there is."""
    request = peer.fetch
    if request is None:
        return
    answer = FetchOk(
        request.id, state.epoch, state.me.node, request.from_, b"", state.hw, role.start_end, state.log_start, now,
        _place(state, role, peer),
    )  # fmt: skip
    if _lacks(state, peer):
        state.out.append(ReplyBytes(peer.ticket, answer, min(request.max_bytes, MAX_CATCH_UP_BYTES), peer.store))
    else:
        state.out.append(Reply(peer.ticket, answer))
    peer.sent_hw, peer.fetch = state.hw, None


def _place(state: State, role: Leader, peer: Peer) -> int:
    """In which turn it stands when this process dies; -1 for who is no voter."""
    mine, stores = state.me.store, [voter.store for voter in state.voters]
    if state.me.fixed or peer.store not in stores:
        return -1
    others = [role.peers[store] for store in stores if store != mine and store in role.peers]
    others.sort(key=lambda one: (-one.end, one.node != state.me.preferred, one.node))
    return others.index(peer)


def grown(state: State, role: Leader, now: float) -> None:
    """More bytes, all of a turn: parked followers get them, and alone they are committed at once."""
    commit(state, role, now)
    for peer in role.peers.values():
        if _lacks(state, peer):
            _release(state, role, peer, now)


# --- committed offset and lease ---------------------------------------------------------------------------------------


def begun(state: State, role: Leader) -> None:
    """Tells who made this node the master, as soon as its epoch is on the disk."""
    if role.ticket is not None and 0 < role.start_end <= state.durable:
        state.out.append(Done(role.ticket))
        role.ticket = None


def commit(state: State, role: Leader, now: float) -> None:
    """HW moves over what a majority of voters has, once that reaches this epoch's own record (R6)."""
    if not role.start_end:
        return
    before = state.hw
    if state.me.fixed:
        state.commit(state.ack)
        _replicated(state, role)
    else:
        have = held_by_majority(state.voters, [_ack_of(state, role, voter.store) for voter in state.voters])
        if have >= role.start_end:
            state.commit(have)
    if state.hw == before:
        return
    if state.hw >= role.start_end and not state.proven:
        state.save_vote(state.epoch, state.voted_for, True)
    for peer in role.peers.values():
        if peer.fetch is not None:
            _serve(state, role, peer, now)


def _ack_of(state: State, role: Leader, store: str) -> int:
    if store == state.me.store:
        return state.ack
    peer = role.peers.get(store)
    return peer.ack if peer is not None else -1


def _replicated(state: State, role: Leader) -> None:
    acks = sorted((state.ack, *(peer.ack for peer in role.peers.values())), reverse=True)
    in_sync = state.me.in_sync
    offset = acks[in_sync - 1] if in_sync <= len(acks) else -1
    if offset > role.replicated:
        role.replicated = offset
        state.out.append(Replicated(offset))


def renew_lease(state: State, role: Leader) -> None:
    """Sets until when a majority certainly follows this leader; only stamps that followers echo prove it (R11)."""
    if state.me.fixed:
        role.lease = inf
        return
    role.lease = in_touch(state, role, state.voters) + state.timing.check_quorum


def in_touch(state: State, role: Leader, voters: Voters) -> float:
    """The newest moment at which a majority of these voters certainly followed this leader."""
    peers, me = role.peers, state.me.store
    seen = [inf if one.store == me else peers[one.store].seen if one.store in peers else -inf for one in voters]
    return held_by_majority(voters, seen)


# --- time, and giving leadership up -----------------------------------------------------------------------------------


def tick(state: State, role: Leader, now: float) -> None:
    for peer in role.peers.values():
        if peer.fetch is not None and peer.until <= now:
            _release(state, role, peer, now)
    if now > role.lease + state.timing.check_quorum:
        role.over = "no majority of the voters has been heard of"
        return
    _forget(state, role, now)
    _announce(state, role, now)
    _hand(state, role, now)


def _forget(state: State, role: Leader, now: float) -> None:
    """Nobody misses who left and never was a voter: a new disk that was lost again and replaced, a node whose adding was taken
    back. A new disk that is silent may be busy with a snapshot, as long as its node has no other one. With fixed roles a slave
    that went is missed until it is back, its former disk is not."""
    stores, nodes = {voter.store for voter in state.voters}, {voter.node for voter in state.voters} | role.joining.keys()
    here = {peer.node for peer in role.peers.values() if now - peer.touched < GONE_S}
    for store, peer in [*role.peers.items()]:
        left = peer.node in here or not (state.me.fixed or peer.node in nodes)
        if left and now - peer.touched > LEFT_S and store not in stores:
            del role.peers[store]


def _announce(state: State, role: Leader, now: float) -> None:
    """To every member that does not fetch (R12: a node of a newer epoch answers with it), and to who is being added until it has
    answered at its address: the others will need that when it leads."""
    me = state.me
    touched: dict[str, float] = {}
    for peer in role.peers.values():
        touched[peer.node] = max(touched.get(peer.node, -inf), peer.touched)
    nodes = dict.fromkeys([voter.node for voter in state.voters] + list(role.joining))
    for node in nodes:
        wanted = now - touched.get(node, -inf) > SILENT_S or (node in role.joining and node not in role.reached)
        if node != me.node and wanted and now - role.announced.get(node, -inf) >= ANNOUNCE_S:
            role.announced[node] = now
            at, _ = role.joining.get(node, ("", None))
            state.out.append(Send(node, Announce(state.epoch, me.node, me.address, state.voters, at)))


def successors(state: State, role: Leader, now: float) -> list[Peer]:
    """Voters that are there and could lead, the best one first. In fixed mode: slaves that have been there for a while, since the
    nameservers let nobody take over of whom they have not heard."""
    if state.me.fixed:
        stores = {store for store, peer in role.peers.items() if now - peer.caught_up >= state.timing.caught_up}
    else:
        stores = {voter.store for voter in state.voters} - {state.me.store}
    able = [
        peer
        for store, peer in role.peers.items()
        if store in stores and now - peer.touched < GONE_S and not (peer.disk_full or peer.may_have_lost_data or peer.stopping)
    ]
    return sorted(able, key=lambda peer: (-peer.ack, peer.node != state.me.preferred, peer.node))


def hand_over(state: State, role: Leader, node: str, ticket: Ticket, now: float) -> None:
    """Stops writes until that node has everything, then resigns; gives up after 2 s. A new leader waits for nodes to come."""
    able = successors(state, role, now)
    chosen = node or (able[0].node if able else "")
    leads, votes = chosen == state.me.node, any(voter.node == chosen for voter in state.voters)
    just_elected = now - role.since < state.timing.transfer
    if role.handing_to or not (any(peer.node == chosen for peer in able) or (votes and not leads and just_elected)):
        trouble = "leads already" if leads else "cannot lead now" if votes else "does not vote in this group"
        nobody = f"node {chosen!r} {trouble}" if chosen else "no other node can lead now"
        why = "leadership is being handed over already" if role.handing_to else nobody
        state.out.append(Done(ticket, f"{why}: look at haStatus"))
        return
    role.handing_to, role.hand_until, role.hand_ticket = chosen, now + state.timing.transfer, ticket


def _hand(state: State, role: Leader, now: float) -> None:
    if not role.handing_to:
        _want_to_hand(state, role, now)
        return
    able = successors(state, role, now)
    everything = state.hw == state.end  # of more than three: else some sends would end as unknown
    if everything and any(peer.node == role.handing_to and peer.ack == state.end for peer in able):
        able.sort(key=lambda peer: peer.node != role.handing_to)
        names = tuple(peer.node for peer in able)
        state.out.append(Done(role.hand_ticket))
        role.hand_ticket = None
        resign(state, role, names, f"leadership goes to {role.handing_to}")
    elif now >= role.hand_until or any(peer.node == role.handing_to and peer.stopping for peer in role.peers.values()):
        state.out.append(Done(role.hand_ticket, f"{role.handing_to} did not get everything in time: try again"))
        role.handing_to, role.hand_ticket = "", None


def _want_to_hand(state: State, role: Leader, now: float) -> None:
    """A leader without room, or with damage, goes; and so does one that only stands in for the preferred leader."""
    timing, me = state.timing, state.me
    if me.fixed or now < role.hand_until + timing.transfer or state.hw < role.start_end:
        return
    able = successors(state, role, now)
    if state.health.disk_full or state.health.damaged:
        if able:
            hand_over(state, role, able[0].node, None, now)
    elif me.preferred not in ("", me.node) and now - role.since > timing.preferred:
        preferred = [peer for peer in able if peer.node == me.preferred]
        if preferred and now - preferred[0].caught_up > timing.preferred:
            hand_over(state, role, me.preferred, None, now)


def resign(state: State, role: Leader, names: tuple[str, ...], why: str) -> None:
    """Tells the others which node shall stand; leadership ends with this step."""
    for node in dict.fromkeys((*names, *(voter.node for voter in state.voters if voter.node != state.me.node))):
        state.out.append(Send(node, Resign(state.epoch, names)))
    role.over = why


def close(state: State, role: Leader) -> None:
    """Leadership is over: nothing waits for this leader's answers any more."""
    for peer in role.peers.values():
        if peer.fetch is not None:
            state.out.append(Reply(peer.ticket, NotLeader(state.epoch, "")))
    waiting = [ticket for _, ticket in role.joining.values()] + list(role.leaving.values())
    waiting += [role.hand_ticket, role.ticket]
    if role.change is not None:
        waiting.append(role.change.ticket)
    for ticket in waiting:
        if ticket is not None:
            state.out.append(Done(ticket, "outcome unknown: this node is no longer the leader; ask the new one"))
    state.out.append(SteppedDown(state.epoch, role.over))
