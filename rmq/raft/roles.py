"""What a node knows in every role, what each role keeps, and the legal moves between roles.

Only data, and the few changes of it that must hold their own rules. Transitions
are functions over `State`, in `core`, `electing`, `fixed`, `following`, `leading`, `membership`.

    follower  -> candidate             no leader for a while; asks first (pre-vote), then stands
    candidate -> follower              a leader is there, a newer epoch, or nobody answers
    candidate -> leader                won
    leader    -> follower              newer epoch, lost its majority, hands over
    starting  -> leader, follower      fixed mode: a master that has what its slaves have, or a newer one is there
    follower  -> leader                fixed mode: promoted
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from rmq.model import Voter
from rmq.raft import epochs
from rmq.raft.effects import Commit, Effect, SaveVote
from rmq.raft.events import EpochMark, Health
from rmq.raft.identity import Identity, RestoredState, Timing
from rmq.raft.messages import MAX_FETCH_BYTES, Fetch, FetchOk, Ticket, Voters

BEHIND_BYTES = 64 << 20
LAST_EPOCH = 2**63 - 1  # what fits into a message


class State:
    """What outlives a change of role. `out`: the effects of the running step."""

    def __init__(self, me: Identity, restored: RestoredState, timing: Timing, chance: Callable[[], float]) -> None:
        self.me = me
        self.timing = timing
        self.chance = chance
        self.epoch, self.voted_for, self.proven = restored.epoch, restored.voted_for, restored.proven
        self.log_start, self.end, self.hw = restored.log_start, restored.end, restored.hw
        self.durable = restored.end
        self.epochs = restored.epochs
        self.lists = list(restored.lists)
        self.ready_at = restored.ready_at
        self.required: int | None = None  # committed when this run first heard of a leader; a store that has it is proven
        self.installing = False
        self.was_proven = False  # before that
        self.filled_in = 0  # epoch of the leader whose snapshot this run took last
        self.keep_from = -1  # where the lossy leader's log parts from this one, below what was committed here
        self.probing = False  # fixed mode: that place is still being looked for
        self.fetches = 0
        self.share = MAX_FETCH_BYTES  # of the log, asked for at once: what the line to the leader brings in a short time
        self.snapshot = restored.snapshot
        self.health = Health()
        self.stopping = False
        self.out: list[Effect] = []
        self.role: Role = Follower(inf)
        self.last_tick = 0.0
        self.suspected = -inf  # when the operator was last warned of what other nodes say

    @property
    def leader(self) -> str:
        """The node id of the leader, "" if unknown."""
        if isinstance(self.role, Leader | StartingMaster):
            return self.me.node
        return self.role.leader if isinstance(self.role, Follower) else ""

    @property
    def voters(self) -> Voters:
        """The last list in the log counts, committed or not (R22)."""
        return self.lists[-1][1] if self.lists else ()

    @property
    def ack(self) -> int:
        """Up to where this node promises to keep the log (R7)."""
        return self.durable if self.me.sync_flush else self.end

    @property
    def ready(self) -> bool:
        """False while a snapshot is being taken, or log behind one is missing: then this node serves no reads, does not stand
        and is not proven."""
        return not self.installing and self.end >= self.ready_at

    @property
    def wants_snapshot(self) -> bool:
        """Whether only a snapshot helps: what parts from the leader's log was committed here. Or, with fixed roles, the tables
        are ahead of the log, and from the snapshot of a master that another one has replaced, whose log may be another."""
        parted = self.keep_from >= 0 and not self.probing
        return parted or (self.me.fixed and not self.ready and self.filled_in != self.epoch)

    def is_voter(self) -> bool:
        return self.voter_of(self.me.node, self.me.store) is not None

    def may_stand(self) -> bool:
        """Also while the record that takes this node out is not committed: its log may be the one that is needed."""
        me = self.me
        return self.epoch < LAST_EPOCH and any(
            voter.store == me.store or (not voter.store and voter.node == me.node) for _, voters in self.lists for voter in voters
        )

    def was_removed(self) -> bool:
        """Whether the last list does not name this disk any more, as far as this node heard."""
        return self.may_stand() and not self.is_voter()

    def is_named(self) -> bool:
        """Whether a committed list names this disk. (A list that is cut later would make it look like an old disk.)"""
        return bool(self.lists) and any(voter.store == self.me.store for voter in self.lists[0][1])

    def voter_of(self, node: str, store: str) -> Voter | None:
        """The voter that this store is; a configured one whose disk is unknown is found by its node id."""
        for voter in self.voters:
            if voter.store == store or (not voter.store and voter.node == node):
                return voter
        return None

    def save_vote(self, epoch: int, voted_for: str, proven: bool) -> None:
        assert epoch >= self.epoch, f"epoch {self.epoch} would fall to {epoch} (R12)"
        assert epoch > self.epoch or self.voted_for in ("-", voted_for), f"a second vote in epoch {epoch} (R8)"
        self.epoch, self.voted_for, self.proven = epoch, voted_for, proven
        self.out.append(SaveVote(epoch, voted_for, proven))

    def commit(self, hw: int) -> None:
        """HW never goes back (R17)."""
        if hw > self.hw:
            assert hw <= self.end, f"committed {hw} is behind the end {self.end}"
            self.hw = hw
            while len(self.lists) > 1 and self.lists[1][0] < hw:
                self.lists.pop(0)
            self.out.append(Commit(hw))

    def take(self, mark: EpochMark) -> None:
        """An epoch record that was appended: its entry, and its list of voters at once (R22)."""
        self.epochs = epochs.merged(self.epochs, mark.entry)
        if mark.voters != self.voters:
            self.lists.append((mark.start, mark.voters))

    def cut(self, to: int) -> None:
        self.epochs = epochs.below(self.epochs, to)
        while len(self.lists) > 1 and self.lists[-1][0] >= to:
            self.lists.pop()
        self.end = self.durable = to

    def prove(self) -> None:
        """Everything that may have been acknowledged before this run is here again (D3)."""
        if not self.proven and self.required is not None and self.ack >= self.required and self.ready:
            self.save_vote(self.epoch, self.voted_for, True)


@dataclass(slots=True)
class Follower:
    """`leader`: node id, "" if unknown. `heard`: when it last answered. `knew`: when this node asked for the newest answer whose
    bytes it has, and what was committed when that was given. `stand_at`: when this node begins to ask for votes.
    `since`: from when on its silence counts, if it never answered.
    `successor`: fixed mode, the node that this one handed leadership to and has not seen leading yet; no other would take it."""

    stand_at: float
    leader: str = ""
    since: float = -inf
    heard: float = -inf
    knew: tuple[float, int] = (-inf, 0)
    connected: bool = True
    transfer: bool = False  # the leader asked this node to stand
    fetch: Fetch | None = None  # the one outstanding request (R16)
    fetch_sent: float = -inf
    moved: float = -inf  # when a part of its answer came last
    pending: FetchOk | None = None  # its bytes are being appended
    echo: float = -1.0
    leader_hw: int = 0
    bad: int = 0  # times in a row that the leader's bytes were no entries
    successor: str = ""
    successor_notified: float = -inf
    unbegun: bool = False  # fixed mode: the record of an epoch of its own could not be stored
    place: int = -1  # among the followers, as the leader said last
    gone_until: float = -inf  # until then the leader's process is certainly gone, so nobody need wait for it


@dataclass(slots=True)
class Candidate:
    """`pre`: only asking. `grants`: who granted, and whether proven; `stores`: the disks behind configured nodes."""

    pre: bool
    transfer: bool
    asked_at: float
    until: float
    lost: str  # the leader that it does not hear any more; hints to it are ignored
    place: int = -1
    gone_until: float = -inf  # both as of `Follower`
    grants: dict[Voter, bool] = field(default_factory=dict)
    stores: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)  # nodes


@dataclass(slots=True)
class Peer:
    """What a leader knows of one store that fetches. `seen`: the newest stamp of mine that it has echoed."""

    node: str
    store: str
    incarnation: int = 0
    end: int = -1
    ack: int = -1
    hw: int = 0  # that it knew when it asked
    sent_hw: int = 0  # that this leader has sent it since; it may not have arrived
    seen: float = -inf
    touched: float = -inf  # when it last fetched
    caught_up: float = inf  # since when it is near the end
    goal: int = -1  # end of the leader's log when it last fetched,
    goal_at: float = -inf  # which was then
    level: float = -inf  # when it last had everything
    disk_full: bool = False
    may_have_lost_data: bool = False
    stopping: bool = False
    fetch: Fetch | None = None  # parked
    ticket: Ticket = None  # of its last fetch, also when that is answered
    until: float = 0.0  # when the parked fetch is answered at the latest


@dataclass(slots=True)
class Change:
    """A change of membership under way. `ticket`: of who adds a node (`Leader.leaving` has those of who removes one).
    `end` of its record (0: not appended); `gone`: the store that it takes out."""

    node: str
    ticket: Ticket
    gone: str
    end: int = 0


@dataclass(slots=True)
class Leader:
    """`start_end`: where this epoch's first record ends (0: not appended yet). `peers`: by store."""

    since: float
    start_end: int = 0
    lease: float = -inf  # a majority has certainly seen this leader until then
    peers: dict[str, Peer] = field(default_factory=dict)
    announced: dict[str, float] = field(default_factory=dict)  # by node: when it was last told
    joining: dict[str, tuple[str, Ticket]] = field(default_factory=dict)  # node -> address
    reached: set[str] = field(default_factory=set)  # nodes that answered at the address under which they are being added
    unreached: dict[str, float] = field(default_factory=dict)  # since when others of them lack only that
    leaving: dict[str, Ticket] = field(default_factory=dict)  # nodes, until no store of theirs is a voter
    removed: set[str] = field(default_factory=set)  # stores taken out in this epoch
    change: Change | None = None
    replicated: int = -1  # fixed mode: up to where enough nodes have the log
    handing_to: str = ""  # node that leadership is being handed to
    hand_until: float = 0.0
    hand_ticket: Ticket = None
    ticket: Ticket = None  # fixed mode: of who made this node the master, until the epoch is on the disk
    awaits_turn: bool = False  # fetches that there are bytes for are answered at the end of this turn
    over: str = ""  # why it must step down at the end of this step


@dataclass(slots=True)
class StartingMaster:
    """A fixed master before its epoch: it may lack what its slaves have. `heard`: their ends, by node."""

    until: float
    heard: dict[str, int] = field(default_factory=dict)
    source: str = ""  # the slave whose tail is being pulled back
    gained: float = -inf  # when the log last grew by it
    fetch: Fetch | None = None
    fetch_sent: float = -inf
    moved: float = -inf  # as of `Follower`


Role = Follower | Candidate | Leader | StartingMaster
MOVES = {
    (Follower, Follower), (Follower, Candidate), (Candidate, Candidate), (Candidate, Follower), (Candidate, Leader),
    (Leader, Follower), (StartingMaster, Leader), (StartingMaster, Follower), (Follower, Leader),
}  # fmt: skip
