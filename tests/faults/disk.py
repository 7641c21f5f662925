"""Thousands of small histories of one store on a disk that fails, forgets, tears and reorders, each checked to the last byte.

    python -m tests.faults.disk --cases 20000 [--seed 1]

A case appends, flushes, dispatches, saves, takes snapshots, drops old segments, cuts and stops, in any order, over a few
runs. Each run ends by a kill (derived files may be deleted then), or by a power loss between or within operations, of which
any subset of unflushed sectors (512 B or 4 KiB) and directory entries survives; recovery may lose power as well. After each
opening the store must be exactly what a slow walk over the bytes says, a prefix of what was appended, and not shorter than
what was durable (D1, D2, D6, D9-D12). Prints what the cases covered, and fails if some kind of trouble did not occur (G4).
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable

from rmq.errors import StoreError
from rmq.log.files.memory import MemoryDisk, PowerLoss
from rmq.log.files.snapshot import QUEUES
from rmq.log.repair.verify import Verifier
from rmq.log.settings import SYNC_FLUSH
from rmq.log.units import Unit
from tests.log.conftest import ROOT, SETTINGS, Bench, nth
from tests.log.model import Model, deletion, problems, slow_end

KINDS = (
    "clean stop", "kill", "power lost between operations", "power lost in append", "power lost in flush", "power lost in save",
    "power lost in close", "power lost in snapshot", "power lost in retention", "power lost in cut", "power lost in recovery",
    "snapshot", "segments dropped", "cut", "derived files lost", "a queue with its number only",
    "torn tail", "cut across two segments", "whole records behind the cut",
    "lost name", "returned name", "rolled", "queues rebuilt", "queues kept", "short write", "full disk", "failed fsync",
    "failed save", "verified, keys looked up", "4 KiB sectors", "topic deleted", "marked as perhaps lossy",
)  # fmt: skip
DERIVED = (
    "/consumequeue/T/0/",
    "/consumequeue/U/",
    "/consumequeue/",
    "/rmq/queues",
    "/rmq/epochs",
    "/rmq/progress",
    "checkpoint",
)
NO_SPACE = OSError(28, "no space left")


class Case:
    """One history, drawn from `chance`. `found`: what went wrong. `covered`: what happened."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.sent = 0
        self.covered: Counter[str] = Counter()
        self.found: list[str] = []
        sector = self.chance.choice((512, 4096))
        self.covered["4 KiB sectors"] += sector == 4096
        segment, entries = self.chance.choice((4096, 8192)), self.chance.choice((5, 50))
        settings = SETTINGS._replace(segment_bytes=segment, queue_file_entries=entries)
        if self.chance.random() < 0.3:
            settings = settings._replace(flush_mode=SYNC_FLUSH)
        self.bench = Bench(settings, MemoryDisk(sector))
        self.model = Model()
        self.bench.begin()
        self.durable = self.least = self.bench.store.log.durable_end  # `least`: what the next opening must find
        self.goings = [0]  # where retention wanted the log to begin, each time
        self.incarnation = 1
        self.share = self.chance.choice((0.0, 0.3, 0.5, 0.9, 1.0))  # of what is not flushed that survives

    def run(self) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            for _ in range(self.chance.randrange(2, 14)):
                self.chance.choice(ACTIONS)(self)
            self.chance.choice(ENDINGS)(self)
            self.reopen()

    # --- what a run does ----------------------------------------------------------------------------------------------

    def units(self) -> list[Unit]:
        return [self.unit() for _ in range(self.chance.randrange(1, 5))]

    def unit(self) -> Unit:
        chance = self.chance
        self.sent += 1
        body = b"%d-" % self.sent + b"x" * chance.choice((0, 30, 200, 500))
        return self.bench.unit(body, chance.choice("TTU"), chance.randrange(3), chance.choice((1, 1, 3)), KEYS=f"k{self.sent}")

    def append(self, *units: Unit) -> None:
        units = units or tuple(self.units())
        try:
            self.bench.append(*units)
        except StoreError:
            return  # refused: must never be seen
        except PowerLoss:
            self.model.take(units)
            raise
        self.model.take(units)

    def flush(self) -> None:
        self.durable = max(self.durable, self.bench.store.log.flush())
        self.bench.store.log.prepare()

    def dispatch(self) -> None:
        self.bench.store.dispatcher.advance(self.bench.store.log.end)

    def index(self) -> None:
        """Enters everything that is dispatched into the index."""
        store = self.bench.store
        index = store.indexed.index
        assert index is not None
        while index.position < store.dispatcher.position:
            index.advance(store.dispatcher.position, self.bench.wall_ms)

    def save(self) -> None:
        self.bench.store.save_progress()

    def delete_topic(self) -> None:
        self.append(deletion(self.bench, "U"))
        self.dispatch()
        self.covered["topic deleted"] += 1

    def snapshot(self) -> None:
        store = self.bench.store
        s0 = store.dispatcher.position
        writer = store.begin_snapshot()
        writer.add(QUEUES, [(queue.topic, queue.queue_id, queue.max) for queue in store.queues.all()])
        store.publish_snapshot(writer, s0, s0)
        self.durable = max(self.durable, store.log.durable_end)
        self.covered["snapshot"] += 1

    def retention(self) -> None:
        """Deletes the segments that a snapshot covers, except the last one."""
        store = self.bench.store
        bases = [
            one.base for one in store.log.segments()[1:] if one.base <= min(store.snapshots.covered, store.dispatcher.position)
        ]
        if bases:
            base = self.chance.choice(bases)
            self.goings.append(base)
            for segment in store.cleaning.drop_before(base):
                segment.withdraw()()
            self.durable = max(self.durable, store.log.durable_end)
            self.covered["segments dropped"] += 1

    def cut(self) -> None:
        """Cuts the log at the end of any unit behind what is dispatched or durable."""
        log = self.bench.store.log
        least = max(self.bench.store.dispatcher.position, log.durable_end)
        end = self.chance.choice([least, *(unit.end for unit in log.pending if unit.end > least)])
        self.covered["cut"] += end < log.end
        log.cut(end)
        self.model.cut(end)
        self.durable = end

    def write_back(self) -> None:
        self.bench.disk.write_back()

    def append_on_a_full_disk(self) -> None:
        """One of the operations of an append fails. What was refused must never be found later."""
        self.bench.store.log.flush()
        end, disk = self.bench.store.log.end, self.bench.disk
        if self.chance.random() < 0.5:
            disk.short_write_bytes = self.chance.randrange(60)
            self.covered["short write"] += 1
        else:
            disk.before = nth(self.chance.randrange(1, 4), NO_SPACE, ("pwrite", "create", "allocate", "rename"))
        self.append()
        disk.before, disk.short_write_bytes = _nothing, None
        self.covered["full disk"] += self.bench.store.log.end == end

    def save_on_a_full_disk(self) -> None:
        self.flush()
        self.bench.disk.before = nth(self.chance.randrange(1, 12), NO_SPACE)
        try:
            self.save()
        except StoreError:
            self.covered["failed save"] += 1
        self.bench.disk.before = _nothing

    # --- how it ends --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kills the process. What was written stays, and so everything that was appended must be found."""
        self.covered["kill"] += 1
        self.least = self.bench.store.log.end
        self.bench.disk.kill()
        if self.chance.random() < 0.3:
            self.lose_derived_files()

    def lose_derived_files(self) -> None:
        """Deletes any combination of the derived files (D10)."""
        kinds = [kind for kind in DERIVED if self.chance.random() < 0.5]
        for path in self.bench.disk.paths():
            if any(kind in path for kind in kinds):
                self.bench.disk.unlink(path)
                self.bench.disk.fsync_directory(path.rpartition("/")[0])
                self.covered["derived files lost"] += 1

    def close(self) -> None:
        self.bench.store.close()
        self.least = self.durable = self.bench.store.log.end
        self.covered["clean stop"] += 1
        if self.chance.random() < 0.5:
            self.crash()

    def lose_power(self) -> None:
        self.covered["power lost between operations"] += 1
        self.crash()

    def lose_power_within(self) -> None:
        name, action, most = self.chance.choice(WITHIN)
        if action is Case.retention:
            self.dispatch()
            self.snapshot()
        self.append()
        if action is not Case.fail_flush:
            self.bench.disk.before = nth(self.chance.randrange(1, most), PowerLoss())
        try:
            action(self)
        except PowerLoss:
            self.covered[f"power lost in {name}"] += 1
        self.crash()

    def fail_flush(self) -> None:
        """A flush fails. From then on this log takes nothing, and everything that it called durable is durable."""
        self.bench.disk.before = nth(1, OSError(5, "input/output error"), ("fdatasync", "fsync_directory"))
        for attempt in (self.flush, lambda: self.bench.append(self.bench.unit()), self.flush):
            try:
                attempt()
            except StoreError:
                self.covered["failed fsync"] += 1
            else:
                self.found.append("something was taken or flushed after a failed flush (D4)")

    def crash(self) -> None:
        self.least = self.durable
        before = set(self.bench.disk.paths())
        self.bench.disk.crash(lambda: self.chance.random() < self.share)
        after = set(self.bench.disk.paths())
        self.covered["lost name"] += bool(before - after)
        self.covered["returned name"] += bool(after - before)

    # --- and what is there then ---------------------------------------------------------------------------------------

    def reopen(self) -> None:
        bench = self.bench
        segments = len(bench.disk.listdir(f"{ROOT}/commitlog"))
        while self.chance.random() < 0.2:
            self.lose_power_in_recovery()
        expected = slow_end(bench.disk, bench.settings.segment_bytes)
        store = bench.open()
        end = store.log.end
        if end != expected:
            self.found.append(f"the log ends at {end}; a slow walk says {expected}")
        if end < self.least:
            self.found.append(f"the log ends at {end}, at least {self.least} was promised (D1, D2)")
        self.model.cut(end)
        self.found += problems(bench, self.model, self.goings)
        whole = max(self.goings) <= store.log.start  # else retention was interrupted: queues begin later than the log
        if whole and self.chance.random() < 0.25:  # as costly as all else together
            self.index()
            self.check_index()
            self.found += [str(one) for one in Verifier(bench.disk, ROOT, SETTINGS.index_slots).run().findings if one.damage]
            self.covered["verified, keys looked up"] += 1
        self.note(segments)
        bench.begin()
        self.durable = store.log.durable_end

    def check_index(self) -> None:
        """Checks that a few messages are found by their keys, each once."""
        index = self.bench.store.indexed.index
        assert index is not None
        there = [event for event in self.model.events if event.queue_offset >= 0 and event.start >= self.bench.store.log.start]
        for event in self.chance.sample(there, min(5, len(there))):
            key = f"k{event.body.partition(b'-')[0].decode()}"
            found = list(index.find(event.topic, key, 0, 1 << 60))
            if found.count(event.start) != 1:
                self.found.append(f"key {key} of the message at {event.start} leads to {found} (D10)")

    def lose_power_in_recovery(self) -> None:
        self.bench.disk.before = nth(self.chance.randrange(1, 40), PowerLoss())
        try:
            self.bench.open()
        except PowerLoss:
            self.covered["power lost in recovery"] += 1
        self.crash()

    def note(self, segments: int) -> None:
        """Notes what was covered, and checks that epoch and vote of this store did not go back (R8, R12)."""
        store, report = self.bench.store, self.bench.store.recovered
        left = len(store.log.segments())
        self.covered["torn tail"] += report.cut_bytes > 0
        self.covered["cut across two segments"] += report.cut_bytes > 0 and left < segments
        self.covered["whole records behind the cut"] += report.records_behind
        self.covered["rolled"] += left > 1
        self.covered["a queue with its number only"] += any(queue.min == queue.max > 0 for queue in store.queues.all())
        self.covered["queues rebuilt" if report.queues_rebuilt else "queues kept"] += 1
        self.covered["marked as perhaps lossy"] += report.may_have_lost
        if store.vote.incarnation <= self.incarnation or store.vote.epoch < max(
            (entry.epoch for entry in store.epochs), default=0
        ):
            self.found.append(f"the vote file went back: {store.vote}")
        self.incarnation = store.vote.incarnation


