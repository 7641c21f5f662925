"""Broker CPU per message at one broker of each kind, in interleaved rounds: single sends, batches, pulls."""

import statistics
from pathlib import Path
from typing import NamedTuple

from benchmarks import frames, peers, targets
from benchmarks.measured import Figure, Load, compile_load, measure as measure_once, warm
from benchmarks.options import Options, say
from benchmarks.rows import Goal, Row
from benchmarks.targets import Target

NAME = "brokers"
NO_INDEX = "rmq without index"


class Case(NamedTuple):
    """What is measured. `goal`: most that rmq may take of what Apache RocketMQ takes in the same run (for our native codec: of
    its JSON); 0: none said. `of_latency`: the goal is for the median latency, not for CPU."""

    load: Load
    goal: float = 0.0
    of_latency: bool = False

    @property
    def work(self) -> str:
        return f"{_TITLES[self.load.kind]}, {self.load.connections} x {self.load.in_flight} in flight"

    @property
    def title(self) -> str:
        return f"{self.work}, {_CODECS[self.load.codec]}"


_TITLES = {"single": "single sends", "batch": "batches of 100", "pull": "pulls of 32"}
_CODECS = {
    "native": "native",
    "json": "RocketMQ JSON",
    "binary": "RocketMQ binary",
    "redis": "RESP",
    "nats": "NATS",
    "rabbitmq": "AMQP",
}


def _case(
    kind: str, codec: str, connections: int, in_flight: int, requests: int, goal: float = 0.0, of_latency: bool = False
) -> Case:
    return Case(Load(kind, codec, connections, in_flight, requests), goal, of_latency)


CASES = (
    _case("single", "native", 4, 16, 200_000, 0.25), _case("single", "json", 4, 16, 200_000, 0.35),
    _case("single", "binary", 4, 16, 200_000, 0.35), _case("single", "redis", 4, 16, 200_000),
    _case("single", "nats", 4, 16, 200_000), _case("single", "rabbitmq", 4, 16, 30_000),
    _case("single", "native", 64, 1, 60_000, 0.3), _case("single", "json", 64, 1, 60_000, 0.4),
    _case("single", "redis", 64, 1, 60_000), _case("single", "nats", 64, 1, 60_000), _case("single", "rabbitmq", 64, 1, 30_000),
    _case("single", "native", 1, 1, 5_000, 0.6, True), _case("single", "json", 1, 1, 5_000),
    _case("single", "redis", 1, 1, 5_000), _case("single", "nats", 1, 1, 5_000), _case("single", "rabbitmq", 1, 1, 3_000),
    _case("batch", "native", 4, 4, 4_000, 0.5), _case("batch", "json", 4, 4, 4_000, 0.7),
    _case("batch", "redis", 4, 400, 200_000),
    _case("pull", "native", 4, 4, 40_000, 0.4), _case("pull", "json", 4, 4, 40_000, 0.4),
)  # fmt: skip
_SYNC_GOALS = {("single", 4): 0.25, ("batch", 4): 0.5}
"""Kind and connections; the others have no goal of their own there, but for the latency of one send at a time."""
_INDEX_GOALS = {"single": Goal(1.0), "batch": Goal(0.5)}
Found = dict[str, dict[str, list[Figure]]]
"""Target name -> case title -> figures."""


def cases_of(target: Target) -> list[Case]:
    found = [case for case in CASES if case.load.codec in target.codecs]
    return [case for case in found if target.name != NO_INDEX or measures_without(case)]


def measures_without(case: Case) -> bool:
    """Whether it is measured without the index, too, to see what that costs."""
    return case.load.kind in _INDEX_GOALS and case.load.codec == "native" and case.load.connections == 4


def measure(options: Options) -> list[Row]:
    generator = compile_load(options.folder)
    made = frames.prepare(options.folder / "frames", "broker-a") | peers.prepare(options.folder / "frames of peers")
    running: list[Target] = []
    try:
        _start(options, running)
        for target in running:
            _warm_up(generator, target, made, options)
        return rows(_rounds(generator, running, made, options), options.sync)
    finally:
        for target in running:
            target.stop()


