"""What the index costs: `python -m benchmarks.index`. CPU time of one message, of a flush, and the way back after a crash.

In this process, on a real store in a temporary directory: bodies of 500 bytes with a tag, one key of 16 characters and a unique
id, as benchmarks/run.py sends them; and the same with bodies, keys and tags of all lengths. Best of the rounds, because other
programs can only make it slower.
"""

import platform
import random
import tempfile
import time
from collections.abc import Callable

from rmq.log.files.disk import RealDisk
from rmq.log.index.index import BURST_BYTES, Index
from rmq.log.records import record
from rmq.log.store import Store, StoreSettings
from rmq.log.units import Unit

MESSAGES, ROUNDS, BATCH = 300_000, 5, 1000
HOST = record.host_bytes("127.0.0.1", 10911)


def alike(number: int) -> bytes:
    return message(500, number, f"order-{number * 7919 % 10**10:010d}", f"Tag{number % 5}")


def mixed(number: int) -> bytes:
    chance = random.Random(number)
    key = "k" * chance.randrange(1, 16) + str(number)
    return message(chance.randrange(900), number, key, "t" * chance.randrange(1, 12))


def message(size: int, number: int, key: str, tag: str) -> bytes:
    found = {"UNIQ_KEY": f"C000020208B64E0E2F2A67B3{number:08X}", "TAGS": tag, "KEYS": key}
    return record.draft("Bench", b"x" * size, record.properties_to_bytes(found), born_timestamp=0, born_host=HOST)


def fill(store: Store, first: int, make: Callable[[int], bytes], index: Index) -> float:
    """Messages of one round, committed, and entered as the event loop does, a MiB at a time. CPU seconds of the latter."""
    queue, spent = store.queues.get("Bench", 0), 0.0
    for start in range(first, first + MESSAGES // ROUNDS, BATCH):
        drafts = [make(number) for number in range(start, start + BATCH)]
        unit = Unit(b"".join(drafts), tuple(map(len, drafts)), (0,) * BATCH, queue)
        store.log.append([unit], 1_700_000_000_000 + start)
        store.dispatcher.advance(store.log.end)
        spent += follow(store, index)
    return spent


def follow(store: Store, index: Index) -> float:
    """CPU seconds."""
    began = time.process_time()
    while store.log.end - index.position >= BURST_BYTES:
        if not index.step(store.log.end, 1_700_000_000_000):
            index.advance(store.log.end, 1_700_000_000_000)
    return time.process_time() - began


def catch_up(store: Store, index: Index) -> float:
    """CPU seconds."""
    began = time.process_time()
    while index.position < store.log.end:
        index.advance(store.log.end, 1_700_000_000_000)
    return time.process_time() - began


def main() -> None:
    print(f"Python {platform.python_version()} ({platform.python_compiler()}, {' '.join(platform.python_build())})")
    for make in alike, mixed:
        measure(make)


def measure(make: Callable[[int], bytes]) -> None:
    settings = StoreSettings(HOST, index_slots=5_000_000)
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(RealDisk(), folder, settings)
        store.open_epoch(1_700_000_000_000)
        index = store.indexed.index
        assert index is not None
        fill(store, 0, make, index)
        costs = [fill(store, n * MESSAGES // ROUNDS, make, index) / (MESSAGES // ROUNDS) for n in range(1, ROUNDS)]
        began = time.process_time()
        index.flush()
        flushed = time.process_time() - began
        middle = sorted(costs)[len(costs) // 2]
        print(f"{make.__name__}: a message with 3 entries {min(costs) * 1e6:.2f} us (median {middle * 1e6:.2f})")
        print(f"writing all slots, each 10 s at most: {flushed * 1000:.0f} ms CPU")
        store.abandon()
        store = Store.open(RealDisk(), folder, settings)
        index = store.indexed.index
        assert index is not None
        spent = catch_up(store, index)
        print(f"after a crash: {MESSAGES} messages entered again in {spent:.2f} s CPU, {store.log.end / 2**20 / spent:.0f} MiB/s")
        store.close()


if __name__ == "__main__":
    main()
