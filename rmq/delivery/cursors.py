"""Offsets that RocketMQ keeps in separate files: of broadcast groups, of pulls, of light queues.

They are adopted from Apache RocketMQ, kept, and exported again for it. Those of broadcast groups go on here. The first word of a
key says which kind of offset it is; the rows of a topic or group that is deleted go with it.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from rmq.staged import Versioned

PULL = "pullOffset"  # (PULL, topic@group) -> {queue: offset}
BROADCAST = "broadcastOffset"  # (BROADCAST, topic@group@broadcast) -> {queue: offset}
LMQ = "lmqOffset"  # (LMQ, name@group) -> offset; ("lmqOffset",) alone: the store keeps its offsets in lmqConsumerOffset.json

Key = tuple[Any, ...]


class CursorTable(Versioned):
    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[Key, Any] = {}

    def committed(self) -> Mapping[Key, Any]:
        """The rows that a failover keeps."""
        return self._rows

    def apply(self, key: Iterable[Any], value: Any, time_ms: int = 0) -> None:
        """A committed state line; None removes the row. `time_ms`: when it was stored."""
        if value is None:
            self._rows.pop(tuple(key), None)
        else:
            self._rows[tuple(key)] = value
        self._version = self._version.risen(time_ms)

    def remove_topics(self, topics: Set[str]) -> None:
        self._remove(lambda words: words[0] in topics)

    def remove_group(self, group: str) -> None:
        self._remove(lambda words: words[1:2] == [group])

    def _remove(self, fits: Callable[[list[str]], bool]) -> None:
        for key in [key for key in self._rows if len(key) == 2 and fits(key[1].split("@"))]:
            del self._rows[key]

    def get(self, *key: Any) -> Any:
        return self._rows.get(key)

    def of(self, kind: str) -> dict[Any, Any]:
        """The rows of one kind, by the second word of their keys; rows without one are left out."""
        found = {key[1]: value for key, value in self._rows.items() if key[0] == kind and len(key) == 2}
        return dict(sorted(found.items()))
