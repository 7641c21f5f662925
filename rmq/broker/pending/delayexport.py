"""Pending delays in Apache RocketMQ's files: config/delayOffset.json, config/timercheck, timerwheel and timerlog.

For RocketMQ's eyes, as all exports. RocketMQ knows positions only: whatever stands behind the first message of a level that
still waits is delivered by it, also if it was delivered before. Its timer wheel is written at a stop in order; after a crash
there is none, and it reads its queue from the first timer on that waits.
"""

import asyncio
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from struct import Struct
from typing import Any

from rmq.clock import Clock
from rmq.delivery.due import CANCEL, TIMER, TIMER_SLOT_MS, DueTable, Source
from rmq.errors import StoreError
from rmq.javahash import java_hash
from rmq.log.commitlog import CommitLog
from rmq.log.files.disk import private
from rmq.log.queues.queues import ConsumeQueues
from rmq.model import DELAY_TOPIC, TIMER_TOPIC, DataVersion

MANY = 10_000  # more than so many are not looked through every few seconds
_TIMERCHECK = Struct(">7q")
_TIMERCHECK_BYTES = 4096
_SLOT = Struct(">qqqii")  # second, first and last position in the timer log, messages, magic
_SLOTS = 2 * 7 * 24 * 3600
_ENTRY = Struct(">iqiqiqiiq")  # size, position before in its slot, magic, written (ms), delay (ms), offset, size, topic's hash, 0
_BLANK = Struct(">iqi")
_BLANK_MAGIC = -875286124
_WAITS, _CANCELS = 1, 5
_REAL_TOPIC = b"REAL_TOPIC\x01"


class DelayExport:
    """`root`: of the store. `timer_file_bytes`: of one file of the timerlog; RocketMQ refuses files of another size."""

    def __init__(
        self, table: DueTable, log: CommitLog, queues: ConsumeQueues, root: Path, clock: Clock, timer_file_bytes: int
    ) -> None:
        self._table = table
        self._log = log
        self._queues = queues
        self._root = root
        self._clock = clock
        self._timer_file_bytes = timer_file_bytes
        self._reached: dict[tuple[str, int], int] | None = None  # topic, queue -> first offset that waits, or comes next
        self._finished = False

    def begin(self) -> None:
        """Before anybody is served. A wheel of an earlier run, or of RocketMQ's, does not know what comes from now on: it goes.

        Raises OSError.
        """
        self._look()
        shutil.rmtree(self._root / "timerlog", ignore_errors=True)
        (self._root / "timerwheel").unlink(missing_ok=True)

    def delay_offsets(self) -> dict[str, Any] | None:
        """config/delayOffset.json as a JSON value; None if no level was ever used."""
        reached = self._look()
        queues = sorted(queue.queue_id for queue in self._queues.of_topic(DELAY_TOPIC) if queue.max)
        table = {str(queue_id + 1): reached.get((DELAY_TOPIC, queue_id), 0) for queue_id in queues}
        return {"dataVersion": DataVersion().json(), "offsetTable": table} if table else None

    def facts(self) -> Iterator[tuple[str, object]]:
        """For RocketMQ's runtime info: "next,end" of each level [ScheduleMessageService.buildRunningStats], how many wait."""
        for level, queue_offset in ((self.delay_offsets() or {}).get("offsetTable") or {}).items():
            yield f"scheduleMessageOffset_{level}", f"{queue_offset},{self._queues.look(DELAY_TOPIC, int(level) - 1).max}"
        yield "timerCongestNum", self._table.pending

    def timercheck(self) -> bytes | None:
        """config/timercheck; None if there never was a timer."""
        if self._finished or not self._queues.look(TIMER_TOPIC, 0).max:
            return None
        minute_ms = self._clock.wall_ms() // 60_000 * 60_000  # so it is not written each time
        return _timercheck(minute_ms, 0, self._look().get((TIMER_TOPIC, 0), 0))

    async def finish(self) -> None:
        """At a stop, before the last exports: exact positions, and a timer wheel. Raises StoreError."""
        self._reached, self._finished = None, True
        try:
            await asyncio.to_thread(self._write_wheel)
        except OSError as error:
            raise StoreError(f"cannot write the timer wheel in {self._root}: {error}; is the disk full or read-only?") from error

    def _write_wheel(self) -> None:
        queue = self._queues.look(TIMER_TOPIC, 0)
        if queue.max == queue.min:
            return
        wheel = _Wheel(self._root, self._timer_file_bytes)
        read_ms = self._clock.wall_ms() // TIMER_SLOT_MS * TIMER_SLOT_MS
        for source in self._timers():
            read_ms = min(read_ms, source.due_ms - TIMER_SLOT_MS)
            wheel.add(source.due_ms - TIMER_SLOT_MS, source, *self._size_and_hash(source.offset))
        # An entry after which RocketMQ goes on behind the message that it names. It is in a slot that RocketMQ has read.
        last = Source(0, queue.entry(queue.max - 1).offset, TIMER)
        wheel.add(read_ms - TIMER_SLOT_MS, last, *self._size_and_hash(last.offset))
        wheel.finish()
        (self._root / "config").mkdir(mode=0o700, exist_ok=True)
        with open(self._root / "config" / "timercheck", "wb", opener=private) as file:
            file.write(_timercheck(read_ms, wheel.end, queue.max))

    def _timers(self) -> Iterator[Source]:
        for some in self._table.below(self._log.end, MANY):
            yield from (source for source in some if source.level in (TIMER, CANCEL))

    def _look(self) -> dict[tuple[str, int], int]:
        """Offsets below which nothing waits. Later messages have higher ones, so old offsets stay true."""
        if self._reached is None or self._table.pending <= MANY:
            lowest = self._table.lowest()
            self._reached = {}
            for queue in (*self._queues.of_topic(DELAY_TOPIC), self._queues.look(TIMER_TOPIC, 0)):
                levels = (TIMER, CANCEL) if queue.topic == TIMER_TOPIC else (queue.queue_id + 1,)
                offsets = [lowest[level] for level in levels if level in lowest]
                queue_offset = queue.first_at_or_behind(min(offsets)) if offsets else queue.max
                self._reached[queue.topic, queue.queue_id] = queue_offset
        return self._reached

    def _size_and_hash(self, offset: int) -> tuple[int, int]:
        """The size of the record there, and the hash of the topic it is for."""
        size = int.from_bytes(self._log.read(offset, 4), "big")
        stored = self._log.read(offset, size)
        return size, _hash_of(stored[stored.rfind(_REAL_TOPIC) + len(_REAL_TOPIC) :].partition(b"\x02")[0])


