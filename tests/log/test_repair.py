"""`repair.plan`: what is lost is said before, kept aside, and everything else is served again as it was."""

import random
import re
from collections.abc import Callable

import pytest

from rmq.log.files import ownfiles, smallfile
from rmq.log.records import record
from rmq.log.records.record import Record
from rmq.log.records.tombstones import is_tombstone, tombstone
from rmq.log.repair import repair
from rmq.log.repair.repair import Step
from rmq.log.repair.verify import Verifier
from tests.log.conftest import HOST, ROOT, Bench
from tests.log.test_adoption import finish, foreign, theirs, write_theirs
from tests.log.test_verify import INDEXED

OWN = f"{ROOT}/rmq"
Message = tuple[str, int, int, int, int]


def plan(bench: Bench) -> list[Step]:
    report = Verifier(bench.disk, ROOT, INDEXED.index_slots).run()
    return repair.plan(bench.disk, ROOT, report, bench.settings.segment_bytes, HOST)


def repaired(bench: Bench) -> str:
    """Does it, and says what was promised."""
    steps = plan(bench)
    assert steps
    for step in steps:
        step.do()
    assert Verifier(bench.disk, ROOT, INDEXED.index_slots).run().holes == []
    return "\n".join(step.what for step in steps)


def messages(bench: Bench) -> set[Message]:
    """Everything that a consumer can get, with the stretch of the log that it takes."""
    found: list[Record] = []
    for queue in bench.store.queues.all():
        if queue.topic in ("T", "U"):
            found += bench.store.records(queue.topic, queue.queue_id)
    return {
        (one.topic, one.queue_id, one.queue_offset, one.physical_offset, one.physical_offset + one.total_size) for one in found
    }


@pytest.fixture
def stopped() -> Bench:
    bench = Bench(INDEXED).begin()
    for number in range(30):
        bench.append(bench.unit(b"x" * (number * 29 % 700), "T", number % 3, KEYS=f"k{number}"), bench.unit(b"y", "U", 0, 2))
    bench.commit()
    return bench


