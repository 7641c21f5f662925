"""The judge's copy of one store's log: every byte and entry, taken once, when it was appended."""

from typing import TYPE_CHECKING

from rmq.log.files import epochs
from rmq.log.files.segment import FILLER
from rmq.log.records import record
from rmq.log.records.record import BLANK_MAGIC
from rmq.model import EPOCH_TOPIC, EpochEntry

if TYPE_CHECKING:
    from tests.sim.node import Node

_EPOCH = EPOCH_TOPIC.encode()


class Chain:
    """`digests`: one for each entry, over that entry and everything before it. `epochs`: its epoch records, and where they
    end."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.data = bytearray()
        self.ends: list[int] = []
        self.digests: list[int] = []
        self.epochs: list[tuple[int, EpochEntry]] = []

    @property
    def end(self) -> int:
        return self.base + len(self.data)

    def add(self, entry: bytes, epoch: int) -> int:
        """Returns the digest of everything up to the end of that entry."""
        digest = hash((self.digests[-1] if self.digests else 0, epoch, entry))
        if _EPOCH in entry:
            self._note_row(entry)
        self.data += entry
        self.ends.append(self.end)
        self.digests.append(digest)
        return digest

    def _note_row(self, entry: bytes) -> None:
        left, magic = FILLER.unpack_from(entry, 0)
        found = record.decode(entry, left if magic == BLANK_MAGIC else 0)
        if found.topic == EPOCH_TOPIC:
            entry = epochs.unpack(found.body).entry()
            if not self.epochs or entry.epoch > self.epochs[-1][1].epoch:
                self.epochs.append((self.end, entry))

    def cut(self, to: int) -> bool:
        """Returns False if `to` is not the end of an entry."""
        while self.ends and self.ends[-1] > to:
            self.ends.pop()
            self.digests.pop()
        del self.data[max(to - self.base, 0) :]
        while self.epochs and self.epochs[-1][0] >= to:
            self.epochs.pop()
        return to == (self.ends[-1] if self.ends else self.base)


def raw(node: "Node", at: int, to: int) -> bytes:
    """Returns the bytes of the log as the files hold them."""
    log = node.store.log
    size, segments = log.segment_bytes, log.segments()
    first, parts = segments[0].base if segments else 0, []
    while at < to:
        end = min(to, (at // size + 1) * size)
        parts.append(segments[(at - first) // size].read(at, end - at))
        at = end
    return parts[0] if len(parts) == 1 else b"".join(parts)


def entry_size(data: bytes, index: int) -> int:
    """The bytes of the entry there, with the filler before it."""
    size, magic = FILLER.unpack_from(data, index)
    if magic == BLANK_MAGIC:
        size += int.from_bytes(data[index + size : index + size + 4], "big")
    return int(size)
