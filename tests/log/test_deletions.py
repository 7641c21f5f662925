"""Where a topic's life ends in the log; and logs of older releases, where messages stand behind that place with its numbers."""

import msgpack
import pytest

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.log.records import record
from rmq.log.repair.verify import Report, Verifier
from rmq.log.replicated import append_entries, read_entries
from rmq.log.store import Store
from rmq.log.units import Unit
from rmq.model import STATE_TOPIC
from tests.log.conftest import BORN, ROOT, Bench
from tests.log.model import deletion
from tests.log.test_repair import INDEXED, plan, repaired
from tests.log.test_replicated import Replica


def refused(bench: Bench, *units: Unit) -> str:
    end = bench.store.log.end
    with pytest.raises(Refusal) as refusal:
        bench.append(*units)
    assert (refusal.value.code, bench.store.log.end) == (ResponseCode.TOPIC_NOT_EXIST, end)
    return refusal.value.remark


# --- the rule ---------------------------------------------------------------------------------------------------------


def test_nothing_is_stored_for_a_life_that_has_ended(bench: Bench) -> None:
    """D12: in the same burst, before the line is dispatched, and with a queue that somebody held over it."""
    old, other = bench.send(b"old", "U"), bench.send(b"t")
    assert "topic U does not exist any more" in refused(bench, deletion(bench, "U"), bench.unit(b"late", "U"))
    bench.append(deletion(bench, "U"), bench.unit(b"another topic"))
    refused(bench, bench.unit(b"late", "U"))
    refused(bench, bench.unit(b"a queue that was not there", "U", 7))
    bench.commit()
    held_over = bench.unit(b"late", "U")
    held_over.queue = old.queue
    refused(bench, held_over)
    for_it = bench.unit(b"says something of U")
    for_it.life = old.queue
    assert "topic U does not exist any more" in refused(bench, for_it)
    assert bench.send(b"new", "U").queue_offset == 0
    assert bench.send(b"t").queue_offset == other.queue_offset + 2
    assert bench.bodies("U") == [b"new"]


def test_a_deletion_that_was_not_stored_ends_nothing(bench: Bench) -> None:
    bench.send(b"1", "U")
    line = deletion(bench, "U")
    refused(bench, line, bench.unit(b"late", "U"))
    assert bench.send(b"2", "U").queue_offset == 1


def test_a_new_leader_goes_on_with_the_next_life() -> None:
    """Stories 31, 35, found by the simulation (seed 599): what is sent while a tail is dispatched part by part is numbered
    behind the messages of the topic's next life there, not from 0 on."""
    leader, follower = Replica(), Replica()
    leader.lead(1)
    leader.write(10, 10, 10)
    data = record.draft(STATE_TOPIC, msgpack.packb([["topic", "T", None]]), b"", born_timestamp=1, born_host=BORN)
    leader.log.append([Unit(data, (len(data),), (0,), leader.store.queues.get(STATE_TOPIC, 0))], 2000)
    deleted = leader.log.end
    leader.store.dispatcher.advance(deleted)
    leader.write(10, 10)
    follower.take(read_entries(leader.log, 0, 1 << 20))
    follower.held.restore_queue_offsets()
    follower.lead(2)
    while follower.store.dispatcher.position < deleted:
        follower.store.dispatcher.advance(follower.log.end, 1)
    assert follower.store.queues.get("T", 0).max == 0
    follower.write(10)
    follower.store.dispatcher.advance(follower.log.end)
    assert follower.store.queues.get("T", 0).max == 3


def test_a_deletion_that_was_cut_ends_nothing(bench: Bench) -> None:
    """The next leadership of that node begins behind what is left."""
    bench.send(b"1", "U")
    to = bench.store.log.end
    bench.append(deletion(bench, "U"))
    bench.store.log.cut(to)
    bench.store.queues.begin_leadership()
    assert bench.send(b"2", "U").queue_offset == 1


# --- logs of older releases -------------------------------------------------------------------------------------------


