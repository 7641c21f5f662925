"""One walk over a part of a log: finds its records, checks each, and finds the damage between them.

A Python loop finds only the sizes; numpy does everything else for all records of a block at once. Knows files, but no Arrow and
no Spark. `rmq.log.records.record` says what a whole record is; here the same rules are written for many records.
"""

import os
import re
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np

from analytics.stores.files import Opened, is_remote, open_file
from analytics.stores.segments import ALIEN, MAYBE, OURS, Part
from rmq.errors import BadBytes, StoreError
from rmq.log.records import columns
from rmq.log.records.columns import HEAD, Block, Flags, Ints, crcs, say_crcs, window
from rmq.log.records.properties import CRC_BYTES, CRC_NAME
from rmq.log.records.record import BLANK_MAGIC, MIN_RECORD_BYTES, verify
from rmq.secretfiles import without_keys

__all__ = ["Block", "Damage", "Flags", "Ints", "SegmentGone", "check", "joined", "layout", "missing", "sums_are_right", "walk"]

BLOCK_BYTES = 4 << 20  # more does not stay in the caches between the steps of a block
_size_at = Struct(">i").unpack_from
_size_and_magic = Struct(">ii").unpack_from
_find_magic = re.compile(rb"\xda\xa3\x20[\xa7\xab]").finditer
_MARKER = np.frombuffer(CRC_NAME + b"\x01" + bytes(10) + b"\x02", np.uint8)
_MARKS = np.array([*range(9), 19])  # those of the 20 bytes that are no digits


class SegmentGone(StoreError):
    """Retention removed the file after it was found: its records are gone."""


class Damage(NamedTuple):
    """[start, end) of the log holds no valid record; `why` in words."""

    start: int
    end: int
    why: str


def missing(path: str) -> StoreError:
    """What it means that this file of a log is not there. Who allows for retention may pass over a SegmentGone alone."""
    folder = os.path.dirname(path)
    if is_remote(path) or os.path.isdir(folder):
        return SegmentGone(f"{without_keys(path)} is gone: retention removed it after the job began; run the job again")
    return StoreError(f"{folder} is not on the machine of this worker: each worker must find the store under this path")


def joined(blocks: Sequence[Block]) -> Block:
    """All blocks as one."""
    if len(blocks) == 1:
        return blocks[0]
    shifts = np.repeat(np.cumsum([0, *(len(block.data) for block in blocks[:-1])]), [len(block) for block in blocks])

    def column(name: str) -> Ints:
        found: Ints = np.concatenate([getattr(block, name) for block in blocks])
        return found if name == "head" else found + shifts

    return Block(b"".join(block.data for block in blocks), *map(column, Block._fields[1:]))


def walk(part: Part) -> Iterator[Block | Damage]:
    """The checked records that begin in a part, a block at a time, and the damage.

    Raises SegmentGone if retention removed the file meanwhile, StoreError if it cannot be read.
    """
    if part.broken:
        yield Damage(part.start, part.stop, part.broken)
        return
    try:
        opened = open_file(part.path)
    except FileNotFoundError:
        raise missing(part.path) from None
    except OSError as error:
        named = without_keys(part.path)
        raise StoreError(f"{named} cannot be read: {error}; run the job as the broker's user, or on a copy") from error
    try:
        yield from _Walk(part, opened).run()
    except OSError as error:
        named = without_keys(part.path)
        raise StoreError(f"{named} cannot be read: {error}; check the disk, or read a copy from another node") from error
    finally:
        opened.close()


def layout(data: bytes, at: Ints, offsets: Ints) -> tuple[Block, Flags]:
    """The parts of the records that begin `at`, and which records have parts that add up and are at `offsets` of the log."""
    block, good = columns.layout(data, at)
    return block, good & (block.head["physical_offset"] == offsets)


def check(data: bytes, at: int, offset: int, trust: int) -> None:
    """Checks one record, slowly. Raises BadBytes, which says what is wrong."""
    size = verify(data, at, offset, trust == OURS)
    if trust == MAYBE:
        one, _ = layout(data, np.array([at]), np.array([offset]))
        if not sums_are_right(one, np.array([trust]))[0]:
            raise BadBytes(f"record at {offset}: wrong record checksum ({size} bytes)")


