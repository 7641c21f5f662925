"""Offsets of broadcast groups in a file of this host. Apart from `offsets`, so that only broadcast consumers load aiofiles."""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiofiles
import aiofiles.os

from rmq.client.consumer.offsets import Stored
from rmq.errors import BadBytes, StoreError
from rmq.model import MessageQueue

_MOST = 2**63  # what an offset stays below


class FileOffsets:
    """Offsets of a broadcast group in one JSON file: read once, replaced as a whole (C15, D5) [LocalFileOffsetStore]."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, Stored] = {}
        self._busy = asyncio.Lock()

    async def open(self) -> None:
        self._offsets = await self._read()

    async def load(self, queue: MessageQueue) -> Stored:
        return self._offsets.get(queue, Stored(None))

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)

    async def save(
        self, offsets: Mapping[MessageQueue, int], sync: bool, lasts: Mapping[MessageQueue, tuple[int, int]] = {}
    ) -> None:
        """Goes on if who waits is cancelled, as one that is under way when a consumer is closed: the next save would begin the
        file anew while a thread still writes it, or puts it in its place."""
        self._offsets |= {queue: Stored(offset, last=lasts.get(queue, (-1, -1))) for queue, offset in offsets.items()}
        await asyncio.shield(asyncio.create_task(self._save(), name=f"save {self._path}"))

    async def _save(self) -> None:
        async with self._busy:
            try:
                await self._write(self._offsets)
            except (OSError, RuntimeError) as error:
                raise self._trouble(error) from error

    def _trouble(self, error: OSError | RuntimeError) -> StoreError:
        """A RuntimeError: the system has no room for a thread."""
        if isinstance(error, RuntimeError):
            return StoreError(f"{self._path}: {error}: allow this process more threads")
        about = "make room and see to its rights, or choose another ClientSettings.offsets_directory"
        return StoreError(f"{self._path}: {error.strerror}: {about}")

    async def _read(self) -> dict[MessageQueue, Stored]:
        try:
            async with aiofiles.open(self._path, encoding="utf-8") as file:
                text = await file.read()
        except FileNotFoundError:
            return {}
        except (OSError, RuntimeError) as error:
            raise self._trouble(error) from error
        try:
            return dict(map(_entry, json.loads(text)["offsets"]))
        except (ValueError, KeyError, TypeError) as error:
            raise BadBytes(f"{self._path} does not hold offsets ({error}): repair it, or remove it to begin anew") from error

    async def _write(self, offsets: Mapping[MessageQueue, Stored]) -> None:
        await aiofiles.os.makedirs(self._path.parent, mode=0o700, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        async with aiofiles.open(temporary, "w", encoding="utf-8") as file:
            rows = [_row(queue, stored) for queue, stored in sorted(offsets.items())]
            await file.write(json.dumps({"offsets": rows}, indent=1))
            await file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        await aiofiles.os.replace(temporary, self._path)


def _entry(row: dict[str, Any]) -> tuple[MessageQueue, Stored]:
    """Raises ValueError, KeyError, TypeError."""
    queue, offset = MessageQueue(row["topic"], row["broker"], row["queue"]), row["offset"]
    last = (row.get("last", offset - 1), row["after"]) if "after" in row else (-1, -1)
    good = 0 <= offset < _MOST > max(last) >= min(last) >= -1
    if not good or [*map(type, (*queue, offset, *last))] != [str, str, *[int] * 4]:
        raise ValueError(f"{row} is no place in a queue")
    return queue, Stored(offset, last=last)


def _row(queue: MessageQueue, stored: Stored) -> dict[str, Any]:
    row = {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id, "offset": stored.offset}
    last, after = stored.last
    return row if after < 0 else row | {"last": last, "after": after}
