"""Who comes in. Without signatures all clients are the proxy's own user. With them each is the user for whom it signs, with a
door and connections of its own, so the brokers decide what it may do [AuthenticationPipeline, AuthorizationPipeline]."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple
from urllib.parse import unquote

from rmq import background
from rmq.client import Client
from rmq.codes import ResponseCode
from rmq.errors import Refusal, RmqError, Unknown, Unreachable
from rmq.grpc.door import Context, Door, client_id_of
from rmq.grpc.statuses import Code, Wrong
from rmq.net.commands import SignedLogin
from rmq.throttle import Throttle, source_of

_AUTHORIZATION = re.compile(
    r"MQv2-HMAC-SHA1 Credential=([^/, ]+)(?:/[^, ]*)?, *SignedHeaders=x-mq-date-time, *Signature=([0-9a-fA-F]{40})"
)
_MOST_LETTERS = 255  # of a user, and of a time
PROVEN_S: Final = 5.0  # a signature is not asked about again for so long
MOST_PROVEN = 10_000
MOST_USERS = 1_000
IDLE_S, _LOOK_S = 600.0, 60.0


class OneForAll:
    """Clients come in as the user of this client; whoever they sign for is not looked at."""

    def __init__(self, client: Client) -> None:
        self._door = Door(client)

    @asynccontextmanager
    async def entered(self, _: Context) -> AsyncIterator[Door]:
        yield self._door

    def __iter__(self) -> Iterator[Door]:
        yield self._door

    def end_streams(self) -> None:
        self._door.end_streams()

    async def close(self) -> None:
        await self._door.close()


class Entry(NamedTuple):
    """When a request or stream of a client came in, and by which signature."""

    at: float
    login: SignedLogin
    context: Context


class Visitor:
    """A user who is here. `newest`: of its signatures, by which connections log in. `peers`: which have signed rightly."""

    def __init__(self, newest: SignedLogin, make: Callable[[Callable[[], SignedLogin]], Client]) -> None:
        self.newest = newest
        self.client = make(lambda: self.newest)
        self.client.start()
        self.door = Door(self.client)
        self.peers: set[str] = set()
        self.inside: dict[object, Entry] = {}  # whose requests and streams are served
        self.left = 0.0

    async def close(self) -> None:
        await self.door.close()
        await self.client.close()


class ForEachUser:
    """`asking`: an open client, that asks the cluster about users who are not here yet; `make(newest)`: one for such a user."""

    def __init__(self, asking: Client, make: Callable[[Callable[[], SignedLogin]], Client]) -> None:
        self._asking = asking
        self._make = make
        self._clock = asking.session.clock
        self._visitors: dict[str, Visitor] = {}
        self.proven: dict[SignedLogin, float] = {}  # until when
        self._throttle = Throttle()
        self._sweeper = background.start(self._sweep(), "users who have left")

    @asynccontextmanager
    async def entered(self, context: Context) -> AsyncIterator[Door]:
        """Raises Wrong (UNAUTHORIZED: nobody's signature), RmqError (nobody can be asked)."""
        login = signature_of({name: str(value) for name, value in context.invocation_metadata() or ()})
        if self.proven.get(login, 0.0) < self._clock.monotonic():
            await self._prove(login, context.peer())
        visitor = self._visitor(login)
        if context.peer() not in visitor.peers:
            if len(visitor.peers) >= MOST_PROVEN:
                visitor.peers.clear()
            visitor.peers.add(context.peer())
        key = object()
        visitor.inside[key] = Entry(self._clock.monotonic(), login, context)
        try:
            yield visitor.door
        finally:
            del visitor.inside[key]
            visitor.left = self._clock.monotonic()

    def _visitor(self, login: SignedLogin) -> Visitor:
        visitor = self._visitors.get(login.user)
        if visitor is None:
            if len(self._visitors) >= MOST_USERS:
                raise Wrong(Code.TOO_MANY_REQUESTS, f"{MOST_USERS} users are here, which is the most: use another proxy")
            visitor = self._visitors[login.user] = Visitor(login, self._make)
        return visitor

    async def _prove(self, login: SignedLogin, peer: str) -> None:
        """The cluster knows the secrets. Who guesses slows down only those who have not signed rightly yet, for the same user at
        the same host."""
        guess, visitor = (source_of(host_of(peer)), login.user), self._visitors.get(login.user)
        wait_s = self._throttle.wait_s(guess, self._clock.monotonic())
        if wait_s and (visitor is None or peer not in visitor.peers):
            raise Wrong(Code.UNAUTHORIZED, f"too many wrong signatures for this user from there: try again in {wait_s:.1f} s")
        try:
            await _ask(visitor.client if visitor is not None and _is_open(visitor.client) else self._asking, login)
        except Refusal as refusal:
            if refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise Wrong(Code.UNAUTHORIZED, "the cluster has no users (authenticationEnabled): nobody can be told") from None
            if refusal.code not in (ResponseCode.NO_PERMISSION, ResponseCode.INVALID_PARAMETER):
                raise
            self._throttle.failed(guess, self._clock.monotonic())
            if visitor is not None:
                visitor.peers.discard(peer)
            raise Wrong(Code.UNAUTHORIZED, refusal.remark) from None
        now = self._clock.monotonic()
        self._throttle.succeeded(guess, now)
        if len(self.proven) >= MOST_PROVEN:
            self.proven = {each: until for each, until in self.proven.items() if until >= now}
        if len(self.proven) < MOST_PROVEN:
            self.proven[login] = now + PROVEN_S
        if visitor is not None:
            visitor.newest = login

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_S)
            now = self._clock.monotonic()
            idle = {user: each for user, each in self._visitors.items() if not each.inside and now - each.left > IDLE_S}
            for user in idle:
                del self._visitors[user]
            old = [_end_old(visitor, now - _LOOK_S) for visitor in self._visitors.values()]
            await asyncio.gather(*old, *(visitor.close() for visitor in idle.values()))

    def __iter__(self) -> Iterator[Door]:
        return iter([visitor.door for visitor in self._visitors.values()])

    def end_streams(self) -> None:
        for visitor in self._visitors.values():
            visitor.door.end_streams()

    async def close(self) -> None:
        self._sweeper.cancel()
        await asyncio.gather(*(visitor.close() for visitor in self._visitors.values()))


