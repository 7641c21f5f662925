"""A damaged range filled with another node's bytes: only what stood there, all of it, and again after any crash."""

import copy
import random
from collections.abc import Callable

import pytest

from rmq.errors import BadBytes, StoreError
from rmq.log.commitlog import CommitLog
from rmq.log.files.memory import MemoryDisk, PowerLoss
from rmq.log.files.segment import FILLER
from rmq.log.records.record import BLANK_MAGIC
from rmq.log.records.tombstones import tombstone
from rmq.log.repair import peerrepair
from rmq.log.repair.peerrepair import PeerRepair, epochs_over, read_part
from rmq.log.store import Store
from rmq.model import EpochHistory
from tests.log.conftest import HOST, ROOT, Bench, nth
from tests.log.test_damage import flip


@pytest.fixture
def pair() -> tuple[Bench, Bench]:
    """Two nodes with the same log of five files, in two epochs. The first one was killed."""
    bench = Bench().begin()
    bench.fill(20)
    bench.store.close()
    bench.open()
    bench.begin()
    while len(bench.store.log.segments()) < 5:
        bench.fill(4)
    bench.store.save_progress()
    bench.disk.kill()
    return bench, Bench(disk=copy.deepcopy(bench.disk))


def put_right(bench: Bench, log: CommitLog) -> None:
    """As `rmq.broker.replication.peerrepair` does."""
    for found in bench.store.log.damages.ranges:
        one = PeerRepair(bench.disk, ROOT, log.segment_bytes, bench.store.epochs, found)
        try:
            fill(one, log)
            one.put()
        finally:
            one.close()


def fill(one: PeerRepair, log: CommitLog) -> None:
    while one.position < one.end:
        data = read_part(log, one.position, min(one.position + one.wanted, one.end))
        one.take(data, epochs_over(log.epochs, one.position, one.position + len(data)))


def logs(disk: MemoryDisk, other: Bench) -> dict[str, bytes]:
    end = other.store.log.end
    names = [path for path in disk.paths() if "/commitlog/" in path]
    return {path: bytes(disk.content(path))[: max(0, end - int(path[-20:]))] for path in names}


def lose(bench: Bench, what: str) -> None:
    for path in bench.disk.paths():
        if what in path:
            bench.disk.unlink(path)


def flip_one(bench: Bench) -> None:
    flip(bench, bench.store.log.end - 700)


def flip_a_head(bench: Bench) -> None:
    """The magic of a record is gone, so the walk goes on at the one behind it."""
    number = bench.store.queues.get("U", 0).max - 3
    flip(bench, bench.store.queues.get("U", 0).entry(number)[0] + 5)


def flip_a_filler(bench: Bench) -> None:
    base = bench.store.log.segments()[-2].base
    lose(bench, "/rmq/queues")  # found when all of the log is walked
    content = bytes(bench.disk.content(bench.segment(base)))
    flip(bench, base + content.rindex(BLANK_MAGIC.to_bytes(4, "big", signed=True)))


def lose_a_file(bench: Bench) -> None:
    bench.disk.unlink(bench.segment(16384))


def shorten_a_file(bench: Bench) -> None:
    bench.disk.put(bench.segment(16384), bytes(bench.disk.content(bench.segment(16384)))[:3001])


