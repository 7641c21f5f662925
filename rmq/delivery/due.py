"""Messages that wait for their time: with a delay level, and timers [ScheduleMessageService, TimerMessageStore].

A waiting message stays where it is in the log; this table knows its offset and when it is due, on every node. Sources that are
due at the same moment share a slot: an array with 8 bytes for each, in log order. A slot is removed when all its sources are
done, so no cursor is needed. Notes come from committed records, in log order, and may come twice (a snapshot is read while
commits go on, and the log is replayed after it): a repeated note changes nothing.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Any, NamedTuple

from rmq.staged import Versioned

MOST_LEVELS = 62
TIMER, CANCEL = 0, 63  # in place of a level: a timer, and a message that cancels a timer
LEVEL_SLOT_MS = 100  # how often the broker looks
TIMER_SLOT_MS = 1000  # [timerPrecisionMs]
STEP_MS = 60_000  # store times may be so far ahead of a clock that was set back
_BITS = 6
_LEVEL = (1 << _BITS) - 1
_NEVER = 1 << 62


class Source(NamedTuple):
    """A record that waits: `due_ms` is its slot (Unix ms: when it may be handed on), `offset` its place in the log,
    `level` 1 to 62, or TIMER, or CANCEL. The field order is that of the state line."""

    due_ms: int
    offset: int
    level: int


def level_slot(stored_ms: int, delay_ms: int) -> int:
    """When a message with a delay level is due, rounded up to the next tick."""
    return -(-(stored_ms + delay_ms) // LEVEL_SLOT_MS) * LEVEL_SLOT_MS


def timer_out_ms(deliver_ms: int) -> int:
    """TIMER_OUT_MS as RocketMQ stores it: rounded down, an exact multiple one step earlier [TimerMessageStore]."""
    return (deliver_ms - 1) // TIMER_SLOT_MS * TIMER_SLOT_MS


def timer_slot(out_ms: int) -> int:
    """When a timer with that TIMER_OUT_MS is due: one step later, so never before the wanted time."""
    return out_ms + TIMER_SLOT_MS


class _Begun:
    """Which sources of a slot are done: all before index `first`, and `others` after it."""

    __slots__ = ("first", "others")

    def __init__(self) -> None:
        self.first = 0
        self.others: set[int] = set()


class DueTable(Versioned):
    """`chunk_bytes`: the precision of `alive_from`, in bytes of the log. `delays_ms`: those of level 1, 2, ...

    Only `note`, `note_all`, `cancel`, `done` and `apply` change it, in log order. The leader alone uses `due` and `hold`; its
    overlay has what is being written.
    """

    def __init__(self, chunk_bytes: int, delays_ms: Sequence[int]) -> None:
        super().__init__()
        self._chunk_bytes = chunk_bytes
        self.delays_ms = tuple(delays_ms)
        self._slots: dict[int, array[int]] = {}  # due_ms -> packed (offset, level), ascending
        self._listed = array("q")  # the keys of `_slots` once more, and those of `_unlisted`: see `_dues`
        self._unlisted: set[int] = set()
        self._begun: dict[int, _Begun] = {}  # for slots that are partly done
        self._cancelled: dict[int, set[str]] = {}  # due_ms -> unique ids that messages in that slot cancel
        self._chunks: dict[int, int] = {}  # chunk of the log -> number of pending sources in it
        self._latest: dict[int, int] = {}  # level -> no slot of the level is later
        self._coming: list[int] = []  # heap of slots; those in `_open` are not in it, some may be gone
        self._open: dict[int, None] = {}  # slots that were already due once
        self._early: dict[int, Source] = {}  # due although their slots are not: the clock was set back
        self._in_flight: set[int] = set()  # sources whose end is being written
        self.pending = 0
        self.leadership = 0  # how often this node lost leadership

    def committed(self) -> Mapping[int, Any]:
        """What a snapshot saves of each slot: [pending sources as bytes, cancelled unique ids]."""
        return _Rows(self._slots, self._dues, self._row)

    # --- committed records --------------------------------------------------------------------------------------------

    def note(self, source: Source) -> None:
        """A committed record waits."""
        due, packed = source.due_ms, source.offset << _BITS | source.level
        slot = self._slots.get(due)
        if slot is None:
            self._slots[due] = array("q", (packed,))
            self._list(due)
            heappush(self._coming, due)
        elif packed > slot[-1]:
            slot.append(packed)
        elif not self._insert(due, slot, packed):
            return
        if due > self._latest.get(source.level, 0):
            self._latest[source.level] = due
        self._count((packed,), 1)

    def note_all(self, due_ms: int, level: int, offsets: Sequence[int]) -> None:
        """Committed records of one level wait, which are due at the same time. `offsets` rise."""
        slot = self._slots.get(due_ms)
        if slot is None or offsets[0] << _BITS <= slot[-1]:
            for offset in offsets:
                self.note(Source(due_ms, offset, level))
            return
        packed = [offset << _BITS | level for offset in offsets]
        slot.extend(packed)
        self._latest[level] = max(due_ms, self._latest.get(level, 0))
        self._count(packed, 1)

    def cancel(self, source: Source, target: str) -> None:
        """A committed record in the same slot cancels the timers of that slot with the unique id `target`."""
        self.note(source)
        if source.due_ms in self._slots:
            self._cancelled.setdefault(source.due_ms, set()).add(target)

    def is_cancelled(self, source: Source, target: str) -> bool:
        return target in self._cancelled.get(source.due_ms, ())

    def has_cancelled(self, due_ms: int) -> bool:
        return due_ms in self._cancelled

    def done(self, due_ms: int, offset: int) -> None:
        """The source was handed on, or dropped, by a committed record."""
        self.done_all(due_ms, (offset,))

    def done_all(self, due_ms: int, offsets: Iterable[int]) -> None:
        """The same of several of that slot."""
        slot = self._slots.get(due_ms)
        if slot is None:
            return
        begun = self._begun.get(due_ms) or _Begun()
        first, end, others, done = begun.first, len(slot), begun.others, list[int]()
        for offset in offsets:
            at = bisect_left(slot, offset << _BITS, first)
            if at < end and (packed := slot[at]) >> _BITS == offset and packed not in others:
                others.add(packed)
                done.append(packed)
        if not done:
            return
        self._in_flight.difference_update(done)
        self._count(done, -1)
        if self._early:
            for packed in done:
                self._early.pop(packed, None)
        while first < end and slot[first] in others:
            others.remove(slot[first])
            first += 1
        begun.first = first
        self._begun[due_ms] = begun
        if first == end:
            self._remove(due_ms)

    def apply(self, key: Any, value: Any, time_ms: int = 0) -> None:
        """A state line of a source (True: waits; text: waits and cancels that id; None: done), or a snapshot's row of a slot."""
        if isinstance(key, int):
            self._replace(key, value)
        elif value is None:
            self.done(key[0], key[1])
        elif value is True:
            self.note(Source(*key))
        else:
            self.cancel(Source(*key), value)
        self._version = self._version.risen(time_ms)

    def _insert(self, due: int, slot: "array[int]", packed: int) -> bool:
        """Inserts a source out of order, as a replay needs; False if it was known."""
        begun = self._begun.get(due)
        if begun:
            del slot[: begun.first]
            begun.first = 0
        at = bisect_left(slot, packed)
        if at < len(slot) and slot[at] == packed:
            return False
        slot.insert(at, packed)
        return True

    def _count(self, packed: Sequence[int], more: int) -> None:
        """So many more of each."""
        self.pending += more * len(packed)
        chunks, size = self._chunks, self._chunk_bytes << _BITS
        for chunk, some in groupby([each // size for each in packed]):
            count = chunks.get(chunk, 0) + more * len([*some])
            if count:
                chunks[chunk] = count
            else:
                del chunks[chunk]

    def _list(self, due: int) -> None:
        if due in self._unlisted:
            self._unlisted.remove(due)
        else:
            self._listed.append(due)

    def _dues(self) -> list[int]:
        """All slots. They are told from an array, as there may be 100 000: each key of `_slots` lies elsewhere in memory, and the
        loop would stand still for 40 ms while all of them are touched."""
        unlisted = self._unlisted
        return [due for due in self._listed if due not in unlisted] if unlisted else list(self._listed)

    def _remove(self, due: int) -> None:
        del self._slots[due]
        self._unlisted.add(due)
        if len(self._unlisted) > len(self._slots) + 100:
            self._listed, self._unlisted = array("q", self._dues()), set()
        self._begun.pop(due, None)
        self._cancelled.pop(due, None)
        if len(self._coming) > 2 * len(self._slots) + 800:  # on a follower: nobody takes what is due
            self._coming = self._dues()
            heapify(self._coming)
            self._open.clear()

    def _replace(self, due: int, row: Sequence[Any] | None) -> None:
        for packed in list(self._pending(due)):
            self.done(due, packed >> _BITS)
        sources, cancelled = row or (b"", ())
        for packed in _unpacked(sources):
            self.note(Source(due, packed >> _BITS, packed & _LEVEL))
        if cancelled:
            self._cancelled[due] = set(cancelled)

    # --- the leader ---------------------------------------------------------------------------------------------------

    def due(self, now_ms: int, most: int) -> list[Source]:
        """The next sources to hand on, at most `most`; from now on they are in flight.

        A source of a level whose due time is further away than its whole delay counts as due: the clock was set back since,
        further than store times may lag [ScheduleMessageService.correctDeliverTimestamp].
        """
        self._look_ahead(now_ms)
        found: list[Source] = []
        for early in self._early.values():
            if len(found) == most:
                break
            if self.hold(early):
                found.append(early)
        gone = []
        for due in self._open:
            if due not in self._slots:
                gone.append(due)
            elif due <= now_ms and self._take(due, found, most):
                break
        for due in gone:
            del self._open[due]
        while len(found) < most and self._coming and self._coming[0] <= now_ms:
            due = heappop(self._coming)
            if due in self._slots:
                self._open[due] = None
                self._take(due, found, most)
        return found

    def hold(self, source: Source) -> bool:
        """Notes that a record is being written which ends the source. False if that was noted already, or the source is done."""
        packed = source.offset << _BITS | source.level
        if packed in self._in_flight or not self.is_pending(source.due_ms, source.offset):
            return False
        self._in_flight.add(packed)
        return True

    def not_stored(self, source: Source) -> None:
        """The record was certainly not written: the source waits again."""
        self._in_flight.discard(source.offset << _BITS | source.level)

    def drop_overlay(self) -> None:
        """This node no longer leads: the new leader knows what is committed."""
        self.leadership += 1
        self._in_flight.clear()
        self._early.clear()
        self._latest = dict.fromkeys(self._latest, _NEVER)

    def _take(self, due: int, found: list[Source], most: int) -> bool:
        """Adds the sources of a slot that are not in flight; True if there are enough now."""
        for packed in self._pending(due):
            if len(found) >= most:
                return True
            if packed not in self._in_flight:
                self._in_flight.add(packed)
                found.append(Source(due, packed >> _BITS, packed & _LEVEL))
        return False

    def _look_ahead(self, now_ms: int) -> None:
        """Looks at every slot, but only if one of them is too far ahead."""
        limits = {level: now_ms + delay_ms + STEP_MS for level, delay_ms in enumerate(self.delays_ms, 1)}
        if all(latest <= limits.get(level, _NEVER) for level, latest in self._latest.items()):
            return
        shortest = min(limits.values())
        for due in self._slots:
            if due > shortest:
                sources = (Source(due, packed >> _BITS, packed & _LEVEL) for packed in self._pending(due))
                early = [source for source in sources if due > limits.get(source.level, _NEVER)]
                self._early |= {source.offset << _BITS | source.level: source for source in early}
        self._latest = {level: limits.get(level, 0) for level in self._latest}

    # --- looking ------------------------------------------------------------------------------------------------------

    def is_pending(self, due_ms: int, offset: int) -> bool:
        slot, begun = self._slots.get(due_ms), self._begun.get(due_ms)
        if slot is None:
            return False
        at = bisect_left(slot, offset << _BITS, begun.first if begun else 0)
        return at < len(slot) and slot[at] >> _BITS == offset and not (begun and slot[at] in begun.others)

    def alive_from(self) -> int | None:
        """All waiting sources are at or above this offset, the start of the first chunk with one; None if nothing waits."""
        return min(self._chunks) * self._chunk_bytes if self._chunks else None

    def first_ms(self) -> int | None:
        """The due time of the earliest source that is not done; it may be past."""
        while self._coming and self._coming[0] not in self._slots:
            heappop(self._coming)
        return min([*(due for due in self._open if due in self._slots), *self._coming[:1]], default=None)

    def lowest(self) -> dict[int, int]:
        """The lowest waiting offset of each level (TIMER and CANCEL, too). Looks at every source."""
        found: dict[int, int] = {}
        for due in self._slots:
            for packed in self._pending(due):
                level, offset = packed & _LEVEL, packed >> _BITS
                if offset < found.get(level, _NEVER):
                    found[level] = offset
        return found

    def below(self, offset: int, most: int) -> Iterator[list[Source]]:
        """Sources below that offset, slot by slot, in lists of at most `most`; a slot without any gives an empty list.

        The table may change between two lists.
        """
        for due in self._dues():
            slot = self._slots.get(due)
            found = array("q") if slot is None else slot[: bisect_left(slot, offset << _BITS)]
            for at in range(0, len(found) or 1, most):
                sources = (Source(due, one >> _BITS, one & _LEVEL) for one in found[at : at + most])
                yield [source for source in sources if self.is_pending(due, source.offset)]

    def _pending(self, due: int) -> Iterator[int]:
        """The waiting sources of a slot, in log order. The slot must not change meanwhile."""
        slot, begun = self._slots.get(due, ()), self._begun.get(due)
        if begun is None:
            yield from slot
        else:
            yield from (packed for at in range(begun.first, len(slot)) if (packed := slot[at]) not in begun.others)

    def _row(self, due: int) -> list[Any]:
        return [_packed(self._pending(due)), sorted(self._cancelled.get(due, ()))]


def target_of(topic: object, unique_id: object) -> str:
    """How a timer is named by what cancels it: the right to write to one topic gives none over another."""
    return f"{topic}+{unique_id}"


class Cancelling:
    """Timers for which a record that cancels them is being written: they may fall due before it is committed, and must not be
    handed on then. `targets`: their ids by due_ms."""

    def __init__(self) -> None:
        self.targets: dict[int, list[str]] = {}

    @contextmanager
    def writing(self, due_ms: int, target: str) -> Iterator[None]:
        """While the timers of that slot with that id are being cancelled."""
        targets = self.targets.setdefault(due_ms, [])
        targets.append(target)
        try:
            yield
        finally:
            targets.remove(target)
            if not targets:
                del self.targets[due_ms]


class _Rows(Mapping[int, Any]):
    """The slots as rows of a snapshot; `row` makes each row when it is read."""

    def __init__(self, slots: Mapping[int, Any], keys: Callable[[], list[int]], row: Callable[[int], list[Any]]) -> None:
        self._slots = slots
        self._keys = keys
        self._row = row

    def __getitem__(self, due: int) -> list[Any]:
        if due not in self._slots:
            raise KeyError(due)
        return self._row(due)

    def __contains__(self, due: object) -> bool:
        return due in self._slots

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._slots)


def _packed(sources: Iterable[int]) -> bytes:
    """8 bytes each, big-endian."""
    packed = array("q", sources)
    if sys.byteorder == "little":
        packed.byteswap()
    return packed.tobytes()


def _unpacked(data: bytes) -> "array[int]":
    sources = array("q", data)
    if sys.byteorder == "little":
        sources.byteswap()
    return sources
