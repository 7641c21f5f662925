"""One log as a report sees it, in one store or several copies: which days are counted, the counts, and whether each day is
complete."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyspark
from pyspark import SparkContext

from analytics.reports import days
from analytics.reports.counting import Task
from analytics.reports.days import BUSINESS, SYSTEM, Manifest, Row, kind_of
from analytics.reports.rollup import Counts, buckets, count_store
from analytics.reports.zones import LONGEST_RANGE_DAYS, day_number, moments, stretches
from analytics.spark.failures import FAILURES, plain_error
from analytics.stores.copies import name_of, plan_all
from analytics.stores.files import Directory
from analytics.stores.look import Extent, extent
from analytics.stores.options import Wanted, unix_ms
from analytics.stores.plan import newest_ms
from analytics.stores.rare import Places
from analytics.stores.segments import Part
from rmq import __version__
from rmq.errors import BadBytes, StoreError
from rmq.model import MAX_DRIFT_MS

FORMAT = "3"  # version of the rollup's files
_TRIES = 3  # while retention takes segments that a run has begun to read
_BY_STORE_TIME = "store time"
_PARTS_OF_STORE = ("commitlog", "consumequeue", "index")
_DAY = timedelta(days=1)


class Asked(NamedTuple):
    """What a report is to count. `force`: replaces even days that were read from more. `broker`: instead of the store's own name.

    `on_damage`: "fail", or "skip" to count what is whole and report the rest. `catch_up`: also counts missing earlier days.
    """

    days: tuple[date, ...] | None
    zone: ZoneInfo
    time_property: str | None = None
    force: bool = False
    broker: str | None = None
    on_damage: str = "fail"
    catch_up: bool = False
    progress: Callable[[str], None] = lambda line: None

    @property
    def counted_by(self) -> str:
        return f"the property {self.time_property}" if self.time_property else _BY_STORE_TIME


class Counted(NamedTuple):
    """One log's numbers, and its extent when they were counted. `stores`: the given copies of it.

    `looked_for`: the wanted days and the missing earlier ones, None is all. `read`: the first and the end offset in the log.
    """

    stores: tuple[Directory, ...]
    extent: Extent
    made: datetime
    counts: Counts
    looked_for: frozenset[date] | None
    read: tuple[int, int]

    @property
    def rows(self) -> list[Row]:
        return self.counts.rows


def count_again(context: SparkContext, stores: Sequence[Directory], out: Path, asked: Asked) -> Counted:
    """Counts, and counts again if retention took a segment meanwhile: then the day has what is left, and says so."""
    for attempt in range(_TRIES):
        is_last = attempt == _TRIES - 1
        before = _extent(stores)
        before = before._replace(broker=days.name_in(out, _heads(before), before.broker, asked.broker))
        asked.progress(f"counting {' and '.join(map(str, stores))} by hour, topic and tag")
        try:
            counted = _count(context, stores, asked, before, _missed(out, before, asked))
        except StoreError as error:
            if "retention removed it" not in str(error) or is_last:
                raise
            continue
        after = _oldest([extent(store) for store in stores])
        if after.log_start == before.log_start or is_last:
            return counted._replace(extent=counted.extent._replace(log_start=after.log_start, first_ms=after.first_ms))
    raise AssertionError("every attempt returns or raises")


def _extent(stores: Sequence[Directory]) -> Extent:
    """The extent of all copies together."""
    every = [extent(store) for store in stores]
    known_ms = max(max(one.known_ms, newest_ms(store)) for one, store in zip(every, stores, strict=True))
    heads = {base: head for one in every for base, head in one.heads.items()}
    return _oldest(every)._replace(broker=name_of(stores), known_ms=known_ms, heads=heads)


def _oldest(every: Sequence[Extent]) -> Extent:
    return min(every, key=lambda one: (not one.heads, one.log_start))


def _heads(of: Extent) -> dict[str, str]:
    return {str(base): head for base, head in of.heads.items()}  # as JSON has them


def _missed(out: Path, of: Extent, asked: Asked) -> Iterator[date]:
    """Days before the wanted ones, a year at most, that are whole in the store and not yet in `out`."""
    if not asked.catch_up or not asked.days or of.first_ms is None:
        return
    heads = _heads(of)
    begun = datetime.fromtimestamp(of.first_ms / 1000, asked.zone).date()
    day = max(begun, asked.days[0] - LONGEST_RANGE_DAYS * _DAY)
    while day < asked.days[0]:
        if not _cut(of, day, asked.zone) and not days.is_whole(out, day.isoformat(), heads):
            asked.progress(f"{day} is missing: counting it, too")
            yield day
        day += _DAY


def _count(context: SparkContext, stores: Sequence[Directory], asked: Asked, of: Extent, missed: Iterator[date]) -> Counted:
    made = datetime.now(UTC)
    chosen = None if asked.days is None else frozenset([*asked.days, *missed])
    tasks = _tasks(stores, asked, chosen, of.broker)
    try:
        counts = count_store(context, tasks, of.broker)
    except FAILURES as error:
        raise plain_error(error) from error
    if "damage" in counts.broken and asked.on_damage == "fail":
        raise BadBytes(f"{counts.broken['damage'].why} (`--on-damage skip` counts what is whole)")
    parts = [part for task in tasks for part in task.parts if isinstance(part, Part)]
    read = min((part.start for part in parts), default=of.log_start), max((part.stop for part in parts), default=of.log_start)
    return Counted(tuple(stores), of, made, counts, chosen, read)


def _tasks(stores: Sequence[Directory], asked: Asked, chosen: frozenset[date] | None, broker: str) -> list[Task]:
    everything = Wanted(system=True, on_damage="quarantine")  # tasks report damage; what to do about it is decided here
    ranges = [everything]
    if chosen is not None and asked.time_property is None:  # when counting by store time, the reader itself leaves out the rest
        ranges = []
        for first, last in stretches(chosen):
            start, end = unix_ms(moments(first, asked.zone)[0]), unix_ms(moments(last, asked.zone)[1])
            # A leader's clock may have been ahead: its messages stand before files that begin on the day before.
            ranges.append(everything._replace(from_ms=start - MAX_DRIFT_MS, to_ms=end + MAX_DRIFT_MS))
    found = [(parts, wanted) for wanted in ranges for _, parts in plan_all(stores, wanted)]
    size = buckets(sum(map(_size, (part for parts, _ in found for part in parts))))
    counted = None if chosen is None else frozenset(map(day_number, chosen))
    return [
        Task(index, parts, wanted, broker, counted, asked.zone, asked.time_property, size)
        for index, (parts, wanted) in enumerate(found)
    ]


def _size(part: Part | Places) -> int:
    return part.bytes if isinstance(part, Places) else part.stop - part.start


# --- what is known of a day -------------------------------------------------------------------------------------------


def days_to_write(counted: Counted, zone: ZoneInfo) -> list[date]:
    """The days with messages of other than system topics, and the quiet ones among the wanted days: a zero is a result, too.

    Days that have not begun and days before the log are not quiet: nothing is known about them.
    """
    found = {row.day for row in counted.rows if row.kind != SYSTEM}
    for day in counted.looked_for or ():
        start, end = moments(day, zone)
        begun = counted.extent.first_ms is not None and counted.extent.first_ms < unix_ms(end)
        if begun and start <= counted.made:
            found.add(day)
    return sorted(found)


def manifest_of(counted: Counted, day: date, rows: Sequence[Row], asked: Asked) -> Manifest:
    """What that day's numbers were read from."""
    doubt, counts, iso = why_not(counted, day, asked.zone), counted.counts, day.isoformat()
    by_property = asked.time_property is not None
    broken = counts.broken
    log_from, log_to = counts.ranges.get(iso, counted.read)
    keys = {each.topic: each.distinct_keys for each in counts.details.get(iso, ()) if each.topic and each.distinct_keys}
    return Manifest(
        broker=counted.extent.broker,
        day=iso,
        source=", ".join(map(str, counted.stores)),
        log_from=log_from,
        log_to=log_to,
        complete=None if by_property else not doubt,
        why_not="messages with times of that day may still come" if by_property else doubt,
        counted_by=asked.counted_by,
        messages=sum(row.messages for row in rows if row.kind == BUSINESS),
        lost=broken["lost"].records if "lost" in broken else 0,
        damaged_bytes=broken["damage"].bytes if "damage" in broken else 0,
        keys={topic: count for topic, count in keys.items() if kind_of(topic) == BUSINESS},
        heads=_heads(counted.extent),
        made=counted.made.isoformat(timespec="seconds"),
        versions={"rmq": __version__, "pyspark": pyspark.__version__, "format": FORMAT},
        timezone=asked.zone.key,
        disk=_disk(counted.stores),
    )


