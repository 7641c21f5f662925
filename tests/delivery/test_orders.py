"""Ordered pops and modes: when a queue is closed, where its group goes on, and RocketMQ's files of them."""

from typing import Any

import msgpack
import pytest
from hypothesis import given, strategies as st

from rmq.delivery import modes, orders
from rmq.delivery.modes import Mode, ModeTable
from rmq.delivery.orders import OrderRow, OrderTable, handed_out, name_of
from rmq.errors import BadBytes, Refusal

ROW = OrderRow("me", 1000, 500, (4, 5, 7))


def commit(table: OrderTable | ModeTable, name: str, row: Any) -> None:
    """As the log gives it back: lists and texts."""
    table.apply(name, msgpack.unpackb(msgpack.packb(list(row)), strict_map_key=False), 1)


def test_a_queue_is_closed_until_all_is_done_or_visible() -> None:
    """As C9. The attempt that has the messages may ask for them again."""
    assert ROW.is_closed("", 1499)
    assert not ROW.is_closed("", 1500)
    assert not ROW.is_closed("me", 1001)
    assert ROW.is_closed("other", 1001)
    later = ROW._replace(visible={5: 9000})
    assert later.is_closed("", 8999)
    assert not later._replace(done=0b010).is_closed("", 1500)
    assert not ROW._replace(done=0b111).is_closed("", 1001)
    assert [ROW._replace(done=done).next() for done in (0b000, 0b001, 0b110, 0b101, 0b111)] == [4, 5, 4, 5, 8]


def test_the_time_of_what_was_handed_out_ahead_of_the_clock_begins_when_that_is_seen() -> None:
    """The clock was set back, perhaps once more, or another leader's was ahead."""
    hour_ms, name = 3_600_000, name_of("g", "T", 0)
    table = OrderTable()

    def is_closed(now_ms: int) -> bool:
        row = table.at(name, now_ms)
        return row is not None and row.is_closed("", now_ms)

    assert not is_closed(0)
    commit(table, name, ROW._replace(pop_time=9 * hour_ms, visible={5: 9 * hour_ms + 800}))
    assert [is_closed(5 * hour_ms + ms) for ms in (0, 799, 800)] == [True, True, False]
    assert [is_closed(4 * hour_ms + ms) for ms in (0, 799, 800)] == [True, True, False]
    commit(table, name, ROW._replace(pop_time=9 * hour_ms, visible={5: 4 * hour_ms + 5000}))
    assert [is_closed(4 * hour_ms + ms) for ms in (900, 4999, 5000)] == [True, True, False], "changed by this clock"
    commit(table, name, ROW._replace(pop_time=8 * hour_ms))
    assert [is_closed(4 * hour_ms + 6000 + ms) for ms in (0, 499, 500)] == [True, True, False], "handed out anew"
    assert [is_closed(8 * hour_ms + ms) for ms in (499, 500)] == [True, False], "not ahead any more"


def test_tries_count_what_comes_again() -> None:
    first = handed_out(None, "", 0, 10, [4, 5])
    assert first.tries == {}
    second = handed_out(first, "x", 0, 10, [4, 5, 6])
    assert second.tries == {4: 1, 5: 1}
    assert handed_out(second, "x", 0, 10, [4, 5, 6]).tries == {4: 1, 5: 1}, "the same attempt"
    assert handed_out(second, "y", 0, 10, [5]).tries == {5: 2}


NUMBERS = st.lists(st.integers(0, 50), min_size=1, max_size=8, unique=True).map(sorted)


@given(NUMBERS, st.integers(0, 255), st.text("ab", max_size=2))
def test_rows_go_to_rocketmqs_file_and_back(numbers: list[int], done: int, attempt: str) -> None:
    row = OrderRow(attempt, 10, 20, tuple(numbers), done, {numbers[0]: 7}, {numbers[-1]: 2})
    table = OrderTable()
    commit(table, name_of("g", "T", 3), row)
    assert table.get("T@g@3") == row
    assert orders.from_json(orders.orders_json(table)) == {"T@g@3": row}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["stage", "unstage", "commit", "forget", "group", "topic", "follow"]),
        st.sampled_from(["g", "h"]),
        st.sampled_from(["T", "U"]),
        st.sampled_from(["", "x", "y"]),
        st.integers(0, 7),
    ),
    max_size=30,
)


@given(STEPS)
def test_what_an_attempt_has_is_known_as_if_all_rows_were_looked_through(steps: list[tuple[str, str, str, str, int]]) -> None:
    table, names = OrderTable(), sorted(name_of(group, topic, 0) for group in "gh" for topic in "TU")
    for step, group, topic, attempt, done in steps:
        name, row = name_of(group, topic, 0), ROW._replace(attempt=attempt, done=done)
        if step == "stage":
            table.stage(name, row)
        elif step == "unstage":
            table.unstage(name)
        elif step == "commit":
            commit(table, name, row)
        elif step == "forget":
            table.forget(group, topic, 0)
        elif step == "follow":
            table.drop_overlay()
        else:
            (table.remove_group if step == "group" else table.remove_topic)(group if step == "group" else topic)
        for one in ("x", "y"):
            rows = [(name, table.decided(name)) for name in names]
            assert table.of_attempt(one) == [name for name, row in rows if row and row.attempt == one and row.next() < 8]


def test_topics_and_groups_take_their_rows_along() -> None:
    table, known = OrderTable(), ModeTable()
    for group, topic in (("g", "T"), ("g", "TT"), ("h", "T")):
        commit(table, name_of(group, topic, 0), ROW)
        commit(known, modes.name_of(topic, group), Mode("POP", 2))
    for one in (table, known):
        one.remove_topic("T")
        assert [name.partition("@")[0] for name in one.committed()] == ["TT"]
        one.remove_group("g")
        assert not one.committed()
    assert orders.orders_json(table) is None
    assert modes.modes_json(known) is None


def test_rocketmqs_files() -> None:
    """The first as golden set s16 has it."""
    said = {"table": {"s16-ord@s16_PGO": {"0": {"cm": 3, "i": 300000, "l": 2, "o": [2, 1, 2, 3], "popTime": 1}}}}
    assert orders.from_json(said) == {"s16-ord@s16_PGO@0": OrderRow("", 1, 300000, (2, 3, 4, 5), 3)}
    row = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 2, "topic": "T"}
    assert modes.from_json({"messageRequestModeMap": {"T": {"g": row}}}) == {"T@g": Mode("POP", 2)}
    assert orders.from_json(None) == modes.from_json(None) == {}
    for read, bad in ((orders.from_json, {"table": {"T@g": {"0": {}}}}), (modes.from_json, {"messageRequestModeMap": {"T": []}})):
        with pytest.raises(BadBytes):
            read(bad)


def test_a_mode_is_one_of_two() -> None:
    table = ModeTable()
    assert table.of("T", "g") == Mode("PULL")
    modes.check_mode("POP")
    with pytest.raises(Refusal):
        modes.check_mode("PUSH")
