"""Tables with a row for a topic and a group, which goes with either. Pure."""

from collections.abc import Set
from typing import TypeVar

from rmq.staged import StagedTable

V = TypeVar("V")


def name_of(topic: str, group: str) -> str:
    """The row's name. Names of topics and groups have no @."""
    return f"{topic}@{group}"


class PairTable(StagedTable[V]):
    """Rows by `name_of`."""

    def remove_topics(self, topics: Set[str]) -> None:
        """The topics were deleted at this place of the log."""
        for name in [name for name in self._committed if name.partition("@")[0] in topics]:
            self._commit(name, None, 0)

    def remove_group(self, group: str) -> None:
        """The group was deleted at this place of the log."""
        for name in [name for name in self._committed if name.endswith(f"@{group}")]:
            self._commit(name, None, 0)
