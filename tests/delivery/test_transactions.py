"""Halves: one outcome each, the first that is committed; nothing that a replay tells again changes the table."""

from collections.abc import Callable, Iterator
from typing import Any

import msgpack
from hypothesis import given, settings, strategies as st

from rmq.delivery import transactions
from rmq.delivery.transactions import COMMITTED, PARKED, ROLLED_BACK, Half, HalfTable, op_body, op_queue_offsets

Note = Callable[[HalfTable], None]


def half(offset: int, number: int = 0, **fields: Any) -> Half:
    return Half(offset, number, number, **{"group": "p", "since_ms": 1000, **fields})


def with_one(first: int = 100, **fields: Any) -> HalfTable:
    table = HalfTable()
    table.appended(first, half(first, 7, **fields))
    return table


def rows(table: HalfTable) -> dict[str, dict[int, Any]]:
    return {name: dict(one.committed()) for name, one in table.by_name.items()}


def test_the_first_committed_resolution_wins() -> None:
    """C11: whatever is said of it afterwards, and by whom."""
    table = with_one()
    table.resolved((100,), COMMITTED)
    for late in (ROLLED_BACK, PARKED, COMMITTED):
        table.resolved((100,), late)
        assert (table.outcome(100), table.open.rows, list(table.owed.rows)) == (COMMITTED, {}, [7])


def test_what_is_on_its_way_is_decided_already() -> None:
    """C11, story 36: a second END_TRANSACTION finds the first one's outcome before it is committed."""
    table = with_one()
    assert table.outcome(100) == ""
    table.end(100, COMMITTED)
    assert (table.outcome(100), table.is_ending(100), 100 in table.open.rows) == (COMMITTED, True, True)
    assert table.to_ask(10**9, 6000) == []
    table.not_ended(100)
    assert table.outcome(100) == ""
    table.end(100, ROLLED_BACK)
    table.resolved((100,), ROLLED_BACK)
    assert (table.outcome(100), table.is_ending(100)) == (ROLLED_BACK, False)


def test_a_leader_that_lost_leadership_decides_nothing() -> None:
    """C11: the next leader may have decided otherwise."""
    table = with_one()
    table.end(100, COMMITTED)
    table.move(100)
    table.drop_overlay()
    assert table.outcome(100) == ""
    assert table.to_ask(10**9, 6000) == [100]


def test_asked_back_after_its_immunity_not_while_a_record_of_it_is_on_its_way() -> None:
    """C12: the broker's time, or its own if that is longer."""
    table = with_one()
    table.appended(200, half(200, 8, immunity_ms=60_000))
    table.appended(300, half(300, 9, immunity_ms=10))
    assert table.to_ask(6999, 6000) == []
    assert table.to_ask(7000, 6000) == [100, 300]
    assert table.to_ask(61_000, 6000) == [100, 200, 300]
    table.move(200)
    assert table.to_ask(61_000, 6000) == [100, 300]
    table.not_moved(200)
    assert table.to_ask(61_000, 6000) == [100, 200, 300]


def test_the_age_of_what_is_ahead_of_the_clock_begins_when_that_is_seen() -> None:
    """C12: the clock was set back, perhaps once more, or another leader's was ahead."""
    hour_ms = 3_600_000
    table = HalfTable()
    table.appended(100, half(100, 7)._replace(since_ms=10 * hour_ms))
    assert table.to_ask(5 * hour_ms, 6000) == []
    assert table.to_ask(5 * hour_ms + 6000, 6000) == [100]
    assert table.to_ask(4 * hour_ms, 6000) == []
    assert table.to_ask(4 * hour_ms + 6000, 6000) == [100]
    assert table.to_ask(10 * hour_ms, 6000) == [], "not ahead any more"
    assert table.to_ask(10 * hour_ms + 6000, 6000) == [100]


def test_what_another_leader_took_ahead_of_the_clock_has_its_whole_time_here() -> None:
    """C12: this node led before, saw older ones then, and never looked again until it led once more."""
    hour_ms = 3_600_000
    table = HalfTable()
    table.appended(100, half(100, 7)._replace(since_ms=10 * hour_ms))
    assert table.to_ask(5 * hour_ms, 6000) == []
    table.drop_overlay()
    table.resolved([100], ROLLED_BACK)
    table.appended(200, half(200, 8)._replace(since_ms=10 * hour_ms + 60_000))
    assert table.to_ask(5 * hour_ms + 60_000, 6000) == []
    assert table.to_ask(5 * hour_ms + 66_000, 6000) == [200]


def test_those_asked_after_the_least_come_first() -> None:
    """C12: when the disk takes no more in the middle of a round."""
    table = with_one()
    table.appended(200, half(200, 8))
    table.appended(100, half(300, 9, checks=1))
    assert table.to_ask(10_000, 6000) == [200, 100]


def test_appended_again_it_is_the_same_half() -> None:
    """C12, story 67: its first offset stays its name; the number it had is done with."""
    table = with_one(immunity_ms=8000)
    table.move(100)
    table.appended(100, half(500, 12, since_ms=9000, checks=1))
    assert table.open.rows == {100: Half(500, 12, 7, "p", 1000, 8000, 1)}
    assert list(table.owed.rows) == [7]
    assert (table.alive_from(), table.below(500), table.below(501)) == (500, [], [100])
    table.appended(100, half(100, 7))  # a replay tells the beginning again
    assert table.open.rows[100].offset == 500
    table.resolved((100,), ROLLED_BACK)
    assert (list(table.owed.rows), table.alive_from()) == ([7, 12], None)
    table.op_written([12, 7, 5])
    assert not table.owed.rows


