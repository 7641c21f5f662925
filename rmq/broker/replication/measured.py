"""What a node measures of its log and its group, and what keeps it from serving: for exporters and health checks."""

from collections.abc import Iterator, Sequence

from rmq.broker.replication.latencies import Latencies
from rmq.measures import Family, Histogram, gauge, histogram
from rmq.net.commands.peers import GroupStatus, MemberStatus
from rmq.net.transport.connection import Call
from rmq.raft.core import Core
from rmq.raft.roles import BEHIND_BYTES, Follower, Leader, Peer

SLAVE_GONE_S = 10.0  # a slave that has not asked for so long is not there,
SLAVE_LEFT_S = 1.0  # and after so long if its connection has ended: a new one asks sooner
SLAVE_FAR_BYTES = 256 << 20  # one that lacks more than that is waited for by nobody [haMaxGapNotInSync]


def log_families(latencies: Latencies, unflushed_s: float) -> Iterator[Family]:
    """Of every node that has a log."""
    yield histogram("rmq_commit_seconds", "from the append of a burst until its senders are answered", latencies.commit)
    yield histogram("rmq_fsync_seconds", "one flush of the log to the disk", latencies.fsync)
    yield gauge("rmq_log_unflushed_seconds", "how old the oldest byte may be that is not flushed; 0: all is", unflushed_s)


def group_families(status: GroupStatus, fetches: Histogram) -> Iterator[Family]:
    """Of a member of a group. Only the leader knows how far the others are."""
    for name, about, value in (
        ("leader", "1 if this node leads its group", status.role == "leader"),
        ("lease_good", "1 if this node leads and a majority was in touch with it lately", status.lease_good),
        ("epoch", "epoch of the group as this node knows it", status.epoch),
        ("log_start_offset", "where the log of this node begins", status.log_start),
        ("log_end_offset", "where the log of this node ends", status.end),
        ("durable_offset", "how far the log of this node is flushed", status.durable),
        ("committed_offset", "committed, as far as this node knows", status.committed),
        ("damaged", "1 if bytes of this node's log are damaged and not repaired yet", bool(status.damaged)),
    ):
        yield _family(name, about, [(status.node, value)])
    about = "from a follower's question until the answer, the wait for something new included"
    yield histogram("rmq_group_fetch_seconds", about, fetches)
    members = status.members
    for name, about, known in (
        ("member_lag_bytes", "what a node lacks of this node's log", [(one.node, one.lag) for one in members]),
        ("member_seen_seconds", "how long ago it was heard of", [(one.node, one.seen_seconds_ago) for one in members]),
    ):
        yield _family(name, f"{about}; absent if this node does not know", [row for row in known if row[1] >= 0])
    yield _family(
        "member_missing",
        "1 if the leader, which tells it, has not heard of a node for 10 s, or never",
        [(member.node, status.misses(member)) for member in members if status.role == "leader"],
    )
    yield Family(
        "rmq_group_member_may_not_vote",
        "gauge",
        "1 if this keeps a node from voting, or from following",
        ("node", "reason"),
        [((one.node, why), float(holds)) for one in members for why, holds in why_not(one, status.fixed).items()],
    )


def why_not(member: MemberStatus, fixed: bool) -> dict[str, bool]:
    """What keeps a node from counting, by reason. With fixed roles nobody votes."""
    return {"not_a_voter": not member.voter and not fixed, "unproven": member.may_have_lost_data, "disk_full": member.disk_full}


def _family(name: str, about: str, rows: Sequence[tuple[str, float]]) -> Family:
    return Family(f"rmq_group_{name}", "gauge", about, ("node",), [((node,), float(value)) for node, value in rows])


def lacks(core: Core, is_ready: bool, now: float) -> Iterator[str]:
    """What a member of a group waits for before it can do its part."""
    state, role = core.state, core.role
    if isinstance(role, Leader):
        if not core.lease_good(now):
            yield "no leader: a majority of the group does not answer this node, which was its leader"
        elif not is_ready:
            yield "catching up: what earlier leaders left is not committed yet"
    elif not core.follows(now):
        yield "no leader: nobody leads the group"
    elif not core.serves_reads(now):
        yield "catching up: this node waits for a snapshot of the leader's log"
    elif isinstance(role, Follower) and role.leader_hw - state.end > BEHIND_BYTES:
        yield f"catching up: {role.leader_hw - state.end} bytes of the leader's log are missing"
    if state.me.fixed:
        return
    if not state.proven:
        yield "may not vote: what it had before its start may be missing until it has caught up with a leader"
    elif all(voter.store != state.me.store for voter in state.voters):
        yield "may not vote: it is no voter of the group (yet)"


def slaves_are_there(core: Core, now: float) -> bool:
    """Whether as many slaves are there as a SYNC_MASTER waits for [isSlaveOK]. One without room copies nothing, and one that is
    far behind has a message long after clients have given up."""
    peers = core.role.peers.values() if isinstance(core.role, Leader) else ()
    near = core.state.end - SLAVE_FAR_BYTES
    there = sum(_is_there(peer, now) and not peer.disk_full and max(peer.end, 0) >= near for peer in peers)
    return there >= core.state.me.in_sync - 1


def _is_there(peer: Peer, now: float) -> bool:
    ended = isinstance(peer.ticket, Call) and peer.ticket.connection.closed
    return now - peer.touched < (SLAVE_LEFT_S if ended else SLAVE_GONE_S)


def send_trouble(core: Core, now: float) -> str:
    """Of a master: why sends do not get SEND_OK. "" if they do, and at other nodes."""
    if not core.state.me.fixed or not isinstance(core.role, Leader) or slaves_are_there(core, now):
        return ""
    return (
        f"sends are stored here and answered by SLAVE_NOT_AVAILABLE: {core.state.me.in_sync} nodes are to have each message "
        f"(inSyncReplicas), and too few slaves are there and have room, or they lack more than {SLAVE_FAR_BYTES >> 20} MiB"
    )
