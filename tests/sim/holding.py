"""Messages that wait for their time, at one node of the simulation: the real table and the real notes.

The leader hands on what is due; in the end each was handed on once, or still waits at every node (C13).
"""

from collections import Counter
from typing import TYPE_CHECKING

from rmq.broker.delays import LEVELS_MS, DelayNotes, take_level
from rmq.broker.held import Held
from rmq.broker.outlet import handed_on
from rmq.delivery.due import DueTable, Source
from rmq.delivery.proof import DUE, PROPERTY, Proof, proof_of
from rmq.errors import Refusal, StoreError
from rmq.log import record
from rmq.log.commitlog import Unit
from rmq.model import DELAY_TOPIC

if TYPE_CHECKING:
    from tests.sim.judge import Judge
    from tests.sim.node import Node

SECTION = "due"  # of the snapshots
BITE = 5


class Holding:
    """One for each run of a node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.table = DueTable(node.store.log.segment_bytes, LEVELS_MS)
        self.notes = Held({DUE: DelayNotes(self.table)})

    def rows(self) -> list[tuple[int, object]]:
        """For a snapshot."""
        return list(self.table.committed().items())

    def committed(self, unit: Unit) -> None:
        if unit.special:
            for stored in record.iterate(unit.records):
                self.notes.note(stored)

    def hand_on(self) -> None:
        """As the leader that it is: what is due now, if the log takes it."""
        node = self._node
        found = self.table.due(node.wall_ms(), BITE)
        if not found:
            return
        try:
            node.member.append([self._unit(source) for source in found])
        except (StoreError, Refusal):
            for source in found:
                self.table.not_stored(source)
            return
        node.world.judge.counts["handed on"] += len(found)
        node.grew()

    def _unit(self, source: Source) -> Unit:
        log = self._node.store.log
        size = int.from_bytes(log.read(source.offset, 4), "big")
        stored = record.decode(log.read(source.offset, size))
        said = record.bytes_to_properties(stored.properties)
        queue = self._node.store.queues.get(said["REAL_TOPIC"], int(said["REAL_QID"]))
        return _special(handed_on(stored, queue.topic, Proof(DUE, source.offset, source.due_ms)), queue)


def delayed(node: "Node", draft: bytes, level: int, queue_id: int) -> Unit:
    """A message that is to wait."""
    message = record.decode(draft)
    properties = record.properties_to_bytes({"DELAY": str(level)})
    placed = take_level(message._replace(properties=properties), queue_id)
    assert placed is not None
    return _special(placed.draft, node.store.queues.get(placed.topic, placed.queue_id))


def _special(draft: bytes, queue: object) -> Unit:
    unit = Unit(draft, (len(draft),), (0,), queue)  # type: ignore[arg-type]
    unit.special = True
    return unit


class Handed:
    """What a log says, record by record, of messages that waited in it."""

    def __init__(self) -> None:
        self._waited: dict[int, int] = {}  # offset -> due
        self._times: Counter[int] = Counter()

    def look(self, found: record.Record) -> None:
        proof = proof_of(record.bytes_to_properties(found.properties).get(PROPERTY, ""))
        if found.topic == DELAY_TOPIC:
            self._waited[found.physical_offset] = found.store_timestamp
        elif proof is not None:
            self._times[proof.source] += 1

    def check(self, judge: "Judge", node: "Node") -> None:
        twice = [offset for offset, times in self._times.items() if times > 1]
        judge.check(not twice, "C13", f"handed on more than once: {twice}")
        waits = [source.offset for bite in node.holding.table.below(1 << 62, BITE) for source in bite]
        wanted = sorted(offset for offset in self._waited if not self._times[offset])
        judge.check(sorted(waits) == wanted, "C13", f"{node.name} says {sorted(waits)} wait, the log says {wanted}")
        judge.counts["waited"] += len(self._waited)
