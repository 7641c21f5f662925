"""Repairs damage by one node alone: keeps the bytes, puts something readable in their place, and says so.

A message that cannot be read any more leaves a *tombstone*: a record of the same length, topic and queue offset without a queue
entry, so that log and queue offsets around it stay as they are (D9, D12). Where nobody knows what stood there, a tombstone of
topic `!` stands for all of it. Derived files are moved away, to be made anew. It plans first; a plan says what it will do.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from rmq.log.adoption import keep_lost
from rmq.log.files import epochs, ownfiles
from rmq.log.files.disk import Disk, allocated
from rmq.log.files.epochs import EpochHistory
from rmq.log.files.ownfiles import ADOPTING, RUNNING, Progress, Run
from rmq.log.files.segment import FILLER, Segment, file_name
from rmq.log.queues.consumequeue import ENTRY, ENTRY_BYTES
from rmq.log.records.queuenames import STRANGE
from rmq.log.records.record import BLANK_MAGIC
from rmq.log.records.tombstones import UNKNOWN_TOPIC, tombstone
from rmq.log.repair.verify import Hole, Report
from rmq.log.settings import ASYNC_FLUSH
from rmq.model import EPOCH_TOPIC, STATE_TOPIC

_DERIVED = ("progress", "epochs", "queues", "index")
_MOST_NAMED: Final = 50  # ranges of queue offsets, in the sentence about one hole
_SMALLEST = {True: 112, False: 92}  # bytes of the shortest record: ours, RocketMQ's


class Step(NamedTuple):
    """`what` it does, for the operator; `do` does it. Raises OSError."""

    what: str
    do: Callable[[], None]


class _Piece(NamedTuple):
    """A stretch of a hole: one message that the queue files know, or (topic `!`) unknown bytes."""

    start: int
    end: int
    topic: str
    queue_id: int
    queue_offset: int


def plan(disk: Disk, root: str, report: Report, segment_bytes: int, host: bytes) -> list[Step]:
    """For a store whose lock is held, after `Verifier` looked at it. Nothing has been changed when it returns.

    Raises StoreError."""
    own = f"{root}/rmq"
    ownfiles.check_lowered(disk, root)
    disk.make_directory(own)
    repairer = _Repairer(disk, root, segment_bytes, host, report.epochs)
    steps = [step for kind in ("vote", "run", *_DERIVED) for step in _own_file(disk, own, kind, report)]
    steps += [Step(text, partial(repairer.fill, hole, pieces)) for hole, pieces, text in repairer.holes(report)]
    if _tail_is_lost(report):
        what = f"the log ends at {report.end}, though more was durable: what stands behind is kept aside and cut off; it is lost"
        steps.append(Step(what, partial(repairer.end_at, report.end)))
    if report.holes or _tail_is_lost(report):
        what = "from now on this store says that it is not proven: it has lost acknowledged messages"
        steps.append(Step(what, partial(_distrust, disk, own)))
    wrong = {found.where.partition("/")[0] for found in report.findings if found.damage}
    if "tables" in wrong:
        there = ", ".join(name for name in disk.listdir(f"{root}/config") if name.endswith(".json"))
        what = (
            "the next start takes topics, groups and offsets as they were exported last, from config/ "
            f"({there or 'nothing is there'}); users and other settings that were older than the log are lost"
        )
        steps.append(Step(what, partial(_take_exports, disk, own)))
    if steps or "consumequeue" in wrong:
        steps.append(Step("the consume queues are made anew by the next start", partial(_move_away, disk, own, "queues")))
    if "index" in wrong:
        steps.append(Step("the index is made anew by the next start", partial(_move_away, disk, own, "index")))
    if "checkpoint" in wrong:
        steps.append(Step("checkpoint is written anew by the next start", partial(disk.unlink, f"{root}/checkpoint")))
    return steps


def _tail_is_lost(report: Report) -> bool:
    return any(found.damage and found.where == "commitlog" and "were durable" in found.what for found in report.findings)


# --- our own files ----------------------------------------------------------------------------------------------------


def _own_file(disk: Disk, own: str, kind: str, report: Report) -> Iterator[Step]:
    if not any(found.damage and found.where == f"rmq/{kind}" for found in report.findings):
        return
    if kind == "run":
        run = Run(RUNNING, "-", ASYNC_FLUSH, 0, 0)
        what = "rmq/run is written anew and says the worst: the last run did not stop in order"
        yield Step(what, partial(_replace_run, disk, own, run))
    elif kind == "vote":
        what = "rmq/vote is moved away: this store gets a new identity, is not proven, and has voted for nobody"
        yield Step(what, partial(_move_away, disk, own, kind))
    else:
        what = f"rmq/{kind} is moved away: the next start finds out by itself what it said"
        yield Step(what, partial(_move_away, disk, own, kind))


def _move_away(disk: Disk, own: str, kind: str) -> None:
    if disk.exists(f"{own}/{kind}"):
        disk.rename(f"{own}/{kind}", f"{own}/lost-{kind}")
        disk.fsync_directory(own)


def _replace_run(disk: Disk, own: str, run: Run) -> None:
    _move_away(disk, own, "run")
    ownfiles.save_run(disk, own, run)


def _take_exports(disk: Disk, own: str) -> None:
    """As after a visit of RocketMQ, which reads and writes them."""
    run = ownfiles.load_run(disk, own)
    _replace_run(disk, own, (run or Run(RUNNING, "-", ASYNC_FLUSH, 0, 0))._replace(state=ADOPTING))


def _distrust(disk: Disk, own: str) -> None:
    vote = ownfiles.load_vote(disk, own)
    if vote is not None:
        ownfiles.save_vote(disk, own, vote._replace(proven=False))


# --- the log ----------------------------------------------------------------------------------------------------------


def _named(pieces: Sequence[_Piece]) -> list[str]:
    """Which messages these are, queue by queue in ranges, in words of bounded length: a file has tens of thousands."""
    ranges: list[tuple[str, int, int, int]] = []
    for topic, queue_id, offset in sorted((one.topic, one.queue_id, one.queue_offset) for one in pieces):
        if ranges and ranges[-1][:2] == (topic, queue_id) and ranges[-1][3] + 1 == offset:
            ranges[-1] = (*ranges[-1][:3], offset)
        else:
            ranges.append((topic, queue_id, offset, offset))
    found = [f"{topic}/{queue_id} offset {a}" + (f" to {b}" if b > a else "") for topic, queue_id, a, b in ranges[:_MOST_NAMED]]
    left = sum(b - a + 1 for *_, a, b in ranges[_MOST_NAMED:])
    return [*found, f"and {left} messages of others"] if left else found


class _Repairer:
    """Puts tombstones into holes of the log."""

    def __init__(self, disk: Disk, root: str, segment_bytes: int, host: bytes, history: EpochHistory) -> None:
        self._disk = disk
        self._root = root
        self._own = f"{root}/rmq"
        self._segment_bytes = segment_bytes
        self._host = host
        self._epochs = history

    def holes(self, report: Report) -> Iterator[tuple[Hole, list[_Piece], str]]:
        """Each hole, the pieces that fill it, and a sentence that says so."""
        known = sorted(self._known(report.holes)) if report.holes else []
        for hole in report.holes:
            pieces = self._tiles(hole, [piece for piece in known if hole.start <= piece.start and piece.end <= hole.end])
            known_here = [one for one in pieces if one.topic != UNKNOWN_TOPIC]
            text = f"bytes {hole.start} to {hole.end} of the log ({hole.why}) are kept in rmq/lost-... and replaced; lost: "
            text += ", ".join([*_named(known_here), *(["whatever else stood there"] if len(known_here) < len(pieces) else [])])
            if any(one.topic == STATE_TOPIC for one in pieces):
                text += " (in rmq_sys_STATE stood settings or consumer offsets: look at them)"
            yield hole, pieces, text

    def _known(self, holes: list[Hole]) -> Iterator[_Piece]:
        """Messages in holes, as the queue files have them."""
        folder = f"{self._root}/consumequeue"
        for topic in self._disk.listdir(folder):
            for queue_id in filter(str.isdecimal, self._disk.listdir(f"{folder}/{topic}")):
                for queue_offset, offset, size in self._units(f"{folder}/{topic}/{queue_id}"):
                    if any(hole.start <= offset and offset + size <= hole.end for hole in holes):
                        # Every node reads the bodies of epoch records; a directory does not tell an unusual topic name.
                        believed = UNKNOWN_TOPIC if topic == EPOCH_TOPIC or topic.startswith(STRANGE) else topic
                        yield _Piece(offset, offset + size, believed, int(queue_id), queue_offset)

    def _units(self, directory: str) -> Iterator[tuple[int, int, int]]:
        for name in self._disk.listdir(directory):
            path = f"{directory}/{name}"
            handle = self._disk.open(path)
            try:
                data = self._disk.pread(handle, self._disk.size(path), 0)
            finally:
                self._disk.close(handle)
            for at, (offset, size, _) in enumerate(ENTRY.iter_unpack(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])):
                if 0 < size < self._segment_bytes:
                    yield int(name) // ENTRY_BYTES + at, offset, size

    def _tiles(self, hole: Hole, known: list[_Piece]) -> list[_Piece]:
        """The known messages in order, and what lies between them. One that overlaps others, or leaves no room for a record
        beside it, is not believed."""
        ours = self._is_ours(hole.start)
        tiles: list[_Piece] = []
        position = hole.start
        for piece in known:
            gap = piece.start - position
            shared = sum(one.start == piece.start for one in known) > 1
            if shared or gap < 0 or 0 < gap < _SMALLEST[ours] or piece.end - piece.start < _bare(piece.topic, ours):
                continue
            if gap:
                tiles.append(_Piece(position, piece.start, UNKNOWN_TOPIC, 0, 0))
            tiles.append(piece)
            position = piece.end
        rest = hole.end - position
        if 0 < rest < _SMALLEST[ours] and hole.end % self._segment_bytes:
            tiles = [one for one in tiles if one.end != position]  # too little for a record of its own
            position = tiles[-1].end if tiles else hole.start
        if position < hole.end:
            tiles.append(_Piece(position, hole.end, UNKNOWN_TOPIC, 0, 0))
        return tiles

    def _is_ours(self, offset: int) -> bool:
        return not epochs.written_by_rocketmq(self._epochs, offset)

    def fill(self, hole: Hole, pieces: list[_Piece]) -> None:
        """Crash-safe by repetition: what is not filled yet is a hole again."""
        epoch = max((entry.epoch for entry in self._epochs if entry.start <= hole.start), default=0)
        for base in range(hole.start // self._segment_bytes * self._segment_bytes, hole.end, self._segment_bytes):
            segment = self._open(base)
            try:
                start, end = max(hole.start, segment.base), min(hole.end, segment.end)
                if not self._disk.exists(f"{self._own}/lost-{epoch}-{start}"):
                    keep_lost(self._disk, self._own, [segment], epoch, start, end)
                data = b"".join(self._bytes_of(piece, start, end) for piece in pieces)
                segment.zero(start, end)
                segment.write(start, data)
                segment.sync()
            finally:
                segment.close()

    def _open(self, base: int) -> Segment:
        """The file, made if it is missing."""
        path = f"{self._root}/commitlog/{file_name(base)}"
        if not self._disk.exists(path):
            handle = allocated(self._disk, path, self._segment_bytes)
            self._disk.fsync_directory(f"{self._root}/commitlog")
            return Segment(self._disk, path, base, self._segment_bytes, handle)
        return Segment(self._disk, path, base, self._segment_bytes, self._disk.open(path))

    def _bytes_of(self, piece: _Piece, first: int, last: int) -> bytes:
        """The part of a piece that lies in [first, last), which ends where a segment ends or where the hole does."""
        start, end = max(piece.start, first), min(piece.end, last)
        if start >= end:
            return b""
        ours = self._is_ours(start)
        if end % self._segment_bytes:
            return self._tombstone(piece, start, end - start, ours)
        head = end - start - FILLER.size
        if head < _SMALLEST[ours]:
            return FILLER.pack(end - start, BLANK_MAGIC).ljust(end - start, b"\0")
        return self._tombstone(piece._replace(topic=UNKNOWN_TOPIC), start, head, ours) + FILLER.pack(FILLER.size, BLANK_MAGIC)

    def _tombstone(self, piece: _Piece, at: int, size: int, ours: bool) -> bytes:
        return tombstone(piece.topic, piece.queue_id, piece.queue_offset, at, size, self._host, protected=ours)

    def end_at(self, end: int) -> None:
        """Ends the log there: later bytes are kept in a file of their own and become zero."""
        names = [name for name in self._disk.listdir(f"{self._root}/commitlog") if len(name) == 20 and name.isdecimal()]
        epoch = max((entry.epoch for entry in self._epochs if entry.start <= end), default=0)
        for name in reversed(names):
            segment = self._open(int(name))
            try:
                if segment.end > end:
                    start = max(end, segment.base)
                    keep_lost(self._disk, self._own, [segment], epoch, start, segment.end)
                    segment.zero(start)
                    segment.sync()
            finally:
                segment.close()
        progress = ownfiles.load_progress(self._disk, self._own)
        if progress is not None:
            hw, cq, indexed = (min(at, end) for at in (progress.hw, progress.cq, progress.indexed))
            settled_ms = progress.settled_ms if hw == progress.hw else 0
            ownfiles.save_progress(self._disk, self._own, Progress(end, hw, cq, progress.stored_ms, indexed, settled_ms))
        if self._disk.exists(f"{self._own}/epochs"):
            ownfiles.save_epochs(self._disk, self._own, [entry for entry in self._epochs if entry.start < end], end)


def _bare(topic: str, ours: bool) -> int:
    """Bytes of a tombstone of that topic without any padding."""
    return len(tombstone(topic, 0, 0, 0, 0, bytes(8), protected=ours))
