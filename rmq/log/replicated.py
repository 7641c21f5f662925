"""The log of a member of a group: takes entries from a leader, gives entries to followers, cuts, appends epoch records.

Entries are whole: a record with the filler before it, which travels as its 8 bytes. rmq.raft decides who leads
and what is committed; this file does what that means for bytes. One thread at a time, the one that appends.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from rmq.errors import BadBytes, StoreError
from rmq.log.commitlog import CommitLog
from rmq.log.files import epochs, smallfile
from rmq.log.files.disk import Disk, remedy
from rmq.log.files.epochs import EpochHistory, EpochRecord, Voter
from rmq.log.files.segment import FILLER, MANY_BYTES, Records
from rmq.log.records import columns, record
from rmq.log.records.deletions import deleted_topics
from rmq.log.records.fastread import usual_records
from rmq.log.records.innerbatch import message_count
from rmq.log.records.peek import peek
from rmq.log.records.record import BLANK_MAGIC, Record
from rmq.log.store import Store
from rmq.log.taken import LARGE_BYTES, Stretch
from rmq.model import EPOCH_TOPIC, STATE_TOPIC

_LOG = logging.getLogger(__name__)
_EPOCH, _STATE = EPOCH_TOPIC.encode(), STATE_TOPIC.encode()
VOTERS = "voters"  # kind of an epoch record: a change of membership
_KEPT_BYTES = 64 << 20  # in one file of bytes that were given up
_BLOCK_BYTES = 1 << 20  # of records that are checked together: as much as a usual answer brings
_NOTHING_READ: tuple[tuple[int, int, int], bytes] = (-1, 0, 0), b""
_FEW = 64  # records that are checked one by one before many are tried again


class FoundEpoch(NamedTuple):
    """An epoch record in the log, and where its entry begins (at its filler, if it has one)."""

    start: int
    record: EpochRecord


class Taken(NamedTuple):
    """The log now ends at `end`. `epochs`: the epoch records among the new entries. `bad`: what stopped it, "" if nothing did."""

    end: int
    epochs: tuple[FoundEpoch, ...]
    bad: str


def append_entries(log: CommitLog, history: EpochHistory, at: int, data: bytes, newest: int) -> Taken:
    """Appends the whole good entries of a leader's bytes, which belong at `at`, the log's end. Raises StoreError: nothing was.

    `history`: the epoch history of the log, `newest`: the leader's epoch, the newest that its bytes may name. The first entry
    that is not right in every respect ends it (D7, D9).
    """
    assert at == log.end, f"bytes for {at}, the log ends at {log.end}"
    entries = _Entries(log.segment_bytes, history, at, data, newest)
    entries.walk()
    if entries.position > at:
        log.put(entries.pieces(), entries.stretches(), record.store_timestamp(data, entries.last))
    return Taken(entries.position, tuple(entries.epochs), entries.bad)


class _Entries:
    """The walk over received bytes. `position`: end of the last good entry, `bad`: what stood there. `last`: where in `data` the
    last good record begins."""

    def __init__(self, segment_bytes: int, history: EpochHistory, at: int, data: bytes, newest: int) -> None:
        self.position = at
        self.last = 0
        self.epochs: list[FoundEpoch] = []
        self.bad = ""
        self._segment_bytes = segment_bytes
        self._epochs = history
        self._newest = newest
        self._protected = not epochs.written_by_rocketmq(history, at)
        self._data = data
        self._index = 0  # of `position` in `data`
        self._pieces: list[tuple[int, int]] = [(at, 0)]  # offset and index where the bytes of each file begin
        self._stretches: list[Stretch] = []
        self._open = at, at, 0  # start, place and index of the stretch to come

    def walk(self) -> None:
        try:
            while self._index < len(self._data):
                few = len(self._data) - self._index < MANY_BYTES
                if not (self._take_usual() if few else self._take_many()):
                    for _ in range(_FEW):
                        if self._index < len(self._data):
                            self._take_entry()
        except BadBytes as error:
            self.bad = str(error)

    def pieces(self) -> list[tuple[int, bytes]]:
        """For each file: offset, and the bytes from there on, with the filler at their end."""
        ends = [*(index for _, index in self._pieces[1:]), self._index]
        return [(offset, self._data[index:end]) for (offset, index), end in zip(self._pieces, ends, strict=True)]

    def stretches(self) -> list[Stretch]:
        """The same without fillers; those that were checked together apart."""
        self._close()
        return self._stretches

    def _close(self, parts: columns.Block | None = None) -> None:
        """A stretch ends here."""
        start, place, index = self._open
        if index < self._index:
            self._stretches.append(Stretch(start, place, self._data[index : self._index], parts))
        self._open = self.position, self.position, self._index

    def _take_many(self) -> bool:
        """Takes the good records at the beginning, checked together, up to the first one that needs a closer look: an epoch
        record, or one that is not good. Whether there was any."""
        data = self._data[self._index : self._index + _BLOCK_BYTES]
        limit = (self.position // self._segment_bytes + 1) * self._segment_bytes - FILLER.size - self.position
        starts, _ = columns.starts(data)
        block, good = columns.layout(data, starts)
        if not good.all():
            block = block.only(slice(0, int(good.argmin())))
        if not len(block):
            return False
        right = columns.are_whole(block, self.position, self._protected) & (block.end <= limit)
        for index in (block.topic_end - block.topic == len(_EPOCH)).nonzero()[0].tolist():
            right[index] &= data[block.topic[index] : block.topic_end[index]] != _EPOCH
        count = len(right) if right.all() else int(right.argmin())
        large = count > 0 and int(block.end[count - 1]) >= LARGE_BYTES  # else dispatch takes it together with its neighbours
        if large:
            self._close()
        if count:
            self.last = self._index + int(block.at[count - 1])
            self.position += int(block.end[count - 1])
            self._index += int(block.end[count - 1])
        if large:
            self._close(block if count == len(block) else block.only(slice(0, count)))
        return count > 0

    @cached_property
    def _may_have_epochs(self) -> bool:
        """Behind here, too. Where many are taken together nobody asks: looking at the lengths of their topics costs less."""
        return self._data.find(epochs.MARK, self._index) >= 0

    def _take_usual(self) -> bool:
        """As `_take_many`, of few records: up to the first that is not of the usual kind."""
        if self._may_have_epochs or not self._protected:
            return False
        room = self._segment_bytes - self.position % self._segment_bytes - FILLER.size
        last, stop = usual_records(self._data, self._index, self.position, min(self._index + room, len(self._data)))
        if stop == self._index:
            return False
        self.last = last
        self.position += stop - self._index
        self._index = stop
        return True

    def _take_entry(self) -> None:
        data, place, index = self._data, self.position, self._index
        limit = (place // self._segment_bytes + 1) * self._segment_bytes
        left, magic = FILLER.unpack_from(data, index) if len(data) - index >= FILLER.size else (0, 0)
        crossed = magic == BLANK_MAGIC
        if crossed:
            if left != limit - place or len(data) == index + FILLER.size:
                raise BadBytes(f"entry at {place}: a filler of {left} bytes, {limit - place} are left, {len(data)} came")
            place, index, limit = limit, index + FILLER.size, limit + self._segment_bytes
        self._protected = not epochs.written_by_rocketmq(self._epochs, self.position)
        size = record.verify(data, index, place, self._protected)
        if place + size + FILLER.size > limit:
            raise BadBytes(f"record at {place}: {size} bytes reach into the end of its file")
        if record.has_topic(data, index, EPOCH_TOPIC):
            self._look_at_epoch(epochs.unpack(record.decode(data, index).body), index, place)
        if crossed:
            self._close()
            self._pieces.append((place, index))
            self._open = self.position, place, index
        self.last = index
        self.position, self._index = place + size, index + size

    def _look_at_epoch(self, found: EpochRecord, index: int, place: int) -> None:
        """The record that ends RocketMQ's bytes names them. Others among those belong to another store."""
        if self._protected or any(entry.epoch == epochs.ROCKETMQ_EPOCH and entry in self._epochs for entry in found.epochs):
            record.verify(self._data, index, place, True)
            self._protected = True
            self._take_epoch(found)

    def _take_epoch(self, found: EpochRecord) -> None:
        """A new epoch starts where its first log entry does; later epoch records of that epoch repeat its start.

        Its filler may be gone: then the log begins with its first record, and the snapshot has named the epoch.
        """
        last = epochs.newest(self._epochs)
        begun = found.entry() == last and self.position % self._segment_bytes == 0 and found.start < self.position
        if found.kind == epochs.START and not begun:
            right = found.start == self.position and (last is None or found.epoch > last.epoch)
        else:
            right = last is None or (found.epoch, found.writer) == (last.epoch, last.writer)
        if not right or not 0 <= found.epoch <= self._newest:
            raise BadBytes(f"entry at {self.position}: its record of epoch {found.epoch} does not fit behind {last}")
        self._epochs = epochs.risen(self._epochs, found.entry())
        self.epochs.append(FoundEpoch(self.position, found))


