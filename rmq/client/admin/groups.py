"""Broker groups that elect their leader, as an administrator sees and changes them.

Every function raises Refusal (with the reason), Unreachable or Unknown. The leader makes the changes;
any node of the group can be asked for it.
"""

from typing import Final

from rmq.client.admin.calls import broker_addresses
from rmq.client.client import Client
from rmq.codes import ResponseCode
from rmq.errors import Refusal, RmqError, Unknown
from rmq.net.commands import Request
from rmq.net.commands.peers import AddPeer, GetGroupStatus, GroupStatus, Promote, RemovePeer, TransferLeader
from rmq.net.transport.network import checked_address

_LOOK_S: Final = 0.1  # between two looks who leads


async def group_status(client: Client, address: str) -> GroupStatus | None:
    """The status of its group from the node at `address`; None if it stands alone."""
    try:
        answer = await client.session.connections.request(address, GetGroupStatus())
    except Refusal as refusal:
        if refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        raise
    assert isinstance(answer, GroupStatus)
    return answer


async def transfer_leader(client: Client, broker: str, node: str, timeout_s: float) -> str:
    """Make `node` ("": the best one) the leader of the group; the address of the node that gave up leadership."""
    return await _tell_leader(client, broker, TransferLeader(node), timeout_s)


async def hand_over(client: Client, broker: str, node: str, timeout_s: float) -> tuple[str, str]:
    """As `transfer_leader`; also tells who leads then. RmqError if that is not `node`: one that the others do not reach is
    elected, and the next one after it. Unknown if nobody is seen to lead in time."""
    before = await _leading(client, (await broker_addresses(client, broker=broker))[0])
    was = await transfer_leader(client, broker, node, timeout_s)
    clock = client.session.clock
    until = clock.monotonic() + timeout_s
    while not (now := await _leading(client, was)) or (now == before and now[0] != node):
        if clock.monotonic() > until:
            raise Unknown(f"{was} was told to give up leadership, and no other leader is seen after {timeout_s:g} s")
        await clock.sleep(_LOOK_S)
    if node not in ("", now[0]):
        raise RmqError(f"{now[0]} leads, not {node}: do the others reach {node} at the address that haStatus shows?")
    return was, now[0]


async def _leading(client: Client, address: str) -> tuple[str, int] | None:
    """The leader that the node at `address` knows, and its epoch, if a majority follows it: has what it began with. That it
    was elected says only that it reaches the others."""
    try:
        status = await group_status(client, address)
        if status is not None and status.role != "leader" and status.leader_address:
            status = await group_status(client, status.leader_address)
    except RmqError:
        return None
    if status is None or status.role != "leader" or not status.lease_good:
        return None
    begun = [entry.start for entry in status.epochs if entry.epoch == status.epoch]
    return (status.node, status.epoch) if begun and status.committed > begun[-1] else None


async def voters(client: Client, broker: str) -> int:
    """How many nodes of the group vote, as the node that is asked knows."""
    status = await group_status(client, (await broker_addresses(client, broker=broker))[0])
    return sum(member.voter for member in status.members) if status else 0


async def add_peer(client: Client, broker: str, node: str, address: str, timeout_s: float) -> str:
    """Make `node`, which the others dial at `address`, a voter once it has caught up; the leader's address.

    Returns when that is committed. After Unknown the group may still be about to do it: look at its status.
    """
    return await _tell_leader(client, broker, AddPeer(node, address), timeout_s)


async def remove_peer(client: Client, broker: str, node: str, timeout_s: float) -> str:
    """Take `node` out of the voters; the leader's address."""
    return await _tell_leader(client, broker, RemovePeer(node), timeout_s)


async def promote(client: Client, address: str, timeout_s: float) -> str:
    """Fixed roles: make the slave at `address` the master; its address. Raises InvalidArgument for what is none."""
    await client.session.connections.request(checked_address(address), Promote(), timeout_s)
    return address


async def _tell_leader(client: Client, broker: str, request: Request, timeout_s: float) -> str:
    """`broker`: name of the group, or "host:port" of any of its nodes."""
    address = (await broker_addresses(client, broker=broker))[0]
    status = await group_status(client, address)
    if status is None:
        about = f"{address} stands alone: only groups that elect their leader (enableDLegerCommitLog) can be changed"
        raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, about)
    leader = address if status.role == "leader" else status.leader_address
    if not leader:
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"{address} knows no leader of its group now; try again in a moment")
    await client.session.connections.request(leader, request, timeout_s)
    return leader
