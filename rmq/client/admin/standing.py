"""The state of broker groups: present and missing members, and what keeps a group from accepting messages or being complete.

This file asks the nodes; pure functions decide what follows from their answers.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rmq.client.admin import groups
from rmq.client.client import Client
from rmq.errors import BadBytes, Refusal, RmqError, Unknown, Unreachable
from rmq.model import BrokerAddresses
from rmq.net.commands.peers import GroupStatus as GroupStatus, MemberStatus

MemberAddress = tuple[BrokerAddresses, int, str]  # broker group, broker id (-1: not registered), address
Statuses = Mapping[str, GroupStatus]  # by address; nodes that stand alone, or do not answer, are missing
NOWHERE = "unknown"  # address of a node that nobody has heard of


async def statuses(client: Client, addresses: list[str], failed: dict[str, RmqError] | None = None) -> dict[str, GroupStatus]:
    """The group status of the nodes there; leaves out nodes that stand alone, and those that do not answer, refuse, or answer
    nonsense: `failed` takes why."""

    async def one(address: str) -> GroupStatus | None:
        try:
            return await groups.group_status(client, address)
        except (Unreachable, Unknown, Refusal, BadBytes) as error:
            if failed is not None:
                failed[address] = error
            return None

    found = await asyncio.gather(*(one(address) for address in addresses))
    return {address: status for address, status in zip(addresses, found, strict=True) if status is not None}


async def with_silent(
    client: Client, places: Sequence[MemberAddress], found: dict[str, GroupStatus]
) -> tuple[list[MemberAddress], dict[str, GroupStatus]]:
    """The same, and that of members that no nameserver names, asked at the addresses that the others dial."""
    missing = silent(places, found)
    asked = [address for _, _, address in missing if address != NOWHERE]
    return [*places, *missing], found | await statuses(client, asked)


async def all_of(
    client: Client, places: Sequence[MemberAddress], failed: dict[str, RmqError]
) -> tuple[list[MemberAddress], dict[str, GroupStatus]]:
    """What the nodes there say, and `with_silent`. `failed` takes why nothing is known of a whole group, by address."""
    mute: dict[str, RmqError] = {}
    found = await statuses(client, [address for _, _, address in places], mute)
    heard = {group.name for group, _, address in places if address in found}
    failed |= {address: mute[address] for group, _, address in places if address in mute and group.name not in heard}
    return await with_silent(client, places, found)


def furthest(places: Iterable[MemberAddress], statuses: Statuses) -> dict[str, int]:
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


def silent(places: Iterable[MemberAddress], statuses: Statuses) -> list[MemberAddress]:
    """Members of these groups that did not answer: nameservers do not name members that are down or repair their log."""
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


def warnings(places: Sequence[MemberAddress], statuses: Statuses) -> Iterator[str]:
    """Warnings about these groups for an operator, one sentence each."""
    for name in sorted({group.name for group, _, address in places if address in statuses}):
        nodes = {address: statuses[address] for group, _, address in places if group.name == name and address in statuses}
        damaged = {status.node for status in nodes.values() if status.role == "damaged"}
        if not any(broker_id == 0 for group, broker_id, _ in places if group.name == name):
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
        leads = {status.node for status in nodes.values() if status.role == "leader"}
        for node in sorted({member.node for status in nodes.values() for member in status.members if member.disk_full}):
            yield f"{name}: the disk of {node} is full; it {'takes no messages' if node in leads else 'does not follow'}"
        if len({status.sync_flush for status in nodes.values()}) > 1:
            modes = ", ".join(f"{status.node} {'sync' if status.sync_flush else 'async'}" for status in nodes.values())
            yield f"{name}: the flush modes of its nodes differ ({modes}): what survives a power loss depends on who leads"


def ills(places: Sequence[MemberAddress], statuses: Statuses) -> Iterator[tuple[str, str, str]]:
    """What keeps groups from being complete: "broker" and address of a member, or "group" and its name; and why."""
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
    """Advice for a group without a leader."""
    if any(status.fixed for status in nodes):
        return "its master is back, or a slave is made the master (`rmq admin promote -b HOST:PORT`)"
    return "a majority of its nodes is up and elects one"


def _unheard(member: MemberStatus) -> str:
    ago = member.seen_seconds_ago
    return f"has not heard of it for {ago:.0f} s" if ago >= 0 else "has never heard of it"
