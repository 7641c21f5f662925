"""How long a store takes to open, and to make its queues anew, by size.

    python -m benchmarks.recovery [--gib 1 --gib 4] [--store DIR]

Makes a store of that many GiB (messages of 500 bytes with a tag, a key and a unique id, round four queues) and prints: opening
it after a stop in order; after a kill before which only the first half was saved as durable and dispatched, and without a
snapshot, so that a node reads all to find the end of the log, the second half again to fill queues, and all to fill its tables
(each record's checksums are compared each time); making all queues anew in a worker process, with that process's largest memory;
and before that what checksums cost a message, CPU time of one core.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.options import Options, say
from benchmarks.rows import Goal, Row
from rmq.log.files import ownfiles
from rmq.log.files.disk import RealDisk
from rmq.log.records import record
from rmq.log.records.crc import crc32
from rmq.log.replay import replay
from rmq.log.settings import StoreSettings
from rmq.log.store import Store
from rmq.log.units import Unit

NAME = "recovery"
GIB = 1 << 30
HOST = record.host_bytes("127.0.0.1", 10911)
SETTINGS = StoreSettings(HOST)
BATCH = 1000


class Timings(NamedTuple):
    """`clean_s`, `killed_s`: opening it after a stop in order, after a kill; `read_gib`: what the latter reads of the log."""

    gib: float
    messages: int
    clean_s: float
    killed_s: float
    read_gib: float
    rebuilt_s: float
    worker_mib: int


def fill(root: Path, size: int) -> tuple[int, int]:
    """A store of at least `size` bytes, stopped in order; how many messages it holds, and where the first half of them ends."""
    store = Store.open(RealDisk(), str(root), SETTINGS)
    store.open_epoch(1)
    draft = message()
    queues = [store.queues.get("Numbers", number) for number in range(4)]
    units = count = half = 0
    while store.log.end < size:
        unit = Unit(draft * BATCH, (len(draft),) * BATCH, (7,) * BATCH, queues[units % 4])
        store.log.append([unit], 1)
        store.dispatcher.advance(store.log.end)
        units, count = units + 1, count + BATCH
        half = half if half * 2 > size else store.log.end
        if units % 500 == 0:
            store.save_progress()
            store.queues.trim()
    store.close()
    return count, half


def message() -> bytes:
    properties = record.properties_to_bytes({"UNIQ_KEY": "7F00000100002A139A551B8D4CF40001", "KEYS": "order-1", "TAGS": "paid"})
    return record.draft("Numbers", b"x" * 500, properties, born_timestamp=1, born_host=HOST)


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def opened(root: Path) -> None:
    Store.open(RealDisk(), str(root), SETTINGS).abandon()


def kill(root: Path, saved: int) -> None:
    """As if a node was killed that had saved its progress last when the log ended at `saved`."""
    progress = ownfiles.load_progress(RealDisk(), str(root / "rmq"))
    assert progress is not None
    ownfiles.save_progress(RealDisk(), str(root / "rmq"), progress._replace(log=saved, hw=saved, cq=saved))


def opened_after_a_kill(root: Path) -> None:
    store = Store.open(RealDisk(), str(root), SETTINGS)
    for _ in replay(store):  # a node fills its tables with what this finds
        pass
    store.abandon()


def rebuilt(root: Path, end: int) -> tuple[float, int]:
    """Seconds, and the worker's largest memory in MiB."""
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").mkdir()
    arguments = [
        str(root),
        str(SETTINGS.segment_bytes),
        str(SETTINGS.queue_file_entries),
        str(SETTINGS.batch_file_entries),
        str(end),
    ]
    command = [sys.executable, "-m", "rmq.log.rebuild", *arguments]
    began, worker = time.monotonic(), subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(worker.pid, 0)  # of this child alone: those of other sections may have been larger
    worker.returncode = os.waitstatus_to_exitcode(status)
    assert not worker.returncode, "the worker failed"
    return time.monotonic() - began, used.ru_maxrss // 1024


def timings(root: Path, gib: float) -> Timings:
    count, half = fill(root, int(gib * GIB))
    run = ownfiles.load_run(RealDisk(), str(root / "rmq"))
    assert run is not None
    clean = timed(lambda: opened(root))
    kill(root, half)
    read = (run.end - half // SETTINGS.segment_bytes * SETTINGS.segment_bytes) + (run.end - half) + run.end
    killed = timed(lambda: opened_after_a_kill(root))
    seconds, memory = rebuilt(root, run.end)
    return Timings(run.end / GIB, count, clean, killed, read / GIB, seconds, memory)


def measure(options: Options) -> list[Row]:
    """Of a store of 1 GiB, in each round a new one."""
    gib, found = max(options.share, 0.1), []
    for number in range(1, min(options.rounds, 3) + 1):
        found.append(timings(options.folder / f"store {number}", gib))
        say(f"  round {number}: {found[-1]}")
        shutil.rmtree(options.folder / f"store {number}")
    size, about = found[-1].gib, f"{found[-1].messages:,} messages; worker's memory {found[-1].worker_mib} MiB"
    rebuilt_s, killed_s = [one.rebuilt_s / one.gib for one in found], [one.killed_s / one.read_gib for one in found]
    return [
        Row(NAME, f"queues made anew, store of {size:.1f} GiB", "rmq", "s/GiB", rebuilt_s, Goal(8.0), about=about),
        Row(NAME, f"opened after a kill, {found[-1].read_gib:.1f} GiB read", "rmq", "s/GiB", killed_s, Goal(2.0)),
        Row(NAME, f"opened after a stop, store of {size:.1f} GiB", "rmq", "s", [one.clean_s for one in found]),
    ]


def checksums() -> str:
    """What the two checksums of a message cost, each as `checking.check`, `record.stamp` and `record.verify` do it."""
    draft = message()
    run = bytearray(draft)
    record.stamp(run, [(0, [len(run)], 0, 0)], 0, bytes(8) + HOST)
    stored = bytes(run)
    body = each(lambda: crc32(draft[88:588]) & record.CRC_MASK)
    whole = each(lambda: (b"%010d" % (crc32(run[: -record.CRC_BYTES]) & record.CRC_MASK))[::-1])
    verified = each(lambda: record.verify(stored, 0, 0, True))
    return (
        f"a message of 500 bytes, {len(draft)} stored: checksum of its body {body:.2f} us when it comes, of all of it "
        f"{whole:.2f} us when it is stored; a stored record checked {verified:.2f} us"
    )


def each(work: Callable[[], object]) -> float:
    """CPU microseconds of one, the best of five rounds."""
    rounds = []
    for _ in range(5):
        begin = time.process_time()
        for _ in range(20_000):
            work()
        rounds.append((time.process_time() - begin) / 20_000 * 1e6)
    return min(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, action="append")
    parser.add_argument("--store", type=Path, help="where the stores are made and removed again")
    options = parser.parse_args()
    print(checksums())
    for gib in options.gib or [0.25, 1, 4]:
        with tempfile.TemporaryDirectory(dir=options.store) as folder:
            print(timings(Path(folder) / "store", gib))


if __name__ == "__main__":
    main()
