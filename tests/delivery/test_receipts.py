"""Receipts of POP: open until each message is acknowledged or handed on, once; told twice they are the same."""

from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings, strategies as st

from rmq.delivery import receipts
from rmq.delivery.popping import Handle, Part, msg_offset_info, order_count_info, parse_handle, receipt_in, start_offset_info
from rmq.delivery.receipts import Receipt, ReceiptKey, ReceiptTable
from rmq.errors import Refusal
from rmq.testing import entries

KEY = ReceiptKey("g", "T", 0, 10, 1000)


def opened(numbers: tuple[int, ...] = (10, 11, 13), due_ms: int = 61_000, place: int = 500) -> ReceiptTable:
    table = ReceiptTable()
    table.opened(KEY, Receipt(place, 100, due_ms, numbers))
    return table


def test_a_receipt_ends_with_its_last_message() -> None:
    """C10: what is neither acknowledged nor handed on comes back."""
    table = opened()
    table.acked(KEY, [11])
    row = table.get(KEY)
    assert row is not None
    assert row.left() == [10, 13]
    table.handed_on(500, 10)
    table.acked(KEY, [11, 12, 99])  # again, and what it does not hold
    row = table.get(KEY)
    assert row is not None
    assert row.left() == [13]
    table.acked(KEY, [13])
    assert table.get(KEY) is None
    assert len(table) == 0
    assert table.alive_from() is None
    assert not list(table.due(10**15))
    assert table.open_of("g", "T", 0) == 0
    table.acked(KEY, [13])
    table.handed_on(500, 13)


def test_only_what_is_due_comes_the_oldest_first() -> None:
    table = opened(due_ms=5500)
    early, late = KEY._replace(start=20), KEY._replace(start=30)
    table.opened(early, Receipt(400, 90, 5200, (20,)))
    table.opened(late, Receipt(600, 110, 99_000, (30,)))
    assert [key for key, _ in table.due(5199)] == []
    assert [key for key, _ in table.due(5200)] == [early]
    assert [key for key, _ in table.due(5500)] == [early, KEY]
    assert table.alive_from() == 90
    assert [key for key, _ in table.pinning(105)] == [early, KEY]
    adopted = KEY._replace(start=40)
    table.opened(adopted, Receipt(700, 700, 5300, (40,)))
    assert table.overdue_ms(6000) == 1000
    assert [key for key, _ in table.due(5500, 5299)] == [early, KEY]
    assert [key for key, _ in table.due(5500, 5300)] == [adopted, early, KEY]
    table.acked(adopted, [40])
    assert [key for key, _ in table.due(5500)] == [early, KEY]


def test_the_time_of_what_was_popped_ahead_of_the_clock_begins_when_that_is_seen() -> None:
    """The clock was set back, perhaps once more, or another leader's was ahead."""
    hour_ms = 3_600_000
    table = opened()
    ahead = KEY._replace(start=20, pop_time=10 * hour_ms)
    table.opened(ahead, Receipt(600, 110, 10 * hour_ms + 30_000, (20,)))
    assert [key for key, _ in table.due(5 * hour_ms)] == [KEY]
    assert [key for key, _ in table.due(5 * hour_ms + 29_999)] == [KEY]
    assert [key for key, _ in table.due(5 * hour_ms + 30_000)] == [KEY, ahead]
    table.acked(KEY, [10, 11, 13])
    assert not list(table.due(4 * hour_ms))
    assert [key for key, _ in table.due(4 * hour_ms + 30_000)] == [ahead]
    table.acked(ahead, [20])
    assert not list(table.due(hour_ms))
    table.opened(ahead._replace(pop_time=2 * hour_ms), Receipt(700, 110, 2 * hour_ms + 30_000, (20,)))
    assert not list(table.due(hour_ms + 60_000)), "another one, seen now"
    assert not list(table.due(2 * hour_ms + 29_000)), "not ahead any more"
    assert list(table.due(2 * hour_ms + 30_000))