async def _end_old(visitor: Visitor, before: float) -> None:
    """Ends streams that began before, by what is not the user's signature any more."""
    old = [entry for entry in visitor.inside.values() if entry.at <= before]
    for login in {entry.login for entry in old}:
        try:
            await _ask(visitor.client, login)
        except RmqError as error:
            if isinstance(error, Refusal) and error.code == ResponseCode.NO_PERMISSION:
                for entry in old:
                    if entry.login == login:
                        visitor.door.end_stream(client_id_of(entry.context))


def _nodes(client: Client) -> list[str]:
    nameservers = client.session.nameservers.addresses
    return [*nameservers, *sorted(client.session.routes.nodes() - {*nameservers})]


def _is_open(client: Client) -> bool:
    """Whether it can be asked without another connection: one would log in by a signature that may be old."""
    return any(map(client.session.connections.is_open, _nodes(client)))


async def _ask(client: Client, login: SignedLogin) -> None:
    """Of any node: the nameservers know all users; while they are away, the brokers know theirs. Raises RmqError."""
    connections = client.session.connections
    error: RmqError = Unreachable("no node can be asked who signs")
    for address in sorted(_nodes(client), key=connections.is_open, reverse=True):
        outcome = await connections.tried(address, login)
        if not isinstance(outcome, RmqError):
            return
        error = outcome
        busy = isinstance(error, Refusal) and error.code == ResponseCode.SYSTEM_BUSY
        if not (busy or isinstance(error, Unreachable | Unknown)):
            break
    raise error


def signature_of(metadata: dict[str, str]) -> SignedLogin:
    """Raises Wrong."""
    said, time = metadata.get("authorization", ""), metadata.get("x-mq-date-time", "")
    if not said:
        raise Wrong(Code.UNAUTHORIZED, "this proxy serves clients that sign: give the client its access key and secret key")
    found = _AUTHORIZATION.fullmatch(said)
    if found is None or len(found[1]) > _MOST_LETTERS or not time or len(time) > _MOST_LETTERS:
        raise Wrong(Code.UNAUTHORIZED, "no signature that can be read: MQv2-HMAC-SHA1, of the header x-mq-date-time")
    return SignedLogin(found[1], time, bytes.fromhex(found[2]))


def host_of(peer: str) -> str:
    """Of gRPC's name of a client, as ipv4:127.0.0.1:4711."""
    return unquote(peer.partition(":")[2]).rpartition(":")[0].strip("[]")
