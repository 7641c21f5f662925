"""What goes into the machine and what comes out: messages between nodes, events, effects. Values only.

Offsets are bytes of the log, times seconds of the node's own monotonic clock. An effect list is carried out in its order:
whatever must be durable before something leaves the node stands before it.
"""

from typing import Any, NamedTuple

from rmq.model import EpochEntry, EpochHistory, Voter

Voters = tuple[Voter, ...]
Ticket = Any
"""Given with a request, given back with its answer; only the shell knows what it is."""

MAX_FETCH_BYTES = 1 << 20
MAX_CATCH_UP_BYTES = 8 << 20  # of a follower that is more than 64 MiB behind

# --- messages between nodes -------------------------------------------------------------------------------------------


class Fetch(NamedTuple):
    """A follower asks for the bytes behind its end; what it says about itself is its acknowledgement.

    `from_` is its end, `last_epoch` and `last_writer` its last epoch entry, `ack` what it promises to keep (its durable end
    under sync flush), `echo` the leader's stamp of the answer before (-1: none). `learner`: no list of voters it knows
    names it. `pull_back`: a fixed master asks its slave for what it lost. `stopping`: it ends in a moment, so it must not be
    handed leadership.
    """

    id: int
    group: str
    node: str
    store: str
    incarnation: int
    epoch: int
    from_: int
    last_epoch: int
    last_writer: str
    ack: int
    hw: int
    log_start: int
    echo: float = -1.0
    learner: bool = False
    may_have_lost_data: bool = False
    disk_full: bool = False
    wants_snapshot: bool = False
    pull_back: bool = False
    sync_flush: bool = False
    max_bytes: int = MAX_FETCH_BYTES
    max_wait: float = 0.25
    stopping: bool = False


class FetchOk(NamedTuple):
    """Whole entries from `from_` on. `epoch_start_end`: where the leader's epoch record ends. `stamp`: its clock, for echoing.
    `place`: of the asking node among the voters that follow, by how far they are; 0 is the furthest, -1 is none of them."""

    id: int
    epoch: int
    leader: str
    from_: int
    data: bytes
    hw: int
    epoch_start_end: int
    log_start: int
    stamp: float
    place: int = -1


class Diverged(NamedTuple):
    """The two logs part: `parted_epoch` (of `writer`) ends at `end` in the leader's. `lossy`: the epoch after it lost bytes."""

    id: int
    epoch: int
    parted_epoch: int
    end: int
    writer: str
    lossy: bool


class NeedsSnapshot(NamedTuple):
    """What the follower needs is gone here: it takes the snapshot `s0` (exact at `s1`), then the log from `log_start` on."""

    id: int
    epoch: int
    s0: int
    s1: int
    log_start: int


class NotLeader(NamedTuple):
    epoch: int
    hint: str  # node id, or ""


class Fenced(NamedTuple):
    """Refused for good: an older epoch or incarnation, or a store that is no member."""

    epoch: int
    reason: str


class Ack(NamedTuple):
    """An fsync ended while a fetch is parked. Needs no answer."""

    epoch: int
    store: str
    incarnation: int
    ack: int


class Vote(NamedTuple):
    """`pre`: only asking; nothing is promised. `transfer`: the leader wants it, so a live leader is no objection."""

    epoch: int
    candidate: str
    store: str
    last_epoch: int
    end: int
    pre: bool
    transfer: bool


class VoteAnswer(NamedTuple):
    epoch: int
    granted: bool
    proven: bool
    store: str
    reason: str
    hint: str


class Announce(NamedTuple):
    """Repeated until that node fetches."""

    epoch: int
    leader: str
    address: str
    voters: Voters


class Resign(NamedTuple):
    """The leader resigns; the first successor stands at once."""

    epoch: int
    successors: tuple[str, ...]


class EpochAnswer(NamedTuple):
    """To Announce and Resign."""

    epoch: int


FetchAnswer = FetchOk | Diverged | NeedsSnapshot | NotLeader | Fenced
Request = Fetch | Ack | Vote | Announce | Resign
Answer = FetchAnswer | VoteAnswer | EpochAnswer

