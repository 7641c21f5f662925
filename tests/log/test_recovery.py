"""What is left after a kill, a power loss, a lost file or a flipped bit, and what the next start makes of it."""

import random
from collections.abc import Callable

import pytest

from rmq.errors import StoreError
from rmq.log.files import epochs, ownfiles
from rmq.log.files.memory import MemoryDisk
from rmq.log.files.ownfiles import Progress
from rmq.log.files.segment import FILLER
from rmq.log.records import record
from rmq.log.replicated import read_entries
from rmq.log.settings import SYNC_FLUSH
from rmq.log.store import Store
from rmq.model import EPOCH_TOPIC
from tests.log.conftest import ROOT, SETTINGS, Bench
from tests.log.test_replicated import Replica

OWN = f"{ROOT}/rmq"


def behind_is_zero(bench: Bench) -> bool:
    log = bench.store.log
    last = log.segments()[-1]
    return not last.read(log.end, last.end - log.end).strip(b"\0")


# --- stops ------------------------------------------------------------------------------------------------------------


def test_a_clean_stop_is_taken_up_where_it_was(bench: Bench) -> None:
    bench.fill()
    expected, end = bench.queues(), bench.store.log.end
    bench.store.close()
    assert not bench.disk.exists(f"{ROOT}/abort")
    assert ownfiles.load_progress(bench.disk, OWN) == Progress(end, end, end, bench.wall_ms, end)
    bench.disk.crash()
    store = bench.open()
    assert store.recovered.clean
    assert (store.log.start, store.log.end, store.log.durable_end) == (0, end, end)
    assert bench.queues() == expected
    assert store.log.last_stored_ms == bench.wall_ms
    assert bench.disk.exists(f"{ROOT}/abort")


@pytest.mark.parametrize("seed", range(8))
def test_a_log_never_begins_at_a_later_file_because_the_first_lost_its_name(seed: int) -> None:
    """Found by the simulation (seed 976): a new follower took several files at once and lost power before the first flush. The
    name of a later file was there again, those before it were not, so its log seemed to begin there, and its tables lacked
    what stands before."""
    leader, follower, chance = Replica(), Replica(), random.Random(seed)
    leader.lead(1)
    leader.write(*[1500] * 20)
    follower.take(read_entries(leader.log, 0, 1 << 20))
    assert len(follower.log.segments()) > 4
    follower.disk.crash(lambda: chance.random() < 0.5)
    assert follower.open().log.start == 0


def test_a_kill_loses_nothing_that_was_written(bench: Bench) -> None:
    """D2: the page cache outlives the process, flushed or not, dispatched or not.

    Story 31, as far as one node alone goes: the next leader numbers its queues behind the tail it inherited.
    """
    bench.fill()
    last = bench.append(bench.unit(b"unflushed"), bench.unit(b"x" * 500, "V", 2))
    bench.disk.kill()
    store = bench.open()
    assert not store.recovered.clean
    assert (store.log.end, store.recovered.cut_bytes) == (last[-1].end, 0)
    assert bench.bodies()[-1] == b"unflushed"
    assert bench.bodies("V", 2) == [b"x" * 500]
    assert store.vote.proven
    assert bench.begin().send(b"next", "V", 2).queue_offset == 1


def test_power_loss_keeps_what_was_flushed(bench: Bench) -> None:
    """D1."""
    bench.fill()
    end = bench.store.log.durable_end
    bench.append(bench.unit(b"lost"))
    bench.disk.crash()
    store = bench.open()
    assert store.log.end == end
    assert store.recovered.may_have_lost
    assert len(bench.bodies("U")) == store.queues.get("U", 0).max


@pytest.mark.parametrize("seed", range(25))
def test_any_part_of_the_unflushed_bytes_may_survive(bench: Bench, seed: int) -> None:
    """D6: every subset of unflushed sectors and names leaves a clean prefix."""
    chance = random.Random(seed)
    bench.fill(10)
    durable, sent = bench.store.log.durable_end, []
    for number in range(chance.randrange(30)):
        sent += bench.append(bench.unit(bytes([number]) * chance.randrange(600), "T", number % 2))
        if chance.random() < 0.2:
            bench.store.dispatcher.advance(bench.store.log.end)
            bench.store.save_progress()
    bench.disk.crash(lambda: chance.random() < 0.7)
    store = bench.open()
    assert store.log.end in {durable, *(unit.end for unit in sent), *(unit.start for unit in sent)}
    assert store.log.end >= durable
    assert behind_is_zero(bench)
    numbers = [one.queue_offset for one in store.log.scan(0, store.log.end) if one.topic == "T" and one.queue_id == 0]
    assert numbers == list(range(len(numbers)))
    before = bench.queues()
    bench.disk.kill()
    bench.open()
    assert bench.queues() == before


