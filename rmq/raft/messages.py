"""What nodes say to each other. Values only.

Offsets are bytes of the log, times seconds of the node's own monotonic clock.
"""

from typing import Any, NamedTuple

from rmq.model import Voter

Voters = tuple[Voter, ...]
Ticket = Any
"""Given with a request, given back with its answer; only the shell knows what it is."""

MAX_FETCH_BYTES = 1 << 20
MAX_CATCH_UP_BYTES = 8 << 20  # of a follower that is more than 64 MiB behind


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
    """Repeated until that node fetches. `at`: where a node that is being added is told; it does not travel."""

    epoch: int
    leader: str
    address: str
    voters: Voters
    at: str = ""


class Resign(NamedTuple):
    """The leader resigns; the first successor stands at once."""

    epoch: int
    successors: tuple[str, ...]


class EpochAnswer(NamedTuple):
    """To Announce and Resign. `node`: who answers; "" in answers of releases that did not say it."""

    epoch: int
    node: str = ""


FetchAnswer = FetchOk | Diverged | NeedsSnapshot | NotLeader | Fenced
Request = Fetch | Ack | Vote | Announce | Resign
Answer = FetchAnswer | VoteAnswer | EpochAnswer
