"""The report of a store: one HTML page and a Parquet rollup per day. Running a day again replaces that day.

    OUT/report-2026-11-21.html                      (report.html for all days)
    OUT/rollup/day=2026-11-21/rollup.parquet

Each file is written aside and renamed, so a reader sees the old one or the new one. A day is a day in UTC.
"""

import os
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from analytics.page import Row, render, totals
from analytics.rollup import facts, key_counts, rollup
from analytics.segments import find_parts
from analytics.session import spark_session
from rmq.errors import BadBytes, InvalidArgument, RmqError, StoreError

_SCHEMA = pa.schema([
    ("hour", pa.timestamp("us", tz="UTC")), ("topic", pa.string()), ("tag", pa.string()), ("messages", pa.int64()),
    ("bytes", pa.int64()), ("distinct_keys", pa.int64()), ("repeats", pa.int64()),
])  # fmt: skip


class ReportFiles(NamedTuple):
    """What a report wrote, and how much it counted."""

    page: Path
    rollups: tuple[Path, ...]
    messages: int
    bytes: int
    repeats: int


class NothingToReport(RmqError):
    """The store holds no message of the day asked for; nothing was written or replaced."""


def build_report(
    store: Path | str,
    out_dir: Path | str,
    day: date | None = None,
    *,
    time_property: str | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> ReportFiles:
    """Write the report of one day, or of every day in the store, into `out_dir`.

    `time_property`: the message property that holds the time to count by (Unix ms or ISO) in place of the store time.
    Raises InvalidArgument (not a store), NothingToReport, JavaMissing, BadBytes (damaged), StoreError.
    """
    store, out = Path(store).resolve(), Path(out_dir)  # Spark's workers may stand in another directory
    parts = find_parts(store)
    if not parts:
        raise NothingToReport(f"{store} holds no committed message yet; a running broker notes every 10 s how far it is, "
                              "so wait a little and run the report again")  # fmt: skip
    _check_writable(out)
    progress(f"starting Spark; {len(parts)} segment file(s) to read")
    with spark_session("rmq report") as session:
        rows, keys = _count(session, store, day, time_property, progress)
    if not rows:
        raise NothingToReport(f"{store} holds no message of {day}" if day else f"{store} holds system messages only")
    progress(f"writing to {out}")
    return _write(out, day, _source(store, rows, time_property), rows, keys)


def _check_writable(out: Path) -> None:
    """Before the work, not after it. Makes nothing."""
    there = next(place for place in [out.absolute(), *out.absolute().parents] if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise StoreError(f"the report cannot be written to {out}: {there} is no directory that this user may write to; "
                         "give another --out")  # fmt: skip


def _count(
    session: SparkSession, store: Path, day: date | None, time_property: str | None, progress: Callable[[str], None]
) -> tuple[list[Row], dict[str, int]]:
    of = facts(_messages(session, store, day if time_property is None else None), time_property)
    kept = (of if day is None else of.where(of["day"] == day)).cache()
    try:
        progress("counting messages by hour, topic and tag")
        rows = [Row(**row) for row in _utc(rollup(kept).toArrow()).to_pylist()]
        return rows, dict(key_counts(kept))
    except PySparkException as error:
        raise _plain_error(error) from error


def _messages(session: SparkSession, store: Path, day: date | None) -> DataFrame:
    reader = session.read.format("rmq").option("path", str(store)).option("body", "none")
    if day is not None:  # by store time the source itself can leave the rest out
        start = datetime.combine(day, time(), UTC)
        reader = reader.option("from", start.isoformat()).option("to", (start + timedelta(days=1)).isoformat())
    return reader.load()


def _utc(table: pa.Table) -> pa.Table:
    """Hours as UTC whatever the session's zone is: the instants are the same."""
    at = table.schema.get_field_index("hour")
    return table.set_column(at, "hour", table["hour"].cast(pa.timestamp("us", tz="UTC")))


def _plain_error(error: PySparkException) -> RmqError:
    """The reader's own error out of Spark's pages of traceback."""
    found = re.search(r"^rmq\.errors\.(\w+): (.+)", str(error), re.MULTILINE)
    kinds = {kind.__name__: kind for kind in (BadBytes, StoreError, InvalidArgument)}
    return kinds.get(found[1], StoreError)(found[2]) if found else StoreError(f"Spark failed: {error}")


def _write(out: Path, day: date | None, source: str, rows: list[Row], keys: dict[str, int]) -> ReportFiles:
    try:
        rollups = tuple(write_day(out, each, list(of_day)) for each, of_day in groupby(rows, key=lambda row: row.day))
        title, page = (f"Messages of {day}", out / f"report-{day}.html") if day else ("Messages", out / "report.html")
        _replace(page, lambda aside: aside.write_text(render(title, source, rows, keys), encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"the report cannot be written to {out}: {error}; free some space or give another --out") from error
    return ReportFiles(page, rollups, *totals(rows))


def write_day(out: Path, day: date, rows: list[Row]) -> Path:
    """Replace the rollup of one day under `out`; returns its file."""
    columns = [[getattr(row, name) for row in rows] for name in _SCHEMA.names]
    table = pa.table(columns, schema=_SCHEMA)
    file = out / "rollup" / f"day={day.isoformat()}" / "rollup.parquet"
    _replace(file, lambda aside: pq.write_table(table, aside))
    return file


def _replace(file: Path, write: Callable[[Path], object]) -> None:
    """Write beside `file` under a name that Spark and pandas skip, then rename over it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        write(aside)
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)


def _source(store: Path, rows: list[Row], time_property: str | None) -> str:
    by = f"the property {time_property} (store time without it)" if time_property else "store time"
    return f"Store {store}; days {rows[0].day} to {rows[-1].day} (UTC), counted by {by}."


def parse_day(text: str) -> date:
    """A day as YYYY-MM-DD. Raises InvalidArgument."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"{text!r} is not a day; write it as 2026-11-21") from None
