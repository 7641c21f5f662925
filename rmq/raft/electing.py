"""Elections: every change of role, and who may lead. The log decides (R9); everything else is time.

A pre-vote asks whether a vote would be granted and changes nothing anywhere (R10); the vote itself is durable before it
leaves (R8).
"""

from math import inf

from rmq.model import EpochRow, Voter
from rmq.raft import epochs, following, leading, messages as m
from rmq.raft.quorum import Outcome, outcome
from rmq.raft.roles import MOVES, Candidate, Follower, Leader, Opening, Peer, Role, State

START = "start"  # kind of the epoch record
FIRST_S, NEXT_S, APART_S = 0.01, 0.05, 0.015  # after the leader's certain death: first voter, each next one, random
BLIND_S, BLIND_RANDOM_S = 0.1, 0.2  # the same for a voter that does not know its place
HURRY_S = 2.0  # for so long after a certain death the next round follows a lost one at once
SUSPECT_S = 10.0  # between two warnings about what other nodes say


class Elections:
    """The part of the machine that knows roles. `role` and `state` are for reading."""

    def __init__(self, state: State, now: float) -> None:
        self.state = state
        self._suspected = -inf
        alone = len(state.voters) == 1 and state.is_voter()
        self.role: Role = Follower(now if alone else now + self._election_timeout())

    @property
    def leader(self) -> str:
        """The node id of the leader, "" if unknown."""
        if isinstance(self.role, Leader | Opening):
            return self.state.me.node
        return self.role.leader if isinstance(self.role, Follower) else ""

    # --- roles --------------------------------------------------------------------------------------------------------

    def _become(self, role: Role) -> None:
        assert (type(self.role), type(role)) in MOVES, f"{self.role} cannot become {role}"
        self.role = role

    def _election_timeout(self) -> float:
        """How long this node waits for a leader before it stands, in s. A node that is unfit lets others stand first."""
        timing, state = self.state.timing, self.state
        unfit = any(state.health) or state.reseeding
        return timing.fetch_timeout * (3 if unfit else 1) + state.chance() * timing.fetch_random

    def _follow(self, leader: str, now: float, transfer: bool = False, successor: str = "") -> None:
        """Becomes a follower, of no leader if `leader` is ""."""
        role = Follower(now + self._election_timeout(), leader, now, transfer=transfer, successor=successor, successor_told=now)
        self._become(role)
        following.fetch(self.state, role, now)

    def _refuse(self, ticket: m.Ticket, why: str, now: float) -> None:
        """Refuses a question of a peer that is broken, or is no member of the group."""
        self._suspect(f"a question of another node is refused: {why}", now)
        if ticket is not None:
            self.state.out.append(m.Done(ticket, why))

    def _suspect(self, why: str, now: float) -> None:
        """Warns the operator, at most once in `SUSPECT_S`, so that a peer that repeats itself does not fill the log."""
        if now - self._suspected >= SUSPECT_S:
            self._suspected = now
            self.state.out.append(m.Warn(why))

    def _step_down(self, now: float) -> None:
        assert isinstance(self.role, Leader)
        leading.close(self.state, self.role)
        self._follow("", now, successor=self.role.handing_to if self.state.me.fixed else "")

    def _adopt(self, epoch: int, leader: str, now: float) -> None:
        """A newer epoch exists (R12)."""
        if isinstance(self.role, Leader):
            self.role.over = f"epoch {epoch} has begun elsewhere"
            leading.close(self.state, self.role)
        self.state.save_vote(epoch, "-", self.state.proven)
        self._follow(leader, now)

    # --- elections ----------------------------------------------------------------------------------------------------

    def _stand(self, now: float, pre: bool, transfer: bool) -> None:
        """Asks every voter for its vote; with `pre` only whether it would be granted, which changes nothing (R10)."""
        state = self.state
        if state.me.fixed or not state.may_stand() or not state.ready or state.reseeding or state.stopping:
            if isinstance(self.role, Candidate):
                self._follow("", now)
            return
        if not pre:
            state.save_vote(state.epoch + 1, state.me.store, state.proven)
        timing = state.timing
        until = now + timing.vote + state.chance() * timing.vote_random
        before = self.role
        lost = before.lost if isinstance(before, Candidate) else self.leader
        role = Candidate(pre, transfer, now, until, lost)
        if isinstance(before, Follower | Candidate):
            role.place, role.gone_until = before.place, before.gone_until
        self._become(role)
        ask(state, role)
        self._count(role, now)

    def _count(self, role: Candidate, now: float) -> None:
        found = outcome(self.state.voters, role.grants)
        if found is Outcome.OPEN:
            return
        if role.pre:
            self._stand(now, pre=False, transfer=role.transfer)
        else:
            self._win(role, found, now)

    def _win(self, role: Candidate, found: Outcome, now: float) -> None:
        """A new leader first appends its epoch record (R6)."""
        state, me = self.state, self.state.me
        lossy = (found is Outcome.EVERYBODY or me.unclean) and state.end > state.log_start
        voters = tuple(Voter(one.node, one.store or role.stores[one.node], one.address) for one in state.voters)
        leader = Leader(now, peers=peers_of(role, voters))
        self._become(leader)
        row = EpochRow(state.epoch, state.end, me.store, lossy)
        state.out.append(m.AppendEpoch(row, START, voters, (*state.rows, row)))

    def _open(self, now: float, lossy: bool) -> None:
        """Fixed mode: begins an epoch without a vote."""
        state, me = self.state, self.state.me
        state.save_vote(state.epoch + 1, me.store, state.proven)
        self._become(Leader(now))
        row = EpochRow(state.epoch, state.end, me.store, lossy and state.end > state.log_start)
        state.out.append(m.AppendEpoch(row, START, (Voter(me.node, me.store, me.address),), (*state.rows, row)))

    def _on_vote(self, vote: m.Vote, ticket: m.Ticket, now: float) -> None:
        if vote.pre:
            self._reply_vote(ticket, self._objection(vote, now))
            return
        if vote.epoch > self.state.epoch:
            self._adopt(vote.epoch, "", now)
        refusal = objection(self.state, vote)
        if not refusal:
            if isinstance(self.role, Candidate):  # it was only pre-voting in this epoch
                self._follow("", now)
            assert isinstance(self.role, Follower)
            self.state.save_vote(vote.epoch, vote.store, self.state.proven)
            self.role.stand_at = now + self._election_timeout()
        self._reply_vote(ticket, refusal)

    def _objection(self, vote: m.Vote, now: float) -> str:
        """Why a pre-vote is denied, "" if it is not. A node in touch with a leader denies it, unless that leader asked for it."""
        role, timing = self.role, self.state.timing
        if not vote.transfer:
            if isinstance(role, Leader) and now < role.lease:
                return "this node leads"
            if isinstance(role, Follower) and role.leader and role.connected and now - role.heard < timing.fetch_timeout:
                return "a leader is there"
        return objection(self.state, vote)

    def _reply_vote(self, ticket: m.Ticket, refusal: str) -> None:
        state = self.state
        self.state.out.append(
            m.Reply(ticket, m.VoteAnswer(state.epoch, not refusal, state.proven, state.me.store, refusal, self.leader))
        )

    def _voted(self, event: m.Answered, now: float) -> None:
        """Only answers to the running round count (R16)."""
        role, vote, answer = self.role, event.request, event.answer
        assert isinstance(vote, m.Vote)
        if not isinstance(answer, m.VoteAnswer) or not isinstance(role, Candidate) or vote != ballot(self.state, role):
            return
        if answer.granted:
            note(self.state, role, event.node, answer)
            self._count(role, now)
        elif role.pre and answer.hint not in ("", role.lost, self.state.me.node) and answer.epoch == self.state.epoch:
            self._follow(answer.hint, now)
        else:
            role.denied.add(event.node)
            voters, without = self.state.voters, {role.lost, *role.denied}
            if now < role.gone_until and sum(one.node not in without for one in voters) <= len(voters) // 2:
                role.until = min(role.until, now + turn(role.place, self.state.chance()))

    def _on_announce(self, announce: m.Announce, ticket: m.Ticket, now: float) -> None:
        state = self.state
        if announce.epoch > state.epoch:
            self._adopt(announce.epoch, announce.leader, now)
        elif announce.epoch == state.epoch and announce.leader != self.leader:
            if isinstance(self.role, Leader) or (self.leader and not state.me.fixed):
                self._refuse(ticket, f"two leaders in epoch {state.epoch}: {self.leader}, {announce.leader} (R1)", now)
                return
            self._follow(announce.leader, now)
        elif announce.epoch == state.epoch and isinstance(self.role, Follower) and self.role.fetch is None:
            following.fetch(state, self.role, now)
        state.out.append(m.Reply(ticket, m.EpochAnswer(state.epoch)))

    def _on_resign(self, resign: m.Resign, ticket: m.Ticket, now: float) -> None:
        """The first successor stands at once, the others give each before them one round."""
        state = self.state
        if resign.epoch == state.epoch and isinstance(self.role, Follower):
            place = resign.successors.index(state.me.node) if state.me.node in resign.successors else len(resign.successors)
            self._follow("", now, transfer=True)
            if state.me.fixed and place == 0 and state.ready:
                self._open(now, lossy=not state.proven)  # it may have lost power meanwhile
                state.out.append(m.Reply(ticket, m.EpochAnswer(state.epoch)))
                return
            is_named = place < len(resign.successors)
            self.role.stand_at = now + (place * state.timing.vote if is_named else self._election_timeout())
            if place == 0 and not any(state.health):
                self._stand(now, pre=True, transfer=True)
        state.out.append(m.Reply(ticket, m.EpochAnswer(state.epoch)))


