"""What the index costs: `python -m benchmarks.index`. CPU time of one message, memory, and the way back after a crash.

In this process, on a real store in a temporary directory: bodies of 500 bytes with a tag, one key and a unique id, as
benchmarks/run.py sends them. Best of the rounds, because other programs can only make it slower.
"""

import resource
import tempfile
import time

from rmq.log.commitlog import Unit
from rmq.log.files.disk import RealDisk
from rmq.log.index.index import Index
from rmq.log.records import record
from rmq.log.store import Store, StoreSettings

MESSAGES, ROUNDS, BATCH = 300_000, 5, 1000
HOST = record.host_bytes("127.0.0.1", 10911)


def fill(store: Store, first: int) -> None:
    """Messages of one round, committed."""
    queue = store.queues.get("Bench", 0)
    for start in range(first, first + MESSAGES // ROUNDS, BATCH):
        drafts = [
            record.draft(
                "Bench",
                b"x" * 500,
                record.properties_to_bytes(
                    {
                        "UNIQ_KEY": f"C000020208B64E0E2F2A67B3{number:08X}",
                        "TAGS": f"Tag{number % 5}",
                        "KEYS": f"order-{number * 7919}",
                    }
                ),
                born_timestamp=0,
                born_host=HOST,
            )
            for number in range(start, start + BATCH)
        ]
        unit = Unit(b"".join(drafts), tuple(map(len, drafts)), (0,) * BATCH, queue)
        store.log.append([unit], 1_700_000_000_000 + start)
    store.dispatcher.advance(store.log.flush())


def catch_up(store: Store, index: Index) -> float:
    """CPU seconds."""
    began = time.process_time()
    while index.position < store.log.end:
        index.advance(store.log.end, 1_700_000_000_000)
    return time.process_time() - began


def main() -> None:
    settings = StoreSettings(HOST, index_slots=5_000_000)
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(RealDisk(), folder, settings)
        store.open_epoch(1_700_000_000_000)
        index = store.indexed.index
        assert index is not None
        fill(store, 0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        catch_up(store, index)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        costs = []
        for number in range(1, ROUNDS):
            fill(store, number * MESSAGES // ROUNDS)
            costs.append(catch_up(store, index) / (MESSAGES // ROUNDS))
        began = time.process_time()
        index.flush()
        flushed = time.process_time() - began
        print(f"entering a message with 3 entries: {min(costs) * 1e6:.2f} us (median {sorted(costs)[len(costs) // 2] * 1e6:.2f})")
        print(f"memory: {grown:.0f} MiB more; writing all slots, each 10 s at most: {flushed * 1000:.0f} ms CPU")
        store.abandon()
        store = Store.open(RealDisk(), folder, settings)
        index = store.indexed.index
        assert index is not None
        spent = catch_up(store, index)
        print(f"after a crash: {MESSAGES} messages entered again in {spent:.2f} s CPU, {store.log.end / 2**20 / spent:.0f} MiB/s")
        store.close()


if __name__ == "__main__":
    main()
