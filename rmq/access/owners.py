"""Who made which topic and which group, so that quotas can count them. Pure."""

from collections import Counter
from collections.abc import Iterable, Set
from typing import Final

from rmq.staged import StagedTable

TOPIC, GROUP = "Topic", "Group"
MOST_SUBJECTS: Final = 4  # of one thing: a user, a client id, an address


class OwnerTable(StagedTable[tuple[str, ...]]):
    """Rows by thing, as `Topic:orders` or `Group:billing`: the subjects of quotas that made it. The row goes with the thing."""

    def __init__(self) -> None:
        super().__init__()
        self._made: Counter[tuple[str, str]] = Counter()  # by subject and kind of thing, of what is committed

    def apply(self, thing: str, value: Iterable[str] | None, time_ms: int = 0) -> None:
        """A committed state line: the subjects, or None. `time_ms`: when it was stored."""
        kind = _kind(thing)
        for subject in self._committed.get(thing, ()):
            self._made[subject, kind] -= 1
            if not self._made[subject, kind]:
                del self._made[subject, kind]
        row = None if value is None else tuple(value)[:MOST_SUBJECTS]
        self._made.update((subject, kind) for subject in row or ())
        self._commit(thing, row, time_ms)

    def remove_topics(self, topics: Set[str]) -> None:
        for topic in topics:
            self._remove(f"{TOPIC}:{topic}")

    def remove_group(self, group: str) -> None:
        self._remove(f"{GROUP}:{group}")

    def _remove(self, thing: str) -> None:
        if thing in self._committed:
            self.apply(thing, None)

    def made_by(self, subject: str, kind: str) -> int:
        """How many things of that kind the subject has made, those included that are on their way."""
        coming = (row for thing, (row, _) in self._staged.items() if thing not in self._committed and _kind(thing) == kind)
        return self._made[subject, kind] + sum(subject in row for row in coming if row)


def _kind(thing: str) -> str:
    return thing.partition(":")[0]
