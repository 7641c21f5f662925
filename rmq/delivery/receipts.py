"""Receipts of POP: which messages were handed out, how long nobody else gets them, and which are done [PopCheckPoint].

Every pop, and every change of an invisible time, is one committed record, which opens a receipt. A message of it is done once it
was acknowledged or handed on to the retry topic; the receipt ends with its last message. Only committed records change the table,
alike on every node; the leader alone knows what is being written (`stage`). Notes are idempotent: a start repeats them to a table
that may already know more.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from rmq.delivery.due import STEP_MS
from rmq.staged import Versioned

MAX_OPEN_OF_GROUP = 50_000  # so that no group takes all receipts
MAX_OPEN_OF_QUEUE = 10_000  # receipts of one group in one queue: a pop opens one, for at most 32 messages
MAX_OPEN = 150_000  # all receipts: each takes 0.7 KB with one message, 2 KB with 32
_SLOT_MS = 1000
_NONE = (0, 0)


class ReceiptKey(NamedTuple):
    """How clients' handles and acknowledgements name a receipt. The field order is that of the snapshot."""

    group: str
    topic: str  # the topic that the messages are in: for those that came back, the retry topic
    queue_id: int
    start: int
    pop_time: int


class Receipt(NamedTuple):
    """`place`: log offset of its record. `pins`: the lowest log offset of its messages. `due_ms`: when messages that are not done
    are handed on. `queue_offsets`: its messages in the queue. `done`: bit i is for queue_offsets[i]. `revive`: queue and queue
    offset of its record."""

    place: int
    pins: int
    due_ms: int
    queue_offsets: tuple[int, ...]
    done: int = 0
    revive: tuple[int, int] = (0, 0)

    @property
    def by_rocketmq(self) -> bool:
        """Whether RocketMQ wrote its record, which our timer then delivered: records by rmq come after their messages."""
        return self.pins == self.place

    @property
    def is_done(self) -> bool:
        return self.done == (1 << len(self.queue_offsets)) - 1

    def count_left(self) -> int:
        return len(self.queue_offsets) - self.done.bit_count()

    def bits(self, queue_offsets: Iterable[int]) -> int:
        """The bits of these messages in `done`; the receipt need not have them."""
        known, found = self.queue_offsets, 0
        first, count = known[0], len(known)
        for queue_offset in queue_offsets:
            at = queue_offset - first
            if 0 <= at < count and known[at] == queue_offset:  # nearly always: neighbours were popped
                found |= 1 << at
            elif queue_offset in known:
                found |= 1 << known.index(queue_offset)
        return found

    def left(self) -> list[int]:
        """Queue offsets of the messages that are not done."""
        return [queue_offset for i, queue_offset in enumerate(self.queue_offsets) if not self.done >> i & 1]


