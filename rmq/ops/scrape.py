"""The port for Prometheus and health checks: pages over HTTP/1.1, one request per connection.

One event loop serves it, so that a connection costs no thread. A connection that sends no request at once makes room for the next
one.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from rmq.names import address_text
from rmq.net.transport.network import TCP

MAX_SCRAPES: Final = 64  # connections
MAX_HEAD_BYTES: Final = 8 * 1024  # of a request
SCRAPE_SECONDS: Final = 10.0  # from connecting to the end of the answer [scrape_timeout of Prometheus]
log = logging.getLogger("rmq.scrape")


class Reply(NamedTuple):
    status: HTTPStatus
    body: bytes
    kind: str = "text/plain; charset=utf-8"


Pages = Mapping[str, Callable[[str], Awaitable[Reply]]]
"""By path: a function from the Accept header to the answer."""


@contextlib.asynccontextmanager
async def served(host: str, port: int, pages: Pages) -> AsyncIterator[str]:
    """Listens while the context is open; gives "host:port". Raises OSError if it cannot listen."""
    door = _Door(pages)
    listener = await TCP.listen(door.connection, host, port)
    try:
        yield address_text(host, listener.address[1])
    finally:
        await listener.close()
        await door.close()


class _Door:
    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._tasks: set[asyncio.Task[None]] = set()

    def connection(self) -> asyncio.StreamReaderProtocol:
        """A protocol that reads and writes streams."""
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
                    writer.write(await self._answer(await reader.readuntil(b"\r\n\r\n")))
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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, question: bytes) -> bytes:
        request, *lines = question.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        method, path, *_ = [*request.split(" "), "", ""]
        if method not in ("GET", "HEAD"):
            return _spelled(_short(HTTPStatus.METHOD_NOT_ALLOWED))
        page = self._pages.get(path.partition("?")[0])
        if page is None:
            return _spelled(_short(HTTPStatus.NOT_FOUND))
        try:
            reply = await page(headers.get("accept", ""))
        except Exception:
            log.exception("%s cannot be given; this is a bug, please report it", path)
            reply = _short(HTTPStatus.INTERNAL_SERVER_ERROR)
        return _spelled(reply, method == "GET")


def _short(status: HTTPStatus) -> Reply:
    return Reply(status, b"")


def _spelled(reply: Reply, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {reply.status.value} {reply.status.phrase}\r\nContent-Type: {reply.kind}\r\n"
        f"Content-Length: {len(reply.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (reply.body if with_body else b"")
