"""Tables that state records change; of settings: what is committed, and what this leader has asked to be committed.

Bottom floor, because topics (routing) and groups (delivery) both are such tables. What a row means, and whether a change
is allowed, is theirs.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Generic, TypeVar

from rmq.model import DataVersion

V = TypeVar("V")

Between = Callable[[Iterable[Any]], Iterable[Any]]
"""Gives things on, one after the other; between two of them a thread may rest (`background.Rests`)."""


class Versioned:
    """A table with RocketMQ's version of it, which rises with every committed change."""

    def __init__(self) -> None:
        self._version = DataVersion()

    @property
    def data_version(self) -> DataVersion:
        return self._version

    def set_version(self, version: DataVersion) -> None:
        """As a snapshot says it was."""
        self._version = version

    def drop_overlay(self) -> None:
        """This node no longer leads: a table that knows more than is committed forgets it."""

    def remove_topic(self, topic: str) -> None:
        """The topic was deleted by a committed record: what a table keeps of it goes."""
        self.remove_topics({topic})

    def remove_topics(self, topics: Set[str]) -> None:
        """The same for many, in one pass."""

    def remove_group(self, group: str) -> None:
        """The same for a consumer group."""


class StagedTable(Versioned, Generic[V]):
    """Changes only in `_commit`, in log order. `stage` notes a change on its way, so that it is not decided twice.

    A row whose deletion is on its way is gone for readers; a new or changed row is not yet there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._committed: dict[str, V] = {}
        self._visible: dict[str, V] = {}
        self._staged: dict[str, tuple[V | None, int]] = {}  # latest value, how many changes of it are on their way
        self.changes = 0  # rises whenever `get` may give something else

    def committed(self) -> Mapping[str, V]:
        """What a failover keeps."""
        return self._committed

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self._visible)

    def get(self, name: str) -> V | None:
        return self._visible.get(name)

    def all(self) -> list[V]:
        """Sorted by name."""
        return [self._visible[name] for name in sorted(self._visible)]

    def decided(self, name: str) -> V | None:
        """As the row will be once everything on its way is committed."""
        return self._staged[name][0] if name in self._staged else self._committed.get(name)

    def has_room(self, name: str, most: int) -> bool:
        """Whether a row of that name is there or may come: with everything on its way there are at most `most`."""
        return self.decided(name) is not None or len(self._committed) + len(self._staged) < most

    def is_leaving(self, name: str) -> bool:
        """Whether its deletion is on its way."""
        return name in self._staged and self._staged[name][0] is None

    def is_changing(self, name: str) -> bool:
        """Whether a change of it is on its way."""
        return name in self._staged

    def stage(self, name: str, value: V | None) -> None:
        """Note a change (None: deletion) that is being written."""
        count = self._staged[name][1] if name in self._staged else 0
        self._staged[name] = (value, count + 1)
        self._show(name)

    def unstage(self, name: str) -> None:
        """One change of this row was certainly not written."""
        self._arrived(name)
        self._show(name)

    def drop_overlay(self) -> None:
        """Forget what is on its way: this node no longer leads."""
        self._staged.clear()
        self._visible = dict(self._committed)
        self.changes += 1

    def _commit(self, name: str, value: V | None, time_ms: int) -> None:
        if value is None:
            self._committed.pop(name, None)
        else:
            self._committed[name] = value
        self._arrived(name)
        self._version = self._version.risen(time_ms)
        self._show(name)

    def _arrived(self, name: str) -> None:
        """One change less on its way."""
        if name in self._staged:
            latest, count = self._staged.pop(name)
            if count > 1:
                self._staged[name] = (latest, count - 1)

    def _show(self, name: str) -> None:
        self.changes += 1
        if name in self._committed and not self.is_leaving(name):
            self._visible[name] = self._committed[name]
        else:
            self._visible.pop(name, None)
