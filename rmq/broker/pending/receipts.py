"""Receipts of POP as records of the revive log, in RocketMQ's form, and what every node notes of them.

A `ck` record opens a receipt and moves the group's offset in the queue: one record, so that neither is there without the
other (story 41). An `ack` record ends messages of it, and so does the message in the retry topic that names the receipt.
[PopCheckPoint, AckMsg]. RocketMQ lets both wait in its timer first; here they go straight to the revive log, where its
revive service looks for them (docs/storage).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import orjson

from rmq.broker.shared.ports import Identity
from rmq.broker.shared.state import resolving, tell
from rmq.clock import Clock
from rmq.delivery.groups import GroupTable
from rmq.delivery.offsets import OffsetKey, OffsetTable
from rmq.delivery.proof import Proof
from rmq.delivery.receipts import Receipt, ReceiptKey, ReceiptTable
from rmq.errors import RmqError
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.records import record
from rmq.log.records.properties import code_of
from rmq.log.records.record import Record
from rmq.log.units import Unit
from rmq.model import LIGHT_PREFIX, REVIVE_PREFIX
from rmq.routing.topics import TopicTable

log = logging.getLogger("rmq.receipts")

OPEN, ACK, BATCH_ACK = "ck", "ack", "bAck"  # tags of records
_CODES = {tag: code_of(tag.encode()) for tag in (OPEN, ACK, BATCH_ACK)}  # as queues hold them
REVIVE_QUEUES = 8
ROCKETMQ_GRACE_MS = 3000  # RocketMQ's acknowledgements come through its timer, a little later than its receipts end
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"  # its offsets: up to which record RocketMQ's revive service is done

_OFFSETS, _MOST_OFFSETS = range(1 << 62), 256
_RANGES = {
    "q": range(1 << 31), "so": _OFFSETS, "pt": range(1 << 53), "it": range(1 << 53), "n": range(_MOST_OFFSETS),
    "bm": range(-(1 << 31), 1 << 32), "ao": _OFFSETS, "at": _OFFSETS, "cu": _OFFSETS,
}  # fmt: skip
_LISTS = {"d", "aol"}


class NewReceipt(NamedTuple):
    """What a `ck` record says. `cursor`: where the group reads on in that queue, None if it stays where it is.
    `pins`: the lowest log offset of a message of it."""

    key: ReceiptKey
    invisible_ms: int
    queue_offsets: Sequence[int]
    cursor: int | None
    pins: int


class ReceiptWriter:
    """Proposes records of the revive log, and notes what it knows of those that it has written. `broker_name`: as clients know
    it, a part of a receipt's name."""

    def __init__(
        self,
        notes: "ReceiptNotes",
        propose: Callable[[Unit], None],
        queues: ConsumeQueues,
        us: Identity,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        self.table = notes.table
        self._notes = notes
        self.broker_name, self._host = us.broker, us.host
        self._propose = propose
        self._queues = queues
        self._topic = REVIVE_PREFIX + us.cluster
        self._clock = clock
        self._next = chance.randrange(REVIVE_QUEUES)

    def next_queue(self) -> int:
        """The revive queue of the next receipt."""
        self._next = (self._next + 1) % REVIVE_QUEUES
        return self._next

    def write(self, revive_queue: int, drafts: Sequence[bytes], life: ConsumeQueue | None = None) -> "asyncio.Future[None]":
        """All of them or none; done once they are committed and noted. `life`: the queue that they speak of, if they are of no
        use once it is deleted. Raises Refusal: not stored."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sizes = [len(draft) for draft in drafts]
        queue = self._queues.get(self._topic, revive_queue)
        unit = Unit(b"".join(drafts), sizes, [0] * len(sizes), queue, resolving(future))
        unit.pending_change, unit.life = True, life or queue
        self._propose(unit)
        return future

    def open(self, revive_queue: int, opened: NewReceipt, life: ConsumeQueue) -> "tuple[Unit, asyncio.Future[None]]":
        """Proposes a `ck` record; as `write` otherwise."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        unit = self._known(revive_queue, self.checkpoint_draft(opened), OPEN, resolving(future), partial(self._opened, opened))
        unit.life = life
        self._propose(unit)
        return unit, future

    def _opened(self, opened: NewReceipt, unit: Unit) -> None:
        """As `ReceiptNotes.note` of that record."""
        key, revive = opened.key, (unit.queue.queue_id, unit.queue_offset)
        due_ms = key.pop_time + opened.invisible_ms
        receipt = Receipt(unit.physical_offset, opened.pins, due_ms, tuple(opened.queue_offsets), revive=revive)
        self._notes.opened(key, receipt, opened.cursor, unit.stored_ms)

    def acknowledge(
        self, revive_queue: int, key: ReceiptKey, queue_offsets: Sequence[int], done: Callable[[RmqError | None], None]
    ) -> Unit:
        """Proposes an `ack` record; `done` is called with the error, or None. Raises Refusal: not stored."""
        draft, note = self.ack_draft(key, queue_offsets), partial(self._acknowledged, key, queue_offsets)
        unit = self._known(revive_queue, draft, _tag_of(queue_offsets), (tell, done), note)
        self._propose(unit)
        return unit

    def _acknowledged(self, key: ReceiptKey, queue_offsets: Sequence[int], _unit: Unit) -> None:
        """As `ReceiptNotes.note` of that record."""
        self.table.acked(key, queue_offsets)

    def _known(self, revive_queue: int, draft: bytes, tag: str, owner: object, note: Callable[[Unit], None]) -> Unit:
        """A record of which we know all that tables need: it is not read again."""
        unit = Unit(draft, (len(draft),), (_CODES[tag],), self._queues.get(self._topic, revive_queue), owner)
        unit.note = note
        return unit

    def checkpoint_draft(self, opened: NewReceipt) -> bytes:
        """The draft of a `ck` record."""
        group, topic, queue_id, start, pop_time = opened.key
        body = {
            "bm": 0, "bn": self.broker_name, "c": group, "d": [queue_offset - start for queue_offset in opened.queue_offsets],
            "it": opened.invisible_ms, "n": len(opened.queue_offsets), "pt": pop_time, "q": queue_id,
            "reviveTime": pop_time + opened.invisible_ms, "ro": 0, "so": start, "sp": False, "t": topic, "at": opened.pins,
        }  # fmt: skip
        if opened.cursor is not None:
            body["cu"] = opened.cursor
        return self._draft(OPEN, opened.key, start, body)

    def ack_draft(self, key: ReceiptKey, queue_offsets: Sequence[int]) -> bytes:
        """The draft of an `ack` record."""
        group, topic, queue_id, start, pop_time = key
        body: dict[str, Any] = {
            "ao": queue_offsets[0],
            "bn": self.broker_name,
            "c": group,
            "pt": pop_time,
            "q": queue_id,
            "so": start,
            "t": topic,
        }
        if len(queue_offsets) > 1:
            body["aol"] = list(queue_offsets)
        return self._draft(_tag_of(queue_offsets), key, queue_offsets[0], body)

    def _draft(self, tag: str, key: ReceiptKey, queue_offset: int, body: dict[str, Any]) -> bytes:
        name = f"{key.topic}@{key.queue_id}@{queue_offset}@{key.group}@{key.pop_time}@{self.broker_name}@{tag}"
        now_ms = self._clock.wall_ms()
        # RocketMQ's revive service takes the latest of these times to mean that everything up to then has arrived.
        properties = record.properties_to_bytes({"TAGS": tag, "UNIQ_KEY": name, "TIMER_DELIVER_MS": str(now_ms)})
        return record.draft(self._topic, orjson.dumps(body), properties, born_timestamp=now_ms, born_host=self._host)


def _tag_of(queue_offsets: Sequence[int]) -> str:
    return ACK if len(queue_offsets) == 1 else BATCH_ACK


class ReceiptNotes:
    """What every node notes (`kinds.Kind`). A receipt of a topic or a group that is deleted by then does not count."""

    def __init__(self, table: ReceiptTable, offsets: OffsetTable, topics: TopicTable, groups: GroupTable) -> None:
        self.table = table
        self._offsets = offsets
        self._topics = topics
        self._groups = groups

    def holds(self, topic: str) -> bool:
        return topic.startswith(REVIVE_PREFIX)

    def note(self, stored: Record) -> None:
        tag = record.kept_properties(stored.properties).get("TAGS")
        try:
            key, said = read_body(stored.body)
            if tag == OPEN:
                receipt = receipt_of(said, stored, said.get("at", stored.physical_offset))
                self.opened(key, receipt, said.get("cu"), stored.store_timestamp)
            elif tag in (ACK, BATCH_ACK):
                self.table.acked(key, said.get("aol") or (said["ao"],))
        except (ValueError, KeyError, TypeError) as error:
            about = "a receipt at %d of the log cannot be read (%r); its messages do not come back"
            log.warning(about, stored.physical_offset, error)

    def opened(self, key: ReceiptKey, receipt: Receipt, cursor: int | None, stored_ms: int) -> None:
        """A record that was stored then opens this receipt; `cursor`: as of `NewReceipt`."""
        if key.topic not in self._topics.committed() and not key.topic.startswith(LIGHT_PREFIX):
            return
        if key.group not in self._groups.committed() and not self._groups.is_light(key.group):
            return
        self.table.opened(key, receipt)
        if cursor is not None:
            self._offsets.apply((key.group, key.topic, key.queue_id), cursor, stored_ms)
            self._offsets.resets.drop(OffsetKey(key.group, key.topic, key.queue_id))  # it pops from the new offset

    def done(self, proof: Proof, stored: Record) -> None:
        self.table.handed_on(proof.source, proof.detail)

    def alive_from(self) -> int | None:
        return self.table.alive_from()


def read_body(body: bytes) -> tuple[ReceiptKey, dict[str, Any]]:
    """The body of a record of the revive log, and its receipt's key. Raises ValueError, KeyError, TypeError."""
    said = orjson.loads(body)
    if not isinstance(said, dict):
        raise TypeError("no JSON object")
    for name in _RANGES.keys() & said.keys():
        if not (isinstance(said[name], int) and said[name] in _RANGES[name]):
            raise ValueError(f"{name} is {said[name]!r}")
    for name in _LISTS & said.keys():
        if len(said[name] or ()) > _MOST_OFFSETS or not all(isinstance(one, int) and one in _OFFSETS for one in said[name] or ()):
            raise ValueError(f"{name} is no list of numbers")
    if not (isinstance(said["c"], str) and isinstance(said["t"], str)):
        raise ValueError("group and topic are texts")
    return ReceiptKey(said["c"], said["t"], said["q"], said["so"], said["pt"]), said


def receipt_of(said: dict[str, Any], stored: Record, pins: int) -> Receipt:
    """The receipt that a `ck` record opens. Raises KeyError, TypeError."""
    start, count, bits = said["so"], said["n"], said["bm"]
    queue_offsets = tuple(start + step for step in said.get("d") or range(count))
    bits &= (1 << len(queue_offsets)) - 1  # RocketMQ's have a sign
    due_ms = said["pt"] + said["it"]
    if "at" not in said:
        due_ms = max(due_ms, stored.store_timestamp) + ROCKETMQ_GRACE_MS
    return Receipt(stored.physical_offset, pins, due_ms, queue_offsets, bits, (stored.queue_id, stored.queue_offset))


def revive_offsets(table: ReceiptTable, queues: ConsumeQueues) -> dict[str, dict[str, int]]:
    """For config/consumerOffset.json: the last record of each revive queue before the first whose receipt is open."""
    found: dict[str, dict[str, int]] = {}
    for queue in queues.all():
        if queue.topic.startswith(REVIVE_PREFIX) and queue.max:
            first = table.revive_from(queue.queue_id)
            done = (queue.max if first is None else first) - 1
            if done >= 0:
                found.setdefault(f"{queue.topic}@{REVIVE_GROUP}", {})[str(queue.queue_id)] = done
    return found
