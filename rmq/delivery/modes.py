"""How a group reads a topic: by pull or by pop, and how its members then share the queues [MessageRequestModeManager]."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rmq.codes import ResponseCode
from rmq.delivery.pairs import PairTable, name_of
from rmq.errors import BadBytes, Refusal

PULL, POP = "PULL", "POP"


class Mode(NamedTuple):
    """`share`: with how many other members a member shares its queues; 0 or less: every member reads all queues. The field order
    is that of the state record."""

    mode: str
    share: int = 0


class ModeTable(PairTable[Mode]):
    """Rows by `name_of`. A group without a row pulls."""

    def apply(self, name: str, value: Sequence[Any] | None, time_ms: int = 0) -> None:
        """A committed state line: the fields of a Mode, or None. `time_ms`: when it was stored."""
        self._commit(name, None if value is None else Mode(*value), time_ms)

    def of(self, topic: str, group: str) -> Mode:
        return self.get(name_of(topic, group)) or Mode(PULL)


def check_mode(mode: str) -> None:
    """Raises Refusal (INVALID_PARAMETER) unless the mode is PULL or POP."""
    if mode not in (PULL, POP):
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"mode {mode!r}: PULL or POP")


def modes_json(table: ModeTable) -> dict[str, Any] | None:
    """RocketMQ's config/messageRequestMode.json as a JSON value; None if no mode was ever set."""
    topics: dict[str, dict[str, Any]] = {}
    for name, (mode, share) in sorted(table.committed().items()):
        topic, _, group = name.partition("@")
        topics.setdefault(topic, {})[group] = {
            "consumerGroup": group,
            "mode": mode,
            "popShareQueueNum": share,
            "topic": topic,
        }
    return {"messageRequestModeMap": topics} if topics else None


def from_json(value: Any) -> dict[str, Mode]:
    """The rows of RocketMQ's messageRequestMode.json, by name; none if there is no file. Raises BadBytes."""
    try:
        return {
            name_of(topic, group): Mode(str(row["mode"]), int(row.get("popShareQueueNum") or 0))
            for topic, groups in ((value or {}).get("messageRequestModeMap") or {}).items()
            for group, row in groups.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadBytes(f"messageRequestMode.json: {type(error).__name__} {error}; is it RocketMQ's file?") from error
