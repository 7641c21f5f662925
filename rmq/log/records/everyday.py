"""Queue entries of many records at once, with numpy: `rmq.log.records.peek` for a block. Pure."""

from typing import NamedTuple

import numpy as np

from rmq.log.records.columns import Block, Flags, Properties
from rmq.log.records.peek import EVERYDAY
from rmq.log.records.properties import LIGHT_MARK
from rmq.log.records.record import MAGIC_V1
from rmq.model import PROOF_PROPERTY

_ENTRY = np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
ENTRY_BYTES = _ENTRY.itemsize


class Stretch(NamedTuple):
    """Records that follow each other in the block and in one queue: `first` to before `stop`. `queue_offset`: of the first one.
    One that is not `everyday` is alone."""

    first: int
    stop: int
    topic: bytes
    queue_id: int
    queue_offset: int
    everyday: bool


class Everyday(NamedTuple):
    """All records of a block: an entry of each as queues store it, back to back, its size and the hash of its tag; those of one
    that is not everyday have no meaning."""

    stretches: list[Stretch]
    entries: bytes
    sizes: list[int]
    codes: list[int]


def everyday(block: Block, found: Properties, base: int) -> Everyday:
    """`found`: the block's properties. `base`: where in the log it begins."""
    entries = np.zeros(len(block), _ENTRY)
    sizes, codes = block.end - block.at, np.zeros(len(block), np.int64)
    which: Flags = (block.head["magic"] == MAGIC_V1) & (block.head["sys_flag"] & ~EVERYDAY == 0)
    parts, others = found
    which[others] = False
    for part in parts:
        records, hashes, _ = part.hashes(b"TAGS")
        codes[records] = hashes.view(np.int32)
        which[part.named(PROOF_PROPERTY.encode())[0]] = False
        if part.may_name(LIGHT_MARK):  # rare: only RocketMQ writes it
            which[part.records] = False
    entries["offset"], entries["size"], entries["code"] = base + block.at, sizes, codes
    return Everyday(_stretches(block, which), entries.tobytes(), sizes.tolist(), codes.tolist())


def alike(count: int, offset: int, size: int, code: int) -> bytes:
    """The same of records that stand back to back from `offset`, all of one size and tag."""
    entries = np.empty(count, _ENTRY)
    entries["offset"], entries["size"], entries["code"] = np.arange(offset, offset + count * size, size), size, code
    return entries.tobytes()


def _stretches(block: Block, which: Flags) -> list[Stretch]:
    """Where topics differ in length, each record is alone."""
    head, wide = block.head, block.topic_end - block.topic
    follows = np.zeros(len(block), np.bool_)
    if (wide == wide[0]).all():
        names = block.window(block.topic, int(wide[0]))
        same = names[1:] == names[:-1]
        follows[1:] = which[1:] & which[:-1] & (True if same.all() else same.all(axis=1))  # row by row is slow
        follows[1:] &= head["queue_id"][1:] == head["queue_id"][:-1]
        follows[1:] &= head["queue_offset"][1:] == head["queue_offset"][:-1] + 1
    first = np.flatnonzero(~follows)
    topics = [
        block.data[start:stop] for start, stop in zip(block.topic[first].tolist(), block.topic_end[first].tolist(), strict=True)
    ]
    columns = (head["queue_id"][first].tolist(), head["queue_offset"][first].tolist(), which[first].tolist())
    return [*map(Stretch, first.tolist(), [*first[1:].tolist(), len(block)], topics, *columns)]
