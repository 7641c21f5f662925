"""Finds out what holds the event loop up, and where: a thread asks the loop to answer every few milliseconds, and looks at its
stack while it does not. Costs some 1 % of a core while somebody watches, else nothing.
"""

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

WATCH_S: Final = 5.0
STALL_S: Final = 0.01
_PAUSE_S, _LOOK_S = 0.005, 0.002
_ROOT: Final = str(Path(__file__).parents[1]) + "/"
_IDLE: Final = frozenset({"_worker", "wait", "select", "poll", "accept", "_wait_for_tstate_lock"})  # innermost functions
_MOST_PLACES: Final = 5  # functions of one stack


class Stall(NamedTuple):
    """The loop did not answer for `ms`. Meanwhile its thread ran for `cpu_ms`, and could have run for `no_core_ms` if a core had
    been free (Linux); `gc_ms`: of Python's collector. In the rest it waited: for the disk, or for other threads of Python, which
    `beside` names. `where`: the functions in which it was, "" if nobody could look meanwhile."""

    ms: float
    cpu_ms: float
    no_core_ms: float
    gc_ms: float
    where: str
    beside: str


class StallWatch:
    """Made on the loop that is watched. `collected()`: seconds that Python's collector has run so far."""

    def __init__(self, collected: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._collected = collected
        self._thread = threading.get_ident()
        self._schedule = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    async def watch(self) -> list[Stall]:
        """All stalls of the next seconds, except those that were over before they were noticed. Runs on another thread's loop."""
        found: list[Stall] = []
        until = time.perf_counter() + WATCH_S
        while time.perf_counter() < until:
            stall = await self._probe()
            if stall.ms > STALL_S * 1000:
                found.append(stall)
            await asyncio.sleep(_PAUSE_S)
        return found

    async def _probe(self) -> Stall:
        answered: list[float] = []
        where, beside = Counter[str](), Counter[str]()
        before, asked = self._spent(), time.perf_counter()
        self._loop.call_soon_threadsafe(lambda: answered.append(time.perf_counter()))
        while not answered:
            await asyncio.sleep(_LOOK_S)
            if not answered:
                here, others = self._look()
                where[here] += 1
                beside.update(others)
        cpu_s, waited_s, gc_s = (after - start for after, start in zip(self._spent(), before, strict=True))
        most = where.most_common(1)
        return Stall(
            _ms(answered[0] - asked), _ms(cpu_s), _ms(waited_s), _ms(gc_s), most[0][0] if most else "", ", ".join(sorted(beside))
        )

    def _spent(self) -> tuple[float, float, float]:
        """Of the loop's thread: seconds on a core, seconds without one though it could run, seconds of the collector."""
        try:
            ran, waited, *_ = self._schedule.read_text().split()
        except (OSError, ValueError):  # not Linux
            ran = waited = "0"
        return int(ran) / 1e9, int(waited) / 1e9, self._collected()

    def _look(self) -> tuple[str, list[str]]:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        frames = sys._current_frames()
        others = [
            f"{names.get(ident, '?')}: {_spelled(frame)}"
            for ident, frame in frames.items()
            if ident not in (self._thread, threading.get_ident()) and frame.f_code.co_name not in _IDLE
        ]
        return _spelled(frames[self._thread]), others


def _spelled(frame: FrameType | None) -> str:
    """The innermost functions, those of rmq, and the one that runs; the outermost first."""
    places: list[str] = []
    while frame is not None and len(places) < _MOST_PLACES:
        code = frame.f_code
        if code.co_filename.startswith(_ROOT):
            places.append(f"{code.co_filename.removeprefix(_ROOT)}:{code.co_name}")
        elif not places:
            places.append(f"{Path(code.co_filename).name}:{code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(places))


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
