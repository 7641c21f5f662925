"""Sends for the broker itself: messages that waited, and failed ones that come again, made from a stored record.

Whatever the broker appends for a topic goes through here. It refuses a topic that does not exist or is being deleted, and no
message reaches a later life of a topic than the one that it was for (`rmq.routing.lives`).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from rmq.broker.pending.turnunits import T, TurnUnits, shared_bytes
from rmq.broker.replication.appender import Waiter
from rmq.broker.shared.ports import Reader, Writer
from rmq.broker.shared.state import resolving
from rmq.delivery.proof import Proof
from rmq.errors import BadBytes, RmqError, StoreError, no_topic
from rmq.log.files import epochs
from rmq.log.files.gathering import NEAR_BYTES, together
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import record
from rmq.log.records.properties import CRC_NAME, LIGHT_OFFSETS, strip_names
from rmq.log.records.record import Record
from rmq.log.units import Unit
from rmq.model import PROOF_PROPERTY, TopicConfig, may_be_light
from rmq.routing.lives import Life
from rmq.routing.topics import TopicTable, is_system_topic

_SIZE_BYTES = 4
_FEW = 8  # records
_OWN = frozenset({PROOF_PROPERTY.encode(), CRC_NAME})


class InternalProducer:
    """`host`: as records name this broker. `find(offset)`: the committed record that begins there, or None; it may wait for the
    disk, and raises StoreError. `topic(name)`: its settings, if it is there."""

    def __init__(self, reader: Reader, topics: TopicTable, writer: Writer) -> None:
        self.host = writer.host
        self.find = reader.record_at
        self.topic = topics.get
        self._log = reader.log
        self.queue = reader.queues.get
        self._topics = topics
        self._propose = writer.propose
        self._propose_state = writer.propose_state
        self._chance = writer.chance
        self._fan = writer.lights.fan_of_waiting

    async def read(self, offsets: Sequence[int]) -> list[Record]:
        """The records that begin there; from the disk if need be. Raises StoreError, also for one that is damaged."""
        return [*map(record.decode, await self.read_bytes(offsets))]

    async def read_bytes(self, offsets: Sequence[int]) -> list[bytes]:
        """The same, checked but not decoded."""
        if len(offsets) <= _FEW:  # a thread costs more than reading what is in memory
            found = [known for offset in offsets if (known := self.bytes_now(offset)) is not None]
            if len(found) == len(offsets):
                return found
        return await asyncio.to_thread(self._read_all, offsets)

    def read_now(self, offset: int) -> Record | None:
        """The same of what is in memory and not large. None: who reads it in a thread hears what is wrong."""
        data = self.bytes_now(offset)
        return None if data is None else record.decode(data)

    def bytes_now(self, offset: int) -> bytes | None:
        """The same, checked but not decoded."""
        log = self._log
        if not log.start <= offset < log.end:
            return None
        if not log.damages.ranges and (near := log.tail.record(offset)) is not None:
            return near
        try:
            size = int.from_bytes(log.gather([(offset, _SIZE_BYTES)]) or b"", "big")
            data = log.gather([(offset, size)]) if 0 < size <= min(log.end - offset, NEAR_BYTES) else None
            if data is None:
                return None
            record.verify(data, 0, offset, not epochs.written_by_rocketmq(log.epochs, offset))
        except (StoreError, BadBytes):
            return None
        return data

    def _read_all(self, offsets: Sequence[int]) -> list[bytes]:
        log, rising = self._log, sorted(offsets)
        size_at = together(log.read, [(offset, _SIZE_BYTES) for offset in rising], log.end_of)
        sizes = {offset: int.from_bytes(size_at(offset, _SIZE_BYTES), "big") for offset in rising}
        read = together(log.read, [(offset, size) for offset, size in sizes.items() if size <= log.max_unit_bytes], log.end_of)
        return [self._read(offset, sizes[offset], read) for offset in offsets]

    def _read(self, offset: int, size: int, read: Callable[[int, int], bytes]) -> bytes:
        """Checked: what a disk gives back damaged must not be stored again with a checksum of its own (D8)."""
        log = self._log
        try:
            if size > log.max_unit_bytes:
                raise BadBytes(f"it says that it has {size} bytes")
            data = read(offset, size)
            with suppress(BadBytes):
                record.verify(data, 0, offset, not epochs.written_by_rocketmq(log.epochs, offset))
                return data
            record.decode(data)
        except BadBytes as error:
            raise StoreError(f"no whole record is at {offset} ({error}): run `rmq store verify`") from error
        return log.gather_cold([(offset, size)])

    def pick(self, queue_nums: int) -> int:
        """A queue by chance."""
        return self._chance.randrange(queue_nums)

    def queue_in(self, config: TopicConfig, queue_id: int) -> int:
        """That queue of the topic, or another one if the topic has fewer now: nobody would read it there."""
        there = 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums)
        return queue_id if there else self.pick(config.write_queue_nums)

    def present_queue(self, topic: str, queue_id: int) -> tuple[ConsumeQueue, int] | None:
        """That queue, and from where on what was stored is for it (`TopicTable.lives_from`); None if it is not there."""
        config, since = self.topic(topic), self._topics.lives_from(topic)
        if config is None or since < 0 or queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            return None
        return self.queue(topic, queue_id), since

    def life(self, topic: str, stored_at: int) -> Life:
        """The life of the topic when something for it was stored at that log offset."""
        return self._topics.life(topic, stored_at)

    def turn_units(
        self,
        note: Callable[[Sequence[T], Unit], None],
        told: Callable[[Sequence[T], Unit, RmqError | None, int], None],
        *,
        kind: str = "Send",
        state: bool = False,
    ) -> TurnUnits[T]:
        """Proposes records as `put` does, those of one turn and queue together. For the arguments see there and `TurnUnits`."""
        propose = self._propose_state if state else self._propose
        return TurnUnits(propose, shared_bytes(self._log.segment_bytes), note, told, kind)

    def put(
        self,
        topic: str,
        queue_id: int,
        draft: bytes,
        waiter: Waiter | None = None,
        *,
        state: bool = False,
        life: ConsumeQueue | None = None,
    ) -> Unit:
        """Proposes one record; `waiter` hears the outcome. `state`: it ends something that waits, so it goes though the disk is
        nearly full. `life`: a queue of the topic that it comes from. Raises Refusal (TOPIC_NOT_EXIST also later): not stored."""
        if self.topic(topic) is None and not is_system_topic(topic):
            raise no_topic(topic, ": nothing was stored")
        unit = Unit(draft, (len(draft),), (0,), self.queue(topic, queue_id), waiter)
        unit.life = life or unit.queue
        unit.pending_change = True  # so dispatch finds its tag out
        unit.fan = self._fan(draft, topic)
        (self._propose_state if state else self._propose)(unit)
        return unit

    async def send(
        self, topic: str, queue_id: int, draft: bytes, *, state: bool = False, life: ConsumeQueue | None = None
    ) -> Unit:
        """The same, and waits until it is committed. Raises Refusal: nothing was stored, or (code 1) nobody knows."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        unit = self.put(topic, queue_id, draft, resolving(future), state=state, life=life)
        await future
        return unit


def handed_on(
    source: Record,
    topic: str,
    proof: Proof | None,
    *,
    properties: Iterable[tuple[str, str]] = (),
    without: Iterable[bytes] = (),
    flags: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """A draft for `topic` with body, birth and properties of `source`: less those named `without`, more or other `properties`,
    and the proof. The flags for kinds of transactions go, but for `flags`."""
    added = dict(properties) | (proof.as_property() if proof is not None else {})
    dropped = _OWN.union(without, map(str.encode, added))
    if may_be_light(topic):  # it gets other offsets in its light queues there
        dropped |= {LIGHT_OFFSETS.encode()}
    kept = strip_names(source.properties, dropped)
    return record.draft(
        topic,
        source.body,
        kept + record.properties_to_bytes(added),
        flag=source.flag,
        sys_flag=source.sys_flag & ~(record.SYS_TRANSACTION | record.SYS_STORE_V6) | flags,
        born_timestamp=source.born_timestamp,
        born_host=source.born_host,
        reconsume_times=source.reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
    )