def read_entries(log: CommitLog, from_: int, max_bytes: int) -> bytes:
    """Whole entries from `from_`, the end of one, as many as fit into `max_bytes`, at least one. Raises StoreError."""
    parts: list[bytes] = []
    position, room = from_, max_bytes
    while position < log.end:
        limit = (position // log.segment_bytes + 1) * log.segment_bytes
        data = log.read(position, max(min(room, log.end - position, limit - position), min(4, log.end - position)))
        if position + len(data) == log.end:
            parts.append(data)
            break
        whole, at_filler = _whole(data)
        if at_filler:
            first = int.from_bytes(log.read(limit, 4), "big")
            fits = whole + FILLER.size + first <= room
            if not fits and (parts or whole):
                parts.append(data[:whole])
                break
            parts.append(data[: whole + FILLER.size])
            position, room = limit, max(room - whole - FILLER.size, first)
        elif whole:
            parts.append(data[:whole])
            position, room = position + whole, room - whole
        elif parts:
            break
        else:
            room = int.from_bytes(data[:4], "big") if len(data) < FILLER.size or _magic(data) != BLANK_MAGIC else FILLER.size
    return b"".join(parts)


def _whole(data: bytes) -> tuple[int, bool]:
    """How many bytes of whole records there are, and whether a filler follows."""
    _, at = columns.starts(data)
    return at, len(data) - at >= FILLER.size and _magic(data, at) == BLANK_MAGIC


def _magic(data: bytes, at: int = 0) -> int:
    return int(FILLER.unpack_from(data, at)[1])


class ReplicatedLog:
    """One store as a member of a group. `disk` and `root` are the store's."""

    def __init__(self, store: Store, disk: Disk, root: str) -> None:
        self.store = store
        self.log = store.log
        self._disk = disk
        self._own = f"{root}/rmq"
        self._read = _NOTHING_READ  # the last answer, and what was asked

    # --- reading the log ---------------------------------------------------------------------------------------

    def voter_lists(self) -> tuple[tuple[int, tuple[Voter, ...]], ...]:
        """(start of the entry, voters): the last list that was dispatched, and each one behind; of a damaged log the last one
        that can be read. Raises StoreError, BadBytes."""
        store = self.store
        queue = store.queues.find(EPOCH_TOPIC, 0)
        lists: list[tuple[int, tuple[Voter, ...]]] = []
        newest_first = range(queue.max - 1, queue.min - 1, -1) if queue is not None else ()
        last = next((one for at in newest_first for one in store.records(EPOCH_TOPIC, 0, at)), None)
        if last is not None:
            lists.append((last.physical_offset, epochs.unpack(last.body).voters))
        elif store.snapshots.newest is not None:
            rows = [row for section, found in store.snapshots.rows() if section == VOTERS for row in found]
            lists.append((store.log.start, tuple(Voter(*row) for row in rows)))
        start = store.dispatcher.position
        for found in self.log.scan(start, self.log.end):
            if found.topic == EPOCH_TOPIC:
                lists.append((start, epochs.unpack(found.body).voters))
            start = found.physical_offset + found.total_size
        return tuple(lists)

    def restore_queue_offsets(self) -> None:
        """Sets the next queue offset of every queue behind the uncommitted tail, as dispatch will find it. Raises StoreError.

        Topics that this tail deletes accept nothing more before it is dispatched. The tail may have 64 MiB, and a new leader that
        looks for long is replaced meanwhile (L1): of everyday records only what is needed is read.
        """
        queues = self.store.queues
        queues.begin_leadership()
        for some in self._tail():
            ahead: dict[tuple[bytes, int], int] = {}
            for place in some.each():
                known = peek(place.buf, place.at, place.size)
                if known is not None and known[0] != _STATE:
                    ahead[known[:2]] = known[2] + 1
                    continue
                self._go_on(ahead)
                ahead.clear()
                self._look_at(record.decode(place.buf, place.at))
            self._go_on(ahead)

    def _tail(self) -> Iterator[Records]:
        """What is not dispatched: as a leader gave it to this run, which has checked it; the rest from the log. Raises BadEntry,
        OSError."""
        position, end = self.store.dispatcher.position, self.log.end
        for some in self.log.taken.from_(position, end):
            position = some.end
            yield some
        if position < end:
            yield from self.log.records(position, end)

    def _go_on(self, ahead: Mapping[tuple[bytes, int], int]) -> None:
        for (topic, queue_id), queue_offset in ahead.items():
            self.store.queues.go_on(topic.decode("utf-8", "replace"), queue_id, queue_offset)

    def _look_at(self, found: Record) -> None:
        for topic, queue_id, queue_offset in record.queue_places(found):
            self.store.queues.go_on(topic, queue_id, queue_offset + message_count(found))
        for topic in deleted_topics(found.body) if found.topic == STATE_TOPIC else ():
            self.store.queues.end(topic)

    def read_apart(self, from_: int, max_bytes: int) -> bytes:
        """As `read_entries`, in any thread: what is not in memory may take long."""
        return read_entries(self.log, from_, max_bytes)

    def read(self, from_: int, max_bytes: int) -> bytes:
        """As `read_entries`. Followers that are level ask for the same bytes one after the other: they are read once."""
        asked = from_, max_bytes, self.log.end
        if asked != self._read[0]:
            self._read = asked, read_entries(self.log, from_, max_bytes)
        return self._read[1]

    # --- changing it --------------------------------------------------------------------------------------------------

    def append_epoch(self, found: EpochRecord, wall_ms: int) -> FoundEpoch:
        """As leader: the epoch's first record, or a change of its voters. Raises StoreError: nothing was appended."""
        start = self.log.end
        self.log.begin_epoch(found, self.store.queues.get(EPOCH_TOPIC, 0), wall_ms)
        return FoundEpoch(start, found)

    def take(self, at: int, data: bytes, newest: int) -> Taken:
        return append_entries(self.log, self.store.epochs, at, data, newest)

    def cut(self, to: int, history: EpochHistory, keep: bool) -> None:
        """Cuts the log to `to`; durable when it returns. `history`: the epoch history after it. Raises StoreError."""
        if keep:
            self.keep(to)
        self._read = _NOTHING_READ
        self.store.saved.rewind(to, history, lambda: self.log.cut(to))

    def keep(self, from_: int) -> None:
        """Saves the log's bytes from there on, as far as retention left them, in files for the operator. Raises StoreError."""
        epoch = self.store.epochs[-1].epoch if self.store.epochs else 0
        position, segment_bytes = max(from_, self.log.start), self.log.segment_bytes
        while position < self.log.end:
            size = min(_KEPT_BYTES, self.log.end - position, segment_bytes - position % segment_bytes)
            try:
                smallfile.write_file(self._disk, f"{self._own}/lost-{epoch}-{position}", self.log.read(position, size))
                self._disk.fsync_directory(self._own)
            except OSError as error:
                about = f"cannot keep what is cut off in {self._own}: {remedy(error, 'free space, then restart')}"
                raise StoreError(about) from error
            position += size

    def reset(self, log_start: int, history: EpochHistory, voters: tuple[Voter, ...], place: Callable[[], None]) -> None:
        """Removes log and derived files; the log is empty and begins at `log_start`. Raises StoreError.

        `place` puts the leader's snapshot into the directory after the old log ended and before the new one begins: beside the
        old log it would declare other bytes committed. A crash at any point leaves a prefix of
        the old log, or an empty one with either snapshot, which does not reach its S1: such a node is told to begin anew again.
        """
        store = self.store
        # the other entries come with their records
        history = tuple(entry for entry in history if entry.start < log_start or entry.epoch == 0)

        def shorten() -> None:
            self.log.begin_at(0)
            place()
            store.queues.delete_all()
            store.indexed.reset()
            self.log.begin_at(log_start)

        self._read = _NOTHING_READ
        store.saved.rewind(0, history, shorten)
        store.voters = voters
        store.dispatcher.begin_at(log_start)
        try:
            store.save_progress()
        except StoreError as error:  # it says too little until it is saved the next time, as after a crash in between
            if self.log.broken:
                raise
            _LOG.warning("%s; it is tried again", error)
