"""Which segments leave the log, and that a store which loses them goes on as if it had begun there (D15)."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmq.errors import StoreError
from rmq.log.files.disk import RealDisk
from rmq.log.files.memory import PowerLoss
from rmq.log.files.segment import Segment
from rmq.log.files.snapshot import QUEUES
from rmq.log.retention import MAX_AT_ONCE, Facts, RetentionSettings, SegmentFacts, count_to_delete
from tests.log.conftest import Bench, power_lost_after

HOUR = 3_600_000
NOW = 1_700_000_000_000
SETTINGS = RetentionSettings()
OLD = [SegmentFacts((number + 1) * 100, NOW - 73 * HOUR) for number in range(3)]


def facts(**changes: Any) -> Facts:
    return Facts(NOW, 4, 0.5, 0, 10_000)._replace(**changes)


def count(segments: list[SegmentFacts] = OLD, settings: RetentionSettings = SETTINGS, **changes: Any) -> int:
    return count_to_delete(segments, facts(**changes), settings)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 3),
        ({"hour": 5}, 0),
        ({"hour": 5, "by_hand": True}, 3),
        ({"hour": 5, "used": 0.75}, 3),
        ({"hour": 5, "used": 0.74}, 0),
        ({"safe_to": 200}, 2),
        ({"safe_to": 199}, 1),
        ({"safe_to": 0, "used": 0.99, "by_hand": True}, 0),
        ({"follower_from": 100}, 1),
        ({"follower_from": 100, "used": 0.84}, 1),
        ({"follower_from": 100, "used": 0.85}, 3),
        ({"now_ms": NOW - 2 * HOUR}, 0),
        ({"drift_ms": HOUR}, 3),
        ({"drift_ms": HOUR + 1}, 0),
        ({"drift_ms": -HOUR - 1, "by_hand": True}, 0),
        ({"drift_ms": HOUR + 1, "used": 0.85}, 3),
    ],
)
def test_by_age_hour_ratio_and_guards(changes: dict[str, Any], expected: int) -> None:
    """D15; RocketMQ's hours and ratios. A clock that jumped is not believed (T1), a full disk is."""
    assert count(**changes) == expected


def test_young_ones_go_only_when_the_disk_is_nearly_full() -> None:
    young = [SegmentFacts(100, NOW - 73 * HOUR), SegmentFacts(200, NOW - HOUR), SegmentFacts(300, NOW - 73 * HOUR)]
    assert count(young, used=0.8) == 1, "the first that is not expired ends it"
    assert count(young, used=0.85) == 3
    assert count(young, used=0.99, settings=RetentionSettings(by_force=False)) == 1
    assert count([SegmentFacts(100, NOW + 10 * HOUR)], by_hand=True) == 0


def test_a_clock_that_was_ahead_holds_no_file() -> None:
    """T3: messages of ten minutes in 2036 kept all files behind them until the disk was nearly full."""
    ahead = [SegmentFacts(100, NOW + 87_600 * HOUR), SegmentFacts(200, NOW + 87_600 * HOUR)]
    assert count([OLD[0], *ahead, SegmentFacts(300, NOW - 73 * HOUR), SegmentFacts(400, NOW - HOUR)]) == 4
    assert count([*ahead, SegmentFacts(300, NOW - HOUR)]) == 0, "they are of a time before that"
    assert count([OLD[0], *ahead]) == 1, "nothing says how old they are"
    assert count([SegmentFacts(100, NOW + HOUR), OLD[0]]) == 0, "clocks of nodes may differ"


def test_a_few_at_a_time() -> None:
    assert count([SegmentFacts(1, 0)] * 50) == MAX_AT_ONCE


# --- done -------------------------------------------------------------------------------------------------------------


def filled(bench: Bench, segments: int = 5) -> Bench:
    """Messages over that many segments, all of them covered by a snapshot."""
    bench.send(topic="Once", count=3)
    while len(bench.store.log.segments()) < segments:
        bench.fill(6)
    bench.store.save_progress()
    snapshot(bench)
    return bench


def snapshot(bench: Bench) -> None:
    s0 = bench.store.dispatcher.position
    writer = bench.store.begin_snapshot()
    writer.add(QUEUES, [(queue.topic, queue.queue_id, queue.max) for queue in bench.store.queues.all()])
    bench.store.publish_snapshot(writer, s0, s0)


def drop(bench: Bench, segments: int) -> None:
    for segment in bench.store.cleaning.drop_before(bench.store.log.segments()[segments].base):
        segment.withdraw()()


def above(queues: dict[tuple[str, int], tuple[int, int, bytes]], start: int) -> dict[tuple[str, int], Any]:
    """What `Bench.queues` would say if the log began at `start`."""
    found = {}
    for key, (low, high, entries) in queues.items():
        rows = [row for row in entries.split(b";") if row]
        kept = [row for row in rows if int(row.split(b",")[0]) >= start]
        found[key] = (high - len(kept), high, b"".join(row + b";" for row in kept))
        assert low <= high - len(kept)
    return found


def test_a_dropped_segment_is_gone_from_log_and_queues(bench: Bench) -> None:
    """And from the files that nobody needs any more; the numbers go on."""
    filled(bench, 12)
    before, old = bench.queues(), bench.store.log.read(0, 100)
    drop(bench, 9)
    start = 9 * 8192
    assert (bench.store.log.start, bench.store.log.segments()[0].base) == (start, start)
    assert not [path for path in bench.disk.paths() if "/commitlog/" in path and int(path[-20:]) < start]
    assert bench.queues() == above(before, start)
    assert len(old) == 100
    with pytest.raises(StoreError, match="not in this log"):
        bench.store.log.read(0, 100)
    files = [path for path in bench.disk.paths() if "/consumequeue/U/0/" in path]
    assert int(files[0][-20:]) // 20 <= bench.store.queues.get("U", 0).min < int(files[0][-20:]) // 20 + 50
    assert [path for path in bench.disk.paths() if "/consumequeue/Once/" in path], "the last file of a queue stays"
    for stop in (bench.disk.kill, lambda: bench.store.close()):
        stop()
        bench.open()
        assert bench.queues() == above(before, start)
    assert bench.begin().send(topic="Once").queue_offset == 3
    assert bench.bodies("Once") == [b"body"]


