"""Offsets of broadcast clients that change their way [BroadcastOffsetManager]."""

import pytest

from rmq.delivery.broadcasts import ABSENT_EXPIRES_S, EXPIRES_S, BroadcastOffsets

P = ("T", "g")


def test_who_does_not_know_where_it_is() -> None:
    table = BroadcastOffsets()
    assert [table.may_begin(P, "a", asked, by_proxy) for asked, by_proxy in ((-1, True), (0, True), (-1, False))] == [
        True,
        False,
        False,
    ]
    table.pulled(P, "a", 0, 4, True, 0.0)
    assert not table.may_begin(P, "a", 5, True)
    assert table.may_begin(P, "a", -1, True)
    assert table.may_begin(P, "a", 0, False), "it came by a proxy until now"
    table.pulled(P, "a", 0, 4, False, 0.0)
    assert table.may_begin(P, "a", 0, True)
    assert (table.reached(P, "a", 0), table.reached(P, "a", 1), table.reached(P, "b", 0)) == (4, None, None)


def test_the_slowest_of_each_queue_counts() -> None:
    table = BroadcastOffsets()
    for client, queue_id, offset in (("a", 1, 7), ("b", 1, 5), ("b", 0, 9)):
        table.pulled(P, client, queue_id, offset, True, 0.0)
    assert list(table.slowest()) == [(P, {0: 9, 1: 5})]


def test_who_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    table = BroadcastOffsets()
    table.pulled(P, "member", 0, 1, False, 0.0)
    table.pulled(P, "gone", 0, 2, False, 0.0)
    table.expire(lambda _, client: client == "member", ABSENT_EXPIRES_S)
    assert (table.reached(P, "member", 0), table.reached(P, "gone", 0)) == (1, None)
    table.expire(lambda *_: True, EXPIRES_S)
    assert list(table.slowest()) == []
    table.pulled(P, "member", 0, 1, False, 0.0)
    table.forget("T")
    assert list(table.slowest()) == []
    monkeypatch.setattr("rmq.delivery.broadcasts.MAX_PLACES", 2)
    for number in range(3):
        table.pulled(P, f"{number}", 0, number, False, 0.0)
    assert list(table.slowest()) == [(P, {0: 2})], "too many: they begin where the slowest was"
