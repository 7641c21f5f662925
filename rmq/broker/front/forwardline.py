"""The requests of one client on their way to the leader: for the leader's node this connection is that client."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from rmq import background
from rmq.access.sealing import ACCESS_KEY, SIGNATURE, content, signature
from rmq.clock import Clock
from rmq.codes import RequestCode, ResponseCode
from rmq.errors import NotLeading, Refusal, RmqError
from rmq.net.codec.limits import MIB, Limits
from rmq.net.commands.peers import ForwardedClient
from rmq.net.remoting.codec import Relayed
from rmq.net.remoting.fields import write as write_fields
from rmq.net.remoting.headers import ANSWER_FLAG, ONEWAY_FLAG, Header, read, short, write
from rmq.net.transport.channel import Login
from rmq.net.transport.connection import Call, Connection
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.upstream import Upstream
from rmq.scram import Credentials

log = logging.getLogger("rmq.forwarding")

HOLD_S = 2.5  # a client of RocketMQ waits 3 s for the answer to a send
OPEN_S = 1.0
MAX_BYTES_EACH = 32 * MIB
MAX_QUESTIONS = 32  # of the leader to one client that wait for its answer
QUESTION_S = 10.0  # so long the leader waits
_NOT_LEADING = frozenset({int(ResponseCode.NOT_LEADING), short(ResponseCode.NOT_LEADING)})
_REPEATABLE = frozenset({  # they change nothing, or nothing more the second time
    RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ,
})  # fmt: skip


class HeldCall(NamedTuple):
    """A call that waits here, or for the leader's answer. `until`: when it is refused if nobody leads."""

    call: Call
    until: float
    refusal: NotLeading


class Kept(NamedTuple):
    frame: bytes
    opaque: int
    oneway: bool


class Owner(Protocol):
    """What a line needs of `Forwarding`."""

    limits: Limits
    clock: Clock
    dialer: Dialer

    def kept(self, client: int) -> list[Kept]: ...

    def hold(self, held: HeldCall) -> None: ...

    def done(self, held: HeldCall) -> None: ...

    def line_lost(self, line: "Line") -> None: ...


