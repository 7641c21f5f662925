"""RocketMQ's own benchmark producer, 64 threads, at rmq and at Apache RocketMQ: messages a second, all on this machine."""

import time

from benchmarks import frames, targets
from benchmarks.options import Options, say
from benchmarks.rows import Goal, Row, beside
from benchmarks.targets import Target

NAME = "producer"
THREADS = 64
_WARM_S, _MEASURED_S = 15, 10
_GOAL = Goal(1.5, at_most=False, of_apache=True)


def rate(target: Target, options: Options) -> float:
    """Messages stored a second once the producer's JVM is warm."""
    folder = options.folder / "producer"
    folder.mkdir(exist_ok=True)
    command = targets.java_program(folder, options.cache, say, "example.benchmark.Producer")
    arguments = ["-n", target.nameserver, "-t", frames.TOPIC, "-w", str(THREADS), "-s", str(frames.BODY_BYTES)]
    process = targets.spawn([*command, *arguments], folder / "producer.log", folder)
    try:
        time.sleep(_WARM_S)
        before, began = target.stored(target.port), time.monotonic()
        time.sleep(max(_MEASURED_S * options.share, 2))
        stored, seconds = target.stored(target.port) - before, time.monotonic() - began
        assert process.poll() is None, f"RocketMQ's producer ended: {(folder / 'producer.log').read_text()[-2000:]}"
        return stored / seconds
    finally:
        process.kill()
        process.wait()


def measure(options: Options) -> list[Row]:
    if options.apache_missing:
        say(f"  left out: {options.apache_missing}")
        return []
    running = [targets.start_rmq(options.folder / "rmq", options.sync)]
    found: dict[str, list[float]] = {}
    try:
        running.append(targets.start_apache(options.folder / "apache", options.cache, say, options.sync))
        for target in running:
            frames.make_topic(target.port, target.broker_name)
        for number in range(options.rounds + 1):  # the first is for warming up
            for target in running:
                per_second = rate(target, options)
                if number:
                    found.setdefault(target.name, []).append(per_second)
                    say(f"  round {number}/{options.rounds}  {target.name}: {per_second:,.0f}/s")
    finally:
        for target in running:
            target.stop()
    work = f"RocketMQ's producer, {THREADS} threads, single sends"
    return beside(NAME, work, "messages/s", found, targets.APACHE, _GOAL)
