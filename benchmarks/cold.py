"""Latency of senders at a fixed rate, alone and while readers walk old segments whose pages were dropped from memory."""

import json
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from benchmarks import frames, targets
from benchmarks.measured import Load, compile_load, measure as measure_once
from benchmarks.options import Options, say
from benchmarks.rows import Goal, Row
from benchmarks.targets import Target

NAME = "cold"
_STORED_GIB = 1.0
_PER_SECOND, _SECONDS = 4_000, 10
_READERS = 4
_GOAL = Goal(2.0)
_SETTINGS = {"RMQ_SEGMENT_BYTES": str(64 << 20)}
_DROP_EACH_S = 0.2


class Latency(NamedTuple):
    p50_us: float
    p99_us: float


def measure(options: Options) -> list[Row]:
    generator, made = compile_load(options.folder), frames.prepare(options.folder / "frames", "broker-a")
    store = options.folder / "rmq"
    target = targets.start_rmq(store, settings=_SETTINGS)
    alone, beside, read = list[Latency](), list[Latency](), list[float]()
    try:
        batches = options.part_of(int(_STORED_GIB * (1 << 30) / 70_000))
        frames.make_topic(target.port, target.broker_name)
        measure_once(generator, target, Load("batch", "native", 4, 4, batches), made["native-batch"])
        pulls = frames.pulls(options.folder / "old", _old_places(batches * frames.BATCH_COUNT // frames.QUEUES))
        os.sync()  # only clean pages can be dropped
        for number in range(1, options.rounds + 1):
            alone.append(_send(generator, target, made["native-single"], options))
            before = _read_mib(target)
            with _readers(generator, target, pulls), _dropping(store):
                beside.append(_send(generator, target, made["native-single"], options))
            read.append(_read_mib(target) - before)
            say(
                f"  round {number}/{options.rounds}: alone {alone[-1]}, beside cold readers {beside[-1]}, {read[-1]:.0f} MiB read"
            )
    finally:
        target.stop()
    return _rows(alone, beside, read, batches * frames.BATCH_COUNT)


def _old_places(messages: int) -> list[tuple[int, int]]:
    """Queue and queue offset of each pull: all over the older half of the log."""
    chance = random.Random(1)
    return [(queue, chance.randrange(messages // 2)) for _ in range(1000) for queue in range(frames.QUEUES)]


def _send(generator: Path, target: Target, made: frames.Prepared, options: Options) -> Latency:
    count = options.part_of(_PER_SECOND * _SECONDS)
    numbers = map(str, (target.port, 4, 64, count))
    command = [str(generator), "127.0.0.1", *numbers, *made.arguments(), str(_PER_SECOND)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return Latency(found["p50_us"], found["p99_us"])


@contextmanager
def _readers(generator: Path, target: Target, pulls: frames.Prepared) -> Iterator[None]:
    """One pull after the other on each of some connections, as fast as the answers come."""
    command = [str(generator), "127.0.0.1", str(target.port), str(_READERS), "1", str(2_000_000_000), *pulls.arguments()]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
        assert running.poll() is None, "the readers ended before their time"
    finally:
        running.kill()
        running.wait()


@contextmanager
def _dropping(store: Path) -> Iterator[None]:
    """Drops the pages of all segments but the last two from memory, again and again."""
    over = Event()

    def drop() -> None:
        while not over.wait(_DROP_EACH_S):
            for path in sorted(store.rglob("commitlog/*"))[:-2]:
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    dropper = Thread(target=drop)
    dropper.start()
    try:
        yield
    finally:
        over.set()
        dropper.join()


def _read_mib(target: Target) -> float:
    """What the broker's process has read from the device so far."""
    lines = Path(f"/proc/{target.processes[-1].pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes")) / (1 << 20)


def _rows(alone: list[Latency], beside: list[Latency], read: list[float], messages: int) -> list[Row]:
    at = f"single sends, {_PER_SECOND:,}/s on 4 connections"
    shares = [with_them.p99_us / without.p99_us for with_them, without in zip(beside, alone, strict=True)]
    about = f"{messages:,} old messages; {sorted(read)[len(read) // 2]:,.0f} MiB read from the device in a round"
    rows = [Row(NAME, f"{at}: p99 beside {_READERS} cold readers, by p99 alone", "rmq", "", shares, _GOAL, about=about)]
    for who, found in (("alone", alone), (f"beside {_READERS} cold readers", beside)):
        p50 = sorted(one.p50_us for one in found)[len(found) // 2]
        rows.append(Row(NAME, f"{at}, {who}: p99", "rmq", "us", [one.p99_us for one in found], about=f"p50 {p50:,.0f} us"))
    return rows
