"""Messages that wait, at one node of the simulation: the real tables and the real notes of what waits for its time, and of
halves of transactions.

The leader hands on what is due, and ends some halves, one way or the other, or appends them again. In the end each was handed
on or ended once, or still waits at every node (C11, C13).
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rmq.broker.held import halves
from rmq.broker.held.delays import LEVELS_MS, DelayNotes, take_level
from rmq.broker.held.kinds import Held
from rmq.broker.held.outlet import handed_on
from rmq.broker.state import Table
from rmq.delivery.due import DueTable, Source
from rmq.delivery.proof import DUE, HALF, PROPERTY, Proof, proof_of
from rmq.delivery.transactions import COMMITTED, ROLLED_BACK, Half, HalfTable
from rmq.errors import Refusal, StoreError
from rmq.log import record
from rmq.log.commitlog import Unit
from rmq.log.consumequeue import ConsumeQueue
from rmq.model import DELAY_TOPIC, HALF_TOPIC, OP_TOPIC

if TYPE_CHECKING:
    from tests.sim.judge import Judge
    from tests.sim.node import Node

BITE = 5
HOST = record.host_bytes("127.0.0.1", 10911)


class Holding:
    """One for each run of a node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.due = DueTable(node.store.log.segment_bytes, LEVELS_MS)
        self.halves = HalfTable()
        self.notes = Held({DUE: DelayNotes(self.due), HALF: halves.HalfNotes(self.halves)})
        self.by_name: Mapping[str, Table] = {"due": self.due, **self.halves.by_name}

    def rows(self) -> dict[str, list[tuple[object, object]]]:
        """For a snapshot: section by section."""
        return {name: list(table.committed().items()) for name, table in self.by_name.items()}

    def load(self, section: str, rows: list[tuple[object, object]]) -> None:
        for key, value in rows if section in self.by_name else ():
            self.by_name[section].apply(key, value)

    def drop_overlay(self) -> None:
        self.due.drop_overlay()
        self.halves.drop_overlay()

    def alive_from(self) -> int:
        """What lies below may go: the committed end, if nothing waits."""
        alive = self.notes.alive_from()
        return self._node.core.state.hw if alive is None else alive

    def committed(self, unit: Unit) -> None:
        if unit.special:
            for stored in record.iterate(unit.records):
                self.notes.note(stored)

    def hand_on(self) -> None:
        """As the leader that it is: what is due now, if the log takes it."""
        node = self._node
        found = self.due.due(node.wall_ms(), BITE)
        if not found:
            return
        units = [self._unit(source) for source in found]
        try:
            node.member.append(units)
        except (StoreError, Refusal):
            for source in found:
                self.due.not_stored(source)
            return
        node.world.judge.counts["handed on"] += len(found)
        node.grew()

    def end_some(self) -> None:
        """As a producer that speaks, or one that is asked after: of some halves."""
        node, chance = self._node, self._node.world.chance
        for first in list(self.halves.open.rows)[:BITE]:
            half = self.halves.at_rest(first)
            if half is None or chance.random() < 0.5:
                continue
            outcome = chance.choice((COMMITTED, ROLLED_BACK, ""))
            if outcome:
                self.halves.end(first, outcome)
            else:
                self.halves.move(first)
            unit = self._ending(first, half, outcome)
            try:
                node.member.append([unit])
            except (StoreError, Refusal):
                self.halves.not_ended(first)
                self.halves.not_moved(first)
                return
            node.world.judge.counts["halves ended" if outcome else "halves appended again"] += 1
            node.grew()

    def _ending(self, first: int, half: Half, outcome: str) -> Unit:
        queues, stored = self._node.store.queues, self._stored(half.offset)
        if outcome == COMMITTED:
            message = halves.whole(stored)
            return _special(halves.committed(message, message.topic, first, first), queues.get(message.topic, message.queue_id))
        if outcome == ROLLED_BACK:
            return _special(halves.op_draft([half.number], 1, HOST, first), queues.get(OP_TOPIC, 0))
        return _special(halves.again(stored, first, half.checks + 1), queues.get(HALF_TOPIC, 0))

    def _stored(self, offset: int) -> record.Record:
        log = self._node.store.log
        return record.decode(log.read(offset, int.from_bytes(log.read(offset, 4), "big")))

    def _unit(self, source: Source) -> Unit:
        stored = self._stored(source.offset)
        said = record.bytes_to_properties(stored.properties)
        queue = self._node.store.queues.get(said["REAL_TOPIC"], int(said["REAL_QID"]))
        return _special(handed_on(stored, queue.topic, Proof(DUE, source.offset, source.due_ms)), queue)

    def held(self, draft: bytes, how: dict[str, str], queue_id: int) -> Unit:
        """A message that is to wait, because its properties say so."""
        message = record.decode(draft)._replace(properties=record.properties_to_bytes(how))
        takers = (halves.half_taker(self.halves, reject=False), take_level)
        placed = next(found for taker in takers if (found := taker(message, queue_id)))
        return _special(placed.draft, self._node.store.queues.get(placed.topic, placed.queue_id))


def _special(draft: bytes, queue: ConsumeQueue) -> Unit:
    unit = Unit(draft, (len(draft),), (0,), queue)
    unit.special = True
    return unit


class Handed:
    """What a log says, record by record, of messages that waited in it."""

    def __init__(self) -> None:
        self._waited: set[int] = set()
        self._halves: set[int] = set()
        self._times: Counter[int] = Counter()

    def look(self, found: record.Record) -> None:
        proof = proof_of(record.bytes_to_properties(found.properties).get(PROPERTY, ""))
        if found.topic == DELAY_TOPIC:
            self._waited.add(found.physical_offset)
        elif found.topic == HALF_TOPIC:
            self._halves.add(proof.source if proof is not None and proof.kind == HALF else found.physical_offset)
        elif proof is not None:
            self._times[proof.source] += 1

    def check(self, judge: "Judge", node: "Node") -> None:
        holding, twice = node.holding, [offset for offset, times in self._times.items() if times > 1]
        judge.check(not twice, "C13", f"handed on or ended more than once: {twice}")
        waits = sorted(source.offset for bite in holding.due.below(1 << 62, BITE) for source in bite)
        wanted = sorted(offset for offset in self._waited if not self._times[offset])
        judge.check(waits == wanted, "C13", f"{node.name} says {waits} wait, the log says {wanted}")
        still_open = sorted(holding.halves.open.rows)
        wanted = sorted(first for first in self._halves if not self._times[first])
        judge.check(still_open == wanted, "C11", f"{node.name} says {still_open} are open, the log says {wanted}")
        judge.counts["waited"] += len(self._waited) + len(self._halves)
