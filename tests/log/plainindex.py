"""The index files, record by record and entry by entry: the slow twin of `rmq.log.index` [IndexService, IndexFile]."""

import struct
from collections.abc import Iterable

from rmq.log.index.indexfile import Shape
from rmq.log.records.indexkeys import hashes_of
from rmq.log.records.record import Record

_MAX_INT32 = 2**31 - 1


class PlainFile:
    """A file in memory. `end_ms`, `end_offset`: of the file before."""

    def __init__(self, shape: Shape, end_ms: int, end_offset: int) -> None:
        self.shape = shape
        self.data = bytearray(shape.file_bytes)
        self.begin_ms = self.end_ms = end_ms
        self.begin_offset = self.end_offset = end_offset
        self.used, self.next = 0, 1

    def put(self, value: int, offset: int, stored_ms: int) -> None:
        seconds = (stored_ms - self.begin_ms) // 1000 if self.begin_ms > 0 else 0
        slot_at = 40 + value % self.shape.slots * 4
        (before,) = struct.unpack_from(">i", self.data, slot_at)
        at = self.shape.entries_at + self.next * 20
        struct.pack_into(">iqii", self.data, at, value, offset, min(max(seconds, 0), _MAX_INT32), before)
        struct.pack_into(">i", self.data, slot_at, self.next)
        if self.next == 1:
            self.begin_ms, self.begin_offset = stored_ms, offset
        self.used += before == 0
        self.next += 1
        self.end_ms, self.end_offset = stored_ms, offset
        header = (self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used, self.next)
        struct.pack_into(">qqqqii", self.data, 0, *header)


def plain_files(records: Iterable[Record], shape: Shape) -> list[bytes]:
    files: list[PlainFile] = []
    for one in records:
        for value in hashes_of(one.topic, one.properties) if one.sys_flag & 0xC != 0xC else ():
            if not files or files[-1].next == shape.entries:
                files.append(PlainFile(shape, files[-1].end_ms, files[-1].end_offset) if files else PlainFile(shape, 0, 0))
            files[-1].put(value, one.physical_offset, one.store_timestamp)
    return [bytes(file.data) for file in files]
