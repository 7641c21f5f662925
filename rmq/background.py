"""Work that a part of a node goes on with for as long as it is there."""

import asyncio
from collections.abc import Coroutine
from typing import Any


def start(work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    """A task that only its owner ends, by cancelling it. If an error ends it, the loop's exception handler hears of it at once;
    asyncio would say nothing for as long as somebody keeps the task."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell)
    return task


def _tell(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": f"{task.get_name()} broke off", "exception": error, "task": task})
