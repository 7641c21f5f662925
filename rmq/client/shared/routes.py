"""Where topics live, as the nameservers told last.

Answers are kept: with every nameserver down a client that has a route goes on (N3). No message is sent from here.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import NamedTuple, TypeVar

from rmq.client.shared.connections import Connections
from rmq.client.shared.nameservers import Nameservers, is_address
from rmq.client.shared.settings import ClientSettings
from rmq.client.shared.tasks import some_at_a_time, within
from rmq.clock import Clock
from rmq.errors import Refusal, RmqError, Unreachable
from rmq.model import PERM_READ, BrokerAddresses, Route

_log = logging.getLogger("rmq.client")
T = TypeVar("T")
LEADER = 0  # key of the leader in a broker group's addresses [MixAll.MASTER_ID]
_FORGET_AFTER_S = 120.0  # a topic no nameserver has known for so long is gone (a broker's registration lasts as long)
_BELIEVED_S = 60.0  # an epoch that no nameserver tells any more: two rounds of questions
_BELIEVED_IN_TROUBLE_S = 3.0  # the same while its leader is of no use; an election takes less
_TROUBLE_LASTS_S = 10.0
AT_ONCE = 64  # topics: each takes the loop half a millisecond
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0  # between questions for a new leader


class Trouble(NamedTuple):
    """Trouble with a leader: when it began, and when it was seen last."""

    first: float
    last: float


class Routes:
    """Routes of the topics in use, asked of all nameservers at once; of each broker group the largest epoch counts (N2).

    A leader that was lost, that refuses to lead, or that is missing is asked for at once, then less and less often. A
    leader that a refusal names is believed until a route with a newer epoch comes, or that node does not serve either.
    An epoch that no nameserver tells any more is believed for some seconds while its leader is of no use, else for a minute:
    then it was no good, or the group began anew, and what the nameservers say now counts.
    """

    def __init__(self, nameservers: Nameservers, connections: Connections, settings: ClientSettings, clock: Clock) -> None:
        self._nameservers = nameservers
        self._connections = connections
        self._settings = settings
        self._clock = clock
        self._routes: dict[str, Route] = {}
        self.known: Callable[[str], Route | None] = self._routes.get  # of a topic; asked for each send: a call less than a method
        self._confirmed: dict[str, float] = {}
        self._brokers: dict[str, BrokerAddresses] = {}
        self._asking: dict[str, asyncio.Task[Route]] = {}
        self._hints: dict[str, str] = {}  # broker name -> leader as a refusal named it
        self._doubted: dict[str, int] = {}  # broker name -> epoch in which its leader did not lead
        self._doubt = asyncio.Event()
        self._believed_since: dict[str, float] = {}  # broker name -> when a nameserver last told the epoch that is believed
        self._troubles: dict[str, Trouble] = {}  # broker name -> with its leader
        connections.on_lost.append(self.lost)
        self.on_change: list[Callable[[str], None]] = []

    async def get(self, topic: str) -> Route:
        """The known route, else a fresh one. Raises Refusal (no such topic), Unreachable (no nameserver answers)."""
        return self._routes.get(topic) or await self.refresh(topic)

    async def readable(self, topic: str) -> list[str]:
        """Names of the broker groups that have queues of the topic which may be read. Raises as `get`."""
        route = await self.get(topic)
        return sorted({data.broker_name for data in route.queues if data.perm & PERM_READ})

    def brokers(self) -> dict[str, str]:
        """Broker name -> address of its leader, for every broker group in a known route."""
        leaders = ((name, self.leader_of(name)) for name in self._brokers)
        return {name: address for name, address in leaders if address}

    def nodes(self) -> set[str]:
        """Addresses of all nodes of all broker groups in a known route."""
        return {address for group in self._brokers.values() for address in group.addresses.values()} | set(self._hints.values())

    def leader(self, broker_name: str) -> str:
        """Raises Unreachable when the group has no leader now."""
        address = self.leader_of(broker_name)
        if not address:
            raise Unreachable(f"broker group {broker_name} has no leader in the route")
        return address

    def reader(self, broker_name: str) -> str:
        """The leader, or while there is none another node, which answers what is committed. Raises Unreachable."""
        address = self.leader_of(broker_name)
        if not address and (others := self.followers(broker_name)):
            return others[min(others)]
        return address or self.leader(broker_name)

    def leader_of(self, broker_name: str) -> str:
        """As `leader`; "" when the group has none."""
        group = self._brokers.get(broker_name)
        return self._hints.get(broker_name) or (group.addresses.get(LEADER, "") if group else "")

    def followers(self, broker_name: str) -> dict[int, str]:
        """Broker id -> address of the nodes that do not lead."""
        group, leader = self._brokers.get(broker_name), self.leader_of(broker_name)
        addresses = group.addresses if group else {}
        return {broker_id: address for broker_id, address in addresses.items() if address != leader and broker_id}

    def knows(self, broker_name: str) -> bool:
        """Whether a node of that group is known."""
        return bool(self.leader_of(broker_name) or self.followers(broker_name))

    # --- doubts about leaders

    def not_leading(self, broker_name: str, address: str, hint: str) -> bool:
        """The node there refused what only a leader does, and named `hint` ("": it knows none). Whether to ask that one now."""
        self._take_back(address)
        named = hint != address and is_address(hint) and broker_name in self._brokers
        if named and hint != self.leader_of(broker_name):
            self._hints[broker_name] = hint
        self._doubts(broker_name)
        return named

    def lost(self, address: str) -> None:
        """The node there cannot be reached, its connection broke, or it did not answer in time."""
        led = [name for name, leader in self.brokers().items() if leader == address]
        self._take_back(address)
        for name in led:
            self._doubts(name)

    def misled(self, broker_name: str) -> None:
        """The leader's node answers, and cannot be the right one: it lacks the topic, or is no broker."""
        self._note_trouble(broker_name)

    def _note_trouble(self, broker_name: str) -> None:
        now, old = self._clock.monotonic(), self._troubles.get(broker_name)
        goes_on = old is not None and now - old.last <= _TROUBLE_LASTS_S
        self._troubles[broker_name] = Trouble(old.first if goes_on and old else now, now)

    def _is_over(self, broker_name: str) -> bool:
        """Whether to stop believing the known epoch; asked when nameservers tell only smaller ones."""
        now, trouble = self._clock.monotonic(), self._troubles.get(broker_name, Trouble(inf, -inf))
        of_no_use = broker_name in self._doubted or now - trouble.last <= _TROUBLE_LASTS_S
        patience_s = _BELIEVED_IN_TROUBLE_S if of_no_use and now - trouble.first >= _BELIEVED_IN_TROUBLE_S else _BELIEVED_S
        return now - self._believed_since.get(broker_name, -inf) >= patience_s

    def _take_back(self, address: str) -> None:
        self._hints = {name: hint for name, hint in self._hints.items() if hint != address}

    def _doubts(self, broker_name: str) -> None:
        if broker_name in self._brokers:
            self._note_trouble(broker_name)
            self._doubted[broker_name] = self._brokers[broker_name].epoch
            self._doubt.set()

    async def keep_led(self) -> None:
        """Ask for the leaders in doubt until there are new ones, or the old ones are back; runs until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            if not self._doubted:
                pause_s = _FIRST_PAUSE_S
                await self._doubt.wait()
            self._doubt.clear()
            await asyncio.gather(*(self._refresh_quietly(topic) for topic in self._one_topic_each(self._doubted)))
            self._doubted = {name: epoch for name, epoch in self._doubted.items() if not self._settled(name, epoch)}
            if self._doubted:
                try:
                    await within(self._clock, pause_s, self._doubt.wait())
                except TimeoutError:
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                else:
                    await self._clock.sleep(_FIRST_PAUSE_S)  # refusals come in crowds
                    pause_s = 2 * _FIRST_PAUSE_S

    def _settled(self, broker_name: str, epoch: int) -> bool:
        group = self._brokers.get(broker_name)
        if group is None:
            return True
        leader = group.addresses.get(LEADER, "")
        held = broker_name not in self._hints and self._connections.is_open(leader)  # the trouble was short
        return leader != "" and (group.epoch != epoch or held)

    def _one_topic_each(self, broker_names: Iterable[str]) -> set[str]:
        """Topics whose routes together name these groups."""
        topic_of = {group.name: topic for topic, route in self._routes.items() for group in route.brokers}
        return {topic_of[name] for name in broker_names if name in topic_of}

    # --- asking

    async def refresh(self, topic: str) -> Route:
        """Asks now; several callers share one question. Raises as `get`, and keeps the known route."""
        self.refresh_behind(topic)
        return await asyncio.shield(self._asking[topic])

    def refresh_behind(self, topic: str) -> None:
        """Ask, and do not wait for the answer."""
        self._connections.check_loop()
        if topic not in self._asking:
            self._asking[topic] = asyncio.create_task(self._ask(topic), name=f"route {topic}")
            self._asking[topic].add_done_callback(lambda task: self._asked(topic, task))

    def _asked(self, topic: str, task: "asyncio.Task[Route]") -> None:
        del self._asking[topic]
        if task.cancelled() or task.exception() is not None:
            return
        self._confirmed[topic] = self._clock.monotonic()

    async def keep_fresh(self) -> None:
        """Ask again for every topic in use, each `route_refresh_s`; runs until cancelled."""
        while True:
            await self._clock.sleep(self._settings.route_refresh_s)
            await some_at_a_time(AT_ONCE, self._refresh_quietly, self._routes)

    async def _refresh_quietly(self, topic: str) -> None:
        try:
            await self.refresh(topic)
        except Refusal:
            if self._clock.monotonic() - self._confirmed.get(topic, 0.0) > _FORGET_AFTER_S:
                self._forget(topic)
        except RmqError as error:
            _log.info("the route of %s stays as it is: %s", topic, error)

    def _forget(self, topic: str) -> None:
        route = self._routes.pop(topic, None)
        self._confirmed.pop(topic, None)
        self._prune(route.brokers if route else ())
        self._tell(topic)

    async def _ask(self, topic: str) -> Route:
        return self._learn(topic, await self._nameservers.routes(topic))

    def _learn(self, topic: str, routes: list[Route]) -> Route:
        moved = False
        for group in newest(routes):
            known = self._brokers.get(group.name)
            changed = known is not None and group.epoch != known.epoch
            if known is None or group.epoch >= known.epoch or self._is_over(group.name):
                moved = moved or (known is not None and known != group)
                self._brokers[group.name] = group
                self._believed_since[group.name] = self._clock.monotonic()
            else:
                changed = False
            if changed:
                self._troubles.pop(group.name, None)
            if changed or group.addresses.get(LEADER) == self._hints.get(group.name):
                self._hints.pop(group.name, None)
        merged = merge(routes, self._brokers)
        if merged != (before := self._routes.get(topic)):
            self._routes[topic] = merged
            if before is not None:
                self._prune(before.brokers)
            self._tell(topic)
            self._take_over(merged.brokers, moved)
        return self._routes[topic]

    def _take_over(self, groups: Sequence[BrokerAddresses], moved: bool) -> None:
        """Enters these groups' addresses into every other route, too, if one has others now."""
        newer = {group.name: group for group in groups}
        for topic, route in list(self._routes.items()) if moved else ():
            brokers = [newer.get(group.name, group) for group in route.brokers]
            if brokers != route.brokers:
                self._routes[topic] = route._replace(brokers=brokers)
                self._tell(topic)
        for group in groups:
            if LEADER not in group.addresses and group.name not in self._doubted:
                self._doubts(group.name)

    def _prune(self, before: Iterable[BrokerAddresses]) -> None:
        """Forgets those that no route names any more. The first ones nearly always do: thousands change, or end, at a time."""
        for name in [group.name for group in before]:
            if not any(group.name == name for route in self._routes.values() for group in route.brokers):
                for known in (self._brokers, self._hints, self._believed_since, self._troubles):
                    known.pop(name, None)

    def _tell(self, topic: str) -> None:
        for listener in self.on_change:
            listener(topic)


