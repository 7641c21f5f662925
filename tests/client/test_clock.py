"""The clock that tests move, and the broker in their process."""

import asyncio
import shutil
from math import inf

import pytest

from rmq.asking import told
from rmq.errors import StoreError
from rmq.testing import LocalBroker, TestClock


async def test_a_standing_clock_moves_only_by_hand_and_wakes_sleepers_in_order() -> None:
    clock, woken = TestClock(running=False, wall_ms=1000), []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.monotonic()))

    tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (30, 10, 20)]
    await asyncio.sleep(0)
    await clock.advance(25)
    assert woken == [(10, 10.0), (20, 20.0)]
    assert (clock.monotonic(), clock.wall_ms()) == (25.0, 26_000)
    await clock.advance(5)
    await asyncio.gather(*tasks)
    assert woken[-1] == (30, 30.0)


async def test_a_loop_that_sleeps_again_and_again_sees_each_period() -> None:
    clock, seen = TestClock(running=False), []

    async def loop() -> None:
        while True:
            await clock.sleep(10)
            seen.append(clock.monotonic())

    task = asyncio.create_task(loop())
    await asyncio.sleep(0)
    await clock.advance(35)
    assert seen == [10.0, 20.0, 30.0]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_running_clock_runs_and_can_be_moved() -> None:
    clock = TestClock()
    await clock.sleep(0.001)
    task = asyncio.create_task(clock.sleep(3600))
    await asyncio.sleep(0)
    await clock.advance(3600)
    await task


async def test_the_wall_clock_jumps_alone() -> None:
    """T1."""
    clock = TestClock(running=False, wall_ms=5_000)
    clock.jump_wall(-4_000)
    assert (clock.wall_ms(), clock.monotonic()) == (1_000, 0.0)


async def test_who_has_slept_leaves_nothing() -> None:
    """A broker on a running clock sleeps some thousand times a minute, and nobody has to move that clock."""
    clock = TestClock()
    for _ in range(100):
        await clock.sleep(0.0001)
    assert clock.sleepers == 0
    assert len(vars(clock)["_sleepers"]) < 10


async def test_a_broker_that_cannot_stop_in_order_leaves_nothing() -> None:
    """Its nameserver went on, on a port that the process kept, and its store was left in the directory for temporary files."""
    async with LocalBroker() as broker:
        shutil.rmtree(broker.store_dir / "rmq")
        (broker.store_dir / "rmq").touch()
        with pytest.raises(StoreError, match="cannot save progress"):
            await broker.close()
    assert broker.parts == []
    assert not broker.store_dir.exists()


async def test_others_are_waited_for_as_long_as_what_was_told_leaves_them_and_never_longer_again() -> None:
    clock, answers = TestClock(running=False), [asyncio.Future[str]() for _ in range(4)]

    def patience_s(told: list[str]) -> float:
        return 0.25 if "yes" in told else 1.0 if told else inf

    async def of(answer: "asyncio.Future[str]") -> str:
        return await answer

    asked = [asyncio.create_task(of(answer)) for answer in answers]
    waiting = asyncio.create_task(told(clock, asked, patience_s))
    await clock.advance(1000)
    assert not waiting.done(), "nobody said anything"
    for number, answer, then_s in ((3, "no", 0.5), (0, "yes", 0.125), (1, "no", 0.0625)):
        answers[number].set_result(answer)
        await clock.advance(0)
        await clock.advance(then_s)
    assert not waiting.done()
    await clock.advance(0.0625)
    assert await waiting == ["yes", "no", "no"]
    assert await told(clock, asked, lambda told: 0.0) == ["yes", "no", "no"]
    answers[2].set_result("late")
    assert await told(clock, asked, lambda told: inf) == ["yes", "no", "late", "no"]
    assert clock.sleepers == 0
