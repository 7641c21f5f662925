"""Makes tables of the nodes' group status. Pure: no I/O, no clock."""

from collections.abc import Iterable, Iterator, Mapping

from rmq.client.admin.standing import MemberAddress, Statuses, votes
from rmq.commands.shared.output import Cell, Table
from rmq.model import BrokerAddresses
from rmq.net.commands.peers import AWAY_S, GroupStatus, MemberStatus

COLUMNS = {"role": "Role", "epoch": "Epoch", "end": "End", "committed": "Committed", "lag": "Lag", "votes": "Votes"}


def cells(address: str, statuses: Statuses, furthest: int) -> tuple[Cell, ...]:
    """Values of `COLUMNS`. `furthest`: end of the longest log of the group."""
    status = statuses.get(address)
    if status is None:
        return (None,) * len(COLUMNS)
    return (status.role, status.epoch, status.end, status.committed, furthest - status.end, votes(status))


def ha_status(places: Iterable[MemberAddress], statuses: Statuses) -> Table:
    """One line per follower, as its leader sees it. Without a leader one line per known node."""
    columns = {
        "broker": "Broker Name", "master": "MasterAddr", "master_end": "MasterCommitLogMaxOffset", "node": "Node",
        "slave": "SlaveAddr", "slave_ack": "SlaveAckOffset", "diff": "Diff", "status": "Status", "seen_seconds_ago": "Seen(s)",
        "votes": "Votes",
    }  # fmt: skip
    damaged = {status.store for status in statuses.values() if status.damaged}
    found: list[tuple[Cell, ...]] = []
    nodes: dict[str, dict[str, tuple[str, GroupStatus]]] = {}  # who answered, by group and node
    for group, _, address in places:
        if address in statuses:
            nodes.setdefault(group.name, {})[statuses[address].node] = (address, statuses[address])
    for name, known in nodes.items():
        leader = next((status for _, status in known.values() if status.role == "leader"), None)
        if leader is None:
            found += [(name, None, None, *row) for row in _leaderless(known)]
            continue
        for member in leader.members:
            if member.store != leader.store:
                found.append((name, leader.leader_address, leader.end, *_follower(member, member.store in damaged, leader.fixed)))
    return Table(columns, found)


def _leaderless(known: Mapping[str, tuple[str, GroupStatus]]) -> Iterator[tuple[Cell, ...]]:
    """The nodes that answered, and those that they name."""
    end = max(status.end for _, status in known.values())
    for node, (address, status) in known.items():
        yield (node, address, status.end, end - status.end, "No Leader", None, votes(status))
    named = {member.node: member.address for _, status in known.values() for member in status.members}
    for node, address in named.items():
        if node not in known:
            yield (node, address, None, None, "Missing", None, None)


def _follower(member: MemberStatus, damaged: bool, fixed: bool) -> tuple[Cell, ...]:
    counts = "-" if fixed else "no: not a voter" if not member.voter else "no: unproven" if member.may_have_lost_data else "yes"
    if damaged:
        return (member.node, member.address, None, None, "Damaged", None, "no: damaged")
    if member.seen_seconds_ago < 0:
        return (member.node, member.address, None, None, "Never Seen", None, counts if fixed or not member.voter else None)
    state = "Away" if member.seen_seconds_ago > AWAY_S else "In Sync" if member.in_sync else "Fall Behind"
    return (member.node, member.address, member.ack, member.lag, state, round(member.seen_seconds_ago, 2), counts)


def epochs(rows: Iterable[tuple[BrokerAddresses, int, str, GroupStatus]]) -> Table:
    """getBrokerEpoch: which node appended which bytes. `rows`: broker group, broker id, address, status."""
    columns = {
        "cluster": "clusterName", "broker": "brokerName", "address": "brokerAddr", "id": "brokerId", "epoch": "Epoch",
        "start": "StartOffset", "end": "EndOffset", "writer": "Writer", "lossy": "Lossy",
    }  # fmt: skip
    found = []
    for group, broker_id, address, status in rows:
        ends = [entry.start for entry in status.epochs[1:]] + [status.end]
        for entry, end in zip(status.epochs, ends, strict=False):
            found.append(
                (group.cluster, group.name, address, broker_id, entry.epoch, entry.start, end, entry.writer, entry.lossy)
            )
    return Table(columns, found)