def wreck(bench: Bench, start: int, end: int, chance: random.Random) -> None:
    """Something else stands in [start, end) of the log, which may span files."""
    for at in range(start, end):
        bench.disk.content(bench.segment(at // 8192 * 8192))[at % 8192] = chance.randrange(256)


@pytest.mark.parametrize("seed", range(40))
def test_everything_outside_the_damage_is_served_again(stopped: Bench, seed: int) -> None:
    """D8, D9, D12: any stretch of the log, one to several records, across files; with the queue files or without them."""
    chance = random.Random(seed)
    before, end = messages(stopped), stopped.store.log.end
    stopped.store.close()
    start = chance.randrange(end - 2000)
    stop = start + chance.choice((1, 30, 300, 1500))
    wreck(stopped, start, stop, chance)
    if chance.random() < 0.3:
        for path in [path for path in stopped.disk.paths() if "/consumequeue/T/" in path]:
            stopped.disk.unlink(path)
    repaired(stopped)
    stopped.open()
    assert messages(stopped) == {one for one in before if one[4] <= start or one[3] >= stop}
    stopped.begin()
    for topic, queue_id in (("T", 0), ("T", 1), ("T", 2), ("U", 0)):
        numbers = [one[2] for one in before if one[:2] == (topic, queue_id)]
        assert stopped.send(b"new", topic, queue_id).queue_offset == max(numbers) + 1, "no number is given twice"
    stopped.store.close()
    report = Verifier(stopped.disk, ROOT, INDEXED.index_slots).run()
    assert report.clean, report.findings


def test_the_damaged_bytes_are_kept_and_the_loss_is_said(stopped: Bench) -> None:
    found = [one for one in stopped.store.log.scan(0, stopped.store.log.end) if one.topic == "T" and one.queue_id == 1][4]
    stopped.store.close()
    stopped.disk.flip(stopped.segment(found.physical_offset // 8192 * 8192), (found.physical_offset % 8192 + 95) * 8)
    said = repaired(stopped)
    assert f"T/1 offset {found.queue_offset}" in said
    assert "not proven" in said
    kept = smallfile.read_file(stopped.disk, f"{OWN}/lost-1-{found.physical_offset}")
    assert kept is not None
    assert len(kept) == found.total_size
    vote = ownfiles.load_vote(stopped.disk, OWN)
    assert vote is not None
    assert not vote.proven
    stopped.open()
    queue = stopped.store.queues.get("T", 1)
    assert [one.queue_offset for one in stopped.store.records("T", 1)] == [n for n in range(queue.max) if n != found.queue_offset]
    assert queue.find(found.queue_offset, 1, 1 << 20, None).spans == []
    assert queue.find(found.queue_offset, 1, 1 << 20, None).next_offset == found.queue_offset + 1


def test_a_missing_file_in_the_middle(stopped: Bench) -> None:
    before = messages(stopped)
    stopped.store.close()
    stopped.disk.unlink(stopped.segment(8192))
    said = repaired(stopped)
    assert "bytes 8192 to 16384 of the log (the file is missing)" in said
    for queue in range(3):  # a range for each, not every offset
        assert re.search(rf"T/{queue} offset \d+ to \d+", said), said
        assert said.count(f"T/{queue} offset") == 1
    stopped.open()
    assert messages(stopped) == {one for one in before if not 8192 <= one[3] < 16384}
    assert stopped.begin().send(b"new", "U").queue_offset == max(one[2] for one in before if one[0] == "U") + 1


def test_a_lost_end_is_cut(stopped: Bench) -> None:
    before = messages(stopped)
    end = stopped.store.log.end
    stopped.store.close()
    wreck(stopped, end - 50, end, random.Random(1))
    said = repaired(stopped)
    assert "it is lost" in said
    stopped.open()
    assert len(messages(stopped)) == len(before) - 1
    stopped.begin().send(b"new", "U")
    stopped.store.close()
    assert Verifier(stopped.disk, ROOT, INDEXED.index_slots).run().clean


@pytest.mark.parametrize("kind", ["vote", "run", "progress", "epochs", "queues", "index"])
def test_a_damaged_own_file_is_replaced(stopped: Bench, kind: str) -> None:
    """D17: what cannot be believed is moved away; what it said is found out, or the worst is assumed."""
    before = messages(stopped)
    stopped.store.close()
    stopped.disk.flip(f"{OWN}/{kind}", 200)
    assert f"rmq/{kind}" in repaired(stopped)
    assert stopped.disk.exists(f"{OWN}/lost-{kind}")
    stopped.open()
    assert messages(stopped) == before
    assert stopped.store.vote.proven == (kind not in ("vote", "run"))
    stopped.begin()
    stopped.store.close()
    assert Verifier(stopped.disk, ROOT, INDEXED.index_slots).run().clean


def test_a_directory_of_rocketmq_with_a_hole_can_be_adopted_afterwards(new_bench: Callable[[], Bench]) -> None:
    bench = Bench.__new__(Bench)
    fresh = new_bench()
    bench.disk, bench.settings, bench.wall_ms = type(fresh.disk)(), fresh.settings, fresh.wall_ms
    write_theirs(bench.disk, 0, theirs("T", *range(10)))
    size = len(foreign("T", 0, 0))
    bench.disk.content(bench.segment())[3 * size + 90] ^= 1
    repaired(bench)
    bench.open()
    finish(bench)
    assert [one.queue_offset for one in bench.store.records("T", 0)] == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_nothing_is_planned_for_a_store_that_is_well(stopped: Bench) -> None:
    stopped.store.close()
    assert plan(stopped) == []
    stopped.open()
    stopped.disk.kill()
    assert plan(stopped) == [], "a kill is no damage"


@pytest.mark.parametrize("protected", [True, False])
def test_a_tombstone_is_a_record_of_the_wanted_length(protected: bool) -> None:
    for size in (200, 130, 5000):
        data = tombstone("Topic", 3, 77, 4096, size, HOST, protected=protected)
        assert record.verify(data, 0, 4096, protected) == len(data) == size
        found = record.decode(data)
        assert (found.topic, found.queue_id, found.queue_offset) == ("Topic", 3, 77)
        assert is_tombstone(found)
        assert list(record.queue_places(found)) == []
