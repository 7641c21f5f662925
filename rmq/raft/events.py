"""What goes into the machine. Values only."""

from typing import NamedTuple

from rmq.model import EpochEntry, EpochHistory
from rmq.raft.messages import Answer, Request, Ticket, Voters


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


class Arriving(NamedTuple):
    """A part of an answer of `node` came just now, and its end is missing: it is large, or the line is slow."""

    node: str


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


class TurnEnded(NamedTuple):
    """What `AwaitTurnEnd` asked for."""


class AppendFailed(NamedTuple):
    """The disk could not write an `AppendBytes` or an epoch record."""

    why: str


class Flushed(NamedTuple):
    durable: int


class Health(NamedTuple):
    """Why this node should not lead: it cannot read bytes below HW, or its disk takes none. (Dispatch is never far behind: it
    goes with each commit.)"""

    damaged: bool = False
    disk_full: bool = False


class Stop(NamedTuple):
    """This node is about to stop: it does not stand for election any more, and no leader shall hand over to it. `Transfer` asks a
    leader itself to hand over."""


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
    """Fixed mode: the nameservers say who the master is ("": nobody). `epoch`: the newest they have heard of."""

    node: str
    epoch: int = 0


class Promote(NamedTuple):
    """Fixed mode: an administrator makes this slave the master, or lets a master that waits for slaves begin."""

    ticket: Ticket = None


Event = (
    Tick
    | PeerRequest
    | PeerAnswer
    | Arriving
    | Unreachable
    | Grown
    | TurnEnded
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
