"""A node at rest: memory and CPU with 10 000 topics, and with 1 000 idle connections."""

import asyncio
import time
from pathlib import Path

from benchmarks import frames, targets
from benchmarks.options import Options, say
from benchmarks.pauses import make_names
from benchmarks.rows import Goal, Row
from benchmarks.targets import Target
from rmq.clock import SystemClock
from rmq.net.commands import Hello
from rmq.net.transport.dialer import Dialer

NAME = "rest"
_TOPICS, _CONNECTIONS = 10_000, 1_000
_WATCHED_S = 20
_SETTLED_S, _LOOK_S, _BUSY_SHARE = 120, 12, 0.05  # every 10 s a node saves what came


def resident_mb(target: Target) -> float:
    lines = Path(f"/proc/{target.processes[-1].pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS"))


def settle(target: Target) -> None:
    """Waits until what was left to do behind is done: for example the files of new queues, each of them flushed."""
    until, before = time.monotonic() + _SETTLED_S, target.cpu_seconds()
    while time.monotonic() < until:
        time.sleep(_LOOK_S)
        spent = target.cpu_seconds() - before
        if spent < _BUSY_SHARE * _LOOK_S:
            break
        before += spent


def share_of_core(target: Target) -> float:
    """In per cent, while nobody does anything."""
    settle(target)
    before, began = target.cpu_seconds(), time.monotonic()
    time.sleep(_WATCHED_S)
    return (target.cpu_seconds() - before) / (time.monotonic() - began) * 100


async def connected(target: Target, count: int) -> tuple[float, float]:
    """Memory and CPU while so many connections are open."""
    dialer = Dialer(SystemClock())
    channels = [await dialer.open(f"127.0.0.1:{target.port}", Hello(1, f"idle-{number}")) for number in range(count)]
    found = resident_mb(target), await asyncio.to_thread(share_of_core, target)
    for channel in channels:
        await channel.close()
    return found


def measure(options: Options) -> list[Row]:
    topics, connections = options.part_of(_TOPICS), options.part_of(_CONNECTIONS)
    found: dict[str, list[tuple[float, float]]] = {f"{topics} topics": [], f"{connections} idle connections": []}
    for number in range(1, min(options.rounds, 3) + 1):
        with_topics = targets.start_rmq(options.folder / f"topics {number}")
        try:
            frames.make_topic(with_topics.port, with_topics.broker_name)
            asyncio.run(make_names(with_topics.nameserver, topics, 0))
            share = share_of_core(with_topics)
            found[f"{topics} topics"].append((resident_mb(with_topics), share))
        finally:
            with_topics.stop()
        with_peers = targets.start_rmq(options.folder / f"connections {number}")
        try:
            found[f"{connections} idle connections"].append(asyncio.run(connected(with_peers, connections)))
        finally:
            with_peers.stop()
        say(f"  round {number}: {found}")
    goals = {f"{topics} topics": (150.0, 2.0), f"{connections} idle connections": (100.0, 1.0)}
    rows = []
    for work, figures in found.items():
        most_mb, most_share = goals[work]
        rows.append(Row(NAME, f"resting with {work}", "rmq", "MB", [mb for mb, _ in figures], Goal(most_mb)))
        rows.append(Row(NAME, f"resting with {work}", "rmq", "% of a core", [share for _, share in figures], Goal(most_share)))
    return rows
