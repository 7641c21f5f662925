"""A client that speaks RocketMQ's codec and follows no hints: what it sends and gets are frames."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rmq.net.remoting.headers import Header, read, write
from tests.net.java_peer import request_frame, send_frame


class JavaClient:
    """`pushed`: what the broker asked of it. `answers`: what it says to that, by code; a text refuses. `address`: its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pushed: list[tuple[Header, bytes]] = []
        self.answers: dict[int, bytes | str] = {}
        host, port = writer.get_extra_info("sockname")[:2]
        self.address = f"{host}:{port}"
        self._reader, self._writer = reader, writer
        self._opaque = 0
        self._waiting: dict[int, asyncio.Future[tuple[Header, bytes]]] = {}
        self._task = asyncio.create_task(self._read())

    @classmethod
    @asynccontextmanager
    async def connect(cls, address: str) -> "AsyncIterator[JavaClient]":
        host, _, port = address.rpartition(":")
        client = cls(*await asyncio.open_connection(host, int(port)))
        try:
            yield client
        finally:
            await client.close()

    async def close(self) -> None:
        self._writer.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def send(self, body: bytes, topic: str = "T", code: int = 310, **ext: str) -> "asyncio.Future[tuple[Header, bytes]]":
        self._opaque += 1
        usual = {"b": topic, "e": "0", "i": f"UNIQ_KEY\x01A{self._opaque}\x02"}
        frame = send_frame(self._opaque, body, False, code, **{**usual, **ext})
        return self._ask(frame)

    def ask(self, request: Any, binary: bool = False) -> "asyncio.Future[tuple[Header, bytes]]":
        self._opaque += 1
        return self._ask(request_frame(request, self._opaque, binary))

    def tell(self, request: Any) -> None:
        self._opaque += 1
        self._writer.write(request_frame(request, self._opaque, False, oneway=True))

    def greet(self, code: int, **ext: str) -> "asyncio.Future[tuple[Header, bytes]]":
        self._opaque += 1
        return self._ask(write(False, code, 0, self._opaque, "", ext))

    def body(self, code: int, body: bytes) -> "asyncio.Future[tuple[Header, bytes]]":
        self._opaque += 1
        return self._ask(write(False, code, 0, self._opaque, "", {}, body))

    def raw(self, code: int, ext: dict[str, str], body: bytes = b"") -> "asyncio.Future[tuple[Header, bytes]]":
        self._opaque += 1
        return self._ask(write(False, code, 0, self._opaque, "", ext, body))

    def _ask(self, frame: bytes) -> "asyncio.Future[tuple[Header, bytes]]":
        if self._task.done():
            raise ConnectionError("the broker closed this connection")
        answer = self._waiting[self._opaque] = asyncio.get_running_loop().create_future()
        self._writer.write(frame)
        return answer

    async def _read(self) -> None:
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                header, body = read(await self._reader.readexactly(size), 1 << 20)
                if header.flag & 1:
                    self._waiting.pop(header.opaque).set_result((header, body))
                else:
                    self.pushed.append((header, body))
                    if header.code in self.answers:
                        said = self.answers[header.code]
                        code, remark, answer = (1, said, b"") if isinstance(said, str) else (0, "", said)
                        self._writer.write(write(header.binary, code, 1, header.opaque, remark, None, answer))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionError(f"it ended: {error}"))


def members(body: bytes) -> list[str]:
    """Of an answer to GET_CONSUMER_LIST_BY_GROUP."""
    found: list[str] = json.loads(body)["consumerIdList"]
    return found
