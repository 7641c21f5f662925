"""The report of one or more stores: an HTML page and a rollup for each day and broker (`analytics.days` says which files).

    OUT/report-2026-11-21.html                      (report.html for all days)

The page shows what the rollups say, those of other brokers and of earlier runs too. A day is a day in UTC. Each file is written
aside and renamed, so a reader sees the old one or the new one.
"""

import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from analytics import days
from analytics.days import BUSINESS, SYSTEM, Manifest, Row
from analytics.look import Extent, extent
from analytics.options import Wanted
from analytics.page import render, totals
from analytics.plan import newest_ms
from analytics.rollup import COLUMNS, FIRST_YEAR_S, Broken, KeyCount, broken, facts, key_counts, rollup
from analytics.segments import find_parts
from analytics.session import spark_session
from analytics.source import schema_of
from rmq import __version__
from rmq.errors import BadBytes, InvalidArgument, RmqError, StoreError

FORMAT = "2"  # of the rollup's files
_TRIES = 3  # while retention takes segments that a run has begun to read
_BY_STORE_TIME = "store time"
_DAY = timedelta(days=1)


class ReportFiles(NamedTuple):
    """What a report wrote, and what its page shows of business messages. `kept`: days whose earlier numbers stayed, and why.

    `incomplete`: days of which not all messages are there, and why.
    """

    page: Path
    rollups: tuple[Path, ...]
    messages: int
    bytes: int
    repeats: int
    kept: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()


class NothingToReport(RmqError):
    """The stores hold no message of the day asked for; nothing was written or replaced."""


class RollupKept(StoreError):
    """Everything that was asked for is there already, read from more of the log; it was not replaced."""


class Asked(NamedTuple):
    """What a report is to count. `force`: replace also what was read from more. `broker`: a name in place of the store's own.

    `on_damage`: "fail", or "skip" to count what is whole and say how much is not.
    """

    day: date | None = None
    time_property: str | None = None
    force: bool = False
    broker: str | None = None
    on_damage: str = "fail"
    progress: Callable[[str], None] = lambda line: None

    @property
    def counted_by(self) -> str:
        return f"the property {self.time_property}" if self.time_property else _BY_STORE_TIME


class _Counted(NamedTuple):
    """One store's numbers: rows of each day, the range of the log that each came from, distinct keys."""

    store: Path
    extent: Extent
    made: datetime
    rows: list[Row]
    ranges: dict[date, tuple[int, int]]
    keys: list[KeyCount]
    broken: dict[str, Broken]


def build_report(
    stores: Path | str | Sequence[Path | str],
    out_dir: Path | str,
    day: date | None = None,
    *,
    time_property: str | None = None,
    force: bool = False,
    broker: str | None = None,
    on_damage: str = "fail",
    progress: Callable[[str], None] = lambda line: None,
) -> ReportFiles:
    """Write the report of one day, or of every day in the stores, into `out_dir`.

    `time_property`: the message property that holds the time to count by (Unix ms or ISO) in place of the store time.
    Raises InvalidArgument (not a store), NothingToReport, RollupKept, JavaMissing, BadBytes (damaged), StoreError.
    """
    given = [stores] if isinstance(stores, Path | str) else stores
    paths = [Path(each).resolve() for each in given]  # Spark's workers may stand in another directory
    if broker and len(paths) > 1:
        raise InvalidArgument("a broker's name can be given for one store only")
    if on_damage not in ("fail", "skip"):
        raise InvalidArgument(f"on damage {on_damage!r}: it is fail or skip")
    asked = Asked(day, time_property, force, broker, on_damage, progress)
    filled = [path for path in paths if find_parts(path)]
    if not filled:
        raise NothingToReport(f"{_names(paths)} holds no committed message yet; a running broker notes every 10 s how far it is, "
                              "so wait a little and run the report again")  # fmt: skip
    out = Path(out_dir)
    _check_writable(out)
    progress("starting Spark")
    with spark_session("rmq report") as session:
        counted = [_count_again(session, path, asked) for path in filled]
    if not any(row.kind != SYSTEM for each in counted for row in each.rows):
        raise NothingToReport(f"{_names(filled)} holds " + (f"no message of {day}" if day else "system messages only"))
    progress(f"writing to {out}")
    try:
        return _write(out, asked, counted)
    except OSError as error:
        raise StoreError(f"the report cannot be written to {out}: {error}; free some space or give another --out") from error


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


