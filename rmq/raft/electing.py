"""Elections: every change of role, and who may lead. The log decides (R9); everything else is time.

A pre-vote asks whether a vote would be granted and changes nothing anywhere (R10); the vote itself is durable before it
leaves (R8).
"""

from rmq.model import EpochEntry, Voter
from rmq.raft import effects as fx, epochs, events as ev, following, leading, messages as m
from rmq.raft.quorum import Outcome, outcome
from rmq.raft.roles import MOVES, Candidate, Follower, Leader, Peer, Role, State

START = "start"  # kind of the epoch record
FIRST_S, NEXT_S, APART_S = 0.01, 0.05, 0.015  # after the leader's certain death: first voter, each next one, random
BLIND_S, BLIND_RANDOM_S = 0.1, 0.2  # the same for a voter that does not know its place
HURRY_S = 2.0  # for so long after a certain death the next round follows a lost one at once
AGAIN_S = 10.0  # before a master begins again whose disk did not take the record of its epoch
SUSPECT_S = 10.0  # between two warnings about what other nodes say


# --- roles ------------------------------------------------------------------------------------------------------------


def begin(state: State, now: float) -> None:
    """Every node begins as a follower; one that is the only voter stands at once."""
    alone = len(state.voters) == 1 and state.is_voter()
    state.role = Follower(now if alone else now + election_timeout(state))


def become(state: State, role: Role) -> None:
    assert (type(state.role), type(role)) in MOVES, f"{state.role} cannot become {role}"
    state.role = role


def election_timeout(state: State) -> float:
    """How long this node waits for a leader before it stands, in s. A node that is unfit lets others stand first."""
    timing = state.timing
    unfit = any(state.health) or state.installing
    return timing.fetch_timeout * (3 if unfit else 1) + state.chance() * timing.fetch_random


def follow(state: State, leader: str, now: float, transfer: bool = False, successor: str = "") -> Follower:
    """Becomes a follower, of no leader if `leader` is ""."""
    role = Follower(now + election_timeout(state), leader, now, transfer=transfer, successor=successor, successor_notified=now)
    become(state, role)
    following.fetch(state, role, now)
    return role


def refuse(state: State, ticket: m.Ticket, why: str, now: float) -> None:
    """Refuses a question of a peer that is broken, or is no member of the group."""
    suspect(state, f"a question of another node is refused: {why}", now)
    if ticket is not None:
        state.out.append(fx.Done(ticket, why))


def suspect(state: State, why: str, now: float) -> None:
    """Warns the operator, at most once in `SUSPECT_S`, so that a peer that repeats itself does not fill the log."""
    if now - state.suspected >= SUSPECT_S:
        state.suspected = now
        state.out.append(fx.Warn(why))


def step_down(state: State, now: float) -> None:
    assert isinstance(state.role, Leader)
    fixed, led = state.me.fixed, state.role
    leading.close(state, led)
    role = follow(state, "", now, successor=led.handing_to if fixed else "")
    if fixed and not led.start_end:
        role.unbegun, role.stand_at = True, now + AGAIN_S


def adopt(state: State, epoch: int, leader: str, now: float) -> None:
    """A newer epoch exists (R12)."""
    if isinstance(state.role, Leader):
        state.role.over = f"epoch {epoch} has begun elsewhere"
        leading.close(state, state.role)
    state.save_vote(epoch, "-", state.proven)
    follow(state, leader, now)


# --- elections --------------------------------------------------------------------------------------------------------


def stand(state: State, now: float, pre: bool, transfer: bool) -> None:
    """Asks every voter for its vote; with `pre` only whether it would be granted, which changes nothing (R10)."""
    if state.me.fixed or not state.may_stand() or not state.ready or state.stopping:
        if isinstance(state.role, Candidate):
            follow(state, "", now)
        return
    if not pre:
        state.save_vote(state.epoch + 1, state.me.store, state.proven)
    timing = state.timing
    until = now + timing.vote + state.chance() * timing.vote_random
    before = state.role
    lost = before.lost if isinstance(before, Candidate) else state.leader
    role = Candidate(pre, transfer, now, until, lost)
    if isinstance(before, Follower | Candidate):
        role.place, role.gone_until = before.place, before.gone_until
    become(state, role)
    ask(state, role)
    _count(state, role, now)


