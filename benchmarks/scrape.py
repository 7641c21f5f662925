"""What monitoring costs: the real Prometheus scrapes three brokers and two nameservers under load.

    python -m benchmarks.scrape [--minutes 10] [--interval 5] [--rate 2000] [--topics 200] [--json FILE]

First half as long without Prometheus, the same load going on. All the time each node is asked what held its loop up for more than
10 ms (`/stalls`), and every cause is printed. The last line says whether that was ever the node's own doing (not where no core
was free). Needs Linux, a C compiler and Prometheus (Debian: prometheus); each minute of sends at 2 000 a second takes 0.2 GB of
disk while it runs.
"""

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from benchmarks import frames, group, targets
from benchmarks.machine import machine
from benchmarks.measured import compile_load
from benchmarks.options import say
from benchmarks.targets import Target
from rmq.client import Client, Message
from rmq.client.admin import calls
from rmq.model import GroupConfig, MessageQueue
from rmq.ops.stalls import STALL_S, Stall
from tests.ports import free_port

_PINGS_A_SECOND = 200
_QUIET_SCRAPES = 50
_QUERY_SECONDS = 30


class Scraped(NamedTuple):
    """A process and the port of its metrics."""

    target: Target
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"


class Beats(NamedTuple):
    """Of the loop's own watch: how often it was looked at, how often it was later than 10 ms, and the bound that held always."""

    beats: int
    late: int
    within_s: float


class Phase(NamedTuple):
    """One node, with or without Prometheus. Round trips of pings in ms."""

    beats: Beats
    cpu_share: float
    ping_999_ms: float
    ping_most_ms: float
    stalls: list[Stall]


# --- the load ---------------------------------------------------------------------------------------------------------


