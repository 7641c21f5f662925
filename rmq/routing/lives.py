"""The lives of topics. A topic that is deleted and made again has a new life: messages of the old life do not go there.

A message that waits for a topic (delayed, or a half) has the log offset where it was stored. It belongs to the topic's present
life if the topic was not deleted after that offset.
"""

from collections.abc import Mapping
from enum import Enum

from rmq.staged import Versioned

KEPT = 50_000  # newest deletions: 10 MB or so


class Life(Enum):
    """State of a topic, as seen from a message stored at some offset."""

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
        """Notes a deletion at that offset; repeating it changes nothing. None forgets the topic. `time_ms` is not used."""
        known = self._ends.get(topic, -1)
        if offset is None:
            self._ends.pop(topic, None)
        elif offset > known:
            self._ends.pop(topic, None)
            self._ends[topic] = offset
            if len(self._ends) > KEPT:
                del self._ends[next(iter(self._ends))]
