"""Which brokers have a topic: a broker asks its nameservers when it divides the topic among the members of a group."""

import asyncio
import logging
from collections.abc import Sequence

from rmq.codes import ResponseCode
from rmq.errors import Closed, Refusal, RmqError
from rmq.model import PERM_READ, MessageQueue, Route
from rmq.names import MAX_STORED_TOPIC_LENGTH
from rmq.net.codec.native import VERSION
from rmq.net.commands import GetRoute, Hello
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer
from rmq.routing.rows import believable

log = logging.getLogger("rmq.routes")

KEPT_S, TIMEOUT_S = 5.0, 2.0
MAX_KEPT = 100_000  # queues, and topics


class RouteAsking:
    """`name`: of this broker, for the nameserver's list of connections."""

    def __init__(self, nameservers: Sequence[str], name: str, dialer: Dialer) -> None:
        self._nameservers = nameservers
        self._name = name
        self._dialer = dialer
        self._channels: dict[str, Channel] = {}
        self._opening: dict[str, asyncio.Task[Channel]] = {}  # by address; whoever asks meanwhile waits for the same connection
        self._kept: dict[str, tuple[float, list[MessageQueue]]] = {}
        self._room = MAX_KEPT

    async def queues(self, topic: str) -> list[MessageQueue] | None:
        """Every queue of the topic that may be read, sorted; None if no nameserver answers. A few seconds old at most."""
        if len(topic) > MAX_STORED_TOPIC_LENGTH:  # nobody has it
            return []
        now = self._dialer.clock.monotonic()
        until, known = self._kept.get(topic, (0.0, []))
        if now < until:
            return known
        for address in self._nameservers:
            try:
                route = await self._ask(address, topic)
            except RmqError as error:
                log.debug("%s: %s", address, error)
                continue
            found = sorted(_readable(topic, route))
            self._room -= 1 + len(found)
            if self._room < 0:
                self._kept.clear()
                self._room = MAX_KEPT - len(found)
            self._kept[topic] = now + KEPT_S, found
            return found
        return None

    async def _ask(self, address: str, topic: str) -> Route:
        """The topic's route, without queues if nobody has the topic. Raises RmqError."""
        channel = self._channels.get(address)
        try:
            if channel is None or channel.closed.is_set():
                channel = await self._open(address)
            route = await channel.request(GetRoute(topic), TIMEOUT_S)
        except Refusal as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return Route([], [])
        assert isinstance(route, Route)
        return believable(route)

    async def _open(self, address: str) -> Channel:
        opening = self._opening.get(address)
        if opening is None:
            hello = Hello(VERSION, f"assignments of {self._name}")
            opening = asyncio.create_task(self._dialer.open(address, hello, timeout_s=TIMEOUT_S), name=f"open {address}")
            self._opening[address] = opening
            opening.add_done_callback(lambda task: self._opened(address, task))
        await asyncio.wait((opening,))  # it ends for all together, and not with who waits
        if opening.cancelled():
            raise Closed("this broker stops")
        return opening.result()

    def _opened(self, address: str, opening: "asyncio.Task[Channel]") -> None:
        del self._opening[address]
        if not opening.cancelled() and opening.exception() is None:
            self._channels[address] = opening.result()

    async def close(self) -> None:
        if opening := list(self._opening.values()):
            for task in opening:
                task.cancel()
            await asyncio.wait(opening)
        for channel in self._channels.values():
            await channel.close()


def _readable(topic: str, route: Route) -> list[MessageQueue]:
    return [
        MessageQueue(topic, queue.broker_name, queue_id)
        for queue in route.queues
        if queue.perm & PERM_READ
        for queue_id in range(queue.read_queue_nums)
    ]
