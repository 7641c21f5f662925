"""What metrics cost a message: broker CPU (user + system) with and without them, in pairs of rounds that take turns; medians.

    python -m benchmarks.metrics [--rounds 15] [--interval 15] [--topics 200]

Two nodes, each a process: one without metrics, one that is asked for them every few seconds, as Prometheus does. Needs Linux and
a C compiler.
"""

import argparse
import asyncio
import statistics
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import frames, targets
from benchmarks.measured import Load, compile_load, measure as measure_once
from benchmarks.targets import Target
from rmq.clock import SystemClock
from rmq.log.records import record
from rmq.net.commands import Hello, Send, UpdateTopic
from rmq.net.transport.dialer import Dialer
from tests.ports import free_port

_AT_ONCE = 100
CASES = {
    "single sends, 4 x 16 in flight": Load("single", "native", 4, 16, 100_000),
    "pulls of 32, 4 x 4 in flight": Load("pull", "native", 4, 4, 10_000),
}


@contextmanager
def asked(port: int, interval_s: float) -> Iterator[list[int]]:
    """Scrapes all the time; gives the sizes of the pages."""
    ended = threading.Event()
    sizes: list[int] = []

    def ask() -> None:
        while not ended.wait(interval_s):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                sizes.append(len(answer.read()))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield sizes
    finally:
        ended.set()
        asking.join()


async def make_topics(port: int, count: int) -> None:
    """With a message each, so that they have series."""
    channel = await Dialer(SystemClock()).open(f"127.0.0.1:{port}", Hello(1, "benchmark"))

    async def make(number: int) -> None:
        topic = f"Topic-{number:05}"
        await channel.request(UpdateTopic(topic, read_queue_nums=1, write_queue_nums=1), 60.0)
        sent = record.draft(topic, b"x" * 100, b"", born_timestamp=1, born_host=record.host_bytes("127.0.0.1", 0))
        await channel.request(Send("p", topic, 0, sent), 60.0)

    for begin in range(0, count, _AT_ONCE):
        await asyncio.gather(*map(make, range(begin, min(count, begin + _AT_ONCE))))
    await channel.close()


def measure(folder: Path, rounds: int, interval_s: float, topics: int) -> None:
    generator, made = compile_load(folder), frames.prepare(folder / "frames", "broker-a")
    port = free_port()
    with ExitStack() as stack:
        without = targets.start_rmq(folder / "without", False)
        stack.callback(without.stop)
        with_them = targets.start_rmq(folder / "with", False, {"RMQ_METRICS": "prom", "RMQ_METRICS_PORT": str(port)})
        stack.callback(with_them.stop)
        pair = {"without": without, "with": with_them}
        for target in pair.values():
            frames.make_topic(target.port, target.broker_name)
            asyncio.run(make_topics(target.port, topics))
        sizes = stack.enter_context(asked(port, interval_s))
        for title, load in CASES.items():
            found = in_pairs(generator, pair, load, made[load.key], rounds)
            shares = [(more - less) / less * 100 for less, more in zip(found["without"], found["with"], strict=True)]
            print(f"{title}: {rounds} pairs, a scrape each {interval_s:g} s, {topics} topics")
            for name, each in found.items():
                print(f"  {name:8} {statistics.median(each):6.2f} us CPU a message ({min(each):.2f} to {max(each):.2f})")
            print(f"  median of the pairs' differences: {statistics.median(shares):+.1f} %")
        print(f"{len(sizes)} scrapes of {max(sizes, default=0) / 1024:.0f} KiB at most")


def in_pairs(
    generator: Path, pair: dict[str, Target], load: Load, prepared: frames.Prepared, rounds: int
) -> dict[str, list[float]]:
    """CPU in us. The first round of each is not counted; which one begins changes from pair to pair."""
    found: dict[str, list[float]] = {name: [] for name in pair}
    for number in range(rounds + 1):
        for name in sorted(pair, reverse=number % 2 == 0):
            figure = measure_once(generator, pair[name], load, prepared)
            if number:
                found[name].append(figure.cpu_us)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="pairs of rounds")
    parser.add_argument("--interval", type=float, default=15, help="seconds from scrape to scrape")
    parser.add_argument("--topics", type=int, default=200, help="topics beside the one that is sent to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-bench-") as name:
        measure(Path(name), options.rounds, options.interval, options.topics)
