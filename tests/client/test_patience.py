"""A handler's time: who is cancelled, by whom, and that one timer is enough."""

import asyncio
from collections.abc import Callable

import pytest

from rmq.client.consumer.patience import Patience


@pytest.fixture
async def move(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the loop's clock, which stands still otherwise."""
    loop = asyncio.get_running_loop()
    now = [loop.time()]
    monkeypatch.setattr(loop, "time", lambda: now[0])
    return lambda seconds: now.append(now.pop() + seconds)


async def test_what_takes_too_long_ends_as_timeout(move: Callable[[float], None]) -> None:
    patience = Patience(10.0)
    asyncio.get_running_loop().call_soon(move, 10.0)
    with pytest.raises(TimeoutError), patience:
        await asyncio.get_running_loop().create_future()
    assert patience.expired
    with patience:
        await asyncio.sleep(0)
    assert not patience.expired, "the next one has all its time"
    patience.close()


async def test_somebody_elses_cancel_stays_a_cancel() -> None:
    begun, seen = asyncio.Event(), []

    async def work() -> None:
        patience = Patience(3600.0)
        try:
            with patience:
                begun.set()
                await asyncio.get_running_loop().create_future()
        finally:
            seen.append(patience.expired)
            patience.close()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == [False]


async def test_a_timer_set_for_an_earlier_one_ends_nobody(move: Callable[[float], None]) -> None:
    patience = Patience(20.0)
    for _ in range(4):
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(move, 12.0)
        asyncio.get_running_loop().call_soon(done.set_result, None)
        with patience:
            await done
        assert not patience.expired
    patience.close()


async def test_forever_is_forever() -> None:
    patience = Patience(None)
    with patience:
        await asyncio.sleep(0)
    patience.close()


async def test_what_was_spent_before_is_no_part_of_the_time(move: Callable[[float], None]) -> None:
    patience = Patience(10.0)
    asyncio.get_running_loop().call_soon(move, 6.0)
    with pytest.raises(TimeoutError), patience.less(4.0):
        await asyncio.get_running_loop().create_future()
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(move, 6.0)
    asyncio.get_running_loop().call_later(0, done.set_result, None)
    with patience:
        await done
    assert not patience.expired, "the next one has all its time"
    patience.close()
