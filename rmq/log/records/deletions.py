"""Where the life of a topic ends in the log: at the state line that deletes it; and which topics hold batches. Pure.

Dispatch drops the topic's queues at that place, at every node and in every rebuild, and their queue offsets begin again at 0
behind it. So nothing may be appended for that life behind the line (`CommitLog.append` refuses it), nor for the next one before
the line is dispatched.
"""

from collections.abc import Sequence
from typing import Any

import msgpack

from rmq.errors import BadBytes
from rmq.log.records.record import iterate
from rmq.model import BATCH_QUEUE, QUEUE_TYPE, TopicConfig

TOPIC_TABLE = "topic"  # of the state lines [table, key, value]
_SPELLED = b"\xa5topic"  # the table's name in msgpack; most state records are consumer offsets
_BATCHES = b"\xa7BatchCQ"  # the same for that type of queues
_ATTRIBUTES = TopicConfig._fields.index("attributes")


def deleted_topics(body: bytes) -> list[str]:
    """Topics that the lines of a state record delete. Raises BadBytes."""
    return [topic for topic, made in _lines(body) if made is None] if _SPELLED in body else []


def topics_of_batches(body: bytes) -> list[str]:
    """Topics that the lines of a state record make, or made, with queue.type=BatchCQ. Raises BadBytes."""
    lines = _lines(body) if _BATCHES in body else []
    return [topic for topic, made in lines if made is not None and _says_batches(made)]


def _says_batches(made: list[Any]) -> bool:
    return len(made) > _ATTRIBUTES and made[_ATTRIBUTES].get(QUEUE_TYPE) == BATCH_QUEUE


def _lines(body: bytes) -> list[tuple[str, list[Any] | None]]:
    """Name and fields of each topic that a state record changes."""
    try:
        lines: list[list[Any]] = msgpack.unpackb(body, strict_map_key=False)
        return [(line[1], line[2]) for line in lines if line[0] == TOPIC_TABLE and isinstance(line[1], str)]
    except (ValueError, IndexError, TypeError, msgpack.UnpackException) as error:
        raise BadBytes(f"a state record of {len(body)} bytes cannot be read: {error!r}") from error


def deleted_by(parts: Sequence[bytes]) -> list[str]:
    """The same for records of the state topic, several in each part perhaps. Raises BadBytes."""
    return [topic for part in parts if _SPELLED in part for one in iterate(part) for topic in deleted_topics(one.body)]
