"""Telling every broker who we are: producer groups, consumer groups and what they subscribe to.

A broker that has not heard a client for 120 s, or whose connection broke, forgets it; so a heartbeat goes out at once
when a connection opens or breaks, and else every 30 s. [MQClientInstance.sendHeartbeatToAllBrokerWithLock]
"""

import asyncio
import logging

from rmq.client.connections import Connections
from rmq.client.routes import Routes
from rmq.client.settings import ClientSettings
from rmq.client.tasks import within
from rmq.clock import Clock
from rmq.errors import RmqError, Unknown
from rmq.model import ConsumerData
from rmq.net.commands import Heartbeat, UnregisterClient

_log = logging.getLogger("rmq.client")
_RETRY_S = 0.5  # after a heartbeat that some broker did not take


class Heartbeats:
    """The groups of this client, and the loop that announces them."""

    def __init__(self, client_id: str, connections: Connections, routes: Routes, settings: ClientSettings, clock: Clock) -> None:
        self._client_id = client_id
        self._connections = connections
        self._routes = routes
        self._settings = settings
        self._clock = clock
        self._producers: dict[str, int] = {}
        self._consumers: dict[str, ConsumerData] = {}
        self._due = asyncio.Event()
        self._told: set[str] = set()
        connections.on_lost.append(self._lost)
        routes.on_change.append(self._route_changed)

    def _route_changed(self, topic: str) -> None:
        if not self._told.issuperset(self._routes.brokers().values()):
            self.hurry()

    def _lost(self, address: str) -> None:
        """Who lost us has forgotten us."""
        self._told.discard(address)
        if address in self._routes.brokers().values():
            self.hurry()

    def add_producer(self, group: str) -> None:
        self._producers[group] = self._producers.get(group, 0) + 1
        self.hurry()

    def hurry(self) -> None:
        """Send the next heartbeat now."""
        self._due.set()

    def remember(self, consumer: ConsumerData) -> None:
        self._consumers[consumer.group] = consumer

    def knows_consumer(self, group: str) -> bool:
        return group in self._consumers

    async def drop_producer(self, group: str) -> None:
        """Unregister the group at every broker if this was its last producer here."""
        self._producers[group] -= 1
        if not self._producers[group]:
            del self._producers[group]
            await self._unregister(UnregisterClient(self._client_id, producer_group=group))

    async def drop_consumer(self, group: str) -> None:
        """Unregister the group at every broker: its other members take over at once."""
        del self._consumers[group]
        await self._unregister(UnregisterClient(self._client_id, consumer_group=group))

    async def _unregister(self, request: UnregisterClient) -> None:
        async def one(address: str) -> None:
            try:
                await self._connections.request(address, request)
            except RmqError as error:
                _log.info("%s was not told that we leave, it will notice: %s", address, error)

        await asyncio.gather(*(one(address) for address in self._told))

    async def beat(self) -> bool:
        """One heartbeat to every known broker; True if all took it."""
        if not self._producers and not self._consumers:
            return True
        heartbeat = Heartbeat(self._client_id, sorted(self._producers), list(self._consumers.values()))
        addresses = set(self._routes.brokers().values())
        return all(await asyncio.gather(*(self._send(address, heartbeat) for address in addresses)))

    async def _send(self, address: str, heartbeat: Heartbeat) -> bool:
        try:
            await self._connections.request(address, heartbeat)
        except RmqError as error:
            _log.info("no heartbeat to %s: %s", address, error)
            if isinstance(error, Unknown):  # a link that swallows requests looks open for ever
                await self._connections.drop(address)
            return False
        self._told.add(address)
        return True

    async def keep_beating(self) -> None:
        """Runs until cancelled."""
        while True:
            self._due.clear()
            taken = await self.beat()
            pause_s = self._settings.heartbeat_s if taken else _RETRY_S
            try:
                await within(self._clock, pause_s, self._due.wait())
            except TimeoutError:
                continue
