"""Queues in which a group's offset was reset, until a reader has followed [ConsumerOffsetManager.resetOffsetTable].

Pure. A row exists from the commit of the reset until a reader goes on from there; a change of leader keeps it. Meanwhile no
commit counts, since connected readers still go by their old places.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Any, Final, NamedTuple

from rmq.staged import Versioned

_MOST_SENT: Final = 3


class GroupQueue(NamedTuple):
    """One queue of one group. The field order is that of the state record."""

    group: str
    topic: str
    queue_id: int


class Reset(NamedTuple):
    """The place that the next pull is sent to, and the client that had pulled last before the reset."""

    offset: int
    reader: str


class _Sent(NamedTuple):
    """The reader that was sent to the new place last, and how often."""

    reader: str
    times: int


class ResetTable(Versioned):
    """`pending`: resets that no reader of this node has followed yet."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[GroupQueue, Reset] = {}
        self._committed: dict[GroupQueue, Reset] = {}
        self._staged: Counter[GroupQueue] = Counter()  # resets that this node is writing
        self._sent_back: dict[GroupQueue, _Sent] = {}
        self._followed: set[GroupQueue] = set()  # a reader went on there, and that is not written yet

    def __contains__(self, place: GroupQueue) -> bool:
        """Whether the queue has a reset, so that commits do not count."""
        return place in self.pending or place in self._staged

    def is_staged(self, place: GroupQueue) -> bool:
        """Whether a reset of the queue is being written: what is written now would stand behind it, and undo it."""
        return place in self._staged

    def staged_of(self, group: str) -> list[GroupQueue]:
        """Queues in which a reset of the group is being written."""
        return [place for place in self._staged if place.group == group]

    def stage(self, places: Iterable[GroupQueue]) -> None:
        for place in places:
            self._staged[place] += 1
            self._followed.discard(place)  # otherwise it would be written after this reset

    def unstage(self, places: Iterable[GroupQueue]) -> None:
        """They arrived, or were not written, or nobody knows."""
        self._staged -= Counter(iter(places))  # not with what a mapping says of them

    def take(self, place: GroupQueue, asked: int, owner: str) -> int | None:
        """The place to send this pull to; None if it may go on. A reader that asks for that very place is sent there, too, if it
        may hold messages that it pulled before. Who asks elsewhere again may not have heard: its connection broke, or it had
        given that pull up. After the third time it does not follow, and may go on where it likes."""
        reset = self.pending.get(place)
        if reset is None:
            return None
        sent = self._sent_back.get(place) or _Sent(reset.reader, 0)
        times = sent.times if sent.reader == owner else 0
        may_hold_more = times == 0 and sent.reader == owner
        if times < _MOST_SENT and (asked != reset.offset or may_hold_more):
            self._sent_back[place] = _Sent(owner, times + 1)
            return reset.offset
        del self.pending[place]
        self._sent_back.pop(place, None)
        self._followed.add(place)
        return None

    def drop(self, place: GroupQueue) -> None:
        """Drops the reset because of a committed record, at every node."""
        if self._committed.pop(place, None) is not None:
            self.pending.pop(place, None)
            self._sent_back.pop(place, None)
            self._followed.discard(place)

    # --- lines of the state topic

    def take_followed(self) -> list[GroupQueue]:
        """Followed rows, which the caller removes by lines now."""
        found = sorted(self._followed)
        self._followed.clear()
        return found

    def give_back(self, places: Iterable[GroupQueue]) -> None:
        """Takes back rows whose lines could not be written."""
        self._followed.update(place for place in places if place in self._committed and place not in self.pending)

    def apply(self, key: Iterable[Any], value: Iterable[Any] | None, time_ms: int = 0) -> None:
        """A committed line; None: a reader has followed it."""
        place = GroupQueue(*key)
        self.drop(place)
        if value is not None:
            self.unstage((place,))  # before anybody hears of it
            self._committed[place] = self.pending[place] = Reset(*value)
        self._version = self._version.risen(time_ms)

    def committed(self) -> Mapping[GroupQueue, Reset]:
        """The resets that a failover keeps."""
        return self._committed

    def drop_overlay(self) -> None:
        """This node no longer leads: the new leader finds out which readers have followed."""
        self.pending = dict(self._committed)
        for of_this_leadership in (self._staged, self._sent_back, self._followed):
            of_this_leadership.clear()

    def remove_topics(self, topics: Set[str]) -> None:
        for place in [place for place in self._committed if place.topic in topics]:
            self.drop(place)
