"""Nodes of one group with fixed roles (RocketMQ's master and slaves) and a nameserver, over real sockets."""

from pathlib import Path
from typing import Any

from rmq.broker.node import Broker
from rmq.config.settings import NodeSettings
from rmq.log.files.disk import Disk
from rmq.nameserver.node import Nameserver
from rmq.net.commands import GetClusterInfo
from rmq.net.commands.peers import GetGroupStatus, GroupStatus
from rmq.testing import SMALL_INDEX, TestClock
from tests.broker.support import Peer, everything
from tests.ports import free_port


class Pair:
    """A nameserver, a master and slaves of one group; the clock moves by hand."""

    def __init__(self, folder: Path) -> None:
        self.clock = TestClock()
        self.folder = folder
        self._nameserver_port = free_port()
        self._ports = [free_port() for _ in range(3)]
        self.nodes: dict[int, Broker] = {}

    async def begin(self) -> None:
        self.nameserver = Nameserver(NodeSettings(role="nameserver", namesrv_port=self._nameserver_port), self.clock)
        await self.nameserver.start()

    async def start(self, number: int, role: str, wait: bool = True, disk: Disk | None = None, **settings: Any) -> Broker:
        """`wait`: until a master has begun to lead."""
        self.nodes[number] = Broker(
            NodeSettings(
                vip_port=False,
                role="broker",
                broker_name="g",
                broker_id=number,
                broker_role=role,
                listen_port=self._ports[number],
                namesrv_addresses=(self.nameserver.address,),
                store_dir=self.folder / str(number),
                segment_bytes=16 << 20,
                stop_grace_ms=1000,
                **SMALL_INDEX,
                **settings,
            ),
            self.clock,
            disk,
        )
        await self.nodes[number].start()
        if wait and role.endswith("MASTER"):
            await self.leads(number)
        return self.nodes[number]

    async def leads(self, number: int) -> None:
        """It has opened its epoch and committed that."""
        while True:
            found = await self.status(number)
            mine = [row for row in found.epochs if (row.epoch, row.writer) == (found.epoch, found.store)]
            if found.role == "leader" and mine and found.committed > mine[0].start:
                return
            await self.clock.advance(0.1)

    async def status(self, number: int) -> GroupStatus:
        peer = await Peer.connect(self.nodes[number].address)
        try:
            found: GroupStatus = await peer.ask(GetGroupStatus())
            return found
        finally:
            await peer.close()

    async def read(self, number: int, topic: str, queue_id: int = 0) -> list[bytes]:
        """What that node serves of a queue: all of it, also where a pull gives eight messages, because their pages have gone."""
        peer = await Peer.connect(self.nodes[number].address)
        found = [record.body for record in await everything(peer, topic, queue_id)]
        await peer.close()
        return found

    async def stop(self, number: int) -> None:
        await self.nodes.pop(number).stop()

    async def told(self) -> dict[int, str]:
        """Broker ids and addresses, as the nameserver tells them."""
        peer = await Peer.connect(self.nameserver.address)
        found = (await peer.ask(GetClusterInfo())).brokers
        await peer.close()
        return dict(found[0].addresses) if found else {}

    async def level(self) -> None:
        """All nodes have and have committed the same."""
        while True:
            found = [await self.status(number) for number in self.nodes]
            if len({(one.epoch, one.end, one.committed) for one in found}) == 1:
                return
            await self.clock.advance(0.1)