class ReceiptTable(Versioned):
    """Receipts by key, by the log offset of their record, and by the second in which they are due."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[ReceiptKey, Receipt] = {}
        self._keys: dict[int, ReceiptKey] = {}  # by place
        self._slots: dict[int, set[ReceiptKey]] = {}  # by second
        self._adopted: dict[int, set[ReceiptKey]] = {}  # those that RocketMQ opened, also by second
        self._revives: dict[int, dict[int, None]] = {}  # revive queue -> queue offsets of the records there, ascending
        self._open: dict[tuple[str, str, int], list[int]] = {}  # group, topic, queue -> receipts, messages that are not done
        self._of_group: Counter[str] = Counter()
        self._coming: dict[ReceiptKey, int] = {}  # messages whose end is being written, as in `Receipt.done`
        self._latest_ms = 0  # none was popped later
        self._ahead_ms: int | None = None  # since when some are ahead of the clock
        self.leadership = 0  # how often this node lost leadership

    def __len__(self) -> int:
        return len(self._rows)

    # --- what every node notes, in log order

    def opened(self, key: ReceiptKey, receipt: Receipt) -> None:
        """A committed record opens the receipt. If it is noted twice, or by two records, the receipt has what either has."""
        known = self._rows.get(key)
        if known is not None:
            receipt = receipt._replace(done=receipt.done | known.done)
            if known.place == receipt.place:
                self._finish(key, receipt, 0)
                return
        self._drop(key)
        if not receipt.is_done:
            self._put(key, receipt)

    def acked(self, key: ReceiptKey, queue_offsets: Iterable[int]) -> None:
        """These messages are acknowledged and need not come back. Queue offsets that the receipt does not have, and receipts that
        have ended, are ignored."""
        receipt, coming = self._rows.get(key), self._coming.pop(key, 0)
        if receipt is None:
            return
        bits = receipt.bits(queue_offsets)
        if coming & ~bits:
            self._coming[key] = coming & ~bits
        if bits & ~receipt.done:
            self._finish(key, receipt, bits)

    def handed_on(self, place: int, queue_offset: int) -> None:
        """A message of the receipt whose record is at `place` has come back as another message."""
        key = self._keys.get(place)
        if key is not None:
            self.acked(key, (queue_offset,))

    def _finish(self, key: ReceiptKey, receipt: Receipt, bits: int) -> None:
        receipt = receipt._replace(done=receipt.done | bits)
        if receipt.is_done:
            self._drop(key)
        else:
            self._open[key[:3]][1] -= self._rows[key].count_left() - receipt.count_left()
            self._rows[key] = receipt

    def _put(self, key: ReceiptKey, receipt: Receipt) -> None:
        self._rows[key] = receipt
        self._latest_ms = max(self._latest_ms, key.pop_time)
        self._keys[receipt.place] = key
        self._slots_of(receipt).setdefault(receipt.due_ms // _SLOT_MS, set()).add(key)
        known_open = self._open.setdefault(key[:3], [0, 0])
        known_open[0] += 1
        known_open[1] += receipt.count_left()
        self._of_group[key.group] += 1
        queue_id, queue_offset = receipt.revive
        known = self._revives.setdefault(queue_id, {})
        if known and queue_offset < next(reversed(known)):
            known = self._revives[queue_id] = dict.fromkeys(sorted((*known, queue_offset)))
        known[queue_offset] = None

    def _drop(self, key: ReceiptKey) -> None:
        receipt = self._rows.pop(key, None)
        if receipt is None:
            return
        del self._keys[receipt.place]
        self._revives[receipt.revive[0]].pop(receipt.revive[1], None)
        slots, second = self._slots_of(receipt), receipt.due_ms // _SLOT_MS
        slots[second].discard(key)
        if not slots[second]:
            del slots[second]
        known_open = self._open[key[:3]]
        known_open[0] -= 1
        known_open[1] -= receipt.count_left()
        if not known_open[0]:
            del self._open[key[:3]]
        self._of_group[key.group] -= 1
        if not self._of_group[key.group]:
            del self._of_group[key.group]

    def _slots_of(self, receipt: Receipt) -> dict[int, set[ReceiptKey]]:
        return self._adopted if receipt.by_rocketmq else self._slots

    def remove_topics(self, topics: Set[str]) -> None:
        """The topics were deleted at this place of the log: nothing of them can come back."""
        self._remove(key for key in self._rows if key.topic in topics)

    def remove_group(self, group: str) -> None:
        """The group was deleted at this place of the log: nobody waits for its messages."""
        self._remove(key for key in self._rows if key.group == group)

    def revived_below(self, queue_id: int, queue_offset: int) -> None:
        """Apache RocketMQ has finished all records of that revive queue before `queue_offset`."""
        self._remove(key for key, row in self._rows.items() if row.revive[0] == queue_id and row.revive[1] < queue_offset)

    def _remove(self, keys: Iterable[ReceiptKey]) -> None:
        for key in list(keys):
            self._drop(key)

    # --- what is asked

    def get(self, key: ReceiptKey) -> Receipt | None:
        """The receipt; None if it does not exist, or all its messages are done."""
        return self._rows.get(key)

    def is_full(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the group must acknowledge messages of that queue before it may have more."""
        return (
            self._open.get((group, topic, queue_id), _NONE)[0] >= MAX_OPEN_OF_QUEUE
            or self._of_group[group] >= MAX_OPEN_OF_GROUP
            or len(self._rows) >= MAX_OPEN
        )

    def open_of(self, group: str, topic: str, queue_id: int) -> int:
        """How many messages of that queue are handed out, and not done."""
        return self._open.get((group, topic, queue_id), _NONE)[1]

    def overdue_ms(self, now_ms: int) -> int:
        """For how long the oldest receipt has been due; 0: none is due."""
        return max(0, now_ms - min((*self._slots, *self._adopted), default=now_ms // _SLOT_MS + 1) * _SLOT_MS)

    def alive_from(self) -> int | None:
        """The lowest log offset that an open receipt needs (its own record comes after its messages)."""
        return min((row.pins for row in self._rows.values()), default=None)

    def revive_from(self, queue_id: int) -> int | None:
        """The queue offset of the first record in that revive queue whose receipt is open."""
        return next(iter(self._revives.get(queue_id, ())), None)

    # --- deciding: at the leader only

    def stage(self, key: ReceiptKey, queue_offsets: Sequence[int]) -> list[int]:
        """Stages the ends of these messages; gives those that are not done, and whose end is not being written already."""
        receipt = self._rows.get(key)
        if receipt is None:
            return []
        coming, bits = self._coming.get(key, 0), receipt.bits(queue_offsets)
        new = bits & ~(receipt.done | coming)
        if not new:
            return []
        self._coming[key] = coming | new
        if new.bit_count() == len(queue_offsets):  # nearly always
            return list(queue_offsets)
        return [queue_offset for queue_offset in dict.fromkeys(queue_offsets) if receipt.bits((queue_offset,)) & new]

    def coming(self, key: ReceiptKey, queue_offsets: Iterable[int]) -> set[int]:
        """Those of these messages whose end is being written."""
        receipt, coming = self._rows.get(key), self._coming.get(key, 0)
        if receipt is None or not coming:
            return set()
        return {queue_offset for queue_offset in queue_offsets if receipt.bits((queue_offset,)) & coming}

    def unstage(self, key: ReceiptKey, queue_offsets: Iterable[int]) -> None:
        """The end of these messages was certainly not written."""
        receipt, coming = self._rows.get(key), self._coming.pop(key, 0)
        if receipt is not None and (left := coming & ~receipt.bits(queue_offsets)):
            self._coming[key] = left

    def drop_overlay(self) -> None:
        """This node no longer leads: the new leader knows what is committed."""
        self._coming.clear()
        self._ahead_ms = None  # what the next leader hands out has its time from when it is seen here, too
        self.leadership += 1

    def due(self, now_ms: int, adopted_ms: int | None = None) -> Iterator[tuple[ReceiptKey, Receipt]]:
        """Receipts whose time is over (of those that RocketMQ opened: at `adopted_ms`), the oldest first; then those that were
        popped further ahead of this clock than store times may be: it was set back since, or another leader's was ahead. Their
        time counts from when that is first seen.
        There may be 150 000, so none is looked at before it is asked for; the table may change between two."""
        for slots, until_ms in ((self._adopted, now_ms if adopted_ms is None else adopted_ms), (self._slots, now_ms)):
            for slot in sorted(slot for slot in slots if slot * _SLOT_MS <= until_ms):
                keys = slots.get(slot, ())
                for key in sorted(keys, key=lambda key: self._rows[key].place):
                    receipt = self._rows.get(key)
                    if receipt is not None and receipt.due_ms <= until_ms:
                        yield key, receipt
        ahead = self._popped_after(now_ms + STEP_MS)
        since_ms = self._ahead_ms = min(self._ahead_ms or now_ms, now_ms) if ahead else None
        for key, receipt in ahead:
            if since_ms is not None and now_ms - since_ms >= receipt.due_ms - key.pop_time and not receipt.by_rocketmq:
                yield key, receipt

    def _popped_after(self, ms: int) -> list[tuple[ReceiptKey, Receipt]]:
        """In log order. Looks at every receipt, but only if there may be one."""
        if self._latest_ms <= ms:
            return []
        self._latest_ms = max([ms, *(key.pop_time for key in self._rows)])
        found = [(key, row) for key, row in self._rows.items() if key.pop_time > ms]
        return sorted(found, key=lambda pair: pair[1].place)

    def pinning(self, below: int) -> list[tuple[ReceiptKey, Receipt]]:
        """Receipts that need bytes below that log offset, in log order."""
        found = [(key, row) for key, row in self._rows.items() if row.pins < below]
        return sorted(found, key=lambda pair: pair[1].place)

    # --- as a table that a snapshot keeps

    def committed(self) -> Mapping[ReceiptKey, Receipt]:
        """The receipts that a failover keeps."""
        return self._rows

    def apply(self, key: Iterable[Any], value: Iterable[Any] | None, time_ms: int = 0) -> None:
        """A row of a snapshot; None removes it."""
        place = ReceiptKey(*key)
        if value is None:
            self._drop(place)
            return
        at, pins, due_ms, queue_offsets, done, revive = value
        self.opened(place, Receipt(at, pins, due_ms, tuple(queue_offsets), done, tuple(revive)))
