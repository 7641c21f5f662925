"""Two processes of `rmq node --processes 2` beside one broker: CPU a message, rates, and whether the two share anything.

The load generators need a part of the cores, too, so the rates of a machine with two cores are lower than two free cores would
give. CPU a message does not depend on that: if two brokers cost together what one costs, and share no file or memory that is
written, then nothing of one waits for the other.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import frames, targets
from benchmarks.measured import compile_load, cpu_at_last
from benchmarks.options import Options, say
from benchmarks.rows import Goal, Row
from benchmarks.targets import Target
from tests.ports import free_port

NAME = "processes"
_COUNT, _REQUESTS = 2, 200_000
_COST, _RATE = Goal(1.15), Goal(1.7, at_most=False)
_STEP = 10  # between the ports of two brokers


def measure(options: Options) -> list[Row]:
    generator, made = compile_load(options.folder), frames.prepare(options.folder / "frames", "broker-a")
    one = targets.start_rmq(options.folder / "one")
    running, found = [one], dict[int, list[tuple[float, float]]]({1: [], _COUNT: []})
    try:
        two = _start(options.folder / "two")
        running.append(two)
        ports = {1: [one.port], _COUNT: [two.port + _STEP * number for number in range(_COUNT)]}
        names = {1: ["broker-a"], _COUNT: [f"broker-a-{number}" for number in range(_COUNT)]}
        for count in ports:
            for port, name in zip(ports[count], names[count], strict=True):
                frames.make_topic(port, name)
        for number in range(options.rounds + 1):  # the first is for warming up
            for count, target in ((1, one), (_COUNT, two)):
                options.fill_page_cache()
                figure = _send(generator, target, ports[count], made["native-single"], options.part_of(_REQUESTS))
                if number:
                    found[count].append(figure)
                    say(f"  round {number}/{options.rounds}  {count} processes: {figure[0]:.2f} us, {figure[1]:,.0f}/s")
        shared = _shared(two)
    finally:
        for target in running:
            target.stop()
    return _rows(found, shared)


def _start(folder: Path) -> Target:
    """A nameserver and two brokers, under one command."""
    port, namesrv_port = free_port(), free_port()
    node = [sys.executable, "-m", "rmq.cli", "node", "--role", "all", "--processes", str(_COUNT), "--name", "broker-a"]
    where = ["--store", str(folder / "store"), "--listen", f"127.0.0.1:{port}", "--namesrv-port", str(namesrv_port)]
    process = targets.spawn([*node, *where], folder / "rmq.log", targets.HERE.parent)
    found = Target("rmq", "broker-a", port, (process,), nameserver=f"127.0.0.1:{namesrv_port}")
    for number in range(_COUNT):
        targets.ready(found._replace(port=port + _STEP * number), folder / "rmq.log")
    return found


def _send(generator: Path, target: Target, ports: Sequence[int], made: frames.Prepared, requests: int) -> tuple[float, float]:
    """CPU in us a message, of all processes of that command; messages a second, of all ports together."""
    before, cpu = sum(map(frames.stored, ports)), cpu_at_last(target)
    began = time.monotonic()
    loads = [
        subprocess.Popen(
            [str(generator), "127.0.0.1", str(port), "4", "16", str(requests), *made.arguments()], stdout=subprocess.PIPE
        )
        for port in ports
    ]
    slowest = max(json.loads(load.communicate()[0])["seconds"] for load in loads)
    assert all(load.returncode == 0 for load in loads), "a load ended with an error"
    assert slowest <= time.monotonic() - began
    messages = requests * len(ports)
    stored = sum(map(frames.stored, ports)) - before
    assert stored == messages, f"{messages} messages sent, {stored} stored"
    return (cpu_at_last(target) - cpu) / messages * 1e6, messages / slowest


def _shared(target: Target) -> list[str]:
    """Files that two brokers of the command have open for writing, or memory that they share."""
    children = Path(f"/proc/{target.processes[-1].pid}/task/{target.processes[-1].pid}/children").read_text().split()
    return sorted(set.intersection(*map(_written, children[-_COUNT:])))


def _written(pid: str) -> set[str]:
    found = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        path = os.readlink(f"/proc/{pid}/fd/{number}")
        flags = int(Path(f"/proc/{pid}/fdinfo/{number}").read_text().split("flags:")[1].split()[0], 8)
        if int(number) > 2 and path.startswith("/") and flags & (os.O_WRONLY | os.O_RDWR):  # above the standard streams
            found.add(path)
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return found | {line.split()[-1] for line in maps if line.split()[1].endswith("s") and "w" in line.split()[1] and "/" in line}


def _rows(found: dict[int, list[tuple[float, float]]], shared: list[str]) -> list[Row]:
    cores = os.cpu_count()
    shares = [both[0] / one[0] for one, both in zip(found[1], found[_COUNT], strict=True)]
    rates = [both[1] / one[1] for one, both in zip(found[1], found[_COUNT], strict=True)]
    what = f"shared and written by both: {', '.join(shared) or 'nothing'}"
    work = "single sends, 4 x 16 in flight to each broker"
    about = f"the load generators take their part of the {cores} cores of this machine, too"
    rows = [
        Row(NAME, f"{work}: CPU a message of {_COUNT} processes, by that of one", "rmq", "", shares, _COST, about=what),
        Row(NAME, f"{work}: rate of {_COUNT} processes, by that of one", "rmq", "", rates, _RATE, about=about),
    ]
    for count, figures in found.items():
        rate = sorted(per_second for _, per_second in figures)[len(figures) // 2]
        costs, title = [cpu_us for cpu_us, _ in figures], f"{work}: {count} process{'es' if count > 1 else ''}"
        rows.append(Row(NAME, title, "rmq", "us of broker CPU a message", costs, about=f"{rate:,.0f}/s"))
    return rows