class _Walk:
    """A walk over one part of an open file."""

    def __init__(self, part: Part, opened: Opened) -> None:
        self._part = part
        self._opened = opened
        self._limit = part.end if part.reach is None else part.reach
        self._trust_from = np.array([start for start, _ in part.trust])
        self._trust = np.array([trust for _, trust in part.trust])

    def run(self) -> Iterator[Block | Damage]:
        part, position = self._part, self._part.start
        if part.midway:
            found = self._find(position, part.stop)
            if found is None:
                return  # these bytes belong to the part before, which reports their damage
            position = found
        while position < part.stop:
            block, halted = self._block(position)
            if len(block):
                yield block
                position += int(block.end[-1])
            if halted and position < part.stop:
                damage = self._damage(position)
                if damage is None:
                    return
                yield damage
                position = damage.end
        if part.stop <= position < self._limit and not self._is_record(position):
            damage = self._damage(position)  # the next part searches for a record and would skip this
            if damage is not None:
                yield damage

    def _block(self, position: int) -> tuple[Block, bool]:
        """The good records from there on, as many as one read has, and whether something other than a record follows."""
        data = self._read(position, BLOCK_BYTES)
        size = _size_at(data)[0] if len(data) >= 4 else 0
        if len(data) < size <= self._limit - position:
            data = self._read(position, size)
        starts, halted = _chain(data, self._part.stop - position, len(data) < BLOCK_BYTES or position + len(data) >= self._limit)
        at = np.array(starts, np.int64)
        block, good = layout(data, at, position + at) if starts else _NOTHING
        first = _first_false(good)
        block = block.only(slice(0, first))
        if len(block):
            first = _first_false(sums_are_right(block, self._trusts(position + block.at)))
        return block.only(slice(0, first)), halted or first < len(starts)

    def _damage(self, position: int) -> Damage | None:
        """The damage at `position`, where no record is; None if the records end there."""
        data = self._read(position, MIN_RECORD_BYTES)
        left, magic = _size_and_magic(data) if len(data) >= 8 else (0, 0)
        if magic == BLANK_MAGIC and left == self._part.end - position:
            return None
        behind = self._find(position + 1, self._limit)
        if behind is None and self._part.reach is None:
            return None  # a torn tail, or what RocketMQ has not written yet
        return Damage(position, behind or self._limit, self._why(position))

    def _why(self, position: int) -> str:
        size, path = int.from_bytes(self._read(position, 4), "big"), without_keys(self._part.path)
        data = self._read(position, min(max(size, MIN_RECORD_BYTES), BLOCK_BYTES * 16))
        try:
            check(data, 0, position, int(self._trusts(np.array([position]))[0]))
        except BadBytes as error:
            return f"CommitLog at {position}: {error}, in {path}; check the disk, or read a copy from another node"
        return f"CommitLog at {position}: a record that ends behind {self._limit}, in {path}"

    def _find(self, position: int, before: int) -> int | None:
        """Where a whole record begins in [position, before): its checksums and its own offset must be right."""
        while position < before:
            data = self._read(position, BLOCK_BYTES)
            for place in _find_magic(data):
                start = position + place.start() - 4
                if position <= start < before and self._is_record(start):
                    return start
            if position + len(data) >= self._limit or len(data) <= MIN_RECORD_BYTES:
                return None
            position += len(data) - 7  # a head may lie across two reads
        return None

    def _is_record(self, start: int) -> bool:
        head = self._read(start, 36)
        size = int.from_bytes(head[:4], "big", signed=True)
        if len(head) < 36 or int.from_bytes(head[28:36], "big") != start or not 0 < size <= self._limit - start:
            return False
        try:
            check(self._read(start, size), 0, start, int(self._trusts(np.array([start]))[0]))
        except BadBytes:
            return False
        return True

    def _trusts(self, offsets: Ints) -> Ints:
        if len(self._trust) == 1:
            return np.broadcast_to(self._trust, offsets.shape)
        found: Ints = self._trust[np.searchsorted(self._trust_from, offsets, "right") - 1]
        return found

    def _read(self, position: int, size: int) -> bytes:
        """At most `size` bytes, and none beyond the end that records can reach."""
        return self._opened.read(min(size, self._limit - position), position - self._part.base)


def _chain(data: bytes, stop: int, is_last: bool) -> tuple[list[int], bool]:
    """Where the records begin, by their sizes alone, and whether the walk met something that is no record."""
    starts: list[int] = []
    at, room = 0, len(data)
    edge = min(stop, room - MIN_RECORD_BYTES + 1)
    put = starts.append
    while at < edge:
        (size,) = _size_at(data, at)
        if size < MIN_RECORD_BYTES:
            return starts, True
        put(at)
        at += size
    if at > room:
        starts.pop()  # it goes on behind what was read
        return starts, is_last or not starts
    return starts, at < stop and is_last


def _first_false(flags: Flags) -> int:
    return len(flags) if flags.all() else int(flags.argmin())


def sums_are_right(block: Block, trust: Ints) -> Flags:
    """Which records have a right checksum: that of the whole record if rmq wrote it, else that of the body."""
    data, tail = block.data, block.end - CRC_BYTES
    room: Flags = tail >= block.properties
    if (trust == OURS).all():
        return room & say_crcs(data, tail, crcs(data, block.at, tail))
    near = (window(data, tail, CRC_BYTES)[:, _MARKS] == _MARKER[_MARKS]).sum(axis=1)
    summed = np.where(trust == ALIEN, False, room & (near >= len(_MARKS) - 1))  # a flip in the marker hides no checksum
    right = np.where(trust == OURS, summed, True)
    right[summed] &= say_crcs(data, tail[summed], crcs(data, block.at[summed], tail[summed]))
    bare = ~summed
    right[bare] &= crcs(data, block.body[bare], block.body_end[bare]) == block.head["body_crc"][bare]
    return right


_NONE: Ints = np.empty(0, np.int64)
_NOTHING = Block(b"", _NONE, _NONE, np.empty(0, HEAD), _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE), np.empty(0, np.bool_)
