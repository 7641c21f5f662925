"""Who may speak as a node of the group: a connection to the peers' port, from the address of a node of the group, that says
which node, store and run it is. What it says afterwards counts for that store only.

Without certificates (`members`) that is all that can be checked; it keeps out everybody who has no machine among the nodes.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from rmq.broker.replication.places import resolve, same_machine
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.guard.members import Members
from rmq.net.commands.peers import IntroducePeer
from rmq.net.transport.server import Call, Connection
from rmq.net.transport.strangers import Told
from rmq.raft.trust import newer_run

log = logging.getLogger("rmq.gate")

_introduced: WeakKeyDictionary[Connection, IntroducePeer] = WeakKeyDictionary()
"""Of all gates: connections outlive the gate of a node that waits for the repair of its log."""


def is_introduced(connection: Connection) -> bool:
    """Whether another node of the group speaks on it for itself."""
    return connection in _introduced and not connection.is_forwarded


class Wall(NamedTuple):
    """`group`: the broker name. `own_store`: of this node. `ports`: where the nodes of the group come to; empty: every port.
    `sources`: networks from which they come besides, as where their addresses are translated. `members`: asks for
    certificates."""

    group: str
    own_store: str
    ports: Sequence[int]
    sources: Sequence[str]
    members: Members | None = None


class Gate:
    """`addresses(node)`: where that node of the group is, or could be; empty if it is none. `owner(store)`: the node that has
    that store, "" if nobody knows. `refresh()`: looks again who belongs to the group, before a stranger is sent away."""

    def __init__(
        self,
        wall: Wall,
        addresses: Callable[[str], Sequence[str]],
        owner: Callable[[str], str] = lambda store: "",
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._wall = wall
        self._networks = [ipaddress.ip_network(source) for source in wall.sources]
        self._addresses = addresses
        self._owner = owner
        self._refresh = refresh
        self._told = Told()
        self._resolved: dict[str, frozenset[str]] = {}  # by address: what its host resolved to last

    async def introduce(self, said: IntroducePeer, call: Call) -> None:
        """Raises Refusal, saying what an operator can do."""
        connection = call.connection
        try:
            check_group(self._wall.group, said.group)
            self._check_port(connection)
            await self._check_source(said.node, connection)
            self._check_run(said, connection)
        except Refusal as refusal:
            self._tell(connection, said.node[:40], refusal.remark)
            raise
        _introduced[connection] = said

    async def check_line(self, group: str, node: str, connection: Connection) -> None:
        """Checks that the node may forward a client's requests on that connection. Raises Refusal."""
        try:
            check_group(self._wall.group, group)
            self._check_port(connection)
            await self._check_source(node, connection)
        except Refusal as refusal:
            self._tell(connection, node[:40], f"clients are not forwarded: {refusal.remark}")
            raise

    def who(self, group: str, call: Call) -> IntroducePeer:
        """The node that speaks on that connection. Raises Refusal."""
        check_group(self._wall.group, group)
        said = _introduced.get(call.connection)
        if said is None:
            raise _refused("only nodes of the group may say that, and they introduce themselves first")
        return said

    def speaks_for(self, group: str, call: Call, node: str, store: str, incarnation: int = -1) -> None:
        """Raises Refusal if the speaker is another one. `incarnation` -1: it does not say."""
        said = self.who(group, call)
        if (node or said.node, store) != (said.node, said.store) or incarnation not in (-1, said.incarnation):
            raise _refused(f"this connection is of node {said.node!r}: it speaks for no other")

    def _tell(self, connection: Connection, node: str, why: str) -> None:
        """Tells the operator, but a stranger that repeats itself does not fill the log."""
        if self._told.is_new(f"{node}: {why}", asyncio.get_running_loop().time()):
            log.warning("%s:%d says that it is node %r: %s", *connection.peer, node, why)

    def _check_port(self, connection: Connection) -> None:
        ports = self._wall.ports
        if ports and connection.local[1] not in ports:
            about = f"port {connection.local[1]} is the clients': the nodes of the group talk on {' or '.join(map(str, ports))}"
            raise _refused(f"{about} (dLegerPeers; peers_on_client_port)")

    async def _check_source(self, node: str, connection: Connection) -> None:
        source = connection.peer[0]
        if not self._addresses(node) and self._refresh is not None:
            await self._refresh()
        addresses = self._addresses(node)
        if not addresses:
            if self._refresh is not None:
                raise _refused(f"node {node!r} is no member of this group: no nameserver that answers knows it (namesrvAddr)")
            raise _refused(f"node {node!r} is no member of this group: add it with 'rmq admin addPeer'")
        if self._wall.members is not None:
            self._wall.members.check(connection, addresses)
        came = ipaddress.ip_address(source.partition("%")[0])
        if any(came in network for network in self._networks):
            return
        for address in addresses:
            if same_machine(came, await self._resolve(address)):
                return
        where = " or ".join(addresses)
        raise _refused(f"it comes from {source}, node {node!r} is at {where} (dLegerPeers, addPeer; peer_sources)")

    async def _resolve(self, address: str) -> frozenset[str]:
        """The addresses of the host's name; those found last if it cannot be resolved now."""
        found = await resolve(address)
        if found or address not in self._resolved:
            self._resolved[address] = found
        return self._resolved[address]

    def _check_run(self, said: IntroducePeer, connection: Connection) -> None:
        """Only runs that are connected now count: an incarnation that somebody made up is forgotten when its connection ends."""
        if said.store == self._wall.own_store:
            raise _refused(f"store {said.store} is this node's own: was its directory copied?")
        if self._owner(said.store) not in ("", said.node):
            raise _refused(f"store {said.store} is of node {self._owner(said.store)!r}")
        here = (one for other, one in _introduced.items() if not other.closed and other.local[1] == connection.local[1])
        newest = max((one.incarnation for one in here if (one.node, one.store) == (said.node, said.store)), default=0)
        if said.incarnation < newest:
            raise _refused(newer_run(newest))


def check_group(mine: str, asked: str) -> None:
    """Raises Refusal."""
    if asked != mine:
        about = f"this is a node of group {mine!r}, not of {asked!r}: look at brokerName and dLegerPeers"
        raise Refusal(ResponseCode.INVALID_PARAMETER, about)


def _refused(about: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, about)
