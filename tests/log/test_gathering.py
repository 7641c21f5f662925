"""What was read last is kept: pulls of queues that lie among each other read the log once, and get the same bytes. Neighbours are
cut out of it in one piece."""

import random
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event, current_thread, main_thread

import pytest
from hypothesis import given, strategies as st

from rmq.errors import StoreError
from rmq.log.files.gathering import parts_of
from rmq.log.files.memory import MemoryDisk
from tests.log.conftest import Bench
from tests.log.test_tail import Asked


def opened(disk: Asked) -> tuple[Bench, list[tuple[int, int]]]:
    """A log that another run wrote, so nothing of it is in memory, and its records, which are checked."""
    bench = Bench(disk=disk).begin()
    spans = [(unit.physical_offset, unit.size) for unit in (bench.send(b"body %d" % number) for number in range(120))]
    bench.store.close()
    bench.open()
    for span in spans:
        bench.store.log.gather([span])
    disk.read.clear()
    return bench, spans


@pytest.mark.parametrize("seed", range(10))
def test_it_gives_the_records_in_whatever_order_they_are_asked_for(seed: int) -> None:
    chance = random.Random(seed)
    bench, spans = opened(Asked())
    log = bench.store.log
    for _ in range(100):
        first = chance.randrange(len(spans))
        share = chance.choice([0.3, 1.0])
        wanted = [span for span in spans[first : first + 50] if chance.random() < share] or [spans[first]]
        assert log.gather(wanted) == b"".join(log.read(*span) for span in wanted)


def test_queues_that_lie_among_each_other_are_read_once() -> None:
    disk = Asked()
    bench, spans = opened(disk)
    near = [span for span in spans if span[0] // 8192 == spans[0][0] // 8192]  # of one file
    for queue in range(4):
        assert bench.store.log.gather(near[queue:-4:4])
    assert disk.read.count("commitlog, cached") <= 4
    disk.read.clear()
    for queue in range(4):
        assert bench.store.log.gather(near[queue:-4:4])
    assert not disk.read


def test_what_was_cut_is_not_kept() -> None:
    bench, spans = opened(Asked())
    log = bench.store.log
    assert log.gather(spans[-3:])
    log.cut(spans[-2][0])
    new = bench.begin().send(b"new")
    assert b"new" in (log.gather([spans[-3], (new.physical_offset, new.size)]) or b"")


@given(st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 50]), st.integers(1, 40)), min_size=1, max_size=40), st.integers(0, 100))
def test_the_parts_are_the_records_and_neighbours_are_one(gaps_and_sizes: list[tuple[int, int]], offset: int) -> None:
    spans, end, pieces = [], offset, 1
    for gap, size in gaps_and_sizes:
        gap = gap if spans else 0  # what was read begins with the first
        pieces += gap > 0
        spans.append((end + gap, size))
        end += gap + size
    data = bytes(at * 7 % 251 for at in range(end))
    parts = parts_of(memoryview(data)[offset:end], offset, spans)
    assert b"".join(parts) == b"".join(data[at : at + size] for at, size in spans)
    assert len(parts) == pieces


class Slow(MemoryDisk):
    """A device for which a thread waits: `reading` is set meanwhile, and until `go` nothing comes; then what `comes_first` says
    was there already."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.go, self.comes_first = Event(), Event(), False

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        if current_thread() is main_thread():
            return super().pread(handle, size, offset)
        early = super().pread(handle, size, offset) if self.comes_first else b""
        self.reading.set()
        assert self.go.wait(30)
        return early or super().pread(handle, size, offset)


@pytest.mark.parametrize("comes_first", [False, True])
def test_the_log_begins_anew_while_a_thread_reads_it(comes_first: bool) -> None:
    """D15, as of retention: a member takes a snapshot. The file was closed under its reader: another one has its number soon."""
    disk = Slow()
    disk.comes_first = comes_first
    bench = Bench(disk=disk).begin()
    log, unit = bench.store.log, bench.send(b"old")
    stored = log.read(unit.physical_offset, unit.size)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(log.gather_cold, [(unit.physical_offset, unit.size)])
        assert disk.reading.wait(30)

        def go(operation: str, path: str) -> None:  # the file has left the list, and the next one is not made yet
            if operation == "unlink" and not disk.go.is_set():
                disk.go.set()
                wait([reading], 30)

        disk.before = go
        log.begin_at(1 << 20)
        assert reading.result(30) == stored
    assert not log.damages
    with pytest.raises(StoreError):
        log.gather_cold([(unit.physical_offset, unit.size)])
