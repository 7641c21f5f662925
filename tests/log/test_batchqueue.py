"""Queues of batches: rows as RocketMQ's, one queue offset for each message; they survive kills, retention and being made anew."""

import random
from collections.abc import Iterator

import msgpack
import pytest

from rmq.errors import BadBytes, InvalidArgument
from rmq.log.files import ownfiles
from rmq.log.queues.batchqueue import BatchQueue
from rmq.log.queues.consumequeue import LOWER, UPPER, ConsumeQueue
from rmq.log.records import record
from rmq.log.records.innerbatch import MOST_MESSAGES, message_at, message_count, messages_in, wrap
from rmq.log.records.record import Record
from rmq.log.repair.verify import Verifier
from rmq.log.replicated import ReplicatedLog
from rmq.log.store import Store
from rmq.log.units import Unit
from rmq.model import STATE_TOPIC, TopicConfig
from tests.log.conftest import ROOT, SETTINGS, Bench, draft

ROWS = 7  # in one file
MADE = ["topic", "B", [*TopicConfig("B", attributes={"queue.type": "BatchCQ"})]]


def wrapped(*bodies: bytes, topic: str = "B") -> bytes:
    messages = [record.decode(draft(topic, body, UNIQ_KEY=f"U{number}", i=str(number))) for number, body in enumerate(bodies)]
    return wrap(messages, b"UNIQ_KEY\x01whole\x02")


def batch_unit(bench: Bench, *bodies: bytes, queue_id: int = 0) -> Unit:
    data = wrapped(*bodies)
    unit = Unit(data, (len(data),), (0,), bench.store.queues.get("B", queue_id))
    unit.inner, unit.open = len(bodies), False
    return unit


def change(bench: Bench, *lines: object) -> None:
    """Appends and dispatches state lines."""
    bench.send(msgpack.packb(lines), STATE_TOPIC)


def fill(bench: Bench, count: int = 40, seed: int = 1) -> None:
    """Batches and single messages in two queues, and messages of a plain topic, several in a burst."""
    chance = random.Random(seed)
    for number in range(count):
        bodies = [b"%d.%d" % (number, each) * chance.randrange(1, 20) for each in range(chance.randrange(1, 6))]
        single = bench.unit(b"s%d" % number, "B", number % 2, chance.randrange(1, 3), TAGS="t")
        bench.append(batch_unit(bench, *bodies, queue_id=number % 2), single, bench.unit(b"x" * 99, "T"))
    bench.commit()


def messages(store: Store, queue_id: int = 0) -> Iterator[Record]:
    for stored in store.records("B", queue_id):
        yield from messages_in(stored)


def rows(bench: Bench) -> dict[str, bytes]:
    bench.store.queues.flush()
    return {path: bytes(bench.disk.content(path)) for path in bench.disk.paths() if "/batchconsumequeue/" in path}


def queue_of(bench: Bench, queue_id: int = 0) -> ConsumeQueue:
    found = bench.store.queues.find("B", queue_id)
    assert found is not None
    return found


@pytest.fixture
def bench() -> Bench:
    made = Bench(SETTINGS._replace(batch_file_entries=ROWS)).begin()
    change(made, MADE)
    fill(made)
    return made


def drop_before(bench: Bench, number: int) -> None:
    """Segments, as retention does: a snapshot knows what the records there made."""
    bench.store.publish_snapshot(bench.store.begin_snapshot(), bench.store.log.end, bench.store.log.end)
    bench.store.cleaning.drop_before(bench.store.log.segments()[number].base)


def check(bench: Bench, first: int = 0) -> None:
    """Every queue offset has its message, in both ways to read; and `rmq store verify` finds nothing."""
    bench.store.save_progress()
    report = Verifier(bench.disk, ROOT, SETTINGS.index_slots).run()
    assert report.findings == [], report.findings
    for queue_id in range(2):
        queue = queue_of(bench, queue_id)
        assert queue.holds_batches
        found = list(messages(bench.store, queue_id))
        assert [one.queue_offset for one in found] == [*range(queue.min, queue.max)]
        assert queue.min >= first
        for one in found:
            record.verify(
                bench.store.log.read(one.physical_offset, queue.entry(one.queue_offset).size), 0, one.physical_offset, True
            )
            assert queue.entry(one.queue_offset).offset == one.physical_offset
            stored = record.decode(bench.store.log.read(*queue.entry(one.queue_offset)[:2]))
            assert message_at(stored, one.queue_offset).body == one.body


