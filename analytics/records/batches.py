"""What a task does: it reads its parts and gives the wanted records and columns as Arrow batches. No Spark."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.records.arrays import integers, texts, truths
from analytics.records.bodies import apart, plain
from analytics.records.columns import Columns
from analytics.stores.files import open_file
from analytics.stores.options import Wanted
from analytics.stores.rare import Places, read_places
from analytics.stores.segments import Part
from analytics.stores.walk import Block, Damage, Flags, Ints, SegmentGone, joined, walk
from rmq.errors import BadBytes
from rmq.log.records.record import SYS_INNER_BATCH, SYS_ROLLBACK, SYS_TRANSACTION
from rmq.log.records.tombstones import LOST
from rmq.routing.topics import SYSTEM_STARTS

_BODIES = frozenset({"body", "value"})
_BATCH_BYTES = 4 << 20  # of the log, at least, where there are more
_SHOWN_BYTES = 16 << 20  # of a damaged stretch
_START = np.dtype(">u4")  # the first bytes of a topic
_SYSTEM_STARTS = np.array([int.from_bytes(start.encode(), "big") for start in sorted(SYSTEM_STARTS)], np.int64)


def batches(parts: Sequence[Part | Places], wanted: Wanted, schema: pa.Schema, broker: str) -> Iterator[pa.RecordBatch]:
    """The rows of the parts. Raises BadBytes for damage and SegmentGone for deleted files, unless the options allow them."""
    waiting: list[Block] = []  # of small files: a batch costs more than the rows in it
    for part in parts:
        try:
            for found in read_places(part) if isinstance(part, Places) else walk(part):
                if isinstance(found, Damage):
                    yield from _damaged(found, part, wanted, schema)
                    continue
                waiting.append(found)
                if sum(len(block.data) for block in waiting) >= _BATCH_BYTES:
                    yield from rows(joined(waiting), wanted, schema, broker)
                    waiting = []
        except SegmentGone:
            if wanted.fail_on_loss:
                raise
    if waiting:
        yield from rows(joined(waiting), wanted, schema, broker)


def rows(block: Block, wanted: Wanted, schema: pa.Schema, broker: str) -> Iterator[pa.RecordBatch]:
    """Rows of the wanted records."""
    lost = _tombstones(block)
    if wanted.on_damage == "quarantine":
        for index in np.flatnonzero(lost).tolist():
            offset, size = int(block.head["physical_offset"][index]), int(block.head["size"][index])
            yield _row(schema, offset, size, ("lost", "a tombstone: the message that stood here is lost"), None)
    found = chosen(block, wanted) & ~lost
    if not found.all():
        block = block.only(found)
    if not len(block):
        return
    ordinary, inner = apart(block)
    if inner is not None and (wanted.starts or wanted.ends):
        inner = inner.only(chosen(inner, wanted))
    for some in (ordinary, inner):
        if some is not None and len(some):
            yield from _made(some, wanted, schema, broker)


def _made(block: Block, wanted: Wanted, schema: pa.Schema, broker: str) -> Iterator[pa.RecordBatch]:
    """The rows, with bodies stored or decompressed, as the options say."""
    if wanted.tags is not None:
        block = block.only(_tagged(block, wanted.tags))
    pieces: Iterator[tuple[Block, pa.Array | None]] = iter([(block, None)])
    if _BODIES.isdisjoint(schema.names) or wanted.body == "raw":
        pass
    elif wanted.body == "none":
        pieces = iter([(block, pa.nulls(len(block), pa.binary()))])
    else:
        pieces = plain(block)
    for piece, bodies in pieces:
        columns = Columns(piece, broker, bodies)
        arrays = [_typed(columns.make(field.name), field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def count(block: Block, wanted: Wanted) -> Ints:
    """How many wanted messages each record holds: 0 or 1 (an inner batch of RocketMQ counts as one)."""
    found = chosen(block, wanted) & ~_tombstones(block)
    if wanted.tags is not None:
        found &= _tagged(block, wanted.tags) | (block.head["sys_flag"] & SYS_INNER_BATCH != 0)
    return found.astype(np.int64)


def _tagged(block: Block, tags: Iterable[str]) -> Flags:
    among = pc.is_in(Columns(block, "").property("TAGS"), texts(sorted(tags)))
    return truths(among)


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def _tombstones(block: Block) -> Flags:
    """Which records are tombstones: each says that a message is lost, and is no message itself."""
    rolled_back = block.head["sys_flag"] & SYS_TRANSACTION == SYS_ROLLBACK
    if rolled_back.any():
        rolled_back &= block.ints(block.reconsume, np.dtype(">i4")) == LOST
    found: Flags = rolled_back
    return found


def chosen(block: Block, wanted: Wanted) -> Flags:
    """Which records are wanted by topic, time and place; an inner batch if it may hold a wanted message."""
    if wanted.every_users_topic and not np.isin(block.ints(block.topic, _START), _SYSTEM_STARTS).any():
        return _timely(np.ones(len(block), np.bool_), block, wanted)
    topics = Columns(block, "").topics
    names = topics.dictionary.to_pylist()
    codes = integers(topics.indices)
    found = _timely(np.array([wanted.has_topic(name) for name in names], np.bool_)[codes], block, wanted)
    if wanted.by_place:
        queues, queue_offsets = block.head["queue_id"].astype(np.int64), block.head["queue_offset"].astype(np.int64)
        inner = block.head["sys_flag"] & SYS_INNER_BATCH != 0  # its messages have this queue offset and the next ones
        for code, name in enumerate(names):
            found &= (codes != code) | _placed(name, queues, queue_offsets, inner, wanted)
    return found


def _timely(found: Flags, block: Block, wanted: Wanted) -> Flags:
    if wanted.from_ms > 0 or wanted.to_ms < 1 << 62:
        stored = block.ints(block.store)
        found &= (stored >= wanted.from_ms) & (stored < wanted.to_ms)
    return found


def _placed(topic: str, queues: Ints, queue_offsets: Ints, inner: Flags, wanted: Wanted) -> Flags:
    """Which records are in the wanted queues of that topic, and between the wanted queue offsets."""
    chosen: Flags = np.full(len(queues), True)
    if wanted.queues is not None:
        chosen &= np.isin(queues, list(wanted.queues))
    if wanted.assigned is not None:
        chosen &= np.isin(queues, list(wanted.assigned.get(topic, ())))
    for queue, offset in wanted.starts.get(topic, {}).items():
        chosen &= (queues != queue) | (queue_offsets >= offset) | inner
    for queue, offset in wanted.ends.get(topic, {}).items():
        chosen &= (queues != queue) | (queue_offsets < offset)
    return chosen


# --- what cannot be read ----------------------------------------------------------------------------------------------


def _damaged(damage: Damage, part: Part | Places, wanted: Wanted, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if wanted.on_damage == "fail":
        raise BadBytes(damage.why)
    if wanted.on_damage == "quarantine":
        size = min(damage.end - damage.start, (1 << 31) - 1)
        yield _row(schema, damage.start, size, ("damage", damage.why), _bytes_of(damage, part))


def _bytes_of(damage: Damage, part: Part | Places) -> bytes | None:
    if isinstance(part, Part) and part.broken:
        return None
    opened = open_file(part.path)
    try:
        return opened.read(min(damage.end - damage.start, _SHOWN_BYTES), damage.start - part.base)
    finally:
        opened.close()


def _row(schema: pa.Schema, offset: int, size: int, why: tuple[str, str], body: bytes | None) -> pa.RecordBatch:
    """A row in place of messages: no topic; the tag says what it is, the only key says why."""
    known = {"physical_offset": offset, "size": size, "tags": why[0], "keys": [why[1]], "body": body}
    known |= {"offset": offset, "key": ": ".join(why).encode(), "value": body}
    return pa.RecordBatch.from_arrays([pa.array([known.get(field.name)], field.type) for field in schema], schema=schema)
