"""Records of pending messages and of those handed on: all nodes must note the same of them, live and after a start."""

import random
from collections.abc import Callable

import pytest

from rmq.log.records import record
from rmq.log.records.peek import peek
from rmq.log.records.pending import is_pending_change, may_be_pending_change
from rmq.log.records.record import Record
from rmq.log.replay import replay
from rmq.log.replicated import read_entries
from rmq.log.units import Unit
from rmq.model import DELAY_TOPIC, HALF_TOPIC, OP_TOPIC, REVIVE_PREFIX, STATE_TOPIC, TIMER_TOPIC
from tests.log.conftest import BORN, ROOT, SETTINGS, Bench, draft
from tests.log.test_replicated import Replica

HELD = (DELAY_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, f"{REVIVE_PREFIX}DefaultCluster")


def pending(store_bench: Bench, topic: str, body: bytes, **properties: str) -> Unit:
    data = draft(topic, body, **properties)
    unit = Unit(data, (len(data),), (0,), store_bench.store.queues.get(topic, 0))
    unit.pending_change = True
    return unit


def noted(units: list[Unit]) -> list[Record]:
    return [stored for unit in units if unit.pending_change for stored in record.iterate(unit.records)]


def test_what_is_noted_is_what_stands_in_the_log(bench: Bench) -> None:
    """A leader dispatches its own units as it proposed them; a pending change has the number, place and time that are stored."""
    for topic in HELD:
        bench.append(pending(bench, topic, b"one", RMQ_SRC="due 7 9"), bench.unit(b"between"))
    found = noted(bench.commit())
    assert [stored.topic for stored in found] == list(HELD)
    for stored in found:
        assert bench.store.log.read(stored.physical_offset, stored.total_size) == record.encode(stored)
        assert stored.store_timestamp > 1_700_000_000_000


def test_a_delayed_message_waits_in_its_queue_under_its_due_time(bench: Bench) -> None:
    """[ConsumeQueue, tagsCode]: store time and delay, by the clock of the append, not of the proposal."""
    unit = pending(bench, DELAY_TOPIC, b"late", DELAY="3", REAL_TOPIC="T", TAGS="a")
    bench.append(unit)
    bench.commit()
    queue = bench.store.queues.get(DELAY_TOPIC, 0)
    assert queue.entry(0)[2] == bench.wall_ms + 10_000


def test_leader_follower_and_start_note_the_same() -> None:
    """The same records in the same order, however a node came to know them; others are not looked at."""
    chance = random.Random(5)
    leader, follower = Replica(), Replica()
    leader.lead(1)
    at_leader: list[Record] = []
    at_follower: list[Record] = []
    for number in range(200):
        topic = chance.choice((*HELD, "T", "T", "T", STATE_TOPIC))
        proof = {"RMQ_SRC": f"due {number} 5"} if chance.random() < 0.4 and topic != STATE_TOPIC else {}
        data = draft(topic, b"RMQ_SRC" if number % 7 else b"", TAGS="a", **proof)
        unit = Unit(data, (len(data),), (0,), leader.store.queues.get(topic, 0))
        unit.pending_change = bool(proof) or topic in HELD
        leader.log.append([unit], 2000 + number)
        if chance.random() < 0.3:
            at_leader += noted(leader.store.dispatcher.advance(leader.log.end))
            while follower.log.end < leader.log.end:
                follower.take(read_entries(leader.log, follower.log.end, 4096))
            at_follower += noted(follower.store.dispatcher.advance(follower.log.end))
    at_leader += noted(leader.store.dispatcher.advance(leader.log.end))
    assert len(at_leader) > 100
    assert at_follower == at_leader[: len(at_follower)]
    assert len(at_follower) > 90
    told = [stored for stored in replay(leader.store) if stored.topic != STATE_TOPIC]
    assert told == at_leader
    assert {stored.topic for stored in replay(leader.store)} > {STATE_TOPIC}


def test_the_cheap_look_never_misses_one(bench: Bench) -> None:
    """`may_be_pending_change` is asked of every record at a start; `peek` must leave all of them to the long way."""
    for topic in (*HELD, "T"):
        for body in (b"", b"x" * 300):
            for properties in ({}, {"TAGS": "a"}, {"RMQ_SRC": "half 1 2"}, {"A": "b", "RMQ_SRC": "pop 3 4"}):
                for host in (record.host_bytes("10.0.0.1", 1), record.host_bytes("::1", 1)):
                    flat = record.properties_to_bytes(properties)
                    data = record.draft(topic, body, flat, born_timestamp=1, born_host=host)
                    assert may_be_pending_change(b"xx" + data, 2, len(data)) or not is_pending_change(record.decode(data))
                    assert peek(data, 0, len(data)) is None or "RMQ_SRC" not in properties
    plain = draft("T", DELAY_TOPIC.encode() + b"RMQ_SRC\x01", TAGS="a")
    assert not may_be_pending_change(plain, 0, len(plain)), "what a body says does not count"


def test_a_start_tells_again_only_what_the_snapshot_does_not_hold(bench: Bench) -> None:
    for number in range(5):
        bench.append(pending(bench, TIMER_TOPIC, b"%d" % number))
        bench.commit()
    writer = bench.store.begin_snapshot()
    s0 = bench.store.dispatcher.position
    bench.store.publish_snapshot(writer, s0, s0)
    bench.append(pending(bench, TIMER_TOPIC, b"later"))
    bench.commit()
    bench.store.close()
    assert [stored.body for stored in replay(bench.open())] == [b"later"]
    assert any(path.startswith(f"{ROOT}/rmq/snapshot-") for path in bench.disk.paths())


@pytest.mark.parametrize("rare", [2, 600])
def test_a_start_finds_the_same_among_many_as_one_by_one(new_bench: Callable[..., Bench], rare: int) -> None:
    """D12, twin: blocks of many records, in which nearly all or few are pending, also from IPv6 hosts; names in bodies."""
    chance = random.Random(rare)
    bench = new_bench(SETTINGS._replace(segment_bytes=1 << 18)).begin()
    for number in range(1200):
        topic = chance.choice((*HELD, STATE_TOPIC)) if number % rare == 1 else chance.choice("TUV")
        said = record.properties_to_bytes({"RMQ_SRC": "due 1 2"} if chance.randrange(rare) == 0 else {"KEYS": "RMQ_SRC"})
        host, body = chance.choice((BORN, record.host_bytes("::1", 1))), chance.choice((b"", TIMER_TOPIC.encode() * 9))
        data = record.draft(topic, body, said, born_timestamp=number, born_host=host)
        bench.append(Unit(data, (len(data),), (0,), bench.store.queues.get(topic, 0)))
    bench.commit()
    plain = [
        found for found in bench.store.log.scan(0, bench.store.log.end) if is_pending_change(found) or found.topic == STATE_TOPIC
    ]
    assert [*replay(bench.store)] == plain
    assert len(plain) > (500 if rare == 2 else 1)
