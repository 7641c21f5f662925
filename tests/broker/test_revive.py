"""Receipts that are overdue, by the thousand, as when a group stood still for long or a node was away."""

import random
from collections.abc import Iterator

from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.pending.receipts import ReceiptNotes, ReceiptWriter
from rmq.broker.pending.revive import AT_ONCE, ReviveService
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.ports import Identity
from rmq.delivery.receipts import Receipt, ReceiptKey, ReceiptTable
from rmq.log.records.record import host_bytes
from rmq.testing import LocalBroker, TestClock

US = Identity("cluster", "broker", host_bytes("127.0.0.1", 10911), "127.0.0.1:10911")


class Slow(ReceiptTable):
    """Each receipt takes a second, as where the disk is slow."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__()
        self.looked_at = 0
        self._clock = clock

    def due(self, now_ms: int, adopted_ms: int | None = None) -> Iterator[tuple[ReceiptKey, Receipt]]:
        for pair in super().due(now_ms, adopted_ms):
            self.looked_at += 1
            self._clock.skip(1)
            yield pair


def service_of(broker: LocalBroker, table: ReceiptTable, waits_from_ms: int | None = None) -> ReviveService:
    serving = broker.serving
    tables, reader, writer = serving.tables, serving.reader, serving.writer
    catalog = Catalog(tables.topics, tables.groups, writer.commit, True, lambda: True, tables.forbidden)
    notes = ReceiptNotes(table, tables.offsets, tables.topics, tables.groups)
    receipts = ReceiptWriter(notes, writer.propose_state, reader.queues, US, broker.clock, random.Random(1))
    producer = InternalProducer(reader, tables.topics, writer)
    return ReviveService(table, catalog, reader.queues, producer, receipts, lambda: waits_from_ms, broker.clock)


async def test_those_for_which_there_is_no_time_are_not_looked_at() -> None:
    """All were sorted first, each second: 150 000 of them held the loop up for a second and more, and every send with it."""
    async with LocalBroker(clock=TestClock(running=False)) as broker:
        table = Slow(broker.clock)
        for place in range(1000):
            table.opened(ReceiptKey("g", "Gone", 0, place, 1), Receipt(place, place, place, (place,)))
        await service_of(broker, table).revive()
        assert table.looked_at == AT_ONCE


async def test_those_of_rocketmq_that_wait_for_its_acknowledgements_are_not_looked_at() -> None:
    """200 000 of an adopted store were, all in one turn of the loop, which took a second each time."""
    async with LocalBroker(clock=TestClock(running=False)) as broker:
        table, now_ms = Slow(broker.clock), broker.clock.wall_ms()
        for place in range(1000):
            table.opened(ReceiptKey("g", "Gone", 0, place, 1), Receipt(place, place, now_ms - 1000, (place,)))
        table.opened(ReceiptKey("g", "Gone", 0, 2000, 1), Receipt(2000, 1999, now_ms - 1000, (2000,)))
        await service_of(broker, table, waits_from_ms=now_ms - 1500).revive()
        assert table.looked_at == 1, "one of ours"
        await service_of(broker, table).revive()
        assert table.looked_at > AT_ONCE
