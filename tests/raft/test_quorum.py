"""Majorities against slow twins that count one by one."""

import itertools

from hypothesis import given, strategies as st

from rmq.model import Voter
from rmq.raft.quorum import Outcome, held_by_majority, outcome

VOTERS = tuple(Voter(name, f"s-{name}", "") for name in "abcde")


@given(st.lists(st.integers(0, 6), min_size=1, max_size=7))
def test_held_by_majority(values: list[int]) -> None:
    held = [number for number in range(-1, 8) if sum(value >= number for value in values) > len(values) / 2]
    assert held_by_majority(values) == max(held)


def test_two_majorities_always_share_a_voter() -> None:
    """R1, R4: for every size, and across one change of membership (R22)."""
    for count in range(1, 5):
        for size, other in ((count, count), (count, count + 1)):
            first, second = VOTERS[:size], VOTERS[:other]
            wins = [
                [
                    set(chosen)
                    for taken in range(len(voters) + 1)
                    for chosen in itertools.combinations(voters, taken)
                    if outcome(voters, dict.fromkeys(chosen, True)) is not Outcome.OPEN
                ]
                for voters in (first, second)
            ]
            assert all(one & two for one in wins[0] for two in wins[1])


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