def test_a_store_cut_at_every_byte_of_its_last_three_records(bench: Bench) -> None:
    """D6, property: recovery gives the valid prefix each time, reports the cut, and zeroes what is behind."""
    bench.fill(20)
    units = [bench.send(b"x" * 40, "T", number) for number in range(3)]
    ends = [units[0].start, *(unit.end for unit in units)]
    paths = {path: bytes(bench.disk.content(path)) for path in bench.disk.paths()}
    base = units[-1].end // 8192 * 8192
    assert base < ends[0]
    for cut in range(ends[0], ends[-1] + 1):
        disk = MemoryDisk()
        for path, content in paths.items():
            disk.put(path, content if path != bench.segment(base) else content[: cut - base] + bytes(8192 - cut + base))
        store = Store.open(disk, ROOT, SETTINGS)
        good = max(end for end in ends if end <= cut)
        assert store.log.end == good
        assert store.recovered.cut_bytes == len(paths[bench.segment(base)][good - base : cut - base].rstrip(b"\0"))
        assert not store.log.segments()[-1].read(good, 8192 + base - good).strip(b"\0")
        assert [queue.max for queue in store.queues.of_topic("T")] == [
            7 + (cut >= ends[1]),
            7 + (cut >= ends[2]),
            6 + (cut >= ends[3]),
        ]


