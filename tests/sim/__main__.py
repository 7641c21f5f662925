"""`python -m tests.sim --seeds 0:3000` plays worlds; `--seed 17` one of them, twice, and compares the event lists."""

import argparse
import gc
import logging
import sys
import time
import traceback
from collections import Counter
from multiprocessing import Pool

from rmq.errors import RmqError
from tests.sim.fixed import world_of
from tests.sim.judge import Violation


def play(seed: int, seconds: float) -> tuple[int, str, Counter[str], int, float]:
    """Returns the seed, what was violated (or ""), counts of what happened, the digest of the event list, and CPU seconds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    begin = time.process_time()
    world = world_of(seed, seconds)
    wrong = ""
    try:
        world.run()
    except Violation as error:
        wrong = str(error)
    except (AssertionError, RmqError, ArithmeticError, LookupError, TypeError, ValueError, OSError) as error:
        wrong = f"seed {seed}, at {world.now:.3f} s: {traceback.format_exception(error)[-3:]}"
    world.judge.counts["events"] = world.events
    world.judge.counts[f"worlds: {type(world).__name__}"] = 1
    return seed, wrong, world.judge.counts, world.digest, time.process_time() - begin


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="from:to")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long faults go on in each world")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first", action="store_true", help="stop at the first violation")
    options = parser.parse_args()
    logging.disable()
    write = sys.stdout.write
    if options.seed is not None:
        first, second = play(options.seed, options.seconds), play(options.seed, options.seconds)
        write(f"{first[1] or 'all invariants hold'}\n{dict(first[2])}\nevent list {first[3]:08x}, again {second[3]:08x}\n")
        return 1 if first[1] or first[3] != second[3] else 0
    low, high = map(int, options.seeds.split(":"))
    return campaign(range(low, high), options.seconds, options.jobs, options.first)


def campaign(seeds: range, seconds: float, jobs: int, first: bool) -> int:
    write = sys.stdout.write
    total: Counter[str] = Counter()
    wrong, cpu_s = [], 0.0
    with Pool(jobs) as pool:
        for seed, what, counts, _, spent in pool.imap(_Play(seconds), seeds):
            total += counts
            cpu_s += spent
            if what:
                wrong.append(seed)
                write(f"{what[:2000]}\n")
                sys.stdout.flush()
                if first:
                    return 1
    write(f"{len(seeds)} worlds, {len(wrong)} violations {wrong[:20]}\n")
    for name, count in sorted(total.items()):
        write(f"{name:>40} {count:>12,}\n")
    write(
        f"{total['events'] / cpu_s:,.0f} events a CPU second; a fault that shows in one world of {len(seeds) // 3} "
        "would have been found with 95 % certainty\n"
    )
    return 1 if wrong else 0


class _Play:
    """`play` with its seconds given, as the pool needs it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, seed: int) -> tuple[int, str, Counter[str], int, float]:
        return play(seed, self.seconds)


if __name__ == "__main__":
    sys.exit(main())
