"""The listener: accepts connections, counts them, holds them to their deadlines, and ends them.

Everything that one read brought is handled before anything is written, and all answers of one turn of the loop leave a
connection in one write (`connection`, `link`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from rmq import background
from rmq.clock import Clock, SystemClock
from rmq.codes import ResponseCode
from rmq.errors import InvalidArgument, Refusal, StoreError
from rmq.measures import Family
from rmq.net.codec.frames import Address
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import VERSION, Native, SendTarget
from rmq.net.codec.pullforms import PullForms
from rmq.net.codec.remembered import Memory
from rmq.net.codec.wire import Reader
from rmq.net.commands import Answer, DraftedSend, Hello, HelloAnswer, Ping, Request, Send
from rmq.net.commands.lites import PopLite
from rmq.net.commands.pop import Notification, Pop
from rmq.net.remoting.codec import RemotingSettings
from rmq.net.transport import descriptors
from rmq.net.transport.connection import LATER, Allow, Call, Connection, Forward, Handler, Later, Screen, Take
from rmq.net.transport.network import TCP, Listener, Network, TcpNetwork
from rmq.net.transport.requestlog import RequestLog
from rmq.net.transport.strangers import Told

__all__ = ["LATER", "Call", "Connection", "Handler", "Later", "Server"]

log = logging.getLogger(__name__)
_SWEEP_SECONDS = 1.0
_WAITING = frozenset({Pop, PopLite, Notification})  # they wait for messages as long as they are told to


class Server:
    """Serves `handlers` on any number of addresses.

    `remoting` adds the remoting codec; `guard`, if there is one, sees each burst of requests first (it may be another one
    later); `on_close` is told of every connection that ends. Times come from `clock`, sockets from `network`.
    """

    def __init__(
        self,
        handlers: Mapping[type[Request], Handler],
        limits: Limits = Limits(),  # noqa: B008 (a constant)
        remoting: RemotingSettings | None = None,
        clock: Clock = SystemClock(),  # noqa: B008 (has no state)
        guard: Screen | None = None,
        on_close: Callable[[Connection], None] | None = None,
        network: Network = TCP,
    ) -> None:
        self.handlers: Mapping[type[Any], Handler] = {}
        self.allow: Allow | None = None
        self.forward: Forward | None = None
        self.takes: Mapping[type[Any], Take] = {}
        self.serve(handlers)
        self.limits = limits
        self.remoting = remoting
        self.clock = clock
        self.guard = guard
        self.requests = RequestLog(clock, limits.slow_seconds)
        self._sends: Memory[bytes, SendTarget] = Memory()  # how native ones look
        self._pulls: PullForms = Memory()
        self.on_close = on_close
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Listener] = []
        self._connections: dict[int, Connection] = {}
        self._turn_ends: list[Callable[[], None]] = []
        self.to_write: list[Connection] = []
        self.writes_soon = False
        self.last_reader: Connection | None = None
        self._per_address: Counter[str] = Counter()
        self.in_flight_bytes = 0
        self.half_frame_bytes = 0
        self._descriptors = 0  # descriptors from there on are not for connections
        self._warned = False
        self._told = Told()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._leaving: set[int] = set()  # connections that a stop waits for
        self._emptied = asyncio.Event()  # they are gone

    def serve(
        self,
        handlers: Mapping[type[Request], Handler],
        allow: Allow | None = None,
        forward: Forward | None = None,
        takes: Mapping[type[Any], Take] = MappingProxyType({}),
    ) -> None:
        """From now on these handlers are served. `allow` is asked before each request; `forward` takes calls of clients that
        cannot find the leader; `takes`: who takes usual requests of that kind, which are handled one by one else."""
        self.allow, self.forward, self.takes = allow, forward, takes
        own: dict[type[Any], Handler] = {Ping: _pong, Hello: _hello}
        if Send in handlers:
            own[DraftedSend] = handlers[Send]
        self.handlers = own | dict(handlers)

    def metrics(self) -> Iterator[Family]:
        yield from self.requests.metrics()
        if isinstance(self._network, TcpNetwork):
            yield from self._network.metrics()

    @property
    def connections(self) -> list[Connection]:
        """All connections that are open now."""
        return list(self._connections.values())

    def connection(self, connection_id: int) -> Connection | None:
        """The open connection of that id."""
        return self._connections.get(connection_id)

    async def listen(self, host: str, port: int) -> Address:
        """Serves this address too; returns where it really is (port 0: a free one). Raises OSError."""
        self._descriptors = descriptors.limit() - descriptors.LEFT
        listener = await self._network.listen(lambda: Connection(self), host, port)
        self._listeners.append(listener)
        if self._sweeper is None:
            self._sweeper = background.start(self._sweep(), "sweep of connections")
        return listener.address

    async def close(self, grace_seconds: float = 5.0) -> None:
        """Accepts and reads no more, waits for the answers of what is in flight, then closes all connections."""
        await self.leave(grace_seconds)
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def leave(self, grace_seconds: float, stays: Callable[[Connection], bool] = lambda connection: False) -> None:
        """The same, but those that stay are served on, and so is what was accepted meanwhile."""
        for listener in self._listeners:
            await listener.close()
        leaving = [connection for connection in self.connections if not stays(connection)]
        for connection in leaving:
            connection.drain()
        await self._until_gone(leaving, grace_seconds)
        for connection in leaving:
            connection.abort("the server stopped")
        await self._until_gone(leaving, None)

    async def _until_gone(self, leaving: list[Connection], grace_seconds: float | None) -> None:
        """Returns when none of them is left, or the grace has passed."""
        self._leaving = {connection.id for connection in leaving} & self._connections.keys()
        if not self._leaving:
            return
        self._emptied.clear()
        waits: list[asyncio.Task[object]] = [asyncio.create_task(self._emptied.wait())]
        if grace_seconds is not None:
            waits.append(asyncio.create_task(_sleep(self.clock, grace_seconds)))
        _, late = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in late:
            task.cancel()

    # --- called by connections ----------------------------------------------------------------------------------------

    def reader_for(self, peer: Address) -> Reader:
        """Cuts and decodes what this peer sends, in whichever codec it begins."""
        remoting = self.remoting
        native = Native(self.limits.max_structured_bytes, self._sends, self._pulls)
        return Reader(self.limits, native, None if remoting is None else lambda: remoting.codec(peer, self.limits))

    def admit(self, connection: Connection) -> str:
        """Counts the connection in; the reason if it is one too many."""
        host = connection.peer[0]
        self._connections[connection.id] = connection
        self._per_address[host] += 1
        if len(self._connections) > self.limits.max_connections:
            return f"more than {self.limits.max_connections} connections"
        if connection.descriptor >= self._descriptors:
            self._warn_once("connections are refused: this process has too few file descriptors left for more (max_connections)")
            return f"fewer than {descriptors.LEFT} file descriptors are left"
        if self._per_address[host] > self.limits.max_connections_per_address:
            return f"more than {self.limits.max_connections_per_address} connections from {host}"
        return ""

    def _warn_once(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            log.error(what)

    def strange(self, peer: Address, why: str) -> None:
        """It speaks something else, as TLS where this port takes none."""
        if self._told.is_new(why, asyncio.get_running_loop().time()):
            log.info("a connection of %s was not taken: %s", peer[0], why)

    def forget(self, connection: Connection, why: str) -> None:
        log.debug("connection %d of %s:%d ended: %s", connection.id, *connection.peer, why)
        del self._connections[connection.id]
        if self.last_reader is connection:
            self.last_reader = None
        host = connection.peer[0]
        self._per_address[host] -= 1
        if not self._per_address[host]:
            del self._per_address[host]
        self._leaving.discard(connection.id)
        if not self._leaving:
            self._emptied.set()
        if self.on_close is not None:
            self.on_close(connection)

    def half_frames_grew(self, connection: Connection, by: int) -> None:
        self.half_frame_bytes += by
        if by > 0 and self.half_frame_bytes > self.limits.max_half_frame_bytes:
            connection.abort(f"more than {self.limits.max_half_frame_bytes} bytes of unfinished frames in this server")

    def at_turn_end(self, work: Callable[[], None]) -> None:
        """Calls `work` when everything that is ready to run in this turn of the loop has run, and writes behind it: what was
        appended in this turn is answered before the loop looks for new bytes."""
        self._turn_ends.append(work)
        if not self.writes_soon:
            self.end_turn()

    def write(self) -> None:
        """Writes what is answered."""
        while self.to_write:
            self.to_write.pop().flush()

    def end_turn(self) -> None:
        """Writes what is answered by whatever is to run before, all connections by one call."""
        self.writes_soon = True
        self._loop.call_soon(self._end_turn)

    def end_at_once(self) -> None:
        """As `end_turn`, a step of the loop earlier: for a read that is probably alone in its turn, and has set `writes_soon`.
        If what was asked goes on in a task, the turn has its usual end."""
        if self._turn_ends or self.to_write:
            self._end_turn()
        else:
            self.end_turn()

    def _end_turn(self) -> None:
        works, self._turn_ends = self._turn_ends, []
        try:
            while works:
                works.pop(0)()
            self.write()
        finally:
            self.writes_soon = False
            self._turn_ends[:0] = works  # if one failed
            if self._turn_ends or self.to_write:
                self.end_turn()

    def spawn(self, call: Call, awaitable: Awaitable[Answer | Later], kind: type[Any], came: float) -> None:
        task = asyncio.create_task(self._finish(call, awaitable, kind, came))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, call: Call, awaitable: Awaitable[Answer | Later], kind: type[Any], came: float) -> None:
        """`came`: when the request did, monotonic s."""
        try:
            answer = await awaitable
        except Exception as error:
            self.failed(call, error)
        else:
            if answer is LATER:
                return
            call.answer(answer)
        slow_s = self.requests.slow_s
        if slow_s and kind not in _WAITING and (took_s := self.clock.monotonic() - came) > slow_s:
            self.requests.slow(kind.__name__, [call.request_id], {"answered": took_s})

    def failed(self, call: Call, error: Exception) -> None:
        """A refusal is an answer, and so are InvalidArgument about a value that the peer chose and StoreError about what cannot
        be read; anything else is our fault. A broken assertion goes to the loop's exception handler, where the node ends the
        process."""
        if isinstance(error, InvalidArgument):
            error = Refusal(ResponseCode.INVALID_PARAMETER, str(error))
        elif isinstance(error, StoreError):
            error = Refusal(ResponseCode.SYSTEM_ERROR, str(error))
        if isinstance(error, Refusal):
            call.refuse(error.with_traceback(None))  # its frames know the peer, and maybe the refusal: a circle that stays
            return
        if isinstance(error, AssertionError):
            context = {"message": "a handler broke an assertion", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        else:
            log.error("a handler failed", exc_info=error)
        call.refuse(Refusal(ResponseCode.SYSTEM_ERROR, f"internal error: {type(error).__name__}; see the broker's log"))

    # --- deadlines ----------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await self.clock.sleep(_SWEEP_SECONDS)
            now = self.clock.monotonic()
            for connection in self.connections:
                why = connection.overdue(now)
                if why:
                    connection.abort(why)
                else:
                    connection.expire_calls(now)
                    connection.tell_in_flight()
                    connection.look_again()
            self._drop_who_reads_least()

    def _drop_who_reads_least(self) -> None:
        """Holds the unread answers of all connections together to their bound (D18)."""
        waiting = sorted((connection.unread_bytes, connection.id) for connection in self.connections if not connection.reading)
        total = sum(size for size, _ in waiting)
        while total > self.limits.max_unread_bytes:
            size, connection_id = waiting.pop()
            total -= size
            self._connections[connection_id].abort(f"answers of {size} bytes are unread, and this server's memory is short")


async def _sleep(clock: Clock, seconds: float) -> object:
    return await clock.sleep(seconds)  # type: ignore[func-returns-value]


def _pong(request: Ping, call: Call) -> None:
    return None


def _hello(request: Hello, call: Call) -> HelloAnswer:
    return HelloAnswer(min(request.version, VERSION))
