"""Long work on the event loop, some at a time."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
_STEP = 2_000


async def some_at_a_time(rows: Iterable[T], step: int = _STEP) -> AsyncIterator[list[T]]:
    """The same rows in lists of at most `step`; between two the loop serves others. Nothing may change `rows` meanwhile."""
    rest = iter(rows)
    while some := list(islice(rest, step)):
        yield some
        await asyncio.sleep(0)
