"""Snapshot files: whole or not there, never beyond the log, and what they give back when other files are lost."""

import itertools
import threading
from collections.abc import Callable

import msgpack
import pytest

from rmq.errors import StoreError
from rmq.log.files import snapshot
from rmq.log.files.memory import PowerLoss
from rmq.log.files.snapshot import QUEUES, SnapshotWriter
from rmq.model import STATE_TOPIC
from tests.log.conftest import ROOT, BadSector, Bench, power_lost_after

OWN = f"{ROOT}/rmq"


def take(bench: Bench, *rows: object, s1: int = 0) -> str:
    """A snapshot of the numbers of all queues and of `rows`; its path."""
    store = bench.store
    s0 = store.dispatcher.position
    writer = store.begin_snapshot()
    writer.add(QUEUES, [(queue.topic, queue.queue_id, queue.max) for queue in store.queues.all()])
    writer.add("test", list(rows))
    store.publish_snapshot(writer, s0, s1 or s0)
    return f"{OWN}/snapshot-{s0:020d}"


def rows(bench: Bench) -> list[object]:
    return [row for section, found in bench.store.snapshots.rows() if section == "test" for row in found]


def test_two_are_kept_and_the_newest_is_read(bench: Bench) -> None:
    paths = []
    for number in range(4):
        bench.send()
        paths.append(take(bench, number, ["a", None, {"b": 1}]))
    assert [path for path in bench.disk.paths() if "/snapshot-" in path] == paths[2:]
    bench.disk.kill()
    store = bench.open()
    assert [kept.path for kept in store.snapshots.kept] == paths[2:]
    assert rows(bench) == [3, ["a", None, {"b": 1}]]
    assert store.snapshots.covered == int(paths[2][-20:])


def test_one_that_another_node_is_taking_stays(bench: Bench) -> None:
    """On a slow line that takes longer than the time for which two are kept. No more than one stays, and the log is not held."""
    offsets = []
    for _ in range(6):
        bench.send()
        offsets.append(int(take(bench)[-20:]))
        for s0 in (offsets[0], offsets[-1]):
            bench.store.snapshots.read(s0, 0, 1)
        assert bench.store.snapshots.covered == offsets[-2:][0]
    assert [kept.s0 for kept in bench.store.snapshots.kept] == [offsets[0], *offsets[-2:]]
    for _ in range(2):  # the first is made while it counts as taken
        bench.send()
        offsets.append(int(take(bench)[-20:]))
    assert [kept.s0 for kept in bench.store.snapshots.kept] == offsets[-2:]
    with pytest.raises(StoreError):
        bench.store.snapshots.read(offsets[0], 0, 1)


def test_one_of_a_log_that_was_given_up_does_not_come_behind_another_nodes(bench: Bench) -> None:
    """R5, R20: it is being made durable while the leader's takes its place."""
    bench.send()
    making, go_on = threading.Event(), threading.Event()

    def held(operation: str, path: str) -> None:
        if operation == "fdatasync" and path.endswith(f"/{snapshot.NEW}"):
            making.set()
            go_on.wait()

    theirs = SnapshotWriter(bench.disk, ROOT).publish(s0=7, s1=7)
    bench.disk.rename(theirs.path, f"{OWN}/{snapshot.RECEIVED}")
    bench.disk.before = held
    taking = threading.Thread(target=lambda: take(bench, "ours"))
    installing = threading.Thread(target=bench.store.snapshots.install)
    taking.start()
    making.wait()
    installing.start()
    installing.join(0.1)
    go_on.set()
    taking.join()
    installing.join()
    assert [kept.s0 for kept in bench.store.snapshots.kept] == [7]


def test_a_damaged_newest_one_is_replaced_by_the_older_then_by_the_log(bench: Bench) -> None:
    """Any byte of it, cut or flipped: nothing of it is believed (D7)."""
    bench.send()
    older = take(bench, "older")
    bench.send()
    newest = take(bench, "newest")
    good = bytes(bench.disk.content(newest))
    bench.disk.kill()
    for at in range(len(good)):
        flipped = good[:at] + bytes((good[at] ^ 0x10,)) + good[at + 1 :]
        for bad in (good[:at], flipped):
            bench.disk.put(newest, bad)
            found = snapshot.Snapshots(bench.disk, OWN)
            assert [kept.path for kept in found.kept] == [older]
            assert [text for _, text in found.rows()][-1] == ["older"]
            assert newest in found.damaged[0]
    bench.disk.unlink(older)
    assert list(bench.open().state_records()) == []
    assert (bench.store.snapshots.newest, bench.store.snapshots.covered) == (None, 0)
    assert not bench.disk.exists(newest), "what nobody believes is removed"


def test_one_under_which_a_sector_is_bad_counts_as_damaged() -> None:
    """The node did not start ("cannot open the store: input/output error"), and the older one lay beside it."""
    disk = BadSector()
    bench = Bench(disk=disk).begin()
    for number in range(2):
        bench.send()
        disk.bad = take(bench, number)
    disk.kill()
    store = bench.open()
    assert rows(bench) == [0]
    assert f"{disk.bad} cannot be read" in store.snapshots.damaged[0]


