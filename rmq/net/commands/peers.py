"""Commands between the nodes of a broker group, and of administrators to such a group. Native codec only, except for the two
questions of RocketMQ's tool.

`rmq.raft.messages` and docs/storage say what they mean; this file has only the fields as they travel. `group` is the
broker name: a question from another group, dialled by mistake, must not raise an epoch here. Times are seconds, offsets
bytes of the log. Pure.
"""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.model import EpochEntry, Voter
from rmq.net.commands.vocabulary import command

AWAY_S = 10.0  # a follower that is there asks several times a second
LEVEL_S = 2.0
OK, DIVERGED, NEEDS_SNAPSHOT, NOT_LEADER, FENCED = range(5)  # kinds of FetchLogAnswer


class FetchLogAnswer(NamedTuple):
    """`kind` tells which fields count. OK: `data` are whole entries from `from_offset` on, committed below `hw`; the leader's
    epoch record ends at `epoch_start_end`; `stamp` comes back as the next `echo`. DIVERGED: the leader's `parted_epoch` of
    `writer` ends at `end`. NEEDS_SNAPSHOT: take the snapshot `s0` to `s1`, then the log from `log_start`. NOT_LEADER,
    FENCED: `hint` is the leader, `reason` why. `place`: among the voters that follow, by how far they are, -1: none of them.
    `request`: the id of a client's request that waits for `data`, for the log.
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
    place: int = -1
    request: str = ""


@command(RequestCode.INTRODUCE_PEER, None)
class IntroducePeer(NamedTuple):
    """The first command of a node of the group on a connection to another one: which node, store and run speaks there. Without
    it no command between nodes is accepted."""

    group: str
    node: str
    store: str
    incarnation: int


@command(RequestCode.FETCH_LOG, FetchLogAnswer)
class FetchLog(NamedTuple):
    """A follower asks for the bytes behind its end `from_offset`; the request acknowledges the log up to `ack`."""

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
    may_have_lost_data: bool = False
    disk_full: bool = False
    wants_snapshot: bool = False
    pull_back: bool = False
    sync_flush: bool = False
    max_bytes: int = 1 << 20
    max_wait: float = 0.25
    stopping: bool = False


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
    """`pre`: a pre-vote. `transfer`: the leader hands leadership over."""

    group: str
    epoch: int
    candidate: str
    store: str
    last_epoch: int
    end: int
    pre: bool
    transfer: bool


class EpochAnswer(NamedTuple):
    """`node`: who answers; older releases do not say it."""

    epoch: int
    node: str = ""


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
    """`data` from the requested position on; the whole snapshot has `total` bytes."""

    data: bytes
    total: int


@command(RequestCode.READ_SNAPSHOT, SnapshotPart)
class ReadSnapshot(NamedTuple):
    """Bytes of the snapshot file that begins at `s0`. SYSTEM_ERROR if it is gone: fetch again."""

    group: str
    s0: int
    position: int
    max_bytes: int = 1 << 20


class LogPart(NamedTuple):
    """`data` as it stands in the log from the requested offset on; `epochs`: who wrote these bytes."""

    data: bytes
    epochs: list[EpochEntry]


@command(RequestCode.READ_LOG, LogPart)
class ReadLog(NamedTuple):
    """Bytes of the log, for a node of the group in whose log they are damaged; any node that has them gives them. At most up to
    `to_offset` and the end of their file. SYSTEM_ERROR: they are not here, or damaged here, too.
    """

    group: str
    from_offset: int
    to_offset: int


@command(RequestCode.FORWARDED_CLIENT, None)
class ForwardedClient(NamedTuple):
    """The first frame of a connection on which `node` forwards requests of a client that takes it for the leader. They are
    never forwarded again: a node that does not lead answers NOT_LEADING. In the remoting codec, like the requests."""

    group: str
    node: str
    host: str
    port: int


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
    """Hand leadership to `node` ("": to the best one); answered when leadership was given up, or with the reason why not."""

    node: str = ""


@command(RequestCode.PROMOTE, None)
class Promote(NamedTuple):
    """Fixed roles: make this slave the master, or let a master that waits for slaves begin. What it has not copied is lost.
    Answered when the new epoch is on its disk."""


class MemberStatus(NamedTuple):
    """One store of the group as the answering node sees it. `end`, `ack`: -1 if it knows nothing of it; `lag`: bytes.
    `seen_seconds_ago`, `level_seconds_ago`: since it was heard of, and since it had all that the leader had; -1: never."""

    node: str
    store: str
    address: str
    voter: bool
    end: int
    ack: int
    lag: int
    seen_seconds_ago: float
    disk_full: bool
    may_have_lost_data: bool
    level_seconds_ago: float = -1.0

    @property
    def in_sync(self) -> bool:
        """Whether it had everything that the leader had, not long ago."""
        return 0 <= self.level_seconds_ago <= LEVEL_S


class GroupStatus(NamedTuple):
    """`role`: leader, follower, candidate, or damaged (it takes no part until it is repaired). `proven`: it may vote.
    `lease_good`: a majority follows this leader. `damaged`: what it cannot read, and what it waits for; "" if nothing is.
    `fixed`: its roles are fixed, nobody votes. `leads_seconds`: for how long it has led; -1: it does not. `peers_address`: where
    the other nodes reach it."""

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
    epochs: list[EpochEntry]
    members: list[MemberStatus]
    damaged: str = ""
    fixed: bool = False
    leads_seconds: float = -1.0
    peers_address: str = ""

    def misses(self, member: MemberStatus) -> bool:
        """Whether this node leads and has not heard of a member for too long, or never though it has led that long."""
        quiet = member.seen_seconds_ago if member.seen_seconds_ago >= 0 else self.leads_seconds
        return self.role == "leader" and member.store != self.store and quiet > AWAY_S


@command(RequestCode.GET_GROUP_STATUS, GroupStatus)
class GetGroupStatus(NamedTuple):
    """Asks who leads this broker group, and how far its nodes are."""


class HaConnection(NamedTuple):
    """One follower as its leader sees it; `diff`: bytes that it lacks [HARuntimeInfo.HAConnectionRuntimeInfo]."""

    addr: str
    slave_ack_offset: int
    diff: int
    in_sync: bool
    transfer_from_where: int


class HaClient(NamedTuple):
    """A follower about itself [HARuntimeInfo.HAClientRuntimeInfo]."""

    master_addr: str = ""
    max_offset: int = 0
    master_flush_offset: int = 0


class HaStatus(NamedTuple):
    """`ha_client` counts where `master` is false, everything else where it is true [HARuntimeInfo]."""

    master: bool
    master_commit_log_max_offset: int
    in_sync_slave_nums: int
    ha_connection_info: list[HaConnection]
    ha_client: HaClient = HaClient()


@command(RequestCode.GET_BROKER_HA_STATUS, HaStatus)
class GetHaStatus(NamedTuple):
    """Asks how far the followers are, for mqadmin's haStatus."""


class EpochRange(NamedTuple):
    """[EpochEntry]"""

    epoch: int
    start_offset: int
    end_offset: int


class EpochCache(NamedTuple):
    """[EpochEntryCache]"""

    cluster_name: str
    broker_name: str
    broker_id: int
    epoch_list: list[EpochRange]
    max_offset: int


@command(RequestCode.GET_BROKER_EPOCH_CACHE, EpochCache)
class GetEpochCache(NamedTuple):
    """Asks for the epoch history, for mqadmin's getBrokerEpoch."""


PeerRequest = (
    IntroducePeer
    | FetchLog
    | AckLog
    | AskVote
    | AnnounceLeader
    | ResignLeader
    | ReadSnapshot
    | ReadLog
    | AddPeer
    | RemovePeer
    | TransferLeader
    | Promote
    | GetGroupStatus
    | GetHaStatus
    | GetEpochCache
    | ForwardedClient
)
PeerAnswer = FetchLogAnswer | AskVoteAnswer | EpochAnswer | SnapshotPart | LogPart | GroupStatus | HaStatus | EpochCache
