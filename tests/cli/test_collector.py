"""Python's cycle collector in a node: what it looks at, whatever a node holds."""

import asyncio
import gc
import subprocess
import sys

from rmq.commands.shared import collector
from rmq.testing import TestClock

_SCRIPT = """
import gc
from rmq.commands.shared import collector

class Circle:
    def __init__(self):
        self.me = self

made, seen = [], []
collector.settle()
collector.settle()  # a broker and a nameserver in one process

def watch(phase, about):
    if phase == "start":
        seen.append(sum(len(gc.get_objects(each)) for each in range(about["generation"] + 1)))

gc.callbacks.append(watch)
for number in range(300_000):  # a node grows: topics, queues, offsets
    made.append([number])
    if number % 10 == 0:
        Circle()
print(max(seen), len(seen), sum(isinstance(one, Circle) for one in gc.get_objects()))
"""


def test_it_never_looks_at_all_that_a_node_holds() -> None:
    """With the thresholds of before, one look could be at two million objects: 177 to 289 ms in which nobody was served."""
    command = [sys.executable, "-c", _SCRIPT]
    most, looks, circles = map(
        int, subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.split()
    )
    assert looks > 10
    assert most < 25_000, "objects that it looked at at once"
    assert circles < 10_000, "they are found while they are new"


class Circle:
    def __init__(self) -> None:
        self.me = self


async def test_what_was_in_use_for_long_is_found_once_an_hour_or_a_day() -> None:
    def left() -> bool:
        return any(isinstance(one, Circle) for one in gc.get_objects())

    clock = TestClock(running=False)
    looking = asyncio.create_task(collector.look_now_and_then(clock))
    gc.disable()
    try:
        Circle()
        for _ in range(59):
            await clock.advance(collector.MINUTE_S)
        assert left(), "not each minute"
        async with asyncio.timeout(60):
            while left():
                await clock.advance(collector.MINUTE_S)
        assert clock.monotonic() <= collector.DAY_S + 2 * collector.MINUTE_S
    finally:
        gc.enable()
        looking.cancel()
