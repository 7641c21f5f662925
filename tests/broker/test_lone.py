"""A node that no other node follows: who hears what when its records are committed."""

from collections.abc import Callable, Sequence

import pytest

from rmq.broker.replication.alone import LoneReplica
from rmq.broker.replication.latencies import Latencies
from rmq.log.files.memory import MemoryDisk
from rmq.log.records import record
from rmq.log.records.checking import check
from rmq.log.settings import StoreSettings
from rmq.log.store import Store
from rmq.log.units import Unit
from rmq.net.transport.requestlog import RequestLog
from rmq.testing import TestClock, until
from tests.broker.support import BORN


class Told:
    """A turn that ends when the test says so, and what happened in it."""

    def __init__(self, sync_flush: bool) -> None:
        self._works: list[Callable[[], None]] = []
        self.events: list[str] = []
        clock = TestClock(running=False)
        self.store = Store.open(MemoryDisk(), "/store", StoreSettings(BORN, segment_bytes=65536, queue_file_entries=50))
        self.store.open_epoch(clock.wall_ms())
        latencies = Latencies(clock, RequestLog(clock))
        self.replica = LoneReplica(self.store.log, self.store.dispatcher, clock, sync_flush, self._committed, latencies)
        self.replica.start()
        self.replica.appender.turn = self

    def at_turn_end(self, work: Callable[[], None]) -> None:
        self._works.append(work)

    def write(self) -> None:
        self.events.append("written")

    def end_turn(self) -> None:
        self.events.clear()
        while self._works:
            self._works.pop(0)()

    def _committed(self, units: Sequence[Unit], _stored_ms: int) -> None:
        self.events += [f"{unit.queue.topic} has {unit.queue.max}" for unit in units]

    def propose(self, topic: str, told_first: bool) -> None:
        data = record.draft(topic, b"body", b"", born_timestamp=1000, born_host=BORN)
        unit = Unit(data, *check(data, topic)[:2], self.store.queues.get(topic, 0), (self._hear, None))
        if told_first:
            unit.tells = self._tell
        self.replica.appender.propose(unit)

    def _tell(self, units: Sequence[Unit], late: int) -> None:
        for unit in units:
            unit.owner = None
            self._hear(None, unit, None, late)

    def _hear(self, _argument: object, unit: Unit, error: object, late: int) -> None:
        assert (error, late) == (None, 0)
        self.events.append(f"{unit.queue.topic} is told {unit.queue_offset}, has {unit.queue.max}")


@pytest.mark.parametrize("sync_flush", [False, True])
async def test_senders_hear_first_and_others_when_tables_and_queues_have_it(sync_flush: bool) -> None:
    """While a sender reads its answer, its message goes to queue and tables; the loop does nothing else between the two."""
    node = Told(sync_flush)
    for topic, told_first in (("Sent", True), ("Line", False), ("Sent", True)):
        node.propose(topic, told_first)
    node.end_turn()
    await until(lambda: len(node.events) == 7)
    first = ["Sent is told 0, has 0", "Sent is told 1, has 0", "written"]
    assert node.events == [*first, "Sent has 2", "Line has 1", "Sent has 2", "Line is told 0, has 1"]
    await node.replica.stop()
