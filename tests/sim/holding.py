"""Pending messages at one node of the simulation. The tables of delayed messages and of transactions, and the code that fills
them, are the broker's own; receipts are in `.lives`.

The leader hands on what is due. It commits some halves, rolls others back, or appends them again. It drops messages for a
topic that was deleted. In the end each message was handed on or ended once, or is still pending at every node (C11, C13).
"""

from collections import Counter
from typing import TYPE_CHECKING

import msgpack
import orjson

from rmq.broker.pending import halves
from rmq.broker.pending.delays import take_level
from rmq.broker.pending.internalproducer import handed_on
from rmq.broker.tables.tables import Tables
from rmq.delivery.due import Source
from rmq.delivery.groups import GroupTable
from rmq.delivery.offsets import OffsetTable
from rmq.delivery.proof import DUE, HALF, POP, Proof, proof_in
from rmq.delivery.transactions import COMMITTED, ROLLED_BACK, Half
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import record
from rmq.log.units import Unit
from rmq.model import DELAY_TOPIC, HALF_TOPIC, OP_TOPIC, REVIVE_PREFIX, STATE_TOPIC
from rmq.routing.lives import Life
from rmq.routing.topics import TopicTable
from tests.sim.lives import Lives

if TYPE_CHECKING:
    from tests.sim.judge import Judge
    from tests.sim.node import Node

BITE = 5
HOST = record.host_bytes("127.0.0.1", 10911)


