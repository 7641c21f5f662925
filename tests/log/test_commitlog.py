"""The CommitLog: stamps, rolling, all or nothing, flushing, reading, cutting."""

import errno
import struct
from collections.abc import Callable

import pytest

from rmq.errors import Refusal, StoreError
from rmq.log.files import epochs, gathering
from rmq.log.files.memory import MemoryDisk
from rmq.log.files.segment import BadEntry
from rmq.log.records import record
from rmq.log.store import Store
from rmq.model import EPOCH_TOPIC
from tests.log.conftest import HOST, ROOT, SETTINGS, Bench, draft

FULL = OSError(28, "no space left on device")


def state(bench: Bench) -> object:
    log = bench.store.log
    numbers = {(queue.topic, queue.queue_id): queue.next for queue in bench.store.queues.all() if queue.next}
    content = {path: bytes(bench.disk.content(path)) for path in bench.disk.paths() if "/commitlog/" in path}
    return log.end, numbers, {path: data for path, data in content.items() if data.strip(b"\0")}


def test_nothing_is_appended_before_an_epoch_begins(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench()
    with pytest.raises(StoreError, match="no epoch has begun"):
        bench.append(bench.unit())


def test_a_leaders_first_record_names_its_epoch(bench: Bench) -> None:
    found = record.decode(bench.store.log.read(0, bench.store.log.end))
    assert found.topic == EPOCH_TOPIC
    epoch = epochs.unpack(found.body)
    assert (epoch.epoch, epoch.start, epoch.kind, epoch.lossy) == (1, 0, "start", False)
    assert epoch.writer == bench.store.vote.store_id
    assert epoch.voters == (("n0", epoch.writer, "127.0.0.1:10911"),)
    assert epoch.epochs == (epoch.entry(),)


def test_units_are_numbered_by_queue_and_placed_in_order(bench: Bench) -> None:
    start = bench.store.log.end
    a, b, c, d = bench.append(
        bench.unit(queue_id=1, count=2), bench.unit(queue_id=0), bench.unit(queue_id=1), bench.unit(topic="U")
    )
    assert [unit.queue_offset for unit in (a, b, c, d)] == [0, 0, 2, 0]
    assert [unit.start for unit in (a, b, c, d)] == [start, a.end, b.end, c.end]
    assert bench.store.log.end == d.end
    found = list(bench.store.log.scan(start, d.end))
    assert [(one.topic, one.queue_id, one.queue_offset) for one in found] == [
        ("T", 1, 0),
        ("T", 1, 1),
        ("T", 0, 0),
        ("T", 1, 2),
        ("U", 0, 0),
    ]
    assert {one.store_host for one in found} == {HOST}
    assert {one.store_timestamp for one in found} == {bench.wall_ms}


def test_a_unit_that_does_not_fit_rolls_behind_a_filler(bench: Bench) -> None:
    """The filler is a prefix of the epoch record that begins the next segment; eight bytes always stay free."""
    before = []
    while bench.store.log.end < 8192:
        before.append(bench.send(b"x" * 700, count=2))
    last, previous = before[-1], before[-2]
    left, magic = struct.unpack(">ii", bench.store.log.read(previous.end, 8))
    assert (left, magic) == (8192 - previous.end, record.BLANK_MAGIC)
    rest = bytes(bench.disk.content(bench.segment()))[previous.end + 8 :]
    assert rest == bytes(len(rest))
    first = record.decode(bench.store.log.read(8192, 600))
    assert (first.topic, first.physical_offset) == (EPOCH_TOPIC, 8192)
    assert epochs.unpack(first.body).kind == "roll"
    assert last.start == last.physical_offset == 8192 + first.total_size
    assert [one.queue_offset for one in bench.store.log.scan(0, bench.store.log.end) if one.topic == "T"] == list(
        range(len(before) * 2)
    )


@pytest.mark.parametrize("spare", range(0, 20))
def test_the_last_eight_bytes_of_a_segment_never_hold_a_record(bench: Bench, spare: int) -> None:
    while bench.store.log.end < 7000:
        bench.append(bench.unit(b"x" * 100))
    empty = len(draft(body=b""))
    bench.append(bench.unit(b"x" * (8192 - bench.store.log.end - empty - spare)))
    bench.append(bench.unit())
    end = bench.store.log.flush()
    ends = [one.physical_offset + one.total_size for one in bench.store.log.scan(0, end)]
    assert (8192 - spare in ends) == (spare >= 8)
    assert not any(8184 < place <= 8192 for place in ends)
    bench.disk.kill()
    assert bench.open().log.end == end


def test_a_batch_is_never_split_between_segments(bench: Bench) -> None:
    while bench.store.log.end < 7000:
        bench.append(bench.unit(b"x" * 100))
    (unit,) = bench.append(bench.unit(b"x" * 400, count=5))
    assert unit.physical_offset > 8192
    assert unit.start == unit.physical_offset == record.decode(bench.store.log.read(8192, 600)).total_size + 8192


def test_a_unit_larger_than_a_segment_is_refused_and_changes_nothing(bench: Bench) -> None:
    before = state(bench)
    with pytest.raises(Refusal, match="segments hold at most"):
        bench.append(bench.unit(), bench.unit(b"x" * 7900))
    assert state(bench) == before


def test_multi_queue_burst_disk_full_moves_nothing(bench: Bench) -> None:
    """Story 34, D14: the second segment cannot be made; the first one's bytes are zero again."""
    bench.fill(10)
    before = state(bench)

    def full(operation: str, path: str) -> None:
        if operation == "allocate":
            raise FULL

    bench.disk.before = full
    bench.store.log.flush()
    with pytest.raises(StoreError, match=r"not stored.*free space"):
        bench.append(*(bench.unit(b"x" * 500, queue_id=number % 3) for number in range(40)))
    assert state(bench) == before
    bench.disk.before = lambda operation, path: None
    after = bench.append(*(bench.unit(b"x" * 500, queue_id=number % 3) for number in range(40)))
    assert after[0].start == before[0]  # type: ignore[index]
    bench.commit()
    bench.disk.kill()
    assert bench.open().log.end == after[-1].end


@pytest.mark.parametrize("failing", range(4))
def test_a_write_that_fails_anywhere_in_a_burst_over_segments_moves_nothing(bench: Bench, failing: int) -> None:
    bench.fill(10)
    before = state(bench)
    writes = 0

    def fail(operation: str, path: str) -> None:
        nonlocal writes
        if operation == "pwrite" and "commitlog" in path:
            writes += 1
            if writes == failing + 1:
                raise FULL

    bench.disk.before = fail
    units = [bench.unit(b"x" * 500, queue_id=number % 3) for number in range(40)]
    with pytest.raises(StoreError, match="not stored"):
        bench.append(*units)
    bench.disk.before = lambda operation, path: None
    assert state(bench) == before
    assert not bench.store.log.pending
    bench.append(*(bench.unit(b"y" * 300, queue_id=number % 3) for number in range(40)))
    bench.commit()
    expected = bench.queues()
    bench.disk.kill()
    bench.open()
    assert bench.queues() == expected


def test_a_short_write_is_zeroed_and_refused(bench: Bench) -> None:
    before = state(bench)
    bench.disk.short_write_bytes = 50
    with pytest.raises(StoreError, match="not stored"):
        bench.append(bench.unit())
    assert state(bench) == before
    assert bench.send().queue_offset == 0


def test_a_refused_record_is_not_found_after_power_loss(bench: Bench) -> None:
    """C2: the bytes may have reached the device before they were zeroed, so the zeros are flushed."""
    bench.commit()
    writes = 0

    def fail(operation: str, path: str) -> None:
        nonlocal writes
        writes += (operation, path) in (("pwrite", bench.segment()), ("pwrite", bench.segment(8192)))
        if writes == 2:
            bench.disk.write_back()
            raise FULL

    bench.disk.before = fail
    with pytest.raises(StoreError, match="not stored"):
        bench.append(*(bench.unit(b"refused" * 100) for _ in range(14)))
    bench.disk.crash()
    bench.open()
    assert b"refused" not in b"".join(bytes(bench.disk.content(path)) for path in bench.disk.paths())


def test_when_zeroing_fails_too_the_store_takes_nothing_more(bench: Bench) -> None:
    bench.disk.short_write_bytes = 60

    def fail(operation: str, path: str) -> None:
        if operation == "pwrite" and bench.disk.short_write_bytes is None:
            raise OSError(5, "input/output error")

    bench.disk.before = fail
    with pytest.raises(StoreError, match="could not be undone"):
        bench.append(bench.unit())
    bench.disk.before = lambda operation, path: None
    with pytest.raises(StoreError, match="accepts nothing more"):
        bench.append(bench.unit())


def test_a_failed_flush_is_final(bench: Bench) -> None:
    """D4: a second flush may report success falsely."""
    bench.append(bench.unit())
    durable = bench.store.log.durable_end

    def fail(operation: str, path: str) -> None:
        if operation == "fdatasync":
            raise OSError(5, "input/output error")

    bench.disk.before = fail
    with pytest.raises(StoreError, match="a flush failed"):
        bench.store.log.flush()
    bench.disk.before = lambda operation, path: None
    for call in (bench.store.log.flush, lambda: bench.append(bench.unit())):
        with pytest.raises(StoreError, match="accepts nothing more"):
            call()
    assert bench.store.log.durable_end == durable
    with pytest.raises(StoreError):
        bench.store.close()
    assert not bench.open().recovered.clean


def test_fsync_covers_start_not_end(bench: Bench) -> None:
    """Story 26: what is appended while a flush runs is not durable when it ends."""
    (first,) = bench.append(bench.unit())

    def append_during(operation: str, path: str) -> None:
        if operation == "fdatasync":
            bench.disk.before = lambda operation, path: None
            bench.append(bench.unit())

    bench.disk.before = append_during
    assert bench.store.log.flush() == first.end == bench.store.log.durable_end
    assert bench.store.log.end > first.end
    assert bench.store.log.flush() == bench.store.log.end


def test_a_flush_covers_every_segment_that_was_written_and_its_name(bench: Bench) -> None:
    bench.append(*(bench.unit(b"x" * 900) for _ in range(8)))
    end = bench.store.log.flush()
    assert end > 8192
    bench.disk.crash()
    assert bench.open().log.end == end
    assert not bench.store.recovered.cut_bytes


def test_at_most_one_rolled_segment_is_unflushed(bench: Bench) -> None:
    for _ in range(40):
        bench.append(bench.unit(b"x" * 900))
        log = bench.store.log
        assert log.durable_end > log.end - 2 * 8192 - 8192


def test_the_next_segment_is_made_ahead_and_holds_only_zeros(bench: Bench) -> None:
    while bench.store.log.end < 5000:
        bench.send(b"x" * 500)
    assert bench.disk.size(f"{ROOT}/rmq/next") == 8192
    assert not bench.disk.content(f"{ROOT}/rmq/next").strip(b"\0")
    allocations = [path for operation, path in bench.disk.operations if operation == "allocate"]
    bench.append(*(bench.unit(b"x" * 900) for _ in range(4)))
    assert [path for operation, path in bench.disk.operations if operation == "allocate"] == allocations


def test_clock_back_a_little_a_lot_and_ten_years(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Story 52: store times do not fall for a step of up to 60 s; beyond that the wall clock counts, with a warning."""
    base = bench.wall_ms + 1

    def stored(wall_ms: int) -> int:
        unit = bench.unit()
        bench.store.log.append([unit], wall_ms)
        return bench.store.log.store_time(unit.physical_offset) - base

    assert [stored(base), stored(base - 1), stored(base - 60_000)] == [0, 0, 0]
    assert bench.store.log.clock_stepped_back == 0
    assert stored(base - 60_001) == -60_001
    assert bench.store.log.clock_stepped_back == 1
    assert "behind the last record" in caplog.text
    assert stored(base - 60_000) == -60_000
    assert stored(base + 10 * 365 * 86_400_000) == 10 * 365 * 86_400_000
    assert stored(base) == 0


def test_an_ipv6_store_host_takes_its_room(new_bench: Callable[..., Bench]) -> None:
    host = record.host_bytes("2001:db8::1", 10911)
    bench = new_bench(SETTINGS._replace(store_host=host)).begin()
    bench.fill(20)
    found = list(bench.store.log.scan(0, bench.store.log.end))
    assert {one.store_host for one in found} == {host}
    assert len({one.physical_offset // 8192 for one in found}) > 1
    assert all(len(record.message_id(one.store_host, 5)) == 56 for one in found)
    expected = bench.queues()
    bench.disk.kill()
    bench.open()
    assert bench.queues() == expected


# --- reading ----------------------------------------------------------------------------------------------------------


def spans_of(bench: Bench, topic: str, queue_id: int) -> list[tuple[int, int]]:
    queue = bench.store.queues.get(topic, queue_id)
    return queue.find(0, 1000, 1 << 30, None).spans


def test_gather_gives_the_records_joined_over_gaps_and_segments(bench: Bench) -> None:
    bench.fill(60)
    for topic, queue_id in (("T", 0), ("T", 1), ("U", 0)):
        spans = spans_of(bench, topic, queue_id)
        data = bench.store.log.gather(spans)
        assert data is not None
        assert data == bench.store.log.gather_cold(spans) == b"".join(bench.store.log.read(*span) for span in spans)
        assert [one.queue_offset for one in record.iterate(data)] == list(range(len(spans)))
    far = [spans_of(bench, "T", 0)[0], spans_of(bench, "T", 0)[-1]]
    assert bench.store.log.gather(far) == bench.store.log.gather_cold(far)
    assert bench.store.log.gather([]) == b""


def test_more_is_read_ahead_only_where_somebody_reads_on(
    new_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows is read from the device with it; for one who looks here and there it would be read in vain."""
    monkeypatch.setattr(gathering, "ON_BYTES", 300)
    bench = new_bench(SETTINGS._replace(segment_bytes=1 << 20)).begin()
    units = [bench.send(b"x" * 400) for _ in range(40)]
    places = [(unit.start, unit.end - unit.start) for unit in units]
    sizes: list[int] = []
    bench.disk.read_ahead = lambda handle, offset, size: sizes.append(size)  # type: ignore[method-assign]
    log = bench.store.log
    for number in (30, 3, 20, 10):
        log.gather_cold([places[number]])
    assert sizes == [size for _, size in (places[30], places[3], places[20], places[10])]
    sizes.clear()
    log.gather_cold(places[4:6])
    assert sizes == [log.end - places[4][0]], "it goes on behind the second look"
    log.gather_cold(places[6:8])
    assert sizes[1:] == [log.end - places[6][0]]


def test_neighbours_come_from_the_device_by_one_read(bench: Bench) -> None:
    """Unless one of them cannot be read: then each is asked for by itself, and only that one is damaged."""
    bench.fill(24)
    spans = spans_of(bench, "T", 0)[:6]
    log, pread, reads = bench.store.log, bench.disk.pread, list[tuple[int, int]]()
    bad = spans[3][0]

    def failing(handle: int, size: int, offset: int) -> bytes:
        reads.append((offset, size))
        if fails and offset <= bad < offset + size:
            raise OSError(errno.EIO, "Input/output error")
        return pread(handle, size, offset)

    bench.disk.pread = failing  # type: ignore[method-assign]
    fails = False
    expected = log.gather_cold(spans)
    assert reads == [(spans[0][0], sum(spans[-1]) - spans[0][0])]
    fails = True
    assert log.gather_cold(spans[:3]) == expected[: sum(size for _, size in spans[:3])]
    with pytest.raises(StoreError, match="Input/output error"):
        log.gather_cold(spans)
    assert [(one.start, one.end) for one in log.damages.ranges] == [(bad, sum(spans[3]))]


def test_gather_never_waits_for_the_device(bench: Bench) -> None:
    bench.fill(30)
    bench.disk.evict(bench.segment(8192))
    spans = spans_of(bench, "T", 0)
    assert spans[-1][0] > 8192
    assert bench.store.log.gather(spans) is None
    assert bench.store.log.gather(spans[:1]) == bench.store.log.gather_cold(spans[:1])
    assert len(bench.store.log.gather_cold(spans)) == sum(size for _, size in spans)


def test_bytes_outside_the_log_are_not_read(bench: Bench) -> None:
    end = bench.store.log.end
    for offset, size in ((end, 1), (end - 1, 2), (-1, 1)):
        with pytest.raises(StoreError, match="not in this log"):
            bench.store.log.read(offset, size)


def test_a_scan_stops_at_damage_and_says_where(bench: Bench) -> None:
    """D8: never skipped silently."""
    bench.fill(10)
    victim = bench.send(b"victim")
    bench.fill(3)
    bench.disk.flip(bench.segment(victim.physical_offset // 8192 * 8192), (victim.physical_offset % 8192 + 95) * 8)
    found: list[record.Record] = []
    with pytest.raises(BadEntry) as bad:
        found.extend(bench.store.log.scan(0, bench.store.log.end))
    assert bad.value.at == victim.physical_offset


# --- cutting ----------------------------------------------------------------------------------------------------------


def test_stale_equal_size_record_behind_cut_is_zero(bench: Bench) -> None:
    """Story 1: a record of equal size behind the cut would fit exactly behind a new one."""
    kept = bench.send(b"kept")
    old = bench.append(bench.unit(b"old 1"), bench.unit(b"old 2"))
    bench.store.log.cut(kept.end)
    (new,) = bench.append(bench.unit(b"new 1"))
    assert new.end == old[0].end
    bench.store.log.flush()
    bench.disk.crash()
    bench.open()
    assert bench.store.log.end == new.end
    assert bench.bodies() == [b"kept", b"new 1"]


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("kept", [False, True])
def test_crash_between_cut_and_zero(bench: Bench, steps: int, kept: bool) -> None:
    """Story 2: a crash anywhere in a cut leaves a valid prefix of the old log."""
    keep = bench.send(b"kept")
    units = bench.append(*(bench.unit(b"x" * 900) for _ in range(14)))
    bench.store.log.flush()
    left = steps

    def before(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(5, "stop here")

    bench.disk.before = before
    if steps < 4:
        with pytest.raises(StoreError, match="a cut"):
            bench.store.log.cut(keep.end)
    else:
        bench.store.log.cut(keep.end)
    bench.disk.crash(lambda: kept)
    bench.open()
    assert bench.store.log.end in {keep.end, *(unit.end for unit in units)}
    assert bench.bodies()[0] == b"kept"
    assert len(bench.bodies()) == bench.store.queues.get("T", 0).max


def test_the_next_segment_is_made_when_an_eighth_of_this_one_is_full(bench: Bench) -> None:
    """What is appended counts, not what is flushed. A loop once waited 141 ms for the file: the device was busy."""
    log = bench.store.log
    while log.end < 8192 // 8:
        log.prepare()
        assert not bench.disk.exists(f"{ROOT}/rmq/next")
        bench.append(bench.unit(b"x" * 100))
    assert log.durable_end < log.end
    log.prepare()
    assert bench.disk.exists(f"{ROOT}/rmq/next")


def test_cut_across_two_segments_and_preallocated(bench: Bench) -> None:
    """Story 8."""
    keep = bench.send(b"kept")
    bench.append(*(bench.unit(b"x" * 900, queue_id=number % 2) for number in range(20)))
    bench.store.log.flush()
    bench.store.log.prepare()
    assert len(bench.store.log.segments()) == 3
    assert bench.disk.exists(f"{ROOT}/rmq/next")
    bench.store.log.cut(keep.end)
    assert bench.store.log.end == bench.store.log.durable_end == keep.end
    assert [path for path in bench.disk.paths() if "commitlog" in path] == [bench.segment()]
    assert not bytes(bench.disk.content(bench.segment()))[keep.end :].strip(b"\0")


def test_cut_tail_numbers_reused_once(bench: Bench) -> None:
    """Story 32: numbers given out behind the cut are free again, those before it are not."""
    keep = bench.send(b"0")
    bench.append(bench.unit(b"1"), bench.unit(b"1", queue_id=4, count=3), bench.unit(b"2"))
    bench.store.log.cut(keep.end)
    assert bench.store.queues.get("T", 0).next == 1
    assert bench.store.queues.get("T", 4).next == 0
    assert bench.send(b"again").queue_offset == 1
    assert bench.bodies() == [b"0", b"again"]


def test_nothing_outside_its_units_is_asked_of_the_disk(bench: Bench) -> None:
    """One burst in one segment is one write, and no flush: the page cache is where appends go (design, pay per burst)."""
    bench.disk.operations.clear()
    bench.append(*(bench.unit(b"x" * 50, queue_id=number % 4) for number in range(16)))
    assert [operation for operation, _ in bench.disk.operations] == ["pwrite"]


def test_the_store_says_who_else_uses_it(bench: Bench) -> None:
    """D16."""
    with pytest.raises(StoreError, match="another process"):
        Store.open(bench.disk, ROOT, SETTINGS)
    bench.store.close()
    bench.open()


def test_two_disks_do_not_know_each_other() -> None:
    disk = MemoryDisk()
    Store.open(disk, "/a", SETTINGS)
    Store.open(disk, "/b", SETTINGS)