def test_one_of_a_newer_version_stops_the_start(bench: Bench) -> None:
    """D17."""
    path = take(bench)
    head = msgpack.packb(("rmq-snapshot", [2]))
    block = snapshot.BLOCK.pack(len(head), snapshot.crc32(head)) + head
    bench.disk.put(path, block + bytes(bench.disk.content(path))[len(block) :])
    bench.store.close()
    with pytest.raises(StoreError, match="run the newer version"):
        bench.open()


def test_snapshot_never_beyond_flushed_log(bench: Bench) -> None:
    """Story 45: what a snapshot knows is durable in the log before it has its name."""
    bench.append(bench.unit(b"unflushed"))
    bench.store.dispatcher.advance(bench.store.log.end)
    end = bench.store.log.end
    take(bench, "rows")
    bench.disk.crash()
    assert bench.open().log.end == end
    assert rows(bench) == ["rows"]
    bench.begin()
    before = [kept.path for kept in bench.store.snapshots.kept]

    def fail(operation: str, path: str) -> None:
        if operation == "fdatasync" and "/commitlog/" in path:
            raise OSError(5, "input/output error")

    bench.disk.before = fail
    bench.append(bench.unit(b"lost"))
    with pytest.raises(StoreError):
        take(bench, "more")
    assert [path for path in bench.disk.paths() if "/snapshot-" in path] == before


@pytest.mark.parametrize("keep", [True, False])
def test_power_lost_at_every_step_of_publishing(new_bench: Callable[..., Bench], keep: bool) -> None:
    """D5: the old or the new one, never neither."""
    step = 0
    while True:
        bench = new_bench().begin()
        bench.send()
        take(bench, 1)
        bench.send()
        take(bench, 2)
        bench.send()
        bench.disk.before = power_lost_after(step)
        try:
            take(bench, 3)
        except PowerLoss:
            bench.disk.crash(lambda: keep)
            bench.open()
            assert rows(bench) in ([2], [3])
            step += 1
        else:
            break
    assert step > 8


@pytest.mark.parametrize("written", range(3))
def test_a_failed_one_leaves_the_others_and_the_next_try_works(bench: Bench, written: int) -> None:
    """D14. It also leaves no file open: there is a try each minute."""
    take(bench, 1)
    bench.send()
    writes, before = itertools.count(), bench.disk.open_paths()

    def full(operation: str, path: str) -> None:
        if operation == "pwrite" and "snapshot" in path and next(writes) >= written:
            raise OSError(28, "no space left on device")

    bench.disk.before = full
    with pytest.raises(StoreError, match="free space"):
        take(bench, 2)
    assert bench.disk.open_paths() == before
    bench.disk.before = lambda operation, path: None
    assert rows(bench) == [1]
    take(bench, 2)
    assert rows(bench) == [2]
    assert isinstance(bench.store.snapshots.begin(), SnapshotWriter)


def delete(bench: Bench, topic: str) -> None:
    bench.send(msgpack.packb([["topic", topic, None]]), STATE_TOPIC)


@pytest.mark.parametrize("lost", ["/consumequeue/", "/rmq/queues", "/rmq/progress"])
def test_idle_queue_number_survives_retention(bench: Bench, lost: str) -> None:
    """Story 33: all records of a queue are gone with their segment, then its derived files: it does not begin at 0 again.

    A topic deleted behind the snapshot does begin at 0, as it would have without the loss (story 35).
    """
    for topic in ("idle", "deleted", "reborn"):
        bench.send(topic=topic, queue_id=1, count=7)
    while len(bench.store.log.segments()) < 3:
        bench.send(b"x" * 500)
    take(bench)
    delete(bench, "deleted")
    delete(bench, "reborn")
    bench.send(topic="reborn", queue_id=1)
    expected = bench.bodies()
    bench.store.save_progress()
    bench.disk.kill()
    for path in bench.disk.paths():
        if path == bench.segment() or lost in path:
            bench.disk.unlink(path)
    for _ in range(3):
        store = bench.open()
        assert (store.queues.get("idle", 1).min, store.queues.get("idle", 1).max) == (7, 7)
        assert (store.queues.get("deleted", 1).max, store.queues.get("reborn", 1).max) == (0, 1)
        bench.store.close()
    bench.open()
    assert bench.bodies() == expected[-len(bench.bodies()) :]
    assert bench.begin().send(b"next", "idle", 1).queue_offset == 7
    bench.store.save_progress()
    blank = bytes(bench.disk.content(f"{ROOT}/consumequeue/idle/1/{0:020d}"))[: 7 * 20]
    assert blank == (b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 8) * 7, "RocketMQ would end the queue at the first zeros"


def test_the_lower_bound_is_known_without_progress(bench: Bench) -> None:
    """Story 47: damage below what a snapshot was saved after is no torn tail, even if `progress` is lost."""
    victim = bench.send(b"victim")
    bench.fill(3)
    take(bench)
    bench.disk.kill()
    bench.disk.unlink(f"{OWN}/progress")
    bench.disk.unlink(f"{OWN}/epochs")
    bench.disk.flip(bench.segment(victim.start // 8192 * 8192), (victim.start % 8192 + 95) * 8)
    store = bench.open()
    assert store.read_only
    assert [(found.start, found.end) for found in store.log.damages.ranges] == [(victim.start, victim.end)]
