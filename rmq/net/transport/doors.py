"""A port that takes TLS, or both TLS and plain connections: the first byte decides [NettyRemotingServer.TlsModeHandler].

The byte is looked at in the socket, not taken: afterwards everything goes as at any other port. Whoever has not said its
first byte, or not finished its handshake, costs a socket and a task; there is a bound for those and a time for each.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from rmq.net.codec.frames import Address
from rmq.net.transport import descriptors
from rmq.net.transport.strangers import Told
from rmq.net.transport.tls import Contexts, Listening, explain

log = logging.getLogger("rmq.tls")

HELLO: Final = 0x16  # a TLS record with a handshake message in it
HELLO_S: Final = 10.0
MAX_WAITING: Final = 1024
_BACKLOG: Final = 1024
_IN_A_ROW: Final = 64  # accepted before the loop does something else
_REST_S: Final = 1.0  # when the system has no descriptors left


class Accepts(NamedTuple):
    """How a port takes TLS. `plaintext`: and plain connections, too. `hello_s`: for the first byte, and again for the
    handshake."""

    contexts: Contexts[Listening]
    plaintext: bool
    hello_s: float = HELLO_S


class Door:
    """A `network.Listener`; made by `Door.open`."""

    def __init__(self, sockets: list[socket.socket], make_protocol: Callable[[], asyncio.BaseProtocol], accepts: Accepts) -> None:
        self._sockets = sockets
        self._make_protocol = make_protocol
        self._accepts = accepts
        self._loop = asyncio.get_running_loop()
        self._last_descriptor = descriptors.limit() - descriptors.LEFT
        self._waiting: dict[asyncio.Task[None], socket.socket] = {}  # the oldest first
        self._told = Told()
        host, port = sockets[0].getsockname()[:2]
        self.address: Address = (host, port)
        for listening in sockets:
            self._loop.add_reader(listening, self._accept, listening)

    @staticmethod
    async def open(make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, accepts: Accepts) -> "Door":
        """Raises OSError."""
        return Door(await _bind(host, port), make_protocol, accepts)

    async def close(self) -> None:
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets = []
        for task in [*self._waiting]:
            self._drop(task)

    @property
    def waiting(self) -> int:
        """Connections that have not said what they are."""
        return len(self._waiting)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_IN_A_ROW):
            try:
                connection, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no connection can be accepted for a moment: %s", error.strerror)
                self._loop.remove_reader(listening)
                self._loop.call_later(_REST_S, self._again, listening)
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if connection.fileno() >= self._last_descriptor:
                self._tell(peer, f"refused: fewer than {descriptors.LEFT} file descriptors are left")
                connection.close()
            else:
                self._begin(connection, peer)

    def _again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _begin(self, connection: socket.socket, peer: Address) -> None:
        if len(self._waiting) >= MAX_WAITING:  # honest ones are through in milliseconds
            self._drop(next(iter(self._waiting)))
        work: Coroutine[Any, Any, None] = self._admit(connection, peer)
        task = self._loop.create_task(work, name=f"hello of {peer[0]}")
        self._waiting[task] = connection
        task.add_done_callback(lambda done: self._waiting.pop(done, None))

    def _drop(self, task: "asyncio.Task[None]") -> None:
        """Its task finds the connection ended, and clears up."""
        try:
            self._waiting.pop(task).shutdown(socket.SHUT_RDWR)
        except OSError:  # the peer was quicker
            task.cancel()

    async def _admit(self, connection: socket.socket, peer: Address) -> None:
        try:
            async with asyncio.timeout(self._accepts.hello_s):
                first = await _first_byte(self._loop, connection)
            if first == HELLO:
                await self._greet(connection)
            elif first >= 0 and self._accepts.plaintext:
                await self._loop.connect_accepted_socket(self._make_protocol, connection)
            else:
                connection.close()
                if first >= 0:
                    self._tell(peer, "speaks plain text, and this port takes TLS only (tls_mode)")
        except TimeoutError:
            connection.close()
            log.debug("%s: nothing came within %g s", peer[0], self._accepts.hello_s)
        except OSError as error:
            connection.close()
            self._tell(peer, explain(error.with_traceback(None)))  # its frames know it, and a connection of 256 KiB: a circle
        except asyncio.CancelledError:
            connection.close()
            raise

    async def _greet(self, connection: socket.socket) -> None:
        context: ssl.SSLContext = self._accepts.contexts.now()
        await self._loop.connect_accepted_socket(
            self._make_protocol, connection, ssl=context, ssl_handshake_timeout=self._accepts.hello_s
        )

    def _tell(self, peer: Address, why: str) -> None:
        """For the operator, but the log does not grow by what strangers repeat."""
        if self._told.is_new(why, self._loop.time()):
            log.warning("a connection of %s was not taken: %s", peer[0], why)


async def _bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets at each address of the host; port 0: a free one, the same at all of them. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, where in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            sockets.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            port = port or (sockets[0].getsockname()[1] if len(sockets) > 1 else 0)
            listening.bind((where[0], port, *where[2:]))
            listening.listen(_BACKLOG)
    except BaseException:
        for listening in sockets:
            listening.close()
        raise
    return sockets


async def _first_byte(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> int:
    """Looked at, not taken; -1: the peer has gone. Raises OSError."""
    while True:
        try:
            seen = connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            await _readable(loop, connection)
        else:
            return seen[0] if seen else -1


async def _readable(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, _woken, ready)
    try:
        await ready
    finally:
        loop.remove_reader(connection)


def _woken(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