async def get_all(routes: Routes, topics: Iterable[str]) -> list[Route | RmqError]:
    """Those of many topics, in their order, or why there is none. Nameservers that stand still are waited for together, and once:
    for topics whose turn comes behind that they are not asked."""
    silent = list[Unreachable]()

    async def one(topic: str) -> Route | RmqError:
        try:
            return routes.known(topic) or (silent[0] if silent else await routes.get(topic))
        except RmqError as error:
            if isinstance(error, Unreachable):
                silent.append(error)
            return error

    return await some_at_a_time(AT_ONCE, one, topics)


def newest(routes: Sequence[Route]) -> list[BrokerAddresses]:
    """For each broker group the answer with the largest epoch; of several such answers all addresses, the first one's first."""
    found: dict[str, BrokerAddresses] = {}
    for group in (group for route in routes for group in route.brokers):
        known = found.get(group.name)
        if known is None or group.epoch > known.epoch:
            found[group.name] = group
        elif group.epoch == known.epoch:
            found[group.name] = known._replace(addresses=group.addresses | known.addresses)
    return list(found.values())


def merge(routes: Sequence[Route], brokers: dict[str, BrokerAddresses]) -> Route:
    """One route of several nameservers' answers: every broker group any of them has, queues by the first that has them."""
    names = sorted({group.name for route in routes for group in route.brokers})
    queues = {data.broker_name: data for route in reversed(routes) for data in route.queues}
    order_conf = next((route.order_conf for route in routes if route.order_conf), "")
    return Route([brokers[name] for name in names], [queues[name] for name in sorted(queues)], order_conf)


async def find(routes: Routes, broker_name: str, topic: str) -> None:
    """Where that broker is, which has the topic: somebody else named it, and here the topic was not looked at yet, or not since
    that broker came. Raises RmqError."""
    for look in (routes.get, routes.refresh):
        if not routes.knows(broker_name):
            await look(topic)
