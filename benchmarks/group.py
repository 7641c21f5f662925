"""A group of three that elects its leader, beside RocketMQ's DLedger: CPU of leader and followers, latency at half the peak.

A send is answered when a majority has it (asynchronous flush). All nodes of rmq must hold all messages afterwards.
"""

import json
import re
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import frames, targets
from benchmarks.measured import compile_load, cpu_at_last, stored_at_last
from benchmarks.options import Options, say
from benchmarks.rows import Goal, Row
from benchmarks.targets import Target

NAME = "group"
CONNECTIONS = 4
_SETTLE_SECONDS = 60
_DLEDGER = "DLedger"
_MOST, _MOST_APART = 0.15, 3.0
_GIVEN_UP = 4  # tries, where leadership moves
_WARM_ROUNDS = {"rmq": 1, _DLEDGER: 4}


class Case(NamedTuple):
    """`share`: of the peak that was measured before; 0: as fast as it goes."""

    kind: str
    title: str
    requests: int
    in_flight: int
    share: float = 0.0


CASES = (  # as many messages as take seconds: what a node costs at rest would count else
    Case("single", "single sends, 4 x 16 in flight", 100_000, 16),
    Case("batch", "batches of 100, 4 x 4 in flight", 2_000, 4),
    Case("single", "single sends at half the peak", 30_000, 64, 0.5),
)


class Figure(NamedTuple):
    leader_us: float
    follower_us: float
    per_second: float
    p50_us: float
    p99_us: float


class Group(NamedTuple):
    """`codec`: in which it is measured. `checked`: each node tells how much it holds."""

    name: str
    codec: str
    nameserver: Target
    nodes: list[Target]
    checked: bool

    def stop(self) -> None:
        for node in reversed([self.nameserver, *self.nodes]):
            node.stop()


def told_leader(nameserver: Target) -> int:
    """The port of the leader in the route; 0: none."""
    _, _, body = frames.ask(nameserver.port, 105, {"topic": "TBW102"})
    told = re.search(rb'\b0"?:"127\.0\.0\.1:(\d+)"', body)
    return int(told[1]) if told else 0


def find_leader(nameserver: Target, nodes: list[Target]) -> Target:
    """The node that the nameserver tells as leader, with the topic made. Raises TimeoutError."""
    until = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < until:
        told = told_leader(nameserver)
        for node in nodes:
            if told == node.port and frames.takes_sends(node.port, node.broker_name):
                return node
        time.sleep(0.2)
    raise TimeoutError(f"no leader after {_SETTLE_SECONDS} s")


class LeaderMoved(Exception):
    """Another node leads now, so this one refused sends: on a machine that is busy with other things."""


def measure_once(generator: Path, group: Group, prepared: frames.Prepared, case: Case, peak: float) -> Figure:
    """Raises LeaderMoved."""
    leader = find_leader(group.nameserver, group.nodes)
    wanted = frames.stored(leader.port) + case.requests * prepared.messages
    before = {node.name: cpu_at_last(node) for node in group.nodes}
    command = [str(generator), "127.0.0.1", str(leader.port), str(CONNECTIONS), str(case.in_flight), str(case.requests)]
    rate = [str(peak * case.share)] if case.share else []
    done = subprocess.run([*command, *prepared.arguments(), *rate], stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    if stored_at_last(leader, wanted) < wanted or told_leader(group.nameserver) != leader.port:
        raise LeaderMoved(f"{leader.name} does not lead any more; measure with nothing else running")
    for node in group.nodes if group.checked else ():
        assert (there := stored_at_last(node, wanted)) == wanted, f"{node.name}: {there} messages stored, {wanted} sent"
    messages = case.requests * prepared.messages
    cpu = {node.name: (cpu_at_last(node) - before[node.name]) / messages * 1e6 for node in group.nodes}
    followers = statistics.mean(us for name, us in cpu.items() if name != leader.name)
    return Figure(cpu[leader.name], followers, messages / found["seconds"], found["p50_us"], found["p99_us"])


def tried(generator: Path, group: Group, prepared: frames.Prepared, case: Case, peak: float) -> Figure:
    """`measure_once`, again where the leader moved."""
    for _ in range(_GIVEN_UP):
        try:
            return measure_once(generator, group, prepared, case, peak)
        except LeaderMoved as moved:
            say(f"  {group.name}: {moved}")
    raise AssertionError(f"the leader of {group.name} moved each time")


def start_rmq(folder: Path) -> Group:
    nameserver = targets.start_nameserver(folder)
    return Group("rmq", "native", nameserver, targets.start_group(folder, [nameserver]), True)


def start_dledger(options: Options) -> Group:
    nameserver, nodes = targets.start_dledger(options.folder / "dledger", options.cache, say)
    return Group(_DLEDGER, "json", nameserver, nodes, False)


def measure(options: Options) -> list[Row]:
    """One group after the other: three JVMs beside three nodes on two cores would measure each other."""
    generator, made = compile_load(options.folder), frames.prepare(options.folder / "frames", "broker-a")
    found = {"rmq": _rounds(generator, start_rmq(options.folder), made, options)}
    if not options.apache_missing:
        found[_DLEDGER] = _rounds(generator, start_dledger(options), made, options)
    return [row for case in CASES for who in found for row in _rows(case, who, found)]


def _rounds(generator: Path, group: Group, made: dict[str, frames.Prepared], options: Options) -> dict[str, list[Figure]]:
    figures: dict[str, list[Figure]] = {case.title: [] for case in CASES}
    try:
        for number in range(1 - _WARM_ROUNDS[group.name], options.rounds + 1):
            peak = figures[CASES[0].title][-1].per_second if figures[CASES[0].title] else 1000.0
            for case in CASES:
                few = case._replace(requests=options.part_of(case.requests if number > 0 else case.requests // 2))
                options.fill_page_cache()
                figure = tried(generator, group, made[f"{group.codec}-{case.kind}"], few, peak)
                peak = figure.per_second if case is CASES[0] else peak
                if number > 0:
                    figures[case.title].append(figure)
                    say(f"  round {number}/{options.rounds}  {group.name}: {case.title}: {figure}")
    finally:
        group.stop()
    return figures


def _rows(case: Case, who: str, found: dict[str, dict[str, list[Figure]]]) -> list[Row]:
    figures, theirs = found[who][case.title], found.get(_DLEDGER, {}).get(case.title)
    middle = Figure(*(statistics.median(values) for values in zip(*figures, strict=True)))
    about = f"{middle.per_second:,.0f}/s, p50 {middle.p50_us:,.0f} us, p99 {middle.p99_us:,.0f} us"
    ours = who == "rmq"
    if case.share:
        apart, goal = [each.p99_us / each.p50_us for each in figures], Goal(_MOST_APART) if ours else None
        return [Row(NAME, case.title, who, "p99 / p50", apart, goal, about=about)]
    rows = []
    for part in ("leader_us", "follower_us"):
        own = [getattr(each, part) for each in figures]
        beside = statistics.median(getattr(each, part) for each in theirs) if theirs and ours else None
        ratio = round(statistics.median(own) / beside, 2) if beside else None
        title = f"{case.title}, {'leader' if part == 'leader_us' else 'each follower'}"
        goal = Goal(_MOST, of_apache=True) if ours else None
        rows.append(Row(NAME, title, who, "us of CPU a message", own, goal, ratio, about))
    share = [each.follower_us / each.leader_us for each in figures]
    return [*rows, Row(NAME, f"{case.title}, follower / leader", who, "", share, Goal(0.6) if ours else None)]
