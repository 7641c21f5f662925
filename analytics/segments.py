"""Which bytes of a store directory a job reads, file by file. No Spark here, and no record is read but first ones.

In a store of rmq only committed bytes count. A directory without `rmq/` was written by Apache RocketMQ, or is an archive of
segments: there every whole record counts up to the last one. What is missing or damaged in between is told, never passed over.
"""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from analytics.look import first_record, listed
from rmq.errors import BadBytes, InvalidArgument
from rmq.log.epochs import FOREIGN
from rmq.log.reader import SegmentFile, committed_end, read_rows
from rmq.log.record import store_timestamp

SLACK_MS = 600_000  # store times of one log may step back a little; a segment that close to the time asked for is read
ALIEN, MAYBE, OURS = 0, 1, 2  # whole-record checksum: not believed (RocketMQ wrote here), checked where it stands, needed
_LOOKS = 5  # at a directory in which retention is at work


class Part(NamedTuple):
    """[start, stop) of one file: a task reads the records that begin there. Offsets are the log's.

    `base`, `end`: of the file. `reach`: records are known to reach it, so anything else before is damage; None: whole records
    may end anywhere. `midway`: `start` need not be the beginning of a record. `trust`: (offset, then ALIEN, MAYBE or OURS).
    `broken`: why nothing can be read here ("": it can).
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


class Log(NamedTuple):
    """The segments of a store directory, oldest first, and the store time of each one's first record (None: not readable).

    `committed`: the end of what counts, None when every whole record does.
    """

    segments: list[SegmentFile]
    first_ms: list[int | None]
    committed: int | None
    trust: tuple[tuple[int, int], ...]


def find_parts(store: Path, from_ms: int = 0, to_ms: int = 1 << 62) -> list[Part]:
    """The files of a store directory that may hold records of [from_ms, to_ms), in log order, and what is missing between them.

    [] when nothing is committed yet.

    Raises InvalidArgument when the directory is not a store that can be read, StoreError when its files cannot be.
    """
    return _parts(look_at(store), from_ms, to_ms)


def refuse_holes(parts: Sequence[Part]) -> None:
    """Raises BadBytes when a file is missing between others, or before the committed end."""
    for part in parts:
        if part.broken:
            raise BadBytes(part.broken)


def look_at(store: Path) -> Log:
    """A list of files that were all there at one moment, looked at after the committed end."""
    if not (store / "commitlog").is_dir():
        raise InvalidArgument(_no_store(store))
    for _ in range(_LOOKS):
        committed = committed_end(str(store))  # before the list: what is committed by then has its file in it
        segments = listed(store)
        if not any(one.base + one.size < two.base and not os.path.exists(one.path) for one, two in pairwise(segments)):
            break  # else: the list was made while retention took files, one by one
    if committed is not None:
        segments = [segment for segment in segments if segment.base < committed]
    heads = [first_record(segment) for segment in segments]
    while committed is None and segments and heads[-1] is None and _is_unused(segments[-1]):  # RocketMQ makes files ahead of time
        segments.pop()
        heads.pop()
    while segments and heads[0] is None and not os.path.exists(segments[0].path):  # retention took it since
        del segments[0], heads[0]
    first_ms = [store_timestamp(head, 0) if head else None for head in heads]
    return Log(segments, first_ms, committed, _trust(store))


def _trust(store: Path) -> tuple[tuple[int, int], ...]:
    if not (store / "rmq").is_dir():
        return ((0, MAYBE),)
    return ((0, OURS), *((row.start, ALIEN if row.epoch == FOREIGN else OURS) for row in read_rows(str(store))))


def _parts(log: Log, from_ms: int, to_ms: int) -> list[Part]:
    """One part for each segment that is needed, and one for each hole beside them."""
    ends = [one.base + one.size for one in log.segments]
    nexts = [*(one.base for one in log.segments[1:]), log.committed]
    parts = []
    for number, segment in enumerate(log.segments):
        if not _is_needed(log.first_ms, number, from_ms, to_ms):
            continue
        end, behind = ends[number], nexts[number]
        stop = end if log.committed is None else min(end, log.committed)
        reach = None if behind is None else stop
        parts.append(Part(segment.path, segment.base, end, segment.base, stop, reach, False, log.trust))
        if behind is not None and stop != behind:
            why = f"the log stops at {stop} and goes on at {behind}: a file of commitlog/ is missing or was cut"
            parts.append(Part(segment.path, stop, behind, stop, behind, behind, False, log.trust, why))
    if log.committed and not log.segments:
        why = f"bytes up to {log.committed} are committed, and commitlog/ holds no file: it is missing"
        parts.append(Part("", 0, log.committed, 0, log.committed, log.committed, False, log.trust, why))
    return parts


def _is_needed(first_ms: list[int | None], number: int, from_ms: int, to_ms: int) -> bool:
    """By the times of its first record and the next file's."""
    first, later = first_ms[number], first_ms[number + 1 :]
    after = next((moment for moment in later[:1] if moment is not None), None)
    return (first is None or first < to_ms + SLACK_MS) and (after is None or after >= from_ms - SLACK_MS)


def _is_unused(segment: SegmentFile) -> bool:
    with open(segment.path, "rb") as opened:
        return not any(opened.read(8))


def _no_store(store: Path) -> str:
    if any(store.glob("dledger-*")):
        return f"{store} is a DLedger store of RocketMQ; only plain stores (with commitlog/) can be read"
    return f"{store} is not a store directory: it has no commitlog/ in it"