@lru_cache(maxsize=4096)
def _hash_of(topic: bytes) -> int:
    return java_hash(topic.decode("utf-8", "replace"))


def _timercheck(read_ms: int, log_end: int, queue_offset: int) -> bytes:
    """Slots before `read_ms` are done; the wheel has the messages before `queue_offset`."""
    return _TIMERCHECK.pack(read_ms, log_end, queue_offset, queue_offset, 0, read_ms, 1).ljust(_TIMERCHECK_BYTES, b"\0")


class _Wheel:
    """A timer wheel and its log while they are built. `end`: of the log, in bytes."""

    def __init__(self, root: Path, file_bytes: int) -> None:
        self.end = 0
        self._file_bytes = file_bytes
        self._root = root
        self._slots: dict[int, tuple[int, int, int]] = {}  # second -> first and last entry, messages less cancels
        self._entries: list[bytes] = []
        shutil.rmtree(root / "timerlog", ignore_errors=True)
        (root / "timerlog").mkdir(mode=0o700)

    def add(self, at_ms: int, source: Source, size: int, topic_hash: int) -> None:
        """`at_ms`: TIMER_OUT_MS, the slot."""
        left = self._file_bytes - self.end % self._file_bytes
        if left < _ENTRY.size + _BLANK.size:
            self._entries.append(_BLANK.pack(left, 0, _BLANK_MAGIC))
            self._write_log()
            self.end += left
        first, before, count = self._slots.get(at_ms // TIMER_SLOT_MS, (self.end, -1, 0))
        magic, more = (_CANCELS, -1) if source.level == CANCEL else (_WAITS, 1)
        written_ms = at_ms - TIMER_SLOT_MS
        self._entries.append(_ENTRY.pack(52, before, magic, written_ms, TIMER_SLOT_MS, source.offset, size, topic_hash, 0))
        self._slots[at_ms // TIMER_SLOT_MS] = first, self.end, count + more
        self.end += _ENTRY.size

    def finish(self) -> None:
        self._write_log()
        with open(self._root / "timerwheel", "wb", opener=private) as file:
            file.truncate(_SLOTS * _SLOT.size)
            for second, (first, last, count) in self._slots.items():
                file.seek(second % _SLOTS * _SLOT.size)
                file.write(_SLOT.pack(second, first, last, count, 0))

    def _write_log(self) -> None:
        """The file in which `end` lies; it has only these entries."""
        path = self._root / "timerlog" / f"{self.end // self._file_bytes * self._file_bytes:020d}"
        with open(path, "wb", opener=private) as file:
            file.write(b"".join(self._entries))
            file.truncate(self._file_bytes)
        self._entries.clear()
