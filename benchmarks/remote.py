"""A connection in RocketMQ's JSON codec with many requests open at once. Every broker of RocketMQ's kind understands it."""

import asyncio
import json
import struct
from types import TracebackType
from typing import NamedTuple

from benchmarks.frames import json_frame


class Answered(NamedTuple):
    code: int
    fields: dict[str, str]
    body: bytes


class Remote:
    """`async with Remote(port) as remote`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._waiting: dict[int, asyncio.Future[Answered]] = {}
        self._last = 0

    async def __aenter__(self) -> "Remote":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reading.cancel()
        self._writer.close()

    async def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> Answered:
        self._last += 1
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = answer
        self._writer.write(json_frame(code, fields, body, self._last))
        return await answer

    async def _read(self) -> None:
        try:
            while True:
                size, head = struct.unpack(">ii", await self._reader.readexactly(8))
                rest = await self._reader.readexactly(size - 4)
                header = json.loads(rest[: head & 0xFFFFFF])
                if (waiting := self._waiting.pop(header["opaque"], None)) is not None:
                    waiting.set_result(Answered(header["code"], header.get("extFields") or {}, rest[head & 0xFFFFFF :]))
        finally:
            for waiting in self._waiting.values():
                waiting.cancel("the connection ended")
