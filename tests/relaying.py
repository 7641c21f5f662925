"""Somebody between two programs, who passes on what they say."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rmq.net.transport.network import close_server


@asynccontextmanager
async def relay(
    target: str,
    front: ssl.SSLContext | None = None,
    back: ssl.SSLContext | None = None,
    goes_on: asyncio.Event | None = None,
    gates: list[asyncio.Event] | None = None,
) -> AsyncIterator[str]:
    """Gives his address. With `front` and `back` he ends TLS and passes it on in his own. `goes_on`: while it is not set, he
    holds up what is said to the target. `gates`: the same for each connection, by what was the last of them when it came."""
    host, _, port = target.rpartition(":")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event | None) -> None:
        try:
            while data := await reader.read(65536):
                if gate is not None:
                    await gate.wait()
                writer.write(data)
        finally:  # also where one of the two broke off
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, int(port), ssl=back)
        gate = gates[-1] if gates else goes_on
        await asyncio.gather(copy(reader, there[1], gate), copy(there[0], writer, None), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=front)
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        await close_server(server)
