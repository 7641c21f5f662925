"""Where topics live, as the nameservers tell it and as long as they do not tell otherwise.

Answers are kept: with every nameserver down a client that has a route goes on (N3). No message is sent from here.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from rmq.client.connections import Connections
from rmq.client.settings import ClientSettings
from rmq.client.tasks import TaskSet
from rmq.clock import Clock
from rmq.errors import InvalidArgument, Refusal, RmqError, Unreachable
from rmq.model import BrokerAddresses, Route
from rmq.net.commands import Answer, GetRoute, Request

_log = logging.getLogger("rmq.client")
LEADER = 0  # key of the leader in a broker group's addresses [MixAll.MASTER_ID]
_OTHERS_MAY_TAKE_S = 0.2  # once one nameserver answered, the others have this long to add what they know
_FORGET_AFTER_S = 120.0  # a topic no nameserver has known for so long is gone (a broker's registration lasts as long)


class Routes:
    """Routes of the topics in use, asked of all nameservers at once; of each broker group the largest epoch counts (N2)."""

    def __init__(
        self, nameservers: str | Sequence[str], connections: Connections, settings: ClientSettings, clock: Clock
    ) -> None:
        self._nameservers = parse_addresses(nameservers)
        self._connections = connections
        self._settings = settings
        self._clock = clock
        self._routes: dict[str, Route] = {}
        self._confirmed: dict[str, float] = {}
        self._brokers: dict[str, BrokerAddresses] = {}
        self._asking: dict[str, asyncio.Task[Route]] = {}
        self.on_change: list[Callable[[str], None]] = []

    @property
    def nameservers(self) -> tuple[str, ...]:
        return tuple(self._nameservers)

    async def get(self, topic: str) -> Route:
        """The known route, else a fresh one. Raises Refusal (no such topic), Unreachable (no nameserver answers)."""
        return self._routes.get(topic) or await self.refresh(topic)

    def known(self, topic: str) -> Route | None:
        return self._routes.get(topic)

    def brokers(self) -> dict[str, str]:
        """Broker name -> address of its leader, for every broker group in a known route."""
        return {name: group.addresses[LEADER] for name, group in self._brokers.items() if LEADER in group.addresses}

    def leader(self, broker_name: str) -> str:
        """Raises Unreachable when the group has no leader now."""
        group = self._brokers.get(broker_name)
        if group is None or LEADER not in group.addresses:
            raise Unreachable(f"broker group {broker_name} has no leader in the route")
        return group.addresses[LEADER]

    async def refresh(self, topic: str) -> Route:
        """Ask now; several callers share one question. Raises as `get`, and keeps what is known."""
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = asyncio.create_task(self._ask_all(topic), name=f"route {topic}")
            asking.add_done_callback(lambda task: self._asked(topic, task))
        return await asyncio.shield(asking)

    def _asked(self, topic: str, task: "asyncio.Task[Route]") -> None:
        del self._asking[topic]
        if task.cancelled() or task.exception() is not None:
            return
        self._confirmed[topic] = self._clock.monotonic()

    async def keep_fresh(self) -> None:
        """Ask again for every topic in use, each `route_refresh_s`; runs until cancelled."""
        while True:
            await self._clock.sleep(self._settings.route_refresh_s)
            await asyncio.gather(*(self._refresh_quietly(topic) for topic in self._routes))

    async def _refresh_quietly(self, topic: str) -> None:
        try:
            await self.refresh(topic)
        except Refusal:
            if self._clock.monotonic() - self._confirmed.get(topic, 0.0) > _FORGET_AFTER_S:
                self._forget(topic)
        except RmqError as error:
            _log.info("the route of %s stays as it is: %s", topic, error)

    def _forget(self, topic: str) -> None:
        self._routes.pop(topic, None)
        self._confirmed.pop(topic, None)
        self._prune()
        self._tell(topic)

    async def ask(self, request: Request) -> Answer:
        """The answer of the first nameserver that gives one, in random order. Raises Refusal, Unreachable."""
        trouble: RmqError | None = None
        for address in random.sample(self._nameservers, len(self._nameservers)):
            try:
                return await self._connections.request(address, request)
            except Refusal:
                raise
            except RmqError as error:
                trouble = error
        raise Unreachable(f"no nameserver of {';'.join(self._nameservers)} answers: {trouble}") from trouble

    async def _ask_all(self, topic: str) -> Route:
        tasks = TaskSet()
        questions = [tasks.start(self._ask_one(address, topic), f"ask {address}") for address in self._nameservers]
        try:
            answers = await self._collect(questions)
        finally:
            await tasks.close()
        routes = [answer for answer in answers if isinstance(answer, Route)]
        if routes:
            return self._learn(topic, routes)
        for answer in answers:
            if isinstance(answer, Refusal):
                raise answer
        raise Unreachable(f"no nameserver of {';'.join(self._nameservers)} answers: {answers[0]}")

    async def _ask_one(self, address: str, topic: str) -> Route | RmqError:
        try:
            answer = await self._connections.request(address, GetRoute(topic))
        except RmqError as error:
            return error
        assert isinstance(answer, Route)
        return answer

    async def _collect(self, questions: "list[asyncio.Task[Route | RmqError]]") -> list[Route | RmqError]:
        """All answers, but no long wait for a silent nameserver once another one has told a route."""
        pending = set(questions)
        while pending and not any(task.done() and isinstance(task.result(), Route) for task in questions):
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if pending:
            grace = asyncio.ensure_future(self._clock.sleep(_OTHERS_MAY_TAKE_S))
            while pending and not grace.done():
                await asyncio.wait({*pending, grace}, return_when=asyncio.FIRST_COMPLETED)
                pending = {task for task in pending if not task.done()}
            grace.cancel()
        return [task.result() for task in questions if task.done()]

    def _learn(self, topic: str, routes: list[Route]) -> Route:
        for route in routes:
            for group in route.brokers:
                known = self._brokers.get(group.name)
                if known is None or group.epoch >= known.epoch:
                    self._brokers[group.name] = group
        merged = merge(routes, self._brokers)
        if merged != self._routes.get(topic):
            self._routes[topic] = merged
            self._prune()
            self._tell(topic)
        return self._routes[topic]

    def _prune(self) -> None:
        used = {group.name for route in self._routes.values() for group in route.brokers}
        self._brokers = {name: group for name, group in self._brokers.items() if name in used}

    def _tell(self, topic: str) -> None:
        for listener in self.on_change:
            listener(topic)


def merge(routes: Sequence[Route], brokers: dict[str, BrokerAddresses]) -> Route:
    """One route of several nameservers' answers: every broker group any of them has, queues by the first that has them."""
    names = sorted({group.name for route in routes for group in route.brokers})
    queues = {data.broker_name: data for route in reversed(routes) for data in route.queues}
    order_conf = next((route.order_conf for route in routes if route.order_conf), "")
    return Route([brokers[name] for name in names], [queues[name] for name in sorted(queues)], order_conf)


def parse_addresses(addresses: str | Sequence[str]) -> list[str]:
    """`"host:port;host:port"` (commas too) or a list of them. Raises InvalidArgument."""
    parts = addresses.replace(",", ";").split(";") if isinstance(addresses, str) else addresses
    found = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise InvalidArgument(f"address {address!r}: give host:port, several separated by ';'")
    if not found:
        raise InvalidArgument("no nameserver address: give at least one host:port")
    return found
