"""Topics that a group may not read, though it may read others [SubscriptionGroupManager.forbiddenTable]. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from rmq.codes import ResponseCode
from rmq.delivery.pairs import PairTable, name_of
from rmq.errors import BadBytes, Refusal

READ: Final = 1 << 2  # the bit of reading in RocketMQ's file [PermName.INDEX_PERM_READ]
MAX_FORBIDDEN: Final = 50_000


class ForbiddenTable(PairTable[int]):
    """Rows by `name_of`: RocketMQ's bits, of which READ means something. No row: the group may."""

    def apply(self, name: str, value: int | None, time_ms: int = 0) -> None:
        """A committed state line. `time_ms`: when it was stored."""
        self._commit(name, value, time_ms)

    def may_read(self, group: str, topic: str) -> bool:
        return not (self._visible and self._visible.get(name_of(topic, group), 0) & READ)

    def check(self, group: str, topic: str) -> None:
        """Raises Refusal (NO_PERMISSION) for a group that may not read the topic."""
        if self._visible and not self.may_read(group, topic):
            about = f"the consumer group[{group}] is forbidden for topic[{topic}]: an administrator forbade it"
            raise Refusal(ResponseCode.NO_PERMISSION, about)

    def plan(self, group: str, topic: str, readable: bool) -> int | None:
        """The wanted row. Raises Refusal if there are too many."""
        name = name_of(topic, group)
        bits = self.decided(name) or 0
        if not readable and not self.has_room(name, MAX_FORBIDDEN):
            about = f"{MAX_FORBIDDEN} topics are forbidden to groups already: delete groups that are not used any more"
            raise Refusal(ResponseCode.SYSTEM_BUSY, about)
        return (bits & ~READ if readable else bits | READ) or None

    def by_group(self) -> dict[str, dict[str, int]]:
        """As RocketMQ's files and answers say it: bits by group and topic."""
        groups: dict[str, dict[str, int]] = {}
        for name, bits in sorted(self._committed.items()):
            topic, _, group = name.partition("@")
            groups.setdefault(group, {})[topic] = bits
        return groups


def from_json(value: Mapping[str, Any]) -> dict[str, int]:
    """The rows of a `forbiddenTable`, by name. Raises BadBytes."""
    try:
        rows = [(group, topic, int(bits)) for group, topics in value.items() for topic, bits in topics.items()]
    except (TypeError, ValueError, AttributeError) as error:
        raise BadBytes(
            f"forbiddenTable of subscriptionGroup.json: {type(error).__name__} {error}; is it RocketMQ's file?"
        ) from error
    return {name_of(topic, group): bits for group, topic, bits in rows if bits}
