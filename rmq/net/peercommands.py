"""What the nodes of a broker group say to each other, and what an administrator tells such a group. Native spelling only.

The meaning is the machine's (`rmq.raft.messages`, docs/storage); here are only the fields as they travel. `group` is the
broker name: a question from another group, dialled by mistake, must not raise an epoch here. Times are seconds, offsets
bytes of the log. Pure.
"""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.model import EpochRow, Voter
from rmq.net.vocabulary import command

OK, DIVERGED, RESEED, NOT_LEADER, FENCED = range(5)  # kinds of FetchLogAnswer


class FetchLogAnswer(NamedTuple):
    """`kind` tells which fields count. OK: `data` are whole entries from `from_offset` on, committed below `hw`; the leader's
    epoch record ends at `epoch_start_end`; `stamp` comes back as the next `echo`. DIVERGED: the leader's `parted_epoch` of
    `writer` ends at `end`. RESEED: take the snapshot `s0` to `s1`, then the log from `log_start`. NOT_LEADER,
    FENCED: `hint` is the leader, `reason` why.
    """

    kind: int
    epoch: int
    leader: str = ""
    from_offset: int = 0
    data: bytes = b""
    hw: int = 0
    epoch_start_end: int = 0
    log_start: int = 0
    stamp: float = 0.0
    parted_epoch: int = 0
    end: int = 0
    writer: str = ""
    lossy: bool = False
    s0: int = 0
    s1: int = 0
    hint: str = ""
    reason: str = ""


@command(RequestCode.FETCH_LOG, FetchLogAnswer)
class FetchLog(NamedTuple):
    """A follower asks for the bytes behind its end `from_offset`; asking is its acknowledgement of `ack`."""

    id: int
    group: str
    node: str
    store: str
    incarnation: int
    epoch: int
    from_offset: int
    last_epoch: int
    last_writer: str
    ack: int
    hw: int
    log_start: int
    echo: float = -1.0
    learner: bool = False
    unproven: bool = False
    disk_full: bool = False
    reseed: bool = False
    pull_back: bool = False
    sync_flush: bool = False
    max_bytes: int = 1 << 20
    max_wait: float = 0.25


@command(RequestCode.ACK_LOG, None)
class AckLog(NamedTuple):
    """One-way: an fsync ended while the fetch waits."""

    group: str
    epoch: int
    store: str
    incarnation: int
    ack: int


class AskVoteAnswer(NamedTuple):
    epoch: int
    granted: bool
    proven: bool
    store: str
    reason: str
    hint: str


@command(RequestCode.ASK_VOTE, AskVoteAnswer)
class AskVote(NamedTuple):
    """`pre`: only asking. `transfer`: the leader wants it."""

    group: str
    epoch: int
    candidate: str
    store: str
    last_epoch: int
    end: int
    pre: bool
    transfer: bool


class EpochAnswer(NamedTuple):
    epoch: int


@command(RequestCode.ANNOUNCE_LEADER, EpochAnswer)
class AnnounceLeader(NamedTuple):
    group: str
    epoch: int
    leader: str
    address: str
    voters: list[Voter]


@command(RequestCode.RESIGN_LEADER, EpochAnswer)
class ResignLeader(NamedTuple):
    """`successors`: node ids; the first one stands at once."""

    group: str
    epoch: int
    successors: list[str]


class SnapshotPart(NamedTuple):
    """`data` from the asked position on; all of it are `total` bytes."""

    data: bytes
    total: int


@command(RequestCode.READ_SNAPSHOT, SnapshotPart)
class ReadSnapshot(NamedTuple):
    """Bytes of the snapshot file that begins at `s0`. SYSTEM_ERROR if it is gone: fetch again."""

    group: str
    s0: int
    position: int
    max_bytes: int = 1 << 20


@command(RequestCode.ADD_PEER, None)
class AddPeer(NamedTuple):
    """Make `node` at `address` ("host:port") a voter once it has caught up; answered when that is committed."""

    node: str
    address: str


@command(RequestCode.REMOVE_PEER, None)
class RemovePeer(NamedTuple):
    node: str


@command(RequestCode.TRANSFER_LEADER, None)
class TransferLeader(NamedTuple):
    """Hand leadership to `node` ("": to the best one); answered when the office was given up, or with why not."""

    node: str = ""


class MemberStatus(NamedTuple):
    """One store of the group as the answering node sees it. `end`, `ack`: -1 if it knows nothing of it; `lag`: bytes."""

    node: str
    store: str
    address: str
    voter: bool
    end: int
    ack: int
    lag: int
    seen_seconds_ago: float
    disk_full: bool
    unproven: bool


class GroupStatus(NamedTuple):
    """`role`: leader, follower, candidate or alone. `proven`: it may vote. `lease_good`: a majority follows this leader."""

    role: str
    node: str
    store: str
    leader: str
    leader_address: str
    epoch: int
    log_start: int
    end: int
    durable: int
    committed: int
    proven: bool
    lease_good: bool
    sync_flush: bool
    epochs: list[EpochRow]
    members: list[MemberStatus]


@command(RequestCode.GET_GROUP_STATUS, GroupStatus)
class GetGroupStatus(NamedTuple):
    """Who leads this broker group, and how far its nodes are."""


PeerRequest = (
    FetchLog | AckLog | AskVote | AnnounceLeader | ResignLeader | ReadSnapshot | AddPeer | RemovePeer | TransferLeader
    | GetGroupStatus
)  # fmt: skip
PeerAnswer = FetchLogAnswer | AskVoteAnswer | EpochAnswer | SnapshotPart | GroupStatus
