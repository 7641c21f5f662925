"""config/*.json: this broker's tables as RocketMQ's own programs would find them.

Exports only, for RocketMQ's eyes: never read back, except after RocketMQ itself wrote them (`rmq.broker.adoption`). The old file
stays beside the new one as `.bak`, as in RocketMQ.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Final

import aiofiles
import aiofiles.os
import orjson

from rmq.background import Rests
from rmq.broker.feature import At, Export, Feature, Job
from rmq.errors import StoreError
from rmq.log.files.disk import private

SAVE_S = 5.0
_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
_AT_ONCE: Final = 256  # rows that are written together: nothing else runs meanwhile


class Exports(Feature):
    """`tables`: by file name. `check()` raises OSError where the folder may not be written to."""

    def __init__(self, folder: Path, tables: Mapping[str, Export], check: Callable[[], None]) -> None:
        self._folder = folder
        self._check = check
        self._tables = tables
        self._written: dict[str, bytes] = {}  # the digest of what each file holds: topics.json may have 24 MB
        self._versions: dict[str, object] = {}  # of what was written
        self.jobs = (Job(SAVE_S, "exports", self.save, At.WRITABLE),)

    async def finish(self) -> None:
        await self.save()

    async def save(self) -> None:
        """Write the files that changed. One that cannot be written does not keep the others from it. Raises StoreError."""
        failed = list[StoreError]()
        for name, export in self._tables.items():
            try:
                await self._save(name, export)
            except StoreError as error:
                failed.append(error)
        if failed:
            raise StoreError("; ".join(map(str, failed)))

    async def _save(self, name: str, export: Export) -> None:
        value_of, version_of, empty = export
        version = None if version_of is None else version_of()
        if version is not None and self._versions.get(name) == version:
            return
        await asyncio.sleep(0)  # some take a ms or two, and most turn out not to have changed
        value = value_of()
        if value is None and empty is not None and await aiofiles.os.path.exists(self._folder / name):
            value = empty  # its last row was deleted: RocketMQ would find what the file held before
        if value is None:
            return
        try:
            text, digest = await asyncio.to_thread(_text, value)
        except orjson.JSONEncodeError as error:
            raise StoreError(f"cannot write {self._folder / name}: {error}; is a value there nested very deep?") from error
        if self._written.get(name) != digest:
            await self._replace(name, text)
            self._written[name] = digest
        self._versions[name] = version

    async def _replace(self, name: str, text: bytes) -> None:
        path, new = self._folder / name, self._folder / f"{name}.new"
        try:
            self._check()
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


def _text(value: object) -> tuple[bytes, bytes]:
    """What is to be written, and its digest. In a thread, which rests now and then."""
    rests = Rests()
    made = value(rests.between) if callable(value) else value
    if isinstance(made, dict):
        made = b"".join(rests.between(_pieces(made)))
    elif not isinstance(made, bytes):
        made = orjson.dumps(made, option=_OPTIONS)
    return made, blake2b(made).digest()


def _pieces(table: dict[str, Any]) -> Iterable[bytes]:
    """A JSON object as `orjson.dumps` writes it, some rows of its tables at a time."""
    before = b"{"
    for name in sorted(table):
        rows = table[name]
        many = isinstance(rows, dict) and len(rows) > _AT_ONCE
        for first, some in enumerate(_some(rows)) if many else ((0, rows),):
            text = orjson.dumps({name: some}, option=_OPTIONS)
            yield before + text[text.index(b"{", 1) + 1 if first else 1 : -6 if many else -2]
            before = b","
        if many:
            yield b"\n  }"
    yield b"\n}" if table else b"{}"


def _some(rows: dict[Any, Any]) -> Iterable[dict[Any, Any]]:
    """Some rows at a time, in the order of their names."""
    items = iter(sorted(rows.items(), key=lambda row: str(row[0])))
    while some := dict(islice(items, _AT_ONCE)):
        yield some
