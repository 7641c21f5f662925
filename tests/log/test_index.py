"""The index against slow twins: hashes, files, windows of time; disks that fail and machines that stop at every write."""

import asyncio
import random
import resource
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rmq.broker.shared import indexer
from rmq.errors import BadBytes, StoreError
from rmq.log.files import epochs
from rmq.log.files.epochs import EpochEntry
from rmq.log.files.memory import MemoryDisk, PowerLoss
from rmq.log.index import index as index_module
from rmq.log.index.harvest import MAX_ENTRIES, MAX_PROPERTIES_BYTES, NO_ENTRIES, harvest
from rmq.log.index.index import Index, LastRun
from rmq.log.index.indexfile import ENTRY, Header, IndexFile, Shape, file_name
from rmq.log.index.query import KeyQuery, by_key, record_at
from rmq.log.records import record
from rmq.log.records.indexkeys import key_hash
from rmq.log.records.record import Record
from rmq.log.store import Store
from rmq.log.taken import LaidRecords
from rmq.testing import TestClock
from tests.log.conftest import BORN, HOST, ROOT, Bench, power_lost_after
from tests.log.plainindex import plain_files

SHAPE = Shape(16, 20)
WORDS = st.one_of(
    st.sampled_from(["C000020208B64E0E2F2A67B3348A00FF", "order-1", "a b", " ", "\U0001f600", "中文", "z" * 65, "a b", " "]),
    st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=80),
)


class ToyLog:
    """Records back to back in one segment; those of a list of (topic, unique key, keys, tag, store time)."""

    segment_bytes = 1 << 30
    start = 0
    epochs = (EpochEntry(epochs.ROCKETMQ_EPOCH, 0, ""),)  # its records carry no checksum of the whole

    def __init__(self) -> None:
        self.data = b""
        self.laid = LaidRecords()
        self.records: list[Record] = []

    def add(self, topic: str, properties: bytes, stored_ms: int = 1000, **fields: Any) -> None:
        blank = record.decode(record.draft(topic, b"", b"", born_timestamp=0, born_host=fields.pop("born_host", BORN)))
        changed = blank._replace(
            properties=properties, store_timestamp=stored_ms, physical_offset=len(self.data), store_host=HOST, **fields
        )
        data = record.encode(changed)
        self.records.append(record.decode(data))
        self.data += data

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def store_time(self, offset: int) -> int:
        return record.store_timestamp(self.data, offset)


def words_of(one: Record) -> list[tuple[str, bool]]:
    """What a record is found by, in RocketMQ's order, and whether it is the tag."""
    properties = record.bytes_to_properties(one.properties)
    if one.sys_flag & 0xC == 0xC:
        return []
    words = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
    return [(word, False) for word in words if word] + ([(properties["TAGS"], True)] if "TAGS" in properties else [])


def pairs(**properties: str) -> bytes:
    return record.properties_to_bytes(properties)


def built(log: ToyLog, disk: MemoryDisk | None = None) -> Index:
    index = Index(disk or MemoryDisk(), "/index", SHAPE, log, LastRun(None, 0, True))
    while index.position < len(log.data):
        index.advance(len(log.data), 1_700_000_000_000)
    return index


@st.composite
def odd_logs(draw: st.DrawFn) -> ToyLog:
    """Records of all kinds, with properties of all kinds."""
    log = ToyLog()
    for _ in range(draw(st.integers(1, 6))):
        found = {name: draw(WORDS) for name in draw(st.permutations(["UNIQ_KEY", "KEYS", "TAGS", "other"]))}
        found["KEYS"] = " ".join(draw(st.lists(WORDS, max_size=3))) + draw(st.sampled_from(["", " "]))
        properties = b"".join(f"{name}\x01{value}\x02".encode() for name, value in found.items() if value or draw(st.booleans()))
        kind = draw(st.sampled_from(["plain", "497", "v2", "v6", "prepared", "rollback", "twice", "crc", "marks", "bytes"]))
        topic, fields = draw(st.sampled_from(["T", "%RETRY%g", "topic-1", "\u4e2d"])), dict[str, Any]()
        if kind == "497":
            properties = properties.removesuffix(b"\x02")
        elif kind == "v2":
            topic *= 40
            fields["magic"] = record.MAGIC_V2
        elif kind == "v6":
            fields["born_host"] = bytes(16) + BORN[-4:]
        elif kind in ("prepared", "rollback"):
            fields["sys_flag"] = 0x4 if kind == "prepared" else 0xC
        elif kind == "twice":
            properties += f"UNIQ_KEY\x01{draw(WORDS)}\x02TAGS\x01\x02".encode()
        elif kind == "crc":
            properties += b"__CRC32#\x010123456789\x02"
        elif kind in ("marks", "bytes"):
            more = st.lists(st.sampled_from([1, 2, 32, 65, 0x80, 0xE4, 0xFF]), min_size=1, max_size=8)
            at = draw(st.integers(0, len(properties)))
            properties = properties[:at] + bytes(draw(more))[kind == "bytes" :] + properties[at:]
        log.add(topic, properties, **fields)
    return log


