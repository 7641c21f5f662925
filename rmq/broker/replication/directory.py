"""The brokers of this group, as nameservers and the brokers themselves tell: so nodes with fixed roles find each other, and a
master hears that another one took over.

Nodes are named after the broker ids of their configuration, which each broker tells itself: for nameservers the master has
id 0, whichever node it is. A nameserver or broker that does not answer changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rmq import background
from rmq.errors import RmqError, Unknown
from rmq.model import BrokerAddresses
from rmq.net.codec.native import VERSION
from rmq.net.commands import Answer, ClusterInfo, GetClusterInfo, Hello, Request
from rmq.net.commands.peers import GetGroupStatus, GroupStatus
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer

log = logging.getLogger("rmq.directory")

PERIOD_S, TIMEOUT_S = 1.0, 2.0
SILENT_LOOKS = 10  # so often without an answer, and the log names the master that gives none


class CurrentMaster(NamedTuple):
    """The master, by its node ("": none but this node is known). `epoch`: the newest known."""

    node: str
    address: str
    epoch: int


class Directory:
    """`own`: name and address of this node. `addresses`: node -> "host:port" where other nodes reach it; `ids`: node -> broker
    id, as registered now.
    `heard(master)` is called after each look that a nameserver answered."""

    def __init__(
        self, nameservers: Sequence[str], group: str, own: tuple[str, str], dialer: Dialer, heard: Callable[[CurrentMaster], None]
    ) -> None:
        self.addresses: dict[str, str] = {}
        self.ids: dict[str, int] = {}
        self._nameservers = nameservers
        self._group = group
        self._own_node, self._own_address = own
        self._dialer = dialer
        self._heard = heard
        self._channels: dict[str, Channel] = {}
        self._silent = 0  # looks in a row to which the registered master gave no answer
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns after the first look: nobody begins to lead before."""
        await self.look()
        self._task = background.start(self._run(), "directory")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    async def _run(self) -> None:
        while True:
            await self._dialer.clock.sleep(PERIOD_S)
            await self.look()

    async def look(self) -> None:
        """Asks the nameservers and the brokers now."""
        answers = await asyncio.gather(*(self._ask(address, GetClusterInfo()) for address in self._nameservers))
        infos = [found for found in answers if isinstance(found, ClusterInfo)]
        registered = [group for info in infos for group in info.brokers if group.name == self._group]
        if not registered:
            return
        ids = {
            address: broker_id
            for group in registered
            for broker_id, address in group.addresses.items()
            if address != self._own_address
        }
        statuses = await asyncio.gather(*(self._ask(address, GetGroupStatus()) for address in ids))
        found = {address: status for address, status in zip(ids, statuses, strict=True) if isinstance(status, GroupStatus)}
        names = {address: self._name(address, status.node) for address, status in found.items()}
        self.addresses |= {name: found[address].peers_address or address for address, name in names.items()}
        self.ids = {name: ids[address] for address, name in names.items()}
        epoch, address = max(group.epoch for group in registered), named_master(registered)
        master = found.get(address)
        self._note_silence(address if master is None and address != self._own_address else "")
        if master is None:
            self._heard(CurrentMaster("", "", epoch))
        else:
            begun = master.epoch if master.role == "leader" else 0
            self._heard(CurrentMaster(names[address], address, max(epoch, begun)))

    def _note_silence(self, address: str) -> None:
        """`address`: of the registered master, if it did not answer, else ""."""
        self._silent = self._silent + 1 if address else 0
        if self._silent == SILENT_LOOKS:
            advice = "if it is RocketMQ's, move it to rmq first: rmq's slaves copy from rmq's masters only"
            log.warning("%s: the master at %s gives this node no answer; %s", self._group, address, advice)

    def _name(self, address: str, node: str) -> str:
        """Two brokers may both be configured as 0: the other one is named by its address."""
        return address if node == self._own_node else node

    async def _ask(self, address: str, request: Request) -> Answer:
        """None if there is no answer. (The registration logs a nameserver that does not answer.)"""
        try:
            channel = self._channels.get(address)
            if channel is None or channel.closed.is_set():
                hello = Hello(VERSION, f"directory of {self._group}")
                channel = self._channels[address] = await self._dialer.open(address, hello, timeout_s=TIMEOUT_S)
        except RmqError as error:
            log.debug("%s: %s", address, error)
            return None
        try:
            return await channel.request(request, TIMEOUT_S)
        except RmqError as error:
            log.debug("%s: %s", address, error)
            if isinstance(error, Unknown):  # a link that swallows requests looks open for ever
                channel.abort("no answer in time")
            return None


def named_master(registered: Iterable[BrokerAddresses]) -> str:
    """Address of the master with the newest epoch; "" if nobody knows one. Of two with one epoch every node takes the same."""
    masters = [(-group.epoch, group.addresses[0]) for group in registered if 0 in group.addresses]
    return min(masters)[1] if masters else ""
