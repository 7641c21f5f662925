"""One outgoing native connection: many requests at once, answers matched to them, requests from the other side handed on.

A channel that breaks stays broken; its user opens another one (see `rmq.client`).
"""

import asyncio
import logging
import secrets
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from rmq import background, scram
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.errors import OTHER_LOOP, BadBytes, InvalidArgument, Refusal, RmqError, Unreachable
from rmq.net.codec.frames import AnswerFrame, Received
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import Native
from rmq.net.codec.wire import AnswerReader
from rmq.net.commands import (
    CODES,
    Answer,
    BeginLogin,
    FinishLogin,
    Goodbye,
    Hello,
    HelloAnswer,
    LoginAnswer,
    Request,
    Send,
    SendAnswer,
    SignedLogin,
)
from rmq.net.transport.descriptors import unacknowledged
from rmq.net.transport.link import Link

log = logging.getLogger(__name__)
CLOSE_SECONDS = 5.0
_WATCH_SECONDS = 0.1  # how exactly timeouts are kept
_READ_BYTES = 64 * 1024  # at once; for 256 KiB, as asyncio would, memory is mapped and given back for each read
_QUEUED_BYTES = 16 * 1024  # so much leaves at once: the other side works on it while the rest is made

Login = scram.Credentials | Callable[[], SignedLogin]
OnRequest = Callable[[Request], Answer | Awaitable[Answer]]
"""Serves requests of the broker; may raise Refusal. The answer to a one-way request is ignored."""


