"""Locks of queues: one owner, for 60 s after it asked last; what is being written counts; a new leader knows every owner."""

import msgpack
import pytest
from hypothesis import given, settings, strategies as st

from rmq.delivery.locks import LIVE_S, Change, LockKey, LockTable
from rmq.testing import entries
from tests.compared import Name

A, B = LockKey("g", "T", 0), LockKey("g", "T", 1)


def leading(now: float = 0.0) -> LockTable:
    table = LockTable()
    table.begin(now)
    return table


def commit(table: LockTable, changes: list[Change]) -> None:
    """As the log gives them back: lists and texts."""
    for key, owner in msgpack.unpackb(msgpack.packb(changes)):
        table.apply(key, owner, 1000)


def ask(table: LockTable, client: str, now: float, *keys: LockKey) -> set[LockKey]:
    """Asked and committed at once."""
    held, changes = table.lock(client, keys or (A,), now)
    commit(table, changes)
    return held


def test_one_client_has_the_queue_until_60_s_after_it_asked_last() -> None:
    """C9."""
    table = leading()
    assert ask(table, "owner", 0.0) == {A}
    assert ask(table, "intruder", LIVE_S) == set()
    assert ask(table, "owner", LIVE_S) == {A}
    assert ask(table, "intruder", 2 * LIVE_S) == set()
    assert ask(table, "intruder", 2 * LIVE_S + 0.1) == {A}
    assert ask(table, "owner", 2 * LIVE_S + 0.2) == set()


def test_keeping_a_lock_writes_nothing() -> None:
    table = leading()
    _, changes = table.lock("owner", [A, B], 0.0)
    assert changes == [(A, "owner"), (B, "owner")]
    commit(table, changes)
    assert table.lock("owner", [A, B], 20.0) == ({A, B}, [])
    assert table.lock("owner", [A], 500.0) == ({A}, [])  # late, but nobody took it
    assert table.lock("intruder", [A], 530.0) == (set(), [])


def test_two_ask_before_either_is_committed() -> None:
    """Nothing is granted twice, whatever is still being written."""
    table = leading()
    first, changes = table.lock("one", [A], 0.0)
    second, none = table.lock("two", [A], 0.0)
    assert (first, second, none) == ({A}, set(), [])
    assert table.lock("one", [A], 1.0) == ({A}, [(A, "one")])  # it asks again: that answer waits for a record too
    commit(table, changes)
    assert ask(table, "two", 2.0) == set()


def test_released_by_its_owner_only() -> None:
    table = leading()
    ask(table, "owner", 0.0)
    assert table.unlock("intruder", [A, B]) == []
    changes = table.unlock("owner", [A, B])
    assert changes == [(A, None)]
    held, next_changes = table.lock("next", [A], 1.0)  # behind the release in the log
    assert held == {A}
    commit(table, changes + next_changes)
    assert table.committed() == {A: "next"}


def test_what_was_certainly_not_stored_is_forgotten_and_no_more() -> None:
    """The grant of somebody else that is on its way stays decided; the former owner's life is not renewed."""
    table = leading()
    ask(table, "gone", 0.0, A)
    _, failed = table.lock("one", [A, B], 100.0)
    table.not_stored(failed)
    _, kept = table.lock("two", [A], 101.0)
    table.not_stored([(A, "one")])
    assert kept == [(A, "two")]
    assert table.lock("three", [A], 102.0) == (set(), [])
    commit(table, kept)
    assert table.committed() == {A: "two"}


def test_lock_owner_survives_failover_intruder_waits() -> None:
    """Story 42, C9: the new leader has the records and gives the owner 60 s from its start."""
    old, new = leading(), LockTable()
    _, changes = old.lock("owner", [A], 0.0)
    commit(old, changes)
    commit(new, changes)
    new.begin(1000.0)
    assert ask(new, "intruder", 1000.0 + LIVE_S) == set()
    assert new.lock("owner", [A], 1030.0) == ({A}, [])
    assert ask(new, "intruder", 1030.0 + LIVE_S) == set()
    assert ask(new, "intruder", 1030.1 + LIVE_S) == {A}


def test_a_lost_leadership_forgets_what_was_not_committed() -> None:
    table = leading()
    table.lock("one", [A], 0.0)
    table.drop_overlay()
    table.begin(10.0)
    assert ask(table, "two", 10.0) == {A}


def test_a_queue_that_nobody_has_takes_no_memory() -> None:
    """Nor one whose lock was never written: names of queues come and go, and there is no end of them."""
    table = leading()
    ask(table, "owner", 0.0, A, B)
    commit(table, table.unlock("owner", [A, B]))
    table.not_stored(table.lock("owner", [A], 1.0)[1])
    assert entries(table) == 0
    commit(table, table.unlock("nobody", [A]))
    ask(table, "owner", 2.0, A)
    table.remove_topic("T")
    assert entries(table) == 0


@pytest.mark.parametrize("remove", [lambda table: table.remove_topic("T"), lambda table: table.remove_group("g")])
def test_a_deleted_topic_or_group_has_no_locks(remove) -> None:
    table = leading()
    other = LockKey("h", "U", 0)
    ask(table, "owner", 0.0, A, B)
    ask(table, "owner", 0.0, other)
    remove(table)
    assert table.committed() == {other: "owner"}
    assert ask(table, "intruder", 1.0) == {A}


DOINGS = st.sampled_from(["ask", "ask", "release", "commit", "commit", "fail"])
STEPS = st.lists(st.tuples(DOINGS, st.sampled_from(["x", "y", "z"]), st.floats(0, 40)), max_size=60)


@settings(max_examples=300)
@given(STEPS)
def test_never_two_owners(steps: list[tuple[str, str, float]]) -> None:
    """C9, against what clients believe: whoever was told "yours" and asked in the last 60 s is alone, until it releases.

    Records are committed in order, some time later; the answer comes with the record, or after 5 s says that nobody knows.
    The last one written may fail.
    """
    table, now = leading(), 0.0
    log: list[tuple[Change, str, float]] = []
    has: dict[str, float] = {}  # client -> when it asked for what it was told to have
    released: dict[str, float] = {}  # what was asked for until then is no longer wanted

    def answered(client: str, asked: float) -> None:
        if asked > released.get(client, -1.0):
            assert not [other for other, moment in has.items() if other != client and now <= moment + LIVE_S]
            has[client] = asked

    for step, client, pause in steps:
        now += pause + 0.001
        if step == "ask":
            held, changes = table.lock(client, [A], now)
            log += [(change, client, now) for change in changes]
            if held and not changes:
                answered(client, now)
        elif step == "release":
            has.pop(client, None)
            released[client] = now
            log += [(change, client, now) for change in table.unlock(client, [A])]
        elif step == "commit" and log:
            change, owner, asked = log.pop(0)
            commit(table, [change])
            if change[1] is not None and now <= asked + 5:
                answered(owner, asked)
        elif step == "fail" and log:
            table.not_stored([log.pop()[0]])


def test_whether_a_group_holds_locks_is_asked_of_its_own() -> None:
    """It is, for each message that a consumer sends to its retry topic."""
    table = leading()
    for number in range(100):
        table.apply((Name(f"g{number}"), "T", 0), "owner")
    Name.compared = 0
    assert table.is_held("g7", LIVE_S)
    assert not table.is_held("g7", LIVE_S + 0.1)
    assert not table.is_held("nobody", LIVE_S)
    assert Name.compared < 20
    table.remove_group("g7")
    assert not table.is_held("g7", LIVE_S)
    assert len(table.committed()) == 99
