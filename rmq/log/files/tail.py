"""The last bytes of the log, kept in memory: who follows its end reads no file.

The page cache has them, too, but a read from there may last. In a file that is still being written the system takes what was
only allocated for data: it makes zeros of it ahead of the reader, who waits (8 MiB, or 25 ms, where a disk is set up so). It does
so even for a handle that forbids it (POSIX_FADV_RANDOM), when it meets a page that was marked for that, or for reclaim, which
is the same mark [Linux, PG_readahead].
"""

from struct import Struct

_SIZE_BYTES = 4
_size_at = Struct(">I").unpack_from


class Tail:
    """A ring of `room` bytes: those of [start, end) of the log, without a gap.

    `add` and `cut` belong to one thread, `view` and `record` too, `read` to any.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._ring = memoryview(bytearray(room))
        self._start = self._end = 0

    def add(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """What was written there. It is kept alone if it does not begin at the end of what was written before."""
        room, size = self._room, len(data)
        end = offset + size
        if size > room:
            self._start = self._end = end
            return
        if offset != self._end:
            self._start = offset
        elif self._start < end - room:
            self._start = end - room  # before these bytes go: see `read`
        at = offset % room
        if at + size <= room:
            self._ring[at : at + size] = data
        else:
            self._ring[at:] = memoryview(data)[: room - at]
            self._ring[: at + size - room] = memoryview(data)[room - at :]
        self._end = end

    @property
    def start(self) -> int:
        """Everything from there on is here."""
        return self._start

    def cut(self, to: int) -> None:
        """The log ends there now, perhaps before or behind what is here."""
        self._end = min(self._end, to)
        self._start = min(self._start, self._end)

    def view(self, offset: int, size: int) -> memoryview | None:
        """These bytes as they lie here, until the next `add`; None if they are not here, or in two pieces."""
        at = offset % self._room
        if offset < self._start or offset + size > self._end or at + size > self._room:
            return None
        return self._ring[at : at + size]

    def record(self, offset: int) -> bytes | None:
        """A copy of the record that begins there, which needs no check: no disk had it. None as for `view`."""
        at, room = offset % self._room, min(self._end - offset, self._room - offset % self._room)
        if offset < self._start or room < _SIZE_BYTES or (size := _size_at(self._ring, at)[0]) > room:
            return None
        return bytes(self._ring[at : at + size])

    def read(self, offset: int, size: int) -> bytes | None:
        """A copy of them; None if they are not all here."""
        if offset < self._start or offset + size > self._end:
            return None
        at = offset % self._room
        data = bytes(self._ring[at : at + size])
        if len(data) < size:
            data += self._ring[: size - len(data)]
        return data if offset >= self._start else None  # meanwhile another thread may have written over them
