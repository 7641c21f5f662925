"""Remembers which records were checked since their bytes last came from the device: not every pull must check them (D8)."""

from collections import OrderedDict
from collections.abc import Sequence

BLOCK_BITS = 24  # of the log's offsets: 16 MiB
SLOT_BITS = 6  # 64 bytes, fewer than any record has
BLOCK_BYTES = 1 << (BLOCK_BITS - SLOT_BITS - 3)
MAX_BLOCKS = 1024  # 16 GiB of log cost 32 MiB
_IN_BLOCK = (1 << BLOCK_BITS) - 1


class Verified:
    """`end`: this run wrote everything behind it, and has read nothing back; below it only checked records are sure.

    One bit for each 64 bytes in which a checked record begins. The block that was noted first goes when there are too many.
    `forget` may be called in other threads: blocks are only taken out whole, each by one call that no thread interrupts.
    """

    def __init__(self, end: int) -> None:
        self._end = end
        self._blocks: OrderedDict[int, bytearray] = OrderedDict()

    def has(self, spans: Sequence[tuple[int, int]]) -> bool:
        """Whether none of these records (rising offsets) needs a check."""
        if spans[0][0] >= self._end:
            return True
        blocks = self._blocks
        for offset, _ in spans:
            block = blocks.get(offset >> BLOCK_BITS)
            slot = (offset & _IN_BLOCK) >> SLOT_BITS
            if block is None or not block[slot >> 3] >> (slot & 7) & 1:
                return False
        return True

    def add(self, spans: Sequence[tuple[int, int]]) -> None:
        for offset, _ in spans:
            index = offset >> BLOCK_BITS
            block = self._blocks.get(index)
            if block is None:
                block = self._blocks[index] = bytearray(BLOCK_BYTES)
                if len(self._blocks) > MAX_BLOCKS:
                    self._blocks.popitem(last=False)
            slot = (offset & _IN_BLOCK) >> SLOT_BITS
            block[slot >> 3] |= 1 << (slot & 7)

    def forget(self, from_: int, to: int) -> None:
        """Bytes in [from_, to) are being read from the device; a record of the block before may end there."""
        self._end = max(self._end, to)
        for index in range((from_ >> BLOCK_BITS) - 1, (to >> BLOCK_BITS) + 1):
            self._blocks.pop(index, None)

    def cut(self, to: int) -> None:
        """The log ends there now; other records will stand behind it."""
        self.forget(to, self._end)
        self._end = min(self._end, to)
