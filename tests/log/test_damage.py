"""Bytes below what was durable that are no records any more: never cut off, served or passed over in silence (D8)."""

import errno
import re
from collections.abc import Callable

import pytest

from rmq.errors import StoreError
from rmq.log.files.damage import DamagedRange, Damages, MissingSegment
from rmq.log.files.memory import MemoryDisk
from rmq.log.files.verified import BLOCK_BITS, MAX_BLOCKS, Verified
from rmq.log.index.query import KeyMatches, KeyQuery, by_key
from rmq.log.repair import repair
from rmq.log.repair.verify import Verifier
from rmq.log.store import Store
from tests.log.conftest import HOST, ROOT, BadSector, Bench


def files(bench: Bench) -> dict[str, bytes]:
    """All that a repair might need."""
    wanted = ("/commitlog/", "/rmq/progress", "/rmq/epochs", "/rmq/snapshot")
    return {path: bytes(bench.disk.content(path)) for path in bench.disk.paths() if any(part in path for part in wanted)}


def flip(bench: Bench, offset: int) -> None:
    bench.disk.flip(bench.segment(offset // 8192 * 8192), offset % 8192 * 8)


def ranges(store: Store) -> list[tuple[int, int]]:
    return [(found.start, found.end) for found in store.log.damages.ranges]


def damaged(bench: Bench, *, lose: str = "") -> tuple[int, int]:
    """A store killed after a save, one record of which has a flipped bit: where that stands."""
    bench.fill(3)
    victim = bench.send(b"victim", "T", 1)
    bench.fill(5)
    bench.store.save_progress()
    tail = bench.append(bench.unit(b"not flushed"))[0]
    flip(bench, victim.start + 95)
    flip(bench, tail.start + 95)
    bench.disk.kill()
    for path in bench.disk.paths():
        if lose and lose in path:
            bench.disk.unlink(path)
    return victim.start, victim.end


@pytest.mark.parametrize("lose", ["", "/consumequeue/", "/rmq/queues", "/rmq/epochs"])
def test_corrupt_middle_is_not_a_torn_tail(bench: Bench, lose: str) -> None:
    """Story 47, D8: the node opens read-only around it; every other message is served; nothing is changed, however often."""
    bench.fill(3)
    expected = bench.queues()
    bench.store.close()
    bench.open()
    bench.begin()
    start, end = damaged(bench, lose=lose)
    before = files(bench)
    for _ in range(2):
        store = bench.open()
        assert store.read_only
        assert ranges(store) == [(start, end)] == [(one.start, one.end) for one in store.recovered.damaged]
        assert (store.recovered.cut_bytes, store.recovered.records_behind) == (0, False)
        queue = store.queues.get("T", 1)
        assert queue.max == expected["T", 1][1] + 1 + 1 + 2, "no number is missing"
        readable = [store.log.damages.count_good([queue.entry(number)[:2]]) for number in range(queue.max)]
        assert readable.count(0) == 1
        with pytest.raises(StoreError, match=f"bytes {start} to {end} of the log are damaged.*rmq store repair"):
            store.log.read(*queue.entry(readable.index(0))[:2])
        with pytest.raises(StoreError, match="damaged"):
            store.log.gather([queue.entry(readable.index(0))[:2]])
        assert b"victim" not in bench.bodies("T", 1)
        assert len(bench.bodies("T", 1)) == queue.max - 1
        assert len(bench.bodies("U")) == store.queues.get("U", 0).max
        with pytest.raises(AssertionError, match="not written to"):
            store.open_epoch(0)
        store.save_progress()
        store.close()
    assert files(bench) == before


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("number", [1, 2, -1])
def test_a_missing_segment_is_damage(bench: Bench, number: int, clean: bool) -> None:
    """D8: its messages cannot be read, all others can; back in its place, the store is well again."""
    while len(bench.store.log.segments()) < 5:
        bench.fill(6)
    bench.store.save_progress()
    expected = bench.queues()
    base, end = bench.store.log.segments()[number].base, bench.store.log.end
    bench.store.close() if clean else bench.disk.kill()
    content = bytes(bench.disk.content(bench.segment(base)))
    bench.disk.unlink(bench.segment(base))
    store = bench.open()
    assert store.read_only
    [missing] = [segment for segment in store.log.segments() if isinstance(segment, MissingSegment)]
    missing.withdraw()()  # as retention does
    (found,) = ranges(store)
    assert base <= found[0] < found[1] <= min(base + 8192, end), "behind the end is nothing that others have"
    assert bench.queues() == expected
    assert 0 < len(bench.bodies("U")) < store.queues.get("U", 0).max
    assert not bench.disk.exists(bench.segment(base))
    store.close()
    bench.disk.put(bench.segment(base), content)
    assert not bench.open().read_only
    assert len(bench.bodies("U")) == bench.store.queues.get("U", 0).max


@pytest.mark.parametrize("lose", ["", "/consumequeue/"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_truncated_segment_is_damage(bench: Bench, number: int, clean: bool, lose: str) -> None:
    while len(bench.store.log.segments()) < 4:
        bench.fill(6)
    bench.store.save_progress()
    expected = {key: high for key, (_, high, _) in bench.queues().items()}
    segment, end = bench.store.log.segments()[number], bench.store.log.end
    bench.store.close() if clean else bench.disk.kill()
    bench.disk.put(segment.path, bytes(bench.disk.content(segment.path))[:150])
    for path in bench.disk.paths():
        if lose and lose in path:
            bench.disk.unlink(path)
    store = bench.open()
    assert store.read_only
    assert all(segment.base <= start < stop <= segment.base + 8192 for start, stop in ranges(store))
    assert store.log.end == end
    assert len(bench.disk.content(segment.path)) == 150
    if not lose or number != -1:
        assert {queue: store.queues.get(*queue).max for queue in expected} == expected
    assert 0 < len(bench.bodies("U")) < expected["U", 0]


def test_a_log_that_ends_too_early_keeps_its_end(bench: Bench) -> None:
    """Consumers that were further must wait for a repair, not be sent back."""
    bench.fill(10)
    bench.store.save_progress()
    end, high = bench.store.log.end, bench.store.queues.get("U", 0).max
    base = end // 8192 * 8192
    last = bench.bodies("U")[-1]
    bench.disk.kill()
    content = bench.disk.content(bench.segment(base))
    content[end % 8192 - 300 :] = bytes(len(content) - end % 8192 + 300)
    store = bench.open()
    assert store.read_only
    assert (store.log.end, ranges(store)[-1][1], store.queues.get("U", 0).max) == (end, end, high)
    assert last not in bench.bodies("U")


def test_several_places_and_a_whole_segment(bench: Bench) -> None:
    while len(bench.store.log.segments()) < 5:
        bench.fill(6)
    bench.store.save_progress()
    bench.disk.kill()
    for path in bench.disk.paths():
        if path.endswith("/progress"):
            bench.disk.unlink(path)  # then all of the log is walked
    flip(bench, 300)
    flip(bench, 2000)
    bench.disk.content(bench.segment(8192))[:] = bytes(8192)
    store = bench.open()
    assert store.read_only
    assert len(ranges(store)) == 3
    assert ranges(store)[-1][0] >= 8000
    assert ranges(store)[-1][1] == 16384


def test_damage_met_by_a_rebuild(bench: Bench) -> None:
    """Older than what a start looks at: found when the queues have to be made anew."""
    while len(bench.store.log.segments()) < 4:
        bench.fill(6)
    bench.store.save_progress()
    expected = {key: high for key, (_, high, _) in bench.queues().items()}
    bench.disk.kill()
    flip(bench, 400)
    assert not bench.open().read_only
    bench.disk.kill()
    bench.disk.unlink("/store/rmq/queues")
    store = bench.open()
    assert store.read_only
    assert {queue: store.queues.get(*queue).max for queue in expected} == expected


def test_a_cold_read_checks_what_the_disk_gives_back(bench: Bench) -> None:
    """D8: a flipped bit is not served; it is remembered, and the others are."""
    good, bad = bench.send(b"good"), bench.send(b"bad")
    flip(bench, bad.start + 95)
    log = bench.store.log
    spans = [(unit.start, unit.end - unit.start) for unit in (good, bad)]
    assert log.gather_cold(spans[:1])
    with pytest.raises(StoreError, match="damaged"):
        log.gather_cold(spans)
    assert ranges(bench.store) == [(bad.start, bad.end)]
    assert "are damaged" in str(log.damages)
    assert log.damages.count_good(spans) == 1
    assert not bench.store.read_only


def test_what_came_from_the_device_is_checked_once(bench: Bench) -> None:
    """D8: not at every pull that follows; again once it is read from the device again."""
    one, other = bench.send(b"one"), bench.send(b"other")
    log = bench.store.log
    first, second = [(one.start, one.end - one.start)], [(other.start, other.end - other.start)]
    log.gather_cold(first)  # the kernel reads ahead: the second may have come with it
    assert log.gather(first)
    for unit in (one, other):
        flip(bench, unit.start + 95)
    assert log.gather(first), "it was checked"
    assert log.gather(second) is None, "it was not"
    with pytest.raises(StoreError, match="damaged"):
        log.gather_cold(first)
    assert log.gather(second) is None


def test_what_is_known_as_checked_is_bounded() -> None:
    """D18: the block noted first is forgotten, and its records are checked again."""
    verified = Verified(1 << 60)
    spans = [[(block << BLOCK_BITS, 200)] for block in range(MAX_BLOCKS + 1)]
    for span in spans:
        verified.add(span)
    assert [verified.has(span) for span in spans] == [False] + [True] * MAX_BLOCKS


class Unreadable(MemoryDisk):
    """A device that cannot read a sector of the log any more."""

    bad = -1
    bad_file = ""
    error = errno.EIO

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        path = self._handles[handle][0]
        if (offset <= self.bad < offset + size and "/commitlog/" in path) or path == self.bad_file:
            raise OSError(self.error, "it cannot be read")
        return super().pread(handle, size, offset)


def test_what_the_device_cannot_read_is_damage_until_it_is_expired() -> None:
    """D8: a file that retention takes away meanwhile is none."""
    disk = Unreadable()
    bench = Bench(disk=disk).begin()
    good, bad = bench.send(b"good"), bench.send(b"bad")
    disk.bad = bad.start + 90
    spans = [(unit.start, unit.end - unit.start) for unit in (good, bad)]
    with pytest.raises(StoreError, match="check the disk"):
        bench.store.log.gather_cold(spans)
    assert ranges(bench.store) == [(bad.start, bad.end)]
    bench.store.log.damages.drop_before(bad.start)
    assert ranges(bench.store) == [(bad.start, bad.end)]
    bench.store.log.damages.drop_before(bad.end)
    assert not bench.store.log.damages
    disk.error = errno.ESTALE
    with pytest.raises(StoreError):
        bench.store.log.gather_cold(spans)
    assert not bench.store.log.damages


def test_a_start_that_the_device_does_not_let_read_names_the_file_and_what_to_do() -> None:
    """It said "Input/output error; check the disk, then start again", and `rmq store verify` nothing but that error."""
    disk = Unreadable()
    bench = Bench(disk=disk).begin()
    unit = bench.send(b"lies on a bad sector")
    disk.kill()
    disk.bad = unit.start + 90
    about = f"{re.escape(bench.segment())}'; the disk cannot give.* empty directory.*ddrescue"
    with pytest.raises(StoreError, match=about):
        bench.open()
    with pytest.raises(StoreError, match=about):
        Verifier(disk, ROOT, bench.settings.index_slots).run()


@pytest.mark.parametrize("kind", ["vote", "run", "epochs", "progress", "queues", "index"])
def test_a_bad_sector_under_a_file_of_ours(kind: str) -> None:
    """It is told as damage there is, and repaired. A start said "Input/output error", and so did `rmq store verify`."""
    disk = Unreadable()
    bench = Bench(disk=disk).begin()
    bench.send(b"x")
    bench.store.close()
    disk.bad_file = f"{ROOT}/rmq/{kind}"
    with pytest.raises(StoreError, match=f"{disk.bad_file} cannot be read.*`rmq store repair`"):
        bench.open()
    report = Verifier(disk, ROOT, bench.settings.index_slots).run()
    assert [found.where for found in report.findings if found.damage] == [f"rmq/{kind}"]
    for step in repair.plan(disk, ROOT, report, bench.settings.segment_bytes, HOST):
        step.do()
    disk.bad_file = f"{ROOT}/rmq/lost-{kind}"
    bench.open()
    assert bench.bodies() == [b"x"]


def test_what_was_read_before_a_repair_is_not_given_after_it(bench: Bench) -> None:
    """D8: it lay between records that somebody else had asked for, and was kept with them: so readers had it all the same."""
    one, other, last = ((unit.start, unit.size) for unit in (bench.send(b"a"), bench.send(b"b"), bench.send(b"c")))
    bench.store.close()
    bench.open()
    log, bit = bench.store.log, (other[0] + 100) * 8
    stored = log.read(*other)
    assert log.gather([one])
    assert log.gather([last])
    bench.disk.flip(bench.segment(), bit)
    assert log.gather([one, last]) == log.read(*one) + log.read(*last)
    with pytest.raises(StoreError):
        log.gather_cold([other])
    bench.disk.flip(bench.segment(), bit)
    log.damages.drop(log.damages.ranges[0])
    for _ in range(2):
        assert log.gather([other]) == stored


def test_no_log_at_all_is_said_so(bench: Bench, new_bench: Callable[..., Bench]) -> None:
    bench.fill(5)
    bench.store.close()
    bench.disk.unlink(bench.segment())
    with pytest.raises(StoreError, match="is empty.*restore"):
        bench.open()
    assert not Damages()
    assert not new_bench().store.read_only


@pytest.mark.parametrize("span", [(184, 0), (184, -7), (1 << 40, 200), (-1, 200), (184, 1 << 30)])
def test_an_entry_of_a_queue_that_cannot_be_says_what_to_do(bench: Bench, span: tuple[int, int]) -> None:
    """Its form is RocketMQ's, without a checksum: a flipped bit there ended in an error of Python's."""
    bench.fill(5)
    bench.store.close()
    log = bench.open().log
    good = bench.store.queues.get("T", 0).entry(0)
    spans = [(good.offset, good.size), span]
    assert log.gather(spans) is None
    assert log.gather(spans[1:]) is None
    with pytest.raises(StoreError, match="in consumequeue/ is damaged"):
        log.gather_cold(spans)


@pytest.mark.parametrize(("at", "size"), [(0, 1), (64, 0), (-8192, 0), (0, -16), (1, 0)])
def test_an_entry_that_leads_elsewhere_is_not_taken_for_damage_of_the_log(bench: Bench, at: int, size: int) -> None:
    """The log is whole there, so nobody hands over, or fetches bytes from others."""
    bench.fill(60)
    unit = bench.send(b"message")
    bench.fill(60)
    log = bench.store.log
    offset, length = unit.start, unit.end - unit.start
    with pytest.raises(StoreError, match="in consumequeue/ is damaged"):
        log.gather_cold([(offset + at, length + size)])
    assert not log.damages
    flip(bench, offset + 95)
    with pytest.raises(StoreError, match="of the log are damaged"):
        log.gather_cold([(offset, length)])
    assert ranges(bench.store) == [(offset, offset + length)]


def test_entries_in_no_order_are_not_sure() -> None:
    """A flipped bit in a queue's file ended in an error of Python's, and with it the connection of who asked."""
    verified = Verified(1 << 60)
    spans = [(100_000 + 200 * number, 200) for number in range(300)]
    verified.add(spans)
    assert verified.has(spans)
    assert not verified.has([*spans[200:], (100_000 + 64, 200)])


def test_a_key_finds_the_others_beside_what_cannot_be_read() -> None:
    """The whole answer was refused where one message of many was known to be damaged, or one file of the index lies on a bad
    sector."""
    disk = BadSector()
    bench = Bench(disk=disk).begin()
    index = bench.store.indexed.index
    assert index is not None
    old = bench.send(b"old", KEYS="k")
    index.advance(bench.store.log.end, bench.wall_ms)
    [first] = [path for path in disk.paths() if path.startswith(f"{ROOT}/index/")]
    for number in range(2 * bench.settings.index_entries):
        bench.send(b"%d" % number, KEYS="k")
        index.advance(bench.store.log.end, bench.wall_ms)
    wanted = KeyQuery("T", "k", False, 1 << 20, 0, 1 << 62)
    whole = by_key(bench.store.log, index, wanted, bench.store.log.end)
    assert (len(whole.records), whole.complete) == (2 * bench.settings.index_entries + 1, True)
    bench.store.log.damages.add(DamagedRange(old.start, old.end, "by the test"))
    found = by_key(bench.store.log, index, wanted, bench.store.log.end)
    assert found == KeyMatches(whole.records[1:], False)
    disk.bad = first
    found = by_key(bench.store.log, index, wanted, bench.store.log.end)
    assert 0 < len(found.records) < len(whole.records)
    assert (found.records, found.complete) == (whole.records[-len(found.records) :], False)
    with pytest.raises(StoreError, match="cannot read the index.*check the disk"):
        by_key(bench.store.log, index, wanted._replace(word="nowhere"), bench.store.log.end)
