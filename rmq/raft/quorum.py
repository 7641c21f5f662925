"""Majorities: who has won an election, what is committed, how long a leader's lease lasts."""

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import TypeVar

from rmq.model import Voter

_Number = TypeVar("_Number", int, float)


class Outcome(Enum):
    OPEN = "open"
    MAJORITY = "majority"  # of voters that have lost nothing: what is committed is in the winner's log
    EVERYBODY = "everybody"  # no other voter can know more: the longest log of all


@lru_cache(16)
def sides(voters: tuple[Voter, ...]) -> Sequence[Sequence[int]]:
    """The places of those of whom a majority is needed. While a node's old and new disk both stand in the list: a majority of the
    list before, and one of the list that is to come. The old disk is gone, and the new one may be gone as well."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for place, voter in enumerate(voters):
        first.setdefault(voter.node, place)
        last[voter.node] = place
    return [[*one.values()] for one in ((first, last) if len(first) < len(voters) else (first,))]


def outcome(voters: tuple[Voter, ...], grants: Mapping[Voter, bool]) -> Outcome:
    """`grants`: each voter that granted, and whether it is proven (D3).

    As long as a configured voter's disk is unknown only everybody together can win: that is how a new group forms.
    """
    known = all(voter.store for voter in voters)
    given = [grants.get(voter, False) for voter in voters]
    if voters and known and held_by_majority(voters, given):
        return Outcome.MAJORITY
    if voters and all(voter in grants for voter in voters):
        return Outcome.EVERYBODY
    return Outcome.OPEN


def held_by_majority(voters: tuple[Voter, ...], values: Sequence[_Number]) -> _Number:
    """The largest number that a majority of the voters reaches. One value for each voter."""
    return min(sorted([values[place] for place in side])[(len(side) - 1) // 2] for side in sides(voters))
