"""Questions of a page that takes no longer than its reader waits."""

import asyncio
import gc

import pytest

from rmq.dashboard.bounded import AT_ONCE, ask_all


@pytest.mark.parametrize("leaves", [False, True])
async def test_questions_that_never_had_their_turn_leave_no_word(leaves: bool, recwarn: pytest.WarningsRecorder) -> None:
    """More than are asked at once, of brokers that say nothing, or of a reader who leaves: each other wrote "coroutine ...
    was never awaited" among what the dashboard says."""
    asked = [0]

    async def question() -> None:
        asked[0] += 1
        await asyncio.Event().wait()

    page = asyncio.create_task(ask_all({number: question() for number in range(2 * AT_ONCE)}, 60 if leaves else 0.01))
    if leaves:
        await asyncio.sleep(0)
        page.cancel()
        await asyncio.wait([page])
    else:
        found, silent = await page
        assert not found
        assert set(silent.values()) == {"no answer within 0.01 s"}
        assert asked == [AT_ONCE]
    del page  # its traceback holds all of them
    gc.collect()
    assert not recwarn.list
