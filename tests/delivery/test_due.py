"""What waits for its time: handed on once, not before; the same table after a replay; the oldest source pins the log."""

import random
from typing import Any

import msgpack
from hypothesis import given, settings, strategies as st

from rmq.delivery.due import CANCEL, STEP_MS, TIMER, DueTable, Source, level_slot, timer_out_ms, timer_slot
from rmq.testing import entries

CHUNK = 1000
DELAYS = (1000, 5000, 10_000)


def table_of(*sources: Source) -> DueTable:
    table = DueTable(CHUNK, DELAYS)
    for source in sources:
        table.note(source)
    return table


def reloaded(table: DueTable) -> DueTable:
    """What a snapshot makes of it."""
    again = DueTable(CHUNK, DELAYS)
    for key, row in msgpack.unpackb(msgpack.packb(list(table.committed().items()))):
        again.apply(key, row)
    return again


def contents(table: DueTable) -> dict[int, Any]:
    return dict(sorted(table.committed().items()))


def test_what_is_being_handed_on_still_is_the_first_that_waits() -> None:
    table = table_of(Source(2000, 20, TIMER), Source(1000, 10, TIMER))
    assert table.first_ms() == 1000
    assert len(table.due(1500, 9)) == 1
    assert table.first_ms() == 1000
    table.done(1000, 10)
    assert table.first_ms() == 2000
    table.done(2000, 20)
    assert table.first_ms() is None


def test_never_before_its_time_and_once() -> None:
    """C13: a slot is due at its moment; what is being handed on is not handed on again."""
    early, late = Source(1000, 10, 1), Source(2000, 20, 2)
    table = table_of(early, late)
    assert table.due(999, 9) == []
    assert table.due(1000, 9) == [early]
    assert table.due(1000, 9) == []
    assert table.due(5000, 9) == [late]
    table.done(1000, 10)
    table.done(2000, 20)
    assert (table.pending, contents(table), table.alive_from()) == (0, {}, None)
    table.done(2000, 20)  # told again by a replay


def test_nothing_is_kept_of_what_is_done() -> None:
    """If it were noted once more, it would wait like any other: also one that was being handed on, or was due early."""
    source = Source(3_600_000, 10, 1)
    table = table_of(source)
    for now in (source.due_ms, source.due_ms - 1001 - STEP_MS):  # in time, and by a clock that was set back
        assert table.due(now, 9) == [source]
        table.done(source.due_ms, source.offset)
        table.note(source)
    assert table.due(source.due_ms - 1, 9) == []
    assert table.due(source.due_ms, 9) == [source]


def test_a_level_is_due_at_the_next_tick_a_timer_not_before_it_was_asked_for() -> None:
    """[TimerMessageStore]: down to the second, an exact multiple one second earlier, handed on one second later."""
    assert [level_slot(stored, 1000) for stored in (500, 501, 599, 600)] == [1500, 1600, 1600, 1600]
    asked = (1_795_231_401_000, 1_795_231_399_127, 1_795_231_400_001)  # golden set s15
    assert [timer_out_ms(one) for one in asked] == [1_795_231_400_000, 1_795_231_399_000, 1_795_231_400_000]
    assert all(one <= timer_slot(timer_out_ms(one)) < one + 1000 for one in asked)


def test_a_record_that_was_refused_is_due_again() -> None:
    source = Source(1000, 10, TIMER)
    table = table_of(source)
    assert table.due(1000, 9) == [source]
    table.not_stored(source)
    assert table.due(1000, 9) == [source]


def test_one_that_could_not_be_carried_is_not_due_before_its_time() -> None:
    """C13: it was held for a copy of itself, which a full disk refused."""
    source = Source(9000, 10, TIMER)
    table = table_of(source)
    assert table.hold(source)
    assert not table.hold(source)
    table.not_stored(source)
    assert table.due(8999, 9) == []
    assert table.due(9000, 9) == [source]


def test_a_node_that_loses_leadership_forgets_what_was_on_its_way() -> None:
    """A proposed record that was cut is handed on by whoever leads next; one that was committed is done there too."""
    first, second = Source(1000, 10, 1), Source(1000, 20, 1)
    table = table_of(first, second)
    assert table.due(1000, 9) == [first, second]
    table.done(1000, 10)
    table.drop_overlay()
    assert table.due(1000, 9) == [second]


def test_bounded_bites_of_many_that_are_due_at_once() -> None:
    sources = [Source(1000 + 100 * (i % 3), i, 1) for i in range(100)]
    table = table_of(*sources)
    bites = []
    while bite := table.due(9000, 7):
        bites.append(bite)
    assert max(map(len, bites)) == 7
    assert sorted(one for bite in bites for one in bite) == sorted(sources)


def test_done_in_any_order() -> None:
    table = table_of(*[Source(1000, offset, TIMER) for offset in range(5)])
    for offset in (3, 1, 0, 4):
        table.done(1000, offset)
        assert not table.is_pending(1000, offset)
    assert table.due(1000, 9) == [Source(1000, 2, TIMER)]
    table.done(1000, 2)
    assert not contents(table)


