"""A network for tests at the port of `network`: listeners by address, and pairs of joined transports.

Bytes written on one side arrive at the other in the next turn of the loop, in order. A side that pauses reading makes
the other one's buffer grow and pause, as sockets do. `cut` breaks connections, as a pulled cable with a reset does.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from rmq.net.codec.frames import Address
from rmq.net.transport.network import Listener

P = TypeVar("P", bound=asyncio.BaseProtocol)
_FIRST_FREE_PORT = 40_000
_READ_BYTES = 256 * 1024  # at most, as loops read


class MemoryTransport(asyncio.Transport):
    """One end of a joined pair."""

    def __init__(self, protocol: asyncio.BaseProtocol, local: Address, peer: Address) -> None:
        super().__init__({"sockname": local, "peername": peer})
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._other: MemoryTransport
        self._buffer = bytearray()
        self._high = 64 * 1024
        self._reading = True
        self._writing_paused = False
        self._closing = False
        self._lost = False
        self._moving = False

    def join(self, other: "MemoryTransport") -> None:
        self._other, other._other = other, self

    def write(self, data: Any) -> None:
        if self._closing:
            return
        self._buffer += data
        if len(self._buffer) > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()
        self._move_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._other._move_soon()

    def close(self) -> None:
        """Bytes that were written still arrive; then both sides end."""
        self._closing = True
        self._move_soon()

    def can_write_eof(self) -> bool:
        return False

    def abort(self) -> None:
        self._closing = True
        self._buffer.clear()
        self._move_soon()

    def _move_soon(self) -> None:
        if not self._moving:
            self._moving = True
            self._loop.call_soon(self._move)

    def _move(self) -> None:
        """Carries bytes to the other side until it pauses or all are there."""
        self._moving = False
        other = self._other
        while self._buffer and other._reading and not other._lost:
            other._take(self._buffer)
        if self._writing_paused and len(self._buffer) <= self._high // 4 and not self._lost:
            self._writing_paused = False
            self._protocol.resume_writing()
        if self._closing and (not self._buffer or other._lost):
            self._end()
            other._closing = True
            other._buffer.clear()
            other._end()

    def _take(self, data: bytearray) -> None:
        protocol = self._protocol
        assert isinstance(protocol, asyncio.Protocol)
        some = bytes(data[:_READ_BYTES])
        del data[:_READ_BYTES]
        protocol.data_received(some)

    def _end(self) -> None:
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._protocol.connection_lost, None)


class _MemoryListener:
    def __init__(self, network: "MemoryNetwork", address: Address) -> None:
        self._network = network
        self.address = address

    async def close(self) -> None:
        self._network.listeners.pop(self.address, None)


class MemoryNetwork:
    """Addresses are whatever tests say; no name is looked up."""

    def __init__(self) -> None:
        self.listeners: dict[Address, Callable[[], asyncio.BaseProtocol]] = {}
        self.transports: list[MemoryTransport] = []
        self._next_port = _FIRST_FREE_PORT

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    async def listen(self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        address = (host, port or self._free_port())
        if address in self.listeners:
            raise OSError(f"{host}:{port} is taken")
        self.listeners[address] = make_protocol
        return _MemoryListener(self, address)

    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        make_server = self.listeners.get((host, port))
        if make_server is None:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        near: Address = (host, self._free_port())
        client, server = make_protocol(), make_server()
        here, there = MemoryTransport(client, near, (host, port)), MemoryTransport(server, (host, port), near)
        here.join(there)
        self.transports = [transport for transport in (*self.transports, here, there) if not transport._lost]
        server.connection_made(there)
        client.connection_made(here)
        return client

    def cut(self) -> None:
        """Breaks every connection there is."""
        for transport in self.transports:
            transport.abort()
        self.transports = []