class Line:
    """The requests of one client on their way to the leader. `pending`: sent and not answered, by the client's request ids."""

    def __init__(self, owner: Owner, connection: Connection, address: str, greeting: ForwardedClient) -> None:
        self.connection = connection
        self.address = address
        self.asked = owner.clock.monotonic()
        self.opened = False  # the leader took it
        self.dismissed = False  # closed by us, because it is of no use any more
        self.pending: dict[int, HeldCall] = {}
        self._owner = owner
        self._greeting = greeting
        self._waiting: list[HeldCall] | None = []  # None: it is open
        self._introducing: dict[int, asyncio.Future[int]] = {}
        self._questions: set[asyncio.Task[None]] = set()
        self._over = False
        self._upstream = Upstream(owner.limits, self._received, self._ended)
        self._connecting: asyncio.Task[None] | None = background.start(self._open(), f"forward to {address}")

    def send(self, held: HeldCall) -> None:
        self.asked = self._owner.clock.monotonic()
        if self._over:
            self._owner.hold(held)
        elif self._waiting is not None:
            self._waiting.append(held)
        else:
            self._write(held)

    def copy(self, kept: Kept) -> None:
        """A heartbeat that was answered here."""
        if self._waiting is None:
            self._upstream.write(kept.frame)

    def close(self) -> None:
        self.dismissed = True
        self._upstream.close()
        self._ended()

    async def _open(self) -> None:
        """The leader first hears for whom this connection is, then who that client is, then the client's requests."""
        owner = self._owner
        try:
            async with asyncio.timeout(OPEN_S):
                await owner.dialer.connect(lambda: self._upstream, self.address)
                code = await self._ask(lambda: self._upstream.write_whole(_spelled(self._greeting, owner.dialer.credentials)), 0)
                if code:
                    raise OSError(f"{self.address} does not take what is forwarded: code {code}")
                told: list[Kept] = []
                while left := [one for one in owner.kept(self.connection.id) if one not in told]:  # some may come meanwhile
                    told.append(kept := left[0])
                    if kept.oneway:
                        self._upstream.write(kept.frame)
                    else:
                        await self._ask(lambda kept=kept: self._upstream.write(kept.frame), kept.opaque)  # type: ignore[misc]
        except (OSError, TimeoutError) as error:
            log.debug("a client is not forwarded yet: %s", error)
            self._upstream.close()
            self._ended()
            return
        self.opened = True
        waiting, self._waiting = self._waiting or [], None
        for held in waiting:
            self._write(held)

    async def _ask(self, write: Callable[[], None], opaque: int) -> int:
        """Response code of the leader's answer."""
        answer = self._introducing[opaque] = asyncio.get_running_loop().create_future()
        write()
        code: int = await answer
        return code

    def _write(self, held: HeldCall) -> None:
        call = held.call
        self.asked = self._owner.clock.monotonic()
        opaque = read(call.frame, self._owner.limits.max_header_bytes)[0].opaque
        if opaque in self.pending or self._upstream.unread_bytes > MAX_BYTES_EACH:
            self._owner.done(held)
            call.give_up(held.refusal)
            return
        self._upstream.write(call.frame)
        if call.oneway:
            self._owner.done(held)
            call.pass_on(b"")
        else:
            self.pending[opaque] = held

    def _received(self, header: Header, frame: bytes) -> None:
        if not header.flag & ANSWER_FLAG:
            if header.flag & ONEWAY_FLAG:  # a one-way request: nobody waits for an answer
                self.connection.relay(frame)
            elif len(self._questions) < MAX_QUESTIONS:
                asking = asyncio.create_task(self._hand_on(frame, header.opaque), name=f"question from {self.address}")
                self._questions.add(asking)
                asking.add_done_callback(self._questions.discard)
            return
        waiting = self._introducing.pop(header.opaque, None)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(header.code)
            return
        held = self.pending.pop(header.opaque, None)
        if held is None:
            return
        if header.code in _NOT_LEADING:
            self._owner.hold(held)
        else:
            self._owner.done(held)
            held.call.pass_on(frame)

    async def _hand_on(self, frame: bytes, opaque: int) -> None:
        """The leader asks the client something, and waits: the client's answer goes back, if one comes."""
        header, body = read(frame[4:], self._owner.limits.max_header_bytes)
        try:
            answer = await self.connection.request(cast(Any, Relayed(header, body)), QUESTION_S)
        except RmqError as error:
            log.debug("%s asked a client in vain: %s", self.address, error)
        else:
            self._upstream.write_whole(cast(Relayed, answer).frame(opaque))

    def _ended(self) -> None:
        """Requests that were not written wait for the next leader; nobody knows what became of the others."""
        if self._over:
            return
        self._over = True
        waiting, self._waiting = self._waiting or [], []
        pending, self.pending = self.pending, {}
        connecting, self._connecting = self._connecting, None  # a cancelled task knows its frames: who knows it stays for ever
        if connecting is not None:
            connecting.cancel()
        for asking in list(self._questions):
            asking.cancel()
        for held in waiting:
            self._owner.hold(held)
        for held in pending.values():
            if read(held.call.frame, self._owner.limits.max_header_bytes)[0].code in _REPEATABLE:
                self._owner.hold(held._replace(until=self._owner.clock.monotonic() + HOLD_S))
            else:
                self._owner.done(held)
                why = f"outcome unknown: the connection to the leader, {self.address}, ended before it answered"
                held.call.give_up(Refusal(ResponseCode.SYSTEM_ERROR, why))
        self._owner.line_lost(self)


def _spelled(greeting: ForwardedClient, credentials: Login | None) -> bytes:
    """Signed, where nodes have to prove that they are."""
    ext = write_fields(greeting)
    if isinstance(credentials, Credentials):
        ext[ACCESS_KEY] = credentials.name
        ext[SIGNATURE] = signature(credentials.secret, content(ext, b""))
    return write(False, int(RequestCode.FORWARDED_CLIENT), 0, 0, "", ext)