ACTIONS: tuple[Callable[[Case], None], ...] = (
    Case.append, Case.append, Case.append, Case.append, Case.flush, Case.dispatch, Case.save, Case.write_back, Case.delete_topic,
    Case.append_on_a_full_disk, Case.save_on_a_full_disk, Case.index, Case.snapshot, Case.retention, Case.cut,
)  # fmt: skip
ENDINGS: tuple[Callable[[Case], None], ...] = (
    Case.kill,
    Case.lose_power,
    Case.lose_power,
    Case.close,
    Case.lose_power_within,
)
WITHIN: tuple[tuple[str, Callable[[Case], None], int], ...] = (  # with about how many operations each may take
    ("append", Case.append, 5), ("flush", Case.fail_flush, 0), ("flush", Case.flush, 6), ("save", Case.save, 25),
    ("close", Case.close, 35), ("snapshot", Case.snapshot, 10), ("retention", Case.retention, 25), ("cut", Case.cut, 7),
)  # fmt: skip


def _nothing(operation: str, path: str) -> None:
    """Stands for no trouble: the disk works."""


def campaign(seeds: range) -> tuple[Counter[str], dict[int, list[str]]]:
    """Plays the cases; returns what they covered, and what was found, by seed."""
    covered: Counter[str] = Counter()
    found: dict[int, list[str]] = {}
    for seed in seeds:
        case = Case(random.Random(seed))
        try:
            case.run()
        except Exception as error:  # a bug of the store is a finding like any other
            case.found.append(repr(error))
        covered += case.covered
        if case.found:
            found[seed] = case.found
    return covered, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first case; `--cases 1` repeats one")
    options = parser.parse_args()
    begun = time.monotonic()
    covered, found = campaign(range(options.seed, options.seed + options.cases))
    for kind in KINDS:
        print(f"{covered[kind]:8} {kind}")
    for seed, texts in list(found.items())[:20]:
        print(f"seed {seed}: {'; '.join(texts)}")
    missed = [kind for kind in KINDS if not covered[kind]] if options.cases >= 1000 else []
    print(
        f"{options.cases} cases in {time.monotonic() - begun:.0f} s, {len(found)} with problems"
        + (f"; never happened: {', '.join(missed)}" if missed else "")
    )
    raise SystemExit(1 if found or missed else 0)


if __name__ == "__main__":
    main()
