"""Halves: messages of transactions, invisible until their producer commits them (C11, C12) [TransactionalMessageServiceImpl].

A half is known by the log offset of its *first* append. To ask its producer again, and when its segment is to be deleted, it
is appended once more; such a record names the first one. Everything here follows from committed records, noted in log
order on every node, and may be noted again: a start replays what its snapshot already knows. Pure.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from rmq.delivery.due import STEP_MS
from rmq.staged import Versioned

PARKED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"  # the topic for halves whose producers were asked too often
COMMITTED, ROLLED_BACK, PARKED = "committed", "rolled back", "put aside"
MOST_OPEN, MOST_OPEN_OF_GROUP = 300_000, 100_000  # about 90 MB; no producer group may take it all
KEPT_TARGETS = 10_000  # of the halves that were taken last: 2 MB
KEPT_OUTCOMES = 10_000  # outcomes that are kept, the newest: they answer a repeated END_TRANSACTION

V = TypeVar("V")


Target = tuple[str, int, int]
"""Where the message of a half goes: topic, queue, and the hash of its tag."""


class Half(NamedTuple):
    """A transaction without an outcome. The field order is that of the state line.

    `offset`, `queue_offset`: log offset and half-queue offset of its newest append. `first_queue_offset`: that of its first, -1
    if unknown. `since_ms`: when the first append was stored (Unix ms), by the broker's clock, since the producer's may be wrong.
    `immunity_ms`: no check before it is that old, 0: the broker's setting decides. `checks`: how often its producer was asked.
    """

    offset: int
    queue_offset: int
    first_queue_offset: int
    group: str
    since_ms: int
    immunity_ms: int = 0
    checks: int = 0

    def aside_ms(self, now_ms: int, immunity_ms: int, every_ms: int, most: int) -> int:
        """About when it is put aside if nobody ends it: asked each `every_ms`, `most` times. `immunity_ms`: as in `to_ask`."""
        first_ms = self.since_ms + max(immunity_ms, self.immunity_ms)
        return max(now_ms, first_ms) + max(0, most - self.checks) * every_ms


class Rows(Versioned, Generic[V]):
    """Rows by offset. They change in log order, and by state lines. `made(value)`: a row of a line's value."""

    def __init__(self, made: Callable[[Any], V], rows: dict[int, V] | None = None) -> None:
        super().__init__()
        self._made = made
        self.rows: dict[int, V] = {} if rows is None else rows

    def committed(self) -> Mapping[int, V]:
        """The rows that a failover keeps."""
        return self.rows

    def apply(self, key: int, value: Any, time_ms: int = 0) -> None:
        """A line of a snapshot or a state record; None removes the row. `time_ms`: when it was stored."""
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = self._made(value)
        self._version = self._version.risen(time_ms)


_set: Callable[[dict[int, Half], int, Half], None] = dict.__setitem__
_pop: Callable[[dict[int, Half], int, None], Half | None] = dict.pop


class _Open(dict[int, Half]):
    """Halves by their first offset, with a count for each producer group."""

    def __init__(self) -> None:
        super().__init__()
        self.of_group: Counter[str] = Counter()

    def __setitem__(self, first: int, half: Half) -> None:
        if (known := self.get(first)) is not None:
            self._fewer((known,))
        _set(self, first, half)
        self.of_group[half.group] += 1

    def pop(self, first: int, default: Any = None) -> Any:
        return next(iter(self.pop_all((first,))), default)

    def pop_all(self, firsts: Iterable[int]) -> list[Half]:
        """Those of them that are there."""
        halves = [half for first in firsts if (half := _pop(self, first, None)) is not None]
        self._fewer(halves)
        return halves

    def _fewer(self, halves: Iterable[Half]) -> None:
        for group, count in Counter([half.group for half in halves]).items():
            self.of_group[group] -= count
            if not self.of_group[group]:
                del self.of_group[group]


