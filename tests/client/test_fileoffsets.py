"""The file of a broadcast group's offsets is written by threads, which nobody can cancel."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rmq.client import Client
from rmq.client.consumer.fileoffsets import FileOffsets
from rmq.client.consumer.offsets import Stored
from rmq.testing import until
from tests.client.scripted import queue


class SlowDisk(ThreadPoolExecutor):
    """Does all at once, but takes its time to put a file in its place."""

    def __init__(self) -> None:
        super().__init__(4)
        self.asked: list[object] = []
        self.goes_on = threading.Event()

    def submit(self, work: Any, /, *args: Any, **more: Any) -> Any:
        self.asked.append(asked := getattr(work, "func", work))
        if asked is os.replace:
            return super().submit(lambda: self.goes_on.wait(30) and work(*args, **more))
        return super().submit(work, *args, **more)


async def test_a_file_of_offsets_is_not_begun_anew_while_a_cancelled_save_still_writes_it(tmp_path: Path) -> None:
    """As when a consumer is closed just while it commits: the second save renamed what the first one had renamed already."""
    asyncio.get_running_loop().set_default_executor(disk := SlowDisk())
    offsets = FileOffsets(tmp_path / "g.json")
    first = asyncio.create_task(offsets.save({queue("T", 0): 1}, sync=False))
    await until(lambda: os.replace in disk.asked)
    first.cancel()
    asked = len(disk.asked)
    second = asyncio.create_task(offsets.save({queue("T", 0): 2}, sync=True))
    await until(first.done)
    for _ in range(10):
        await asyncio.sleep(0)
    begun = disk.asked[asked:]
    disk.goes_on.set()
    await second
    assert first.cancelled()
    assert begun == []
    await offsets.open()
    assert await offsets.load(queue("T", 0)) == Stored(2)


def test_a_user_without_a_home_has_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number alone, as services and containers run under. No client could be made, of whatever kind, and no command ran."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(RuntimeError):
        Path.home()
    assert Client("127.0.0.1:1").session.settings.offsets_directory == Path("/.rmq-offsets")