def test_each_message_of_a_batch_has_a_queue_offset(bench: Bench) -> None:
    check(bench)
    queue = queue_of(bench)
    found = queue.find(1, 1, 1, None)
    assert (len(found.spans), found.next_offset > 1) == (1, True), "a record is never cut"
    whole = queue.find(0, 1000, 1 << 20, None)
    assert whole.next_offset == queue.max == whole.examined
    tagged = queue.find(0, 1000, 1 << 20, frozenset({record.tags_code("none")}))
    assert len(tagged.spans) == 20, "batches pass: nobody knows the tags in them"
    with pytest.raises(InvalidArgument):
        queue.entry(queue.max)
    times = {one.queue_offset: one.store_timestamp for one in messages(bench.store)}
    first, last = min(times.values()), max(times.values())
    bases = {queue.search(time_ms, LOWER, lambda _: 0) for time_ms in times.values()}
    assert all(times[base] != times.get(base - 1) for base in bases)
    assert (queue.search(first - 1, UPPER, lambda _: 0), queue.search(last + 1, LOWER, lambda _: 0)) == (0, queue.max)
    assert queue.search(last + 1, UPPER, lambda _: 0) < queue.max


def test_a_kill_loses_no_row(bench: Bench) -> None:
    """Saved, killed in the middle of the next rows, opened; more is appended; the files are those of a queue made anew."""
    bench.store.save_progress()
    fill(bench, 9, 2)
    bench.store.queues.flush()  # rows behind what `progress` says
    before = {queue_id: queue_of(bench, queue_id).max for queue_id in range(2)}
    bench.disk.kill()
    bench.open()
    assert {queue_id: queue_of(bench, queue_id).max for queue_id in range(2)} == before
    bench.begin()
    fill(bench, 9, 3)
    check(bench)
    kept = rows(bench)
    bench.store.close()
    bench.open()
    assert not bench.store.recovered.queues_rebuilt
    check(bench)
    bench.store.close()
    ownfiles.remove_queues(bench.disk, f"{ROOT}/rmq")
    bench.open()
    assert bench.store.recovered.queues_rebuilt
    check(bench)
    assert rows(bench) == kept


def test_retention_takes_rows_from_the_front(bench: Bench) -> None:
    queue = queue_of(bench)
    count = len(rows(bench))
    drop_before(bench, 2)
    low = queue.min
    assert low > 0
    assert len(rows(bench)) < count
    check(bench, 1)
    bench.store.close()
    bench.open()
    assert queue_of(bench).min == low
    check(bench, 1)
    bench.store.close()
    ownfiles.remove_queues(bench.disk, f"{ROOT}/rmq")
    bench.open()
    bench.store.queues.hold_batches("B")  # as the broker does, whose tables know the topics
    assert queue_of(bench).min == low
    check(bench, 1)
    bench.begin()
    fill(bench, 3, 5)
    check(bench, 1)


def test_all_rows_are_gone_and_the_queue_goes_on(bench: Bench) -> None:
    high = queue_of(bench).max
    for _ in range(6):
        bench.send(b"x" * 3000, "T")
    drop_before(bench, -1)
    bench.store.cleaning.drop_empty_queues()
    bench.store.close()
    bench.open()
    bench.begin()
    assert (queue_of(bench).min, queue_of(bench).max) == (high, high)
    bench.store.queues.hold_batches("B")
    fill(bench, 5, 4)
    check(bench, high - 1)
    assert next(messages(bench.store)).queue_offset == high
    bench.store.close()
    bench.open()
    check(bench, high - 1)


