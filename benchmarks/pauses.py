"""The longest pauses of a node's loop in minutes of full load, with retention, snapshots, rolls and collector runs; their causes.

10 000 topics and 1 000 groups are made first, and as many timed messages wait as `--quick` allows of a million. Segments of
64 MiB roll every second or two; retention deletes the oldest where the disk is more than 30 % full. Behind it another program
takes half of the memory that is free, page by page: what that waits for is the machine's doing.
"""

import asyncio
import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks import frames, targets
from benchmarks.measured import compile_load, compiled
from benchmarks.options import Options, say
from benchmarks.rows import Goal, Row
from benchmarks.targets import Target
from rmq.client import Client, Message, MessageQueue
from rmq.client.admin import calls
from rmq.model import GroupConfig
from rmq.ops.stalls import Stall
from tests.ports import free_port

NAME = "pauses"
_TOPICS, _GROUPS, _TIMERS = 10_000, 1_000, 1_000_000
_AT_ONCE, _DAY_S = 256, 24 * 3600
_WORST = 10
_GOAL_MS = 20.0
_SETTINGS = {"RMQ_SEGMENT_BYTES": str(64 << 20), "RMQ_MAX_USED_PERCENT": "10", "RMQ_CLEAN_FORCIBLY_PERCENT": "30"}


async def make_names(nameserver: str, topics: int, groups: int) -> None:
    """Topics with a message each, groups with a place."""
    async with Client(nameserver) as client, client.producer() as producer:
        await _together(topics, lambda number: producer.send(Message(f"Topic-{number:05}", b"x" * 100), timeout=60))
        for number in range(groups):
            await calls.update_group(client, GroupConfig(f"group-{number:05}"), broker="broker-a")
            await calls.set_offset(client, f"group-{number:05}", MessageQueue(f"Topic-{number:05}", "broker-a", 0), 0)


async def make_timers(nameserver: str, count: int) -> None:
    """Messages that wait for more than a day, each for a second of its own."""
    async with Client(nameserver) as client, client.producer() as producer:
        await _together(count, lambda number: producer.send(_timer(number), timeout=60))


def _timer(number: int) -> Message:
    return Message(frames.TOPIC, b"x" * 100, delay_s=_DAY_S + number % _DAY_S)


async def _together(count: int, work: object) -> None:
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)  # type: ignore[operator]

    await asyncio.gather(*(worker() for _ in range(_AT_ONCE)))


@contextmanager
def loaded(generator: Path, target: Target, made: dict[str, frames.Prepared]) -> Iterator[None]:
    """Sends singles, and pulls, as fast as it goes."""
    running = []
    try:
        for kind, connections, in_flight in (("single", 4, 16), ("pull", 1, 1)):
            command = [str(generator), "127.0.0.1", str(target.port), str(connections), str(in_flight), str(2_000_000_000)]
            running.append(subprocess.Popen([*command, *made[f"native-{kind}"].arguments()], stdout=subprocess.DEVNULL))
        yield
        assert all(process.poll() is None for process in running), "the load ended before its time"
    finally:
        for process in running:
            process.kill()
            process.wait()


def watched(port: int, seconds: float) -> list[Stall]:
    """What held the loop up, as the node's page `/stalls` tells; what was longest by its own doing first."""
    until, found = time.monotonic() + seconds, list[Stall]()
    while time.monotonic() < until:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/stalls", timeout=60) as answer:
            found += [Stall(**json.loads(line)) for line in answer.read().splitlines()]
    return sorted(found, key=lambda stall: (-stall.ours_ms, -stall.ms))


def measure(options: Options) -> list[Row]:
    generator, made = compile_load(options.folder), frames.prepare(options.folder / "frames", "broker-a")
    port = free_port()
    target = targets.start_rmq(
        options.folder / "rmq", settings=_SETTINGS | {"RMQ_METRICS": "prom", "RMQ_METRICS_PORT": str(port)}
    )
    try:
        frames.make_topic(target.port, target.broker_name)
        asyncio.run(make_names(target.nameserver, options.part_of(_TOPICS), options.part_of(_GROUPS)))
        asyncio.run(make_timers(target.nameserver, options.part_of(_TIMERS)))
        say(f"  topics, groups and timers are there; {options.minutes:g} minutes of full load")
        began, before = time.monotonic(), target.stored(target.port)
        with loaded(generator, target, made):
            stalls = watched(port, options.minutes * 60)
        per_second = (target.stored(target.port) - before) / (time.monotonic() - began)
    finally:
        target.stop()
    memory = _take_memory(options)
    deleted = (options.folder / "rmq" / "rmq.log").read_text().count("segments deleted")
    return [*_rows(stalls, per_second, deleted, options), memory]


def _take_memory(options: Options) -> Row:
    """On a virtual machine whose memory comes from its host when it is first touched, a page may last."""
    mib = options.part_of(psutil.virtual_memory().available >> 21)
    command = [str(compiled(options.folder, "memory")), str(mib)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    about = f"on a core {found['on_core_ms']:g} ms; {found['us_a_page']:g} us of CPU a page"
    return Row(NAME, f"longest wait for a page of a program that takes {mib} MiB", "", "ms", [found["longest_ms"]], about=about)


def _rows(stalls: list[Stall], per_second: float, deleted: int, options: Options) -> list[Row]:
    """The worst ones, each with what it was, and where. The goal is for the node's own doing: no core is free."""
    work = f"longest pause of the loop in {options.minutes:g} minutes of full load"
    above, own = sum(stall.ms > _GOAL_MS for stall in stalls), stalls[0].ours_ms if stalls else 0.0
    about = f"{per_second:,.0f} sends/s, {deleted} deletions by retention; {above} pauses above {_GOAL_MS:g} ms"
    rows = [Row(NAME, work, "rmq", "ms", [max((stall.ms for stall in stalls), default=0.0)], about=about)]
    rows.append(Row(NAME, "of its own doing: what is left where no core was free", "rmq", "ms", [own], Goal(_GOAL_MS)))
    for number, stall in enumerate(stalls[:_WORST], 1):
        spent = f"its own doing {stall.ours_ms:g} ms, on a core {stall.cpu_ms:g}, without one {stall.no_core_ms:g}"
        about = f"{spent}: {stall.cause}; {stall.where}"
        rows.append(Row(NAME, f"pause {number}", "rmq", "ms", [stall.ms], about=about))
    return rows