def wipe_the_end(bench: Bench) -> None:
    """The log ends too early: nothing good stands behind."""
    end = bench.store.log.end
    bench.disk.content(bench.segment(end // 8192 * 8192))[end % 8192 - 300 :] = bytes(8192 - end % 8192 + 300)


DAMAGES = [flip_one, flip_a_head, flip_a_filler, lose_a_file, shorten_a_file, wipe_the_end]


def whole(bench: Bench, other: Bench) -> None:
    """R2: log, queues and all are those of the other node."""
    assert not bench.open().read_only
    assert logs(bench.disk, other) == logs(other.disk, other)
    assert bench.queues() == other.queues()
    assert len(bench.bodies("U")) == other.store.queues.get("U", 0).max


@pytest.mark.parametrize("lose_queues", [False, True])
@pytest.mark.parametrize("harm", DAMAGES, ids=lambda harm: harm.__name__)
def test_whatever_is_damaged_is_as_it_was(pair: tuple[Bench, Bench], harm: Callable[[Bench], None], lose_queues: bool) -> None:
    """Story 47, D8, R2: the log byte for byte, and what is made from it, also if that was made anew when not all could be
    read."""
    bench, other = pair
    harm(bench)
    if lose_queues:
        lose(bench, "/consumequeue/")
    assert bench.open().read_only
    put_right(bench, other.store.log)
    bench.store.close()
    whole(bench, other)


@pytest.mark.parametrize("harm", DAMAGES, ids=lambda harm: harm.__name__)
def test_a_crash_at_each_operation_of_a_repair_is_done_again(pair: tuple[Bench, Bench], harm: Callable[[Bench], None]) -> None:
    """D5, D8: what is not whole yet is found again, whatever of it survived."""
    bench, other = pair
    harm(bench)
    before = bench.disk

    def opened() -> None:
        bench.disk = copy.deepcopy(before)
        assert bench.open().read_only
        bench.disk.operations.clear()

    opened()
    put_right(bench, other.store.log)
    total = len(bench.disk.operations)
    assert total >= 5
    for at in range(1, total + 1):
        for seed, share in enumerate((0.0, 1.0, 0.5)):
            opened()
            bench.disk.before = nth(at, PowerLoss())
            with pytest.raises(PowerLoss):
                put_right(bench, other.store.log)
            chance = random.Random(seed)
            bench.disk.crash(lambda chance=chance, share=share: chance.random() < share)  # type: ignore[misc]
            if bench.open().read_only:
                put_right(bench, other.store.log)
            bench.disk.kill()
            whole(bench, other)


# --- what is not written back -----------------------------------------------------------------------------------------


def damaged(pair: tuple[Bench, Bench]) -> tuple[Store, PeerRepair, bytes, EpochHistory]:
    """One record is damaged: the repair of it, the right bytes and whose they are."""
    bench, other = pair
    flip_one(bench)
    store = bench.open()
    (found,) = store.log.damages.ranges
    data = read_part(other.store.log, found.start, found.end)
    return store, PeerRepair(bench.disk, ROOT, 8192, store.epochs, found), data, epochs_over(store.epochs, found.start, found.end)


def test_the_right_bytes_are_taken(pair: tuple[Bench, Bench]) -> None:
    _, one, data, history = damaged(pair)
    one.take(data, history)
    assert one.position == one.end


@pytest.mark.parametrize("change", [{"writer": "ee" * 8}, {"epoch": 9}])
def test_bytes_of_another_leader_are_not_taken(pair: tuple[Bench, Bench], change: dict[str, object]) -> None:
    """R5: they may look right, and be another message."""
    _, one, data, history = damaged(pair)
    with pytest.raises(BadBytes, match="another leader's epoch"):
        one.take(data, tuple(entry._replace(**change) for entry in history))  # type: ignore[arg-type]
    with pytest.raises(BadBytes, match="not known whose"):
        one.take(data, ())
    bench, _ = pair
    unknown = PeerRepair(bench.disk, ROOT, 8192, (), bench.store.log.damages.ranges[0])
    with pytest.raises(BadBytes, match="not known whose"):
        unknown.take(data, ())


def test_damaged_bytes_are_not_taken(pair: tuple[Bench, Bench]) -> None:
    """D7: each bit of them."""
    _, one, data, history = damaged(pair)
    for bit in range(len(data) * 8):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadBytes):
            one.take(bytes(wrong), history)
        assert one.position == one.start


def test_a_record_that_reaches_into_what_is_whole_is_not_taken(pair: tuple[Bench, Bench]) -> None:
    """Nor half of one, nor one that leaves a rest in which no record stands."""
    bench, other = pair
    _, one, data, history = damaged(pair)
    shorter = PeerRepair(bench.disk, ROOT, 8192, bench.store.epochs, one_less(one))
    with pytest.raises(BadBytes, match="whole here"):
        shorter.take(data, history)
    with pytest.raises(BadBytes, match="no whole record"):
        one.take(data[:60], history)
    filler = FILLER.pack(8192 - one.start % 8192, BLANK_MAGIC)
    with pytest.raises(BadBytes, match="end of a file"):
        one.take(filler, epochs_over(bench.store.epochs, one.start, one.start + 8))
    end = bench.store.log.damages.ranges[0].end
    behind = read_part(other.store.log, end, end + 500)
    with pytest.raises(BadBytes, match="says it is at"):
        one.take(behind, history)


def one_less(one: PeerRepair) -> peerrepair.DamagedRange:
    return peerrepair.DamagedRange(one.start, one.end - 1, "")


def test_a_queue_that_leads_nowhere_is_told_from_a_damaged_log(pair: tuple[Bench, Bench]) -> None:
    """D12: nothing is written then."""
    bench, other = pair
    store = bench.open()
    offset, size, _ = store.queues.get("U", 0).entry(3)
    wrong = PeerRepair(bench.disk, ROOT, 8192, store.epochs, peerrepair.DamagedRange(offset + 7, offset + size, ""))
    data = read_part(other.store.log, offset + 7, offset + size)
    with pytest.raises(BadBytes, match="remove consumequeue/"):
        wrong.take(data, epochs_over(store.epochs, offset + 7, offset + size))


def test_an_epoch_record_of_another_epoch_is_not_taken(pair: tuple[Bench, Bench]) -> None:
    """R5: what a record says of itself counts more than what a node says of it."""
    bench, other = pair
    entry = other.store.epochs[1]
    flip(bench, entry.start + 95)
    lose(bench, "/rmq/queues")
    store = bench.open()
    found = next(one for one in store.log.damages.ranges if one.start == entry.start)
    data = read_part(other.store.log, found.start, found.end)
    history = (store.epochs[0], entry._replace(epoch=entry.epoch + 1))
    wrong = PeerRepair(bench.disk, ROOT, 8192, history, found)
    with pytest.raises(BadBytes, match="here it is of"):
        wrong.take(data, epochs_over(history, found.start, found.end))


def test_a_tombstone_is_taken_only_when_asked_for(pair: tuple[Bench, Bench]) -> None:
    """D8: somebody has repaired that node by hand; another one may have the message itself."""
    _, one, data, history = damaged(pair)
    lost = tombstone("U", 0, 5, one.start, len(data), HOST, protected=True)
    with pytest.raises(BadBytes, match="tombstone of a lost message"):
        one.take(lost, history)
    one.take(lost, history, tombstones=True)
    assert one.position == one.end


def test_what_is_damaged_or_not_there_is_not_given(pair: tuple[Bench, Bench]) -> None:
    store, one, _, _ = damaged(pair)
    with pytest.raises(StoreError, match="damaged there"):
        read_part(store.log, one.start, one.end)
    assert len(read_part(store.log, one.start - 100, one.end)) == 100
    with pytest.raises(StoreError, match="goes from 0 to"):
        read_part(store.log, store.log.end, store.log.end + 1)


def test_what_one_node_lacks_comes_from_the_next(pair: tuple[Bench, Bench]) -> None:
    """A whole file is gone here; the other one has a wrong bit in it that nobody has met yet, and a third one has all."""
    bench, other = pair
    third = copy.deepcopy(other.disk)
    third.kill()
    lose_a_file(bench)
    flip(other, 16384 + 5000)
    store = bench.open()
    (found,) = store.log.damages.ranges
    one = PeerRepair(bench.disk, ROOT, 8192, store.epochs, found)
    sources = [other.store.log, Bench(disk=third).store.log]
    with pytest.raises(BadBytes):
        fill(one, sources[0])
    assert 16384 < one.position < 16384 + 5000
    fill(one, sources[1])
    one.put()
    one.close()
    assert bytes(bench.disk.content(bench.segment(16384))) == bytes(third.content(bench.segment(16384)))


def test_a_record_larger_than_a_part_is_asked_for_as_a_whole(pair: tuple[Bench, Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peerrepair, "PART_BYTES", 50)
    bench, other = pair
    lose_a_file(bench)
    bench.open()
    put_right(bench, other.store.log)
    bench.store.close()
    whole(bench, other)


def test_a_part_is_small_unless_one_record_is_large(pair: tuple[Bench, Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """S5: whatever is asked for, a node reads little at a time; a record that is larger comes alone."""
    log = pair[1].store.log
    first, second = (pair[1].store.queues.get("U", 0).entry(number) for number in (3, 4))
    monkeypatch.setattr(peerrepair, "PART_BYTES", first[1] + 10)
    assert len(read_part(log, first[0], log.end)) == first[1] + 10
    monkeypatch.setattr(peerrepair, "PART_BYTES", 10)
    for offset, size, _ in (first, second):
        assert len(read_part(log, offset, log.end)) == size
        assert len(read_part(log, offset, offset + 20)) == 20
    assert len(read_part(log, first[0] + 4, log.end)) == 10, "no record begins there"
