"""One round of load at one broker: its CPU a message, rate and latencies, and whether it stored what was sent."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks import frames, targets
from benchmarks.targets import Target

SETTLE_SECONDS = 10
_IDLE_SHARE = 0.1  # of a core: a JVM is never quite idle
_WARM_ROUNDS, _AGREEING, _ALIKE = 15, 3, 0.15  # at most; so many in a row whose CPU differs by less than that


class Load(NamedTuple):
    """`kind`, `codec`: of the prepared frames. `in_flight`: per connection. `requests`: of pops, the messages that are to come.
    `per_second`: requests, 0: as fast as it goes."""

    kind: str
    codec: str
    connections: int
    in_flight: int
    requests: int
    per_second: int = 0

    @property
    def key(self) -> str:
        return f"{self.codec}-{self.kind}"


class Figure(NamedTuple):
    cpu_us: float
    per_second: float
    p50_us: float
    p99_us: float


def compile_load(folder: Path) -> Path:
    """The load generator in C."""
    return compiled(folder, "load")


def compiled(folder: Path, name: str) -> Path:
    """One of the programs in C beside this file."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        sys.exit(f"benchmarks/{name}.c needs a C compiler (cc); `rmq bench` measures without one, less exactly")
    subprocess.run([compiler, "-O2", "-std=gnu11", "-o", str(folder / name), str(targets.HERE / f"{name}.c")], check=True)
    return folder / name


def stored_at_last(target: Target, wanted: int) -> int:
    """Messages stored; waits for a broker that answers sends before its queues show them (its CPU for that counts too)."""
    until = time.monotonic() + SETTLE_SECONDS
    while (found := target.stored(target.port)) < wanted and time.monotonic() < until:
        time.sleep(0.05)
    return found


def cpu_at_last(target: Target, seconds: float = SETTLE_SECONDS) -> float:
    """CPU seconds, once what the broker does behind (its index) is done: that is part of the price of a message. Waits so long at
    most."""
    until, before = time.monotonic() + seconds, target.cpu_seconds()
    while time.monotonic() < until:
        time.sleep(0.5)
        spent = target.cpu_seconds()
        if spent - before <= _IDLE_SHARE * 0.5:
            break
        before = spent
    return spent


def measure(
    generator: Path, target: Target, load: Load, prepared: frames.Prepared, settle_seconds: float = SETTLE_SECONDS
) -> Figure:
    """Runs the generator once and checks that all messages were stored, or came. Before and behind it waits until the broker
    rests, `settle_seconds` at most."""
    before_stored, before_cpu = target.stored(target.port), cpu_at_last(target, settle_seconds)
    numbers = map(str, (target.port, load.connections, load.in_flight, load.requests))
    rate = [str(load.per_second)] if load.per_second else []
    command = [str(generator), "127.0.0.1", *numbers, *prepared.arguments(), *rate]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    messages = load.requests * prepared.messages
    if load.kind == "pop":
        messages = found["answered"]  # each was acknowledged, and is counted once
    elif load.kind.startswith("pull"):
        least = messages * frames.BODY_BYTES
        assert found["answer_bytes"] > least, f"{target.name}: only {found['answer_bytes']} bytes came, {least} at least expected"
    else:
        new = stored_at_last(target, before_stored + messages) - before_stored
        assert new == messages, f"{target.name}: {messages} messages sent, {new} stored"
    cpu = cpu_at_last(target, settle_seconds) - before_cpu
    return Figure(cpu / messages * 1e6, messages / found["seconds"], found["p50_us"], found["p99_us"])


def warm(generator: Path, target: Target, load: Load, prepared: frames.Prepared) -> None:
    """`until_warm` by that load."""
    until_warm(target, lambda: measure(generator, target, load, prepared).cpu_us)


def until_warm(target: Target, cpu_us: Callable[[], float]) -> None:
    """One round; at a JVM rounds until three in a row agree: its compilers come in waves, and between them two may be alike that
    cost twice of what they cost later. `cpu_us()`: what a message of a round cost."""
    found: list[float] = []
    while len(found) < _WARM_ROUNDS:
        found.append(cpu_us())
        last = found[-_AGREEING:]
        if target.name != targets.APACHE or (len(last) == _AGREEING and max(last) <= (1 + _ALIKE) * min(last)):
            break
