"""One connection per address, opened when first needed and again when lost. Knows no routes and retries nothing."""

import asyncio
import os
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Mapping
from threading import get_ident
from typing import Any, TypeVar

from rmq.background import cancel
from rmq.client.shared.message import half_a_character
from rmq.client.shared.settings import ClientSettings
from rmq.client.shared.tasks import TaskSet, within
from rmq.codes import ResponseCode
from rmq.errors import (
    LOG_IN_AGAIN,
    OTHER_LOOP,
    OTHER_PROCESS,
    OUTCOME_UNKNOWN,
    BadBytes,
    Closed,
    InvalidArgument,
    Refusal,
    RmqError,
    Unknown,
    Unreachable,
)
from rmq.net.commands import Answer, Hello, Ping, QuestionRequest, Request
from rmq.net.commands.questions import GetHeldOffsets, GetMemberOffsets
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer

OnAddress = Callable[[str], None]
OnRequest = Callable[[Request], None]
OnQuestion = Callable[[Any], Answer | Awaitable[Answer]]
_POSTS_IN_A_ROW = 64
_Listener = TypeVar("_Listener")


class Connections:
    """Channels by "host:port". The first caller opens one; callers that come meanwhile wait for the same one."""

    def __init__(self, hello: Hello, settings: ClientSettings, dialer: Dialer) -> None:
        self._hello = hello
        self._settings = settings
        self._dialer = dialer
        self._channels: dict[str, Channel] = {}
        self._connecting: dict[str, asyncio.Task[Channel]] = {}
        self._probed: set[str] = set()
        self._watches = TaskSet()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._process = os.getpid()
        self._posts = 0
        self.on_opened: list[OnAddress] = []
        self.on_lost: list[OnAddress] = []
        self.on_request: list[OnRequest] = []
        self.on_question: dict[str, Mapping[type[Request], OnQuestion]] = {}  # by consumer group: what a broker waits for

    def enter(self) -> None:
        """From now on this belongs to the running loop. Raises as `check_loop`, and behind a fork: all children would be one
        client to the brokers, with equal message ids."""
        self.check_loop()
        if os.getpid() != self._process:
            raise InvalidArgument(OTHER_PROCESS)
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()

    def check_loop(self) -> None:
        """Raises InvalidArgument in another loop or thread than it was entered in. What every send passes does not ask it: there
        the channel notices, once for all that it writes together."""
        running = _get_running_loop()
        if self._loop is not None and running is not self._loop and (running is not None or get_ident() != self._thread):
            raise InvalidArgument(OTHER_LOOP)

    def have_done(self, act: Callable[[], None]) -> None:
        """At once, and once more in the next turn of the loop, which wakes for it (handlers of signals wake nobody); from another
        thread only then."""
        if self._loop is None or get_ident() == self._thread:
            act()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)

    def is_open(self, address: str) -> bool:
        return address in self._channels

    def is_traced(self, address: str) -> bool:
        """Whether traces are to be written of the messages there; True if that is not known."""
        channel = self._channels.get(address)
        return channel is None or channel.hello.traced

    def waiting(self) -> set[str]:
        """Addresses from which an answer is missing."""
        return {address for address, channel in self._channels.items() if channel.waits}

    def give_up(self, address: str, kind: type[Request], why: str) -> None:
        """Ends requests of that type, which change nothing there, as Unknown."""
        if (channel := self._channels.get(address)) is not None:
            channel.give_up(kind, why)

    def ready(self, address: str) -> Channel | None:
        """The connection, if it is open and the other side keeps up: then `Channel.ask` needs not wait."""
        channel = self._channels.get(address)
        return None if channel is None or channel.write_paused_since is not None else channel

    async def request(
        self, address: str, request: Request, timeout_s: float | None = None, failed: RmqError | None = None
    ) -> Answer:
        """Raises Refusal, Unknown (it was sent, and its outcome is not known), Unreachable (it was not sent), BadBytes, Closed.
        Where the other side says when to try again, and that is within the timeout, this is done. `failed`: how it ended when
        it was asked here already (`Channel.ask`)."""
        clock, within_s = self._dialer.clock, timeout_s or self._settings.request_timeout_s
        deadline = clock.monotonic() + within_s
        while True:
            try:
                return await self._ask(address, request, within_s, failed)
            except Refusal as refusal:
                if refusal.code == ResponseCode.SYSTEM_ERROR and refusal.remark.startswith(OUTCOME_UNKNOWN):
                    raise Unknown(f"{address}: {refusal.remark} (request {refusal.request})") from refusal
                wait_s = refusal.wait_ms / 1000
                if not 0 < wait_s < deadline - clock.monotonic():
                    raise
            await clock.sleep(wait_s)
            failed, within_s = None, max(deadline - clock.monotonic(), 0.001)

    async def _ask(self, address: str, request: Request, timeout_s: float, failed: RmqError | None) -> Answer:
        """Once, and once more where it must log in again. `failed`: see `request`."""
        if failed is not None and not self._asks_for_login(failed):
            raise failed
        channel = self._channels.get(address)
        if channel is None:
            began_s = self._dialer.clock.monotonic()
            channel = await self._open(address, timeout_s)
            timeout_s = max(timeout_s - (self._dialer.clock.monotonic() - began_s), 0.001)
        login = channel.logins
        try:
            return await channel.request(request, timeout_s)
        except Refusal as refusal:
            if not self._asks_for_login(refusal):
                raise
        except BadBytes as error:
            raise BadBytes(f"{address}: {error}") from error
        except UnicodeEncodeError as error:  # nothing of it was sent
            raise half_a_character(error.object[max(error.start - 40, 0) : error.start + 1]) from None
        except OverflowError:
            raise InvalidArgument(f"{type(request).__name__}: a number does not fit in 64 bits") from None
        assert self._dialer.credentials is not None
        await channel.login_again(self._dialer.credentials, timeout_s, login)
        return await channel.request(request, timeout_s)

    async def tried(self, address: str, request: Request) -> Answer | RmqError:
        """As `request`, but errors are returned. A connection that swallows requests, or takes nothing of what was sent before,
        looks open for ever: it is given up."""
        channel = self._channels.get(address)
        stall = None if channel is None else channel.stall
        try:
            return await self.request(address, request)
        except RmqError as error:
            stands = stall is not None and channel is not None and channel.stall == stall
            silent = isinstance(error, Unknown) and not isinstance(error.__cause__, Refusal)  # "outcome unknown" is an answer
            if (stands or silent) and channel in (None, self._channels.get(address)):
                await self.drop(address)
            return error

    def _asks_for_login(self, error: RmqError) -> bool:
        return self._dialer.credentials is not None and isinstance(error, Refusal) and error.remark.endswith(LOG_IN_AGAIN)

    async def post(self, address: str, request: Request) -> None:
        """Send and expect no answer; waits now and then, so that what is unsent stays bounded. Raises Unreachable, Closed."""
        channel = self._channels.get(address) or await self._open(address, self._settings.request_timeout_s)
        self._posts += 1
        if self._posts % _POSTS_IN_A_ROW == 0:
            await asyncio.sleep(0)  # frames are written at the end of a turn: without one a loop of posts only piles them up
        if channel.is_behind:
            await channel.drained(self._settings.request_timeout_s)
        channel.post(request)

    async def _open(self, address: str, timeout_s: float) -> Channel:
        """Raises Unreachable, Closed."""
        self.check_loop()
        if self._closed:
            raise _closed()
        connecting = self._connecting.get(address)
        if connecting is None:
            connecting = self._connecting[address] = asyncio.create_task(self._connect(address), name=f"open {address}")
            connecting.add_done_callback(lambda task: self._opened(address, task))
        try:
            # it ends for all together, and not with who waits
            await within(self._dialer.clock, timeout_s, asyncio.wait((connecting,)))
        except TimeoutError:
            raise Unreachable(f"{address} cannot be reached: no answer within {timeout_s:g} s") from None
        if connecting.cancelled():
            raise _closed()
        return connecting.result()

    async def _connect(self, address: str) -> Channel:
        try:
            return await self._dialer.open(address, self._hello, self._received, self._settings.connect_timeout_s)
        except InvalidArgument as error:  # by a nameserver or a broker, not by the program: there may be other nodes
            raise Unreachable(f"{address[:80]} cannot be reached: {error}") from None

    def _opened(self, address: str, task: "asyncio.Task[Channel]") -> None:
        del self._connecting[address]
        if task.cancelled() or task.exception() is not None:
            return
        self._channels[address] = channel = task.result()
        self._watches.start(self._watch(address, channel), f"watch {address}")
        for listener in self.on_opened:
            listener(address)

    async def _watch(self, address: str, channel: Channel) -> None:
        await channel.closed.wait()
        if self._channels.get(address) is channel:
            del self._channels[address]
        for listener in self.on_lost:
            listener(address)

    def _received(self, request: Request) -> Answer | Awaitable[Answer]:
        for listener in self.on_request:
            listener(request)
        if not isinstance(request, QuestionRequest):
            return None
        group = request.group if isinstance(request, GetHeldOffsets | GetMemberOffsets) else request.consumer_group
        answering = self.on_question.get(group, {}).get(type(request))
        if answering is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
        return answering(request)

    async def probe(self) -> None:
        """Gives up connections that swallow everything: they look open for ever."""
        await asyncio.gather(*(self._probe(address) for address in self._channels.keys() - self._probed))

    async def _probe(self, address: str) -> None:
        self._probed.add(address)
        try:
            await self.tried(address, Ping())
        finally:
            self._probed.discard(address)

    async def drop(self, address: str) -> None:
        """Cuts a connection off that does not work; the next request opens another."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            channel.abort("it did not work")
            await channel.close()

    async def close(self) -> None:
        """Close every connection; requests without an answer end as Unknown."""
        self._closed = True
        await cancel(*self._connecting.values())
        await self._watches.close()
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))
        self._channels.clear()


def _closed() -> Closed:
    return Closed("the client is closed: make a new one")


def forget(listeners: list[_Listener], listener: _Listener) -> None:
    """The listener hears nothing more, if it did."""
    if listener in listeners:
        listeners.remove(listener)
