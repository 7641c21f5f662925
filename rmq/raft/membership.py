"""Who is a voter: one change at a time, each a record in the log, in force as soon as it stands there (R22).

A newcomer is a learner first. A new disk behind a known node takes the old one's place in two changes: one swap would
allow two majorities without a common member. Between the two, a majority with each of the disks is needed (`quorum.sides`).
"""

from rmq.model import Voter
from rmq.raft import leading
from rmq.raft.effects import AppendEpoch, Done, Reply
from rmq.raft.events import Join, Leave
from rmq.raft.messages import Fenced, Voters
from rmq.raft.roles import Change, Leader, Peer, State

VOTERS = "voters"  # kind of the epoch record
MAX_JOINING = 8  # nodes that were added and have not come yet
UNREACHED_S = 5.0  # a node that has everything, and does not answer at its address for so long, is not added


def join(state: State, role: Leader, event: Join) -> None:
    if state.me.fixed:
        why = "nobody votes where roles are fixed: start it with brokerRole=SLAVE and this group's brokerName and nameservers"
        state.out.append(Done(event.ticket, f"{event.node!r} is not to be added: {why}"))
    elif any(voter.node == event.node for voter in state.voters):
        state.out.append(Done(event.ticket, f"{event.node!r} is a member already"))
    elif any(voter.address == event.address for voter in state.voters):
        state.out.append(Done(event.ticket, f"{event.address} is another member's address"))
    elif len(role.joining) >= MAX_JOINING:
        state.out.append(Done(event.ticket, f"{len(role.joining)} nodes are being added: {', '.join(sorted(role.joining))}"))
    else:
        _, replaced = role.joining.get(event.node, ("", None))
        if replaced is not None:
            state.out.append(Done(replaced, "it was asked for again"))
        role.joining[event.node] = (event.address, event.ticket)
        role.reached.discard(event.node)
        role.unreached.pop(event.node, None)


def leave(state: State, role: Leader, event: Leave, now: float) -> None:
    """Refused if those that are left could not decide it: once it stands in the log neither they nor the others could go on.
    Who is about to go is not left."""
    nodes = {voter.node for voter in state.voters}
    rest = tuple(voter for voter in state.voters if voter.node != event.node and voter.node not in role.leaving)
    if event.node in role.joining:
        _, ticket = role.joining.pop(event.node)
        state.out += (Done(ticket, "taken back"), Done(event.ticket))
    elif state.me.fixed:
        _forget(state, role, event, now)
    elif event.node not in nodes or not rest:
        why = "nobody would be left" if event.node in nodes else "no member has that name"
        state.out.append(Done(event.ticket, f"{event.node!r} cannot be removed: {why}"))
    elif leading.in_touch(state, role, rest) < now - state.timing.check_quorum:
        why = f"of {[voter.node for voter in rest]}, which would be left, too few are up: start them first, or remove those"
        state.out.append(Done(event.ticket, f"{event.node!r} cannot be removed: {why}"))
    else:
        if (replaced := role.leaving.get(event.node)) is not None:
            state.out.append(Done(replaced, "it was asked for again"))
        role.leaving[event.node] = event.ticket


def _forget(state: State, role: Leader, event: Leave, now: float) -> None:
    """Nobody votes with fixed roles: a slave that went for good is only no longer missed."""
    stores = [store for store, peer in role.peers.items() if peer.node == event.node]
    if any(now - role.peers[store].touched < leading.GONE_S for store in stores):
        state.out.append(Done(event.ticket, f"{event.node!r} cannot be removed: it follows; stop it first"))
    elif not stores:
        state.out.append(Done(event.ticket, f"{event.node!r} cannot be removed: no slave of that name was here"))
    else:
        for store in stores:
            del role.peers[store]
        state.out.append(Done(event.ticket))


