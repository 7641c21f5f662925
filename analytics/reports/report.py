"""The report of one or more stores: an HTML page and a rollup for each day and broker (`reports.days` says which files).

    OUT/report-2026-11-21.html                      (report.html for all days, report-FIRST_LAST.html for a range)

The page shows what the rollups say, including those of other brokers and of earlier runs. Days are days of the given time zone,
and one OUT holds days of one zone. Each file is written aside and renamed, so a reader sees either the old one or the new one.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from analytics.reports import days
from analytics.reports.history import FORMER_WEEKS, Shown
from analytics.reports.lag import read_lag, write_lag, written_lags
from analytics.reports.measured import Asked, Counted, count_again, days_to_write, manifest_of, why_not
from analytics.reports.page import render, totals
from analytics.reports.workdir import locked, work_directory
from analytics.reports.zones import find_zone
from analytics.spark.session import spark_context
from analytics.stores.copies import by_log
from analytics.stores.files import Directory
from analytics.stores.paths import stores_at
from analytics.stores.segments import find_parts
from rmq.errors import InvalidArgument, RmqError, StoreError

_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"  # the work is too short for more compiling to pay
_LEAST_MEMORY_MIB = 512
_DAY = timedelta(days=1)


class ReportFiles(NamedTuple):
    """What a report wrote, and the business messages on its page. `kept`: days whose earlier numbers stayed, and why.

    `incomplete`: written days that lack messages, and why. `caught_up`: pages of earlier days. `damaged_bytes`: those that this
    run passed over.
    """

    page: Path
    rollups: tuple[Path, ...]
    messages: int
    bytes: int
    repeats: int
    kept: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    caught_up: tuple[Path, ...] = ()
    damaged_bytes: int = 0


class NothingToReport(RmqError):
    """The stores hold nothing of the wanted days; nothing was written or replaced."""


class NotWhole(NothingToReport):
    """The stores hold nothing of the wanted days, and nothing proves that there were no messages."""


class RollupKept(StoreError):
    """All wanted days exist already and were read from more of the log; they were not replaced."""


class Resources(NamedTuple):
    """What a report may use. `cores`: None is half of them, for a broker beside it. `memory`: Java's heap, as Spark writes it."""

    cores: int | None = None
    memory: str = "1g"
    temp: Path | None = None


_DEFAULT = Resources()


def build_report(
    stores: Path | str | Sequence[Path | str],
    out_dir: Path | str,
    day: date | Sequence[date] | None = None,
    *,
    time_property: str | None = None,
    force: bool = False,
    broker: str | None = None,
    on_damage: str = "fail",
    timezone: str = "UTC",
    catch_up: bool = False,
    resources: Resources = _DEFAULT,
    progress: Callable[[str], None] = lambda line: None,
) -> ReportFiles:
    """Writes the report of one day, several days, or all days in the stores, into `out_dir`.

    `time_property`: the message property with the time to count by (Unix ms or ISO), instead of the store time. `catch_up`: also
    reports earlier days that are whole in the stores and not in `out_dir`.
    Raises InvalidArgument (not a store), NothingToReport, RollupKept, Busy, JavaMissing, BadBytes (damaged), StoreError.
    """
    given = [stores] if isinstance(stores, Path | str) else stores
    paths = stores_at({"path": json.dumps(list(map(str, given)))})
    chosen = None if day is None else tuple(sorted([day] if isinstance(day, date) else day))
    asked = Asked(chosen, find_zone(timezone), time_property, force, broker, on_damage, catch_up, progress)
    _check(asked, paths)
    _check_memory(resources.memory)
    filled = [path for path in paths if find_parts(path)]
    if not filled:
        raise NothingToReport(
            f"{_names(paths)} holds no committed message yet; a running broker notes every 10 s how far it is, "
            "so wait a little and run the report again"
        )
    out = Path(out_dir)
    _check_writable(out)
    with locked(out):
        days.sweep(out)
        _check_zone(out, asked)
        counted = _count(filled, out, asked, resources)
        if not any(days_to_write(each, asked.zone) for each in counted):
            raise _nothing(counted, asked)
        progress(f"writing to {out}")
        try:
            return _write(out, asked, counted)
        except OSError as error:
            raise StoreError(f"the report cannot be written to {out}: {error}; free some space or give another --out") from error


def _check(asked: Asked, stores: Sequence[Directory]) -> None:
    if asked.broker and len(stores) > 1:
        raise InvalidArgument("a broker's name can be given for one store only")
    if asked.on_damage not in ("fail", "skip"):
        raise InvalidArgument(f"on damage {asked.on_damage!r}: it is fail or skip")
    if asked.catch_up and (asked.days is None or asked.time_property):
        raise InvalidArgument("catching up goes with a day, and not with a time property: nobody knows then which days are whole")


def _check_memory(text: str) -> None:
    """Raises InvalidArgument for a bad size of memory: Java and Spark refuse it later, and less clearly."""
    found = re.fullmatch(r"(\d+)([mg])", text.lower())
    if not found or int(found[1]) * {"m": 1, "g": 1024}[found[2]] < _LEAST_MEMORY_MIB:
        raise InvalidArgument(f"memory {text!r}: write it as 1g or 800m; Spark needs {_LEAST_MEMORY_MIB}m at least")


def _names(paths: Iterable[Directory]) -> str:
    return ", ".join(map(str, paths))


