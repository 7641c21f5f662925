"""Where a consumer group's offsets are kept: at the brokers (cluster) or in a file of this host (broadcast).

An offset that cannot be read is an error, never 0 (C5).
"""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import aiofiles
import aiofiles.os

from rmq.client.connections import Connections
from rmq.client.routes import Routes
from rmq.codes import ResponseCode
from rmq.errors import BadBytes, Refusal
from rmq.model import MessageQueue
from rmq.net.commands import OffsetAnswer, QueryConsumerOffset, UpdateConsumerOffset


class OffsetStore(Protocol):
    async def open(self) -> None:
        """Called once, first. Raises RmqError when offsets will not be readable."""
        ...

    async def load(self, queue: MessageQueue) -> int | None:
        """The group's offset in the queue; None if it has none. Raises RmqError when that cannot be told now."""
        ...

    async def save(self, offsets: Mapping[MessageQueue, int], sync: bool) -> None:
        """Keep them; with `sync` return when they are durable. Raises RmqError."""
        ...


class BrokerOffsets:
    """Offsets of a group at the brokers that hold its queues [RemoteBrokerOffsetStore].

    `young_from_zero`: for a queue whose first message is still there and recent the broker may answer 0 instead of
    "none", so that a group that is new on a young topic misses nothing.
    """

    def __init__(self, group: str, connections: Connections, routes: Routes, young_from_zero: bool) -> None:
        self._group = group
        self._connections = connections
        self._routes = routes
        self._young_from_zero = young_from_zero

    async def open(self) -> None:
        """Brokers are asked queue by queue."""

    async def load(self, queue: MessageQueue) -> int | None:
        query = QueryConsumerOffset(self._group, queue.topic, queue.queue_id, self._young_from_zero)
        try:
            answer = await self._connections.request(self._routes.leader(queue.broker_name), query)
        except Refusal as refusal:
            if refusal.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        assert isinstance(answer, OffsetAnswer)
        return answer.offset

    async def save(self, offsets: Mapping[MessageQueue, int], sync: bool) -> None:
        results = await asyncio.gather(
            *(self._save_one(queue, offset, sync) for queue, offset in offsets.items()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _save_one(self, queue: MessageQueue, offset: int, sync: bool) -> None:
        update = UpdateConsumerOffset(self._group, queue.topic, queue.queue_id, offset)
        address = self._routes.leader(queue.broker_name)
        if sync:
            await self._connections.request(address, update)
        else:
            await self._connections.post(address, update)


class FileOffsets:
    """Offsets of a broadcast group in one JSON file: read once, written aside and swapped (C15, D5) [LocalFileOffsetStore]."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._busy = asyncio.Lock()

    async def open(self) -> None:
        self._offsets = await self._read()

    async def load(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    async def save(self, offsets: Mapping[MessageQueue, int], sync: bool) -> None:
        async with self._busy:
            self._offsets |= offsets
            await self._write(self._offsets)

    async def _read(self) -> dict[MessageQueue, int]:
        try:
            async with aiofiles.open(self._path, encoding="utf-8") as file:
                text = await file.read()
        except FileNotFoundError:
            return {}
        try:
            return {MessageQueue(row["topic"], row["broker"], row["queue"]): row["offset"] for row in json.loads(text)["offsets"]}
        except (ValueError, KeyError, TypeError) as error:
            raise BadBytes(f"{self._path} does not hold offsets ({error}): repair it, or remove it to begin anew") from error

    async def _write(self, offsets: Mapping[MessageQueue, int]) -> None:
        await aiofiles.os.makedirs(self._path.parent, mode=0o700, exist_ok=True)
        aside = self._path.with_suffix(".new")
        async with aiofiles.open(aside, "w", encoding="utf-8") as file:
            rows = [_row(queue, offset) for queue, offset in sorted(offsets.items())]
            await file.write(json.dumps({"offsets": rows}, indent=1))
            await file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        await aiofiles.os.replace(aside, self._path)


def _row(queue: MessageQueue, offset: int) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id, "offset": offset}
