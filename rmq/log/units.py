"""Units of records to append, and the bytes that one write puts into a segment.

The hot path of every send: nothing here decodes a record of the usual kind.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import Refusal, being_deleted, no_topic
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import record
from rmq.log.records.deletions import deleted_by
from rmq.log.records.innerbatch import put_base
from rmq.log.records.lights import with_offsets
from rmq.log.records.many import stamp_many
from rmq.log.records.record import stamp
from rmq.model import STATE_TOPIC

MANY_STAMPED = 96  # records in one write, from which on numpy pays


class Fan(NamedTuple):
    """The light queues that a unit's only record goes to as well, and that record before it says where in them."""

    draft: bytes
    queues: tuple[ConsumeQueue, ...]


class Unit:
    """Records of one queue that are appended together or not at all.

    `records`, `sizes` and `tags_codes` come from `record.draft` and `checking.check`; while the unit is `open`, whoever made
    it may add more to `parts`, `sizes`, `tags_codes` and `size` (bytes in all). Append fills in `queue_offset` and
    `physical_offset` of the first record, `start` (before a filler, if one was needed) and `end`. `owner` is the
    caller's; units with None are the log's own (epoch records). The parts stay as given: the stamps are in the log.
    `pending_change`: of a topic of pending messages, or with a proof (`rmq.delivery.proof`); dispatch reads it again, stamped,
    and leaves its records in `decoded`. `note`: who made the unit knows all that tables need of its records: they are not read
    again, and this is called with the unit once it is committed. `stored_ms`: the store time that append gave its records.
    `delay_ms`: they wait so long, and when that is over stands in the queue in place of their tags' hashes.
    `tells`: tells the owners of several units together that they are stored (and what came too late, 0: nothing), the same for
    all that have one; they need nothing but where, and may hear of it before the queues have it.
    `asked`, `kind`: the first request that it stores, and its type, for the log of slow ones; `came`: when that was read
    (monotonic s).
    `life`: a queue of the topic on whose behalf the unit is stored, if that is another topic; if that topic is deleted by then,
    the unit is not stored. `inner`: it is one record, an inner batch of so many messages. `fan`: None but for a message for light
    queues; `light_offsets`: its offset in each of them.
    """

    __slots__ = (
        "asked",
        "came",
        "decoded",
        "delay_ms",
        "end",
        "fan",
        "inner",
        "kind",
        "life",
        "light_offsets",
        "note",
        "open",
        "owner",
        "parts",
        "pending_change",
        "physical_offset",
        "queue",
        "queue_offset",
        "size",
        "sizes",
        "start",
        "stored_ms",
        "tags_codes",
        "tells",
    )  # fmt: skip

    def __init__(
        self,
        records: bytes,
        sizes: Iterable[int],
        tags_codes: Iterable[int],
        queue: ConsumeQueue,
        owner: Any = None,
    ) -> None:
        self.parts = [records]
        self.size = len(records)
        self.sizes = [*sizes]
        self.tags_codes = [*tags_codes]
        self.open = True
        self.tells: Callable[[Sequence[Unit], int], None] | None = None
        self.inner = 0
        self.pending_change = False
        self.queue = self.life = queue
        self.owner = owner
        self.fan: Fan | None = None
        self.light_offsets: Sequence[int] = ()
        self.decoded: Sequence[record.Record] = ()
        self.note: Callable[[Unit], None] | None = None
        self.stored_ms = self.delay_ms = 0
        self.asked: object = None
        self.kind = "Send"
        self.came = 0.0
        self.queue_offset = self.physical_offset = self.start = self.end = -1

    @property
    def records(self) -> bytes:
        """All parts, joined."""
        return b"".join(self.parts)


class Run:
    """Bytes that one write puts at `offset`: units, and perhaps a filler after them."""

    __slots__ = ("data", "filler", "offset", "units")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.units: list[Unit] = []
        self.filler = b""
        self.data: bytes | bytearray = b""

    def stamp(self, queue_offsets: dict[ConsumeQueue, int], stored: bytes) -> None:
        """`queue_offsets`: the next queue offset of each queue that this burst has so far."""
        parts: list[bytes] = []
        for unit in self.units:
            parts += unit.parts
        data = self.data = bytearray().join(parts)
        groups, count, stored_ms = [], 0, int.from_bytes(stored[:8], "big")
        for unit in self.units:
            queue, sizes = unit.queue, unit.sizes
            queue_offset = unit.queue_offset = queue_offsets.get(queue, queue.next)
            queue_offsets[queue] = queue_offset + (unit.inner or len(sizes))
            unit.stored_ms = stored_ms
            if unit.inner:
                put_base(data, unit.physical_offset - self.offset + unit.size, queue_offset)
            groups.append((unit.physical_offset - self.offset, sizes, queue.queue_id, queue_offset))
            count += len(sizes)
        if not (count >= MANY_STAMPED and stamp_many(data, groups, self.offset, stored)):
            stamp(data, groups, self.offset, stored)
        data += self.filler


def check_fits(unit: Unit, most: int) -> None:
    """Raises Refusal for a unit that no segment can hold."""
    if unit.size > most:
        about = f"not stored: {unit.size} bytes in one send; this broker's segments hold at most {most}"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, about)


def check_lives(units: Sequence[Unit]) -> list[str]:
    """The topics that these units delete. Raises Refusal for a unit whose topic is deleted before it."""
    deleted: list[str] = []
    for unit in units:
        queue, life = unit.queue, unit.life
        if queue.ended or life.ended or (deleted and (queue.topic in deleted or life.topic in deleted)):
            gone = life.topic if life.ended or life.topic in deleted else queue.topic
            raise no_topic(gone, " any more: nothing was stored")
        if unit.fan is not None:
            for light in unit.fan.queues:
                if light.ended or light.topic in deleted:
                    raise being_deleted(f"light queue {light.topic}")
        if queue.topic == STATE_TOPIC:
            deleted += deleted_by(unit.parts)
    return deleted


def settle(unit: Unit, queue_offsets: dict[ConsumeQueue, int], store_host: bytes) -> None:
    """Makes the bytes of a unit whose size was not known before: it goes to light queues, or the store host is of IPv6.
    `queue_offsets`: as of `Run.stamp`."""
    if unit.fan is not None:
        draft, queues = unit.fan
        offsets = unit.light_offsets = [queue_offsets.get(queue, queue.next) for queue in queues]
        queue_offsets.update((queue, offset + 1) for queue, offset in zip(queues, offsets, strict=True))
        unit.parts = [with_offsets(draft, offsets)]
        unit.size = len(unit.parts[0])
        unit.sizes = [unit.size]
    if len(store_host) == 20:
        _widen(unit, store_host)


def take_back(unit: Unit) -> None:
    """It was appended, and is cut off again: its queue offsets are free, if it is the last one that has any."""
    unit.queue.next = unit.queue_offset
    if unit.fan is not None:
        for queue, offset in zip(unit.fan.queues, unit.light_offsets, strict=True):
            queue.next = offset


def _widen(unit: Unit, store_host: bytes) -> None:
    """Makes room for the 16 bytes of an IPv6 store host; the records are encoded again."""
    if not unit.parts[0][39] & record.SYS_STORE_V6:
        wide = [record.encode(record.with_store_host(one, store_host)) for one in record.iterate(unit.records)]
        unit.parts, unit.sizes = [b"".join(wide)], [*map(len, wide)]
        unit.size = len(unit.parts[0])
