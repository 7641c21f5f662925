"""Pulls of 32 and of 500, warm and after their pages were once dropped from memory, beside Apache RocketMQ's of 32."""

import os
from pathlib import Path

from benchmarks import frames, targets
from benchmarks.measured import Figure, Load, compile_load, measure as measure_once, warm
from benchmarks.options import Options, say
from benchmarks.rows import Goal, Row
from benchmarks.targets import Target

NAME = "pulls"
_MORE = {"RMQ_MAX_TRANSFER_COUNT": "1000", "RMQ_MAX_TRANSFER_BYTES": str(4 << 20)}
_FILL, _REQUESTS = 300, {32: 40_000, 500: 4_000}  # batches of 100; pulls
_GOALS = {32: 0.4, 500: 0.2}
_DROP = Path("/proc/sys/vm/drop_caches")
Found = dict[tuple[str, str, int, str], list[float]]
"""(broker, codec, messages of a pull, warm or cold) -> us of each round."""


def drop_pages() -> bool:
    """Whether all that is on the disk left the memory. Needs root."""
    if not os.access(_DROP, os.W_OK):
        return False
    os.sync()
    _DROP.write_text("1")
    return True


def measure(options: Options) -> list[Row]:
    generator, made = compile_load(options.folder), frames.prepare(options.folder / "frames", "broker-a")
    running = [targets.start_rmq(options.folder / "rmq", settings=_MORE)]
    found: Found = {}
    try:
        if not options.apache_missing:
            running.append(targets.start_apache(options.folder / "apache", options.cache, say))
        for target in running:
            _fill(generator, target, made, options)
        _rounds(generator, running, made, options, "warm", found)
        if drop_pages():
            for target in running:  # the one cold read
                _pull(generator, target, made, target.codecs[0], 32, 100)
            _rounds(generator, running, made, options, "pages once dropped", found)
        else:
            say("  cold pulls are left out: only root may drop pages (/proc/sys/vm/drop_caches)")
    finally:
        for target in running:
            target.stop()
    return _rows(found)


def _fill(generator: Path, target: Target, made: dict[str, frames.Prepared], options: Options) -> None:
    frames.make_topic(target.port, target.broker_name)
    measure_once(generator, target, Load("batch", "json", 4, 4, _FILL), made["json-batch"])
    for codec in _codecs(target):
        warm(generator, target, Load("pull", codec, 4, 4, options.part_of(_REQUESTS[32])), made[f"{codec}-pull"])


def _codecs(target: Target) -> tuple[str, ...]:
    return tuple(codec for codec in target.codecs if codec != "binary")


def _sizes(target: Target) -> tuple[int, ...]:
    return (32, 500) if target.name == "rmq" else (32,)  # Apache's answers have 32 at most unless it is told otherwise


def _rounds(
    generator: Path, running: list[Target], made: dict[str, frames.Prepared], options: Options, state: str, found: Found
) -> None:
    for number in range(1, options.rounds + 1):
        for target in running:
            for codec in _codecs(target):
                for size in _sizes(target):
                    figure = _pull(generator, target, made, codec, size, options.part_of(_REQUESTS[size]))
                    found.setdefault((target.name, codec, size, state), []).append(figure.cpu_us)
                    about = f"{figure.cpu_us:.2f} us, {figure.per_second:,.0f} messages/s"
                    say(f"  round {number}/{options.rounds}  {target.name}: pulls of {size}, {codec}, {state}: {about}")


def _pull(generator: Path, target: Target, made: dict[str, frames.Prepared], codec: str, size: int, requests: int) -> Figure:
    kind = "pull" if size == 32 else "pull500"
    return measure_once(generator, target, Load(kind, codec, 4, 4, requests), made[f"{codec}-{kind}"])


def _rows(found: Found) -> list[Row]:
    rows = []
    for (who, codec, size, state), figures in found.items():
        theirs = found.get((targets.APACHE, "json", 32, state))
        ratio = _ratio(figures, theirs) if who == "rmq" else None
        goal = Goal(_GOALS[size], of_apache=True) if who == "rmq" else None
        work = f"pulls of {size}, 4 x 4 in flight, {codec}, {state}"
        rows.append(Row(NAME, work, who, "us of broker CPU a message", figures, goal, ratio))
    return rows


def _ratio(ours: list[float], theirs: list[float] | None) -> float | None:
    return round(sorted(ours)[len(ours) // 2] / sorted(theirs)[len(theirs) // 2], 2) if theirs else None