async def make_names(nameservers: str, topics: int) -> None:
    """Topics with a message each, and a fifth as many groups with a place in five topics each, to be told of."""
    async with Client(nameservers) as client, client.producer() as producer:
        for number in range(topics):
            await producer.send(Message(f"Topic-{number:05}", b"x" * 100))
        for number in range(topics // 5):
            name = f"group-{number:05}"
            await calls.update_group(client, GroupConfig(name), broker="broker-a")
            for other in range(number * 5, number * 5 + 5):
                await calls.set_offset(client, name, MessageQueue(f"Topic-{other:05}", "broker-a", 0), 0)


@contextmanager
def loaded(load: Path, leader: Target, prepared: frames.Prepared, rate: int, seconds: float) -> Iterator[None]:
    """Sends at that rate. Raises RuntimeError if it ended before its time."""
    command = [str(load), "127.0.0.1", str(leader.port), "4", "64", str(int(rate * seconds * 1.5) + 1000)]
    process = subprocess.Popen([*command, *prepared.arguments(), str(rate)], stdout=subprocess.DEVNULL)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the load ended early, with {process.returncode}: did another node become the leader?")
    finally:
        process.kill()
        process.wait()


# --- what is measured -------------------------------------------------------------------------------------------------


def page_of(one: Scraped) -> str:
    with urllib.request.urlopen(one.url, timeout=10) as answer:
        return str(answer.read().decode())


def lag_buckets(one: Scraped) -> dict[float, float]:
    """Beats of the loop by upper bound in seconds, added up from below."""
    families = {family.name: family for family in text_string_to_metric_families(page_of(one))}
    samples = families["rmq_loop_lag_seconds"].samples
    return {float(each.labels["le"]): each.value for each in samples if each.name.endswith("_bucket")}


def beats(before: dict[float, float], after: dict[float, float]) -> Beats:
    new = {bound: after[bound] - before[bound] for bound in after}
    total = new[float("inf")]
    return Beats(int(total), int(total - new[STALL_S]), next(bound for bound in sorted(new) if new[bound] == total))


@contextmanager
def watched(running: list[Scraped]) -> Iterator[dict[str, list[Stall]]]:
    """What held the loop of each process up, by name; complete when the context is left."""
    ended = threading.Event()
    found: dict[str, list[Stall]] = {each.target.name: [] for each in running}

    def watch(one: Scraped) -> None:
        while not ended.is_set():
            with urllib.request.urlopen(f"http://127.0.0.1:{one.port}/stalls", timeout=30) as answer:
                found[one.target.name] += [Stall(**json.loads(line)) for line in answer]

    with ThreadPoolExecutor(len(running)) as threads:
        watching = [threads.submit(watch, each) for each in running]
        try:
            yield found
        finally:
            ended.set()
        for each in watching:
            each.result()


async def ping_all(nameservers: str, running: list[Scraped], seconds: float) -> dict[int, list[float]]:
    """Round trips in ms, by port."""

    async def one(client: Client, port: int, until: float) -> list[float]:
        took = []
        while time.monotonic() < until:
            began = time.perf_counter()
            await calls.ping(client, f"127.0.0.1:{port}")
            took.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(1 / _PINGS_A_SECOND)
        return took

    async with Client(nameservers) as client:
        ports = [each.target.port for each in running]
        found = await asyncio.gather(*(one(client, port, time.monotonic() + seconds) for port in ports))
    return dict(zip(ports, found, strict=True))


def phase(nameservers: str, running: list[Scraped], seconds: float) -> dict[str, Phase]:
    """Watches all nodes for that long; by name."""
    lags = {each.target.name: lag_buckets(each) for each in running}
    cpu = {each.target.name: each.target.cpu_seconds() for each in running}
    began = time.monotonic()
    with watched(running) as stalls:
        pings = asyncio.run(ping_all(nameservers, running, seconds))
    passed = time.monotonic() - began
    found = {}
    for each in running:
        name, took = each.target.name, sorted(pings[each.target.port])
        share = (each.target.cpu_seconds() - cpu[name]) / passed
        found[name] = Phase(beats(lags[name], lag_buckets(each)), share, took[int(len(took) * 0.999)], took[-1], stalls[name])
    return found


def quiet_cost(one: Scraped) -> float:
    """CPU in ms of one scrape, asked many times in a row while nothing else happens."""
    before, began = one.target.cpu_seconds(), time.monotonic()
    time.sleep(2)
    idle = (one.target.cpu_seconds() - before) / (time.monotonic() - began)
    before, began = one.target.cpu_seconds(), time.monotonic()
    for _ in range(_QUIET_SCRAPES):
        page_of(one)
    spent = one.target.cpu_seconds() - before - idle * (time.monotonic() - began)
    return spent / _QUIET_SCRAPES * 1000


# --- Prometheus -------------------------------------------------------------------------------------------------------


class Prometheus:
    def __init__(self, folder: Path, running: list[Scraped], interval_s: int) -> None:
        names = json.dumps([f"127.0.0.1:{each.port}" for each in running])
        config = folder / "prometheus.yml"
        config.write_text(
            f"global: {{scrape_interval: {interval_s}s}}\n"
            f"scrape_configs: [{{job_name: rmq, static_configs: [{{targets: {names}}}]}}]\n"
        )
        self.port = free_port()
        self._log = (folder / "prometheus.log").open("wb")
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        command += [f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def ask(self, query: str) -> dict[str, float]:
        """By instance; "" for what has none. Tries again while it starts."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        until = time.monotonic() + _QUERY_SECONDS
        while True:
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    rows = json.load(answer)["data"]["result"]
                return {row["metric"].get("instance", ""): float(row["value"][1]) for row in rows}
            except OSError:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.2)


def told(prometheus: Prometheus, running: list[Scraped], seconds: float) -> dict[str, dict[str, float]]:
    """What Prometheus knows of its scrapes, by name of the node."""
    span = f"[{int(seconds) + 5}s]"
    asked = {
        "scrapes": f'count_over_time(up{{job="rmq"}}{span})',
        "failed": f'count_over_time(up{{job="rmq"}}{span}) - sum_over_time(up{{job="rmq"}}{span})',
        "mean_ms": f'1000 * avg_over_time(scrape_duration_seconds{{job="rmq"}}{span})',
        "most_ms": f'1000 * max_over_time(scrape_duration_seconds{{job="rmq"}}{span})',
        "series": f'max_over_time(scrape_samples_scraped{{job="rmq"}}{span})',
    }
    answers = {name: prometheus.ask(query) for name, query in asked.items()}
    return {
        each.target.name: {name: rows.get(f"127.0.0.1:{each.port}", 0.0) for name, rows in answers.items()} for each in running
    }


# --- all of it --------------------------------------------------------------------------------------------------------


def start(folder: Path, stack: ExitStack) -> tuple[list[Scraped], list[Scraped]]:
    """Nameservers and nodes, each with its port of metrics; stopped with the stack."""
    ports = [free_port() for _ in range(5)]
    settings = [{"RMQ_METRICS": "prom", "RMQ_METRICS_PORT": str(port)} for port in ports]
    names = []
    for number in range(2):
        names.append(Scraped(targets.start_nameserver(folder, number, settings[number]), ports[number]))
        stack.callback(names[-1].target.stop)
    nodes = targets.start_group(folder, [one.target for one in names], {f"n{n}": settings[2 + n] for n in range(3)})
    for node in nodes:
        stack.callback(node.stop)
    return names, [Scraped(node, port) for node, port in zip(nodes, ports[2:], strict=True)]


def measure(folder: Path, asked: argparse.Namespace) -> list[dict[str, object]]:
    seconds = asked.minutes * 60
    load, made = compile_load(folder), frames.prepare(folder / "frames", "broker-a")
    with ExitStack() as stack:
        names, nodes = start(folder, stack)
        running, nameservers = [*names, *nodes], ";".join(f"127.0.0.1:{one.target.port}" for one in names)
        group.find_leader(names[0].target, [one.target for one in nodes])
        say(f"{asked.topics} topics and {asked.topics // 5} groups are made")
        asyncio.run(make_names(nameservers, asked.topics))
        leader = group.find_leader(names[0].target, [one.target for one in nodes])
        before = frames.stored(leader.port)
        with loaded(load, leader, made["native-single"], asked.rate, seconds * 1.5 + 60):
            say(f"{seconds / 2:.0f} s without Prometheus, {asked.rate} sends a second")
            without = phase(nameservers, running, seconds / 2)
            say(f"{seconds:.0f} s with Prometheus, a scrape each {asked.interval} s")
            prometheus = Prometheus(folder, running, asked.interval)
            stack.callback(prometheus.stop)
            with_it = phase(nameservers, running, seconds)
            seen = told(prometheus, running, seconds)
        stored = frames.stored(leader.port) - before
        say(f"{stored / seconds / 1.5:,.0f} messages were stored a second")
        if group.told_leader(names[0].target) != leader.port or stored < asked.rate * seconds:
            raise group.LeaderMoved(f"{leader.name} did not lead all the time; measure with nothing else running")
        say("each node is asked for its metrics many times in a row")
        return [
            _row(one, one.target is leader, without[one.target.name], with_it[one.target.name], seen[one.target.name])
            for one in running
        ]


def _row(one: Scraped, leads: bool, without: Phase, with_it: Phase, seen: dict[str, float]) -> dict[str, object]:
    return {
        "node": f"{one.target.name}{' (leads)' if leads else ''}",
        **{name: round(value, 1) for name, value in seen.items()},
        "page_kib": round(len(page_of(one)) / 1024, 1),
        "cpu_ms_each": round(quiet_cost(one), 2),
        **{
            f"{name}_{which}": value
            for which, found in (("without", without), ("with", with_it))
            for name, value in (
                ("cpu_percent", round(found.cpu_share * 100, 1)),
                ("beats", found.beats.beats),
                ("late", found.beats.late),
                ("within_ms", round(found.beats.within_s * 1000, 1)),
                ("ping_999_ms", round(found.ping_999_ms, 2)),
                ("ping_most_ms", round(found.ping_most_ms, 2)),
                ("own_ms", max((stall.ours_ms for stall in found.stalls), default=0.0)),
                ("stalls", [stall._asdict() for stall in found.stalls]),
            )
        },
    }


_SCRAPES = {
    "scrapes": "scrapes",
    "failed": "failed",
    "mean ms": "mean_ms",
    "most ms": "most_ms",
    "CPU ms": "cpu_ms_each",
    "series": "series",
    "KiB": "page_kib",
}
_LOOP = {
    "CPU %": "cpu_percent",
    "beats": "beats",
    "> 10 ms": "late",
    "own ms": "own_ms",
    "all within ms": "within_ms",
    "ping 99.9 % ms": "ping_999_ms",
    "longest ms": "ping_most_ms",
}


def show(rows: list[dict[str, object]]) -> None:
    _table([["node", *_SCRAPES], *([str(row["node"]), *(str(row[key]) for key in _SCRAPES.values())] for row in rows)])
    lines = [["node", "Prometheus", *_LOOP]]
    for row in rows:
        for which in ("without", "with"):
            lines.append([str(row["node"]), which, *(str(row[f"{key}_{which}"]) for key in _LOOP.values())])
    print()
    _table(lines)
    print("\nwhat held a loop up for more than 10 ms; in brackets, the most that was the node's own doing")
    for row in rows:
        for which in ("without", "with"):
            _show_causes(f"{row['node']}, {which} Prometheus", row[f"stalls_{which}"])
    print(f"\n{verdict(rows)}")


def _show_causes(where: str, stalls: Any) -> None:
    by_cause: dict[str, list[dict[str, float]]] = {}
    for stall in stalls:
        by_cause.setdefault(stall["cause"], []).append(stall)
    if not stalls:
        print(f"  {where}: nothing")
    for why, found in sorted(by_cause.items(), key=lambda each: -max(stall["ms"] for stall in each[1])):
        longest, most = max(stall["ms"] for stall in found), max(stall["ours_ms"] for stall in found)
        print(f"  {where}: {len(found)} times, up to {longest:.1f} ms ({most:.1f}): {why}")


def verdict(rows: list[dict[str, Any]]) -> str:
    """Whether a loop stood still for more than 10 ms because of what its process did."""
    own = [(stall, row["node"]) for row in rows for which in ("without", "with") for stall in row[f"stalls_{which}"]]
    longest = max(((stall["ours_ms"], node, stall["cause"]) for stall, node in own), default=(0.0, "", ""))
    above = sum(stall["ours_ms"] > STALL_S * 1000 for stall, _ in own)
    told = f"the longest was {longest[0]:.1f} ms, of {longest[1]}: {longest[2]}" if longest[1] else "there was none at all"
    return f"stalls of more than {STALL_S * 1000:.0f} ms by a node's own doing: {above or 'none'} ({told})"


def _table(lines: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        cells = [text.rjust(width) for text, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="with Prometheus; half as long without it before")
    parser.add_argument("--interval", type=int, default=5, help="seconds from scrape to scrape")
    parser.add_argument("--rate", type=int, default=2000, help="sends a second, of 500 bytes")
    parser.add_argument("--topics", type=int, default=200, help="topics beside the one of the load; a fifth as many groups")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write settings and figures there too")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    if not shutil.which("prometheus"):
        sys.exit("this needs Prometheus (Debian: apt install prometheus)")
    with tempfile.TemporaryDirectory(prefix="rmq-bench-") as name:
        rows = measure(Path(name), asked)
    here = machine() | {"minutes": asked.minutes, "interval_s": asked.interval, "rate": asked.rate, "topics": asked.topics}
    print("  ".join(f"{key}={value}" for key, value in here.items()))
    show(rows)
    if asked.json:
        asked.json.write_text(json.dumps({"machine": here, "figures": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
