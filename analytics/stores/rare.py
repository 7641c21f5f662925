"""Reads topics with a small share of the log through their ConsumeQueues: it touches only their own records.

This works only in a store of rmq, which says which units of its queues are durable. The scan handles unclear cases: bytes by
RocketMQ, a hole, a deleted topic whose older records the queues do not know any more. A unit that does not lead to the record
that it names is damage.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analytics.stores.files import Directory, Opened, entries, open_file, own_files, refuse_links
from analytics.stores.options import Wanted
from analytics.stores.segments import OURS, Part, find_parts
from analytics.stores.walk import Block, Damage, Ints, layout, missing, sums_are_right
from rmq.errors import StoreError
from rmq.log.files import ownfiles
from rmq.log.files.ownfiles import QueueRow
from rmq.log.records.deletions import deleted_topics
from rmq.log.records.record import MIN_RECORD_BYTES
from rmq.model import STATE_TOPIC

_UNIT = np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
_BLANK_SIZE = 0x7FFFFFFF  # the size in a unit whose message is lost
_RARE = 5  # topics are rare if they have at most one fifth of the bytes
_BLOCK_BYTES = 8 << 20
_MULTI_DISPATCH = "%LMQ%"  # units of such a queue lead to records of other topics


class Places(NamedTuple):
    """Records of one file, by their offsets in the log. `sizes`, `queues`, `queue_offsets`: from the units. `codes`: indexes into
    `topics`."""

    path: str
    base: int
    offsets: Ints
    sizes: Ints
    queues: Ints
    queue_offsets: Ints
    codes: Ints
    topics: tuple[str, ...]

    def only(self, chosen: Ints | npt.NDArray[np.bool_]) -> "Places":
        return self._replace(
            offsets=self.offsets[chosen],
            sizes=self.sizes[chosen],
            queues=self.queues[chosen],
            queue_offsets=self.queue_offsets[chosen],
            codes=self.codes[chosen],
        )

    @property
    def bytes(self) -> int:
        return int(self.sizes.sum())


def find_places(store: Directory, wanted: Wanted, parts: Sequence[Part]) -> list[Places] | None:
    """Where the records of the wanted topics are in these parts; None if the log has to be scanned.

    Raises StoreError if a file of the store is damaged.
    """
    own = own_files(store) if isinstance(store, Path) else None  # over a network, a request for each record takes longer
    if not wanted.use_queues or wanted.topics is None or not parts or own is None or not isinstance(store, Path):
        return None
    if any(part.broken or {trust for _, trust in part.trust} != {OURS} for part in parts):
        return None
    progress, rows = ownfiles.load_progress(*own), ownfiles.load_queues(*own)  # rows are saved before progress
    if progress is None or rows is None or progress.cq < parts[-1].stop:
        return None
    if any(name.startswith(_MULTI_DISPATCH) for name in wanted.topics):
        return None
    found = _units(store, [row for row in rows if row.topic in wanted.topics], parts)
    state = _units(store, [row for row in rows if row.topic == STATE_TOPIC], find_parts(store))  # of all times
    if found is None or state is None or (_bytes(found) + _bytes(state)) * _RARE > sum(part.stop - part.start for part in parts):
        return None
    return None if wanted.topics & _deleted(state) else found


def read_places(places: Places) -> Iterator[Block | Damage]:
    """The checked records there, and damage where a unit does not lead to its record. Raises SegmentGone, StoreError."""
    try:
        opened = open_file(places.path)
    except FileNotFoundError:
        raise missing(places.path) from None
    try:
        for some in _blocks(places):
            yield from _read(opened, some)
    except OSError as error:
        raise StoreError(f"{places.path} cannot be read: {error}; check the disk, or read a copy from another node") from error
    finally:
        opened.close()


def cut(places: Places, size: int) -> Iterator[Places]:
    """Cuts places into pieces of about `size` bytes."""
    before = np.cumsum(places.sizes) - places.sizes
    for index in range(int(before[-1]) // size + 1):
        piece = places.only(before // size == index)
        if len(piece.offsets):
            yield piece


def _read(opened: Opened, places: Places) -> Iterator[Block | Damage]:
    read, spans = opened.read, zip(places.sizes.tolist(), (places.offsets - places.base).tolist(), strict=True)
    raw = [read(size, place) for size, place in spans]
    lengths = np.array([*map(len, raw)], np.int64)
    at = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)
    block, good = layout(b"".join(raw).ljust(MIN_RECORD_BYTES, b"\0"), at, places.offsets)
    good &= (block.head["size"] == places.sizes) & (lengths == places.sizes) & (places.sizes >= MIN_RECORD_BYTES)
    whole = block.only(good)
    good[good] = sums_are_right(whole, np.full(len(whole), OURS))
    good &= (block.head["queue_id"] == places.queues) & (block.head["queue_offset"] == places.queue_offsets)
    names, codes = [name.encode() for name in places.topics], places.codes.tolist()
    spans = zip(block.topic.tolist(), block.topic_end.tolist(), strict=True)
    good &= [block.data[start:end] == names[code] for (start, end), code in zip(spans, codes, strict=True)]
    if good.any():
        yield block.only(good)
    for index in np.flatnonzero(~good).tolist():
        offset, size = int(places.offsets[index]), int(places.sizes[index])
        where = f"{places.topics[places.codes[index]]}, queue {places.queues[index]}, message {places.queue_offsets[index]}"
        why = f"CommitLog at {offset}: not the record that the queue names ({where}), in {places.path}"
        yield Damage(offset, offset + size, f"{why}; run `rmq store verify`, or give rareTopics=scan to read the log alone")


def _blocks(places: Places) -> Iterator[Places]:
    if len(places.offsets):
        yield from cut(places, _BLOCK_BYTES)


# --- units ------------------------------------------------------------------------------------------------------------


def _units(store: Path, rows: Sequence[QueueRow], parts: Sequence[Part]) -> list[Places] | None:
    """The units of these queues that lead into the parts, file by file; None if a unit that must be there is missing."""
    topics = sorted({row.topic for row in rows})
    columns: list[list[Ints]] = [[] for _ in range(5)]
    for row in rows:
        found = _of_queue(store / "consumequeue" / row.topic / str(row.queue_id), row)
        if found is None:
            return None
        units, counted = found
        same = np.ones(len(units), np.int64)
        each = (units["offset"].astype(np.int64), units["size"].astype(np.int64), same * row.queue_id, counted)
        for column, values in zip(columns, (*each, same * topics.index(row.topic)), strict=True):
            column.append(values)
    empty = [np.empty(0, np.int64)]
    offsets, sizes, queues, queue_offsets, codes = (np.concatenate(column or empty) for column in columns)
    every = Places("", 0, offsets, sizes, queues, queue_offsets, codes, tuple(topics)).only(np.argsort(offsets, kind="stable"))
    inside = [
        every._replace(path=part.path, base=part.base).only((every.offsets >= part.start) & (every.offsets < part.stop))
        for part in parts
    ]
    return [one for one in inside if len(one.offsets)]


def _of_queue(directory: Path, row: QueueRow) -> tuple[npt.NDArray[np.void], Ints] | None:
    """The queue's units [min, max) without blank ones, and their queue offsets. None if the files end before, or hold zeros."""
    refuse_links(directory.parent.parent, directory.parent)
    files = [file for file in entries(directory) if file.name.isdecimal()] if directory.is_dir() else []
    pieces: list[npt.NDArray[np.void]] = []
    at = row.min
    for file in files:
        first = int(file.name) // _UNIT.itemsize
        if first <= at < row.max:
            try:
                units = np.fromfile(file.path, _UNIT, min(row.max, first + file.size // _UNIT.itemsize) - first)
            except FileNotFoundError:  # retention took it since
                return None
            pieces.append(units[at - first :])
            at = max(at, first + len(units))
    if at < row.max:
        return None
    units = np.concatenate(pieces) if pieces else np.empty(0, _UNIT)
    if (units["size"] == 0).any():  # preallocated, and never written
        return None
    kept = units["size"] != _BLANK_SIZE
    return units[kept], np.arange(row.min, row.max)[kept]


def _deleted(state: Sequence[Places]) -> set[str]:
    """Topics that were deleted within the log that is left: if made again, their queues do not know the older records."""
    return {
        topic
        for places in state
        for block in read_places(places)
        if isinstance(block, Block)
        for start, end in zip(block.body.tolist(), block.body_end.tolist(), strict=True)
        for topic in deleted_topics(block.data[start:end])
    }


def _bytes(found: Sequence[Places]) -> int:
    return sum(places.bytes for places in found)
