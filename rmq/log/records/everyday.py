"""Queue entries of many everyday records at once, with numpy: `rmq.log.records.peek` for a block. Pure."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmq.log.records.columns import Block, Flags, java_hashes, properties
from rmq.log.records.peek import EVERYDAY
from rmq.log.records.properties import LIGHT_MARK
from rmq.log.records.record import MAGIC_V1
from rmq.model import PROOF_PROPERTY

_ENTRY = np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")])


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
    """All records of a block, and an entry for each as queues store it; that of one that is not everyday has no meaning."""

    stretches: list[Stretch]
    entries: npt.NDArray[Any]


def everyday(block: Block, base: int) -> Everyday:
    """`base`: where in the log the block begins."""
    entries = np.zeros(len(block), _ENTRY)
    entries["offset"], entries["size"] = base + block.at, block.head["size"]
    which: Flags = (block.head["magic"] == MAGIC_V1) & (block.head["sys_flag"] & ~EVERYDAY == 0)
    parts, others = properties(block)
    which[others] = False
    for part in parts:
        records, start, stop = part.named(b"TAGS")
        entries["code"][records] = java_hashes(part.text, start, stop)[0].view(np.int32)
        which[part.named(PROOF_PROPERTY.encode())[0]] = False
        if LIGHT_MARK in part.text:  # rare: only RocketMQ writes it
            which[part.records] = False
    return Everyday(_stretches(block, which), entries)


def _stretches(block: Block, which: Flags) -> list[Stretch]:
    """Where topics differ in length, each record is alone."""
    head, wide = block.head, block.topic_end - block.topic
    follows = np.zeros(len(block), np.bool_)
    if (wide == wide[0]).all():
        names = block.window(block.topic, int(wide[0]))
        follows[1:] = which[1:] & which[:-1] & (names[1:] == names[:-1]).all(axis=1)
        follows[1:] &= head["queue_id"][1:] == head["queue_id"][:-1]
        follows[1:] &= head["queue_offset"][1:] == head["queue_offset"][:-1] + 1
    first = np.flatnonzero(~follows)
    topics = [
        block.data[start:stop] for start, stop in zip(block.topic[first].tolist(), block.topic_end[first].tolist(), strict=True)
    ]
    columns = (head["queue_id"][first].tolist(), head["queue_offset"][first].tolist(), which[first].tolist())
    return [*map(Stretch, first.tolist(), [*first[1:].tolist(), len(block)], topics, *columns)]
