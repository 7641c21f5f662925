"""The port that Prometheus asks: one page over HTTP/1.1, one question a connection.

Served by the loop, so that nobody who connects costs a thread. Whoever connects and does not ask at once makes room for the next
one.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final

from prometheus_client import exposition
from prometheus_client.registry import Collector

from rmq.net.transport.network import TCP, Network

MAX_SCRAPES: Final = 64  # connections
MAX_HEAD_BYTES: Final = 8 * 1024  # of a question
SCRAPE_SECONDS: Final = 10.0  # from connecting to the end of the answer [scrape_timeout of Prometheus]
_PATHS = ("/", "/metrics")


@contextlib.asynccontextmanager
async def served(host: str, port: int, collector: Collector, network: Network = TCP) -> AsyncIterator[str]:
    """Listens while the context is open; gives "host:port". Raises OSError if it cannot listen."""
    page = _Page(collector)
    listener = await network.listen(page.connection, host, port)
    try:
        yield f"{host}:{listener.address[1]}"
    finally:
        listener.close()
        await page.close()


class _Page:
    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._tasks: set[asyncio.Task[None]] = set()

    def connection(self) -> asyncio.StreamReaderProtocol:
        """One that reads and writes streams."""
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=MAX_HEAD_BYTES), self._accept)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_SCRAPES:
            self._drop(next(iter(self._open)))
        self._open[writer] = None
        try:
            async with asyncio.timeout(SCRAPE_SECONDS):
                with contextlib.suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
                    writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        except TimeoutError:
            self._drop(writer)
        self._open.pop(writer, None)
        writer.close()

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._open.pop(writer, None)
        writer.transport.abort()

    async def close(self) -> None:
        for writer in list(self._open):
            self._drop(writer)
        await asyncio.gather(*self._tasks)

    def _answer(self, question: bytes) -> bytes:
        request, *lines = question.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        method, path, *_ = [*request.split(" "), "", ""]
        if method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED)
        if path.partition("?")[0] not in _PATHS:
            return _response(HTTPStatus.NOT_FOUND)
        spell, kind = exposition.choose_encoder(headers.get("accept", ""))
        return _response(HTTPStatus.OK, kind, spell(self._collector), method == "GET")


def _response(status: HTTPStatus, kind: str = "text/plain", body: bytes = b"", with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
