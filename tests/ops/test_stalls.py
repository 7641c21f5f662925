"""`/stalls`: for how long the loop was held up, in which function, and whose doing that was."""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rmq.ops import stalls
from rmq.ops.stalls import Spent, judged
from tests.ops.watching import exported, page

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux counts the time of each thread")


@asynccontextmanager
async def collecting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[], Any]]:
    """Gives what lets the loop turn once, and returns the stalls once there are any."""
    monkeypatch.setattr(stalls, "WATCH_S", 0.2)
    async with exported() as address:
        asking = asyncio.create_task(page(address, "/stalls"))

        async def turn() -> list[dict[str, Any]]:
            nonlocal asking
            await asyncio.sleep(0)
            if not asking.done():
                return []
            status, text = asking.result()
            assert status == 200
            asking = asyncio.create_task(page(address, "/stalls"))
            return [json.loads(line) for line in text.splitlines()]

        yield turn
        asking.cancel()


async def test_what_holds_the_loop_up_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def hold_the_loop() -> None:
        until = time.perf_counter() + 4 * stalls.STALL_S
        while time.perf_counter() < until:
            pass

    found: list[dict[str, Any]] = []
    async with collecting(monkeypatch) as turn:
        while not any("hold_the_loop" in stall["where"] for stall in found):
            hold_the_loop()
            found += await turn()
    assert all(stall["ms"] > stalls.STALL_S * 1000 for stall in found)
    assert all(0 <= stall["ours_ms"] <= stall["ms"] for stall in found)


@linux
async def test_a_wait_in_the_kernel_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here for bytes of a pipe; with a slow disk it is the same."""
    reading, writing = os.pipe()

    def wait_in_the_kernel() -> None:
        threading.Timer(4 * stalls.STALL_S, os.write, (writing, b"x")).start()
        os.read(reading, 1)

    try:
        async with collecting(monkeypatch) as turn:
            while not any(stall["cause"].startswith("the kernel let it wait (") for stall in await turn()):
                wait_in_the_kernel()
    finally:
        os.close(reading)
        os.close(writing)


@linux
async def test_a_thread_that_keeps_the_interpreter_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one long call that does not give it back, whatever the switch interval is."""
    numbers, ended = [*range(2_000_000, 0, -1)] * 2, threading.Event()

    def keep_the_interpreter() -> None:
        while not ended.wait(0.02):
            max(numbers)

    keeping = threading.Thread(target=keep_the_interpreter, name="keeper")
    keeping.start()
    try:
        async with collecting(monkeypatch) as turn:
            while not any(stall["cause"].startswith("another thread had the interpreter") for stall in await turn()):
                pass
    finally:
        ended.set()
        keeping.join()


def test_whose_doing_it_was() -> None:
    """What the machine did is taken off; what other threads ran comes before what they could not run."""
    ours = judged(0.020, Spent(cpu=0.018), where="a.py:f")
    assert (ours.ours_ms, ours.cause) == (20.0, "the loop's own work: a.py:f")
    starved = judged(0.030, Spent(cpu=0.004, no_core=0.025))
    assert (starved.ours_ms, starved.cause) == (5.0, "no core was free for the loop")
    lent = judged(0.020, Spent(cpu=0.002, others_cpu=0.030, others_no_core=0.030), beside="x: b.py:g")
    assert (lent.ours_ms, lent.cause) == (20.0, "another thread had the interpreter: x: b.py:g")
    inverted = judged(0.020, Spent(cpu=0.002, others_cpu=0.003, others_no_core=0.014))
    assert (inverted.ours_ms, inverted.cause) == (6.0, "no core was free for a thread that the loop waited for")
    stolen = judged(0.020, Spent(cpu=0.002, stolen=0.040))
    assert (stolen.ours_ms, stolen.stolen_ms, stolen.cause) == (2.0, 18.0, "the machine's host let it stand still")
    asleep = judged(0.020, Spent(cpu=0.002), where="a.py:f", kernel="folio_wait_bit_common")
    assert (asleep.ours_ms, asleep.cause) == (20.0, "the kernel let it wait (folio_wait_bit_common): a.py:f")
    assert judged(0.020, Spent(cpu=0.019, gc=0.015)).cause == "Python's collector"
