"""Topics that are deleted and made again while messages wait for them, and messages that are popped, at one node of the
simulation: the real tables and notes.

The leader here does not look first, as the real one does: it sends to every topic that is committed, and writes a receipt some
time after it read. So the log alone must keep the lives apart (`records/deletions.py`). At the end the offsets of a queue are
those of its last life, nothing was handed on over a deletion, and no group is behind the end of a queue (story 35, D12).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack
import orjson

from rmq.broker.pending.internalproducer import handed_on
from rmq.broker.pending.receipts import OPEN
from rmq.broker.tables.tables import Tables
from rmq.delivery.popping import pop_retry_topic
from rmq.delivery.proof import POP, Proof
from rmq.delivery.receipts import Receipt, ReceiptKey
from rmq.errors import Refusal, StoreError
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import record
from rmq.log.units import Unit
from rmq.model import REVIVE_PREFIX, STATE_TOPIC, GroupConfig, TopicConfig

if TYPE_CHECKING:
    from tests.sim.node import Node

TOPICS = "TUDX"
GROUP = "g"
HOST = record.host_bytes("127.0.0.1", 10911)
HIDDEN_MS = 500
AT_ONCE = 4


class Pop(NamedTuple):
    """Messages that were read and have no receipt yet. The first one lies at `offset` of the log."""

    queue: ConsumeQueue
    key: ReceiptKey
    numbers: Sequence[int]
    offset: int


class Lives:
    """The topics and popped messages of a node; each of its runs has a new one."""

    def __init__(self, node: "Node", tables: Tables) -> None:
        self._node = node
        self._tables = tables
        self._pop: Pop | None = None

    def act(self) -> None:
        """The leader does something by chance: it deletes or makes a topic, pops, or writes a receipt."""
        chance = self._node.world.chance
        name = chance.choice(TOPICS)
        if self._tables.topics.decided(name) is None:
            self._make(name)
        elif chance.random() < 0.03:
            self._delete(name)
        self._finish_pop()
        if chance.random() < 0.2:
            self._begin_pop(chance.choice((name, pop_retry_topic(GROUP, name))), chance.randrange(3))
        self._revive()

    def append(self, what: str, *units: Unit) -> bool:
        """Returns False if nothing was stored."""
        try:
            self._node.member.append(units)
        except (StoreError, Refusal) as error:
            self._node.world.judge.counts["refused: its topic is deleted"] += "does not exist any more" in str(error)
            return False
        self._node.world.judge.counts[what] += len(units)
        self._node.grew()
        return True

    # --- topics

    def lines(self, *lines: Any) -> Unit:
        draft = record.draft(STATE_TOPIC, msgpack.packb(lines), b"", born_timestamp=1, born_host=HOST)
        return Unit(draft, (len(draft),), (0,), self._node.store.queues.get(STATE_TOPIC, 0))

    def _make(self, name: str) -> bool:
        topics, config = self._tables.topics, TopicConfig(name, 3, 3)
        try:
            topics.stage(name, config)
        except Refusal:  # its deletion is on its way
            self._node.world.judge.counts["not made again yet"] += 1
            return False
        group = ["group", GROUP, list(GroupConfig(GROUP))]  # each pop makes sure of it
        done = self.append("topics made", self.lines(["topic", name, list(config)], group))
        if not done:
            topics.unstage(name)
        return done

    def _delete(self, name: str) -> None:
        """Deletes the topic, and the topic where its popped messages come back, as the real leader does."""
        topics = self._tables.topics
        names = [one for one in (name, pop_retry_topic(GROUP, name)) if topics.decided(one) is not None]
        for one in names:
            topics.stage(one, None)
        waiting = bool(self._tables.pending.alive_from() is not None)
        if self.append("topics deleted", self.lines(*(["topic", one, None] for one in names))):
            self._node.world.judge.counts["topics deleted while something waits"] += waiting
        else:
            for one in names:
                topics.unstage(one)

    # --- pops

    def _begin_pop(self, topic: str, queue_id: int) -> None:
        queue = self._node.store.queues.find(topic, queue_id)
        if self._pop is None and queue is not None and topic in self._tables.topics.committed():
            start = max(self._tables.offsets.query(GROUP, topic, queue_id) or 0, queue.min)
            numbers = range(start, min(start + AT_ONCE, queue.max))
            if numbers:
                key = ReceiptKey(GROUP, topic, queue_id, start, self._node.wall_ms())
                self._pop = Pop(queue, key, numbers, queue.entry(start).offset)

    def _finish_pop(self) -> None:
        """Writes the receipt, as `ReceiptWriter` does."""
        if self._pop is None or self._node.world.chance.random() < 0.5:
            return
        (queue, key, numbers, offset), self._pop = self._pop, None
        said = {"c": key.group, "t": key.topic, "q": key.queue_id, "so": key.start, "pt": key.pop_time, "it": HIDDEN_MS, "bm": 0,
                "n": len(numbers), "at": offset, "cu": numbers[-1] + 1}  # fmt: skip
        properties = record.properties_to_bytes({"TAGS": OPEN})
        topic = f"{REVIVE_PREFIX}c"
        draft = record.draft(topic, orjson.dumps(said), properties, born_timestamp=1, born_host=HOST)
        self.append("popped", _pending(draft, self._node.store.queues.get(topic, 0), queue))

    def _revive(self) -> None:
        for key, receipt in list(self._tables.receipts.due(self._node.wall_ms()))[:AT_ONCE]:
            self._bring_back(key, receipt)

    def _bring_back(self, key: ReceiptKey, receipt: Receipt) -> None:
        back, queues = pop_retry_topic(key.group, key.topic), self._node.store.queues
        if back not in self._tables.topics.committed():
            self._make(back)
            return
        queue = queues.get(key.topic, key.queue_id)
        for number in receipt.left():
            if not queue.min <= number < queue.max or not self._tables.receipts.stage(key, [number]):
                continue
            draft = handed_on(self._node.stored(queue.entry(number).offset), back, Proof(POP, receipt.place, number))
            if not self.append("came back", _pending(draft, queues.get(back, 0), queue)):
                self._tables.receipts.unstage(key, (number,))


def _pending(draft: bytes, queue: ConsumeQueue, life: ConsumeQueue) -> Unit:
    unit = Unit(draft, (len(draft),), (0,), queue)
    unit.pending_change, unit.life = True, life
    return unit
