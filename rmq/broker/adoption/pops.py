"""POP state of a store of Apache RocketMQ: open receipts, what is handed out in order, and which groups pop."""

from collections.abc import Iterator, Mapping
from typing import Any

from rmq.broker.pending.receipts import ACK, BATCH_ACK, OPEN, REVIVE_GROUP, read_body, receipt_of
from rmq.broker.shared.state import Line
from rmq.broker.tables.tables import Tables
from rmq.delivery import modes, orders
from rmq.delivery.offsets import OffsetKey
from rmq.delivery.receipts import Receipt, ReceiptKey, ReceiptTable
from rmq.log.files import epochs
from rmq.log.records import record
from rmq.log.records.record import Record
from rmq.log.store import Store
from rmq.model import REVIVE_PREFIX, TIMER_TOPIC


def lines(store: Store, tables: Tables, offsets: Mapping[OffsetKey, int], said: Mapping[str, Any]) -> list[Line]:
    """The state lines after which the tables know it. `said`: consumerOrderInfo.json and messageRequestMode.json, by name.

    Receipts that RocketMQ's revive service has done with are done; those that still wait in its timer come with the timers.
    Raises BadBytes.
    """
    found: list[Line] = []
    for name, row in orders.from_json(said.get("consumerOrderInfo.json")).items():
        if tables.orders.get(name) != row:
            found.append(("orderInfo", name, list(row)))
    for name, mode in modes.from_json(said.get("messageRequestMode.json")).items():
        if tables.modes.get(name) != mode:
            found.append(("mode", name, list(mode)))
    return found + _receipts(store, tables.receipts, offsets)


def _receipts(store: Store, known: ReceiptTable, offsets: Mapping[OffsetKey, int]) -> list[Line]:
    before, now = dict(known.committed()), ReceiptTable()
    for key, receipt in before.items():
        now.opened(key, receipt)
    for queue in store.queues.all():
        if queue.topic.startswith(REVIVE_PREFIX):
            begin = offsets.get(OffsetKey(REVIVE_GROUP, queue.topic, queue.queue_id), -1) + 1  # it names the last one done
            now.revived_below(queue.queue_id, begin)
            for stored in store.records(queue.topic, queue.queue_id, begin):
                if epochs.written_by_rocketmq(store.epochs, stored.physical_offset):
                    _note(store, now, stored)
    for stored in store.records(TIMER_TOPIC, 0):
        if epochs.written_by_rocketmq(store.epochs, stored.physical_offset):
            _note_early(now, stored)
    after = now.committed()
    gone: list[Line] = [("receipt", key, None) for key in sorted(before.keys() - after.keys())]
    return gone + [("receipt", key, list(row)) for key, row in sorted(after.items()) if before.get(key) != row]


def _note(store: Store, table: ReceiptTable, stored: Record) -> None:
    """A record that cannot be read belongs to no receipt."""
    tag = record.bytes_to_properties(stored.properties).get("TAGS")
    try:
        key, said = read_body(stored.body)
        if tag == OPEN:
            receipt = receipt_of(said, stored, stored.physical_offset)
            table.opened(key, receipt._replace(pins=min(_places(store, key, receipt), default=receipt.pins)))
        elif tag in (ACK, BATCH_ACK):
            _acked(table, key, said)
    except (ValueError, KeyError, TypeError):
        return


def _note_early(table: ReceiptTable, stored: Record) -> None:
    """What acknowledges a receipt comes out of the timer a second after it: it must not wait there while the receipt is due."""
    properties = record.bytes_to_properties(stored.properties)
    if properties.get("REAL_TOPIC", "").startswith(REVIVE_PREFIX) and properties.get("TAGS") in (ACK, BATCH_ACK):
        try:
            _acked(table, *read_body(stored.body))
        except (ValueError, KeyError, TypeError):
            return


def _acked(table: ReceiptTable, key: ReceiptKey, said: Mapping[str, Any]) -> None:
    table.acked(key, said.get("aol") or (said["ao"],))


def _places(store: Store, key: ReceiptKey, receipt: Receipt) -> Iterator[int]:
    queue = store.queues.find(key.topic, key.queue_id)
    for queue_offset in receipt.queue_offsets:
        if queue is not None and queue.min <= queue_offset < queue.max:
            yield queue.entry(queue_offset).offset
