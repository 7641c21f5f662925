"""What a committed record does to this broker: tables change, waiting pulls wake. (The queues are dispatch's business.)

Runs once for every committed unit, in log order, before its sender is answered; at start for every state record.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from rmq.broker import snapshot
from rmq.broker.feature import Feature
from rmq.broker.held.delays import DelayNotes
from rmq.broker.held.halves import HalfNotes
from rmq.broker.held.kinds import Held
from rmq.broker.held.receipts import ReceiptNotes
from rmq.broker.longpoll import LongPolls
from rmq.broker.state import Line, Table, apply_lines, lines_of
from rmq.delivery.cursors import CursorTable
from rmq.delivery.due import DueTable
from rmq.delivery.groups import GroupTable
from rmq.delivery.locks import LockTable
from rmq.delivery.modes import ModeTable
from rmq.delivery.offsets import OffsetTable
from rmq.delivery.orders import OrderTable
from rmq.delivery.proof import DUE, HALF, POP
from rmq.delivery.receipts import ReceiptTable
from rmq.delivery.resets import ResetTable
from rmq.delivery.transactions import HalfTable
from rmq.log.commitlog import Unit
from rmq.log.records import record
from rmq.log.records.delays import LEVELS_MS
from rmq.log.replay import replay
from rmq.log.store import Store
from rmq.model import EPOCH_TOPIC, STATE_TOPIC
from rmq.routing.topics import TopicTable

OWN_TOPICS = frozenset({EPOCH_TOPIC, STATE_TOPIC})


class Tables:
    """The tables that state records fill."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        segment_bytes: int = 1 << 30,
        delays_ms: Sequence[int] = LEVELS_MS,
    ) -> None:
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.cursors = CursorTable()
        self.locks = LockTable()
        self.due = DueTable(segment_bytes, delays_ms)
        self.halves = HalfTable()
        self.receipts = ReceiptTable()
        self.orders = OrderTable()
        self.modes = ModeTable()
        popped = ReceiptNotes(self.receipts, offsets, topics)
        self.held = Held({DUE: DelayNotes(self.due), HALF: HalfNotes(self.halves), POP: popped})
        self.by_name: Mapping[str, Table] = {
            "topic": topics, "group": groups, "offset": offsets, "reset": offsets.resets, "cursor": self.cursors,
            "lock": self.locks, "due": self.due, **self.halves.by_name,
            "receipt": self.receipts, "orderInfo": self.orders, "mode": self.modes, "topicEnd": topics.ends,
        }  # fmt: skip
        self._of_topics: Mapping[str, OffsetTable | ResetTable | LockTable | OrderTable | ModeTable] = {
            "offset": offsets,
            "reset": offsets.resets,
            "lock": self.locks,
            "orderInfo": self.orders,
            "mode": self.modes,
        }

    def clear(self) -> None:
        """All rows go: the log begins anew."""
        for table in self.by_name.values():
            for key in list(table.committed()):
                table.apply(key, None)

    def note(self, stored: record.Record) -> None:
        """A committed record that a start tells again (`rmq.log.replay`)."""
        if stored.topic == STATE_TOPIC:
            self.apply(lines_of(stored.body), stored.store_timestamp, stored.physical_offset)
        else:
            self.held.note(stored)

    def drop_overlays(self) -> None:
        """This node leads no more: what was on its way is the new leader's to know."""
        popping = (self.receipts, self.orders, self.modes)
        for table in (self.topics, self.groups, self.offsets, self.offsets.resets, self.locks, self.due, self.halves, *popping):
            table.drop_overlay()

    def apply(self, lines: Sequence[Line], time_ms: int, offset: int) -> None:
        """One committed record, at `offset` of the log. A deleted topic, or group, takes along what others keep of it; what is
        said of a topic behind its deletion goes with it."""
        apply_lines(self.by_name, lines, time_ms)
        for table, name, value in lines:
            if table in self._of_topics:
                if value is not None and self.topics.is_gone(topic := _topic_in(name)):
                    self._of_topics[table].remove_topic(topic)
            elif table == "topic" and value is None:
                self.topics.ends.apply(name, offset)
                self.receipts.remove_topic(name)
                for kept in self._of_topics.values():
                    kept.remove_topic(name)
            elif table == "group" and value is None:
                for other in (self.locks, self.receipts, self.orders, self.modes):
                    other.remove_group(name)


def _topic_in(key: Any) -> str:
    """The topic in a key (group, topic, ...), or in a name topic@group...."""
    return str(key).partition("@")[0] if isinstance(key, str) else str(key[1])


def fill(tables: Tables, store: Store) -> None:
    """Empty tables, from the newest snapshot and what was committed since. In any thread. Raises BadBytes, StoreError."""
    snapshot.load(tables.by_name, store)
    for stored in replay(store):
        tables.note(stored)


class Applier:
    """`features`: they hear of what was changed; may still be filled while nothing is committed."""

    def __init__(self, tables: Tables, polls: LongPolls, features: Sequence[Feature]) -> None:
        self._tables = tables
        self._polls = polls
        self._features = features

    def committed(self, units: Sequence[Unit], time_ms: int) -> None:
        for unit in units:
            queue = unit.queue
            if queue.topic in OWN_TOPICS:
                self._committed_own(unit, time_ms)
            elif unit.special:
                for stored in record.iterate(unit.records):
                    self._tables.held.note(stored)
            if self._polls:
                self._polls.wake(queue.topic, queue.queue_id, unit.tags_codes)

    def _committed_own(self, unit: Unit, time_ms: int) -> None:
        if unit.queue.topic == EPOCH_TOPIC:
            for feature in self._features:
                feature.on_epoch()
        else:
            places = accumulate(unit.sizes, initial=unit.physical_offset)
            for stored, offset in zip(record.iterate(unit.records), places, strict=False):
                self._apply(lines_of(stored.body), time_ms, offset)

    def _apply(self, lines: Sequence[Line], time_ms: int, offset: int) -> None:
        self._tables.apply(lines, time_ms, offset)
        groups: dict[str, None] = {}
        for table, name, value in lines:
            if table == "topic":
                for feature in self._features:
                    feature.on_topic(name)
            elif table == "group":
                groups[name] = None
            elif table == "reset" and value is not None:
                groups[name[0]] = None
        for group in groups:
            for feature in self._features:
                feature.on_group(group)
