"""Three nodes of an elected group and a nameserver in this process, over real sockets."""

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rmq.broker.node import Broker
from rmq.client import Client
from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal
from rmq.log.files.disk import Disk
from rmq.log.files.memory import MemoryDisk
from rmq.model import GroupConfig
from rmq.nameserver.node import Nameserver
from rmq.net.commands import GetClusterInfo, UpdateConsumerOffset, UpdateGroup, UpdateTopic
from rmq.net.commands.peers import GetGroupStatus, GroupStatus
from rmq.net.transport.tls import Tls
from rmq.scram import Credentials
from rmq.testing import SMALL_INDEX, TestClock
from tests.broker.support import Peer, send
from tests.ports import free_port

GROUP = "RaftNode00"
SECURITY = (
    "cluster_secret_file",
    "cluster_secret_enforced",
    "member_names",
    "authentication",
    "authorization",
    "login_optional",
    "signed_in_tls_only",
    "node_credentials",
)  # settings that the nameserver has, too
# Settings of nodes whose retention takes what is an hour old.
SHORT_LIVED: dict[str, Any] = {
    "max_message_bytes": 4096,
    "segment_bytes": 8192,
    "reserved_hours": 1,
    "delete_hours": tuple(range(24)),
}


class OwnDisk(MemoryDisk):
    """With numbers of its own: nodes whose stores have one id would be taken for one."""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


