"""Retention: decides from plain facts which segments may leave the log; the store removes them.

Hours, ages and ratios are RocketMQ's [DefaultMessageStore.CleanCommitLogService]; what must never be deleted is ours
(docs/storage, retention).
"""

from collections.abc import Sequence
from typing import NamedTuple

from rmq.model import MAX_DRIFT_MS

MAX_AT_ONCE = 10  # [deleteFileBatchMax]


class RetentionSettings(NamedTuple):
    """`hours`: of the day, in which expired segments go. Ratios are of the disk's use, 0 to 1, each above the one before.

    Above `max_used` expired ones go at any hour, above `clean_forcibly` the oldest go though they are not expired (unless
    `by_force` is off), above `refuse_sends` producers are refused, above `refuse_all` nothing is stored at all.
    `archived_only`: whatever the disk says, only what `rmq archive` has shipped goes.
    """

    reserved_ms: int = 72 * 3_600_000
    hours: frozenset[int] = frozenset({4})
    max_used: float = 0.75
    clean_forcibly: float = 0.85
    refuse_sends: float = 0.90
    refuse_all: float = 0.95
    by_force: bool = True
    archived_only: bool = False


class SegmentFacts(NamedTuple):
    """`newest_ms`: the later of the file's last change and its last record's store time."""

    end: int
    newest_ms: int


class Facts(NamedTuple):
    """The facts that decide, at one moment.

    `hour`: of the day, local. `used`: of the disk, 0 to 1. `drift_ms`: how far the wall clock has moved against the
    monotonic one since the start. `safe_to`: below it everything is committed, durable and held by a snapshot.
    `follower_from`: where the slowest follower that is not given up yet
    has to read on; None if there is none. `by_hand`: an administrator asked. `archived_to`: below it the log is in an archive.
    """

    now_ms: int
    hour: int
    used: float
    drift_ms: int
    safe_to: int
    follower_from: int | None = None
    by_hand: bool = False
    archived_to: int = 0


def count_to_delete(segments: Sequence[SegmentFacts], facts: Facts, settings: RetentionSettings) -> int:
    """How many of the oldest segments go now. `segments`: oldest first, without the active one (D15)."""
    forced = settings.by_force and facts.used >= settings.clean_forcibly
    due = facts.by_hand or facts.hour in settings.hours or facts.used >= settings.max_used
    trusted = abs(facts.drift_ms) <= MAX_DRIFT_MS
    limit = facts.safe_to
    if facts.follower_from is not None and facts.used < settings.clean_forcibly:
        limit = min(limit, facts.follower_from)
    if settings.archived_only:
        limit = min(limit, facts.archived_to)
    count = 0
    for segment, newest_ms in zip(segments[:MAX_AT_ONCE], _believed(segments, facts.now_ms), strict=False):
        expired = due and trusted and facts.now_ms - newest_ms >= settings.reserved_ms
        if segment.end > limit or not (expired or forced):
            break
        count += 1
    return count


def _believed(segments: Sequence[SegmentFacts], now_ms: int) -> list[int]:
    """`newest_ms` of each. One of a time to come is of a clock that was ahead: it is no newer than the one behind it (T3)."""
    believed: list[int] = []
    for segment in reversed(segments):
        ahead = segment.newest_ms > now_ms + MAX_DRIFT_MS
        believed.append(believed[-1] if ahead and believed else segment.newest_ms)
    return believed[::-1]
