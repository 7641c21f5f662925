"""Which brokers have a topic: a broker asks its nameservers when it divides the topic among the members of a group."""

import asyncio
import logging
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from rmq.asking import OTHERS_MAY_KNOW_S, OTHERS_MAY_TAKE_S, Asking
from rmq.codes import ResponseCode
from rmq.errors import Closed, Refusal, RmqError, Unknown
from rmq.model import PERM_READ, MessageQueue, Route
from rmq.names import MAX_STORED_TOPIC_LENGTH
from rmq.net.codec.native import VERSION
from rmq.net.commands import GetRoute, Hello
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer
from rmq.routing.rows import believable

log = logging.getLogger("rmq.routes")

KEPT_S, TIMEOUT_S = 5.0, 2.0
FORGET_AFTER_S = 120.0  # a topic no nameserver has known for so long is gone: they may have been started again
MAX_KEPT = 100_000  # queues, and topics


class _Kept(NamedTuple):
    """What was told last, and when; until when nobody is asked again."""

    until_s: float
    queues: list[MessageQueue] | None
    told_s: float

    @property
    def size(self) -> int:
        return 1 + len(self.queues or ())


class RouteAsking:
    """`name`: of this broker, for the nameserver's list of connections."""

    def __init__(self, nameservers: Sequence[str], name: str, dialer: Dialer) -> None:
        self._nameservers = nameservers
        self._name = name
        self._dialer = dialer
        self._channels: dict[str, Channel] = {}
        self._opening: dict[str, asyncio.Task[Channel]] = {}  # by address; whoever asks meanwhile waits for the same connection
        self._asking = Asking(dialer.clock)
        self._kept: dict[str, _Kept] = {}
        self._room = MAX_KEPT
        self._nothing = _Kept(0.0, None, dialer.clock.monotonic())  # nameservers may have been started with this broker
        self._closed = False

    @property
    def alone(self) -> bool:
        """There is nobody to ask."""
        return not self._nameservers

    async def queues(self, topic: str) -> list[MessageQueue] | None:
        """Every queue of the topic that may be read, sorted. A few seconds old at most; while no nameserver answers, or knows the
        topic, those that were told last. None if none were, and nobody answers, or knows the topic since this was made."""
        if len(topic) > MAX_STORED_TOPIC_LENGTH:  # nobody has it
            return []
        clock = self._dialer.clock
        kept = self._kept.get(topic, self._nothing)
        if clock.monotonic() < kept.until_s:
            return kept.queues
        routes, now = await self._told(topic), clock.monotonic()
        _, known, told_s = self._kept.get(topic, self._nothing)  # somebody else may have been told meanwhile
        if any(route.queues for route in routes) or (routes and now - told_s > FORGET_AFTER_S):
            known, told_s = sorted(_readable(topic, routes)), now
        self._keep(topic, _Kept(now + KEPT_S, known, told_s))
        return known

    def _keep(self, topic: str, kept: _Kept) -> None:
        before = self._kept.pop(topic, None)
        self._room += (before.size if before is not None else 0) - kept.size
        if self._room < 0:
            self._kept.clear()
            self._room = MAX_KEPT - kept.size
        self._kept[topic] = kept

    async def _told(self, topic: str) -> list[Route]:
        """What nameservers answer, all asked at once: one may stand still, and one that was just started knows of some brokers
        only."""
        answers = await self._asking.told(self._nameservers, lambda address: self._tried(address, topic), _patience_s)
        return [answer for answer in answers if answer is not None]

    async def _tried(self, address: str, topic: str) -> Route | None:
        try:
            return await self._ask(address, topic)
        except RmqError as error:
            log.debug("%s: %s", address, error)
            return None

    async def _ask(self, address: str, topic: str) -> Route:
        """The topic's route, without queues if nobody has the topic. Raises RmqError."""
        channel = self._channels.get(address)
        if channel is None or channel.closed.is_set():
            channel = await self._open(address)
        try:
            route = await channel.request(GetRoute(topic), TIMEOUT_S)
        except Unknown:  # a link that swallows requests looks open for ever
            channel.abort("no answer in time")
            raise
        except Refusal as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return Route([], [])
        assert isinstance(route, Route)
        return believable(route)

    async def _open(self, address: str) -> Channel:
        if self._closed:
            raise Closed("this broker stops")
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
        self._closed = True
        await self._asking.close()
        if opening := list(self._opening.values()):
            for task in opening:
                task.cancel()
            await asyncio.wait(opening)
        for channel in self._channels.values():
            await channel.close()


def _patience_s(answers: Sequence[Route | None], _: bool) -> float:
    routes = [answer for answer in answers if answer is not None]
    if not routes:
        return inf
    return OTHERS_MAY_TAKE_S if any(route.queues for route in routes) else OTHERS_MAY_KNOW_S


def _readable(topic: str, routes: Sequence[Route]) -> list[MessageQueue]:
    """Of each broker those that the first nameserver names that knows it."""
    known = {data.broker_name: data for route in reversed(routes) for data in route.queues}
    return [
        MessageQueue(topic, queue.broker_name, queue_id)
        for queue in known.values()
        if queue.perm & PERM_READ
        for queue_id in range(queue.read_queue_nums)
    ]
