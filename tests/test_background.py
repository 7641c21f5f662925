"""Work that goes on behind the others."""

import asyncio
from typing import Any

from rmq import background


async def test_an_error_that_ends_it_is_told_at_once_though_the_task_is_kept() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    async def fails() -> None:
        raise ZeroDivisionError

    async def waits() -> None:
        await asyncio.Event().wait()

    kept = [background.start(fails(), "counting"), background.start(waits(), "waiting")]
    await asyncio.wait(kept[:1])
    await asyncio.sleep(0)
    kept[1].cancel()
    await asyncio.wait(kept)
    await asyncio.sleep(0)
    assert [(context["message"], type(context["exception"])) for context in told] == [("counting broke off", ZeroDivisionError)]
