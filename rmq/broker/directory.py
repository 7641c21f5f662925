"""Who the brokers of this group are, as the nameservers tell it: how master and slaves with fixed roles find each other.

Each node is named after its broker id: n0 is the master. A nameserver that knows nothing changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from rmq.clock import Clock
from rmq.errors import RmqError
from rmq.net.channel import Channel
from rmq.net.commands import ClusterInfo, GetClusterInfo, Hello
from rmq.net.native import VERSION

log = logging.getLogger("rmq.directory")

PERIOD_S, TIMEOUT_S = 1.0, 2.0
MASTER = "n0"


class Directory:
    """`addresses`: node -> "host:port". `on_master()` is called whenever the master was seen."""

    def __init__(self, nameservers: Sequence[str], group: str, clock: Clock, on_master: Callable[[], None]) -> None:
        self.addresses: dict[str, str] = {}
        self._nameservers = nameservers
        self._group = group
        self._clock = clock
        self._on_master = on_master
        self._channels: dict[str, Channel] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="directory")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    async def _run(self) -> None:
        while True:
            await asyncio.gather(*(self._ask(address) for address in self._nameservers))
            if MASTER in self.addresses:
                self._on_master()
            await self._clock.sleep(PERIOD_S)

    async def _ask(self, nameserver: str) -> None:
        try:
            channel = self._channels.get(nameserver)
            if channel is None or channel.closed.is_set():
                channel = self._channels[nameserver] = await Channel.open(
                    nameserver, Hello(VERSION, f"directory of {self._group}"), clock=self._clock, timeout_s=TIMEOUT_S
                )
            found = await channel.request(GetClusterInfo(), TIMEOUT_S)
        except RmqError as error:
            log.debug("nameserver %s: %s", nameserver, error)  # the registration tells it aloud
            return
        assert isinstance(found, ClusterInfo)
        for group in found.brokers:
            if group.name == self._group:
                self.addresses |= {f"n{broker_id}": address for broker_id, address in group.addresses.items()}