def test_torn_hole_with_valid_records_behind(bench: Bench) -> None:
    """Story 3: never resynchronise behind a bad record; whole records behind the cut make the store unproven."""
    bench.fill(10)
    hole, *rest = bench.append(*(bench.unit(b"x" * 50) for _ in range(4)))
    content = bench.disk.content(bench.segment(hole.start // 8192 * 8192))
    at = hole.start % 8192
    content[at + 90 : at + 110] = bytes(20)
    bench.disk.kill()
    store = bench.open()
    assert (store.log.end, store.recovered.cut_bytes) == (hole.start, rest[-1].end - hole.start)
    assert store.recovered.records_behind
    assert "checksum" in store.recovered.cut_reason
    assert not store.vote.proven
    assert behind_is_zero(bench)


def test_a_torn_record_alone_leaves_the_store_proven(bench: Bench) -> None:
    bench.fill(10)
    (torn,) = bench.append(bench.unit(b"x" * 50))
    bench.disk.content(bench.segment(torn.start // 8192 * 8192))[torn.start % 8192 + 90] ^= 1
    bench.disk.kill()
    assert not bench.open().recovered.records_behind
    assert bench.store.vote.proven


def test_a_torn_tail_may_span_two_segments(bench: Bench) -> None:
    while bench.store.log.end < 7000:
        bench.append(bench.unit(b"x" * 100))
    bench.store.log.flush()
    (first,) = bench.append(bench.unit(b"x" * 100))
    bench.append(bench.unit(b"y" * 3000))
    bench.disk.content(bench.segment())[first.start + 95] ^= 1
    bench.disk.kill()
    store = bench.open()
    assert store.log.end == first.start
    assert [segment.base for segment in store.log.segments()] == [0]
    assert store.recovered.cut_bytes > 1000
    bench.begin().fill(30)
    assert len(bench.bodies()) == store.queues.get("T", 0).max


def test_crash_after_filler_before_record(bench: Bench) -> None:
    """Story 5: a filler with no record behind it is not part of the log."""
    bench.fill(10)
    end = bench.store.log.end
    base = end // 8192 * 8192
    bench.disk.content(bench.segment(base))[end - base : end - base + 8] = FILLER.pack(base + 8192 - end, record.BLANK_MAGIC)
    bench.disk.kill()
    assert bench.open().log.end == end
    assert behind_is_zero(bench)
    bench.disk.put(bench.segment(base + 8192), bytes(8192))
    bench.disk.content(bench.segment(base))[end - base : end - base + 8] = FILLER.pack(base + 8192 - end, record.BLANK_MAGIC)
    bench.disk.kill()
    assert bench.open().log.end == end
    assert [segment.base for segment in bench.store.log.segments()][-1] == base
    assert bench.begin().send(b"next").start < base + 8192


@pytest.mark.parametrize("lie", [-1, 8, 1 << 20])
def test_a_filler_that_lies_about_its_length_ends_the_log(bench: Bench, lie: int) -> None:
    """D9: it must reach exactly to the end of its segment, else what follows is not believed."""
    while bench.store.log.end < 9000:
        (last,) = bench.append(bench.unit(b"x" * 700))
        if last.end < 8192:
            before = last.end
    bench.disk.content(bench.segment())[before : before + 8] = FILLER.pack(8192 - before + lie, record.BLANK_MAGIC)
    bench.disk.kill()
    assert bench.open().log.end == before
    assert "filler" in bench.store.recovered.cut_reason


def test_filler_of_new_leader_belongs_to_new_epoch(bench: Bench) -> None:
    """Story 4: the epoch begins at the old end, before the filler; no roll record comes ahead of the start record."""
    while bench.store.log.end < 7900:
        bench.append(bench.unit())
    end = bench.store.log.end
    bench.store.close()
    bench.open()
    bench.begin()
    first = record.decode(bench.store.log.read(8192, bench.store.log.end - 8192))
    epoch = epochs.unpack(first.body)
    assert (epoch.kind, epoch.epoch, epoch.start, first.physical_offset) == ("start", 2, end, 8192)
    assert [(entry.epoch, entry.start) for entry in bench.store.epochs] == [(1, 0), (2, end)]
    bench.disk.kill()
    assert [(entry.epoch, entry.start) for entry in bench.open().epochs] == [(1, 0), (2, end)]


# --- who this store is ------------------------------------------------------------------------------------------------


def test_each_start_is_a_new_incarnation_and_each_epoch_one_higher(bench: Bench) -> None:
    first = bench.store.vote
    bench.store.close()
    bench.open()
    bench.begin()
    assert bench.store.vote == first._replace(epoch=2, incarnation=2)
    bench.disk.kill()
    bench.open()
    bench.begin()
    assert bench.store.vote == first._replace(epoch=3, incarnation=3)
    assert bench.store.epoch == 3


def test_the_epoch_is_durable_before_its_first_record(bench: Bench) -> None:
    bench.store.close()
    bench.open()
    bench.disk.operations.clear()
    bench.begin()
    names = [path for operation, path in bench.disk.operations if operation in ("rename", "pwrite")]
    assert names.index(f"{OWN}/vote") < next(index for index, path in enumerate(names) if "commitlog" in path)


def test_power_loss_then_kill_stays_unproven(bench: Bench) -> None:
    """Story 18: the second, harmless kill must not hide the power loss."""
    bench.fill(5)
    bench.disk.crash()
    assert not bench.open().vote.proven
    bench.disk.kill()
    assert not bench.open().vote.proven
    bench.begin()
    epoch = [epochs.unpack(one.body) for one in bench.store.log.scan(0, bench.store.log.end) if one.topic == "rmq_sys_EPOCH"][-1]
    assert epoch.lossy
    assert bench.store.vote.proven


def test_power_loss_under_sync_flush_leaves_it_proven(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench(SETTINGS._replace(flush_mode=SYNC_FLUSH)).begin()
    bench.fill(5)
    bench.disk.crash()
    assert bench.open().vote.proven


def test_flush_mode_changed_before_restart(bench: Bench) -> None:
    """Story 25: the mode of the run that lost power counts, not the one configured now."""
    bench.fill(5)
    bench.disk.crash()
    bench.settings = SETTINGS._replace(flush_mode=SYNC_FLUSH)
    assert not bench.open().vote.proven


def test_vote_file_older_than_log(bench: Bench) -> None:
    """Story 12: the log says which epochs there were."""
    older = bench.store.vote
    for _ in range(3):
        bench.disk.kill()
        bench.open()
        bench.begin()
    bench.disk.kill()
    ownfiles.save_vote(bench.disk, OWN, older._replace(epoch=1))
    assert (bench.open().vote.epoch, bench.store.vote.voted_for) == (4, "-")
    assert bench.begin().store.epoch == 5


def test_epochs_file_lost_is_scanned(bench: Bench) -> None:
    """Story 9: each later segment says by itself which epochs there were."""
    for stop in (bench.disk.kill, bench.disk.kill, lambda: bench.store.close()):
        bench.fill(12)
        stop()
        bench.open()
        bench.begin()
    history = bench.store.epochs
    assert len(history) == 4
    for stop in (bench.disk.kill, lambda: bench.store.close()):
        stop()
        bench.disk.unlink(f"{OWN}/epochs")
        assert bench.open().epochs == history


def test_the_log_ends_right_before_an_epoch_record_that_says_nothing(new_bench: Callable[..., Bench]) -> None:
    """D6: also among many records that are read and checked together; the store time is that of the last good one."""
    bench = new_bench(SETTINGS._replace(segment_bytes=1 << 20)).begin()
    last = [bench.append(bench.unit(b"x" * 600)) for _ in range(150)][-1][0]
    last_ms = bench.wall_ms
    bench.append(bench.unit(b"no epoch", EPOCH_TOPIC))
    bench.append(bench.unit(b"x" * 600))
    bench.disk.kill()
    bench.open()
    assert (bench.store.log.end, bench.store.log.last_stored_ms) == (last.end, last_ms)
    assert bench.store.recovered.records_behind


def test_an_epoch_entry_above_the_end_is_dropped(bench: Bench) -> None:
    """Story 10."""
    bench.fill(5)
    history, end = bench.store.epochs, bench.store.log.end
    bench.disk.kill()
    ownfiles.save_epochs(bench.disk, OWN, (*history, epochs.EpochEntry(9, end, "aa")), end + 50)
    assert bench.open().epochs == history


def test_another_group_does_not_take_this_store(bench: Bench) -> None:
    bench.store.close()
    bench.settings = SETTINGS._replace(group="broker-b")
    with pytest.raises(StoreError, match=r"belongs to the broker group 'broker-a'.*set brokerName back"):
        bench.open()
    bench.settings = SETTINGS
    bench.open()


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [0, 8192, 16384])
def test_write_back_error_before_restart_is_fatal(bench: Bench, base: int) -> None:
    """Story 64: the kernel reports what it could not write at the next fsync, whichever file it was."""
    while bench.store.log.end < 17_000:
        bench.append(bench.unit(b"x" * 500))
    bench.disk.kill()

    def fail(operation: str, path: str) -> None:
        if (operation, path) == ("fdatasync", bench.segment(base)):
            raise OSError(5, "input/output error")

    bench.disk.before = fail
    with pytest.raises(StoreError, match="check the disk"):
        bench.open()


def test_another_segment_size_is_said_so(bench: Bench) -> None:
    bench.fill(5)
    bench.store.close()
    bench.settings = SETTINGS._replace(segment_bytes=16384)
    with pytest.raises(StoreError, match=r"8192 bytes, segments are set to 16384: set mappedFileSizeCommitLog"):
        bench.open()
    bench.settings = SETTINGS._replace(segment_bytes=1024)
    with pytest.raises(StoreError, match="too small"):
        bench.open()


@pytest.mark.parametrize("length", [0, 700, 8192])
def test_an_empty_last_file_is_removed(bench: Bench, length: int) -> None:
    """RocketMQ's allocator leaves such files when killed."""
    bench.fill(5)
    end = bench.store.log.end
    bench.disk.kill()
    bench.disk.put(bench.segment(end // 8192 * 8192 + 8192), bytes(length))
    assert bench.open().log.end == end
    assert bench.store.log.segments()[-1].base == end // 8192 * 8192


def test_a_later_segment_whose_predecessors_name_was_lost_is_removed(bench: Bench) -> None:
    bench.fill(5)
    end = bench.store.log.end
    bench.disk.kill()
    bench.disk.put(bench.segment(end // 8192 * 8192 + 2 * 8192), b"stale" + bytes(8187))
    assert bench.open().log.end == end
    assert not bench.disk.exists(bench.segment(end // 8192 * 8192 + 2 * 8192))


def test_a_damaged_own_file_stops_the_start(bench: Bench) -> None:
    bench.store.close()
    for kind in ("vote", "run", "progress", "epochs", "queues"):
        bench.disk.flip(f"{OWN}/{kind}", 200)
        with pytest.raises(StoreError, match=rf"{OWN}/{kind} is damaged"):
            bench.open()
        bench.disk.flip(f"{OWN}/{kind}", 200)