def test_what_another_leader_popped_ahead_of_the_clock_has_its_whole_time_here() -> None:
    """This node led before, saw older ones then, and never looked again until it led once more: they came back at once."""
    hour_ms = 3_600_000
    table = ReceiptTable()
    old, new = KEY._replace(pop_time=10 * hour_ms), KEY._replace(start=20, pop_time=10 * hour_ms + 60_000)
    table.opened(old, Receipt(500, 100, 10 * hour_ms + 30_000, (10,)))
    assert not list(table.due(5 * hour_ms))
    table.drop_overlay()
    table.acked(old, [10])
    table.opened(new, Receipt(600, 110, new.pop_time + 30_000, (20,)))
    assert not list(table.due(5 * hour_ms + 60_000))
    assert [key for key, _ in table.due(5 * hour_ms + 90_000)] == [new]


def test_nothing_is_ended_twice_while_it_is_being_written() -> None:
    """An acknowledgement on its way keeps the message from being handed on, and the other way round."""
    table = opened()
    assert table.stage(KEY, [10])
    assert not table.stage(KEY, [10])
    table.unstage(KEY, [10])
    assert table.stage(KEY, [10])
    table.acked(KEY, [10])
    assert not table.stage(KEY, [10])
    assert not table.stage(KEY, [12])
    assert table.stage(KEY, [13])
    table.drop_overlay()
    assert table.stage(KEY, [13])
    assert not table.stage(KEY._replace(start=9), [10])


def test_of_many_ends_those_are_staged_that_are_new() -> None:
    """Whatever else is asked for: twice, done, on its way, or not of this receipt."""
    table = opened()
    offsets = table.get(KEY).queue_offsets  # type: ignore[union-attr]
    first, *others = offsets
    assert table.stage(KEY, [first, first, 10**6, -1]) == [first]
    assert table.stage(KEY, offsets) == others
    assert table.stage(KEY, offsets) == []
    table.unstage(KEY, [others[0], 10**6])
    assert table.stage(KEY, [*offsets, *offsets]) == others[:1]
    table.acked(KEY, offsets)
    assert table.get(KEY) is None
    assert table.stage(KEY, offsets) == []


@pytest.mark.parametrize(
    "text",
    [
        "8 1795232613603 600000 3 0 broker-a 0 9", "8 1795232613603 600000 3 0 broker-a 0 9 4264",
        "8 1795232613603 600000 3 0 broker-a 0 x", "8 1795232613603 600000 3 0 broker-a 0", "8 1 2 3 0 broker-a zero 9", "", " 9",
        "8 1795232613603 600000 3 0 broker-a 0 \u00b2", "8 1795232613603 600000 3 0 broker-a 0 -9", f"8 1 2 3 0 {'b' * 999} 0 9",
    ],
)  # fmt: skip
def test_the_receipt_in_a_handle_is_that_of_the_whole_handle(text: str) -> None:
    """Also the second time, and with its error."""

    def whole(text: str) -> tuple[int, int, int]:
        handle = parse_handle(text)
        return handle.start, handle.pop_time, handle.revive_queue

    def told(read: Callable[[str], tuple[int, int, int]]) -> object:
        try:
            return read(text)
        except Refusal as refusal:
            return str(refusal)

    assert [told(whole)] * 2 == [told(receipt_in) for _ in range(2)]


def test_topics_and_groups_take_their_receipts_along() -> None:
    table = opened()
    other, third = KEY._replace(topic="U"), KEY._replace(group="h")
    table.opened(other, Receipt(600, 200, 61_000, (10,)))
    table.opened(third, Receipt(700, 300, 61_000, (10,)))
    table.remove_topic("T")
    assert set(table.committed()) == {other}
    table.remove_group("g")
    assert not table.committed()


def test_what_rocketmq_has_revived_is_done() -> None:
    table = opened()
    table.opened(KEY._replace(start=20), Receipt(600, 100, 0, (20,), revive=(0, 7)))
    table.opened(KEY._replace(start=30), Receipt(700, 100, 0, (30,), revive=(1, 3)))
    assert table.revive_from(1) == 3
    table.revived_below(0, 7)
    assert {row.revive for row in table.committed().values()} == {(0, 7), (1, 3)}
    assert table.revive_from(0) == 7
    assert table.revive_from(2) is None