# --- events -----------------------------------------------------------------------------------------------------------


class Tick(NamedTuple):
    """Time passes: at least every 50 ms, and after the sockets were read."""


class PeerRequest(NamedTuple):
    """A request came from another node; `Reply` with this ticket answers it (None: one-way)."""

    request: Request
    ticket: Ticket = None


class PeerAnswer(NamedTuple):
    """`node` answered `request`, which was sent by a `Send` before."""

    node: str
    request: Request
    answer: Answer


class Unreachable(NamedTuple):
    """The connection to `node` was reset and a new one is refused: its process is gone."""

    node: str


class EpochMark(NamedTuple):
    """An epoch record that now stands in the log. `start`: where it begins, with the filler before it, if there is one."""

    start: int
    entry: EpochEntry
    kind: str
    voters: Voters


class Grown(NamedTuple):
    """The log now ends at `end`: own records, or the bytes of an `AppendBytes` as far as they were good (`bad`: what was not)."""

    end: int
    marks: tuple[EpochMark, ...] = ()
    bad: str = ""


class AppendFailed(NamedTuple):
    """The disk could not write an `AppendBytes` or an epoch record."""

    why: str


class Flushed(NamedTuple):
    durable: int


class Health(NamedTuple):
    """What speaks against this node as a leader: bytes below HW it cannot read, no room. (Dispatch is never far behind: it
    goes with each commit.)"""

    damaged: bool = False
    disk_full: bool = False


class Stop(NamedTuple):
    """This node is about to stop: it does not stand any more, and no leader shall hand over to it. A leader itself is asked by
    `Transfer` to hand over."""


class Retained(NamedTuple):
    """The log starts at `log_start`; `snapshot` is the newest one as (S0, S1), if there is any."""

    log_start: int
    snapshot: tuple[int, int] | None


class SnapshotInstalled(NamedTuple):
    """An `InstallSnapshot` is done: the log is empty and starts at `log_start`; the tables hold what was true at `s1`."""

    log_start: int
    epochs: EpochHistory
    voters: Voters
    s1: int


class InstallFailed(NamedTuple):
    """The snapshot could not be fetched; the answer to the next fetch says what to do."""


class Join(NamedTuple):
    """An administrator adds a node; answered by `Done`."""

    node: str
    address: str
    ticket: Ticket = None


class Leave(NamedTuple):
    node: str
    ticket: Ticket = None


class Transfer(NamedTuple):
    """Hand leadership to `node` ("": to the best one)."""

    node: str
    ticket: Ticket = None


class Follow(NamedTuple):
    """Fixed mode: the nameservers say who the master is ("": nobody). `epoch`: the newest they have heard of.
    `leads`: the master's epoch has begun."""

    node: str
    epoch: int = 0
    leads: bool = True


class Promote(NamedTuple):
    """Fixed mode: an administrator makes this slave the master. `handed_over`: the old master has stopped, all is here."""

    handed_over: bool
    ticket: Ticket = None


Event = (
    Tick
    | PeerRequest
    | PeerAnswer
    | Unreachable
    | Grown
    | AppendFailed
    | Flushed
    | Health
    | Stop
    | Retained
    | SnapshotInstalled
    | InstallFailed
    | Join
    | Leave
    | Transfer
    | Follow
    | Promote
)

# --- effects ----------------------------------------------------------------------------------------------------------


class SaveVote(NamedTuple):
    """Make it durable before anything that follows (R8)."""

    epoch: int
    voted_for: str
    proven: bool


class AppendEpoch(NamedTuple):
    """Append an epoch record of that kind and report `Grown` (with its mark). `start`: the leader's first append; the counters
    of the queues come first. `voters`: a change of membership. Always the last of its list."""

    entry: EpochEntry
    kind: str
    voters: Voters
    epochs: EpochHistory


