"""Which bytes of a store directory a job reads, file by file. No Spark here; of the records it reads only the first of each file.

In a store of rmq only committed bytes count. A directory without `rmq/` was written by Apache RocketMQ, or is an archive of
segments: there every whole record counts, up to the last one. Missing or damaged bytes in between are reported, never skipped.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from analytics.stores.files import Directory, exists, open_file, own_files
from analytics.stores.look import first_records, listed
from rmq.clock import SystemClock, latest_ms
from rmq.errors import BadBytes, InvalidArgument
from rmq.log.files import ownfiles
from rmq.log.files.epochs import ROCKETMQ_EPOCH, EpochHistory
from rmq.log.reader import SegmentFile
from rmq.log.records.record import store_timestamp

SLACK_MS = 600_000  # store times of one log may step back a little; a segment that close to the time asked for is read
ALIEN, MAYBE, OURS = 0, 1, 2  # whole-record checksum: ignored (RocketMQ wrote here), checked if it is there, required
_LOOKS = 5  # looks at a directory while retention removes files


class Part(NamedTuple):
    """[start, stop) of one file: a task reads the records that begin there. All offsets are log offsets.

    `base`, `end`: of the file. `reach`: records are known to reach this offset, so anything else before it is damage; None: the
    records may end anywhere. `midway`: `start` may be inside a record. `trust`: from each offset on, ALIEN, MAYBE or OURS.
    `broken`: why nothing can be read here ("": it can be read).
    """

    path: str
    base: int
    end: int
    start: int
    stop: int
    reach: int | None
    midway: bool
    trust: tuple[tuple[int, int], ...]
    broken: str = ""


class Held(NamedTuple):
    """A file of a log; its records count up to `stop`. `head`: the fixed part of its first record, None if not readable."""

    segment: SegmentFile
    head: bytes | None
    stop: int
    trust: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        return self.segment.base + self.segment.size

    @property
    def first_ms(self) -> int | None:
        return store_timestamp(self.head, 0) if self.head else None


class Log(NamedTuple):
    """The files of a log, oldest first. `committed`: the end of the records that count, None if every whole record counts."""

    files: list[Held]
    committed: int | None
    epochs: EpochHistory = ()


def find_parts(store: Directory, from_ms: int = 0, to_ms: int = 1 << 62) -> list[Part]:
    """The parts of a store directory that may hold records of [from_ms, to_ms), in log order. Holes between files are parts, too.

    [] if nothing is committed yet.

    Raises InvalidArgument if the directory is not a store that can be read, StoreError if its files cannot be read.
    """
    return parts_of(look_at(store), from_ms, to_ms)


def refuse_holes(parts: Sequence[Part]) -> None:
    """Raises BadBytes if a file is missing between others, or before the committed end."""
    for part in parts:
        if part.broken:
            raise BadBytes(part.broken)


def look_at(store: Directory) -> Log:
    """The store's log: files that all existed at one moment, after the committed end was read."""
    refuse_others(store)
    for _ in range(_LOOKS):
        committed, history = _own_words(store)  # read before the list is made, so the list has the files of all committed bytes
        segments = listed(store)
        if not any(one.base + one.size < two.base and not exists(one.path) for one, two in pairwise(segments)):
            break  # else retention took files, one by one, while the list was made
    if committed is not None:
        segments = [segment for segment in segments if segment.base < committed]
    heads = first_records(store, segments)
    while committed is None and segments and heads[-1] is None and _is_unused(segments[-1]):  # RocketMQ preallocates files
        segments.pop()
        heads.pop()
    while segments and heads[0] is None and not exists(segments[0].path):  # retention has taken it since
        del segments[0], heads[0]
    trust = ((0, MAYBE),) if history is None else _trust(history)
    limit = 1 << 63 if committed is None else committed
    files = [Held(each, head, min(each.base + each.size, limit), trust) for each, head in zip(segments, heads, strict=True)]
    return Log(files, committed, history or ())


def _own_words(store: Directory) -> tuple[int | None, EpochHistory | None]:
    """The committed end and the epoch history of a store of rmq (None, None for other directories)."""
    own = own_files(store)
    if own is None:
        return None, None
    progress, epochs = ownfiles.load_progress(*own), ownfiles.load_epochs(*own)
    return progress.hw if progress else 0, epochs[0] if epochs else ()


def _trust(history: EpochHistory) -> tuple[tuple[int, int], ...]:
    return ((0, OURS), *((entry.start, ALIEN if entry.epoch == ROCKETMQ_EPOCH else OURS) for entry in history))


def parts_of(log: Log, from_ms: int = 0, to_ms: int = 1 << 62) -> list[Part]:
    """One part for each needed file, and one for each hole beside them."""
    nexts = [*(file.segment.base for file in log.files[1:]), log.committed][: len(log.files)]
    latest = latest_ms(SystemClock())
    times = [None if (first_ms := file.first_ms) is None or first_ms > latest else first_ms for file in log.files]
    parts = []
    for index, (file, behind) in enumerate(zip(log.files, nexts, strict=True)):
        if not _is_needed(times, index, from_ms, to_ms):
            continue
        path, base = file.segment.path, file.segment.base
        reach = None if behind is None else file.stop
        parts.append(Part(path, base, file.end, base, file.stop, reach, False, file.trust))
        if behind is not None and file.stop != behind:
            why = f"the log stops at {file.stop} and goes on at {behind}: a file of commitlog/ is missing or was cut"
            parts.append(Part(path, file.stop, behind, file.stop, behind, behind, False, file.trust, why))
    if log.committed and not log.files:
        why = f"bytes up to {log.committed} are committed, and commitlog/ holds no file: it is missing"
        parts.append(Part("", 0, log.committed, 0, log.committed, log.committed, False, _trust(log.epochs), why))
    return parts


def _is_needed(first_ms: list[int | None], index: int, from_ms: int, to_ms: int) -> bool:
    """Whether a file may hold records of that time, by the first records of this file and the next."""
    first, later = first_ms[index], first_ms[index + 1 :]
    after = next((moment for moment in later[:1] if moment is not None), None)
    return (first is None or first < to_ms + SLACK_MS) and (after is None or after >= from_ms - SLACK_MS)


def _is_unused(segment: SegmentFile) -> bool:
    opened = open_file(segment.path)
    try:
        return not any(opened.read(8, 0))
    finally:
        opened.close()


def refuse_others(store: Directory) -> None:
    """Raises InvalidArgument if the directory is not a store that can be read."""
    if not (store / "commitlog").is_dir():
        raise InvalidArgument(_no_store(store))


def _no_store(store: Directory) -> str:
    if store.is_dir() and any(each.name.startswith("dledger-") for each in store.iterdir()):
        return f"{store} is a DLedger store of RocketMQ; only plain stores (with commitlog/) can be read"
    return f"{store} is not a store directory: it has no commitlog/ in it"
