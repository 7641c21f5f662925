"""A handler's time: who is cancelled, by whom, and that one timer is enough."""

import asyncio

import pytest

from rmq.client.consumer.patience import Patience


async def test_what_takes_too_long_ends_as_timeout() -> None:
    patience = Patience(0.01)
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


async def test_a_timer_set_for_an_earlier_one_ends_nobody() -> None:
    patience = Patience(0.02)
    for _ in range(4):
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.012, done.set_result, None)
        with patience:
            await done
        assert not patience.expired
    patience.close()


async def test_forever_is_forever() -> None:
    patience = Patience(None)
    with patience:
        await asyncio.sleep(0)
    patience.close()
