"""One peer of a server: its requests on their way to handlers and back, and the bounds it is held to.

The handlers know what a request means, `allow` who may send it; `server` counts the connections.
"""

import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, cast

from rmq.clock import Clock
from rmq.errors import BadBytes, NotLeading, Refusal, sayable
from rmq.net.codec.frames import Address, AnswerFrame, Context, Received, decode_frame
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import Native
from rmq.net.codec.wire import OtherProtocol, Reader
from rmq.net.commands import Answer, Goodbye, Request, SendAnswer
from rmq.net.remoting.codec import Remoting
from rmq.net.transport.later import LATER as LATER, Later as Later
from rmq.net.transport.link import Link
from rmq.net.transport.requestlog import RequestLog, request_id
from rmq.net.transport.standing import Standing
from rmq.net.transport.unserved import why_unserved

CALL_BYTES: Final = 512  # what a waiting request costs us beside its frame
_new = tuple.__new__  # a NamedTuple in half the time
_ids = itertools.count(1)


class Call(NamedTuple):
    """Must be answered exactly once; a handler that returns the answer, or raises, leaves that to the connection.

    After the peer has gone, answering does nothing. A tuple, because one is made for every request. `size`: what it
    costs us until it is answered, in bytes.
    """

    connection: "Connection"
    id: int
    oneway: bool
    context: Context
    size: int

    def answer(self, answer: Answer, remark: str = "") -> None:
        """Answers with success; a one-way request is only noted as done."""  # `_answered_calls`, without a call
        connection, call_id, oneway, context, size = self
        frame = b""
        if not oneway and connection._transport is not None:
            try:
                frame = connection._codec.answer(call_id, context, answer, remark)
            except Exception as error:  # what the answer holds cannot be written
                connection._host.failed(self, error)
                return
        connection._calls -= 1
        assert connection._calls >= 0, "a call was answered twice"
        connection.in_flight_bytes -= size
        if connection._draining or not connection._reading:
            connection._settled()
        if frame:
            connection._send(frame)

    def refuse(self, refusal: Refusal) -> None:
        """Answers with the code, remark and hint of the refusal; a request that only a leader serves may be forwarded instead."""
        if isinstance(refusal, NotLeading) and self.connection.forward(self, refusal):
            return
        self.give_up(refusal)

    def give_up(self, refusal: Refusal) -> None:
        """Answers with the refusal, and never forwards the call."""
        self.connection._answered_calls(1, self.size, [])
        self.connection._refuse(self.id, self.oneway, self.context, refusal)

    def pass_on(self, frame: bytes) -> None:
        """Answers with a whole frame of another node, as it came."""
        self.connection._answered_calls(1, self.size, [frame])

    @property
    def request_id(self) -> str:
        """As the client knows it, too."""
        return request_id(self.connection.client, self.id)

    @property
    def frame(self) -> bytes:
        """The request as it came, without its length; b"" where it is not kept."""
        return getattr(self.context, "frame", b"")

    def answer_with(self, request: Request, awaitable: Awaitable[Answer | Later]) -> None:
        """Answers with what the awaitable gives, or refuses with what it raises; the server keeps the task."""
        host = self.connection._host
        host.spawn(self, awaitable, type(request), host.clock.monotonic())


Handler = Callable[[Any, Call], Answer | Later | Awaitable[Answer | Later]]
"""Serves one type of request. It may return the answer, return LATER, or be async; it may raise Refusal."""

Allow = Callable[["Connection", Request], None]
"""Raises Refusal if the peer may not do this."""

Take = Callable[["Connection", list[Received], int, int], int]
"""Takes the usual requests of one kind in a burst, from a place on, as long as there is room for their bytes; returns the place
of the first one that it left. Those that it took are answered now, or later (`under_way`)."""


class Screen(Protocol):
    """Puts refusals in the place of requests that the peer may not make, before anything else looks at them."""

    def screen(self, connection: "Connection", received: list[Received]) -> list[Received]: ...


Forward = Callable[[Call, NotLeading], bool]
"""Whether somebody else answers this call now; otherwise it is to be refused."""


