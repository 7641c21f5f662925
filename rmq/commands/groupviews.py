"""What nodes say of their groups, as tables and warnings. Pure: no I/O, no clock."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rmq.commands.output import Cell, Table
from rmq.model import BrokerAddresses
from rmq.net.peercommands import GroupStatus, MemberStatus

Place = tuple[BrokerAddresses, int, str]  # broker group, broker id, address
Statuses = Mapping[str, GroupStatus]  # by address; nodes that stand alone, or do not answer, are missing
COLUMNS = {"role": "Role", "epoch": "Epoch", "end": "End", "committed": "Committed", "lag": "Lag", "votes": "Votes"}
IN_SYNC_BYTES, AWAY_S = 256 << 20, 10.0  # [haMaxGapNotInSync]; a follower that is there asks several times a second


def cells(address: str, statuses: Statuses, furthest: int) -> tuple[Cell, ...]:
    """Values of `COLUMNS`. `furthest`: end of the longest log of the group."""
    status = statuses.get(address)
    if status is None:
        return (None,) * len(COLUMNS)
    return (status.role, status.epoch, status.end, status.committed, furthest - status.end, votes(status))


def furthest(places: Iterable[Place], statuses: Statuses) -> dict[str, int]:
    """End of the leader's log by broker name, else of the longest one known."""
    ends: dict[str, int] = {}
    for group, _, address in places:
        if address in statuses:
            ends[group.name] = max(ends.get(group.name, 0), statuses[address].end)
    return ends


def votes(status: GroupStatus) -> str:
    """Whether the node counts in elections, or why not; "-" where the roles are fixed."""
    if status.role == "damaged":
        return "no: damaged"
    if status.fixed:
        return "-"
    if not any(member.voter and status.store in ("", member.store) for member in status.members):
        return "no: not a voter"
    return "yes" if status.proven else "no: unproven"


def silent(places: Iterable[Place], statuses: Statuses) -> list[Place]:
    """Members of these groups that no nameserver told and nobody asked: one whose log is being repaired is not registered."""
    heard: dict[str, set[str]] = {}
    for group, _, address in places:
        if address in statuses:
            heard.setdefault(group.name, set()).add(statuses[address].node)
    found = {
        (group.name, member.node): (group, -1, member.address)
        for group, _, address in places if address in statuses
        for member in statuses[address].members if member.address and member.node not in heard[group.name]
    }  # fmt: skip
    return list(found.values())


def warnings(places: Sequence[Place], statuses: Statuses) -> Iterator[str]:
    """What an operator should know of these groups, a sentence each."""
    for name in sorted({group.name for group, _, address in places if address in statuses}):
        nodes = {address: statuses[address] for group, _, address in places if group.name == name and address in statuses}
        if not any(number == 0 for group, number, _ in places if group.name == name):
            yield f"{name}: no leader is registered; it takes no messages until a majority of its nodes is up and elects one"
        for address, status in nodes.items():
            if status.damaged:
                yield f"{name}: the log of {status.node} at {address} is damaged: {status.damaged}"
            if not status.proven:
                yield (f"{name}: {status.node} at {address} may not vote (unproven): its disk is new, or its machine stopped "
                       "under asynchronous flush; it votes again when it has caught up with a leader")  # fmt: skip
            if status.role == "leader" and not status.lease_good:
                yield f"{name}: the leader {status.node} at {address} does not hear a majority of its nodes"
            for member in status.members:
                if member.disk_full:
                    yield f"{name}: the disk of {member.node} is full; it does not follow"
        if len({status.sync_flush for status in nodes.values()}) > 1:
            modes = ", ".join(f"{status.node} {'sync' if status.sync_flush else 'async'}" for status in nodes.values())
            yield f"{name}: the flush modes of its nodes differ ({modes}): what survives a power loss depends on who leads"


def ha_status(places: Iterable[Place], statuses: Statuses) -> Table:
    """One line a follower, as its leader sees it."""
    columns = {
        "broker": "Broker Name", "master": "MasterAddr", "master_end": "MasterCommitLogMaxOffset", "node": "Node",
        "slave": "SlaveAddr", "slave_ack": "SlaveAckOffset", "diff": "Diff", "status": "Status", "seen_seconds_ago": "Seen(s)",
        "votes": "Votes",
    }  # fmt: skip
    damaged = {status.store for status in statuses.values() if status.damaged}
    found = []
    leaders = [(group.name, statuses[address]) for group, _, address in places if address in statuses]
    for name, leader in leaders:
        for member in leader.members if leader.role == "leader" else ():
            if member.store != leader.store:
                found.append((name, leader.leader_address, leader.end, *_follower(member, member.store in damaged, leader.fixed)))
    return Table(columns, found)


def _follower(member: MemberStatus, damaged: bool, fixed: bool) -> tuple[Cell, ...]:
    counts = "-" if fixed else "no: not a voter" if not member.voter else "no: unproven" if member.unproven else "yes"
    if damaged:
        return (member.node, member.address, None, None, "Damaged", None, "no: damaged")
    if member.seen_seconds_ago < 0:
        return (member.node, member.address, None, None, "Never Seen", None, counts if fixed or not member.voter else None)
    gone, behind = member.seen_seconds_ago > AWAY_S, member.lag > IN_SYNC_BYTES
    state = "Away" if gone else "Fall Behind" if behind else "In Sync"
    return (member.node, member.address, member.ack, member.lag, state, round(member.seen_seconds_ago, 2), counts)


def epochs(rows: Iterable[tuple[BrokerAddresses, int, str, GroupStatus]]) -> Table:
    """getBrokerEpoch: which node appended which bytes. `rows`: broker group, broker id, address, status."""
    columns = {
        "cluster": "clusterName", "broker": "brokerName", "address": "brokerAddr", "id": "brokerId", "epoch": "Epoch",
        "start": "StartOffset", "end": "EndOffset", "writer": "Writer", "lossy": "Lossy",
    }  # fmt: skip
    found = []
    for group, number, address, status in rows:
        ends = [row.start for row in status.epochs[1:]] + [status.end]
        for row, end in zip(status.epochs, ends, strict=False):
            found.append((group.cluster, group.name, address, number, row.epoch, row.start, end, row.writer, row.lossy))
    return Table(columns, found)
