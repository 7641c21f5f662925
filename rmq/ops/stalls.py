"""Finds out what holds the event loop up, and where: a thread asks the loop to answer every few milliseconds, and looks at its
stack while it does not. Costs some 1 % of a core while somebody watches, else nothing.
"""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple, Self

WATCH_S: Final = 5.0
STALL_S: Final = 0.01
_PAUSE_S, _LOOK_S = 0.005, 0.002
_PROMPT_S: Final = 0.001  # a watcher that itself had to wait for longer cannot tell what happened meanwhile
_ROOT: Final = str(Path(__file__).parents[1]) + "/"
_IDLE: Final = frozenset({"_worker", "wait", "select", "poll", "accept", "_wait_for_tstate_lock"})  # innermost functions
_MOST_PLACES: Final = 5  # functions of one stack
_TASKS: Final = Path("/proc/self/task")
_TICK_S: Final = 0.01  # of /proc/stat
_AWAKE: Final = ("", "0")  # wchan of a thread that does not sleep


class Spent(NamedTuple):
    """Seconds. Of the loop's thread: on a core, and without one though it could run. The same of all other threads together.
    `stolen`: of all cores by the machine's host. `gc`: of Python's collector."""

    cpu: float = 0.0
    no_core: float = 0.0
    others_cpu: float = 0.0
    others_no_core: float = 0.0
    stolen: float = 0.0
    gc: float = 0.0

    def since(self, before: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


class Stall(NamedTuple):
    """The loop did not answer for `ms`. Of these `ours_ms` are this program's doing, the rest is the machine's: no core was free
    for the loop, or for the thread that it waited for. `cause`: what took most of the time, in words.

    The loop's thread ran for `cpu_ms`, and could have run for `no_core_ms` if a core had been free (Linux). Else it waited:
    in the kernel, or for the interpreter, while other threads ran (`others_cpu_ms`) or had no core (`others_no_core_ms`).
    `stolen_ms`: the host of a virtual machine let it stand still. `gc_ms`: of Python's collector. `where`: the functions in
    which the loop was, "" if nobody could look meanwhile; `kernel`: the kernel's function in which it slept; `beside`: what other
    threads did.
    """

    ms: float
    ours_ms: float
    cause: str
    cpu_ms: float
    no_core_ms: float
    others_cpu_ms: float
    others_no_core_ms: float
    stolen_ms: float
    gc_ms: float
    where: str
    kernel: str
    beside: str


def judged(took_s: float, spent: Spent, where: str = "", kernel: str = "", beside: str = "") -> Stall:
    """Whose doing it was. What other threads ran comes first: only what that leaves can be the machine's."""
    waited = max(0.0, took_s - spent.cpu - spent.no_core)
    lent = min(waited, spent.others_cpu)
    inverted = min(waited - lent, spent.others_no_core)
    stolen = min(waited - lent - inverted, spent.stolen)
    slept = waited - lent - inverted - stolen
    parts = {
        "no core was free for the loop": spent.no_core,
        "no core was free for a thread that the loop waited for": inverted,
        "the machine's host let it stand still": stolen,
        "Python's collector": spent.gc,
        f"the loop's own work: {where or 'over before anybody could look'}": spent.cpu - spent.gc,
        f"another thread had the interpreter: {beside or 'over before anybody could look'}": lent,
        f"the kernel let it wait ({kernel or '?'}): {where or 'over before anybody could look'}": slept,
    }
    return Stall(
        ms=_ms(took_s),
        ours_ms=_ms(max(0.0, took_s - spent.no_core - inverted - stolen)),
        cause=max(parts, key=lambda part: parts[part]),
        cpu_ms=_ms(spent.cpu),
        no_core_ms=_ms(spent.no_core),
        others_cpu_ms=_ms(spent.others_cpu),
        others_no_core_ms=_ms(spent.others_no_core),
        stolen_ms=_ms(stolen),
        gc_ms=_ms(spent.gc),
        where=where,
        kernel=kernel,
        beside=beside,
    )


class _Clocks:
    """What the threads of this process have spent so far, as Linux counts it; zeros elsewhere. Later threads are left out."""

    def __init__(self, loop_thread: int) -> None:
        self._loop = _opened(_TASKS / str(loop_thread) / "schedstat")
        ids = [name for name in os.listdir(_TASKS) if name != str(loop_thread)] if _TASKS.is_dir() else []
        self._others = [handle for name in ids for handle in _opened(_TASKS / name / "schedstat")]
        self._machine = _opened(Path("/proc/stat"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in (*self._loop, *self._others, *self._machine):
            os.close(handle)

    def spent(self, gc_s: float) -> Spent:
        return Spent(*_schedule(self._loop), *_schedule(self._others), self._stolen(), gc_s)

    def _stolen(self) -> float:
        fields = [int(os.pread(handle, 200, 0).split(maxsplit=9)[8]) for handle in self._machine]
        return sum(fields) * _TICK_S


def _opened(path: Path) -> list[int]:
    with contextlib.suppress(OSError):  # not Linux, or the thread has ended
        return [os.open(path, os.O_RDONLY)]
    return []


def _schedule(handles: Sequence[int]) -> tuple[float, float]:
    ran = waited = 0
    for handle in handles:
        with contextlib.suppress(OSError):  # the thread has ended
            on_core, without, *_ = os.pread(handle, 64, 0).split()
            ran, waited = ran + int(on_core), waited + int(without)
    return ran / 1e9, waited / 1e9


class _Question:
    """Put to the loop, which answers in its own thread. `spent`: by the threads until then, if that was late."""

    def __init__(self, clocks: _Clocks, collected: Callable[[], float]) -> None:
        self._clocks, self._collected = clocks, collected
        begun = time.perf_counter()
        self._before = clocks.spent(collected())
        self._asked = time.perf_counter()
        self.prompt = self._asked - begun < _PROMPT_S
        self.took_s = -1.0
        self.spent = Spent()

    def answer(self) -> None:
        took_s = time.perf_counter() - self._asked
        if took_s > STALL_S:
            self.spent = self._clocks.spent(self._collected()).since(self._before)
        self.took_s = took_s


class StallWatch:
    """Made on the loop that is watched. `collected()`: seconds that Python's collector has run so far."""

    def __init__(self, collected: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._collected = collected
        self._thread = threading.get_ident()
        self._task = threading.get_native_id()

    async def watch(self) -> list[Stall]:
        """All stalls of the next seconds, except those that were over before they were noticed. Runs on another thread's loop."""
        found: list[Stall] = []
        until = time.perf_counter() + WATCH_S
        with _Clocks(self._task) as clocks:
            while time.perf_counter() < until:
                found += await self._probed(_Question(clocks, self._collected))
                await asyncio.sleep(_PAUSE_S)
        return found

    async def _probed(self, question: _Question) -> list[Stall]:
        """The stall that the question met, if any."""
        if not question.prompt:
            return []
        where, kernel, beside = Counter[str](), Counter[str](), Counter[str]()
        self._loop.call_soon_threadsafe(question.answer)
        while question.took_s < 0:
            await asyncio.sleep(_LOOK_S)
            if question.took_s < 0:
                here, others = self._look()
                where[here] += 1
                kernel.update(self._sleeps())
                beside.update(others)
        if question.took_s <= STALL_S:
            return []
        return [judged(question.took_s, question.spent, _most(where), _most(kernel), ", ".join(sorted(beside)))]

    def _look(self) -> tuple[str, list[str]]:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        frames = sys._current_frames()
        others = [
            f"{names.get(ident, '?')}: {_spelled(frame)}"
            for ident, frame in frames.items()
            if ident not in (self._thread, threading.get_ident()) and frame.f_code.co_name not in _IDLE
        ]
        return _spelled(frames[self._thread]), others

    def _sleeps(self) -> Iterator[str]:
        """The kernel's function in which the loop's thread is, if it sleeps."""
        with contextlib.suppress(OSError):  # not Linux
            name = (_TASKS / str(self._task) / "wchan").read_text()
            if name not in _AWAKE:
                yield name


def _most(counted: Counter[str]) -> str:
    return counted.most_common(1)[0][0] if counted else ""


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