class AppendBytes(NamedTuple):
    """Check the leader's bytes, append the whole good entries, and report `Grown`. Last of its list.

    `epoch`: the leader's; its log holds none that is newer."""

    at: int
    data: bytes
    epoch: int


class Cut(NamedTuple):
    """Cut the log to `to` and make that durable (docs/storage, cuts). `epochs`: the epoch history after it.

    `keep`: what is cut off is saved before, in a file `lost-<epoch>-<offset>` for the operator."""

    to: int
    epochs: EpochHistory
    keep: bool = False


class Send(NamedTuple):
    """`node`'s answer comes back as `PeerAnswer`."""

    node: str
    request: Request


class Reply(NamedTuple):
    ticket: Ticket
    answer: Answer


class ReplyBytes(NamedTuple):
    """`answer` with up to `max_bytes` of the log from its `from_` on, whole entries, at least one."""

    ticket: Ticket
    answer: FetchOk
    max_bytes: int


class Commit(NamedTuple):
    """Everything below `hw` is committed: dispatch, apply, then answer the waiters (while the lease is good)."""

    hw: int


class Replicated(NamedTuple):
    """Fixed mode: inSyncReplicas nodes, the master included, have everything below `offset`."""

    offset: int


class BecameLeader(NamedTuple):
    """Its epoch record stands in the log: sends may be taken."""

    epoch: int


class SteppedDown(NamedTuple):
    """No longer leader: waiters are unknown, overlays and counters are dropped."""

    epoch: int
    reason: str


class InstallSnapshot(NamedTuple):
    """Delete log and derived files, take the snapshot from `node`; then report `SnapshotInstalled` or `InstallFailed`.

    `keep_from`: the log from there on is saved before, as in `Cut` (-1: nothing is)."""

    node: str
    answer: NeedsSnapshot
    keep_from: int = -1


class Done(NamedTuple):
    """What became of a Join, Leave, Transfer or Promote: "" or why it was refused."""

    ticket: Ticket
    refusal: str = ""


class Warn(NamedTuple):
    """For the operator."""

    text: str


class Fatal(NamedTuple):
    """This node must stop now (R15); it does nothing more."""

    reason: str


Effect = (
    SaveVote
    | AppendEpoch
    | AppendBytes
    | Cut
    | Send
    | Reply
    | ReplyBytes
    | Commit
    | Replicated
    | BecameLeader
    | SteppedDown
    | InstallSnapshot
    | Done
    | Warn
    | Fatal
)

# --- what a machine is told when it is made ---------------------------------------------------------------------------


class Timing(NamedTuple):
    """Seconds. A round of votes lasts `vote` to `vote` + `vote_random`."""

    fetch_timeout: float = 1.5
    fetch_random: float = 1.0
    check_quorum: float = 1.35
    vote: float = 0.5
    vote_random: float = 0.5
    max_wait: float = 0.25
    transfer: float = 2.0
    preferred: float = 60.0
    caught_up: float = 1.0
    master_catch_up: float = 30.0


class Identity(NamedTuple):
    """Who this node is. `preferred`: the node that shall lead when it can. `fixed`: no votes, RocketMQ's master and slaves:
    `master` says which, `in_sync` how many nodes, itself included, a SYNC_MASTER waits for (1: ASYNC_MASTER). `unclean`: an
    administrator ended the waiting for nodes that may know more, so an epoch of this run may lack committed bytes."""

    group: str
    node: str
    store: str
    incarnation: int
    address: str
    sync_flush: bool = False
    preferred: str = ""
    fixed: bool = False
    in_sync: int = 1
    master: bool = False
    unclean: bool = False


class RestoredState(NamedTuple):
    """What the store holds at the start. `lists`: (start of the record, voters), oldest first; what is configured begins at -1.

    `ready_at`: the S1 of a snapshot whose log is not all here yet (0: nothing is missing)."""

    epoch: int
    voted_for: str
    proven: bool
    log_start: int
    end: int
    hw: int
    epochs: EpochHistory
    lists: tuple[tuple[int, Voters], ...]
    ready_at: int = 0
    snapshot: tuple[int, int] | None = None