def faulty(bench: Bench, old: int) -> Bench:
    """As an older release left it: `old` messages, the line that deletes their topic, two more with numbers of that life, and
    three of the next one. A second queue has messages of the next life alone."""
    queue = bench.store.queues.get("U", 0)
    for number in range(old):
        bench.append(bench.unit(b"old %d" % number, "U"))
    bench.append(deletion(bench, "U"))
    queue.ended = False
    for number in range(2):
        late = bench.unit(b"late %d" % number, "T")
        late.parts = [record.draft("U", b"late %d" % number, b"KEYS\x01late", born_timestamp=1000, born_host=BORN)]
        late.queue = late.life = queue
        late.size, late.sizes = len(late.parts[0]), [len(late.parts[0])]
        bench.append(late)
    bench.store.dispatcher.advance(bench.store.log.flush())
    bench.append(bench.unit(b"beside", "U", 1))
    for number in range(3):
        bench.append(bench.unit(b"new %d" % number, "U"))
    bench.commit()
    assert bench.bodies("U") == [b"new 0", b"new 1", b"new 2"], "as its leader served it"
    return bench


@pytest.fixture(params=[0, 1, 20])
def left(request: pytest.FixtureRequest) -> Bench:
    return faulty(Bench(INDEXED).begin(), request.param)


def served(store: Store) -> list[list[bytes]]:
    return [[one.body for one in store.records("U", queue_id)] for queue_id in (0, 1)]


WHAT_IS_THERE = [[b"new 0", b"new 1", b"new 2"], [b"beside"]]


def without_queues(bench: Bench) -> None:
    for path in [path for path in bench.disk.paths() if "/consumequeue/" in path]:
        bench.disk.unlink(path)


def test_it_opens_without_its_queues(left: Bench) -> None:
    """D10: as they were, whatever happened to the files; and numbers go on from there."""
    left.store.close()
    without_queues(left)
    assert served(left.open()) == WHAT_IS_THERE
    assert left.begin().send(b"more", "U").queue_offset == 3


def test_what_only_stands_behind_the_deletion_is_read(bench: Bench) -> None:
    """Nothing of the next life came, so nobody else has these numbers."""
    queue = bench.store.queues.get("U", 0)
    bench.send(b"old", "U")
    bench.append(deletion(bench, "U"))
    queue.ended = False
    unit = bench.unit(b"late", "U")
    unit.queue = unit.life = queue
    bench.append(unit)
    bench.store.log.flush()
    bench.disk.kill()
    assert [one.body for one in bench.open().records("U", 0)] == [b"late"]
    assert bench.begin().send(b"next", "U").queue_offset == 2


def test_a_follower_takes_it_and_may_lead(left: Bench) -> None:
    follower = Bench(INDEXED._replace(alone=False), disk=None)
    data = read_entries(left.store.log, 0, 1 << 20)
    taken = append_entries(follower.store.log, (), 0, data, 1)
    assert (taken.end, taken.bad) == (left.store.log.end, "")
    follower.store.epochs = left.store.epochs
    follower.store.dispatcher.advance(taken.end)
    assert served(follower.store) == WHAT_IS_THERE
    assert follower.store.queues.get("U", 0).next == 3


def test_it_is_verified_with_an_honest_word_and_a_repair_loses_nothing(left: Bench) -> None:
    left.store.close()
    report = verified(left)
    told = [one.what for one in report.findings if one.where == "consumequeue/U/0"]
    assert [one for one in report.findings if one.damage] == []
    assert len(told) == 1
    assert "begins the queue anew at 0" in told[0]
    assert plan(left) == [], "nothing to repair"
    left.disk.unlink(next(path for path in left.disk.paths() if "/consumequeue/U/0/" in path))
    assert "made anew" in repaired(left)
    assert served(left.open()) == WHAT_IS_THERE


def test_what_has_no_number_any_more_is_found_by_its_key(left: Bench) -> None:
    store = left.store
    assert store.indexed.index is not None
    store.indexed.index.advance(store.log.end, 1)
    assert len(list(store.indexed.index.find("U", "late", 0, 1 << 60))) == 2


def test_a_number_given_twice_in_a_topic_that_was_never_deleted_is_no_new_life(bench: Bench) -> None:
    """D12: a bug or damage, as before."""
    bench.send(b"1", "U")
    bench.append(deletion(bench, "T"))
    bench.store.queues.get("U", 0).next = 0
    bench.append(bench.unit(b"2", "U"))
    bench.store.log.flush()
    bench.disk.kill()
    without_queues(bench)
    bench.disk.unlink(f"{ROOT}/rmq/progress")
    with pytest.raises(AssertionError, match="D12"):
        bench.open()


def verified(bench: Bench) -> Report:
    return Verifier(bench.disk, ROOT, INDEXED.index_slots).run()