def _start(options: Options, running: list[Target]) -> None:
    running.append(targets.start_rmq(options.folder / "rmq", options.sync))
    without = targets.start_rmq(options.folder / "without", options.sync, {"RMQ_MESSAGE_INDEX": "false"})
    running.append(without._replace(name=NO_INDEX))
    if not options.apache_missing:
        running.append(targets.start_apache(options.folder / "apache", options.cache, say, options.sync))
    for name in peers.NAMES:
        if missing := peers.missing(name, options.sync) if options.peers else "left out by --no-peers":
            say(f"{name} does not run beside: {missing}")
        else:
            running.append(peers.start(name, options.folder / name, options.sync))


def _warm_up(generator: Path, target: Target, made: dict[str, frames.Prepared], options: Options) -> None:
    """Makes the topic, fills the queues for the pulls, and lets a JVM compile its hot paths."""
    if target.broker_name:
        frames.make_topic(target.port, target.broker_name)
    say(f"  warming up {target.name}")
    for case in cases_of(target):
        few = options.part_of(int(case.load.requests * (1 if target.name == targets.APACHE else 0.2)))
        warm(generator, target, case.load._replace(requests=few), made[case.load.key])


def _rounds(generator: Path, running: list[Target], made: dict[str, frames.Prepared], options: Options) -> Found:
    """Cases and targets take turns, so that a slow minute hits all; each round begins with another target."""
    found: Found = {target.name: {} for target in running}
    for number in range(1, options.rounds + 1):
        for case in CASES:
            for target in (*running[number % len(running) :], *running[: number % len(running)]):
                if case in cases_of(target):
                    load = case.load._replace(requests=options.part_of(case.load.requests))
                    options.fill_page_cache()
                    figure = measure_once(generator, target, load, made[load.key])
                    found[target.name].setdefault(case.title, []).append(figure)
                    about = f"{figure.cpu_us:.2f} us CPU, {figure.per_second:,.0f}/s"
                    say(f"  round {number}/{options.rounds}  {target.name}: {case.title}: {about}")
    return found


def rows(found: Found, sync: bool = False) -> list[Row]:
    made = []
    for case in CASES:
        for name, by_case in found.items():
            if figures := by_case.get(case.title):
                made.append(_row(name, case, figures, found, sync))
        if without := found.get(NO_INDEX, {}).get(case.title):
            made.append(_index_row(case, found["rmq"][case.title], without))
    return made


def _index_row(case: Case, figures: list[Figure], without: list[Figure]) -> Row:
    shares = [one.cpu_us - other.cpu_us for one, other in zip(figures, without, strict=True)]
    return Row(NAME, f"{case.title}: the index", "rmq", "us of broker CPU a message", shares, _INDEX_GOALS[case.load.kind])


def _row(name: str, case: Case, figures: list[Figure], found: Found, sync: bool) -> Row:
    middle = Figure(*(statistics.median(values) for values in zip(*figures, strict=True)))
    most = _SYNC_GOALS.get((case.load.kind, case.load.connections), 0.0) if sync and not case.of_latency else case.goal
    goal = Goal(most, of_apache=True) if name == "rmq" and most else None
    latency = f"p50 {middle.p50_us:,.0f} us, p99 {middle.p99_us:,.0f} us"
    about = f"{middle.per_second:,.0f}/s, {latency}" if not case.of_latency else f"ratio of p50; {latency}"
    unit = "us of broker CPU a message"
    return Row(NAME, case.title, name, unit, [each.cpu_us for each in figures], goal, of_apache(found, name, case), about)


def of_apache(found: Found, name: str, case: Case) -> float | None:
    """This broker's median, divided by Apache RocketMQ's for the same load; rounds of both took turns."""
    if name == targets.APACHE:
        return None
    codec = case.load.codec if case.load.codec in ("json", "binary") else "json"
    theirs = [
        one
        for other in CASES
        if (other.load.codec, other.work) == (codec, case.work)
        for one in found.get(targets.APACHE, {}).get(other.title, ())
    ]
    if not theirs:
        return None
    return round(_median(found[name][case.title], case.of_latency) / _median(theirs, case.of_latency), 2)


def _median(figures: list[Figure], of_latency: bool) -> float:
    return statistics.median(figure.p50_us if of_latency else figure.cpu_us for figure in figures)