@settings(max_examples=400, deadline=None)
@given(odd_logs())
def test_hashes_are_java_s(log: ToyLog) -> None:
    """Twin: java_hash of the whole text, whatever the kind of record and of words."""
    entries, taken = harvest(log.data + b"\0\0\0\x50", 0)
    expected = [(key_hash(one.topic, word, tag=tag), one.physical_offset) for one in log.records for word, tag in words_of(one)]
    assert taken == len(log.data)
    assert list(zip(entries["hash"].tolist(), entries["offset"].tolist(), strict=True)) == expected


def test_the_hash_that_has_no_positive_twin_is_zero() -> None:
    """|-2^31| does not fit: RocketMQ takes 0, and so does the quick way."""
    assert record.java_hash("polygenelubricants") == -(2**31)
    word = solve("T#")
    assert record.java_hash("T#" + word) == -(2**31)
    log = ToyLog()
    log.add("T", pairs(UNIQ_KEY=word, KEYS=word + " " + word.lower()))
    assert harvest(log.data, 0)[0]["hash"].tolist()[:2] == [0, 0]
    assert key_hash("T", word) == 0


def test_one_harvest_is_bounded() -> None:
    """The loop waits for it. A record with more words than that cannot be."""
    log = ToyLog()
    for _ in range(20):
        log.add("T", pairs(KEYS="k " * 16_000))
    taken, found = 0, list[int]()
    while taken < len(log.data):
        entries, count = harvest(log.data[taken:], taken)
        assert 0 < len(entries) <= MAX_ENTRIES
        assert count < 2 * MAX_PROPERTIES_BYTES
        taken, found = taken + count, found + entries["offset"].tolist()
    assert found == [one.physical_offset for one in log.records for _ in range(16_000)]