def test_a_queue_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "MAX_OPEN_OF_QUEUE", 2)
    table = opened()
    assert not table.is_full("g", "T", 0)
    table.opened(KEY._replace(start=20), Receipt(600, 200, 61_000, (10,)))
    assert table.is_full("g", "T", 0)
    assert not table.is_full("h", "T", 0)


def test_no_group_takes_all_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "MAX_OPEN_OF_GROUP", 2)
    table = opened()
    table.opened(KEY._replace(queue_id=1), Receipt(600, 200, 61_000, (10,)))
    assert table.is_full("g", "U", 5)
    assert not table.is_full("h", "T", 0)
    table.acked(KEY._replace(queue_id=1), [10])
    assert not table.is_full("g", "U", 5)
    table.remove_group("g")
    assert entries(table) <= 1, "but for the empty revive queue"


EVENT = st.tuples(st.sampled_from(("open", "ack", "on")), st.integers(0, 4), st.integers(0, 3))


def tell(table: ReceiptTable, event: tuple[str, int, int]) -> None:
    what, one, number = event
    key, place = KEY._replace(start=one), 1000 + one
    if what == "open":
        table.opened(key, Receipt(place, one, 1000 * one, (0, 1, 2, 3)[: one + 1]))
    elif what == "ack":
        table.acked(key, [number])
    else:
        table.handed_on(place, number)


def rows(table: ReceiptTable) -> dict[Any, Any]:
    return dict(table.committed())


@settings(max_examples=300)
@given(events=st.lists(EVENT, max_size=25), cut=st.integers(0, 25), seen=st.integers(0, 25))
def test_a_snapshot_and_the_log_behind_it_give_the_same_table(events: list[tuple[str, int, int]], cut: int, seen: int) -> None:
    """Story 44: the snapshot's rows may already know what the replay from S0 tells again."""
    once: list[tuple[str, int, int]] = []  # as in a log: opened once, and before anything else happens to it
    for event in events:
        is_open = ("open", event[1]) in [known[:2] for known in once]
        if is_open != (event[0] == "open"):
            once.append(event)
    s0, s1 = sorted((min(cut, len(once)), min(seen, len(once))))
    told, known = ReceiptTable(), ReceiptTable()
    for event in once:
        tell(told, event)
    for event in once[:s1]:
        tell(known, event)
    restarted = ReceiptTable()
    for key, value in msgpack.unpackb(msgpack.packb(list(rows(known).items())), strict_map_key=False):
        restarted.apply(key, value)
    for event in once[s0:]:
        tell(restarted, event)
    assert rows(restarted) == rows(told)
    for key, row in restarted.committed().items():
        assert (key, row) in list(restarted.due(row.due_ms))
    for table in (told, restarted):
        assert table.open_of("g", "T", 0) == sum(len(row.left()) for row in table.committed().values())


def test_handles_and_lists_are_rocketmqs() -> None:
    """As recorded from RocketMQ 5.5.0 (golden set s16)."""
    handle = parse_handle("8 1795232613603 600000 0 0 broker-a 0 9")
    assert handle == Handle(8, 1795232613603, 600_000, 0, "0", "broker-a", 0, 9)
    assert handle.text() == "8 1795232613603 600000 0 0 broker-a 0 9"
    assert parse_handle(handle.text() + " 4264") == handle
    parts = [Part("0", 1, 8, (8, 9, 10)), Part("1", 0, 0, (0,))]
    assert start_offset_info(parts) == "0 1 8;1 0 0"
    assert msg_offset_info(parts) == "0 1 8,9,10;1 0 0"
    assert order_count_info(Part("0", 0, 4, (4, 5)), {4: 2}) == "0 qo0%4 2;0 0 0"
    for bad in ("", "1 2 3", "a b c d e f g h", "8 1795232613603 600000 0 0 broker-a 0 "):
        with pytest.raises(Refusal):
            parse_handle(bad)