class HalfTable:
    """`open`: halves by their first offset. `ended`: outcomes of the newest ended halves, by first offset. `owed`: half-queue
    offsets that are done; Apache RocketMQ's tools learn that only from an op record that names them.

    The first committed resolution decides (stories 36, 67); at the leader, one that is being written counts already.
    """

    def __init__(self) -> None:
        self._open = _Open()
        self.open: Rows[Half] = Rows(lambda value: Half(*value), self._open)
        self._ended: OrderedDict[int, str] = OrderedDict()  # the first of a plain dict is found ever later as others go
        self.ended: Rows[str] = Rows(str, self._ended)
        self.owed: Rows[bool] = Rows(bool)
        self.by_name: Mapping[str, Rows[Any]] = {"half": self.open, "halfEnd": self.ended, "halfOp": self.owed}
        self.outcomes: Counter[str] = Counter()  # outcome -> number of halves, since this process began to read the log
        self.targets: dict[int, Target] = {}  # of open halves of the usual kind that were taken here, by first offset
        self._ending: dict[int, str] = {}
        self._moving: set[int] = set()
        self._ahead_ms: int | None = None  # since when some are ahead of the clock

    # --- committed records, in log order

    def appended(self, first: int, half: Half) -> None:
        """A record of the half topic: a first append (`first` is its own offset), or a later one of the half that began there.

        A later append may come alone: this node need not know the first one if that was deleted with its segment.
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

    def begun(self, halves: Iterable[tuple[Half, Target]]) -> None:
        """As `appended` for the first append of each, which this node took."""
        rows, ended, of_group, targets = self._open, self._ended, self._open.of_group, self.targets
        if len(targets) >= KEPT_TARGETS:
            targets.clear()
        for half, target in halves:
            first, group = half[0], half[3]
            if first in rows or first in ended:
                self.appended(first, half)
            else:
                _set(rows, first, half)
                of_group[group] += 1
                targets[first] = target

    def resolved(self, firsts: Collection[int], outcome: str) -> None:
        """Records that tell this outcome of each half; later ones change nothing."""
        halves, ended, ending, targets = self._open.pop_all(firsts), self._ended, self._ending, self.targets
        self.owed.rows.update([(half.queue_offset, True) for half in halves])
        self.outcomes[outcome] += len(halves)
        for first in firsts:
            ending.pop(first, None)
            targets.pop(first, None)
            ended.setdefault(first, outcome)
        while len(ended) > KEPT_OUTCOMES:
            ended.popitem(last=False)

    def op_written(self, queue_offsets: Iterable[int]) -> None:
        """An op record names these half-queue offsets."""
        for queue_offset in queue_offsets:
            self.owed.rows.pop(queue_offset, None)

    def alive_from(self) -> int | None:
        """The lowest log offset that an open half needs."""
        return min((half.offset for half in self.open.rows.values()), default=None)

    # --- deciding: at the leader only

    def open_groups(self) -> list[tuple[str, int]]:
        """Producer groups, and how many of their halves are open."""
        return list(self._open.of_group.items())

    def number_open(self, group: str) -> int:
        """How many halves of that producer group are open; "": of all."""
        return self._open.of_group[group] if group else len(self._open)

    def is_full(self, group: str) -> bool:
        """Whether a half of this group must end before the group may begin another one."""
        return len(self._open) >= MOST_OPEN or self._open.of_group[group] >= MOST_OPEN_OF_GROUP

    def outcome(self, first: int) -> str:
        """The outcome, committed or being written; "" if the half is open, or not known."""
        return self._ending.get(first) or self.ended.rows.get(first, "")

    def is_ending(self, first: int) -> bool:
        """Whether its resolution is being written."""
        return first in self._ending

    def end(self, first: int, outcome: str) -> None:
        """Its resolution is being written."""
        self._ending[first] = outcome

    def not_ended(self, first: int) -> None:
        """The resolution was certainly not written. (After an unknown outcome, the log or the loss of leadership will tell.)"""
        self._ending.pop(first, None)

    def move(self, first: int) -> None:
        """Another append of the half is being written: until that is committed, it is neither checked nor carried again."""
        self._moving.add(first)

    def not_moved(self, first: int) -> None:
        self._moving.discard(first)

    def to_ask(self, now_ms: int, immunity_ms: int) -> list[int]:
        """Halves whose producers to ask now: they are older than `immunity_ms` (a half may want more). Those with the fewest
        checks come first, so that a round that breaks off does not skip the same halves each time.

        The age of those that are further ahead of this clock than store times may be counts from when that is first seen: it
        was set back since, or another leader's was ahead."""
        latest_ms, seen_ms, are_ahead = now_ms + STEP_MS, min(self._ahead_ms or now_ms, now_ms), False
        found = []
        for first, half in self._at_rest():
            is_ahead = half.since_ms > latest_ms
            are_ahead = are_ahead or is_ahead
            if now_ms - (seen_ms if is_ahead else half.since_ms) >= max(immunity_ms, half.immunity_ms):
                found.append((half.checks, first))
        self._ahead_ms = seen_ms if are_ahead else None
        return [first for _, first in sorted(found)]

    def at_rest(self, first: int) -> Half | None:
        """The open half, unless a record of it is being written."""
        return None if first in self._ending or first in self._moving else self.open.rows.get(first)

    def below(self, offset: int) -> list[int]:
        """Halves whose newest append is below log offset `offset`."""
        return [first for first, half in self._at_rest() if half.offset < offset]

    def _at_rest(self) -> Iterator[tuple[int, Half]]:
        """The open halves of which no record is being written."""
        busy = self._ending.keys() | self._moving
        return ((first, half) for first, half in self.open.rows.items() if first not in busy)

    def drop_overlay(self) -> None:
        """This node no longer leads: only the new leader knows what becomes of uncommitted changes."""
        self._ending.clear()
        self._moving.clear()
        self.targets.clear()
        self._ahead_ms = None


def op_body(queue_offsets: Iterable[int]) -> bytes:
    """The body of an op record: these half-queue offsets are done."""
    return b"".join([b"%d," % queue_offset for queue_offset in queue_offsets])


def op_queue_offsets(body: bytes) -> list[int]:
    """The queue offsets in the body of an op record (4.9 writes one without a comma); skips words that are no numbers."""
    return [int(word) for word in body.split(b",") if word.isdigit() and len(word) < 19]
