"""What a message costs an elected group of three: CPU of leader and followers, and how long half the peak takes.

    python benchmarks/run.py --group [--quick] [--rounds N] [--json FILE]

A send is answered when a majority has it (asynchronous flush). All three nodes must hold all messages afterwards.
"""

import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import frames
from benchmarks.targets import Target

CONNECTIONS = 4
_SETTLE_SECONDS = 30


class Case(NamedTuple):
    """`share`: of the peak that was measured before; 0: as fast as it goes."""

    key: str
    title: str
    requests: int
    in_flight: int
    share: float = 0.0


CASES = (
    Case("native-single", "single sends, 4 x 16 in flight", 60_000, 16),
    Case("native-batch", "batches of 100, 4 x 4 in flight", 600, 4),
    Case("native-single", "single sends at half the peak", 30_000, 64, 0.5),
)


class Figure(NamedTuple):
    leader_us: float
    follower_us: float
    per_second: float
    p50_us: float
    p99_us: float


def find_leader(nodes: list[Target]) -> Target:
    """The node that leads, with the topic made. All three take sends (who does not lead forwards them). Raises TimeoutError."""
    until = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < until:
        for node in nodes:
            if frames.leads(node.port):
                frames.make_topic(node.port, node.broker_name)
                return node
        time.sleep(0.1)
    raise TimeoutError(f"no leader after {_SETTLE_SECONDS} s")


class LeaderMoved(Exception):
    """Another node leads now, so this one refused sends: on a machine that is busy with other things."""


def measure(load: Path, leader: Target, nodes: list[Target], prepared: frames.Prepared, case: Case, peak: float) -> Figure:
    """Raises LeaderMoved."""
    wanted = frames.stored(leader.port) + case.requests * prepared.messages
    before = {node.name: node.cpu_seconds() for node in nodes}
    command = [str(load), "127.0.0.1", str(leader.port), str(CONNECTIONS), str(case.in_flight), str(case.requests)]
    rate = [str(peak * case.share)] if case.share else []
    done = subprocess.run([*command, *prepared.arguments(), *rate], stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    if not frames.leads(leader.port):
        raise LeaderMoved(f"{leader.name} does not lead any more; measure with nothing else running")
    for node in nodes:
        assert (there := _stored_at_last(node, wanted)) == wanted, f"{node.name}: {there} messages stored, {wanted} sent"
    messages = case.requests * prepared.messages
    cpu = {node.name: (node.cpu_seconds() - before[node.name]) / messages * 1e6 for node in nodes}
    followers = statistics.mean(us for name, us in cpu.items() if name != leader.name)
    return Figure(cpu[leader.name], followers, messages / found["seconds"], found["p50_us"], found["p99_us"])


def _stored_at_last(node: Target, wanted: int) -> int:
    until = time.monotonic() + _SETTLE_SECONDS
    while (found := frames.stored(node.port)) < wanted and time.monotonic() < until:
        time.sleep(0.05)
    return found


def rounds(
    load: Path, nodes: list[Target], made: dict[str, frames.Prepared], count: int, share: float
) -> list[dict[str, object]]:
    leader = find_leader(nodes)
    figures: dict[str, list[Figure]] = {case.title: [] for case in CASES}
    for number in range(count + 1):  # the first is for warming up
        for case in CASES:
            peak = figures[CASES[0].title][-1].per_second if figures[CASES[0].title] else 1000.0
            few = case._replace(requests=max(int(case.requests * share), 100))
            figure = measure(load, leader, nodes, made[case.key], few, peak)
            if number:
                figures[case.title].append(figure)
    return [_row(title, found) for title, found in figures.items()]


def _row(title: str, found: list[Figure]) -> dict[str, object]:
    middle = Figure(*(statistics.median(values) for values in zip(*found, strict=True)))
    return {"case": title} | {name: round(value, 2) for name, value in middle._asdict().items()}


def show(rows: list[dict[str, object]]) -> None:
    print(f"{'case':40} {'leader us':>10} {'follower us':>12} {'messages/s':>11} {'p50 us':>9} {'p99 us':>9}")
    for row in rows:
        print(
            f"{row['case']:40} {row['leader_us']:>10} {row['follower_us']:>12} {row['per_second']:>11,.0f}"
            f" {row['p50_us']:>9,.0f} {row['p99_us']:>9,.0f}"
        )
