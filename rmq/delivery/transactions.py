"""Halves: messages of transactions, invisible until their producer commits them (C11, C12) [TransactionalMessageServiceImpl].

A half is known by the log offset of its *first* append. To ask its producer again, and when its segment is to be deleted, it
is appended once more; such a record names the first one. Everything here follows from committed records, noted in log
order on every node, and may be noted again: a start replays what its snapshot already knows. Pure.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from rmq.staged import Versioned

PARKED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"  # where halves go that were asked back too often
COMMITTED, ROLLED_BACK, PARKED = "committed", "rolled back", "put aside"
MOST_OPEN, MOST_OPEN_OF_GROUP = 300_000, 100_000  # about 90 MB; no producer group takes it all
KEPT_OUTCOMES = 10_000  # of the newest: a repeated END_TRANSACTION is answered by them

V = TypeVar("V")


class Half(NamedTuple):
    """A transaction without an outcome. The field order is that of the state line.

    `offset`, `queue_offset`: log offset and offset in the half queue of its newest append; `first_queue_offset`: of its first, -1
    if unknown. `since_ms`: when the first was stored (Unix ms), by this broker's clock: the one of the producer may be wrong.
    `immunity_ms`: it wants to be left alone for so long, 0: as long as the broker says. `checks`: how often it was asked back.
    """

    offset: int
    queue_offset: int
    first_queue_offset: int
    group: str
    since_ms: int
    immunity_ms: int = 0
    checks: int = 0


class Rows(Versioned, Generic[V]):
    """Rows by offset; changed in log order, and by state lines."""

    def __init__(self, made: Callable[[Any], V]) -> None:
        super().__init__()
        self._made = made
        self.rows: dict[int, V] = {}

    def committed(self) -> Mapping[int, V]:
        """What a failover keeps."""
        return self.rows

    def apply(self, key: int, value: Any, time_ms: int = 0) -> None:
        """A line of a snapshot or a state record; None removes the row. `time_ms`: when it was stored."""
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = self._made(value)
        self._version = self._version.risen(time_ms)


class _Open(dict[int, Half]):
    """Halves by their first offset, counted by their producer groups."""

    def __init__(self) -> None:
        super().__init__()
        self.of_group: Counter[str] = Counter()

    def __setitem__(self, first: int, half: Half) -> None:
        self._one_less(self.get(first))
        super().__setitem__(first, half)
        self.of_group[half.group] += 1

    def pop(self, first: int, default: Any = None) -> Any:
        self._one_less(self.get(first))
        return super().pop(first, default)

    def _one_less(self, half: Half | None) -> None:
        if half is not None:
            self.of_group[half.group] -= 1
            if not self.of_group[half.group]:
                del self.of_group[half.group]


class HalfTable:
    """`open`: halves by their first offset. `ended`: outcomes of the newest ones that are not open any more, by it too.
    `owed`: offsets in the half queue that are done with; Apache RocketMQ's tools do not know it before an op record names them.

    The first committed resolution decides (stories 36, 67); at the leader one that is on its way counts already.
    """

    def __init__(self) -> None:
        self.open: Rows[Half] = Rows(lambda value: Half(*value))
        self.open.rows = self._open = _Open()
        self.ended: Rows[str] = Rows(str)
        self.owed: Rows[bool] = Rows(bool)
        self.by_name: Mapping[str, Rows[Any]] = {"half": self.open, "halfEnd": self.ended, "halfOp": self.owed}
        self.outcomes: Counter[str] = Counter()  # how many got which, since this process reads the log
        self._ending: dict[int, str] = {}
        self._moving: set[int] = set()

    # --- committed records, in log order

    def appended(self, first: int, half: Half) -> None:
        """A record of the half topic: the first append (`first` is its own offset) or a later one of the half that began there.

        A later one stands alone if the first was deleted with its segment before this node's memory begins.
        """
        rows = self.open.rows
        known = rows.get(first)
        if known is None:
            if first not in self.ended.rows:
                rows[first] = half if half.offset == first else half._replace(first_queue_offset=-1)
        elif half.offset > known.offset:
            rows[first] = known._replace(offset=half.offset, queue_offset=half.queue_offset, checks=half.checks)
            self.owed.rows[known.queue_offset] = True
        self._moving.discard(first)

    def resolved(self, first: int, outcome: str) -> None:
        """A record that says what became of it; whatever is said later changes nothing."""
        half = self.open.rows.pop(first, None)
        if half is not None:
            self.owed.rows[half.queue_offset] = True
            self.outcomes[outcome] += 1
        self._ending.pop(first, None)
        ended = self.ended.rows
        ended.setdefault(first, outcome)
        if len(ended) > KEPT_OUTCOMES:
            del ended[next(iter(ended))]

    def op_written(self, queue_offsets: Iterable[int]) -> None:
        """An op record names these."""
        for queue_offset in queue_offsets:
            self.owed.rows.pop(queue_offset, None)

    def alive_from(self) -> int | None:
        """The lowest log offset that an open half needs."""
        return min((half.offset for half in self.open.rows.values()), default=None)

    # --- deciding: at the leader only

    def open_groups(self) -> list[tuple[str, int]]:
        """Producer groups, and how many of their halves are open."""
        return list(self._open.of_group.items())

    def is_full(self, group: str) -> bool:
        """Whether some must end before this group may begin another one."""
        return len(self._open) >= MOST_OPEN or self._open.of_group[group] >= MOST_OPEN_OF_GROUP

    def outcome(self, first: int) -> str:
        """Decided, be it committed or on its way; "" if it is open, or not known."""
        return self._ending.get(first) or self.ended.rows.get(first, "")

    def is_ending(self, first: int) -> bool:
        """Whether its resolution is on its way."""
        return first in self._ending

    def end(self, first: int, outcome: str) -> None:
        """Its resolution is being written."""
        self._ending[first] = outcome

    def not_ended(self, first: int) -> None:
        """It was certainly not written. (Of an unknown outcome the log, or the loss of leadership, will tell.)"""
        self._ending.pop(first, None)

    def move(self, first: int) -> None:
        """Another append of it is being written: until that is committed it is not asked back, or carried, again."""
        self._moving.add(first)

    def not_moved(self, first: int) -> None:
        self._moving.discard(first)

    def to_ask(self, now_ms: int, immunity_ms: int) -> list[int]:
        """Those whose producers are to be asked now: `immunity_ms` (a half may want more) have passed since they came. Those
        that were asked after the least come first: a round that breaks off must not forget the same ones each time."""
        found = [
            (half.checks, first)
            for first, half in self._at_rest()
            if now_ms - half.since_ms >= max(immunity_ms, half.immunity_ms)
        ]
        return [first for _, first in sorted(found)]

    def at_rest(self, first: int) -> Half | None:
        """The open half, unless a record of it is on its way."""
        return None if first in self._ending or first in self._moving else self.open.rows.get(first)

    def below(self, offset: int) -> list[int]:
        """Those that live in the log below `offset`."""
        return [first for first, half in self._at_rest() if half.offset < offset]

    def _at_rest(self) -> Iterator[tuple[int, Half]]:
        """Of those no record is on its way."""
        busy = self._ending.keys() | self._moving
        return ((first, half) for first, half in self.open.rows.items() if first not in busy)

    def drop_overlay(self) -> None:
        """This node no longer leads: what was not committed is the new leader's to know."""
        self._ending.clear()
        self._moving.clear()


def op_body(queue_offsets: Iterable[int]) -> bytes:
    """The body of an op record: these offsets of the half queue are done with."""
    return b"".join([b"%d," % queue_offset for queue_offset in queue_offsets])


def op_queue_offsets(body: bytes) -> list[int]:
    """The queue offsets in the body of an op record; 4.9 writes one without a comma. What is no number is left out."""
    return [int(word) for word in body.split(b",") if word.isdigit() and len(word) < 19]