class Channel(Link):
    """Made by `Dialer.open`. `address` is what was dialled, `hello` the other side's introduction."""

    hello: HelloAnswer

    def __init__(self, address: str, limits: Limits, on_request: OnRequest | None, clock: Clock) -> None:
        super().__init__(limits, clock)
        self.address = address
        self._queued_bytes = _QUEUED_BYTES
        self.closed = asyncio.Event()
        self._on_request = on_request
        self._codec = Native(limits.max_structured_bytes)
        self._writable = asyncio.Event()
        self._writable.set()
        self.logins = 0  # that succeeded
        self._logging_in = asyncio.Lock()
        self._dismissed = False
        self.patience_s = 0.0  # no call is late while a part of an answer came so lately
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch_needed = asyncio.Event()
        self._watcher = background.start(self._watch(), f"watch of {address}")

    async def greet(self, hello: Hello, timeout_s: float) -> None:
        """The first request on it. Raises Refusal, Unknown, Unreachable."""
        self.hello = cast(HelloAnswer, await self.request(hello, timeout_s))

    async def login(self, credentials: Login, timeout_s: float) -> None:
        """Proves who this is, also again on demand; nothing happens where nobody wants to know. Raises Refusal (NO_PERMISSION:
        wrong user or password), Unknown, Unreachable."""
        if callable(credentials):
            await self.request(credentials(), timeout_s)
            self.logins += 1
            return
        end_point = self.end_point
        client = _prover(credentials, end_point)
        try:
            first = cast(LoginAnswer, await self.request(BeginLogin(client.first), timeout_s))
        except Refusal as refusal:
            if refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return
            if not end_point or refusal.code != ResponseCode.INVALID_PARAMETER:
                raise
            client = _prover(credentials, b"", stripped=True)  # TLS ends before the node; where nobody should do that, it says no
            first = cast(LoginAnswer, await self.request(BeginLogin(client.first), timeout_s))
        try:
            try:
                final = await asyncio.to_thread(client.answer, first.message)
            except RuntimeError:  # the system has no room for a thread
                final = client.answer(first.message)
            client.check(cast(LoginAnswer, await self.request(FinishLogin(final), timeout_s)).message)
            self.logins += 1
        except BadBytes as error:
            raise Refusal(ResponseCode.NO_PERMISSION, f"{self.address}: {error}") from None

    async def login_again(self, credentials: Login, timeout_s: float, login: int) -> None:
        """Once for all who hear that login number `login` is not taken any more. Raises as `login`."""
        async with self._logging_in:
            if self.logins == login:
                await self.login(credentials, timeout_s)

    def discard(self) -> None:
        """Before it was open. Does not wait for `closed`: uvloop forgets connection_lost when a connect that is just being
        answered is cancelled."""
        self.abort("it was never open")
        self._watcher.cancel()

    async def request(self, request: Request, timeout_s: float) -> Answer:
        """Asks and waits for the answer. Raises Refusal, Unknown (sent, no answer in time), Unreachable (not sent).

        While the other side does not read, the request waits here, unsent, within the same time.
        """
        if not self._writable.is_set():
            timeout_s = await self._until_writable(timeout_s)
        return await super().request(request, timeout_s)

    def post(self, request: Request) -> None:
        """Sends a one-way request; no promise. Raises Unreachable if the channel is closed. See `drained`."""
        if self._transport is None or self._transport.is_closing():
            raise Unreachable(f"no connection to {self.address}: {self._why}")
        self._send(self._codec.request(request, 0, True))

    @property
    def writable(self) -> bool:
        """Whether the other side keeps up."""
        return self._writable.is_set()

    @property
    def is_behind(self) -> bool:
        """Whether who has more to send waits. uvloop says only in its next turn that the other side does not keep up."""
        transport = self._transport
        return not self.writable or (transport is not None and transport.get_write_buffer_size() > self._limits.write_high_bytes)

    @property
    def stall(self) -> tuple[float, int, int] | None:
        """Since when (monotonic s) the other side does not keep up, and what it has not taken, here and in the system, which
        takes more only when a third of what it holds has left: who finds the same later knows that nothing is taken. None: it
        keeps up."""
        since_s, transport = self.write_paused_since, self._transport
        if since_s is None or transport is None:
            return None
        return since_s, transport.get_write_buffer_size(), unacknowledged(transport.get_extra_info("socket"))

    async def drained(self, timeout_s: float = 30.0) -> None:
        """Returns when the other side keeps up again; to be awaited between many `post`s. Raises Unreachable."""
        await self._until_writable(timeout_s)

    def is_receiving(self, lately_s: float) -> bool:
        """Whether a part of an answer came so lately, and its end is missing."""
        return self.half_frame_bytes > 0 and self._clock.monotonic() - self.last_read < lately_s

    async def close(self) -> None:
        """Writes what is queued and closes; calls still waiting fail. What the other side has not read after `CLOSE_SECONDS` is
        lost: one that stands still would keep it for ever."""
        self._stop("the channel was closed")
        if self._transport is not None:
            self._start(self._cut_off())
            await self.closed.wait()
        self._watcher.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(self._watcher, *self._tasks, return_exceptions=True)

    async def _cut_off(self) -> None:
        await self._clock.sleep(CLOSE_SECONDS)
        self.abort("the other side did not read what was left when the channel was closed")

    # --- as a link ----------------------------------------------------------------------------------------------------

    def _made(self) -> None:
        if hasattr(self._transport, "max_size"):  # asyncio's own
            cast(Any, self._transport).max_size = _READ_BYTES
        self._reader = AnswerReader(self._limits, cast(Native, self._codec))

    def _flush_soon(self) -> None:
        """Once a turn: so it costs the single request nothing to look whether this is the loop that writes it."""
        if not self._flush_due:
            if _get_running_loop() is not self._loop:
                raise InvalidArgument(OTHER_LOOP)
            super()._flush_soon()

    def _gone(self, why: str) -> None:
        self._why = why
        self.closed.set()
        self._writable.set()
        self._watcher.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writable.clear()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._writable.set()

    def _waits_again(self) -> None:
        self._watch_needed.set()

    def _may_read(self) -> bool:
        return True  # answers must be read, or both sides could wait for each other

    def _handle(self, received: list[Received]) -> None:
        waiting = self._waiting
        for thing, call_id, oneway, _, _ in received:
            if type(thing) is SendAnswer and call_id in waiting and waiting[call_id][1] is Send:  # nearly all, where many send
                future, _, _ = waiting.pop(call_id)
                if not future.done():
                    future.set_result(thing)
            elif isinstance(thing, Refusal):
                self._refuse(call_id, oneway, thing)
            elif type(thing) in CODES:
                self._serve(cast(Request, thing), call_id, oneway)
            else:
                self._answered(cast(AnswerFrame | SendAnswer, thing), call_id)
        self._flush_soon()  # behind those who got their answers and ask for more: it leaves a turn of the loop earlier

    # --- requests of the other side -----------------------------------------------------------------------------------

    def _serve(self, request: Request, call_id: int, oneway: bool) -> None:
        if type(request) is Goodbye:
            self._dismissed = True
            return
        try:
            if self._on_request is None:
                raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {CODES[type(request)]:d} not supported")
            result = self._on_request(request)
        except Exception as error:
            self._failed(call_id, oneway, error)
            return
        if result is None or isinstance(result, tuple):
            self._answer(call_id, oneway, result)
            return
        self._start(self._finish(call_id, oneway, result))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, call_id: int, oneway: bool, awaitable: Awaitable[Answer]) -> None:
        try:
            answer = await awaitable
        except Exception as error:
            self._failed(call_id, oneway, error)
        else:
            self._answer(call_id, oneway, answer)

    def _answer(self, call_id: int, oneway: bool, answer: Answer) -> None:
        if not oneway and self._transport is not None:
            self._send(self._codec.answer(call_id, None, answer, ""))

    def _failed(self, call_id: int, oneway: bool, error: Exception) -> None:
        if isinstance(error, Refusal):
            self._refuse(call_id, oneway, error)
            return
        log.error("serving a request of %s failed", self.address, exc_info=error)
        self._refuse(call_id, oneway, Refusal(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} in the client"))

    def _refuse(self, call_id: int, oneway: bool, refusal: Refusal) -> None:
        if not oneway and self._transport is not None:
            self._send(self._codec.refusal(call_id, None, refusal))

    def _lost_call(self, call_id: int) -> RmqError:
        if self._dismissed:
            return Unreachable(f"{self.address} was stopped before it took this request")
        return super()._lost_call(call_id)

    # --- time ---------------------------------------------------------------------------------------------------------

    async def _until_writable(self, timeout_s: float) -> float:
        """Waits for the peer to read; returns what is left of the time."""
        start = self._clock.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                while self.is_behind:  # again: of all that are woken together the first ones may send too much
                    await (asyncio.sleep(0) if self.writable else self._writable.wait())
        except TimeoutError:
            raise Unreachable(f"{self.address} does not read; the request was not sent") from None
        return timeout_s - (self._clock.monotonic() - start)

    async def _watch(self) -> None:
        """Ends calls whose time is over; sleeps while nobody waits."""
        while True:
            await self._watch_needed.wait()
            await self._clock.sleep(_WATCH_SECONDS)
            if not self.is_receiving(self.patience_s):
                self.expire_calls(self._clock.monotonic())
            if not self._waiting:
                self._watch_needed.clear()


def _prover(credentials: scram.Credentials, end_point: bytes, stripped: bool = False) -> scram.Client:
    return scram.Client(credentials.name, credentials.secret, secrets.token_urlsafe(18), end_point, stripped)
