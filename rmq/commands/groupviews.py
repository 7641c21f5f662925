"""What nodes say of their groups, as tables and warnings. Pure: no I/O, no clock."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rmq.commands.output import Cell, Table
from rmq.model import BrokerAddresses
from rmq.net.commands.peers import AWAY_S, GroupStatus, MemberStatus

Place = tuple[BrokerAddresses, int, str]  # broker group, broker id, address
Statuses = Mapping[str, GroupStatus]  # by address; nodes that stand alone, or do not answer, are missing
COLUMNS = {"role": "Role", "epoch": "Epoch", "end": "End", "committed": "Committed", "lag": "Lag", "votes": "Votes"}
NOWHERE = "unknown"  # address of a node that nobody has heard of


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
    """Members of these groups that did not answer: no nameserver tells one that is gone, or whose log is being repaired."""
    heard: dict[str, set[str]] = {}
    for group, _, address in places:
        if address in statuses:
            heard.setdefault(group.name, set()).add(statuses[address].node)
    found = {
        (group.name, member.node): (group, -1, member.address or NOWHERE)
        for group, _, address in places
        if address in statuses
        for member in statuses[address].members
        if member.node not in heard[group.name]
    }
    return list(found.values())


def warnings(places: Sequence[Place], statuses: Statuses) -> Iterator[str]:
    """What an operator should know of these groups, a sentence each."""
    for name in sorted({group.name for group, _, address in places if address in statuses}):
        nodes = {address: statuses[address] for group, _, address in places if group.name == name and address in statuses}
        damaged = {status.node for status in nodes.values() if status.role == "damaged"}
        if not any(number == 0 for group, number, _ in places if group.name == name):
            yield f"{name}: no leader is registered; it takes no messages until {_cure(nodes.values())}"
        for address, status in nodes.items():
            if status.damaged:
                yield f"{name}: the log of {status.node} at {address} is damaged: {status.damaged}"
            if not status.proven:
                yield (
                    f"{name}: {status.node} at {address} may not vote (unproven): its disk is new, or its machine stopped "
                    "under asynchronous flush; it votes again when it has caught up with a leader"
                )
            for member in status.members:
                if status.misses(member) and member.node not in damaged:
                    yield f"{name}: {member.node} is missing: the leader {_unheard(member)}"
            if status.role == "leader" and not status.lease_good:
                yield f"{name}: the leader {status.node} at {address} does not hear a majority of its nodes"
            for member in status.members:
                if member.disk_full:
                    yield f"{name}: the disk of {member.node} is full; it does not follow"
        if len({status.sync_flush for status in nodes.values()}) > 1:
            modes = ", ".join(f"{status.node} {'sync' if status.sync_flush else 'async'}" for status in nodes.values())
            yield f"{name}: the flush modes of its nodes differ ({modes}): what survives a power loss depends on who leads"


def ills(places: Sequence[Place], statuses: Statuses) -> Iterator[tuple[str, str, str]]:
    """What keeps groups from being whole: "broker" and address of a member, or "group" and its name; and why."""
    for name in sorted({group.name for group, _, address in places if address in statuses}):
        nodes = {address: statuses[address] for group, _, address in places if group.name == name and address in statuses}
        names = {status.node for status in nodes.values()}
        leader = next((status for status in nodes.values() if status.role == "leader"), None)
        if leader is None:
            yield "group", name, f"nobody leads: it takes no messages until {_cure(nodes.values())}"
        for address, status in nodes.items():
            if status.role == "damaged":
                yield "broker", address, f"{status.node} of {name} takes no part: its log is damaged"
        named = {member.node: member for status in ([leader] if leader else nodes.values()) for member in status.members}
        for node, member in named.items():
            if node not in names:
                yield "broker", member.address or NOWHERE, f"{node} of {name} is missing"
            elif leader and leader.misses(member):
                yield "broker", member.address or NOWHERE, f"{node} of {name} does not follow: its leader {_unheard(member)}"


def _cure(nodes: Iterable[GroupStatus]) -> str:
    """What makes a group without a leader have one again."""
    if any(status.fixed for status in nodes):
        return "its master is back, or a slave is made the master (`rmq admin promote -b HOST:PORT`)"
    return "a majority of its nodes is up and elects one"


def _unheard(member: MemberStatus) -> str:
    ago = member.seen_seconds_ago
    return f"has not heard of it for {ago:.0f} s" if ago >= 0 else "has never heard of it"


def ha_status(places: Iterable[Place], statuses: Statuses) -> Table:
    """One line a follower, as its leader sees it; without a leader one line a node, as it is known."""
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
    """Who answered, and whom they name."""
    end = max(status.end for _, status in known.values())
    for node, (address, status) in known.items():
        yield (node, address, status.end, end - status.end, "No Leader", None, votes(status))
    named = {member.node: member.address for _, status in known.values() for member in status.members}
    for node, address in named.items():
        if node not in known:
            yield (node, address, None, None, "Missing", None, None)


def _follower(member: MemberStatus, damaged: bool, fixed: bool) -> tuple[Cell, ...]:
    counts = "-" if fixed else "no: not a voter" if not member.voter else "no: unproven" if member.unproven else "yes"
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
    for group, number, address, status in rows:
        ends = [row.start for row in status.epochs[1:]] + [status.end]
        for row, end in zip(status.epochs, ends, strict=False):
            found.append((group.cluster, group.name, address, number, row.epoch, row.start, end, row.writer, row.lossy))
    return Table(columns, found)
