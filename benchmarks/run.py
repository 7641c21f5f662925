"""Broker CPU per message, ours and our peers', on this machine: medians of interleaved rounds, and ratios to Apache RocketMQ.

    python benchmarks/run.py [--quick] [--rounds N] [--sync] [--no-apache] [--no-peers] [--json FILE]
    python benchmarks/run.py --group [--quick] [--rounds N] [--json FILE]

Needs Linux (/proc) and a C compiler. Apache RocketMQ runs beside it where Maven and a JDK are present, Redis, NATS and RabbitMQ
where Debian's packages are installed; what is missing is said. Each number is user + system time of the broker's process
divided by the messages that it stored or gave out, which is checked afterwards.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from benchmarks import frames, group, peers, targets  # noqa: E402
from benchmarks.targets import Target  # noqa: E402


class Case(NamedTuple):
    """What is measured. `in_flight`: per connection. `goal`: most that rmq may take of what Apache RocketMQ takes in the same run
    (for our native codec: of its JSON); 0: none said. `of_latency`: the goal is for the median latency, not for CPU."""

    kind: str
    codec: str
    connections: int
    in_flight: int
    requests: int
    goal: float = 0.0
    of_latency: bool = False

    @property
    def key(self) -> str:
        return f"{self.codec}-{self.kind}"

    @property
    def load(self) -> str:
        return f"{_TITLES[self.kind]}, {self.connections} x {self.in_flight} in flight"

    @property
    def title(self) -> str:
        return f"{self.load}, {_CODECS[self.codec]}"


_TITLES = {"single": "single sends", "batch": "batches of 100", "pull": "pulls of 32"}
_CODECS = {
    "native": "native",
    "json": "RocketMQ JSON",
    "binary": "RocketMQ binary",
    "redis": "RESP",
    "nats": "NATS",
    "rabbitmq": "AMQP",
}
_SETTLE_SECONDS = 10
_WARM_ROUNDS, _ALIKE = 5, 0.1  # two rounds in which CPU differs by less than a tenth
_IDLE_SHARE = 0.1  # of a core: a JVM is never quite idle
CASES = (
    Case("single", "native", 4, 16, 100_000, 0.25), Case("single", "json", 4, 16, 100_000, 0.35),
    Case("single", "binary", 4, 16, 100_000, 0.35), Case("single", "redis", 4, 16, 100_000),
    Case("single", "nats", 4, 16, 100_000), Case("single", "rabbitmq", 4, 16, 30_000),
    Case("single", "native", 64, 1, 60_000, 0.3), Case("single", "json", 64, 1, 60_000, 0.4),
    Case("single", "redis", 64, 1, 60_000), Case("single", "nats", 64, 1, 60_000), Case("single", "rabbitmq", 64, 1, 30_000),
    Case("single", "native", 1, 1, 5_000, 0.6, True), Case("single", "json", 1, 1, 5_000),
    Case("single", "redis", 1, 1, 5_000), Case("single", "nats", 1, 1, 5_000), Case("single", "rabbitmq", 1, 1, 3_000),
    Case("batch", "native", 4, 4, 600, 0.5), Case("batch", "json", 4, 4, 600, 0.7),
    Case("batch", "redis", 4, 400, 60_000),
    Case("pull", "native", 4, 4, 10_000, 0.4), Case("pull", "json", 4, 4, 10_000, 0.4),
)  # fmt: skip


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
    while (found := target.stored(target.port)) < wanted and time.monotonic() < until:
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
    before_stored, before_cpu = target.stored(target.port), cpu_at_last(target)
    command = [str(load), "127.0.0.1", str(target.port), str(case.connections), str(case.in_flight), str(requests)]
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
    return [case for case in CASES if case.codec in target.codecs]


def warm_up(load: Path, target: Target, made: dict[str, frames.Prepared], share: float) -> None:
    """Makes the topic, fills the queues for the pulls, and lets a JVM compile its hot paths until two rounds agree."""
    if target.broker_name:
        frames.make_topic(target.port, target.broker_name)
    say(f"  warming up {target.name}")
    for case in cases_of(target):
        requests = max(int(case.requests * share * (1 if target.name == targets.APACHE else 0.2)), 100)
        before, tries = 0.0, 0
        while tries < _WARM_ROUNDS:
            cpu_us, tries = measure(load, target, case, made[case.key], requests).cpu_us, tries + 1
            if target.name != targets.APACHE or abs(cpu_us - before) <= _ALIKE * cpu_us:
                break
            before = cpu_us


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
                    "of_apache": of_apache(found, case, by_case), "goal": case.goal or None,
                })  # fmt: skip
    return rows


def of_apache(found: Found, case: Case, by_case: dict[str, list[Figure]]) -> float | None:
    """This broker's median, divided by Apache RocketMQ's for the same load; rounds of both took turns."""
    codec = case.codec if case.codec in ("json", "binary") else "json"
    theirs = [
        one
        for other in CASES
        if (other.codec, other.load) == (codec, case.load)
        for one in found.get(targets.APACHE, {}).get(other.title, ())
    ]
    if not theirs:
        return None
    ours = by_case[case.title]
    return round(_median(ours, case.of_latency) / _median(theirs, case.of_latency), 2)


def _median(figures: list[Figure], of_latency: bool) -> float:
    return statistics.median(figure.p50_us if of_latency else figure.cpu_us for figure in figures)


def show(rows: list[dict[str, object]]) -> None:
    """Markdown."""
    print(
        "| work | broker | CPU us a message, median (lowest to highest) | of Apache RocketMQ (goal) | messages/s | p50, p99 us |"
    )
    print("|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: [case.load for case in CASES].index(str(row["case"]).rpartition(", ")[0])):
        goal = f" ({row['goal']})" if row["goal"] and row["broker"] == "rmq" else ""
        print(
            f"| {row['case']} | {row['broker']} | {row['cpu_us_per_message']:.2f} ({row['cpu_us_lowest']:.2f} to"
            f" {row['cpu_us_highest']:.2f}) | {row['of_apache'] or '-'}{goal} | {row['messages_per_second']:,} |"
            f" {row['p50_us']}, {row['p99_us']} |"
        )


def machine() -> dict[str, object]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version()
        + (" (optimised build)" if _optimised() else " (plain build: up to 1.7 times dearer)"),
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
    }


def _optimised() -> bool:
    """Built with profile-guided optimisation: Debian's is, and does not say so."""
    return sys.base_prefix == "/usr" or "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages, two rounds: a first look, not a result")
    parser.add_argument("--sync", action="store_true", help="sends are answered once they are synced")
    parser.add_argument("--no-apache", action="store_true", help="leave out Apache RocketMQ")
    parser.add_argument("--no-peers", action="store_true", help="leave out Redis, NATS and RabbitMQ")
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
    load = compile_load(folder)
    made = frames.prepare(folder / "frames", "broker-a") | peers.prepare(folder / "frames of peers")
    running: list[Target] = []
    try:
        running.append(targets.start_rmq(folder / "rmq", asked.sync))
        missing = "left out by --no-apache" if asked.no_apache else targets.apache_missing()
        if missing:
            say(f"Apache RocketMQ does not run beside: {missing}")
        else:
            running.append(targets.start_apache(folder / "apache", asked.cache, say, asked.sync))
        for name in peers.NAMES:
            if missing := "left out by --no-peers" if asked.no_peers else peers.missing(name, asked.sync):
                say(f"{name} does not run beside: {missing}")
            else:
                running.append(peers.start(name, folder / name, asked.sync))
        for target in running:
            warm_up(load, target, made, share)
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
    here = machine() | {"body_bytes": frames.BODY_BYTES, "rounds": count, "flush": "sync" if asked.sync else "async"}
    print("  ".join(f"{key}={value}" for key, value in here.items()))
    (group.show if asked.group else show)(rows)
    if asked.json:
        asked.json.write_text(json.dumps({"machine": here, "figures": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