class Host(Protocol):
    """The parts of a server that a connection needs."""

    limits: Limits
    clock: Clock
    handlers: Mapping[type[Any], Handler]
    takes: Mapping[type[Any], Take]
    allow: Allow | None
    guard: Screen | None
    forward: Forward | None
    requests: RequestLog

    def reader_for(self, peer: Address) -> Reader: ...

    def admit(self, connection: "Connection") -> str: ...

    def forget(self, connection: "Connection", why: str) -> None: ...

    def strange(self, peer: Address, why: str) -> None: ...

    in_flight_bytes: int  # of all connections, as they were when they read last

    def half_frames_grew(self, connection: "Connection", by: int) -> None: ...

    to_write: list["Connection"]  # at the end of this turn
    writes_soon: bool  # `end_turn` was called in this turn

    last_reader: "Connection | None"

    def end_turn(self) -> None: ...

    def end_at_once(self) -> None: ...

    def spawn(self, call: Call, awaitable: Awaitable[Answer | Later], kind: type[Any], came: float) -> None: ...

    def failed(self, call: Call, error: Exception) -> None: ...


class Connection(Link):
    """One peer. `id` is unique in this process; `client_id`, `language` and `version` are what the peer says of itself;
    `client` is where it sits. `is_forwarded`: a node forwards for it."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.limits, host.clock)
        self._host = host
        self.id = next(_ids)
        self.standing = Standing()
        self.client_id = self.language = ""
        self.version = 0
        self.client: Address = ("", 0)
        self.is_forwarded = self._greeted = self._draining = False
        self.in_flight_bytes = self._counted_bytes = 0  # the second: what the host counts for us
        self._backlog: list[Received] = []  # read, but not handled yet
        self._half_frame_bytes = self._calls = 0
        self._since = self.last_read
        self._closing_since: float | None = None

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def reading(self) -> bool:
        """False while the peer has too much unread or unanswered."""
        return self._reading

    @property
    def descriptor(self) -> int:
        """The number of its file descriptor; the system gives the lowest free one. -1 where there is none."""
        socket = self._transport.get_extra_info("socket") if self._transport is not None else None
        return -1 if socket is None else int(socket.fileno())

    @property
    def unread_bytes(self) -> int:
        """Answers that are written but not taken by the peer's machine yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def follows_hints(self) -> bool:
        """Whether a refusal that names the leader helps the peer: our own client follows it, and so does a node."""
        return not self._greeted or self.is_forwarded or isinstance(self._codec, Native)

    def forward(self, call: Call, refusal: NotLeading) -> bool:
        """Whether the call is answered by the leader, through this node."""
        forward = self._host.forward
        return forward is not None and not self.follows_hints and not self.closed and forward(call, refusal)

    def speak_for(self, client: Address) -> None:
        """The peer is a node of this group, which forwards what that client says."""
        self.is_forwarded, self.client = True, client
        cast(Remoting, self._codec).speak_for(client)

    def again(self, call: Call) -> None:
        """Serves a call that was kept (`Call.frame`), as if its request came now."""
        thing, _, _, context, _ = decode_frame(self._codec, call.frame)
        self._serve(thing, call._replace(context=context))

    def take(self, frame: bytes) -> None:
        """Serves a request, without its length, that asks for no answer or whose answer came already."""
        thing, call_id, _, context, size = decode_frame(self._codec, frame)
        self._calls, self.in_flight_bytes = self._calls + 1, self.in_flight_bytes + size
        self._serve(thing, Call(self, call_id, True, context, size))

    def _serve(self, thing: object, call: Call) -> None:
        if (host := self._host).guard is not None:
            thing = host.guard.screen(self, [(cast(Request, thing), call.id, call.oneway, call.context, 0)])[0][0]
        try:
            if isinstance(thing, Refusal):
                raise thing
            if host.allow is not None:
                host.allow(self, cast(Request, thing))
            result = host.handlers[type(thing)](thing, call)
        except Exception as error:
            host.failed(call, error)
            return
        if result is None or isinstance(result, tuple):
            call.answer(result)
        elif result is not LATER:
            host.spawn(call, result, type(thing), host.clock.monotonic())

    def relay(self, frame: bytes) -> None:
        """Writes a whole frame of another node; nothing happens if the peer has gone."""
        if not self.closed:
            self._send(frame)

    def push(self, request: Request) -> None:
        """Sends a one-way request to the client; nothing happens if it has gone."""
        if not self.closed and self._greeted:
            self._send(self._codec.request(request, 0, True))

    def close(self, why: str = "closed by the server") -> None:
        """Writes what is queued and closes; cut off after `stall_seconds` if the peer does not read."""
        if self._closing_since is None:
            self._closing_since = self._clock.monotonic()
        self._stop(why)

    # --- life ---------------------------------------------------------------------------------------------------------

    def _made(self) -> None:
        self._reader = self._host.reader_for(self.peer)
        self.client = self.peer
        refused = self._host.admit(self)
        if refused:
            self.abort(refused)

    def _flush_soon(self) -> None:
        self._flush_due = True
        host = self._host
        host.to_write.append(self)
        if not host.writes_soon:
            host.end_turn()

    def tell_in_flight(self) -> None:
        """The host's sum is brought up to now; once for each read, and each second."""
        self._host.in_flight_bytes += self.in_flight_bytes - self._counted_bytes
        self._counted_bytes = self.in_flight_bytes

    def look_again(self) -> None:
        """Looks whether this connection may go on, because others were answered meanwhile."""
        if not self._reading and self._may_read():
            self._update_reading()

    def _in_flight_limit(self) -> int:
        limits = self._limits
        crowded = self._host.in_flight_bytes > limits.max_in_flight_all
        return min(limits.fair_in_flight_bytes, limits.max_in_flight_bytes) if crowded else limits.max_in_flight_bytes

    def _gone(self, why: str) -> None:
        self._host.in_flight_bytes -= self._counted_bytes
        self._counted_bytes = 0
        if self._half_frame_bytes:
            self._host.half_frames_grew(self, -self._half_frame_bytes)
        self._host.forget(self, why)

    def drain(self) -> None:
        """Refuses what comes from now on and closes when everything in flight is answered."""
        self._draining = True
        if not self._calls:
            self._finish()

    def _finish(self) -> None:
        """Ends our half after the last answer, so that a peer still writing reads it before the connection breaks. A native one
        hears that nothing else was done."""
        if self._greeted and not self._ended and isinstance(self._codec, Native):
            self.push(Goodbye())
        self.flush()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._ended = transport.can_write_eof()
        try:
            (transport.write_eof if self._ended else transport.close)()
        except OSError as error:  # the peer has gone, and the loop has not heard of it yet
            self.abort(str(error))

    def _half_frame_grew(self, by: int) -> None:
        self._half_frame_bytes += by
        self._host.half_frames_grew(self, by)

    def overdue(self, now: float) -> str:
        """Why this connection must go now, or "" (S6)."""
        return _why_overdue(self, now)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _handle(self, received: list[Received]) -> None:
        host = self._host
        alone = host.last_reader is self and not host.writes_soon  # nobody else has asked meanwhile, so nobody is waited for
        host.last_reader = self
        host.writes_soon |= alone
        try:
            self._serve_all(received if host.guard is None else host.guard.screen(self, received))
            self.tell_in_flight()
            slow_s = host.requests.slow_s
            if slow_s and (took_s := self._now() - self.last_read) > slow_s:
                kind, first = type(received[0][0]).__name__, request_id(self.client, received[0][1])
                host.requests.slow(kind, [first], {"handled": took_s}, read_bytes=sum([size for *_, size in received]))
        finally:
            if alone:
                host.end_at_once()
            elif self._calls and not host.writes_soon:
                host.end_turn()

    def _serve_all(self, received: list[Received]) -> None:
        """The hot loop of a node: no call into our own code between a request and its handler."""
        host, limits = self._host, self._limits
        handlers, allow = host.handlers, host.allow
        takes = host.takes if self._greeted and not self._draining else {}  # nothing has to be said to this peer first
        most_out, most_in_flight = limits.write_high_bytes, self._in_flight_limit()
        at, end = 0, len(received)
        while at < end:
            if (self._out_bytes > most_out or self.in_flight_bytes > most_in_flight) and _must_wait(self):
                self._backlog = received[at:]
                self._update_reading()
                return
            thing, call_id, oneway, context, size = received[at]
            take = takes.get(type(thing))
            if take is not None and (allow is None or _is_allowed(self, allow, thing)):
                before, at = at, take(self, received, at, most_in_flight - self.in_flight_bytes)
                if at > before:
                    continue
            at += 1
            if not self._greeted and not _greet(self, thing, call_id, context):
                return
            handler = handlers.get(type(thing))
            if handler is None or self._draining:
                self._unserved(thing, call_id, oneway, context)
                continue
            size += CALL_BYTES
            self._calls += 1
            self.in_flight_bytes += size
            call = _new(Call, (self, call_id, oneway, context, size))
            try:
                if allow is not None:
                    allow(self, cast(Request, thing))
                result = handler(thing, call)
            except Exception as error:
                host.failed(call, error)
                continue
            if result is LATER:
                continue
            if result is None or isinstance(result, tuple):
                call.answer(result)
            else:
                host.spawn(call, result, type(thing), self.last_read)

    def under_way(self, calls: int, size: int) -> None:
        """So many more calls, of so many bytes, wait for their answers."""
        self._calls += calls
        self.in_flight_bytes += size

    def _continue(self) -> None:
        """Handles requests that were left when the peer had too much unanswered or unread."""
        backlog, self._backlog = self._backlog, []
        if backlog and not self.closed:
            if self._may_read():
                self._serve_all(backlog)
            else:
                self._backlog = backlog
        self._update_reading()

    def _update_reading(self) -> None:
        """Reads again only when everything that was read is handled."""
        if self._backlog:
            if self._may_read():
                self._loop.call_soon(self._continue)
            elif self._reading:
                super()._update_reading()
        else:
            super()._update_reading()

    def _spoilt(self, error: BadBytes) -> None:
        if not self._greeted and isinstance(error, OtherProtocol):
            self._host.strange(self.peer, str(error))
        super()._spoilt(error)

    def _unserved(self, thing: object, call_id: int, oneway: bool, context: Context) -> None:
        refusal = why_unserved(thing, self._draining)
        if refusal is None:
            self._answered(cast(AnswerFrame | SendAnswer, thing), call_id)
        else:
            self._refuse(call_id, oneway, context, refusal)

    # --- answers, called by `Call` ------------------------------------------------------------------------------------

    def _answered_calls(self, count: int, size: int, frames: list[bytes]) -> None:
        self._calls -= count
        self.in_flight_bytes -= size
        assert self._calls >= 0, "a call was answered twice"
        if self._draining or not self._reading:
            self._settled()
        data = b"".join(frames)
        if data and self._transport is not None:
            self._send(data)

    def _settled(self) -> None:
        """A call was answered while we do not read, or are to close after the last answer."""
        if not self._reading and self._may_read():
            self._update_reading()
        if self._draining and not self._calls:
            self._loop.call_soon(self._finish)

    def _refuse(self, call_id: int, oneway: bool, context: Context, refusal: Refusal) -> None:
        self._host.requests.refused(self.client, call_id, refusal)
        if not oneway and self._transport is not None:
            try:
                frame = self._codec.refusal(call_id, context, refusal)
            except UnicodeEncodeError:  # it names a file
                frame = self._codec.refusal(call_id, context, Refusal(refusal.code, sayable(refusal.remark)))
            self._send(frame)

    def _may_read(self) -> bool:
        limit = self._in_flight_limit()
        if not self._reading:
            limit //= 2
        return super()._may_read() and self.in_flight_bytes <= limit


