"""Remembers which records were checked since their bytes last came from the device: not every pull must check them (D8)."""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

BLOCK_BITS = 20  # of the log's offsets: 1 MiB. What is forgotten around one page that was read costs checks of all records in it
SLOT_BITS = 6  # 64 bytes, fewer than any record has
CELL_BITS = 13  # 8 KiB
MAX_BLOCKS = 16_384  # 16 GiB of log cost 48 MiB
_BLOCK_BYTES = 1 << BLOCK_BITS
_IN_BLOCK = _BLOCK_BYTES - 1
_CELL_BYTES = 1 << CELL_BITS


class _Block(NamedTuple):
    """`slots`: a bit for each slot in which a checked record begins. `bytes_in`: of checked records, in each cell; if that is a
    whole cell, all that begin in it are checked. The end of a record that began in the block before does not count."""

    slots: bytearray
    bytes_in: "array[int]"


class Verified:
    """`end`: this run wrote everything behind it, and has read nothing back; below it only checked records are sure.

    The block that was noted first goes when there are too many. Records longer than a block are checked each time.
    `forget` may be called in other threads: blocks are only taken out whole, each by one call that no thread interrupts.
    """

    def __init__(self, end: int) -> None:
        self._end = end
        self._blocks: OrderedDict[int, _Block] = OrderedDict()

    def has(self, spans: Sequence[tuple[int, int]]) -> bool:
        """Whether none of these records (rising offsets) needs a check."""
        if spans[0][0] >= self._end:
            return True
        first = 0
        while first < len(spans):
            index = spans[first][0] >> BLOCK_BITS
            block, after = self._blocks.get(index), bisect_left(spans, ((index + 1) << BLOCK_BITS,), first)
            if block is None or not _all_in(block, spans[first:after]):
                return False
            first = after
        return True

    def add(self, spans: Sequence[tuple[int, int]]) -> None:
        for offset, size in spans:
            if size > _BLOCK_BYTES:
                continue
            index, at = offset >> BLOCK_BITS, offset & _IN_BLOCK
            block = self._blocks.get(index)
            if block is None:
                block = _Block(bytearray(1 << (BLOCK_BITS - SLOT_BITS - 3)), array("I", bytes(4 << (BLOCK_BITS - CELL_BITS))))
                self._blocks[index] = block
                if len(self._blocks) > MAX_BLOCKS:
                    self._blocks.popitem(last=False)
            slot = at >> SLOT_BITS
            if not block.slots[slot >> 3] >> (slot & 7) & 1:
                block.slots[slot >> 3] |= 1 << (slot & 7)
                _count(block.bytes_in, at, min(at + size, _BLOCK_BYTES))

    def forget(self, from_: int, to: int) -> None:
        """Bytes in [from_, to) are being read from the device; a record that begins in the block before may end there."""
        self._end = max(self._end, to)
        for index in range((from_ >> BLOCK_BITS) - 1, (to >> BLOCK_BITS) + 1):
            self._blocks.pop(index, None)

    def cut(self, to: int) -> None:
        """The log ends there now; other records will stand behind it."""
        self.forget(to, self._end)
        self._end = min(self._end, to)


def _all_in(block: _Block, spans: Sequence[tuple[int, int]]) -> bool:
    first, last = (spans[0][0] & _IN_BLOCK) >> CELL_BITS, (spans[-1][0] & _IN_BLOCK) >> CELL_BITS
    if min(block.bytes_in[first : last + 1], default=0) == _CELL_BYTES:  # none: a damaged queue names them in no order
        return True
    slots = block.slots
    return all([slots[(offset & _IN_BLOCK) >> SLOT_BITS + 3] & 1 << (offset >> SLOT_BITS & 7) for offset, _ in spans])


def _count(cells: "array[int]", at: int, end: int) -> None:
    while at < end:
        cell = at >> CELL_BITS
        to = min(end, (cell + 1) << CELL_BITS)
        cells[cell] += to - at
        at = to