def solve(head: str) -> str:
    """Seven characters from "0" to "N" that bring Java's hash of the text to -2^31."""
    rest = (2**31 - record.java_hash(head) * 31**7 - 48 * sum(31**power for power in range(7))) % 2**32
    return "".join(chr(48 + rest // 31**power % 31) for power in range(6, -1, -1))


def random_log(seed: int, count: int = 120) -> ToyLog:
    log, chance, stored = ToyLog(), random.Random(seed), 1_000_000
    for number in range(count):
        stored += chance.choice([0, 1, 400, 5000, -30_000, 3_600_000 * (chance.random() < 0.05)])
        properties = {"UNIQ_KEY": f"{number:032X}"} if chance.random() < 0.8 else {}
        if chance.random() < 0.7:
            properties["KEYS"] = " ".join(f"k{chance.randrange(30)}" for _ in range(chance.randrange(1, 3)))
        if chance.random() < 0.5:
            properties["TAGS"] = f"t{chance.randrange(3)}"
        log.add(chance.choice("TU"), pairs(**properties) + b"__CRC32#\x010000000000\x02", stored)
    return log


@pytest.mark.parametrize("seed", range(12))
def test_every_word_is_found_in_every_window_of_time(seed: int) -> None:
    """C16, twin: the records looked at one by one; the clock steps back and stands still for hours."""
    log = random_log(seed)
    index, chance = built(log), random.Random(seed)
    times = sorted({one.store_timestamp for one in log.records})
    words = {(one.topic, *word) for one in log.records for word in words_of(one)}
    for topic, word, tag in words:
        begin, end = sorted(chance.choices([0, *times, times[-1] + 1], k=2))
        limit = chance.choice([1, 2, 64])
        expected = [
            one.physical_offset
            for one in log.records
            if one.topic == topic and (word, tag) in words_of(one) and begin <= one.store_timestamp <= end
        ]
        found = by_key(log, index, KeyQuery(topic, word, tag, limit, begin, end), len(log.data))
        assert [record.decode(one).physical_offset for one in found.records] == expected[-limit:]
        assert found.complete
    assert index.last.end_offset == max(one.physical_offset for one in log.records if words_of(one))


def test_nothing_above_the_committed_end_is_found() -> None:
    """R18: neither by key nor by place, though the index may know it already."""
    log = random_log(1)
    index, last = built(log), next(one for one in reversed(log.records) if words_of(one))
    topic, (word, tag) = last.topic, words_of(last)[0]
    wanted = KeyQuery(topic, word, tag, 64, 0, 2**62)
    end = last.physical_offset + last.total_size
    assert len(by_key(log, index, wanted, end).records) == len(by_key(log, index, wanted, end - 1).records) + 1
    assert record_at(log, last.physical_offset, end)
    assert record_at(log, last.physical_offset, end - 1) is None


def test_the_memory_of_a_new_file_is_there_before_entries_come() -> None:
    """The system makes a page when it is first met: of thousands of entries each met a fresh one, while the event loop waited."""
    disk = MemoryDisk()
    disk.make_directory(ROOT)
    file = IndexFile.create(disk, ROOT, "20260101000000000", Shape(), Header())
    entries = np.zeros(5000, NO_ENTRIES.dtype)
    entries["hash"] = np.random.default_rng(1).integers(0, 2**31, len(entries))
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    file.put(entries)
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before < 500


def test_many_words_with_one_hash_are_told_apart_or_said() -> None:
    """Collisions are never answered; more of them than one query may look at make the answer incomplete."""
    log = ToyLog()
    for number in range(10_050):
        log.add("T", pairs(KEYS="AaAa" if number else "BBBB"))
    index = Index(MemoryDisk(), "/index", Shape(16, 50_000), log, LastRun(None, 0, True))
    while index.position < len(log.data):
        index.advance(len(log.data), 1)
    assert key_hash("T", "AaAa") == key_hash("T", "BBBB")
    assert len(by_key(log, index, KeyQuery("T", "AaAa", False, 64, 0, 2**62), len(log.data)).records) == 64
    assert by_key(log, index, KeyQuery("T", "BBBB", False, 64, 0, 2**62), len(log.data)) == ([], False)


def test_a_key_is_found_while_its_file_is_filled() -> None:
    """C16: a slot never leads to an entry that cannot be read yet."""
    log = random_log(4, 1500)
    index = Index(MemoryDisk(), "/index", Shape(4, 30_000), log, LastRun(None, 0, True))
    first = next(one for one in log.records if words_of(one))
    wanted, end = KeyQuery(first.topic, words_of(first)[0][0], False, 64, 0, 2**62), len(log.data)
    index.advance(first.physical_offset + first.total_size, 1)
    filling = threading.Thread(target=fill_slowly, args=(index, log))
    filling.start()
    try:
        while filling.is_alive():
            assert first.physical_offset in list(index.find(wanted.topic, wanted.word, 0, 2**62))
    finally:
        filling.join()
    assert index.position == end


def fill_slowly(index: Index, log: ToyLog) -> None:
    for one in log.records[1:]:
        index.advance(one.physical_offset + one.total_size, 1)


# --- on the event loop ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_files_are_those_of_the_plain_writer(seed: int) -> None:
    """Twin: entry by entry. In pieces of any length, by `advance` and by `step`, over files that fill up."""
    log, disk, chance = random_log(seed, 400), MemoryDisk(), random.Random(seed)
    shape = Shape(chance.choice([1, 16, 10_007]), chance.choice([20, 150, 100_000]))
    index, ends = Index(disk, "/index", shape, log, LastRun(None, 0, True)), [one.physical_offset for one in log.records[1:]]
    for to in [*sorted(chance.sample(ends, chance.randrange(30))), len(log.data)]:
        while index.position < to:
            if not index.step(to, 1):
                index.advance(to, 1)
            if chance.random() < 0.2:  # perhaps between the two halves of a step
                index.flush()
    index.flush()
    assert content(disk) == plain_files(log.records, shape)


@pytest.mark.parametrize("why", ["nothing open", "no slots in memory", "a new file soon", "far behind"])
def test_what_may_wait_for_a_device_is_not_done_in_a_step(why: str) -> None:
    log, disk = random_log(6), MemoryDisk()
    shape = SHAPE if why == "a new file soon" else Shape(64, 100_000)
    index, end = Index(disk, "/index", shape, log, LastRun(None, 0, True)), len(log.data)
    if why != "nothing open":
        index.advance(log.records[0].total_size, 1)
    if why == "no slots in memory":
        saved = index.flush()
        assert saved is not None
        index = Index(disk, "/index", shape, log, saved)
        index.advance(saved.to, 1)
    if why == "far behind":
        end += 1 << 27
    before = index.position
    assert not index.step(end, 1)
    assert index.position == before


def test_a_step_waits_for_no_other_thread() -> None:
    """The saver flushes the index in a thread, for as long as the device takes."""
    log, disk = random_log(7), MemoryDisk()
    index, end = Index(disk, "/index", Shape(64, 100_000), log, LastRun(None, 0, True)), len(log.data)
    index.advance(log.records[0].total_size, 1)
    seen: list[bool] = []
    disk.before = lambda operation, path: seen.append(index.step(end, 1))
    index.flush()
    assert seen
    assert not any(seen)
    assert index.step(end, 1)


async def test_the_index_is_looked_after_the_more_often_the_faster_the_log_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is far behind is no longer in memory, and would come in many bursts one behind the other."""
    monkeypatch.setattr(indexer, "BURST_BYTES", 4000)
    log = random_log(8, 400)
    committed, index = 0, Index(MemoryDisk(), "/index", Shape(64, 100_000), log, LastRun(None, 0, True))
    one = indexer.Indexer(index, lambda: committed, TestClock(running=False))
    committed = log.records[300].physical_offset
    await one.work()
    quick = one.pause_s
    assert (index.position, indexer.SOON_S <= quick < indexer.EACH_S / 2) == (committed, True)
    for _ in range(6):
        await one.work()
    assert one.pause_s == indexer.EACH_S, "at rest"


@pytest.mark.parametrize(("each", "more_s", "least", "most"), [(1 << 30, 1.0, 80, 130), (4000, 1.0, 1, 20), (4000, 0.0, 80, 130)])
async def test_an_index_that_is_far_behind_takes_more_steps_in_a_turn_of_the_loop(
    each: int, more_s: float, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that brings more than half a burst in each of its turns would never be caught up with. Unless they take too long."""
    for module in indexer, index_module:
        monkeypatch.setattr(module, "BURST_BYTES", 4000)
    monkeypatch.setattr(indexer, "MORE_EACH_BYTES", each)
    monkeypatch.setattr(indexer, "MORE_S", more_s)
    log = random_log(8, 1200)
    index, end = Index(MemoryDisk(), "/index", Shape(64, 100_000), log, LastRun(None, 0, True)), log.records[-1].physical_offset
    index.advance(log.records[0].total_size, 1)
    one, turns = asyncio.create_task(indexer.Indexer(index, lambda: end, TestClock(running=False)).work()), 0
    while not one.done():
        await asyncio.sleep(0)
        turns += 1
    assert end - index.position < 4000
    assert least < turns < most


# --- disks that fail --------------------------------------------------------------------------------------------------


def content(disk: MemoryDisk) -> list[bytes]:
    return [bytes(disk.content(path)) for path in disk.paths() if path.startswith("/index/")]


def test_a_disk_that_fails_at_any_operation_loses_and_doubles_nothing() -> None:
    """D14: what could not be written is written by the next call; the files end as if nothing had happened."""
    log, good = random_log(3), MemoryDisk()
    built(log, good).flush()
    expected, operations = content(good), len(good.operations)
    for failing in range(operations):
        disk = MemoryDisk()
        index = Index(disk, "/index", SHAPE, log, LastRun(None, 0, True))
        left = [failing]

        def fail(operation: str, path: str, left: list[int] = left) -> None:
            left[0] -= 1
            if -3 <= left[0] < 0:
                raise OSError(28, "No space left on device", path)

        disk.before = fail
        failures = 0
        while failures < 20:
            try:
                index.advance(len(log.data), 1_700_000_000_000)
                index.flush()
                if index.position == len(log.data):
                    break
            except StoreError:
                failures += 1
        assert content(disk) == expected, failing


def test_a_full_disk_is_told_in_the_same_words_at_each_try() -> None:
    """The file that could not be made has the time in its name: the log had a line of each try, ten a second."""
    log, disk = random_log(3), MemoryDisk()

    def full(operation: str, path: str) -> None:
        if operation == "create":
            raise OSError(28, "No space left on device", path)

    index, disk.before = Index(disk, "/index", SHAPE, log, LastRun(None, 0, True)), full
    for at_ms in range(3):
        with pytest.raises(StoreError, match=r"^the index in /index cannot be written: \[Errno 28\] [^:]* device; free space"):
            index.advance(len(log.data), 1_700_000_000_000 + at_ms)


def index_of(store: Store) -> Index:
    assert store.indexed.index
    return store.indexed.index


def crashes() -> Iterator[tuple[int, Callable[[], bool]]]:
    for at in range(0, 210, 3):
        chance = random.Random(at)
        yield at, lambda chance=chance: chance.random() < 0.5


def test_power_lost_at_any_write_leaves_an_index_that_goes_on() -> None:
    """D6, D10, D11, R20: sectors kept and lost by chance; after the next start the index is what the log says."""
    stopped = 0
    for at, keep in crashes():
        bench = Bench().begin()
        bench.disk.before = power_lost_after(at)
        chance = random.Random(at)
        try:
            for _ in range(6):
                bench.fill(5)
                index_of(bench.store).advance(bench.store.log.end, bench.wall_ms)
                if chance.random() < 0.6:
                    bench.store.save_progress()
        except PowerLoss:
            stopped += 1
        bench.disk.crash(keep)
        store = bench.open()
        found = index_of(store)
        while found.position < store.log.end:
            found.advance(store.log.end, bench.wall_ms)
        found.flush()
        after = bench.index_files()
        for path in [path for path in bench.disk.paths() if path.startswith(f"{ROOT}/index/")]:
            bench.disk.unlink(path)
        again = Index(bench.disk, f"{ROOT}/index", SHAPE, store.log, LastRun(None, 0, True))
        while again.position < store.log.end:
            again.advance(store.log.end, bench.wall_ms)
        again.flush()
        assert after == bench.index_files(), at
    assert stopped > 60


def test_an_index_that_is_switched_off_leaves_no_hole(bench: Bench) -> None:
    bench.fill(30)
    bench.store.close()
    expected, with_index = bench.index_files(), bench.settings
    assert expected
    bench.settings = with_index._replace(index_slots=0)
    bench.open()
    assert bench.store.indexed.index is None
    bench.begin().fill(3)
    bench.store.close()
    assert bench.index_files() == []
    bench.settings = with_index
    bench.open()
    bench.store.close()
    assert len(bench.index_files()) >= len(expected)
    assert all(ENTRY.unpack_from(data, SHAPE.entries_at + 20)[1] for data in bench.index_files()[1:])


def test_files_of_another_size_are_built_anew(bench: Bench) -> None:
    bench.fill(30)
    bench.store.close()
    bench.settings = bench.settings._replace(index_slots=32)
    bench.open()
    bench.store.close()
    assert {len(data) for data in bench.index_files()} == {Shape(32, 20).file_bytes}


def test_retention_takes_files_below_the_start_of_the_log_and_never_the_last() -> None:
    """D15; and a start after it does not miss them."""
    log, disk = random_log(5), MemoryDisk()
    index = built(log, disk)
    run = index.flush()
    assert run is not None
    assert run.rows is not None
    ends = [row.end for row in run.rows]
    assert index.delete_before(ends[1]) == 1
    assert index.delete_before(ends[1] + 1) == 1
    log.start = ends[1] + 1  # type: ignore[misc]
    files = content(disk)
    again = Index(disk, "/index", SHAPE, log, run)
    again.advance(len(log.data), 1)
    again.flush()
    assert content(disk) == files
    assert index.delete_before(len(log.data)) == len(run.rows) - 3
    assert len(content(disk)) == 1


def test_a_record_that_cannot_be_read_stops_the_index_there() -> None:
    """D8: it is not skipped silently."""
    log = random_log(2)
    bad = log.records[50].physical_offset
    log.data = log.data[:bad] + bytes(100) + log.data[bad + 100 :]
    index = Index(MemoryDisk(), "/index", SHAPE, log, LastRun(None, 0, True))
    index.advance(len(log.data), 1)
    for _ in range(2):
        with pytest.raises(BadBytes, match=f"CommitLog at {bad}"):
            index.advance(len(log.data), 1)
    assert index.position == bad


def test_names_sort_whatever_the_clock_does() -> None:
    """Local time; the same millisecond, or one set back by an hour, goes on from the last name."""
    name = file_name(1_700_000_000_123)
    assert len(name) == 17
    assert name.endswith("20123")
    assert file_name(1_700_000_000_123, name) == str(int(name) + 1)
    assert file_name(1_699_996_400_000, name) == str(int(name) + 1)
    assert file_name(1_700_000_000_124, name) == str(int(name) + 1)
    assert file_name(1, "20261231235959999") == "20270101000000000"
