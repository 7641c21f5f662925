"""The Python client in one process: messages a second and the client's own CPU a message, on the standard event loop."""

import json
import subprocess
import sys

from benchmarks import frames, targets
from benchmarks.options import Options, say
from benchmarks.rows import Goal, Row

NAME = "client"
WORK = {  # kind -> title, messages, goal in us of client CPU
    "single": ("single sends, 64 in flight", 100_000, 9.0),
    "batch": ("batches of 100, 4 in flight", 300_000, 4.0),
    "consume": ("consuming with an async handler", 300_000, 4.0),
}
_IN_FLIGHT = {"batch": ["--in-flight", "4"]}
_RATE = Goal(80_000, at_most=False)


def measure(options: Options) -> list[Row]:
    broker = targets.start_rmq(options.folder, options.sync)
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in WORK}
    try:
        frames.make_topic(broker.port, broker.broker_name)
        for number in range(1, options.rounds + 1):
            for kind, (title, count, _) in WORK.items():
                figure = run(broker, kind, options.part_of(count, 2000))
                found[kind].append(figure)
                say(f"  round {number}/{options.rounds}  {title}: {figure['cpu_us']} us, {figure['per_second']:,.0f}/s")
    finally:
        broker.stop()
    return [row for kind, figures in found.items() for row in _rows(kind, figures)]


def run(broker: targets.Target, kind: str, count: int) -> dict[str, float]:
    """What the process tells of itself, in its own words."""
    command = [sys.executable, "-m", "benchmarks.clientload", broker.nameserver, kind, str(count), *_IN_FLIGHT.get(kind, [])]
    done = subprocess.run(command, cwd=targets.HERE.parent, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _rows(kind: str, figures: list[dict[str, float]]) -> list[Row]:
    title, _, most_us = WORK[kind]
    who, rates = "Python client", [figure["per_second"] for figure in figures]
    rows = [Row(NAME, title, who, "us of client CPU a message", [figure["cpu_us"] for figure in figures], Goal(most_us))]
    return [*rows, Row(NAME, title, who, "messages/s", rates, _RATE if kind == "single" else None)]
