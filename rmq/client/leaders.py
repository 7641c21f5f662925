"""Asking the node that leads a broker group, and following to the leader that another node names. Waits for no election."""

from rmq.client.connections import Connections
from rmq.client.routes import Routes
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.errors import Refusal, Unknown, Unreachable
from rmq.net.commands import Answer, Request

_HOPS = 3  # leaders may change while we follow; two nodes that name each other must not keep us


class Leaders:
    """Requests that a leader answers."""

    def __init__(self, connections: Connections, routes: Routes, clock: Clock) -> None:
        self._connections = connections
        self._routes = routes
        self._clock = clock

    async def request(self, broker_name: str, request: Request, timeout_s: float) -> Answer:
        """The leader's answer, within `timeout_s` in all. What fails is told to the routes, which look for a new leader.

        Raises as `Connections.request`; Unreachable also when the group has no leader now.
        """
        deadline = self._clock.monotonic() + timeout_s
        for hop in range(1, _HOPS + 1):
            address = self._routes.leader(broker_name)
            try:
                return await self._connections.request(address, request, timeout_s)
            except (Unreachable, Unknown):  # a node that hangs, or is cut off, keeps its connections: another one may lead by now
                self._routes.lost(address)
                raise
            except Refusal as refusal:
                if refusal.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                    raise
                named = self._routes.not_leading(broker_name, address, refusal.hint)
                timeout_s = deadline - self._clock.monotonic()
                if not named or hop == _HOPS or timeout_s <= 0:
                    raise
        raise AssertionError("unreachable: the last hop returns or raises")

    async def request_from(self, address: str, request: Request, timeout_s: float | None = None) -> Answer:
        """The answer of the node at `address`, or of the leader that it names. Raises as `Connections.request`."""
        try:
            return await self._connections.request(address, request, timeout_s)
        except Refusal as refusal:
            if refusal.code != ResponseCode.SERVICE_NOT_AVAILABLE or refusal.hint in ("", address):
                raise
            return await self._connections.request(refusal.hint, request, timeout_s)