def test_appended_again_a_half_keeps_its_place_among_the_open_ones() -> None:
    """Who asks for open transactions gets the oldest first (ListHalves)."""
    table = with_one(100)
    for first in (200, 300):
        table.appended(first, half(first, first))
    table.appended(100, half(500, 12, checks=1))
    assert list(table.open.rows) == [100, 200, 300]
    assert table.number_open("p") == 3


def test_the_first_append_may_be_gone_with_its_segment() -> None:
    """Story 40: a node without a snapshot finds only the copy that was carried forward."""
    table = HalfTable()
    table.appended(100, half(500, 12, checks=3))
    assert table.open.rows == {100: Half(500, 12, -1, "p", 1000, 0, 3)}


def test_outcomes_and_open_halves_are_bounded(monkeypatch: Any) -> None:
    """D18."""
    monkeypatch.setattr(transactions, "KEPT_OUTCOMES", 3)
    monkeypatch.setattr(transactions, "MOST_OPEN", 2)
    table = HalfTable()
    for first in range(5):
        assert not table.is_full("p")
        table.appended(first, half(first, first))
        table.resolved((first,), COMMITTED)
    assert list(table.ended.rows) == [2, 3, 4]
    table.appended(10, half(10))
    table.appended(11, half(11))
    assert table.is_full("p")


def test_op_bodies() -> None:
    """As 5.5.0 writes them, and as 4.9.7 does."""
    assert op_body([0, 1, 13]) == b"0,1,13,"
    assert op_queue_offsets(b"0,1,13,") == [0, 1, 13]
    assert op_queue_offsets(b"17") == [17]
    assert op_queue_offsets(b"") == op_queue_offsets(b"x,-1,") == []


# --- any history, told twice ------------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Note]:
    """Committed records of one log: halves that are appended, appended again, resolved (some twice), and op records."""
    notes: list[Note] = []
    alive: dict[int, Half] = {}
    owed: list[int] = []
    numbers = iter(range(10_000))
    for place in range(draw(st.integers(1, 30))):
        offset = place * 100
        kind = draw(st.sampled_from("ammrro"))
        if kind == "a" or not (alive or owed):
            alive[offset] = half(offset, next(numbers))
            notes.append(_appended(offset, alive[offset]))
        elif kind == "o" and owed:
            count = draw(st.integers(1, len(owed)))
            notes.append(_op(owed[:count]))
            del owed[:count]
        elif kind == "m" and alive:
            first = draw(st.sampled_from(sorted(alive)))
            owed.append(alive[first].queue_offset)
            alive[first] = half(offset, next(numbers), checks=alive[first].checks + 1)
            notes.append(_appended(first, alive[first]))
        elif alive:
            first = draw(st.sampled_from(sorted(alive)))
            owed.append(alive.pop(first).queue_offset)
            notes += [_resolved(first, how) for how in draw(st.sampled_from(["c", "r", "cr", "rc", "a"]))]
    return notes


def _appended(first: int, one: Half) -> Note:
    return lambda table: table.appended(first, one)


def _resolved(first: int, how: str) -> Note:
    return lambda table: table.resolved((first,), {"c": COMMITTED, "r": ROLLED_BACK, "a": PARKED}[how])


def _op(numbers: list[int]) -> Note:
    return lambda table: table.op_written(numbers)


def snapshot_while(table: HalfTable, notes: Iterator[Note], pauses: Iterator[int]) -> list[tuple[str, int, Any]]:
    """The table's rows as a snapshot reads them: one by one, with further records committed in between."""
    found: list[tuple[str, int, Any]] = []
    for name, one in table.by_name.items():
        for key in list(one.committed()):
            for _, note in zip(range(next(pauses, 0)), notes, strict=False):
                note(table)
            if key in one.committed():
                found.append((name, key, one.committed()[key]))
    return found


@settings(max_examples=300, deadline=None)
@given(histories(), st.data())
def test_a_snapshot_taken_on_the_way_and_a_replay_end_in_the_same_table(notes: list[Note], data: st.DataObject) -> None:
    """R18, story 44, C11: also when the replay tells what the rows already know."""
    s0 = data.draw(st.integers(0, len(notes)))
    pauses = iter(data.draw(st.lists(st.integers(0, 2), max_size=30)))
    table = HalfTable()
    for note in notes[:s0]:
        note(table)
    behind = iter(notes[s0:])
    saved = snapshot_while(table, behind, pauses)
    for note in behind:
        note(table)
    again = HalfTable()
    for name, key, value in msgpack.unpackb(msgpack.packb(saved)):
        again.by_name[name].apply(key, value)
    for note in notes[s0:]:
        note(again)
    assert rows(again) == rows(table)


@settings(max_examples=100, deadline=None)
@given(histories())
def test_two_nodes_that_are_told_the_same_know_the_same(notes: list[Note]) -> None:
    """R18: and so does one that is told everything twice, from the beginning."""
    one, two = HalfTable(), HalfTable()
    for note in notes:
        note(one)
    for note in [*notes, *notes]:
        note(two)
    assert rows(one)["half"] == rows(two)["half"]
    assert rows(one)["halfEnd"] == rows(two)["halfEnd"]


def test_no_group_takes_all_the_room(monkeypatch: Any) -> None:
    monkeypatch.setattr(transactions, "MOST_OPEN_OF_GROUP", 2)
    table = HalfTable()
    for first in (100, 200):
        assert not table.is_full("p")
        table.appended(first, half(first))
    table.appended(100, half(300)._replace(first_queue_offset=-1))  # once more, further on
    assert table.is_full("p")
    assert not table.is_full("q")
    table.open.apply(200, None)
    assert not table.is_full("p")
    table.open.apply(200, list(half(200)))
    assert table.is_full("p")
    for first in (100, 200):
        table.resolved((first,), COMMITTED)
    assert table.open_groups() == []