def advance(state: State, role: Leader, now: float, begin: bool) -> None:
    """At the end of each step: ends the change that was committed, begins the next
    if it may. This may append, so nothing follows it."""
    change = role.change
    if change is not None and change.end and state.hw >= change.end:
        role.change = None
        _end(state, role, change)
    if begin and role.change is None and not role.over and role.start_end and state.hw >= role.start_end:
        if state.is_voter():
            _begin(state, role, now)
        elif state.lists[-1][0] < state.hw:  # it was needed until that was committed
            names = tuple(peer.node for peer in leading.successors(state, role, now))
            leading.resign(state, role, names, "this node was taken out of the group")


def _end(state: State, role: Leader, change: Change) -> None:
    peer = role.peers.pop(change.gone, None)
    if peer is not None and peer.fetch is not None:
        state.out.append(Reply(peer.ticket, Fenced(state.epoch, "this store was taken out of the group")))
    if change.gone:
        role.removed.add(change.gone)
    still = any(voter.node == change.node for voter in state.voters)
    state.out.append(Done(change.ticket if still else role.leaving.pop(change.node, change.ticket)))


def failed(state: State, role: Leader, why: str) -> None:
    """The disk did not take the record of the change."""
    if role.change is not None and not role.change.end:
        state.out.append(Done(role.leaving.pop(role.change.node, role.change.ticket), why))
        role.change = None


def _begin(state: State, role: Leader, now: float) -> None:
    voters = state.voters
    gone = _replaced(voters)
    if gone is None and role.leaving:
        gone = next(voter for voter in voters if voter.node == next(iter(role.leaving)))
    if gone is not None:
        _propose(state, role, tuple(voter for voter in voters if voter != gone), Change(gone.node, None, gone.store))
        return
    for peer in role.peers.values():
        if _may_vote(state, role, peer, now) and _answers(state, role, peer, now):
            old = next((voter for voter in voters if voter.node == peer.node), None)
            address, ticket = role.joining.pop(peer.node, (old.address if old else "", None))
            _propose(state, role, (*voters, Voter(peer.node, peer.store, address)), Change(peer.node, ticket, ""))
            return


def _replaced(voters: Voters) -> Voter | None:
    """The older of two disks behind one node: newcomers stand at the end."""
    for index, voter in enumerate(voters):
        if any(later.node == voter.node for later in voters[index + 1 :]):
            return voter
    return None


def _may_vote(state: State, role: Leader, peer: Peer, now: float) -> bool:
    if any(voter.store == peer.store for voter in state.voters) or state.me.fixed or peer.may_have_lost_data:
        return False  # a voter that is not proven could be one too many to wait for
    known = peer.node in role.joining or any(voter.node == peer.node for voter in state.voters)
    return known and now - peer.caught_up >= state.timing.caught_up and now - peer.touched < state.timing.fetch_timeout


def _answers(state: State, role: Leader, peer: Peer, now: float) -> bool:
    """Whether a node that is being added is where it is said to be. It fetches from wherever it is, so only a question tells."""
    if peer.node not in role.joining or peer.node in role.reached:
        return True
    if now - role.unreached.setdefault(peer.node, now) >= UNREACHED_S:
        address, ticket = role.joining.pop(peer.node)
        why = f"{peer.node!r} has everything, but does not answer at {address}: add it with the address of its dLegerPeers"
        state.out.append(Done(ticket, why))
    return False


def answered(state: State, role: Leader, node: str, at: str, by: str) -> None:
    """`node` was told of this leader `at` its address, and `by` answered: it may be a member under another spelling of its own
    address. What was asked at an address that has been corrected since says nothing."""
    address, ticket = role.joining.get(node, ("", None))
    if not address or at != address:
        return
    if by in ("", node):
        role.reached.add(node)
    else:
        del role.joining[node]
        why = f"{by!r} answers at {address}, not {node!r}: add it with the address of its dLegerPeers"
        state.out.append(Done(ticket, why))


def _propose(state: State, role: Leader, voters: Voters, change: Change) -> None:
    role.change = change
    state.out.append(AppendEpoch(state.epochs[-1], VOTERS, voters, state.epochs))