def _check_writable(out: Path) -> None:
    """Before the work, not after it. Makes nothing."""
    there = next(place for place in [out.absolute(), *out.absolute().parents] if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise StoreError(f"the report cannot be written to {out}: {there} is no directory that this user may write to; "
                         "give another --out")  # fmt: skip


# --- counting ---------------------------------------------------------------------------------------------------------


def _count_again(session: SparkSession, store: Path, asked: Asked) -> _Counted:
    """Again when retention took a segment on the way: then the day is what is left of it, and says so."""
    for attempt in range(_TRIES):
        is_last = attempt == _TRIES - 1
        before = _extent(store)
        asked.progress(f"counting {store} by hour, topic and tag")
        try:
            counted = _count(session, store, asked, before)
        except StoreError as error:
            if "retention removed it" not in str(error) or is_last:
                raise
            continue
        after = extent(store)
        if after.log_start == before.log_start or is_last:
            return counted._replace(extent=counted.extent._replace(log_start=after.log_start, first_ms=after.first_ms))
    raise AssertionError("every attempt returns or raises")


def _extent(store: Path) -> Extent:
    found = extent(store)
    if (store / "rmq").is_dir():
        return found
    return found._replace(known_ms=newest_ms(store))  # nobody has noted how far it is


def _count(session: SparkSession, store: Path, asked: Asked, of_store: Extent) -> _Counted:
    made = datetime.now(UTC)
    name = asked.broker or of_store.broker
    of = facts(_messages(session, store, asked), asked.time_property)
    asked_for = F.unix_seconds("hour") >= FIRST_YEAR_S if asked.day is None else F.col("day") == asked.day
    kept = of.where(asked_for | F.col("topic").isNull()).cache()
    try:
        wrong = {one.kind: one for one in broken(kept)}
        if "damage" in wrong and asked.on_damage == "fail":
            raise BadBytes(f"{wrong['damage'].why} (`--on-damage skip` counts what is whole)")
        messages = kept.where("topic is not null")
        found = rollup(messages)
        keys = key_counts(messages)
    except PySparkException as error:
        raise _plain_error(error) from error
    finally:
        kept.unpersist()
    ranges = {
        each: (min(row["log_from"] for row in rows), max(row["log_to"] for row in rows))
        for each, rows in ((each, list(rows)) for each, rows in groupby(found, key=lambda row: row["day"]))
    }
    rows = [Row(broker=name, **{key: value for key, value in row.items() if key in Row._fields}) for row in found]
    return _Counted(store, of_store._replace(broker=name), made, rows, ranges, keys, wrong)


def _messages(session: SparkSession, store: Path, asked: Asked) -> DataFrame:
    names = [*COLUMNS, *(["properties"] if asked.time_property else [])]
    schema = StructType([field for field in schema_of(Wanted()).fields if field.name in names])
    reader = session.read.format("rmq").schema(schema).option("path", str(store))
    reader = reader.option("system", "true").option("onDamage", "quarantine")  # what to do about it is decided here
    if asked.day is not None and asked.time_property is None:  # by store time the source itself can leave the rest out
        start, end = _moments(asked.day)
        reader = reader.option("from", start.isoformat()).option("to", end.isoformat())
    return reader.load()


def _moments(day: date) -> tuple[datetime, datetime]:
    start = datetime.combine(day, time(), UTC)
    return start, start + _DAY


def _plain_error(error: PySparkException) -> RmqError:
    """The reader's own error out of Spark's pages of traceback."""
    found = re.search(r"^(?:rmq\.errors|analytics\.\w+)\.(\w+): (.+)", str(error), re.MULTILINE)
    kinds = {kind.__name__: kind for kind in (BadBytes, StoreError, InvalidArgument)}
    return kinds.get(found[1], StoreError)(found[2]) if found else StoreError(f"Spark failed: {error}")


# --- writing ----------------------------------------------------------------------------------------------------------


def _write(out: Path, asked: Asked, counted: Sequence[_Counted]) -> ReportFiles:
    written: list[Path] = []
    kept: list[str] = []
    for each in counted:
        for day, rows in ((day, list(rows)) for day, rows in groupby(each.rows, key=lambda row: row.day)):
            if all(row.kind == SYSTEM for row in rows):
                continue
            manifest = days.named(out, _manifest(each, day, rows, asked))
            rows = [row._replace(broker=manifest.broker) for row in rows]
            why = days.write_day(out, manifest, rows, force=asked.force)
            if why:
                kept.append(f"{day} of {manifest.broker}: {why}")
            else:
                written.append(days.rollup_file(out, manifest.day, manifest.broker))
    if kept and not written:
        raise RollupKept(f"kept as it was, {'; '.join(kept)}. To replace it nevertheless give --force")
    shown = days.read_days(out, [asked.day.isoformat()] if asked.day else None)
    page = out / (f"report-{asked.day}.html" if asked.day else "report.html")
    title = f"Messages of {asked.day}" if asked.day else "Messages"
    days.replace(page, lambda aside: aside.write_text(render(title, shown), encoding="utf-8"))
    rows = [row for each in shown for row in each.rows]
    gaps = [each.manifest for each in shown if each.manifest.complete is False]
    doubts = tuple(f"{gap.day} of {gap.broker}: {gap.why_not}" for gap in gaps)
    return ReportFiles(page, tuple(written), *totals(rows), tuple(kept), doubts)


def _manifest(counted: _Counted, day: date, rows: Sequence[Row], asked: Asked) -> Manifest:
    why_not = _why_not(counted.extent, day, counted.made)
    by_property = asked.time_property is not None
    return Manifest(
        broker=counted.extent.broker,
        day=day.isoformat(),
        source=str(counted.store),
        log_from=counted.ranges[day][0],
        log_to=counted.ranges[day][1],
        complete=None if by_property else not why_not,
        why_not="messages with times of that day may still come" if by_property else why_not,
        counted_by=asked.counted_by,
        messages=sum(row.messages for row in rows if row.kind == BUSINESS),
        lost=counted.broken["lost"].number if "lost" in counted.broken else 0,
        damaged_bytes=counted.broken["damage"].bytes if "damage" in counted.broken else 0,
        keys={key.topic: key.distinct_keys for key in counted.keys if key.day == day.isoformat()},
        heads=_heads_between(counted.extent, *counted.ranges[day]),
        made=counted.made.isoformat(timespec="seconds"),
        versions={"rmq": __version__, "pyspark": pyspark.__version__, "format": FORMAT},
    )


def _heads_between(of: Extent, log_from: int, log_to: int) -> dict[str, str]:
    """Of the files that hold those bytes."""
    bases = sorted(of.heads)
    ends = [*bases[1:], log_to + 1]
    return {str(base): of.heads[base] for base, end in zip(bases, ends, strict=True) if base < log_to and end > log_from}


def _why_not(of: Extent, day: date, made: datetime) -> str:
    """Why the day is not complete; "" when it is."""
    start, end = (int(moment.timestamp() * 1000) for moment in _moments(day))
    if of.log_start > 0 and (of.first_ms is None or of.first_ms >= start):
        return "its beginning is not in the log any more: retention took it, or the copy begins later"
    if made.timestamp() * 1000 < end:
        return "the day is not over"
    return "" if of.known_ms >= end else "nothing in the store proves that it was read to the end of the day"


def parse_day(text: str) -> date:
    """A day as YYYY-MM-DD. Raises InvalidArgument."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"{text!r} is not a day; write it as 2026-11-21") from None