class LocalGroup:
    """`async with LocalGroup(folder) as group`. `nodes`: those that run now, by name."""

    def __init__(
        self,
        folder: Path,
        *,
        count: int = 3,
        spare: int = 0,
        disks: Mapping[str, Disk] | None = None,
        one_port: bool = False,
        led: bool = True,
        tls: Tls | None = None,
        **settings: Any,
    ) -> None:
        """`spare`: so many further nodes have a place but are neither peers nor started. `disks`: else the machine's own.
        `one_port`: of each node, for clients and the others. `led`: entered when one of them leads.
        `tls`, and `credentials` later: of those who ask here; the settings say what nodes and nameserver do."""
        self.tls = tls
        self.credentials: Credentials | None = None
        self.clock = TestClock()
        self._folder = folder
        self._disks = disks or {}
        self._names = [f"n{number}" for number in range(count + spare)]
        self._first = self._names[:count]
        self._led = led
        self._ports = {name: (port := free_port(), port if one_port else free_port()) for name in self._names}
        self._settings = {
            "segment_bytes": 16 * 1024 * 1024,
            **SMALL_INDEX,
            "vip_port": False,
            "forward_at_stop_ms": 0,
            **settings,
        }
        self._connections: list[Peer] = []
        self.nodes: dict[str, Broker] = {}

    async def __aenter__(self) -> "LocalGroup":
        await self._start_nameserver(0)
        await self.start(*self._first)
        if self._led:
            await self.clock.advance(1.5)  # their patience
            await self.leader()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for peer in self._connections:
            await peer.close()
        await self.stop(*list(self.nodes))
        await self.naming.stop()

    async def _start_nameserver(self, port: int) -> None:
        security = {name: value for name, value in self._settings.items() if name.startswith("tls_") or name in SECURITY}
        self.naming = Nameserver(NodeSettings(role="nameserver", namesrv_port=port, **security), self.clock)
        await self.naming.start()
        self.nameserver = self.naming.address

    async def roll(self, **changed: Any) -> None:
        """All nodes get these settings, and are started again one after the other, the nameserver first."""
        self._settings |= changed
        await self.naming.stop()
        await self._start_nameserver(int(self.nameserver.rpartition(":")[2]))
        for name in list(self.nodes):
            await self.stop(name)
            await self.start(name)
            await self.caught_up(name)

    def peer_address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name][1]}"

    async def start(self, *names: str) -> None:
        known = [*self._first, *(name for name in names if name not in self._first)]
        for name in names:
            settings = NodeSettings(
                role="broker",
                broker_name=GROUP,
                elected=True,
                node_id=name,
                listen_port=self._ports[name][0],
                peers=tuple(f"{one}-{self.peer_address(one)}" for one in known),
                namesrv_addresses=(self.nameserver,),
                store_dir=self._folder / name,
                stop_grace_ms=1000,
                **self._settings,
            )
            self.nodes[name] = Broker(settings, self.clock, self._disks.get(name))
        await asyncio.gather(*(self.nodes[name].start() for name in names))

    async def stop(self, *names: str) -> None:
        """In order, as by SIGTERM, all at once."""
        await asyncio.gather(*(self.nodes.pop(name).stop() for name in names))

    def later(self, hours: int) -> TestClock:
        """A clock for nodes that are started so much later."""
        return TestClock(wall_ms=self.clock.wall_ms() + hours * 3_600_000)

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name][0]}"

    def store(self, name: str) -> Path:
        return self._folder / name

    def wipe(self, name: str) -> None:
        shutil.rmtree(self._folder / name)

    # --- who is who ---------------------------------------------------------------------------------------------------

    async def connect(self, name: str, client_id: str = "c") -> Peer:
        """Closed at the end."""
        peer = await self._entered(self.nodes[name].address, client_id)
        self._connections.append(peer)
        return peer

    async def _entered(self, address: str, client_id: str = "c") -> Peer:
        """Who was just started asks those who log in to come again, until it knows its users."""
        async with asyncio.timeout(30):
            while True:
                try:
                    return await Peer.connect(address, client_id, self.tls, self.credentials)
                except Refusal as refusal:
                    if refusal.code != ResponseCode.SYSTEM_BUSY:
                        raise

    async def status(self, name: str) -> GroupStatus:
        peer = await self._entered(self.nodes[name].address, "status")
        try:
            found: GroupStatus = await peer.ask(GetGroupStatus())
            return found
        finally:
            await peer.close()

    async def leader(self, *, but: str = "") -> str:
        """The node that the nameserver tells as the leader and that is one, once there is such a node."""
        peer = await self._entered(self.nameserver)
        async with asyncio.timeout(30):
            while True:
                told = {row.addresses.get(0) for row in (await peer.ask(GetClusterInfo())).brokers}
                for name, node in self.nodes.items():
                    if name != but and node.address in told and (await self.status(name)).role == "leader":
                        await peer.close()
                        return name

    async def followers(self) -> list[str]:
        leader = await self.leader()
        return [name for name in self.nodes if name != leader]

    async def level(self) -> None:
        """Returns when all nodes that run have, have committed and have applied the same."""
        async with asyncio.timeout(30):
            while True:
                found = [await self.status(name) for name in self.nodes]
                applied = {node.serving.appender.committed_end for node in self.nodes.values()}
                same = len({(one.epoch, one.end, one.committed) for one in found}) == 1
                if same and applied == {found[0].end} == {found[0].committed}:
                    return

    async def caught_up(self, name: str) -> None:
        """Returns when it has all that the leader has now."""
        end = (await self.status(await self.leader())).end
        async with asyncio.timeout(30):
            while (await self.status(name)).end < end:
                await asyncio.sleep(0)

    def client(self) -> Client:
        who = self.credentials or Credentials("", "")
        return Client(self.nameserver, clock=self.clock, tls=self.tls, user=who.name, password=who.secret)


async def fill_and_restart_later(group: LocalGroup) -> None:
    """For nodes that are SHORT_LIVED: 20 messages of T, one of Idle and the group g at 7; a snapshot, then 100 hours go by."""
    leader = await group.connect(await group.leader())
    for topic in ("T", "Idle"):
        await leader.ask(UpdateTopic(topic, read_queue_nums=1, write_queue_nums=1))
    await leader.send(send("Idle", b"gone"), *(send("T", b"x" * 2000) for _ in range(20)))
    await leader.ask(UpdateGroup(GroupConfig("g")))
    await leader.ask(UpdateConsumerOffset("g", "T", 0, 7))
    await group.level()
    await group.stop("n0", "n1", "n2")  # takes a snapshot
    group.clock = group.later(hours=100)
    await group.start("n0", "n1", "n2")
