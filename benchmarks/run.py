"""Broker CPU per message, ours and Apache RocketMQ's, on this machine: medians of interleaved rounds.

    python benchmarks/run.py [--quick] [--rounds N] [--no-apache | --group] [--json FILE]

Needs Linux (/proc) and a C compiler; Apache RocketMQ runs beside it where Maven and a JDK are present. Each number is user +
system time of the broker's process divided by the messages that it stored or gave out, which is checked afterwards.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from benchmarks import frames, group, targets  # noqa: E402
from benchmarks.targets import Target  # noqa: E402


class Case(NamedTuple):
    """What is measured. `in_flight`: per connection; `most_us`: what we ask of rmq (0: nothing said)."""

    kind: str
    codec: str
    title: str
    requests: int
    in_flight: int
    most_us: float

    @property
    def key(self) -> str:
        return f"{self.codec}-{self.kind}"


CONNECTIONS = 4
_SETTLE_SECONDS = 10
_IDLE_SHARE = 0.1  # of a core: a JVM is never quite idle
CASES = (
    Case("single", "native", "single sends, 4 x 16 in flight, native", 100_000, 16, 8.0),
    Case("single", "json", "single sends, 4 x 16 in flight, RocketMQ JSON", 100_000, 16, 15.0),
    Case("single", "binary", "single sends, 4 x 16 in flight, RocketMQ binary", 100_000, 16, 0.0),
    Case("batch", "native", "batches of 100, 4 x 4 in flight, native", 600, 4, 3.5),
    Case("batch", "json", "batches of 100, 4 x 4 in flight, RocketMQ JSON", 600, 4, 0.0),
    Case("pull", "native", "pulls of 32, 4 x 4 in flight, native", 10_000, 4, 1.2),
    Case("pull", "json", "pulls of 32, 4 x 4 in flight, RocketMQ JSON", 10_000, 4, 0.0),
)


class Figure(NamedTuple):
    """One round of one case at one broker."""

    cpu_us: float
    per_second: float
    p50_us: float
    p99_us: float


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def stored_at_last(target: Target, wanted: int) -> int:
    """Messages stored; waits for a broker that answers sends before its queues show them (its CPU for that counts too)."""
    until = time.monotonic() + _SETTLE_SECONDS
    while (found := frames.stored(target.port)) < wanted and time.monotonic() < until:
        time.sleep(0.05)
    return found


def cpu_at_last(target: Target) -> float:
    """CPU seconds, once what the broker does behind (its index) is done: that is part of the price of a message."""
    until, before = time.monotonic() + _SETTLE_SECONDS, target.cpu_seconds()
    while time.monotonic() < until:
        time.sleep(0.5)
        spent = target.cpu_seconds()
        if spent - before <= _IDLE_SHARE * 0.5:
            break
        before = spent
    return spent


def measure(load: Path, target: Target, case: Case, prepared: frames.Prepared, requests: int) -> Figure:
    """Runs `load` once and checks that all messages were stored, or came."""
    before_stored, before_cpu = frames.stored(target.port), cpu_at_last(target)
    command = [str(load), "127.0.0.1", str(target.port), str(CONNECTIONS), str(case.in_flight), str(requests)]
    done = subprocess.run([*command, *prepared.arguments()], stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    messages = requests * prepared.messages
    if case.kind == "pull":
        least = messages * frames.BODY_BYTES
        assert found["answer_bytes"] > least, f"{target.name}: only {found['answer_bytes']} bytes came, {least} at least expected"
    else:
        new = stored_at_last(target, before_stored + messages) - before_stored
        assert new == messages, f"{target.name}: {messages} messages sent, {new} stored"
    cpu = cpu_at_last(target) - before_cpu
    return Figure(cpu / messages * 1e6, messages / found["seconds"], found["p50_us"], found["p99_us"])


def compile_load(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        sys.exit("benchmarks/load.c needs a C compiler (cc); `rmq bench` measures without one, less exactly")
    subprocess.run([compiler, "-O2", "-std=gnu11", "-o", str(folder / "load"), str(HERE / "load.c")], check=True)
    return folder / "load"


def cases_of(target: Target) -> list[Case]:
    return [case for case in CASES if target.name == "rmq" or case.codec != "native"]


def warm_up(load: Path, target: Target, made: dict[str, frames.Prepared], requests: int) -> None:
    """Makes the topic, fills the queues for the pulls, and lets a JVM compile its hot paths."""
    frames.make_topic(target.port, target.broker_name)
    say(f"  warming up {target.name}: {requests} sends in each codec, batches and pulls")
    for case in cases_of(target):
        share = {"single": 1, "batch": 100, "pull": 20}[case.kind]
        measure(load, target, case, made[case.key], max(requests // share, 100))


Found = dict[str, dict[str, list[Figure]]]


def rounds(load: Path, running: list[Target], made: dict[str, frames.Prepared], count: int, share: float) -> Found:
    """Target name -> case title -> figures. Cases and targets take turns, so that a slow minute hits all."""
    found: Found = {target.name: {} for target in running}
    for number in range(1, count + 1):
        for case in CASES:
            for target in running:
                if case in cases_of(target):
                    figure = measure(load, target, case, made[case.key], max(int(case.requests * share), 100))
                    found[target.name].setdefault(case.title, []).append(figure)
                    say(
                        f"  round {number}/{count}  {target.name}: {case.title}: "
                        f"{figure.cpu_us:.2f} us CPU, {figure.per_second:,.0f}/s"
                    )
    return found


def summary(found: Found) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, by_case in found.items():
        for case in CASES:
            if figures := by_case.get(case.title):
                cpu = [figure.cpu_us for figure in figures]
                rows.append({
                    "broker": name, "case": case.title, "cpu_us_per_message": round(statistics.median(cpu), 2),
                    "cpu_us_lowest": round(min(cpu), 2), "cpu_us_highest": round(max(cpu), 2),
                    "messages_per_second": round(statistics.median(figure.per_second for figure in figures)),
                    "p50_us": round(statistics.median(figure.p50_us for figure in figures)),
                    "p99_us": round(statistics.median(figure.p99_us for figure in figures)),
                    "wanted_us": case.most_us if name == "rmq" and case.most_us else None,
                })  # fmt: skip
    return rows


def show(rows: list[dict[str, object]]) -> None:
    print(
        f"{'broker':22} {'case':50} {'CPU us/message (lowest - highest)':>34} {'at most':>8} {'messages/s':>11}"
        f" {'p50 us':>8} {'p99 us':>8}"
    )
    for row in rows:
        cpu = f"{row['cpu_us_per_message']:.2f} ({row['cpu_us_lowest']:.2f} - {row['cpu_us_highest']:.2f})"
        wanted = row["wanted_us"] or "-"
        print(
            f"{row['broker']:22} {row['case']:50} {cpu:>34} {wanted!s:>8} {row['messages_per_second']:>11,}"
            f" {row['p50_us']:>8} {row['p99_us']:>8}"
        )


def machine() -> dict[str, object]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages, two rounds: a first look, not a result")
    parser.add_argument("--no-apache", action="store_true", help="measure rmq alone")
    parser.add_argument("--group", action="store_true", help="measure three rmq nodes that elect their leader, nothing else")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write settings and figures there too")
    parser.add_argument("--cache", type=Path, default=HERE / ".cache", help="where RocketMQ's jars are kept")
    return parser.parse_args()


def measure_group(folder: Path, count: int, share: float) -> list[dict[str, object]]:
    load, made = compile_load(folder), frames.prepare(folder / "frames", "broker-a")
    running = [targets.start_nameserver(folder)]
    try:
        running += targets.start_group(folder, running[:1])
        return group.rounds(load, running[1:], made, count, share)
    finally:
        for node in reversed(running):
            node.stop()


def measure_brokers(folder: Path, asked: argparse.Namespace, count: int, share: float) -> list[dict[str, object]]:
    load, made = compile_load(folder), frames.prepare(folder / "frames", "broker-a")
    running: list[Target] = []
    try:
        running.append(targets.start_rmq(folder / "rmq"))
        missing = "left out by --no-apache" if asked.no_apache else targets.apache_missing()
        if missing:
            say(f"Apache RocketMQ does not run beside: {missing}")
        else:
            running.append(targets.start_apache(folder / "apache", asked.cache, say))
        for target in running:
            warm_up(load, target, made, int((300_000 if target.name != "rmq" else 20_000) * share))
        return summary(rounds(load, running, made, count, share))
    finally:
        for target in running:
            target.stop()


def main() -> None:
    asked = arguments()
    share, count = (0.2, 2) if asked.quick else (1.0, asked.rounds)
    with tempfile.TemporaryDirectory(prefix="rmq-bench-") as name:
        if asked.group:
            rows = measure_group(Path(name), count, share)
        else:
            rows = measure_brokers(Path(name), asked, count, share)
    here = machine() | {"body_bytes": frames.BODY_BYTES, "connections": CONNECTIONS, "rounds": count, "flush": "async"}
    print("  ".join(f"{key}={value}" for key, value in here.items()))
    (group.show if asked.group else show)(rows)
    if asked.json:
        asked.json.write_text(json.dumps({"machine": here, "figures": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
