"""config/*.json: this broker's tables as RocketMQ's own programs would find them.

Exports only, for RocketMQ's eyes: never read back, except after RocketMQ itself wrote them (`rmq.broker.adoption`). The old file
stays beside the new one as `.bak`, as in RocketMQ.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import aiofiles
import aiofiles.os
import orjson

from rmq.broker.feature import At, Feature, Job
from rmq.errors import StoreError
from rmq.log.files.disk import private

SAVE_S = 5.0
_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


class Exports(Feature):
    """`tables`: file name -> the JSON value (or bytes) it should hold now, or what makes it from a copy in a thread: with
    hundreds of thousands of rows it takes seconds. None: no such file is needed."""

    def __init__(self, folder: Path, tables: Mapping[str, Callable[[], object]]) -> None:
        self._folder = folder
        self._tables = tables
        self._written: dict[str, bytes] = {}
        self.jobs = (Job(SAVE_S, "exports", self.save, At.WRITABLE),)

    async def finish(self) -> None:
        await self.save()

    async def save(self) -> None:
        """Write the files that changed. Raises StoreError."""
        for name, table in self._tables.items():
            value = table()
            if value is None:
                continue
            text = value if isinstance(value, bytes) else await asyncio.to_thread(_text, value)
            if self._written.get(name) != text:
                await self._replace(name, text)
                self._written[name] = text

    async def _replace(self, name: str, text: bytes) -> None:
        path, new = self._folder / name, self._folder / f"{name}.new"
        try:
            await aiofiles.os.makedirs(self._folder, mode=0o700, exist_ok=True)
            async with aiofiles.open(new, "wb", opener=private) as file:
                await file.write(text)
                await file.flush()
                await aiofiles.os.wrap(os.fsync)(file.fileno())
            if await aiofiles.os.path.exists(path):
                await aiofiles.os.replace(path, self._folder / f"{name}.bak")
            await aiofiles.os.replace(new, path)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error}; is the disk full or read-only?") from error


def _text(value: object) -> bytes:
    return orjson.dumps(value() if callable(value) else value, option=_OPTIONS)
