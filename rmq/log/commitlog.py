"""The CommitLog: stamps and appends records, flushes them, gives them back. It never decides what is committed.

Appends, cuts and cached reads belong to one thread (the event loop's); `flush` and `gather_cold` run in others.
Offsets are bytes of the log. `end` always is the end of a record (or the start of the log).
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import NoReturn

from rmq.errors import PerhapsStored, StoreError
from rmq.log.files import epochs
from rmq.log.files.damage import Damages
from rmq.log.files.disk import Disk, remedy
from rmq.log.files.epochs import EpochHistory, EpochRecord
from rmq.log.files.gathering import NearReads, OldReads, Spans, check_spans, gather_checked, together
from rmq.log.files.segment import FILLER, Records, Segment
from rmq.log.files.segments import Segments
from rmq.log.files.verified import Verified
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import record
from rmq.log.records.record import BLANK_MAGIC, Record
from rmq.log.settings import StoreSettings
from rmq.log.taken import LaidRecords, Stretch, TakenRecords
from rmq.log.units import Run, Unit, check_fits, check_lives, settle, take_back
from rmq.model import EPOCH_TOPIC

TAIL_BYTES = 4 << 20  # the end of the log that is kept in memory
READAHEAD_BYTES = 1 << 20  # behind what a reader asked for who reads old messages one after the other
MAX_STEP_BACK_MS = 60_000
_LOG = logging.getLogger(__name__)


class CommitLog:
    """See the module. `segments`: its files. `end`: of its last good record. `deletes(topic)`: its deletion was appended."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        settings: StoreSettings,
        segments: list[Segment],
        end: int,
        last_stored_ms: int,
        deletes: Callable[[str], None],
    ) -> None:
        self.segment_bytes = settings.segment_bytes
        self.start = segments[0].base if segments else end
        self.end = self.durable_end = end
        self.last_stored_ms = self.durable_stored_ms = last_stored_ms
        self.clock_stepped_back = 0  # how often the wall clock was more than 60 s behind the log
        self.epochs: EpochHistory = ()  # the epoch history: it says also which bytes RocketMQ wrote
        self.pending: deque[Unit] = deque()  # appended, not dispatched yet, in log order; the Dispatcher takes them
        self.taken, self.laid = TakenRecords(), LaidRecords()  # the same of what a leader gave; dispatched, not in the index yet
        self._files = Segments(disk, root, self.segment_bytes, segments)
        self.segments, self.end_of = self._files.all, self._files.end_of  # oldest first; where the file of a byte ends
        self._store_host, self._deletes = settings.store_host, deletes
        self._flush_lock = Lock()
        self._near, self._old_reads = NearReads(self._files, TAIL_BYTES), OldReads()
        self.tail, self.damages, self._verified = self._near.tail, Damages(), Verified(end)
        self.broken = ""  # why it takes nothing more until the node is started again
        self._epoch: EpochRecord | None = None
        self._epoch_queue: ConsumeQueue | None = None

    # --- appending ----------------------------------------------------------------------------------------------------

    @property
    def max_unit_bytes(self) -> int:
        """The largest unit that fits into a segment, behind its epoch record."""
        return self.segment_bytes - FILLER.size - 4096 if self.segment_bytes > 8192 else self.segment_bytes // 2

    def begin_epoch(self, epoch: EpochRecord, queue: ConsumeQueue, wall_ms: int) -> None:
        """Appends an epoch record: this leader's first one, until which nothing can be appended, or a change of voters.

        `queue` is the one of rmq_sys_EPOCH. Raises as `append`; then what was true before still is.
        """
        before = self._epoch
        self._epoch, self._epoch_queue = epoch, queue
        try:
            self.append([self._epoch_unit(epoch.kind, wall_ms)], wall_ms)
        except BaseException:
            self._epoch = before
            raise

    def end_epoch(self) -> None:
        """This node leads no more: it can append nothing until it begins another epoch."""
        self._epoch = None

    def put(self, pieces: Sequence[tuple[int, bytes]], taken: Sequence[Stretch], stored_ms: int) -> None:
        """A leader's bytes, which the caller has checked: (offset, bytes) for each file, and the same without fillers. All or
        none, as `append`."""
        if self.broken:
            raise StoreError(self.broken)
        runs = [Run(offset) for offset, _ in pieces]
        for run, (_, data) in zip(runs, pieces, strict=True):
            run.data = data
        self._write(runs)
        self.end, self.last_stored_ms = taken[-1].end, stored_ms
        self.taken.add(taken)

    def append(self, units: Sequence[Unit], wall_ms: int) -> None:
        """Stamps the units and writes them, each whole, in this order; all or none.

        Moves `end` and the queues' `next` only when everything is written. Raises Refusal for a unit that no segment can hold,
        or that is for a life of a topic which has ended (`records.deletions`), and StoreError ("not stored") if the disk failed;
        then nothing has changed and the bytes are zero again. PerhapsStored (a StoreError) if they could not be made zero.
        """
        if not units:
            return
        if self.broken or self._epoch is None:
            raise StoreError(self.broken or "not stored: no epoch has begun on this log")
        queue_offsets: dict[ConsumeQueue, int] = {}
        deleted, runs = check_lives(units), self._place(units, wall_ms, queue_offsets)
        stored_ms = wall_ms if wall_ms >= self.last_stored_ms else self._stored_ms(wall_ms)
        stored = stored_ms.to_bytes(8, "big") + self._store_host
        for run in runs:
            run.stamp(queue_offsets, stored)
        self._write(runs)
        for queue, queue_offset in queue_offsets.items():
            queue.next = queue_offset
        for run in runs:
            self.pending.extend(run.units)
        self.end = units[-1].end
        self.last_stored_ms = stored_ms
        for topic in deleted:
            self._deletes(topic)

    def _place(self, units: Sequence[Unit], wall_ms: int, queue_offsets: dict[ConsumeQueue, int]) -> list[Run]:
        """Gives each unit its offset; rolls to the next segment where one does not fit with 8 bytes to spare.

        `queue_offsets`: as of `Run.stamp`; those in light queues are given here."""
        wide = len(self._store_host) == 20
        position = self.end
        run = Run(position)
        runs = [run]
        segment_end = self._files.end_of(position)
        for unit in units:
            if wide or unit.fan is not None:
                settle(unit, queue_offsets, self._store_host)
            start = position
            length = unit.size
            if position + length + FILLER.size > segment_end:
                check_fits(unit, self.max_unit_bytes)
                run.filler = FILLER.pack(segment_end - position, BLANK_MAGIC)
                run = Run(segment_end)
                runs.append(run)
                if unit.queue is not self._epoch_queue:
                    first = self._epoch_unit(epochs.ROLL, wall_ms)
                    first.start, first.physical_offset = position, segment_end
                    start = first.end = segment_end + first.size
                    run.units.append(first)
                position = segment_end + sum(before.size for before in run.units)
                segment_end += self.segment_bytes
            unit.start, unit.physical_offset = start, position
            position += length
            unit.end = position
            run.units.append(unit)
        return runs

    def _epoch_unit(self, kind: str, wall_ms: int) -> Unit:
        assert self._epoch is not None
        assert self._epoch_queue is not None
        body = epochs.pack(self._epoch._replace(kind=kind))
        data = record.draft(EPOCH_TOPIC, body, b"", born_timestamp=wall_ms, born_host=self._store_host)
        unit = Unit(data, (len(data),), (0,), self._epoch_queue)
        settle(unit, {}, self._store_host)
        return unit

    def _stored_ms(self, wall_ms: int) -> int:
        """Where the clock is behind the last store time: that one, unless it is more than 60 s behind (docs/storage)."""
        if self.last_stored_ms - wall_ms <= MAX_STEP_BACK_MS:
            return self.last_stored_ms
        self.clock_stepped_back += 1
        _LOG.warning("the wall clock is %d s behind the last record's store time", (self.last_stored_ms - wall_ms) // 1000)
        return wall_ms

    def _write(self, runs: list[Run]) -> None:
        written: list[tuple[Segment, Run]] = []
        try:
            segments = [self._files.last_with(run.offset) or self._segment_for(run.offset) for run in runs]
            for segment, run in zip(segments, runs, strict=True):
                written.append((segment, run))
                if segment.write(run.offset, run.data) != len(run.data):
                    raise OSError(28, "short write", segment.path)
        except OSError as error:
            self._undo(written)
            raise StoreError(f"not stored: {remedy(error, 'free space on the disk or repair it')}") from error
        for run in runs:
            self.tail.add(run.offset, run.data)

    def _undo(self, written: list[tuple[Segment, Run]]) -> None:
        """A refused record must not be found after a restart: zeros go where it may have been written."""
        try:
            for segment, run in written:
                segment.zero(run.offset, run.offset + len(run.data))
                segment.sync()
        except OSError as error:
            self._break(f"a failed append could not be undone ({error})", error, PerhapsStored)

    def _break(self, what: str, error: OSError, kind: type[StoreError] = StoreError) -> NoReturn:
        self.broken = f"{what}: this store accepts nothing more; repair the disk and restart the node"
        raise kind(self.broken) from error

    def _segment_for(self, offset: int) -> Segment:
        """The file for bytes at `offset`, made if it is the next one."""
        last = self._files.last()
        if last is not None and offset < last.end:
            return self._files.at(offset)
        if last is not None and self.durable_end <= last.base:
            self.flush()  # at most one rolled segment is ever unflushed, so a torn tail begins in one of the last two
        return self._files.add(offset - offset % self.segment_bytes)

    # --- flushing -----------------------------------------------------------------------------------------------------

    def flush(self) -> int:
        """Makes everything durable that was appended before the call, and returns that offset (also `durable_end`).

        Runs in any thread while appends go on. Raises StoreError; after a failed flush this log takes nothing more,
        because a second flush may report success falsely (D4).
        """
        with self._flush_lock:
            if self.broken:
                raise StoreError(self.broken)
            stored_ms = self.last_stored_ms  # read before `end`, which append moves first
            end = self.end
            if end > self.durable_end:
                try:
                    self._files.sync(self.durable_end, end)
                except OSError as error:
                    self._break(f"a flush failed ({error})", error)
                self.durable_end, self.durable_stored_ms = end, stored_ms
        return end

    def prepare(self) -> None:
        """Makes the next file ahead of time if it will be needed soon. For the thread that flushes, when nobody waits for it: it
        may take long. No room for it is no error yet."""
        self._files.prepare(self.end)

    # --- reading ------------------------------------------------------------------------------------------------------

    def gather(self, spans: Spans) -> bytes | None:
        """The records at `spans` (rising offsets), joined. None if a byte is not in memory, or a record or a span damaged:
        `gather_cold` in a thread reads it, or says so. For the thread that appends. Raises StoreError."""
        if not spans:
            return b""
        if self.damages.ranges:
            self.damages.check(*spans[0])
        try:
            if spans[-1][0] >= self.end or not self._verified.has(spans):
                self._near.forget()
                return gather_checked(self._files, spans, self.end, self.epochs, self._verified)
            return self._near.gather(spans)
        except OSError as error:
            raise StoreError(f"cannot read the log at {spans[0][0]}: {remedy(error, 'check the disk')}") from error

    def gather_cold(self, spans: Spans) -> bytes:
        """As `gather`, but waits for the device and checks each record: what a disk gives back may be damaged (D8)."""
        if spans:
            check_spans(spans, self.end)
            begin, end = spans[0][0], sum(spans[-1])
            ahead = min(self.end, end + READAHEAD_BYTES)
            self._verified.forget(begin, ahead)
            self._files.read_ahead(begin, ahead if self._old_reads.go_on(begin, end) else end)
        read = together(self._read_file, spans, self._files.end_of)
        return b"".join([self.damages.checked(read, at, size, self._files.at, self.epochs) for at, size in spans])

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of one segment; may wait for the device. Raises StoreError."""
        if offset >= self.start and not self.damages.ranges and (near := self.tail.read(offset, size)) is not None:
            return near
        return self._read_file(offset, size)

    def _read_file(self, offset: int, size: int) -> bytes:
        self.damages.check(offset, size)
        if not self.start <= offset <= offset + size <= self.end:
            raise StoreError(f"bytes {offset} to {offset + size} are not in this log ({self.start} to {self.end})")
        try:
            return self._files.at(offset).read(offset, size)
        except OSError as error:
            raise StoreError(f"cannot read the CommitLog at {offset}: {remedy(error, 'check the disk')}") from error

    def store_time(self, offset: int) -> int:
        """Store timestamp (ms) of the record at `offset`; what `ConsumeQueue.search` asks for. Raises StoreError."""
        return record.store_timestamp(self.read(offset, record.MIN_RECORD_BYTES), 0)

    def scan(self, from_: int, to: int) -> Iterator[Record]:
        """The records from `from_` to `to` (both ends of records), each checked. Raises BadEntry, OSError."""
        return (record.decode(place.buf, place.at) for some in self.records(from_, to) for place in some.each())

    def records(self, from_: int, to: int) -> Iterator[Records]:
        """As `scan`, not decoded, those of a block together."""
        return self._files.records(from_, to, self.epochs)

    def cut(self, to: int) -> None:
        """Everything behind `to` (the end of a record) becomes zero, for good; queue offsets given out behind it are free again.

        Returns when that and all before it is durable: an old record behind it would fit behind a new one. Raises StoreError.
        """
        with self._flush_lock:
            self.end = to  # nobody reads behind it any more
            self._verified.cut(to)
            self._near.cut(to)
            while self.pending and self.pending[-1].end > to:
                take_back(self.pending.pop())
            self.taken.cut(to)
            try:
                self._files.sync(self.durable_end, to)  # of the file before perhaps, too
                self._files.cut(to)
            except OSError as error:
                self._break(f"a cut at {to} failed ({error})", error)
            self.durable_end = to

    def begin_at(self, start: int) -> None:
        """Removes everything; the log is empty and begins at `start`, a file's first byte. Durable. Raises StoreError."""
        with self._flush_lock:
            self.pending.clear()
            self.taken = TakenRecords()
            self.start = self.end = self.durable_end = start
            self._verified = Verified(start)
            self._near.cut(start)
            try:
                self._files.begin_at(start)
            except OSError as error:
                self._break(f"the log could not be begun at {start} ({error})", error)

    def drop_before(self, start: int) -> list[Segment]:
        """The log begins at `start` (a segment's) from now on: see `Segments.drop_before`. In any thread. Raises OSError."""
        self.start = max(self.start, start)  # published before a byte goes (D15)
        return self._files.drop_before(start)

    def close(self) -> None:
        """Closes the files; flushes nothing."""
        self._files.close()
