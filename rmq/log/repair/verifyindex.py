"""Index files against the log, in one walk over it: each entry's hash is one of its record's, and no key is left out."""

import sys
from array import array
from collections.abc import Iterator
from struct import Struct

from rmq.log.files.disk import Disk
from rmq.log.index.indexfile import ENTRY, ENTRY_BYTES, HEADER_BYTES
from rmq.log.records.indexkeys import key_hash
from rmq.log.records.record import SYS_ROLLBACK, SYS_TRANSACTION, Record, bytes_to_properties

_HEADER = Struct(">qqqqii")
_MOST_FINDINGS = 5

Finding = tuple[str, str, bool]


class IndexWalk:
    """`take` each record in log order, then `finish`. `files`, `entries`: how many were read."""

    def __init__(self, disk: Disk, directory: str, slots: int) -> None:
        self.files = self.entries = 0
        self.unchecked: list[str] = []
        self._disk = disk
        self._directory = directory
        self._slots = slots
        self._findings: list[Finding] = []
        self._lacking = 0
        self._entries = self._read_all()
        self._next: tuple[int, int, str] | None = next(self._entries, None)
        self._first: int | None = self._next[0] if self._next else None
        self._last = -1

    def _read_all(self) -> Iterator[tuple[int, int, str]]:
        """(offset, hash, file) of every entry of every file, oldest first; chains and slots are checked on the way."""
        for name in filter(str.isdecimal, self._disk.listdir(self._directory)):
            path = f"{self._directory}/{name}"
            handle = self._disk.open(path)
            try:
                yield from self._read_file(handle, f"index/{name}", self._disk.size(path))
            finally:
                self._disk.close(handle)

    def _read_file(self, handle: int, path: str, size: int) -> Iterator[tuple[int, int, str]]:
        entries_at = HEADER_BYTES + self._slots * 4
        header = self._disk.pread(handle, HEADER_BYTES, 0)
        if size < entries_at + ENTRY_BYTES or len(header) < HEADER_BYTES:
            what = f"index/: {size} bytes are too few for {self._slots} slots; give --index-slots (RocketMQ: maxHashSlotNum)"
            self.unchecked = [what]
            return
        count = _HEADER.unpack(header)[5]
        room = (size - entries_at) // ENTRY_BYTES
        if not 0 <= count <= room:
            self._tell(path, f"its header says {count} entries, there is room for {room}")
            return
        self.files += 1
        newest = array("i", bytes(self._slots * 4))
        for first in range(1, count, 4096):
            block = self._disk.pread(handle, min(4096, count - first) * ENTRY_BYTES, entries_at + first * ENTRY_BYTES)
            for entry_index, (value, offset, _, before) in enumerate(ENTRY.iter_unpack(block), first):
                slot = value % self._slots
                if before != newest[slot]:
                    self._tell(path, f"entry {entry_index} goes on at {before}, the one before in its chain is {newest[slot]}")
                newest[slot] = entry_index
                self.entries += 1
                yield offset, value, path
        said = array("i", self._disk.pread(handle, self._slots * 4, HEADER_BYTES))
        if sys.byteorder == "little":
            said.byteswap()
        ahead = 0
        for slot in range(self._slots) if said != newest else ():
            entry_index = said[slot]
            while count <= entry_index < room:  # the header is written after the slots
                place = entries_at + entry_index * ENTRY_BYTES
                entry_index = min(entry_index - 1, ENTRY.unpack(self._disk.pread(handle, ENTRY_BYTES, place))[3])
            if entry_index != newest[slot]:
                self._tell(path, f"slot {slot} says {said[slot]}, the newest entry of its chain is {newest[slot]}")
            ahead += entry_index != said[slot]
        if ahead:
            self._tell(path, f"{ahead} slots are ahead of its header: a node was writing", damage=False)

    def _tell(self, path: str, what: str, damage: bool = True) -> None:
        if len(self._findings) < _MOST_FINDINGS * 4:
            self._findings.append((path, what, damage))

    def take(self, found: Record) -> None:
        """Consumes the entries of that record, and entries that point to no record at all."""
        at, values = found.physical_offset, set()
        path = ""
        while self._next is not None and self._next[0] <= at:
            offset, value, path = self._next
            if offset == at:
                values.add(value)
            elif offset > self._last and self._last >= 0:
                self._tell(path, f"an entry points to {offset}, where no record begins")
            self._next = next(self._entries, None)
        self._last = at
        if self._first is None or at < self._first:
            return
        keys, tags = _hashes(found)
        for value in values - keys - tags:
            self._tell(path, f"an entry with hash {value} points to {at}, whose record has no such key")
        if keys - values and self._next is not None:
            self._lacking += 1

    def skip(self, end: int) -> None:
        """Passes over the entries below `end`: their records are damaged or lost."""
        while self._next is not None and self._next[0] < end:
            self._next = next(self._entries, None)

    def finish(self, end: int, must: int) -> Iterator[Finding]:
        """Reports what is wrong. `must`: the index is said to have the log below it."""
        while self._next is not None:
            if self._next[0] >= end:
                self._tell(self._next[2], f"an entry points to {self._next[0]}, behind the end of the log", self._next[0] < must)
            self._next = next(self._entries, None)
        yield from self._findings
        if self._lacking:
            yield "index", f"{self._lacking} messages are not under all their keys in it", must > 0


def _hashes(found: Record) -> tuple[set[int], set[int]]:
    """Hashes of the unique key and the keys; and of the tag, which older releases do not index."""
    if found.sys_flag & SYS_TRANSACTION == SYS_ROLLBACK:
        return set(), set()
    said = bytes_to_properties(found.properties)
    words = [word for word in said.get("KEYS", "").split(" ") if word]
    keys = {key_hash(found.topic, word) for word in [*words, *([said["UNIQ_KEY"]] if "UNIQ_KEY" in said else [])]}
    return keys, {key_hash(found.topic, said["TAGS"], tag=True)} if "TAGS" in said else set()