def _count(state: State, role: Candidate, now: float) -> None:
    found = outcome(state.voters, role.grants)
    if found is Outcome.OPEN:
        return
    if role.pre:
        stand(state, now, pre=False, transfer=role.transfer)
    else:
        _win(state, role, found, now)


def _win(state: State, role: Candidate, found: Outcome, now: float) -> None:
    """A new leader first appends its epoch record (R6). There its own disk has the name by which this node is known now: a broker
    that stood alone may get another one in its group."""
    me = state.me
    lossy = (found is Outcome.EVERYBODY or me.unclean) and state.end > state.log_start
    voters = tuple(
        Voter(me.node if one.store == me.store else one.node, one.store or role.stores[one.node], one.address)
        for one in state.voters
    )
    leader = Leader(now, peers=peers_of(role, voters))
    become(state, leader)
    entry = EpochEntry(state.epoch, state.end, me.store, lossy)
    state.out.append(fx.AppendEpoch(entry, START, voters, (*state.epochs, entry)))


def open_epoch(state: State, now: float, lossy: bool, ticket: m.Ticket = None) -> None:
    """Fixed mode: begins an epoch without a vote. Also an empty log may have lost something, unless this is its first epoch.
    `ticket`: of who asked for it, who hears when it is on the disk."""
    me = state.me
    lossy = lossy and (state.end > state.log_start or state.epoch > 0)
    state.save_vote(state.epoch + 1, me.store, state.proven)
    become(state, Leader(now, ticket=ticket))
    entry = EpochEntry(state.epoch, state.end, me.store, lossy)
    state.out.append(fx.AppendEpoch(entry, START, (Voter(me.node, me.store, me.address),), (*state.epochs, entry)))


def on_vote(state: State, vote: m.Vote, ticket: m.Ticket, now: float) -> None:
    if vote.pre:
        _reply_vote(state, ticket, _pre_objection(state, vote, now))
        return
    if vote.epoch > state.epoch:
        adopt(state, vote.epoch, "", now)
    refusal = objection(state, vote)
    if not refusal:
        if isinstance(state.role, Candidate):  # it was only pre-voting in this epoch
            follow(state, "", now)
        assert isinstance(state.role, Follower)
        state.save_vote(vote.epoch, vote.store, state.proven)
        state.role.stand_at = now + election_timeout(state)
    _reply_vote(state, ticket, refusal)


def _pre_objection(state: State, vote: m.Vote, now: float) -> str:
    """Why a pre-vote is denied, "" if it is not. A node in touch with a leader denies it, unless that leader asked for it."""
    role, timing = state.role, state.timing
    if not vote.transfer:
        if isinstance(role, Leader) and now < role.lease:
            return "this node leads"
        if isinstance(role, Follower) and role.leader and role.connected and now - role.heard < timing.fetch_timeout:
            return "a leader is there"
    return objection(state, vote)


def _reply_vote(state: State, ticket: m.Ticket, refusal: str) -> None:
    state.out.append(
        fx.Reply(ticket, m.VoteAnswer(state.epoch, not refusal, state.proven, state.me.store, refusal, state.leader))
    )


def on_voted(state: State, event: ev.PeerAnswer, now: float) -> None:
    """Only answers to the running round count (R16)."""
    role, vote, answer = state.role, event.request, event.answer
    assert isinstance(vote, m.Vote)
    if not isinstance(answer, m.VoteAnswer) or not isinstance(role, Candidate) or vote != ballot(state, role):
        return
    if answer.granted:
        note(state, role, event.node, answer)
        _count(state, role, now)
    elif role.pre and answer.hint not in ("", role.lost, state.me.node) and answer.epoch == state.epoch:
        follow(state, answer.hint, now)
    else:
        role.denied.add(event.node)
        voters, without = state.voters, {role.lost, *role.denied}
        if now < role.gone_until and sum(one.node not in without for one in voters) <= len(voters) // 2:
            role.until = min(role.until, now + turn(role.place, state.chance()))


