"""The tables that state records fill: one list, whose order is that of the sections in snapshots."""

from collections.abc import Mapping, Sequence
from typing import Any

from rmq.access.owners import OwnerTable
from rmq.access.policies import PolicyTable
from rmq.access.quotas import QuotaTable
from rmq.access.users import UserTable
from rmq.broker.pending.delays import DelayNotes
from rmq.broker.pending.halves import HalfNotes
from rmq.broker.pending.kinds import Pending
from rmq.broker.pending.receipts import ReceiptNotes
from rmq.broker.shared.state import Line, Table, apply_lines, lines_of
from rmq.broker.tables import snapshot
from rmq.delivery.cursors import CursorTable
from rmq.delivery.due import DueTable
from rmq.delivery.forbidden import ForbiddenTable
from rmq.delivery.groups import GroupTable
from rmq.delivery.locks import LockTable
from rmq.delivery.modes import ModeTable
from rmq.delivery.offsets import OffsetTable
from rmq.delivery.orders import OrderTable
from rmq.delivery.proof import DUE, HALF, POP
from rmq.delivery.receipts import ReceiptTable
from rmq.delivery.totals import TotalsTable
from rmq.delivery.transactions import HalfTable
from rmq.log.records import record
from rmq.log.records.delays import LEVELS_MS
from rmq.log.replay import replay
from rmq.log.store import Store
from rmq.model import LIGHT_PREFIX, STATE_TOPIC
from rmq.names import lite_parts
from rmq.routing.kinds import holds_batches
from rmq.routing.topics import TopicTable

LATE = frozenset(
    {"offset", "reset", "lock", "orderInfo", "mode", "forbidden"}
)  # lines may come behind the deletion of their topic


class Tables:
    """All tables, and the kinds of messages that wait (docs/decisions/tables-stand-in-one-list.md)."""

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
        self.forbidden = ForbiddenTable()
        self.totals = TotalsTable()
        self.users = UserTable()
        self.policies = PolicyTable()
        self.quotas = QuotaTable()
        self.owners = OwnerTable()
        self.popped = ReceiptNotes(self.receipts, offsets, topics, groups)
        self.pending = Pending({DUE: DelayNotes(self.due), HALF: HalfNotes(self.halves), POP: self.popped})
        self.by_name: Mapping[str, Table] = {  # by the name of their lines; sections of snapshots stand in this order
            "topic": topics,
            "group": groups,
            "offset": offsets,
            "reset": offsets.resets,
            "cursor": self.cursors,
            "lock": self.locks,
            "due": self.due,
            **self.halves.by_name,
            "receipt": self.receipts,
            "orderInfo": self.orders,
            "mode": self.modes,
            "topicEnd": topics.ends,
            "user": self.users,
            "acl": self.policies,
            "quota": self.quotas,
            "forbidden": self.forbidden,
            "total": self.totals,
            "owner": self.owners,
        }

    def clear(self) -> None:
        """All rows go: the log begins anew."""
        for table in self.by_name.values():
            for key in list(table.committed()):
                table.apply(key, None)

    def note(self, stored: record.Record) -> None:
        """Applies a committed record that a start replays (`rmq.log.replay`)."""
        if stored.topic == STATE_TOPIC:
            self.apply(lines_of(stored.body), stored.store_timestamp, stored.physical_offset)
        else:
            self.pending.note(stored)

    def drop_overlays(self) -> None:
        """This node leads no more: forget changes that are not committed."""
        self.halves.drop_overlay()
        for table in self.by_name.values():
            table.drop_overlay()

    def apply(self, lines: Sequence[Line], time_ms: int, offset: int) -> None:
        """Applies one committed record, at `offset` of the log. A deleted topic, or group, takes along what other tables keep
        of it, also lines about a topic that come behind its deletion."""
        apply_lines(self.by_name, lines, time_ms)
        gone = set[str]()
        for table, name, value in lines:
            if table == "reset" and value is not None:
                self.orders.forget(*name)
            if table in LATE:
                if value is not None and self.topics.is_gone(_parent(topic := _topic_in(name))):
                    self.by_name[table].remove_topic(topic)
            elif table == "topic" and value is None:
                if not name.startswith(LIGHT_PREFIX):  # they come and go; nothing waits for their lives
                    self.topics.ends.apply(name, offset)
                gone.add(name)
            elif table == "group" and value is None:
                for each in self.by_name.values():
                    each.remove_group(name)
        if gone:
            for each in self.by_name.values():
                each.remove_topics(gone)


def _topic_in(key: Any) -> str:
    """The topic in a key (group, topic, ...), or in a name topic@group...."""
    return str(key).partition("@")[0] if isinstance(key, str) else str(key[1])


def _parent(topic: str) -> str:
    """The topic that a lite topic goes with; any other topic itself."""
    return lite_parts(topic)[0] or topic


def fill(tables: Tables, store: Store) -> None:
    """Empty tables, from the newest snapshot and what was committed since. In any thread. Raises BadBytes, StoreError."""
    snapshot.load(tables.by_name, store)
    for stored in replay(store):
        tables.note(stored)
    for topic in tables.topics.all():
        if holds_batches(topic):  # what says so may have left the log
            store.queues.hold_batches(topic.name)
