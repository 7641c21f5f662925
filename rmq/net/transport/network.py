"""The port to the network: how listeners and connections are made. Tests put `memory.MemoryNetwork` in its place."""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from rmq.clock import Clock
from rmq.errors import InvalidArgument
from rmq.measures import Family
from rmq.names import is_port
from rmq.net.codec.frames import Address
from rmq.net.transport.doors import HELLO_S, Accepts, Door
from rmq.net.transport.hosts import is_ip, reach
from rmq.net.transport.tls import Contexts, Tls, dialling, listening

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Listener(Protocol):
    """A bound port. `address`: where it really listens (port 0 asks for a free one)."""

    @property
    def address(self) -> Address: ...

    async def close(self) -> None:
        """Accept no more; connections live on."""
        ...


class Network(Protocol):
    async def listen(self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        """Raises OSError if the address is taken or not ours."""
        ...

    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        """A protocol whose `connection_made` has been called. Raises OSError if nobody answers."""
        ...


class _TcpListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        host, port = server.sockets[0].getsockname()[:2]
        self.address: Address = (host, port)

    async def close(self) -> None:
        await close_server(self._server)


async def close_server(server: asyncio.Server) -> None:
    """First it accepts nobody any more: asyncio makes a connection two turns after it was accepted, and loses an open socket if
    its server is closed meanwhile (CPython 3.11, Server._attach)."""
    for socket in server.sockets:
        asyncio.get_running_loop().remove_reader(socket.fileno())
    try:
        for _ in range(2):
            await asyncio.sleep(0)
    finally:
        server.close()


class TcpNetwork:
    """Real sockets. `accepts`: ports take TLS; `dials`: whoever is dialled must speak TLS and show who it is."""

    def __init__(self, accepts: Accepts | None = None, dials: Contexts[ssl.SSLContext] | None = None) -> None:
        self._accepts = accepts
        self._dials = dials

    def metrics(self) -> Iterable[Family]:
        return () if self._accepts is None else self._accepts.contexts.metrics()

    async def listen(self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        if self._accepts is not None:
            return await Door.open(make_protocol, host, port, self._accepts)
        server = await asyncio.get_running_loop().create_server(make_protocol, host, port, backlog=1024)
        return _TcpListener(server)

    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        loop, dials = asyncio.get_running_loop(), self._dials
        try:
            where: dict[str, Any] = {"host": host, "port": port} if is_ip(host) else {"sock": await reach(host, port)}
            if dials is None:
                _, protocol = await loop.create_connection(make_protocol, **where)
            else:
                name = dials.tls.server_name or host
                _, protocol = await loop.create_connection(
                    make_protocol, **where, ssl=dials.now(), server_hostname=name, ssl_handshake_timeout=HELLO_S
                )
        except OSError:  # some of ssl's are ValueErrors, too
            raise
        except ValueError as error:  # no name that could be looked up: a part is too long, or a byte is 0
            raise OSError(f"{host[:40]!r} is no host: {error}") from None
        return protocol


TCP = TcpNetwork()


def network_with(tls: Tls | None, clock: Clock) -> Network:
    """For a process that only dials. None: without TLS. Raises InvalidArgument for files that are wrong."""
    return TCP if tls is None else TcpNetwork(dials=Contexts(tls, dialling, clock))


class NodeTls(Protocol):
    """The TLS part of a node's settings."""

    @property
    def tls_mode(self) -> str: ...
    @property
    def dials_tls(self) -> bool: ...
    @property
    def tls_cert(self) -> str: ...
    @property
    def tls_key(self) -> str: ...
    @property
    def tls_key_password_file(self) -> str: ...
    @property
    def tls_ca(self) -> str: ...
    @property
    def tls_client_auth(self) -> str: ...
    @property
    def tls_protocols(self) -> tuple[str, ...]: ...
    @property
    def tls_ciphers(self) -> str: ...
    @property
    def tls_server_name(self) -> str: ...


def network_of(settings: NodeTls, clock: Clock) -> Network:
    """Real sockets as a node's settings want them. Raises InvalidArgument for files that are wrong."""
    tls = Tls(
        settings.tls_ca,
        settings.tls_cert,
        settings.tls_key,
        settings.tls_key_password_file,
        settings.tls_protocols,
        settings.tls_ciphers,
        settings.tls_client_auth,
        settings.tls_server_name,
    )
    accepts = None
    if settings.tls_mode != "disabled":
        accepts = Accepts(Contexts(tls, listening, clock, shown=True), plaintext=settings.tls_mode == "permissive")
    return TcpNetwork(accepts, Contexts(tls, dialling, clock) if settings.dials_tls else None)


def split_address(address: str) -> Address:
    """ "host:port" or "[v6]:port" as (host, port); raises ValueError with what is expected."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not is_port(port):
        raise ValueError(f"{address!r} is not an address; write host:port, for example 127.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)


def checked_address(text: str) -> str:
    """As it is. Raises InvalidArgument for what `split_address` does not take."""
    try:
        split_address(text)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
    return text
