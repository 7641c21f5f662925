"""Files that can be thrown away: whatever of them is lost, a start ends with the same queues."""

import struct
from collections.abc import Callable
from threading import Thread

import msgpack
import pytest

from rmq.log import dispatch, store
from rmq.log.files import ownfiles
from rmq.log.repair.verify import Verifier
from rmq.log.units import Unit
from rmq.model import STATE_TOPIC
from tests.log.conftest import ROOT, BadSector, Bench, draft

OWN = f"{ROOT}/rmq"

LOSSES: dict[str, Callable[[str], bool]] = {
    "every queue": lambda path: "/consumequeue/" in path,
    "one topic": lambda path: "/consumequeue/U/" in path,
    "one queue": lambda path: "/consumequeue/T/1/" in path,
    "one file": lambda path: path.endswith("/consumequeue/U/0/00000000000000001000"),
    "the rows": lambda path: path.endswith("/rmq/queues"),
    "progress": lambda path: path.endswith("/rmq/progress"),
    "checkpoint": lambda path: path.endswith("/checkpoint"),
    "the index": lambda path: "/index/" in path,
    "an index file": lambda path: "/index/" in path and path[-1] in "02468",
    "the index's rows": lambda path: path.endswith("/rmq/index"),
    "queues, index, progress": lambda path: "/consumequeue/" in path or "/index/" in path or path.endswith("/progress"),
    "epochs, progress, rows, one queue": lambda path: path.endswith(("/epochs", "/progress", "/queues")) or "/T/2/" in path,
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_derived_files_are_disposable(bench: Bench, loss: str, clean: bool) -> None:
    """D10: lose any of them, stopped in order or not, and queues and index are the same, file for file."""
    bench.fill(60)
    bench.store.save_progress()
    bench.fill(10)
    bench.store.close()
    expected, index = bench.queues(), bench.index_files()
    files = {path: bytes(bench.disk.content(path)) for path in bench.disk.paths() if "/consumequeue/" in path}
    assert len(index) > 2
    if not clean:
        bench.open()
        bench.disk.kill()
    for path in bench.disk.paths():
        if LOSSES[loss](path):
            bench.disk.unlink(path)
    bench.open()
    assert bench.queues() == expected
    bench.store.close()
    assert {path: bytes(bench.disk.content(path)) for path in bench.disk.paths() if "/consumequeue/" in path} == files
    assert bench.index_files() == index


@pytest.mark.parametrize("clean", [True, False])
def test_a_file_of_a_queue_under_which_a_sector_is_bad_is_made_anew(clean: bool) -> None:
    """D10: the node did not start, and said neither which file nor that it can do without."""
    disk = BadSector()
    bench = Bench(disk=disk).begin()
    bench.fill()
    before = bench.queues()
    bench.store.save_progress()
    if clean:
        bench.store.close()
    disk.kill()
    disk.bad = next(path for path in disk.paths() if "/consumequeue/T/" in path)
    store = bench.open()
    assert store.recovered.queues_rebuilt
    disk.bad = ""
    assert bench.queues() == before


def test_progress_never_beyond_flushed_log(bench: Bench) -> None:
    """Story 45, D11: dispatched under async flush, power lost in the middle of a save: the queues end where the log ends."""
    bench.fill(10)
    bench.store.save_progress()
    durable = bench.store.log.durable_end
    progress = ownfiles.load_progress(bench.disk, OWN)
    assert progress is not None
    assert max(progress.log, progress.hw, progress.cq) <= durable
    bench.append(*(bench.unit(b"x" * 30, queue_id=number % 3) for number in range(9)))
    bench.store.dispatcher.advance(bench.store.log.end)
    bench.store.queues.flush()
    bench.disk.crash()
    store = bench.open()
    assert store.log.end == durable
    assert not store.recovered.queues_rebuilt
    assert [queue.max for queue in store.queues.of_topic("T")] == [4, 3, 3]
    again = bench.begin().send(b"new")
    assert again.queue_offset == 4
    assert bench.bodies()[-1] == b"new"


@pytest.mark.parametrize("length", [0, 300, 1000])
def test_queue_files_are_whole_and_zero_behind_their_entries_after_a_kill(bench: Bench, length: int) -> None:
    """Whoever wrote a queue file was stopped in between: entries that no record stands for must not stay for RocketMQ."""
    bench.fill(12)
    bench.store.save_progress()
    path = f"{ROOT}/consumequeue/T/0/{0:020d}"
    good = bytes(bench.disk.content(path))
    stale = b"".join(struct.pack(">qiq", 1 << 40, 100, 7) for _ in range(46))
    bench.disk.kill()
    bench.disk.put(path, (good[:80] + stale)[: max(length, 80)])
    bench.disk.put(f"{ROOT}/consumequeue/T/0/{1000:020d}", b"x" * length)
    bench.open()
    assert bytes(bench.disk.content(path)) == good
    assert not bench.disk.exists(f"{ROOT}/consumequeue/T/0/{1000:020d}")


def test_idle_queue_number_survives_restarts(bench: Bench) -> None:
    """Story 33, as far as one node alone goes: the number of a queue is found again without its records being new."""
    for _ in range(7):
        bench.send(b"x", "idle", 3)
    for _ in range(3):
        bench.fill(10)
        bench.store.save_progress()
        bench.disk.kill()
        bench.open()
        bench.begin()
    assert bench.send(b"x", "idle", 3).queue_offset == 7


def test_queues_begin_where_the_log_begins(bench: Bench) -> None:
    """Once the oldest segment is gone (retention), no queue points below the log's start, kept or rebuilt."""
    bench.fill(60)
    bench.store.save_progress()
    oldest = [one.physical_offset for one in bench.store.records("T", 0)]
    bench.disk.kill()
    bench.disk.unlink(bench.segment())
    gone = sum(offset < 8192 for offset in oldest)
    for _ in range(2):
        store = bench.open()
        queue = store.queues.get("T", 0)
        assert (store.log.start, queue.min, queue.max) == (8192, gone, len(oldest))
        assert [one.queue_offset for one in store.records("T", 0)] == list(range(gone, len(oldest)))
        bench.disk.kill()
        bench.disk.unlink(f"{OWN}/queues")


def delete(bench: Bench, topic: str) -> None:
    bench.send(msgpack.packb([["topic", topic, None]]), STATE_TOPIC)


def test_topic_deleted_and_recreated_rebuilds_equal(bench: Bench) -> None:
    """Story 35: queues go at the position of the record that deletes the topic, now and in every rebuild."""
    bench.fill(20)
    bench.store.save_progress()
    delete(bench, "T")
    assert not bench.store.queues.of_topic("T")
    bench.store.queues.flush()
    assert not bench.disk.listdir(f"{ROOT}/consumequeue/T")
    assert bench.send(b"reborn", "T", 1).queue_offset == 0
    expected = bench.queues()
    for loss in ("nothing", "rows", "progress"):
        bench.disk.kill()
        if loss != "nothing":
            bench.disk.unlink(f"{OWN}/{loss.replace('rows', 'queues')}")
        bench.open()
        assert bench.queues() == expected, loss
        assert bench.bodies("T", 1) == [b"reborn"]
    delete(bench.begin(), "nobody")
    delete(bench, "../../etc")


def test_state_records_come_back_in_order(bench: Bench) -> None:
    lines = [[["topic", "a", {"x": 1}]], [["offset", ["g", "t", 0], 5], ["topic", "b", None]]]
    for line in lines:
        bench.send(msgpack.packb(line), STATE_TOPIC)
    bench.disk.kill()
    assert [msgpack.unpackb(one.body) for one in bench.open().state_records()] == lines


def test_a_record_out_of_number_ends_the_process(bench: Bench) -> None:
    """D12: never a gap, never a repeat."""
    bench.send()
    (unit,) = bench.append(bench.unit())
    unit.queue_offset = 5
    with pytest.raises(AssertionError, match="D12"):
        bench.commit()


def test_the_files_of_rocketmq_are_all_there(bench: Bench) -> None:
    bench.fill(5)
    end = bench.store.log.end
    bench.store.close()
    assert {"lock", "checkpoint", "commitlog", "consumequeue", "index", "rmq"} == set(bench.disk.listdir(ROOT))
    checkpoint = bytes(bench.disk.content(f"{ROOT}/checkpoint"))
    assert len(checkpoint) == 4096
    assert struct.unpack_from(">qqqqqq", checkpoint) == (bench.wall_ms, bench.wall_ms, 0, 0, 0, end)


def test_a_rebuild_finds_everyday_records_as_it_finds_all_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """D10, slow twin: queues made anew by looking at a few fields are those made anew by decoding every record."""
    bench.fill(40)
    due = draft("SCHEDULE_TOPIC_XXXX", b"due", DELAY="3", TAGS="a")
    bench.append(Unit(due, (len(due),), (0,), bench.store.queues.get("SCHEDULE_TOPIC_XXXX", 2)))
    bench.send(b"long", "L" * 200, 1, count=2, TAGS="b")
    for _ in range(2):
        delete(bench, "T")
        bench.fill(10)
    bench.store.save_progress()
    bench.store.close()
    found = []
    for twin in (False, True):
        if twin:
            monkeypatch.setattr(dispatch, "peek", lambda buf, at, size: None)
        bench.disk.unlink(f"{OWN}/queues")
        assert bench.open().recovered.queues_rebuilt
        found.append(bench.queues())
        bench.store.close()
    assert found[0] == found[1]
    assert found[0]["SCHEDULE_TOPIC_XXXX", 2][2].split(b",")[2] > b"%d" % bench.wall_ms


def test_a_stop_with_many_new_queues_flushes_the_oldest_and_leaves_the_rest_to_the_next_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10, D11: 20 000 new topics once took 67 s; `progress` says from where the log is dispatched again."""
    monkeypatch.setattr(store, "MOST_QUEUES", 5)
    for number in range(20):
        bench.send(b"x", f"T{number}")
        bench.send(b"y", "all")
    expected = bench.queues()
    bench.store.close()
    made = {path.split("/")[3] for path in bench.disk.paths() if "/consumequeue/" in path}
    assert len(made) == 5
    assert bench.disk.exists(f"{ROOT}/abort"), "Apache RocketMQ must not trust these queues"
    assert Verifier(bench.disk, ROOT, bench.settings.index_slots).run().clean
    progress = ownfiles.load_progress(bench.disk, OWN)
    assert progress is not None
    assert progress.cq < progress.hw == progress.log
    for _ in range(5):
        assert bench.open().recovered.clean
        assert bench.queues() == expected
        assert not bench.store.recovered.queues_rebuilt
        bench.store.close()
    assert not bench.disk.exists(f"{ROOT}/abort")
    assert len({path.split("/")[3] for path in bench.disk.paths() if "/consumequeue/" in path}) >= 21


def test_queues_left_out_of_a_flush_survive_a_kill_and_a_power_loss(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_QUEUES", 3)
    for number in range(40):
        bench.send(b"x", f"T{number % 9}")
        if number % 4 == 0:
            bench.store.save_progress(3)
    expected = bench.queues()
    for crash in (bench.disk.kill, bench.disk.crash):
        crash()
        bench.open()
        assert bench.queues() == expected
        while not bench.store.save_progress(3):
            assert bench.queues() == expected


def test_a_flush_of_queues_ends_when_somebody_waits_and_says_what_is_left(bench: Bench) -> None:
    """D11: a node that stops, or a cut, waits for one queue, not for thousands; the others come again at the next start."""
    for number in range(20):
        bench.send(b"x", f"T{number}")
    expected = bench.queues()
    asked: list[int] = []

    def enough() -> bool:
        asked.append(1)
        return len(asked) > 4

    assert not bench.store.save_progress(enough=enough)
    made = {path.split("/")[3] for path in bench.disk.paths() if "/consumequeue/" in path}
    assert len(made) == 4
    progress = ownfiles.load_progress(bench.disk, OWN)
    assert progress is not None
    assert progress.cq < progress.hw == progress.log
    bench.disk.crash()
    bench.open()
    assert bench.queues() == expected
    assert bench.store.save_progress()
    assert {path.split("/")[3] for path in bench.disk.paths() if "/consumequeue/" in path} > made


def test_a_cut_does_not_wait_for_thousands_of_queues(bench: Bench) -> None:
    """Whoever rewinds ends a save that is under way; what it did not flush comes again."""
    kept = bench.send(b"kept", "T0")
    for number in range(1, 8):
        bench.send(b"x", f"T{number}")
    saved, begun = bench.store.saved, list[str]()
    rewinding = Thread(target=lambda: saved.rewind(kept.end, bench.store.epochs, lambda: None))

    def first_waits(operation: str, path: str) -> None:
        if operation == "fdatasync" and "/consumequeue/" in path:
            begun.append(path)
            if len(begun) == 1:
                rewinding.start()
                while not saved.awaited:
                    pass

    bench.disk.before = first_waits
    assert not bench.store.save_progress(enough=lambda: False)
    rewinding.join()
    assert len(begun) == 1


def test_a_save_that_must_be_whole_is_not_ended_by_a_cut(bench: Bench) -> None:
    """D15: retention deletes only what the saved position has passed."""
    for number in range(8):
        bench.send(b"x", f"T{number}")
    bench.store.saved.awaited = True
    assert bench.store.save_progress()
