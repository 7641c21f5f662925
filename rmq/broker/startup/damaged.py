"""A member whose log is found damaged at its start takes no part in its group until the log is whole again.

It neither votes nor acknowledges what it cannot read, so no majority rests on it (docs/decisions). Meanwhile it gives the
other nodes what they lack, and says what it waits for.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial

from rmq.broker.front.front import Front
from rmq.broker.replication.directory import Directory
from rmq.broker.replication.gate import Gate, Wall
from rmq.broker.replication.peerrepair import Lending, PeerRepairer, read_log
from rmq.broker.replication.peers import Peers
from rmq.broker.startup.limitedserver import LimitedServer
from rmq.config.settings import NodeSettings
from rmq.errors import BadBytes, StoreError
from rmq.guard.members import Members
from rmq.log.files import ownfiles
from rmq.log.files.disk import Disk
from rmq.log.replicated import ReplicatedLog
from rmq.log.store import Store
from rmq.net.commands.peers import GetGroupStatus, GroupStatus, IntroducePeer, LogPart, ReadLog
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.server import Call

log = logging.getLogger("rmq.damaged")

AGAIN_S = 1.0


def wall(settings: NodeSettings, store: Store, address: str) -> Wall:
    ports = () if settings.peers_on_client_port else (int(settings.own_peers_address(address).rpartition(":")[2]),)
    return Wall(settings.broker_name, store.vote.store_id, ports, settings.peer_sources, Members(settings))


class Damaged:
    def __init__(self, store: Store, disk: Disk, settings: NodeSettings, front: Front, dialer: Dialer) -> None:
        self._store = store
        self._settings = settings
        self._address = front.address
        self._lending = Lending()
        self._clock = dialer.clock
        self._directory: Directory | None = None
        root = str(settings.store_dir)
        self._peers_known: Mapping[str, str] = _members(ReplicatedLog(store, disk, root)) | settings.peer_addresses
        if not settings.elected:
            own = (store.vote.node_id, front.address)
            self._directory = Directory(settings.namesrv_addresses, settings.broker_name, own, dialer, lambda master: None)
            self._peers_known = self._directory.addresses
        name = settings.broker_name
        vote = store.vote
        me = IntroducePeer(name, vote.node_id, vote.store_id, vote.incarnation)
        self._peers = Peers(me, self._address_of, lambda event: None, dialer)
        refresh = self._directory.look if self._directory else None
        self._gate = Gate(wall(settings, store, front.address), self._places, refresh=refresh)
        # a tombstone has a blank unit in its queue, so the queues are made anew
        remove_queues = partial(ownfiles.remove_queues, disk, f"{root}/rmq")
        self._repairer = PeerRepairer(store, disk, root, self._peers, self._others, asyncio.Lock(), remove_queues)
        self._limited_server = LimitedServer(store, settings, front, dialer.clock, self._excuse, lambda: ())

    async def run(self) -> None:
        """Returns when nothing is damaged any more; then the store must be opened again. Raises OSError."""
        log.error("%s: this node takes no part in its group until another one has given it these bytes", self._store.log.damages)
        await self._limited_server.open({IntroducePeer: self._gate.introduce, ReadLog: self._read, GetGroupStatus: self._status})
        try:
            if self._directory is not None:
                await self._directory.start()
            while not await self._repairer.repair():
                await self._clock.sleep(AGAIN_S)
        finally:
            if self._directory is not None:
                await self._directory.stop()
            await self._peers.close()
            self._limited_server.close()

    def _address_of(self, node: str) -> str:
        return self._peers_known.get(node, "")

    def _places(self, node: str) -> Sequence[str]:
        return [*self._peers_known.values()] if self._directory is not None else [*filter(None, [self._address_of(node)])]

    def _others(self) -> list[str]:
        mine = self._store.vote.node_id if self._directory is None else ""
        return [node for node, address in self._peers_known.items() if node != mine and address != self._address]

    def _excuse(self) -> str:
        return f"this node's log is damaged, it is being repaired: {self._repairer.trouble}"

    def _read(self, request: ReadLog, call: Call) -> Awaitable[LogPart]:
        self._gate.who(request.group, call)
        return self._lending.give(call.connection, lambda: read_log(self._store, request))

    def _status(self, _request: GetGroupStatus, _call: Call) -> GroupStatus:
        store = self._store
        return GroupStatus(
            "damaged", store.vote.node_id, store.vote.store_id, "", "", store.epoch, store.log.start, store.log.end,
            store.log.end, store.dispatcher.position, store.vote.proven, False, self._settings.flush == "sync",
            list(store.epochs), [], self._repairer.trouble, not self._settings.elected,
            peers_address=self._settings.own_peers_address(self._address),
        )  # fmt: skip


def _members(log: ReplicatedLog) -> dict[str, str]:
    """The addresses that the log names, if it can be read there: who was added later need not stand in the settings."""
    try:
        lists = log.voter_lists()
    except (StoreError, BadBytes):
        return {}
    return {voter.node: voter.address for voter in (lists[-1][1] if lists else ()) if voter.address}
