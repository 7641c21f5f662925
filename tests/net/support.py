"""Servers and bare peers for the tests of connections."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgpack

from rmq.net.codec.native import Native
from rmq.net.commands import CODES, Hello

NATIVE = Native(1 << 20)


async def eventually(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Runs the loop until the condition holds; the condition is the event that is waited for."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        assert loop.time() < end, "it did not happen"
        await asyncio.sleep(0)


class BarePeer:
    """A connection that is no client of ours: it sends any bytes, and reads only when told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, address: tuple[str, int], read_limit: int = 1 << 16) -> "BarePeer":
        return cls(*await asyncio.open_connection(*address, limit=read_limit))

    @classmethod
    async def greeted(cls, address: tuple[str, int], read_limit: int = 1 << 16) -> "BarePeer":
        """After a good hello."""
        peer = await cls.connect(address, read_limit)
        peer.ask(Hello(1, "bare"), 0)
        await peer.answer()
        return peer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, request: Any, call_id: int, oneway: bool = False) -> None:
        assert type(request) in CODES
        self.send(NATIVE.request(request, call_id, oneway))

    async def answer(self) -> list[Any]:
        """The next native frame, unpacked."""
        async with asyncio.timeout(10):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return msgpack.unpackb(await self.reader.readexactly(size))  # type: ignore[no-any-return]

    async def closed(self) -> bool:
        """Waits for the end; True once it came."""
        try:
            async with asyncio.timeout(10):
                while await self.reader.read(1 << 16):
                    pass
        except ConnectionError:
            pass
        return True

    async def close(self) -> None:
        self.writer.transport.abort()
        with suppress(ConnectionError):
            await self.writer.wait_closed()
