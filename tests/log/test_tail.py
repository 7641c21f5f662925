"""The last bytes of the log in memory are those of its files, and whoever follows its end asks no disk."""

import random

import pytest

from rmq.log.files.memory import MemoryDisk
from rmq.log.files.tail import Tail
from rmq.log.replicated import read_entries
from tests.log.conftest import Bench

ROOM = 100_000


@pytest.mark.parametrize("seed", range(20))
def test_it_gives_what_was_written_there_last_or_nothing(seed: int) -> None:
    """Beside it, its twin: a plain copy of all that was ever written."""
    chance, tail, plain = random.Random(seed), Tail(ROOM), bytearray()
    for _ in range(200):
        size = int(ROOM ** chance.uniform(0.1, 1.03))
        if chance.random() < 0.05:
            del plain[max(0, len(plain) - size) :]
            tail.cut(len(plain))
        if chance.random() < 0.05:
            tail = Tail(ROOM)  # a new run, which begins with a cut
            tail.cut(len(plain))
        if chance.random() < 0.05:
            plain += bytes(size)  # the end of a file, of which nothing is kept
        data = chance.randbytes(16) * (size // 16 + 1)
        tail.add(len(plain), data)
        plain += data
        for _ in range(5):
            wanted = int(len(data) * chance.uniform(0, 2))
            at = max(0, len(plain) - int(ROOM * chance.uniform(0, 1.2)) - wanted)
            expected = bytes(plain[at : at + wanted])
            assert tail.read(at, wanted) in (expected, None)
            assert tail.view(at, wanted) in (expected, None)
        last = min(len(data), ROOM // 2)
        assert len(data) > ROOM or tail.read(len(plain) - last, last) == plain[len(plain) - last :]
        assert tail.read(len(plain) - 1, 2) is None


def test_a_record_is_whole_or_not_there() -> None:
    """By the length with which it begins; one that lies in two pieces of the ring is read otherwise."""
    one = (40).to_bytes(4, "big") + bytes(range(36))
    tail = Tail(100)
    for number in range(4):
        tail.add(40 * number, one)
    assert [tail.record(40 * number) for number in range(5)] == [None, None, None, one, None]
    tail.add(160, one)
    assert tail.record(160) == one
    tail.cut(190)
    assert tail.record(160) is None


class Asked(MemoryDisk):
    """Notes which files are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        self.read.append("commitlog")
        return super().pread(handle, size, offset)

    def pread_cached(self, handle: int, into: memoryview, offset: int) -> bool:
        self.read.append("commitlog, cached")
        return super().pread_cached(handle, into, offset)


def test_followers_pulls_and_the_index_ask_no_disk_for_what_was_just_written() -> None:
    """A read of the page cache may last 25 ms in a file that is being written."""
    disk = Asked()
    bench = Bench(disk=disk).begin()
    start = bench.store.log.end
    unit = bench.send(b"body")
    disk.read.clear()
    assert read_entries(bench.store.log, start, 1 << 20) == bench.store.log.gather([(start, unit.end - start)])
    assert bench.store.log.read(unit.physical_offset, unit.size)
    assert not disk.read


def test_a_log_that_is_cut_before_this_run_wrote_to_it_is_read_from_its_file() -> None:
    """A node that comes back, and whose leader knows less than it."""
    bench = Bench().begin()
    start = bench.store.log.end
    kept, _ = bench.send(b"kept"), bench.send(b"cut")
    whole = bench.store.log.read(start, kept.end - start)
    bench.store.close()
    bench.open()
    bench.store.log.cut(kept.end)
    assert bench.store.log.read(start, kept.end - start) == whole
    assert bench.store.log.gather([(kept.physical_offset, kept.size)]) == whole


def test_what_was_cut_is_not_given_any_more() -> None:
    bench = Bench().begin()
    start = bench.store.log.end
    old = bench.send(b"old")
    bench.store.log.cut(start)
    new = bench.send(b"new")
    assert (old.start, old.end) == (new.start, new.end)
    assert b"new" in bench.store.log.read(start, new.end - start)
    assert b"old" not in bench.store.log.read(start, new.end - start)