def test_a_torn_row_file_is_made_anew(bench: Bench) -> None:
    bench.store.close()
    path = next(iter(rows(bench)))
    bench.disk.content(path)[:] = bytes(len(bench.disk.content(path)) // 2)
    bench.open()
    check(bench)


def test_a_queue_becomes_one_of_batches_when_the_log_says_so_late() -> None:
    """A follower reads RocketMQ's bytes before it knows RocketMQ's topics."""
    bench = Bench(SETTINGS._replace(batch_file_entries=ROWS)).begin()
    for number in range(20):
        bench.send(b"%d" % number, "B", number % 2)
    plain = queue_of(bench)
    bench.store.save_progress()
    change(bench, MADE)
    assert plain.ended
    assert isinstance(queue_of(bench), BatchQueue)
    fill(bench, 5)
    check(bench)
    bench.store.close()
    assert not any("/consumequeue/B/" in path for path in bench.disk.paths())
    bench.open()
    check(bench)


def test_damage_in_a_row_is_found(bench: Bench) -> None:
    bench.store.close()
    path = next(iter(rows(bench)))
    bench.disk.content(path)[46 * 2 + 35] ^= 1
    found = [one for one in Verifier(bench.disk, ROOT, SETTINGS.index_slots).run().findings if one.damage]
    assert [(one.where, "unit 2 says" in one.what) for one in found] == [("batchconsumequeue/B/0", True)]
    bench.disk.unlink(path)
    found = Verifier(bench.disk, ROOT, SETTINGS.index_slots).run().findings
    assert "units are missing" in " ".join(one.what for one in found)


def test_a_deleted_topic_may_have_plain_queues_in_its_next_life(bench: Bench) -> None:
    bench.store.save_progress()
    change(bench, ["topic", "B", None])
    change(bench, ["topic", "B", [*TopicConfig("B")]])
    bench.send(b"plain", "B")
    assert not queue_of(bench).holds_batches
    bench.store.close()
    assert rows(bench) == {}
    bench.open()
    assert bench.bodies("B") == [b"plain"]


def test_a_cut_gives_queue_offsets_back(bench: Bench) -> None:
    end, high = bench.store.log.end, queue_of(bench).next
    bench.append(batch_unit(bench, b"a", b"b", b"c"))
    assert queue_of(bench).next == high + 3
    bench.store.log.cut(end)
    assert queue_of(bench).next == high


def test_a_new_leader_counts_the_messages_of_batches_that_are_not_dispatched() -> None:
    """The line that makes the topic is not dispatched either, so its queues are not known to hold batches."""
    bench = Bench(SETTINGS._replace(batch_file_entries=ROWS)).begin()
    bench.append(bench.unit(msgpack.packb([MADE]), STATE_TOPIC), batch_unit(bench, b"a", b"b", b"c"), bench.unit(b"d", "B"))
    bench.append(batch_unit(bench, b"e", b"f"))
    bench.store.log.pending.clear()  # another leader appended all this
    ReplicatedLog(bench.store, bench.disk, ROOT).restore_queue_offsets()
    assert queue_of(bench).next == 6
    bench.commit()
    assert (queue_of(bench).next, queue_of(bench).max, queue_of(bench).holds_batches) == (6, 6, True)
    bench.append(batch_unit(bench, b"g", b"h"))
    bench.commit()
    assert [one.body for one in messages(bench.store)] == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]


def test_what_a_batch_may_not_say() -> None:
    """Counts that lie, torn and nested parts: refused, and never more than one queue offset for nothing."""
    good = record.decode(wrapped(b"a", b"bb", b"ccc"))
    assert [one.body for one in messages_in(good)] == [b"a", b"bb", b"ccc"]
    assert message_count(good) == 3
    for count in (b"0", b"2", b"4", b"-1", b"99999", b"x", b"\xff"):
        lie = good._replace(properties=good.properties.replace(b"INNER_NUM\x013", b"INNER_NUM\x01" + count))
        assert 1 <= message_count(lie) <= MOST_MESSAGES
        with pytest.raises(BadBytes):
            messages_in(lie)
        assert message_at(lie, 0) == lie
    for body in (good.body[:-1], good.body[1:], b"", good.body + b"\0" * 22, b"\x7f" * 30, b"\xff" * 30, good.body * 20_000):
        with pytest.raises(BadBytes):
            messages_in(good._replace(body=body))
    with pytest.raises(BadBytes, match="compressed"):
        messages_in(good._replace(sys_flag=good.sys_flag | 1))
    nested = record.decode(wrapped(good.body, good.body))
    assert [message_count(one) for one in messages_in(nested)] == [1, 1], "what is in a batch is no batch"