def _must_wait(peer: Connection) -> bool:
    """Whether the peer still has too much unread or unanswered after what is queued was written."""
    peer.flush()
    return not peer._may_read()


def _greet(peer: Connection, thing: object, call_id: int, context: Context) -> bool:
    """Whether a peer that has not introduced itself may ask this; one that may not is refused and closed."""
    assert peer._reader.codec is not None
    peer._codec = peer._reader.codec
    try:
        greeting = peer._codec.greet(thing, context)
    except Refusal as refusal:
        peer._refuse(call_id, False, context, refusal)
        peer.close(str(refusal))
        return False
    except BadBytes as error:
        peer.close(f"bad bytes from {peer.peer[0]}:{peer.peer[1]}: {error}")
        return False
    if greeting is not None:
        peer.client_id, peer.language, peer.version = greeting
        peer._greeted = True
    return True


def _is_allowed(peer: Connection, allow: Allow, thing: object) -> bool:
    try:
        allow(peer, cast(Request, thing))
    except Refusal:
        return False
    return True


def _why_overdue(peer: Connection, now: float) -> str:
    limits = peer._limits
    if peer._closing_since is not None and now - peer._closing_since > limits.stall_seconds:
        return "the peer does not read its last answers"
    if peer.write_paused_since is not None and now - peer.write_paused_since > limits.stall_seconds:
        return f"the peer has not read its answers for {limits.stall_seconds:g} s"
    if not peer._greeted and now - peer._since > limits.handshake_seconds:
        return f"no whole request within {limits.handshake_seconds:g} s"
    if not peer._reading:
        return ""
    if peer._reader.half_frame and now - peer._half_frame_since > limits.frame_seconds:
        return f"a frame was not finished within {limits.frame_seconds:g} s"
    if not peer._calls and now - peer.last_read > limits.idle_seconds:
        return f"idle for {limits.idle_seconds:g} s"
    return ""
