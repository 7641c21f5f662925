"""Heartbeats tell every broker who we are: producer groups, consumer groups and their subscriptions.

A broker that has not heard a client for 120 s, or whose connection broke, forgets it; so a heartbeat goes out at once
when a connection opens or breaks, and else every 30 s. Followers hear of consumers too: the one that leads next knows the
members of a group before it is asked. [MQClientInstance.sendHeartbeatToAllBrokerWithLock]
"""

import asyncio
import logging

from rmq.background import pause
from rmq.client.shared.connections import Connections
from rmq.client.shared.routes import Routes
from rmq.client.shared.settings import ClientSettings
from rmq.client.shared.tasks import TaskSet
from rmq.clock import Clock
from rmq.errors import Refusal, RmqError
from rmq.model import ConsumerData
from rmq.net.commands import Heartbeat, UnregisterClient

_log = logging.getLogger("rmq.client")
_RETRY_S = 0.5  # after a heartbeat that some broker did not take
_REFUSED_S = 8.0  # longest pause where it was refused again and again, as one of more groups than a connection may have
_FOLLOWER_TRIES = 5  # a follower may hear of a new group a moment later than the leader, which has answered


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
        self._asked = self._said = 0  # how often a heartbeat was asked for, and how many of these have had one
        self._saying = asyncio.Lock()
        self._retry_s = _RETRY_S
        self._joined: set[str] = set()
        self._met: set[str] = set()  # nodes that may have heard of us: a heartbeat was on its way to them
        self._telling: set[str] = set()  # followers
        self._tasks = TaskSet()
        connections.on_lost.append(self._lost)
        routes.on_change.append(self._route_changed)

    def _route_changed(self, topic: str) -> None:
        if not self._joined.issuperset(self._addresses()):
            self.hurry()

    def _addresses(self) -> set[str]:
        return self._routes.nodes() if self._consumers else set(self._routes.brokers().values())

    def _lost(self, address: str) -> None:
        """A broker that lost the connection has forgotten us."""
        self._joined.discard(address)
        self._met.discard(address)
        if address in self._addresses():
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
        met = [address for address in self._met if self._connections.is_open(address)]
        await asyncio.gather(*(self._unregister_at(address, request) for address in met))

    async def _unregister_at(self, address: str, request: UnregisterClient) -> None:
        try:
            await self._connections.request(address, request)
        except RmqError as error:
            _log.info("%s was not told that we leave, it will notice: %s", address, error)

    async def beat(self) -> bool:
        """Sends a heartbeat to every known broker; True if all leaders took it. Followers get theirs after that."""
        if not self._producers and not self._consumers:
            return True
        heartbeat = Heartbeat(self._client_id, sorted(self._producers), list(self._consumers.values()))
        leaders = set(self._routes.brokers().values())
        outcomes = await asyncio.gather(*(self._send(address, heartbeat) for address in leaders))
        troubles = [trouble for trouble in outcomes if trouble is not None]
        refused = troubles and all(isinstance(trouble, Refusal) for trouble in troubles)
        self._retry_s = min(2 * self._retry_s, _REFUSED_S) if refused else _RETRY_S
        for address in self._addresses() - leaders - self._telling:
            self._telling.add(address)
            self._tasks.start(self._tell_follower(address, heartbeat), f"heartbeat to {address}")
        return not troubles

    async def say_soon(self) -> None:
        """As `beat`, whatever comes of it. Those who ask while one is under way share the next."""
        self._asked = mine = self._asked + 1
        async with self._saying:
            if self._said < mine:
                upto = self._asked
                await self.beat()
                self._said = upto

    async def _send(self, address: str, heartbeat: Heartbeat) -> RmqError | None:
        """Sends one heartbeat; returns why it was not taken."""
        self._met.add(address)
        outcome = await self._connections.tried(address, heartbeat)
        if isinstance(outcome, RmqError):
            _log.info("no heartbeat to %s: %s", address, outcome)
            if not self._connections.is_open(address):
                self._met.discard(address)
            return outcome
        self._met.add(address)
        self._joined.add(address)
        for request in self._gone(heartbeat):  # it waited for a connection: the node hears of them only now
            await self._unregister_at(address, request)
        return None

    def _gone(self, heartbeat: Heartbeat) -> list[UnregisterClient]:
        """What it names, and was dropped meanwhile."""
        producers = [name for name in heartbeat.producers if name not in self._producers]
        consumers = [each.group for each in heartbeat.consumers if each.group not in self._consumers]
        return [UnregisterClient(self._client_id, producer_group=name) for name in producers] + [
            UnregisterClient(self._client_id, consumer_group=name) for name in consumers
        ]

    async def _tell_follower(self, address: str, heartbeat: Heartbeat) -> None:
        try:
            for _ in range(_FOLLOWER_TRIES):
                if not isinstance(await self._send(address, heartbeat), Refusal):
                    return
                await self._clock.sleep(_RETRY_S)
        finally:
            self._telling.discard(address)

    async def introduce(self) -> None:
        """Every leader that is known has heard of this client, as far as it can be reached."""
        if not self._joined.issuperset(self._routes.brokers().values()):
            await self.beat()

    async def close(self) -> None:
        await self._tasks.close()

    async def keep_beating(self) -> None:
        """Runs until cancelled."""
        while True:
            self._due.clear()
            retry_s, taken = self._retry_s, await self.beat()
            if not self._producers and not self._consumers:  # no heartbeat tells whether connections are any good
                self._tasks.start(self._connections.probe(), "probe connections")
            await pause(self._clock, self._settings.heartbeat_s if taken else retry_s, self._due)