def turn(place: int, chance: float) -> float:
    """How long this voter waits, in s, before it stands after the leader certainly died, or after a round that was lost then.
    The voter that has most of the log stands first, so that the others need not."""
    return BLIND_S + chance * BLIND_RANDOM_S if place < 0 else FIRST_S + place * NEXT_S + chance * APART_S


# --- votes ------------------------------------------------------------------------------------------------------------


def ballot(state: State, role: Candidate) -> m.Vote:
    """The question of this round; a pre-vote asks for the epoch after this one."""
    epoch = state.epoch + 1 if role.pre else state.epoch
    return m.Vote(epoch, state.me.node, state.me.store, epochs.last(state.rows)[0], state.end, role.pre, role.transfer)


def ask(state: State, role: Candidate) -> None:
    """Grants its own vote, if it has one, and asks all others."""
    me = state.me
    own = state.voter_of(me.node, me.store)
    if own is not None:
        role.grants[own], role.stores[me.node] = state.proven, me.store
    vote = ballot(state, role)
    for node in dict.fromkeys(voter.node for voter in state.voters if voter.node != me.node):
        state.out.append(m.Send(node, vote))


def objection(state: State, vote: m.Vote) -> str:
    """Why this vote is not granted, "" if it is: an older or given vote, or a log that lacks what is here (R8, R9)."""
    if vote.epoch < state.epoch or (vote.epoch == state.epoch and state.voted_for not in ("-", vote.store)):
        return f"the vote in epoch {state.epoch} is given"
    if state.reseeding:  # afterwards it may: it is not proven, so its vote counts only where everybody's is needed
        return "this node is being filled from a snapshot"
    if (vote.last_epoch, vote.end) < (epochs.last(state.rows)[0], state.end):
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
