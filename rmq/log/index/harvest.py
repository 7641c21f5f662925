"""Finds the index entries of a block of the log, for all its records at once, with numpy (docs/decisions)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from rmq.javahash import java_hash
from rmq.log.records.columns import POWERS, Block, Hashes, Ints, Properties, Values, java_hashes, layout, properties, starts
from rmq.log.records.indexkeys import hashes_of
from rmq.log.records.record import SYS_ROLLBACK, SYS_TRANSACTION

MAX_PROPERTIES_BYTES = 1 << 18  # of one harvest, so that the loop does not stand still; a MiB of usual messages has fewer
MAX_ENTRIES = 1 << 15  # for the same reason; the properties of one record cannot hold more
FOUND = np.dtype([("hash", "i4"), ("offset", "i8"), ("stored_ms", "i8")])
Entries = npt.NDArray[Any]  # of FOUND
NO_ENTRIES: Entries = np.empty(0, FOUND)


def harvest(data: bytes, base: int) -> tuple[Entries, int]:
    """The entries of the whole records at the beginning of `data`, whose first byte is at `base` of the log, in RocketMQ's order.

    And how many bytes these records take: it stops before a filler, before what is cut off or no record, and at the two limits.
    """
    at, end = starts(data)
    if not len(at):
        return NO_ENTRIES, 0
    block, good = layout(data, at)
    if not good.all():
        block, end = _first_of(block, int(good.argmin()))
    weights = np.cumsum(block.end - block.properties)
    if weights[-1] > MAX_PROPERTIES_BYTES:
        block, end = _first_of(block, max(int(np.searchsorted(weights, MAX_PROPERTIES_BYTES)), 1))
    hashes, records = _hashes(block, properties(block))
    if len(hashes) > MAX_ENTRIES:
        block, end = _first_of(block, max(int(records[MAX_ENTRIES]), 1))
        count = int(np.searchsorted(records, len(block)))
        hashes, records = hashes[:count], records[:count]
    return _entries(block, base, hashes, records), end


def harvest_all(block: Block, found: Properties, base: int) -> Entries | None:
    """As `harvest`, of records whose properties were `found` already. None if they pass a limit."""
    if int((block.end - block.properties).sum()) > MAX_PROPERTIES_BYTES:
        return None
    hashes, records = _hashes(block, found)
    return _entries(block, base, hashes, records) if len(hashes) <= MAX_ENTRIES else None


def _entries(block: Block, base: int, hashes: npt.NDArray[np.int32], records: Ints) -> Entries:
    entries = np.empty(len(hashes), FOUND)
    entries["hash"], entries["offset"], entries["stored_ms"] = hashes, base + block.at[records], block.ints(block.store)[records]
    return entries


def _first_of(block: Block, count: int) -> tuple[Block, int]:
    """The first records, and the place where they end."""
    return block.only(slice(0, count)), int(block.at[count]) if count < len(block) else int(block.end[-1])


def _hashes(block: Block, properties_: Properties) -> tuple[npt.NDArray[np.int32], Ints]:
    """Hash and record of each entry; a record has entries for its unique key, its keys and its tag [IndexService.buildIndex]."""
    topics, _ = java_hashes(block.data, block.topic, block.topic_end)
    found: list[tuple[npt.NDArray[np.int32], Ints]] = []
    parts, others = properties_
    for part in parts:
        for name, mark in (b"UNIQ_KEY", "#"), (b"KEYS", "#"), (b"TAGS", "#T#"):
            if name == b"KEYS" and b" " in part.text:
                records, start, stop = _words(part.text, *part.named(name))
                hashes, units = java_hashes(part.text, start, stop)
            else:
                records, hashes, units = part.hashes(name)
            found.append((_without_sign(_goes_on(topics[records], mark) * POWERS[units] + hashes), records))
    for index in others.tolist():
        odd = np.array(hashes_of(*_texts(block, index)), np.int32)
        found.append((odd, np.full(len(odd), index)))
    ordered, records = _in_order([each for each in found if len(each[1])])
    rolled_back = block.head["sys_flag"] & SYS_TRANSACTION == SYS_ROLLBACK
    if rolled_back.any():
        kept = ~rolled_back[records]
        return ordered[kept], records[kept]
    return ordered, records


def _in_order(found: list[tuple[npt.NDArray[np.int32], Ints]]) -> tuple[npt.NDArray[np.int32], Ints]:
    """Record by record, and each one's as they are given."""
    if not found:
        return np.empty(0, np.int32), np.empty(0, np.int64)
    hashes, records = zip(*found, strict=True)
    if all(np.array_equal(each, records[0]) for each in records[1:]):  # usually they all have one of each kind
        return np.stack(hashes, axis=1).ravel(), np.repeat(records[0], len(found))
    every = np.concatenate(records)
    order = np.argsort(every, kind="stable")
    return np.concatenate(hashes)[order], every[order]


def _texts(block: Block, index: int) -> tuple[str, bytes]:
    """Topic and properties of one record."""
    topic = block.data[block.topic[index] : block.topic_end[index]].decode("utf-8", "replace")
    return topic, block.data[block.properties[index] : block.end[index]]


def _words(text: bytes, records: Ints, start: Ints, stop: Ints) -> Values:
    """The words between the spaces in these values."""
    spaces = np.flatnonzero(np.frombuffer(text, np.uint8) == 32)
    value = np.searchsorted(start, spaces, "right") - 1  # -1: before the first
    inside = spaces < np.append(stop, 0)[value]
    records = np.sort(np.concatenate((records, records[value[inside]])))
    start = np.sort(np.concatenate((start, spaces[inside] + 1)))
    stop = np.sort(np.concatenate((stop, spaces[inside])))
    filled = stop > start
    return records[filled], start[filled], stop[filled]


def _goes_on(hashes: Hashes, text: str) -> Hashes:
    """The hashes of texts that go on with `text`."""
    longer: Hashes = hashes * POWERS[len(text)] + np.uint32(java_hash(text) & 0xFFFF_FFFF)
    return longer


def _without_sign(hashes: Hashes) -> npt.NDArray[np.int32]:
    """|hash|, and 0 for -2^31."""
    found: npt.NDArray[np.int32] = np.abs(hashes.view(np.int32)) & 0x7FFF_FFFF
    return found
