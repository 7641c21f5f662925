"""Ordered POP: which messages of a queue are handed out, and until when the queue is closed [ConsumerOrderInfoManager].

Ordered pops have no receipts: a queue is handed out again once all messages that were handed out are acknowledged or visible
again. Acknowledgements move the group's offset. A row is an absolute assignment, written whenever it changes.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from rmq.delivery.due import STEP_MS
from rmq.errors import BadBytes
from rmq.staged import StagedTable


class OrderRow(NamedTuple):
    """`queue_offsets`: those handed out last. `done`: bit i is for queue_offsets[i]. `visible`: queue offset -> ms, if a client
    changed it. `tries`: queue offset -> how often it was handed out before. `attempt`: that of the client that has the
    messages. The field order is that of the state record."""

    attempt: str
    pop_time: int
    invisible_ms: int
    queue_offsets: tuple[int, ...]
    done: int = 0
    visible: Mapping[int, int] = {}
    tries: Mapping[int, int] = {}

    def is_closed(self, attempt: str, now_ms: int) -> bool:
        """Whether another attempt still works on the queue. The same attempt may have the same messages again."""
        if attempt and attempt == self.attempt:
            return False
        ends = self.pop_time + self.invisible_ms
        return any(not self.done >> i & 1 and now_ms < self.visible.get(at, ends) for i, at in enumerate(self.queue_offsets))

    def opens_ms(self) -> int:
        """When the last message that is not acknowledged is visible again; 0: all are acknowledged."""
        ends, left = self.pop_time + self.invisible_ms, [at for i, at in enumerate(self.queue_offsets) if not self.done >> i & 1]
        return max((self.visible.get(at, ends) for at in left), default=0)

    def moved(self, pop_time: int) -> "OrderRow":
        """As if they had been handed out then; times that a client changed by another clock stay."""
        visible = {at: ms - self.pop_time + pop_time if ms >= self.pop_time else ms for at, ms in self.visible.items()}
        return self._replace(pop_time=pop_time, visible=visible)

    def next(self) -> int:
        """The group's offset: that of the first message that is not acknowledged, or the one after the last message."""
        left = [queue_offset for i, queue_offset in enumerate(self.queue_offsets) if not self.done >> i & 1]
        return left[0] if left else self.queue_offsets[-1] + 1


def handed_out(before: OrderRow | None, attempt: str, now_ms: int, invisible_ms: int, queue_offsets: Sequence[int]) -> OrderRow:
    """The row after these are handed out. Messages that the same attempt gets again do not count as another try."""
    tries: Mapping[int, int] = {}
    if before is not None:
        again = [queue_offset for queue_offset in before.queue_offsets if queue_offset in queue_offsets]
        same = attempt != "" and attempt == before.attempt
        tries = before.tries if same else {queue_offset: before.tries.get(queue_offset, 0) + 1 for queue_offset in again}
    return OrderRow(attempt, now_ms, invisible_ms, tuple(queue_offsets), 0, {}, tries)


def name_of(group: str, topic: str, queue_id: int) -> str:
    """The row's name. Names of topics and groups have no @."""
    return f"{topic}@{group}@{queue_id}"