def why_not(counted: Counted, day: date, zone: ZoneInfo) -> str:
    """Why the day is not complete; "" if it is."""
    end = unix_ms(moments(day, zone)[1])
    if _cut(counted.extent, day, zone):
        return "its beginning is not in the log any more: retention took it, or the copy begins later"
    if unix_ms(counted.made) < end:
        return "the day is not over"
    return "" if counted.extent.known_ms >= end else "nothing in the store proves that it was read to the end of the day"


def _cut(of: Extent, day: date, zone: ZoneInfo) -> bool:
    """Whether the log begins after the day did."""
    return of.log_start > 0 and (of.first_ms is None or of.first_ms >= unix_ms(moments(day, zone)[0]))


def _disk(stores: Sequence[Directory]) -> dict[str, int]:
    """Sizes of the disk of the first store that is on this machine."""
    store = next((each for each in stores if isinstance(each, Path)), None)
    if store is None:
        return {}
    total, _, free = shutil.disk_usage(store)
    held = sum(
        _held(os.path.join(folder, name))
        for part in _PARTS_OF_STORE
        for folder, _, names in os.walk(store / part)
        for name in names
    )
    return {"total": total, "free": free, "store": held}


def _held(path: str) -> int:
    try:
        return os.lstat(path).st_blocks * 512
    except FileNotFoundError:
        return 0  # retention took it since
