"""Sends requests to the leader of a broker group, and follows to the leader that another node names. Only `persist` waits for an
election.

Requests that only read may go to a follower when nobody has led for a while: it answers as far as it has copied.
"""

from collections.abc import Awaitable
from typing import NamedTuple

from rmq.client.shared.connections import Connections
from rmq.client.shared.routes import Routes
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.errors import Refusal, RmqError, Unknown, Unreachable
from rmq.net.commands import Answer, Request

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.5  # between tries through a change of leaders
LEADERLESS_S = 1.0  # so long the leader is waited for; then a follower answers reads
_ELSEWHERE = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)  # says a node that is another one
_HOPS = 3  # leaders may change while we follow; two nodes that name each other must not keep us


class LeaderAnswer(NamedTuple):
    """`answer`: also a refusal, if the question was refused and not the node at fault."""

    answer: Answer | Refusal
    by_follower: bool


class Failed(NamedTuple):
    """A try that failed: the node that was asked, and what it said."""

    address: str
    error: RmqError


class Leaders:
    """Requests that a leader answers."""

    def __init__(self, connections: Connections, routes: Routes, clock: Clock) -> None:
        self._connections = connections
        self._routes = routes
        self._clock = clock
        self._failing: dict[str, float] = {}  # broker name -> since when its leader has answered no read

    async def request(self, broker_name: str, request: Request, timeout_s: float, failed: Failed | None = None) -> Answer:
        """The leader's answer, within `timeout_s` in all. The routes hear of failures, and look for a new leader. `failed`: the
        first try, which was made already.

        Raises as `Connections.request`; Unreachable also when the group has no leader now.
        """
        deadline = self._clock.monotonic() + timeout_s
        for hop in range(1, _HOPS + 1):
            address, error = failed or (self._routes.leader(broker_name), None)
            failed = None
            try:
                return await self._connections.request(address, request, timeout_s, error)
            except (Unreachable, Unknown):  # a node that hangs, or is cut off, keeps its connections: another one may lead by now
                self._routes.lost(address)
                raise
            except Refusal as refusal:
                if refusal.code in _ELSEWHERE:
                    self._routes.misled(broker_name)
                if refusal.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                    raise
                named = self._routes.not_leading(broker_name, address, refusal.hint)
                timeout_s = deadline - self._clock.monotonic()
                if not named or hop == _HOPS or timeout_s <= 0:
                    raise
        raise AssertionError("unreachable: the last hop returns or raises")

    async def persist(
        self, broker_name: str, request: Request, timeout_s: float, *, within_s: float = 0.0, harmless: bool = False
    ) -> Answer:
        """As `request`, with that timeout, and again for `within_s` (0: `timeout_s`), so through a change of leaders.

        `harmless`: asking twice does no harm, so who does not know whether it was carried out asks again, too. Raises as
        `request`, and Unknown if an earlier try may have been carried out.
        """
        deadline, pause_s = self._clock.monotonic() + (within_s or timeout_s), _FIRST_PAUSE_S
        doubt: Unknown | None = None
        while True:
            left_s = deadline - self._clock.monotonic()
            try:
                return await self.request(broker_name, request, min(timeout_s, left_s))
            except RmqError as error:
                may_pass = error.may_pass if harmless else error.passing
                if not may_pass or self._clock.monotonic() + 2 * pause_s > deadline:
                    if doubt is None:
                        raise
                    raise doubt from error
                if isinstance(error, Unknown):
                    doubt = error
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def read(self, broker_name: str, request: Request, timeout_s: float) -> LeaderAnswer:
        """The answer of the leader, or of a follower if there was no leader for `LEADERLESS_S`. Raises RmqError."""
        began = self._clock.monotonic()
        found = await self._tried(self.request(broker_name, request, timeout_s))
        if not _passing(found):
            self._failing.pop(broker_name, None)
            return LeaderAnswer(_answer(found), False)
        if self._clock.monotonic() - self._failing.setdefault(broker_name, began) >= LEADERLESS_S:
            for _, address in sorted(self._routes.followers(broker_name).items()):
                other = await self._tried(self._connections.request(address, request, timeout_s))
                if not _passing(other):
                    return LeaderAnswer(_answer(other), True)
        assert isinstance(found, RmqError)
        raise found

    async def _tried(self, asked: Awaitable[Answer]) -> Answer | RmqError:
        try:
            return await asked
        except RmqError as error:
            return error

    async def request_from(self, address: str, request: Request, timeout_s: float | None = None) -> Answer:
        """The answer of the node at `address`, or of the leader that it names. Raises as `Connections.request`."""
        try:
            return await self._connections.request(address, request, timeout_s)
        except Refusal as refusal:
            if refusal.code != ResponseCode.SERVICE_NOT_AVAILABLE or refusal.hint in ("", address):
                raise
            return await self._connections.request(refusal.hint, request, timeout_s)


def _passing(found: Answer | RmqError) -> bool:
    """Whether there was no answer, or one that says only that this node may not answer now."""
    return isinstance(found, RmqError) and not (isinstance(found, Refusal) and found.code != ResponseCode.SERVICE_NOT_AVAILABLE)


def _answer(found: Answer | RmqError) -> Answer | Refusal:
    assert isinstance(found, Refusal) or not isinstance(found, RmqError)
    return found
