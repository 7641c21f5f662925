"""What messages of other kinds cost a broker, beside Apache RocketMQ, all in its JSON codec: delayed ones until they have come,
popped ones until each is acknowledged by a request of its own, transactions until they are committed.

Kind after kind, transactions last: three seconds behind the last one a thread of RocketMQ's broker (TransactionalOpBatchService)
begins to turn without a pause, until the next one, and would be counted with whatever is measured then. So a round of its
transactions follows another one at once, which does not count, and what is done behind a round is awaited for a second only: what
is left of it then counts with the next round.
"""

from collections.abc import Callable
from functools import partial
from itertools import count

from benchmarks import frames, targets
from benchmarks.measured import SETTLE_SECONDS, Load, compile_load, measure as measure_once, until_warm
from benchmarks.options import Options, say
from benchmarks.rows import Goal, Row, beside
from benchmarks.targets import Target

NAME = "kinds"
GOAL = Goal(0.5, of_apache=True)
_CONNECTIONS, _IN_FLIGHT, _POPS = 4, 16, 2
_REST_S = 1.0  # twice that, before and behind a round, is less than the three seconds
_GROUPS = count(1)  # each round pops in a group of its own
KINDS = {
    "delayed": ("delayed by a level of one second, sent and delivered, 4 x 16 in flight", 50_000),
    "timed": ("for a time one second ahead, sent and delivered, 4 x 16 in flight", 50_000),
    "popped": ("popped 32 at a time by 8, each acknowledged alone", 50_000),
    "transactional": ("transactions, half and commit, 4 x 16 in flight", 50_000),
}
"""What it is, and how many messages a round has."""
Figure = Callable[[Target, int], float]
"""Of so many messages: broker CPU in us each."""


def figures(options: Options) -> dict[str, Figure]:
    """Of each kind. What is popped must have been sent before."""
    generator, folder = compile_load(options.folder), options.folder
    made = {
        "delayed": frames.delayed(folder / "delayed", "broker-a", "DELAY"),
        "timed": frames.delayed(folder / "timed", "broker-a", "TIMER_DELAY_SEC"),
        "transactional": frames.transactions(folder / "halves", "broker-a"),
    }

    def sent(kind: str, target: Target, messages: int) -> float:
        load = Load("single", "json", _CONNECTIONS, _IN_FLIGHT, messages)
        rest_s = _REST_S if kind == "transactional" and target.name == targets.APACHE else SETTLE_SECONDS
        return measure_once(generator, target, load, made[kind], rest_s).cpu_us

    def popped(target: Target, messages: int) -> float:
        pops = frames.pops(folder / "pops", "broker-a", f"bench-pop-{next(_GROUPS)}")
        return measure_once(generator, target, Load("pop", "json", _CONNECTIONS, _POPS, messages), pops).cpu_us

    return {kind: popped if kind == "popped" else partial(sent, kind) for kind in KINDS}


def measure(options: Options) -> list[Row]:
    of_kind = figures(options)
    running = [targets.start_rmq(options.folder / "rmq", options.sync)]
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
    try:
        if not options.apache_missing:
            running.append(targets.start_apache(options.folder / "apache", options.cache, say, options.sync))
        for target in running:
            frames.make_topic(target.port, target.broker_name)
        for kind, (title, messages) in KINDS.items():
            for target in running:
                say(f"  warming up {target.name}: {title}")
                until_warm(target, partial(of_kind[kind], target, options.part_of(messages)))
            for number in range(1, options.rounds + 1):
                for target in running:
                    options.fill_page_cache()
                    if kind == "transactional" and target.name == targets.APACHE:
                        of_kind[kind](target, options.part_of(messages))
                    cpu_us = of_kind[kind](target, options.part_of(messages))
                    found[kind].setdefault(target.name, []).append(cpu_us)
                    say(f"  round {number}/{options.rounds}  {target.name}: {title}: {cpu_us:.1f} us")
    finally:
        for target in running:
            target.stop()
    unit = "us of broker CPU a message"
    return [row for kind, of in found.items() for row in beside(NAME, KINDS[kind][0], unit, of, targets.APACHE, GOAL)]
