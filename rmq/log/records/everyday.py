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


class Everyday(NamedTuple):
    """`which` records are everyday; for each record its topic and queue, its queue offset, and its entry as queues store it."""

    which: list[bool]
    queues: list[tuple[bytes, int]]
    queue_offsets: list[int]
    entries: npt.NDArray[Any]


def everyday(block: Block, base: int) -> Everyday:
    """`base`: where in the log the block begins. Values for a record that is not everyday have no meaning."""
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
    spans = zip(block.topic.tolist(), block.topic_end.tolist(), strict=True)
    topics = [block.data[start:stop] for start, stop in spans]
    queues = list(zip(topics, block.head["queue_id"].tolist(), strict=True))
    return Everyday(which.tolist(), queues, block.head["queue_offset"].tolist(), entries)
