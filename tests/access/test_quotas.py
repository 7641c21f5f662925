"""Allowances: what comes in within a second may be spent, and debts are paid first."""

import pytest

from rmq.access.owners import OwnerTable
from rmq.access.quotas import MAX_ALLOWANCES, Allowances, Cost, Quota, checked, checked_subject
from rmq.errors import Refusal
from rmq.testing import entries


def test_a_subject_gets_its_rate_and_nothing_more() -> None:
    """S11: over 100 s it has 100 times its rate, and what it may save, however it asks."""
    allowances = Allowances({"User:bob": Quota(messages_in=10)})
    taken, now = 0, 0.0
    while now < 100.0:
        wait_s = allowances.wait_s(["User:bob", "Topic:T"], False, now)
        if wait_s:
            now += wait_s
        else:
            allowances.spend(["User:bob", "Topic:T"], False, Cost(7, 700), now)
            taken += 7
    assert 1000 <= taken <= 1000 + 10 + 7


def test_each_limit_of_each_subject_counts() -> None:
    allowances = Allowances({"User:*": Quota(bytes_in=1000), "User:big": Quota(), "Topic:T": Quota(messages_out=5)})
    allowances.spend(["User:bob", "Topic:T"], False, Cost(1, 3000), 0.0)
    assert allowances.wait_s(["User:bob", "Topic:T"], False, 0.0) == pytest.approx(2.001)
    assert allowances.wait_s(["User:bob", "Topic:T"], False, 1.0) == pytest.approx(1.001)
    assert allowances.wait_s(["User:eve", "Topic:T"], False, 0.0) == 0
    assert allowances.wait_s(["User:bob", "Topic:T"], True, 0.0) == 0
    allowances.spend(["User:big", "Topic:T"], False, Cost(1, 10**9), 0.0)
    assert allowances.wait_s(["User:big", "Topic:T"], False, 0.0) == 0, "a quota of its own, without a limit"
    allowances.spend(["User:big", "Topic:T"], True, Cost(6, 1), 0.0)
    assert allowances.wait_s(["User:eve", "Topic:T"], True, 0.0) == pytest.approx(0.201)


def test_what_is_remembered_is_bounded() -> None:
    allowances = Allowances({"Client:*": Quota(bytes_in=1)})
    for number in range(MAX_ALLOWANCES + 10):
        allowances.spend([f"Client:{number}"], False, Cost(1, 1), 0.0)
    assert entries(allowances) <= MAX_ALLOWANCES + 1  # and its one quota


@pytest.mark.parametrize("subject", ["bob", "Group:g", "User:", "User:b*", "Topic:a b", "Client:" + "x" * 256])
def test_subjects_that_are_none(subject: str) -> None:
    with pytest.raises(Refusal, match="write User:"):
        checked_subject(subject)


def test_subjects_and_limits() -> None:
    assert [checked_subject(one) for one in ("user:bob", "Client:10.0.0.1", "TOPIC:%RETRY%g", "User:*")] == [
        "User:bob",
        "Client:10.0.0.1",
        "Topic:%RETRY%g",
        "User:*",
    ]
    with pytest.raises(Refusal, match="bytes_in -1"):
        checked("User:bob", Quota(-1))
    with pytest.raises(Refusal, match="limited for User: and Client:"):
        checked("Topic:T", Quota(topics=1))


def test_who_made_what_is_counted_and_goes_with_the_thing() -> None:
    owners = OwnerTable()
    owners.apply("Topic:a", ["User:bob", "Client:1.2.3.4"])
    owners.apply("Topic:b", ["User:bob"])
    owners.apply("Group:a", ["User:bob"])
    owners.stage("Topic:c", ("User:bob",))
    assert [owners.made_by(*one) for one in (("User:bob", "Topic"), ("User:bob", "Group"), ("Client:1.2.3.4", "Topic"))] == [
        3,
        1,
        1,
    ]
    owners.apply("Topic:c", ["User:eve"])
    owners.remove_topic("a")
    owners.remove_topic("unknown")
    assert [owners.made_by(*one) for one in (("User:bob", "Topic"), ("User:bob", "Group"), ("User:eve", "Topic"))] == [1, 1, 1]
    owners.remove_group("a")
    owners.apply("Topic:c", None)
    owners.apply("Topic:b", None)
    assert entries(owners) == 0
