"""The lives of topics. A topic that is deleted and made again is another one: what was meant for the first is not for it.

What waits for a topic (a delayed message, a half) is known by the offset of the log where it was stored. It belongs to the
topic's present life if the topic was not deleted behind that place.
"""

from collections.abc import Mapping
from enum import Enum

from rmq.staged import Versioned

KEPT = 50_000  # newest deletions: 10 MB or so


class Life(Enum):
    """Of a topic, for what was stored at some place of the log."""

    GOES_ON = "goes on"
    ENDING = "its deletion is on its way"
    OVER = "was deleted since"
    NEVER = "is not there, and no deletion of it is known"


class EndTable(Versioned):
    """Where each topic was deleted last: the offset of the record that did it. Keeps the newest `KEPT` deletions."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: dict[str, int] = {}  # rising

    def committed(self) -> Mapping[str, int]:
        """What a failover keeps."""
        return self._ends

    def of(self, topic: str) -> int:
        """The offset of its last deletion; -1: none is known."""
        return self._ends.get(topic, -1)

    def apply(self, topic: str, offset: int | None, time_ms: int = 0) -> None:
        """A deletion at that offset; told again it changes nothing. None forgets the topic. `time_ms`: of nothing here."""
        known = self._ends.get(topic, -1)
        if offset is None:
            self._ends.pop(topic, None)
        elif offset > known:
            self._ends.pop(topic, None)
            self._ends[topic] = offset
            if len(self._ends) > KEPT:
                del self._ends[next(iter(self._ends))]