class Holding:
    """A node's pending messages; each of its runs has a new one."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.tables = Tables(TopicTable(), GroupTable(), OffsetTable(), node.store.log.segment_bytes)
        self.due, self.halves, self.notes, self.by_name = (
            self.tables.due,
            self.tables.halves,
            self.tables.pending,
            self.tables.by_name,
        )
        self.lives = Lives(node, self.tables)

    def rows(self) -> dict[str, list[tuple[object, object]]]:
        """Returns the rows of a snapshot, section by section."""
        return {name: list(table.committed().items()) for name, table in self.by_name.items()}

    def load(self, section: str, rows: list[tuple[object, object]]) -> None:
        for key, value in rows if section in self.by_name else ():
            self.by_name[section].apply(key, value)

    def drop_overlay(self) -> None:
        self.tables.drop_overlays()

    def alive_from(self) -> int:
        """Returns the offset below which no pending message needs the log: the end of what is applied if nothing is pending."""
        alive = self.notes.alive_from()
        return self._node.applied if alive is None else alive

    def committed(self, unit: Unit) -> None:
        if unit.pending_change:
            for stored in unit.decoded:
                self.notes.note(stored)

    def hand_on(self) -> None:
        """The leader hands on what is due now, if the log takes it."""
        node = self._node
        found = self.due.due(node.wall_ms(), BITE)
        if not found:
            return
        for source in found:
            stored = node.stored(source.offset)
            topic = record.bytes_to_properties(stored.properties)["REAL_TOPIC"]
            life = self.tables.topics.life(topic, source.offset)
            done = False
            if life is Life.OVER:
                done = self.lives.append("dropped", self.lives.lines(["due", list(source), None]))
            elif life is not Life.ENDING:
                done = self.lives.append("handed on", self._unit(source, stored))
            if not done:
                self.due.not_stored(source)

    def end_some(self) -> None:
        """Producers end some halves, unasked or when the leader asks them."""
        node, chance = self._node, self._node.world.chance
        for first in list(self.halves.open.rows)[:BITE]:
            half = self.halves.at_rest(first)
            if half is None or chance.random() < 0.5:
                continue
            outcome = chance.choice((COMMITTED, ROLLED_BACK, ""))
            if self.tables.topics.life(halves.real_place(node.stored(half.offset))[0], first) is Life.OVER:
                outcome = ROLLED_BACK
            if outcome:
                self.halves.end(first, outcome)
            else:
                self.halves.move(first)
            what = "halves ended" if outcome else "halves appended again"
            if not self.lives.append(what, self._ending(first, half, outcome)):
                self.halves.not_ended(first)
                self.halves.not_moved(first)
                return

    def _ending(self, first: int, half: Half, outcome: str) -> Unit:
        queues, stored = self._node.store.queues, self._node.stored(half.offset)
        if outcome == COMMITTED:
            message = halves.whole(stored)
            return _pending(halves.committed(message, message.topic, first, first), queues.get(message.topic, message.queue_id))
        if outcome == ROLLED_BACK:
            return _pending(halves.op_draft([half.queue_offset], 1, HOST, first), queues.get(OP_TOPIC, 0))
        return _pending(halves.again(stored, first, half.checks + 1), queues.get(HALF_TOPIC, 0))

    def _unit(self, source: Source, stored: record.Record) -> Unit:
        said = record.bytes_to_properties(stored.properties)
        queue = self._node.store.queues.get(said["REAL_TOPIC"], int(said["REAL_QID"]))
        return _pending(handed_on(stored, queue.topic, Proof(DUE, source.offset, source.due_ms)), queue)

    def held(self, draft: bytes, how: dict[str, str], queue_id: int) -> Unit:
        """Returns a message whose properties say that it is to wait."""
        message = record.decode(draft)._replace(properties=record.properties_to_bytes(how))
        interceptors = (halves.half_interceptor(self.halves), take_level)
        placed = next(found for interceptor in interceptors if (found := interceptor(message, queue_id)))
        return _pending(placed.draft, self._node.store.queues.get(placed.topic, placed.queue_id))


def _pending(draft: bytes, queue: ConsumeQueue) -> Unit:
    unit = Unit(draft, (len(draft),), (0,), queue)
    unit.pending_change = True
    return unit


class Handed:
    """What the records of a log say of the pending messages in it."""

    def __init__(self) -> None:
        self._waited: set[int] = set()
        self._halves: set[int] = set()
        self._times: Counter[int] = Counter()
        self._back: Counter[tuple[int, int]] = Counter()  # receipt, number
        self._source: dict[int, str] = {}  # the topic that what waits at an offset is for
        self._ends: dict[str, int] = {}  # where each topic was deleted last
        self._over: list[str] = []

    def look(self, found: record.Record) -> None:
        said = record.bytes_to_properties(found.properties)
        proof = proof_in(found.properties)
        if found.topic == STATE_TOPIC:
            self._state(found)
        elif found.topic.startswith(REVIVE_PREFIX):
            self._source[found.physical_offset] = orjson.loads(found.body)["t"]
        elif "REAL_TOPIC" in said and found.topic in (DELAY_TOPIC, HALF_TOPIC):
            self._source[found.physical_offset] = said["REAL_TOPIC"]
        if proof is not None and found.topic not in (HALF_TOPIC, OP_TOPIC):
            source = self._source.get(proof.source, "")
            if self._ends.get(source, -1) > proof.source:
                self._over.append(f"{proof.text()}, of {source}, at {found.physical_offset}")
        if found.topic == DELAY_TOPIC:
            self._waited.add(found.physical_offset)
        elif found.topic == HALF_TOPIC:
            self._halves.add(proof.source if proof is not None and proof.kind == HALF else found.physical_offset)
        elif proof is not None and proof.kind == POP:
            self._back[proof.source, proof.detail] += 1
        elif proof is not None:
            self._times[proof.source] += 1

    def _state(self, found: record.Record) -> None:
        for table, key, value in msgpack.unpackb(found.body):
            if table == "topic" and value is None:
                self._ends[key] = found.physical_offset
            elif table == "due" and value is None:
                self._times[key[1]] += 1

    def check(self, judge: "Judge", node: "Node") -> None:
        holding = node.holding
        twice = [place for counted in (self._times, self._back) for place, times in counted.items() if times > 1]
        judge.check(not self._over, "story 35", f"these were handed on to another life of their topic: {self._over}")
        judge.check(not twice, "C13", f"these were handed on or ended more than once: {twice}")
        waits = sorted(source.offset for bite in holding.due.below(1 << 62, BITE) for source in bite)
        wanted = sorted(offset for offset in self._waited if not self._times[offset])
        judge.check(waits == wanted, "C13", f"{node.name} has {waits} pending, but the log says {wanted}")
        still_open = sorted(holding.halves.open.rows)
        wanted = sorted(first for first in self._halves if not self._times[first])
        judge.check(still_open == wanted, "C11", f"{node.name} has {still_open} open, but the log says {wanted}")
        judge.counts["waited"] += len(self._waited) + len(self._halves)
