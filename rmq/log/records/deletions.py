"""Where the life of a topic ends in the log: at the state line that deletes it. Pure.

Dispatch drops the topic's queues at that place, at every node and in every rebuild, and their queue offsets begin again at 0
behind it. So nothing may be appended for that life behind the line (`CommitLog.append` refuses it), nor for the next one before
the line is dispatched.
"""

from collections.abc import Sequence
from typing import Any

import msgpack

from rmq.errors import BadBytes
from rmq.log.records.record import iterate

TOPIC_TABLE = "topic"  # of the state lines [table, key, value]
_SPELLED = b"\xa5topic"  # the table's name in msgpack; most state records are consumer offsets


def deleted_topics(body: bytes) -> list[str]:
    """Topics that the lines of a state record delete. Raises BadBytes."""
    if _SPELLED not in body:
        return []
    try:
        lines: list[list[Any]] = msgpack.unpackb(body, strict_map_key=False)
        return [line[1] for line in lines if line[0] == TOPIC_TABLE and line[2] is None and isinstance(line[1], str)]
    except (ValueError, IndexError, TypeError, msgpack.UnpackException) as error:
        raise BadBytes(f"a state record of {len(body)} bytes cannot be read: {error!r}") from error


def deleted_by(parts: Sequence[bytes]) -> list[str]:
    """The same for records of the state topic, several in each part perhaps. Raises BadBytes."""
    return [topic for part in parts if _SPELLED in part for one in iterate(part) for topic in deleted_topics(one.body)]