def _check_writable(out: Path) -> None:
    """Checks before the work, not after it. Creates nothing. Raises StoreError."""
    there = next(place for place in [out.absolute(), *out.absolute().parents] if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise StoreError(
            f"the report cannot be written to {out}: {there} is no directory that this user may write to; give another --out"
        )


def _check_zone(out: Path, asked: Asked) -> None:
    there = days.zone_of(out)
    if there and there != asked.zone.key:
        raise InvalidArgument(
            f"{out} holds days of {there}, and these would be days of {asked.zone.key}: give --timezone {there}, or another --out"
        )


def _count(stores: Sequence[Directory], out: Path, asked: Asked, resources: Resources) -> list[Counted]:
    cores = resources.cores or max(1, (os.cpu_count() or 1) // 2)
    with work_directory(resources.temp):
        asked.progress("starting Spark")
        settings = {
            "spark.master": f"local[{cores}]",
            "spark.driver.memory": resources.memory,
            "spark.driver.extraJavaOptions": _JAVA,
        }
        with spark_context("rmq report", settings) as context:
            return [count_again(context, [copy.store for copy in copies], out, asked) for copies in by_log(stores)]


def _nothing(counted: Sequence[Counted], asked: Asked) -> NothingToReport:
    names = _names(store for each in counted for store in each.stores)
    if asked.days is None:
        return NothingToReport(f"{names} holds system messages only")
    named = _span(asked.days, " to ")
    doubts = [
        f"{_names(each.stores)}: {why}" for each in counted for day in asked.days if (why := why_not(each, day, asked.zone))
    ]
    if doubts:
        return NotWhole(f"{names} holds no message of {named}, and nothing shows that there was none ({doubts[0]})")
    return NothingToReport(f"{names} holds no message of {named}")


def _span(chosen: Sequence[date], between: str) -> str:
    return str(chosen[0]) if len(chosen) == 1 else f"{chosen[0]}{between}{chosen[-1]}"


# --- writing ----------------------------------------------------------------------------------------------------------


def _write(out: Path, asked: Asked, counted: Sequence[Counted]) -> ReportFiles:
    written: list[tuple[date, Path]] = []
    kept: list[str] = []
    brokers: set[str] = set()
    for each in counted:
        for day, why, file in _write_days(out, asked, each):
            if why:
                kept.append(f"{day} of {each.extent.broker}: {why}")
            else:
                written.append((day, file))
        broker = days.name_in(out, {str(base): head for base, head in each.extent.heads.items()}, each.extent.broker)
        brokers.add(broker)
        said = [lag for store in each.stores if isinstance(store, Path) and (lag := read_lag(store, broker))]
        if said:
            as_of, lags = max(said, key=lambda lag: lag[0])
            write_lag(out, as_of, broker, lags)
    if kept and not written:
        raise RollupKept(f"kept as it was, {'; '.join(kept)}. To replace it nevertheless give --force")
    early = sorted({day for day, _ in written if asked.days and day not in asked.days})
    caught_up = tuple(write_page(out, (day,), asked.zone, brokers)[0] for day in early)
    page, shown = write_page(out, asked.days, asked.zone, brokers)
    gaps = [each.manifest for each in shown.days if each.manifest.complete is False]
    doubts = tuple(f"{gap.day} of {gap.broker}: {gap.why_not}" for gap in gaps)
    sums = totals([row for each in shown.days for row in each.rows])
    damaged = sum(each.counts.broken["damage"].bytes for each in counted if "damage" in each.counts.broken)
    return ReportFiles(page, tuple(file for _, file in written), *sums, tuple(kept), doubts, caught_up, damaged)


def _write_days(out: Path, asked: Asked, counted: Counted) -> Iterator[tuple[date, str | None, Path]]:
    """Writes each day. Gives the day, why its old numbers were kept (None if replaced), and its file."""
    for day in days_to_write(counted, asked.zone):
        rows = [row for row in counted.rows if row.day == day]
        manifest = days.named(out, manifest_of(counted, day, rows, asked))
        rows = [row._replace(broker=manifest.broker) for row in rows]
        why = days.write_day(out, manifest, rows, counted.counts.details.get(day.isoformat(), ()), force=asked.force)
        yield day, why, days.rollup_file(out, manifest.day, manifest.broker)


def write_page(out: Path, chosen: Sequence[date] | None, zone: ZoneInfo, brokers: Set[str]) -> tuple[Path, Shown]:
    """Writes the page of the days (None: all) from their files, with the days before for comparison. `brokers`: that were counted
    just now; the lags of others are shown as long as they have a day at the end, which those do not have that are gone."""
    shown = days.read_days(out, [day.isoformat() for day in chosen] if chosen else None)
    all_days = [date.fromisoformat(each.manifest.day) for each in shown]
    first, last = (chosen[0], chosen[-1]) if chosen else (all_days[0], all_days[-1])
    before = (
        []
        if chosen is None
        else days.read_sums(out, [(first - n * _DAY).isoformat() for n in range(FORMER_WEEKS * 7 + (last - first).days, 0, -1)])
    )
    there = brokers | {each.manifest.broker for each, day in zip(shown, all_days, strict=True) if day >= last - _DAY}
    what = Shown(shown, before, first, last, zone.key, written_lags(out, there), datetime.now(UTC))
    page = out / (f"report-{_span(chosen, '_')}.html" if chosen else "report.html")
    title = f"Messages of {_span(chosen, ' to ')}" if chosen else "Messages"
    days.replace(page, lambda staging: staging.write_text(render(title, what), encoding="utf-8"))
    return page, what