def on_announce(state: State, announce: m.Announce, ticket: m.Ticket, now: float) -> None:
    if announce.epoch > state.epoch:
        adopt(state, announce.epoch, announce.leader, now)
    elif announce.epoch == state.epoch and announce.leader != state.leader:
        if isinstance(state.role, Leader) or (state.leader and not state.me.fixed):
            refuse(state, ticket, f"two leaders in epoch {state.epoch}: {state.leader}, {announce.leader} (R1)", now)
            return
        follow(state, announce.leader, now)
    elif announce.epoch == state.epoch and isinstance(state.role, Follower) and state.role.fetch is None:
        following.fetch(state, state.role, now)
    state.out.append(fx.Reply(ticket, m.EpochAnswer(state.epoch, state.me.node)))


def on_resign(state: State, resign: m.Resign, ticket: m.Ticket, now: float) -> None:
    """The first successor stands at once, the others give each before them one round."""
    if resign.epoch == state.epoch and isinstance(state.role, Follower):
        place = resign.successors.index(state.me.node) if state.me.node in resign.successors else len(resign.successors)
        follow(state, "", now, transfer=True)
        if state.me.fixed and place == 0 and state.ready:
            open_epoch(state, now, lossy=not state.proven)  # it may have lost power meanwhile
            state.out.append(fx.Reply(ticket, m.EpochAnswer(state.epoch, state.me.node)))
            return
        is_named = place < len(resign.successors)
        state.role.stand_at = now + (place * state.timing.vote if is_named else election_timeout(state))
        if place == 0 and not any(state.health):
            stand(state, now, pre=True, transfer=True)
    state.out.append(fx.Reply(ticket, m.EpochAnswer(state.epoch, state.me.node)))


def turn(place: int, chance: float) -> float:
    """How long this voter waits, in s, before it stands after the leader certainly died, or after a round that was lost then.
    The voter that has most of the log stands first, so that the others need not."""
    return BLIND_S + chance * BLIND_RANDOM_S if place < 0 else FIRST_S + place * NEXT_S + chance * APART_S


# --- votes ------------------------------------------------------------------------------------------------------------


def ballot(state: State, role: Candidate) -> m.Vote:
    """The question of this round; a pre-vote asks for the epoch after this one."""
    epoch = state.epoch + 1 if role.pre else state.epoch
    return m.Vote(epoch, state.me.node, state.me.store, epochs.last(state.epochs)[0], state.end, role.pre, role.transfer)


def ask(state: State, role: Candidate) -> None:
    """Grants its own vote, if it has one, and asks all others."""
    me = state.me
    own = state.voter_of(me.node, me.store)
    if own is not None:
        role.grants[own], role.stores[me.node] = state.proven, me.store
    vote = ballot(state, role)
    for node in dict.fromkeys(voter.node for voter in state.voters if voter.node != me.node):
        state.out.append(fx.Send(node, vote))


def objection(state: State, vote: m.Vote) -> str:
    """Why this vote is not granted, "" if it is: an older or given vote, or a log that lacks what is here (R8, R9)."""
    if vote.epoch < state.epoch or (vote.epoch == state.epoch and state.voted_for not in ("-", vote.store)):
        return f"the vote in epoch {state.epoch} is given"
    if state.installing:  # afterwards it may: it is not proven, so its vote counts only where everybody's is needed
        return "this node is being filled from a snapshot"
    if (vote.last_epoch, vote.end) < (epochs.last(state.epochs)[0], state.end):
        return "the log here goes further"
    return ""


def note(state: State, role: Candidate, node: str, answer: m.VoteAnswer) -> None:
    """A grant counts only of a store in the candidate's own list."""
    voter = state.voter_of(node, answer.store)
    if voter is not None:
        role.grants[voter], role.stores[node] = answer.proven, answer.store


def peers_of(role: Candidate, voters: m.Voters) -> dict[str, Peer]:
    """What the winner knows of its voters: each that granted was in touch when the vote was sent."""
    granted = {role.stores[voter.node] for voter in role.grants if voter.node in role.stores}
    return {voter.store: Peer(voter.node, voter.store, seen=role.asked_at) for voter in voters if voter.store in granted}
