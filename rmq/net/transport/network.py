"""The port to the network: how listeners and connections are made. Tests put `memory.MemoryNetwork` in its place."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from rmq.net.codec.frames import Address

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Listener(Protocol):
    """A bound port. `address`: where it really listens (port 0 asks for a free one)."""

    @property
    def address(self) -> Address: ...

    def close(self) -> None:
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

    def close(self) -> None:
        self._server.close()


class TcpNetwork:
    """Real sockets."""

    async def listen(self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        server = await asyncio.get_running_loop().create_server(make_protocol, host, port, backlog=1024)
        return _TcpListener(server)

    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        _, protocol = await asyncio.get_running_loop().create_connection(make_protocol, host, port)
        return protocol


TCP = TcpNetwork()


def split_address(address: str) -> Address:
    """ "host:port" or "[v6]:port" as (host, port); raises ValueError with what is expected."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not an address; write host:port, for example 127.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)