def test_queue_files_of_idle_queues_go_when_asked_and_the_number_stays(bench: Bench) -> None:
    """cleanExpiredCQ; story 33."""
    filled(bench)
    drop(bench, 3)
    bench.store.cleaning.drop_empty_queues()
    assert not [path for path in bench.disk.paths() if "/consumequeue/Once/" in path]
    for stop in (bench.disk.kill, lambda: bench.store.close()):
        stop()
        assert not bench.open().recovered.queues_rebuilt
        assert bench.store.queues.get("Once", 0).next == 3
    assert bench.begin().send(topic="Once").queue_offset == 3
    bench.store.save_progress()
    bench.disk.kill()
    bench.open()
    assert bench.bodies("Once") == [b"body"]


@pytest.mark.parametrize("keep", [True, False])
def test_power_lost_at_every_step_of_a_deletion(new_bench: Callable[..., Bench], keep: bool) -> None:
    """D5, D15: the store opens with the same queues, from wherever its log begins now."""
    step, begins = 0, set()
    while True:
        bench = filled(new_bench().begin())
        before = bench.queues()
        bench.disk.before = power_lost_after(step)
        try:
            drop(bench, 3)
        except PowerLoss:
            bench.disk.crash(lambda: keep)
            store = bench.open()
            assert not store.recovered.queues_rebuilt
            begins.add(store.log.start)
            assert bench.queues() == above(before, store.log.start) or bench.queues() == above(before, 3 * 8192)
            step += 1
        else:
            break
    assert begins >= {0, 8192, 16384, 3 * 8192}


def test_progress_lost_after_a_deletion(bench: Bench) -> None:
    """D10: the rebuild begins where the log begins."""
    filled(bench)
    before = bench.queues()
    drop(bench, 2)
    for lost in ("progress", "queues", "epochs", "snapshot-"):
        bench.disk.kill()
        for path in bench.disk.paths():
            if f"/rmq/{lost}" in path:
                bench.disk.unlink(path)
        bench.open()
        expected = above(before, 16384)
        if lost == "snapshot-":
            assert bench.queues() == expected
        assert {key: bench.queues()[key] for key in bench.queues()} == expected


def test_a_reader_that_is_in_the_file_is_not_broken(bench: Bench) -> None:
    """D15: a cold read that began before the deletion ends well; the file is closed after it."""
    filled(bench)
    (segment, *_) = bench.store.log.segments()
    expected = segment.read(100, 50)
    seen: list[bytes] = []
    pread, close = bench.disk.pread, bench.disk.close
    closed: list[int] = []
    read_by: list[int] = []

    def slow(handle: int, size: int, offset: int) -> bytes:
        bench.disk.pread = pread  # type: ignore[method-assign]
        drop(bench, 2)
        assert handle not in closed
        read_by.append(handle)
        return pread(handle, size, offset)

    bench.disk.close = lambda handle: (closed.append(handle), close(handle))[1]  # type: ignore[method-assign]
    bench.disk.pread = slow  # type: ignore[method-assign]
    seen.append(segment.read(100, 50))
    assert seen == [expected]
    assert set(read_by) <= set(closed)
    with pytest.raises(OSError, match="deleted by retention"):
        segment.read(100, 50)


def test_the_facts_of_segments(bench: Bench) -> None:
    """The later of the file's time and the next segment's first record; the active one is not among them."""
    filled(bench, 4)
    bench.disk.modified[bench.segment(8192)] = NOW + 5000
    one, two, three = bench.store.cleaning.oldest_segments()
    assert (one.end, two.end, three.end) == (8192, 16384, 24576)
    assert two.newest_ms == NOW + 5000
    assert one.newest_ms == bench.store.log.store_time(8192)
    assert bench.store.cleaning.fullest()[0] == 0


def test_a_disk_that_fails_while_deleting_is_told_and_the_next_try_goes_on(bench: Bench) -> None:
    """D14."""
    filled(bench)

    def fail(operation: str, path: str) -> None:
        if operation == "unlink":
            raise OSError(30, "read-only file system", path)

    bench.disk.before = fail
    with pytest.raises(StoreError, match="check the disk"):
        drop(bench, 2)
    bench.disk.before = lambda operation, path: None
    assert bench.store.log.start == 16384
    drop(bench, 1)
    bench.disk.kill()
    assert bench.open().log.start == 24576


def test_a_dropped_file_is_closed_by_whoever_has_the_time(tmp_path: Path) -> None:
    """To free its space held the event loop up for 0.1 s."""
    closed: list[int] = []

    class Watched(RealDisk):
        def close(self, handle: int) -> None:
            closed.append(threading.get_ident())
            super().close(handle)

    disk = Watched()
    path = str(tmp_path / "0")
    segment = Segment(disk, path, 0, 4096, disk.create(path))
    close = segment.withdraw()
    with pytest.raises(OSError, match="deleted by retention"):
        segment.read(0, 4)
    assert closed == []
    thread = threading.Thread(target=close)
    thread.start()
    thread.join()
    assert closed == [thread.ident]
