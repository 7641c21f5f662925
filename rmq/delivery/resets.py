"""Queues in which a group was set to another place, until a reader has gone there [ConsumerOffsetManager.resetOffsetTable].

Pure. A row is there from the commit of the reset until a reader went on from it; a change of leader keeps it. Meanwhile nobody's
commit counts: whoever is connected has another idea of where it is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rmq.staged import Versioned


class GroupQueue(NamedTuple):
    """One queue of one group. The field order is that of the state record."""

    group: str
    topic: str
    queue_id: int


class Reset(NamedTuple):
    """Where the next pull is sent to, and who had pulled last before."""

    offset: int
    reader: str


class ResetTable(Versioned):
    """`pending`: those that no reader of this node has followed yet."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[GroupQueue, Reset] = {}
        self._committed: dict[GroupQueue, Reset] = {}
        self._staged: Counter[GroupQueue] = Counter()  # being written by this node
        self._sent_back: dict[GroupQueue, str] = {}  # readers that were sent to the new place
        self._followed: set[GroupQueue] = set()  # that is not written yet

    def __contains__(self, place: GroupQueue) -> bool:
        """Nobody's commit counts."""
        return place in self.pending or place in self._staged

    def stage(self, places: Iterable[GroupQueue]) -> None:
        for place in places:
            self._staged[place] += 1
            self._followed.discard(place)  # or it would be written behind this one

    def unstage(self, places: Iterable[GroupQueue]) -> None:
        """It is committed, or it is not."""
        self._staged -= Counter(places)

    def take(self, place: GroupQueue, asked: int, owner: str) -> int | None:
        """Where this pull is to be sent; None: it may go on. Also one that asks for that place is sent there, if it may hold
        messages that it pulled before; nobody is twice."""
        reset = self.pending.get(place)
        if reset is None:
            return None
        known = self._sent_back.get(place, reset.reader)
        if self._sent_back.get(place) != owner and (asked != reset.offset or known == owner):
            self._sent_back[place] = owner
            return reset.offset
        del self.pending[place]
        self._sent_back.pop(place, None)
        self._followed.add(place)
        return None

    def drop(self, place: GroupQueue) -> None:
        """By what is committed, at every node."""
        if self._committed.pop(place, None) is not None:
            self.pending.pop(place, None)
            self._sent_back.pop(place, None)
            self._followed.discard(place)

    # --- lines of the state topic

    def take_followed(self) -> list[GroupQueue]:
        """Rows to be removed by lines now."""
        found = sorted(self._followed)
        self._followed.clear()
        return found

    def give_back(self, places: Iterable[GroupQueue]) -> None:
        """They could not be written."""
        self._followed.update(place for place in places if place in self._committed and place not in self.pending)

    def apply(self, key: Iterable[Any], value: Iterable[Any] | None, time_ms: int = 0) -> None:
        """A committed line; None: a reader has followed it."""
        place = GroupQueue(*key)
        self.drop(place)
        if value is not None:
            self._committed[place] = self.pending[place] = Reset(*value)
        self._version = self._version.risen(time_ms)

    def committed(self) -> Mapping[GroupQueue, Reset]:
        """What a failover keeps."""
        return self._committed

    def drop_overlay(self) -> None:
        """This node no longer leads: who has followed is the new leader's to find out."""
        self.pending = dict(self._committed)
        for of_this_leadership in (self._staged, self._sent_back, self._followed):
            of_this_leadership.clear()

    def remove_topic(self, topic: str) -> None:
        for place in [place for place in self._committed if place.topic == topic]:
            self.drop(place)
