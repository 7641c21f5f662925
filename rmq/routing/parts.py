"""A long list of topics comes in parts, so that no frame is too large and none takes the nameserver long: cut by the broker,
joined by the nameserver. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.model import TopicConfig
from rmq.routing.rows import Reported

PART_BYTES = 64 * 1024  # some 700 topics, which take a nameserver 2 ms
MAX_TOPICS, MAX_ALL = 200_000, 1_000_000  # of one list that is not whole yet, of all of them
ROW_BYTES = 48  # of a row beside its texts, at most
T = TypeVar("T")


def cut(topics: Iterable[TopicConfig]) -> Iterator[list[TopicConfig]]:
    """The same topics in lists of at most PART_BYTES; one list at least, which may be empty."""
    return packed(((one, _size(one)) for one in topics), PART_BYTES)


def _size(topic: TopicConfig) -> int:
    texts = len(topic.name) + len(topic.filter_type) + sum(len(key) + len(text) + 10 for key, text in topic.attributes.items())
    return 4 * texts + ROW_BYTES  # a letter takes up to four bytes


def packed(rows: Iterable[tuple[T, int]], most: int) -> Iterator[list[T]]:
    """The rows, each with its bytes, in lists of at most `most` bytes, or of one row; one list at least, which may be empty."""
    part: list[T] = []
    size = 0
    for row, more in rows:
        if part and size + more > most:
            yield part
            part, size = [], 0
        part.append(row)
        size += more
    yield part


class Parts:
    """Incomplete lists, by connection. A connection that ends, or begins another list, drops its former one."""

    def __init__(self) -> None:
        self._lists: dict[int, tuple[object, list[Reported], int]] = {}  # of whom, what came, how many parts that was
        self._count = 0

    def join(
        self, connection_id: int, whose: object, part: int, parts: int, topics: Sequence[Reported]
    ) -> Sequence[Reported] | None:
        """The whole list with its last part, None before. `whose`: equal for all parts of one list. Raises Refusal."""
        if (part, parts) == (0, 1):
            self.forget(connection_id)
            return topics
        if part == 0:
            self.forget(connection_id)
            self._lists[connection_id] = whose, [], 0
        known, came, count = self._lists.get(connection_id, (None, [], 0))
        if known != whose or part != count or not 0 <= part < parts:
            self.forget(connection_id)
            about = f"part {part} of {parts} of a registration is out of its order: begin with 0"
            raise Refusal(ResponseCode.INVALID_PARAMETER, about)
        if len(came) + len(topics) > MAX_TOPICS or self._count + len(topics) > MAX_ALL:
            self.forget(connection_id)
            about = f"more than {MAX_TOPICS} topics in a registration, or too many at once: wait, or delete topics"
            raise Refusal(ResponseCode.SYSTEM_BUSY, about)
        came.extend(topics)
        self._count += len(topics)
        self._lists[connection_id] = whose, came, count + 1
        if part + 1 < parts:
            return None
        self.forget(connection_id)
        return came

    def forget(self, connection_id: int) -> None:
        """The connection has ended."""
        if connection_id in self._lists:
            self._count -= len(self._lists.pop(connection_id)[1])