def test_a_clock_set_back_holds_nothing_up_for_ever() -> None:
    """C13, [ScheduleMessageService]: due later than its whole delay from now is due; a small step is waited out."""
    table = table_of(Source(3_600_000, 10, 1), Source(3_600_000, 20, TIMER))
    assert table.due(3_600_000 - 1000 - STEP_MS, 9) == []
    assert table.due(3_600_000 - 1001 - STEP_MS, 9) == [Source(3_600_000, 10, 1)]
    assert table.due(0, 9) == []
    table.not_stored(Source(3_600_000, 10, 1))
    assert table.due(0, 9) == [Source(3_600_000, 10, 1)]
    table.drop_overlay()
    assert table.due(0, 9) == [Source(3_600_000, 10, 1)]
    table.done(3_600_000, 10)
    assert table.due(3_600_000, 9) == [Source(3_600_000, 20, TIMER)]


def test_a_slot_that_was_due_waits_when_the_clock_is_set_back() -> None:
    """C13: not before its time by the leader's clock."""
    source = Source(1000, 10, TIMER)
    table = table_of(source)
    assert table.due(1000, 0) == []
    table.due(1000, 1)
    table.not_stored(source)
    assert table.due(900, 9) == []
    assert table.due(1000, 9) == [source]


def test_the_oldest_one_pins_the_log() -> None:
    table = table_of(Source(9000, 4100, 1), Source(1000, 2500, TIMER), Source(5000, 2100, 1))
    assert table.alive_from() == 2000
    assert sorted(one for slot in table.below(4000, 2) for one in slot) == [Source(1000, 2500, TIMER), Source(5000, 2100, 1)]
    table.done(1000, 2500)
    assert table.alive_from() == 2000
    table.done(5000, 2100)
    assert table.alive_from() == 4000


def test_a_cancelled_timer_of_the_same_slot() -> None:
    """The cancel waits in its slot, too, and the snapshot knows it."""
    timer, other, cancel = Source(1000, 10, TIMER), Source(2000, 15, TIMER), Source(1000, 20, CANCEL)
    table = table_of(timer, other)
    table.cancel(cancel, "T+K")
    for one in (table, reloaded(table)):
        assert one.is_cancelled(timer, "T+K")
        assert not one.is_cancelled(timer, "T+L")
        assert not one.is_cancelled(other, "T+K")
        one.done(1000, 20)
        assert one.is_cancelled(timer, "T+K"), "as long as the slot is there"
        one.done(1000, 10)
        assert contents(one).keys() == {2000}


def test_state_lines_of_an_adoption() -> None:
    table = DueTable(CHUNK, DELAYS)
    table.apply([1000, 10, TIMER], True)
    table.apply([1000, 20, CANCEL], "T+K")
    table.apply([7000, 30, 2], True)
    table.apply([7000, 30, 2], None, 99)
    assert contents(table).keys() == {1000}
    assert table.is_cancelled(Source(1000, 10, TIMER), "T+K")
    assert table.data_version.timestamp == 99
    for key in list(table.committed()):  # the log begins anew
        table.apply(key, None)
    assert (table.pending, table.alive_from(), contents(table)) == (0, None, {})


def test_a_follower_that_never_takes_anything_keeps_no_heap_of_old_slots() -> None:
    table = DueTable(CHUNK, DELAYS)
    for number in range(5000):
        table.note(Source(number, number, 1))
        table.done(number, number)
    assert entries(table) <= 1010


def test_slots_that_go_and_come_again_are_listed_once() -> None:
    table, twin = DueTable(CHUNK, DELAYS), set[int]()
    chance = random.Random(7)
    for offset in range(6000):
        due = chance.randrange(600)
        if due in twin and offset % 4:
            table.apply(due, None)
            twin.remove(due)
        else:
            table.note(Source(due, offset, TIMER))
            twin.add(due)
        if offset % 500 == 0:
            assert sorted(table.committed()) == sorted(twin)
            assert sorted({one.due_ms for slot in table.below(1 << 60, 7) for one in slot}) == sorted(twin)
    assert len(list(table.committed())) == len(table.committed()) == len(twin)


steps = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["note", "note", "done", "done", "late"])), min_size=1, max_size=60)


@settings(max_examples=300, deadline=None)
@given(steps, st.integers(0, 60), st.integers(0, 60))
def test_a_snapshot_taken_meanwhile_and_a_replay_end_in_the_same_table(
    plan: list[tuple[int, str]], began: int, ended: int
) -> None:
    """Story 44: the rows are read between `began` and `ended`; what came after `began` is told again. The twin is a plain set."""
    events: list[tuple[str, Source]] = []
    pending: list[Source] = []
    for offset, (slot, what) in enumerate(plan):
        if what == "note" or not pending:
            pending.append(Source(1000 + slot * 100, offset * 100, slot))
            events.append(("note", pending[-1]))
        else:
            events.append(("done", pending.pop(0 if what == "done" else -1)))

    def play(table: DueTable, part: list[tuple[str, Source]]) -> None:
        for what, source in part:
            if what == "note":
                table.note(source)
            else:
                table.done(source.due_ms, source.offset)

    began, ended = sorted((min(began, len(events)), min(ended, len(events))))
    live = DueTable(CHUNK, DELAYS)
    play(live, events[:ended])
    loaded = reloaded(live)
    play(live, events[ended:])
    play(loaded, events[began:])
    for table in (live, loaded):
        found = [one for slot in table.below(1 << 60, 7) for one in slot]
        assert sorted(found) == sorted(pending)
        assert table.pending == len(pending)
        assert table.alive_from() == (min(one.offset for one in pending) // CHUNK * CHUNK if pending else None)
        assert sorted(table.due(1 << 50, 1000)) == sorted(pending)
    assert contents(loaded) == contents(live)
