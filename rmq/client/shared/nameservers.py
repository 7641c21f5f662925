"""The nameservers of a client: all are asked at once, so that one that stands still delays nobody."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from math import inf
from typing import TypeVar

from rmq.asking import OTHERS_MAY_KNOW_S, OTHERS_MAY_TAKE_S, Asking
from rmq.client.shared.connections import Connections
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.errors import Closed, InvalidArgument, Refusal, RmqError, Unreachable
from rmq.model import Route
from rmq.names import is_port
from rmq.net.commands import Answer, ClusterInfo, GetRoute, Request, TopicList
from rmq.net.transport.network import checked_address
from rmq.routing.rows import believable

T = TypeVar("T")
_NOTHING = (ClusterInfo([]), TopicList([]))


class Nameservers:
    """`zone`: routes have only brokers of that one; "": all."""

    def __init__(self, addresses: Sequence[str], zone: str, connections: Connections, clock: Clock) -> None:
        self.addresses = tuple(addresses)
        self._zone = zone
        self._connections = connections
        self._asking = Asking(clock)

    async def ask(self, request: Request) -> Answer:
        """The first good answer: all nameservers are asked at once, so that a silent one delays nobody.

        Raises Refusal (of those that answer none does better), Unreachable.
        """
        return (await self._told(partial(self._connections.tried, request=request), 0.0, OTHERS_MAY_TAKE_S))[0]

    async def ask_all(self, request: Request) -> list[Answer]:
        """The good answers that come soon behind the first: one nameserver may know of some brokers only (N5). As `ask`."""
        return await self._told(partial(self._connections.tried, request=request), OTHERS_MAY_TAKE_S, OTHERS_MAY_KNOW_S)

    async def routes(self, topic: str) -> list[Route]:
        """Where the topic lives, as each of them knows it that answers. Raises Refusal (no such topic), Unreachable."""
        return await self._told(lambda address: self._route(address, topic), OTHERS_MAY_TAKE_S, OTHERS_MAY_KNOW_S)

    async def close(self) -> None:
        """Ends questions that nobody waits for; with the connections, the others fail."""
        await self._asking.close()

    async def _told(
        self, ask: Callable[[str], Coroutine[None, None, T | RmqError]], others_s: float, others_may_know_s: float
    ) -> list[T]:
        """Good answers, in the order of the nameservers. The others are waited for `others_s` behind the first one, unless they
        owe another answer for some time, and `others_may_know_s` behind a refusal. Raises as `ask` if there is none. One that was
        just started knows of nobody: that says as little as a refusal."""

        def patience_s(answers: list[T | RmqError], others_hoped_for: bool) -> float:
            good = [answer for answer in answers if not isinstance(answer, RmqError)]
            if any(answer not in _NOTHING for answer in good):
                return others_s if others_hoped_for else 0.0
            if good:
                return OTHERS_MAY_KNOW_S
            return others_may_know_s if any(isinstance(answer, Refusal) for answer in answers) else inf

        answers = await self._asking.told(self.addresses, ask, patience_s)
        failures = [answer for answer in answers if isinstance(answer, RmqError)]
        if found := [answer for answer in answers if not isinstance(answer, RmqError)]:
            return found
        for failure in failures:
            if isinstance(failure, Refusal | Closed | InvalidArgument):
                raise failure
        nobody = f"no nameserver of {';'.join(self.addresses)} answers: {'; '.join(map(str, failures))}"
        raise Unreachable(nobody) from failures[0]

    async def _route(self, address: str, topic: str) -> Route | RmqError:
        answer = await self._connections.tried(address, GetRoute(topic, zone=self._zone))
        assert isinstance(answer, Route | RmqError)
        if isinstance(answer, Refusal) and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            hint = f"{address} is probably no nameserver's address, but a broker's; nameservers listen at port 9876 by default"
            answer.remark = f"{answer.remark.strip()}: {hint}"
        return with_addresses(believable(answer)) if isinstance(answer, Route) else answer


def with_addresses(route: Route) -> Route:
    """Without what is no address: who asks there would hear of a wrong argument, and nobody gave one."""
    brokers = []
    for group in route.brokers:
        good = {broker_id: address for broker_id, address in group.addresses.items() if is_address(address)}
        brokers.append(group if len(good) == len(group.addresses) else group._replace(addresses=good))
    return route._replace(brokers=brokers)


def is_address(text: str) -> bool:
    try:
        checked_address(text)
    except InvalidArgument:
        return False
    return True


def parse_addresses(addresses: str | Sequence[str]) -> list[str]:
    """`"host:port;host:port"` (commas too) or a list of them. Raises InvalidArgument."""
    parts = addresses.replace(",", ";").split(";") if isinstance(addresses, str) else addresses
    found = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or set(host) & set("/@ ") or not is_port(port):
            raise InvalidArgument(f"address {address!r}: give host:port, as 127.0.0.1:9876, several separated by ';'")
    if not found:
        raise InvalidArgument("no nameserver address: give at least one host:port")
    return found