class OrderTable(StagedTable[OrderRow]):
    """Rows by `name_of`."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead: dict[str, tuple[int, int]] = {}  # name -> pop time that is ahead of the clock, when that was seen first
        self._of_attempt: dict[str, set[str]] = {}  # names of rows, as decided, of which something is not acknowledged
        self._attempts: dict[str, str] = {}  # the same by name

    def at(self, name: str, now_ms: int) -> OrderRow | None:
        """As `decided`. The time of what was handed out further ahead of this clock than store times may be counts from when
        that is first seen: it was set back since, or another leader's was ahead."""
        row = self.decided(name)
        if row is None or row.pop_time <= now_ms + STEP_MS:
            self._ahead.pop(name, None)
            return row
        pop_time, seen_ms = self._ahead.get(name, (0, 0))
        if pop_time != row.pop_time or now_ms < seen_ms:
            seen_ms = now_ms
            self._ahead[name] = row.pop_time, seen_ms
        return row.moved(seen_ms)

    def of_attempt(self, attempt: str) -> list[str]:
        """Names of rows of which that attempt has messages, or may have: what is being written is among them."""
        return sorted(self._of_attempt.get(attempt, ()))

    def apply(self, name: str, value: Sequence[Any] | None, time_ms: int = 0) -> None:
        """A committed state line: the fields of an OrderRow, or None. `time_ms`: when it was stored."""
        row = None if value is None else OrderRow(*value)
        self._commit(name, row and row._replace(queue_offsets=tuple(row.queue_offsets)), time_ms)

    def forget(self, group: str, topic: str, queue_id: int) -> None:
        """The group was set to another place: what it was given before closes the queue no longer, and acknowledgements of that
        move nothing [ConsumerOrderInfoManager.clearBlock]."""
        name = name_of(group, topic, queue_id)
        self._committed.pop(name, None)
        self._show(name)

    def remove_topics(self, topics: Set[str]) -> None:
        """The topics were deleted at this place of the log."""
        self._remove(lambda name: name.partition("@")[0] in topics)

    def remove_group(self, group: str) -> None:
        """The group was deleted at this place of the log."""
        self._remove(lambda name: name.split("@")[1] == group)

    def drop_overlay(self) -> None:
        staged = list(self._staged)
        super().drop_overlay()
        for name in staged:
            self._list(name)

    def _show(self, name: str) -> None:
        super()._show(name)
        self._list(name)

    def _list(self, name: str) -> None:
        """By its attempt, as it is decided now, and no more as it was."""
        before, now = self._attempts.pop(name, ""), self.decided(name)
        if before:
            self._of_attempt[before].remove(name)
            if not self._of_attempt[before]:
                del self._of_attempt[before]
        if now is not None and now.attempt and now.done != (1 << len(now.queue_offsets)) - 1:
            self._attempts[name] = now.attempt
            self._of_attempt.setdefault(now.attempt, set()).add(name)

    def _remove(self, fits: Any) -> None:
        for name in [name for name in self._committed if fits(name)]:
            self._commit(name, None, 0)


def orders_json(table: OrderTable) -> dict[str, Any] | None:
    """RocketMQ's config/consumerOrderInfo.json as a JSON value; None if no group ever popped in order."""
    found: dict[str, dict[str, Any]] = {}
    for name, row in sorted(table.committed().items()):
        place, _, queue_id = name.rpartition("@")
        first = row.queue_offsets[0]
        found.setdefault(place, {})[queue_id] = {
            "popTime": row.pop_time, "i": row.invisible_ms, "o": [first, *(each - first for each in row.queue_offsets[1:])],
            "ot": {str(queue_offset): ms for queue_offset, ms in row.visible.items()},
            "oc": {str(queue_offset): tries for queue_offset, tries in row.tries.items()},
            "l": row.pop_time, "cm": row.done, "a": row.attempt,
        }  # fmt: skip
    return {"orderInfoCount": len(table.committed()), "orderedConsumptionLevel": "QUEUE", "table": found} if found else None


def from_json(value: Any) -> dict[str, OrderRow]:
    """The rows of RocketMQ's consumerOrderInfo.json, by name; none if there is no file. Raises BadBytes."""
    found = {}
    try:
        for place, queues in ((value or {}).get("table") or {}).items():
            for queue_id, row in queues.items():
                first, *steps = row["o"]
                queue_offsets = (int(first), *(int(first) + int(step) for step in steps))
                visible = {int(queue_offset): int(ms) for queue_offset, ms in (row.get("ot") or {}).items()}
                tries = {int(queue_offset): int(count) for queue_offset, count in (row.get("oc") or {}).items()}
                found[f"{place}@{int(queue_id)}"] = OrderRow(
                    str(row.get("a") or ""),
                    int(row["popTime"]),
                    int(row.get("i") or 0),
                    queue_offsets,
                    int(row.get("cm") or 0),
                    visible,
                    tries,
                )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadBytes(f"consumerOrderInfo.json: {type(error).__name__} {error}; is it RocketMQ's file?") from error
    return found
