"""The nodes of this group and their addresses: as configured (an elected group), or as registered (fixed roles)."""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Final, Protocol

from rmq.broker.replication.directory import CurrentMaster, Directory
from rmq.config.settings import NodeSettings
from rmq.model import Voter
from rmq.net.transport.dialer import Dialer
from rmq.raft.core import Core
from rmq.raft.roles import Leader, Peer

_NUMBERED: Final = re.compile("[A-Za-z][0-9]{1,9}", re.ASCII)
_OF_ID: Final = re.compile("n([0-9]{1,18})", re.ASCII)  # how a node with a fixed role is named


class Roster(Protocol):
    """`node`: this node's name. `fixed`: the roles are."""

    node: str

    @property
    def fixed(self) -> bool: ...

    @property
    def broker_id(self) -> int:
        """RocketMQ's broker id of this node while it does not lead. 0: it has none."""

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The voters that count while the log names none."""

    @property
    def nodes(self) -> Iterable[str]:
        """The nodes that are known without the log."""

    @property
    def ids(self) -> Mapping[str, int]:
        """The broker ids of followers."""

    @property
    def refresh(self) -> Callable[[], Awaitable[None]] | None:
        """Asks the nameservers and the brokers now."""

    def address_of(self, node: str, core: Core) -> str:
        """Where other nodes reach it; "" if nobody knows."""

    def places(self, node: str, core: Core) -> Sequence[str]:
        """Addresses from which it may connect."""

    def successors(self, core: Core) -> set[str]:
        """Stores of the nodes that may lead after this one."""

    def make_way(self, leader: str) -> None:
        """This node follows that one."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Configured:
    """The peers of an elected group; the log, or whoever adds a node, names further ones."""

    fixed: Final = False
    refresh: Final = None

    def __init__(self, settings: NodeSettings) -> None:
        self.node = settings.node_id
        self._peers = settings.peer_addresses
        self.ids = _ids(self._peers)
        self.broker_id = self.ids[self.node]
        self.voters = tuple(Voter(peer, "", where) for peer, where in self._peers.items())
        self.nodes = tuple(self._peers)

    def address_of(self, node: str, core: Core) -> str:
        if node in self._peers:
            return self._peers[node]
        if isinstance(core.role, Leader) and node in core.role.joining:
            return core.role.joining[node][0]
        return next(iter(_listed(node, core)), "")

    def places(self, node: str, core: Core) -> Sequence[str]:
        if node == core.state.me.node:
            return ()
        listed = _listed(node, core)
        return [where for where in dict.fromkeys((self.address_of(node, core), *listed)) if where]

    def successors(self, core: Core) -> set[str]:
        """The voters, also under a new disk."""
        nodes = {voter.node for voter in core.state.voters}
        return _voters_and(core, (peer.store for peer in _peers(core) if peer.node in nodes))

    def make_way(self, leader: str) -> None:
        return

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return


def _listed(node: str, core: Core) -> list[str]:
    """Where the lists of voters say that it is, the newest list first. A leader that was taken out is asked until that is
    committed (story 60)."""
    return [voter.address for _, voters in reversed(core.state.lists) for voter in voters if voter.node == node]


class Registered:
    """The brokers of a group with fixed roles, as nameservers tell them: nobody is named in advance.

    `heard`: as of `Directory`."""

    fixed: Final = True

    def __init__(self, settings: NodeSettings, address: str, dialer: Dialer, heard: Callable[[CurrentMaster], None]) -> None:
        self.node = f"n{settings.broker_id}"
        self.broker_id = settings.broker_id
        self.voters = (Voter(self.node, "", address),)
        self._own_address = settings.own_peers_address(address)
        self._configured_master = settings.broker_id == 0
        self._directory = Directory(settings.namesrv_addresses, settings.broker_name, (self.node, address), dialer, heard)
        self.refresh = self._directory.look

    @property
    def nodes(self) -> Iterable[str]:
        return tuple(self._directory.addresses)

    @property
    def ids(self) -> Mapping[str, int]:
        return self._directory.ids

    def address_of(self, node: str, core: Core) -> str:
        return self._own_address if node == core.state.me.node else self._directory.addresses.get(node, "")

    def places(self, node: str, core: Core) -> Sequence[str]:
        """The addresses at which any of them is registered."""
        return [*self._directory.addresses.values()]

    def successors(self, core: Core) -> set[str]:
        """All nodes that follow, or led before: a master that gets leadership back need not have fetched from this one yet."""
        return _voters_and(core, (peer.store for peer in _peers(core))) | {entry.writer for entry in core.state.epochs}

    def make_way(self, leader: str) -> None:
        """A configured master gets an id among the slaves, so that all ids differ."""
        if self._configured_master:
            taken = self._directory.ids.values()
            found = _OF_ID.fullmatch(leader)  # whoever registers as the master names it
            configured = int(found[1]) if found else 0
            self.broker_id = configured or next(broker_id for broker_id in count(1) if broker_id not in taken)

    async def start(self) -> None:
        await self._directory.start()

    async def stop(self) -> None:
        await self._directory.stop()


def _ids(nodes: Collection[str]) -> dict[str, int]:
    """By the numbers in their names, n0 has 1 [DLedgerCommitLog.getId]: nodes that came later may list others than those before
    them. Of names without numbers the places in the list."""
    numbers = {node: int(node[1:]) + 1 for node in nodes if _NUMBERED.fullmatch(node)}
    places = {node: place for place, node in enumerate(nodes, 1)}
    return numbers if len(set(numbers.values())) == len(places) else places


def _peers(core: Core) -> Iterable[Peer]:
    return core.role.peers.values() if isinstance(core.role, Leader) else ()


def _voters_and(core: Core, others: Iterable[str]) -> set[str]:
    return {voter.store for voter in core.state.voters} | set(others)
