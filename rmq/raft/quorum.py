"""Majorities: who has won an election, what is committed, how long a leader's lease lasts."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeVar

from rmq.model import Voter

_Number = TypeVar("_Number", int, float)


class Outcome(Enum):
    OPEN = "open"
    MAJORITY = "majority"  # of voters that have lost nothing: what is committed is in the winner's log
    EVERYBODY = "everybody"  # no other voter can know more: the longest log of all


def majority(voters: Sequence[Voter]) -> int:
    return len(voters) // 2 + 1


def outcome(voters: Sequence[Voter], grants: Mapping[Voter, bool]) -> Outcome:
    """`grants`: each voter that granted, and whether it is proven (D3).

    As long as a configured voter's disk is unknown only everybody together can win: that is how a new group forms.
    """
    known = all(voter.store for voter in voters)
    if known and sum(grants.get(voter, False) for voter in voters) >= majority(voters):
        return Outcome.MAJORITY
    if voters and all(voter in grants for voter in voters):
        return Outcome.EVERYBODY
    return Outcome.OPEN


def held_by_majority(values: Sequence[_Number]) -> _Number:
    """The largest number that a majority of the voters reaches. One value for each voter."""
    return sorted(values)[(len(values) - 1) // 2]
