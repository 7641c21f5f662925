"""Majorities against slow twins that count one by one."""

import itertools

import pytest
from hypothesis import given, strategies as st

from rmq.model import Voter
from rmq.raft.quorum import Outcome, held_by_majority, outcome

VOTERS = tuple(Voter(name, f"s-{name}", "") for name in "abcde")


@given(st.lists(st.integers(0, 6), min_size=1, max_size=7))
def test_held_by_majority(values: list[int]) -> None:
    voters = tuple(Voter(f"n{number}", f"s{number}", "") for number in range(len(values)))
    held = [number for number in range(-1, 8) if sum(value >= number for value in values) > len(values) / 2]
    assert held_by_majority(voters, values) == max(held)


def test_two_majorities_always_share_a_voter() -> None:
    """R1, R4: for every size, and across one change of membership (R22)."""
    for count in range(1, 5):
        for size, other in ((count, count), (count, count + 1)):
            first, second = VOTERS[:size], VOTERS[:other]
            assert all(one & two for one in wins(first) for two in wins(second))


def wins(voters: tuple[Voter, ...]) -> list[set[Voter]]:
    """All sets of voters that elect a leader."""
    chosen = itertools.chain.from_iterable(itertools.combinations(voters, taken) for taken in range(len(voters) + 1))
    return [set(some) for some in chosen if outcome(voters, dict.fromkeys(some, True)) is not Outcome.OPEN]


@pytest.mark.parametrize("count", range(1, 6))
def test_while_a_disk_is_replaced_neither_of_its_disks_is_needed(count: int) -> None:
    """R22, story 66: the others go on without both, and each majority has a voter in common with each of the lists around it."""
    before, new = VOTERS[:count], Voter("a", "s-new", "")
    between, after = (*before, new), (*before[1:], new)
    for near in (before, between, after):
        assert all(one & two for one in wins(between) for two in wins(near))
    assert all(some in wins(between) for some in wins(before) if before[0] not in some)
    for number in range(5):
        held = [number] * count + [9]
        assert held_by_majority(between, held) == held_by_majority(before, held[:-1])


@given(st.integers(1, 5), st.dictionaries(st.sampled_from(VOTERS), st.booleans()))
def test_two_ways_to_win(count: int, grants: dict[Voter, bool]) -> None:
    """D3: unproven voters count only when nobody is left to know better."""
    voters = VOTERS[:count]
    proven = [voter for voter in voters if grants.get(voter)]
    everybody = all(voter in grants for voter in voters)
    expected = Outcome.MAJORITY if len(proven) * 2 > count else Outcome.EVERYBODY if everybody else Outcome.OPEN
    assert outcome(voters, grants) is expected


def test_a_group_whose_disks_are_not_known_needs_everybody() -> None:
    """Story 24."""
    voters = tuple(Voter(name, "", "") for name in "abc")
    assert outcome(voters, dict.fromkeys(voters[:2], True)) is Outcome.OPEN
    assert outcome(voters, dict.fromkeys(voters, False)) is Outcome.EVERYBODY
