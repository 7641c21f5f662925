"""The counted days on disk: one file for each day and broker, with a manifest of what it was read from. No Spark, no page here.

    OUT/rollup/day=2026-11-21/rollup-BROKER.parquet     business messages
    OUT/apart/day=2026-11-21/apart-BROKER.parquet       retry, dead-letter and system topics
    OUT/topics/day=2026-11-21/topics-BROKER.parquet     peaks, queues, sizes, delays and top keys of each topic

The manifest is in the footer of the rollup's file (key "rmq.manifest"), so counts and manifest are replaced in one rename. A file
is never replaced by one that read less of the log, unless forced.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from rmq.errors import InvalidArgument, StoreError
from rmq.model import DLQ_PREFIX, RETRY_PREFIX
from rmq.routing.topics import is_system_topic

BUSINESS, RETRY, DEAD_LETTER, SYSTEM = "business", "retry", "dead letter", "system"
KEY = b"rmq.manifest"
_SCHEMA = pa.schema([
    ("broker", pa.string()), ("hour", pa.timestamp("us", tz="UTC")), ("topic", pa.string()), ("tag", pa.string()),
    ("messages", pa.int64()), ("bytes", pa.int64()), ("distinct_keys", pa.int64()), ("repeats", pa.int64()),
])  # fmt: skip
_APART = _SCHEMA.insert(2, pa.field("kind", pa.string()))
_BINS = pa.map_(pa.int32(), pa.int64())
_DETAILS = pa.schema([
    ("broker", pa.string()), ("topic", pa.string()), ("distinct_keys", pa.int64()), ("peak_messages", pa.int64()),
    ("peak_bytes", pa.int64()), ("peak_at", pa.timestamp("us", tz="UTC")), ("sizes", _BINS), ("delays_ms", _BINS),
    ("queues", pa.list_(pa.struct([("queue_id", pa.int32()), ("messages", pa.int64()), ("bytes", pa.int64())]))),
    ("top_keys", pa.list_(pa.struct([("key", pa.string()), ("messages", pa.int64())]))),
    ("origins", pa.map_(pa.string(), pa.int64())),
])  # fmt: skip


class Row(NamedTuple):
    """One row of a rollup (see `reports.rollup`)."""

    day: date
    broker: str
    hour: datetime
    topic: str
    tag: str
    messages: int
    bytes: int
    distinct_keys: int
    repeats: int

    @property
    def kind(self) -> str:
        return kind_of(self.topic)


class Queue(NamedTuple):
    """What one queue of a topic received on one day."""

    queue_id: int
    messages: int
    bytes: int


class Detail(NamedTuple):
    """What is known of one topic on one day and broker besides its rows; topic "" stands for all business topics together.

    `peak_messages`, `peak_bytes`: the most in one second; `peak_at`: the second with the most messages. `sizes` (bytes),
    `delays_ms` (store minus born time): messages by bin of `reports.bins`. `top_keys`: most frequent first. `origins`: for a
    retry or dead-letter topic, the topics that its messages came from.
    """

    topic: str
    distinct_keys: int
    peak_messages: int
    peak_bytes: int
    peak_at: datetime
    sizes: dict[int, int]
    delays_ms: dict[int, int]
    queues: list[Queue]
    top_keys: list[tuple[str, int]]
    origins: dict[str, int]


class Manifest(NamedTuple):
    """What a day of a broker was read from.

    [log_from, log_to): the bytes of the log that were counted. `complete`: whether these are all messages of that day, None if
    nobody can know (counted by a property); `why_not` in words. `lost`: messages of which only a tombstone is left.
    `damaged_bytes`: bytes that were skipped. `keys`: distinct keys by topic on that day. `heads`: checksums of the first records
    of the log's files, by offset (they tell copies of one log from different logs of the same broker name). `made`: when
    the manifest was made, ISO. `versions`: of rmq, Spark and the reader. `timezone`: the day's time zone. `disk`: bytes at that
    time, of the whole disk ("total", "free") and of the store's files ("store").
    """

    broker: str
    day: str
    source: str
    log_from: int
    log_to: int
    complete: bool | None
    why_not: str
    counted_by: str
    messages: int
    lost: int
    damaged_bytes: int
    keys: dict[str, int]
    heads: dict[str, str]
    made: str
    versions: dict[str, str]
    timezone: str = "UTC"
    disk: dict[str, int] = {}


class Day(NamedTuple):
    """One file that was read back: its manifest, its business rows, those of other topics, and details of all topics."""

    manifest: Manifest
    rows: list[Row]
    apart: list[Row]
    details: list[Detail] = []


def kind_of(topic: str) -> str:
    """Business, retry, dead letter or system."""
    if topic.startswith(RETRY_PREFIX):
        return RETRY
    if topic.startswith(DLQ_PREFIX):
        return DEAD_LETTER
    return SYSTEM if is_system_topic(topic) else BUSINESS


def shrinks(new: Manifest, old: Manifest) -> str | None:
    """Why `new` must not replace `old`: it read less, or counted by another time. None if it may."""
    if new.counted_by != old.counted_by:
        return f"it was counted by {old.counted_by}, this one by {new.counted_by}"
    if new.damaged_bytes > old.damaged_bytes or new.lost > old.lost:
        return f"more is damaged now: {new.damaged_bytes} bytes and {new.lost} lost messages"
    if not old.messages and (new.messages or new.complete or not old.complete):
        return None  # the old one has nothing that this one lacks
    if new.log_from > old.log_from or new.log_to < old.log_to:
        return (
            f"it was read from bytes {old.log_from} to {old.log_to} of the log, of which only {new.log_from} to {new.log_to} "
            "are there now"
        )
    if new.messages < old.messages:
        return f"it counted {old.messages} messages, this one {new.messages}"
    if old.complete and new.complete is False:
        return f"it was complete, and of this one that is not known: {new.why_not}"
    return None


def write_day(
    out: Path, manifest: Manifest, rows: Sequence[Row], details: Sequence[Detail] = (), *, force: bool = False
) -> str | None:
    """Replaces one day of one broker under `out`. Returns None, or why the old day was kept. Raises StoreError."""
    file = rollup_file(out, manifest.day, manifest.broker)
    if not force and file.exists():
        why = shrinks(manifest, _manifest(file))
        if why:
            return why
    _refuse_unnamed(file.parent)
    business = [row for row in rows if row.kind == BUSINESS]
    apart = [row for row in rows if row.kind != BUSINESS]
    if apart:
        replace(_beside(file, "apart"), lambda staging: pq.write_table(_table(apart, _APART), staging))
    else:
        _beside(file, "apart").unlink(missing_ok=True)
    said = {KEY: json.dumps(manifest._asdict()).encode()}
    table = _details_table(details, manifest.broker).replace_schema_metadata(said)
    replace(_beside(file, "topics"), lambda staging: pq.write_table(table, staging))
    schema = _SCHEMA.with_metadata(said)
    replace(file, lambda staging: pq.write_table(_table(business, schema), staging))
    return None


def name_in(out: Path, heads: Mapping[str, str], own: str, said: str | None = None) -> str:
    """The name of a log in `out`: that under which it was counted before, so that pages have one name for it and count it once.

    Else the one that was `said`, else its store's `own`. Raises InvalidArgument if another one is said than before.
    """
    plain = f"rollup-{file_name(said or own)}.parquet"
    newest_first = sorted((out / "rollup").glob("day=*/rollup-*.parquet"), reverse=True)
    for file in sorted(newest_first, key=lambda file: file.name != plain):  # it mostly has its name still
        with suppress(StoreError):  # whoever needs that day says so
            known = _manifest(file)
            if known.heads.items() & heads.items():
                if said and said not in (known.broker, known.broker.rpartition("-")[0]):
                    raise InvalidArgument(
                        f"{out} has this log under the name {known.broker}, and a page would count it twice: give "
                        f"--broker {known.broker}, or another --out"
                    )
                return known.broker
    return said or own


def named(out: Path, manifest: Manifest) -> Manifest:
    """The manifest, with another broker name if the log has that on that day, or if a different log of its name was counted.

    A log is the one of a file if the two have the first record of a file in common.
    """
    plain = rollup_file(out, manifest.day, manifest.broker)
    there = [_manifest(file) for file in sorted(plain.parent.glob("rollup-*.parquet"), key=lambda file: (file != plain, file))]
    for one in there:
        if one.heads.items() & manifest.heads.items():
            return manifest._replace(broker=one.broker)
    alike = [one for one in there if file_name(one.broker) == file_name(manifest.broker)]  # it would be the same file
    if not manifest.heads or not any(one.heads for one in alike):
        return manifest
    return manifest._replace(broker=f"{manifest.broker}-{min(manifest.heads.items())[1]}")


def read_days(out: Path, days: Iterable[str] | None = None) -> list[Day]:
    """The files of those days (None: all), ordered by day and broker. Raises StoreError if one is damaged."""
    folders = sorted((out / "rollup").glob("day=*")) if days is None else [out / "rollup" / f"day={day}" for day in days]
    return [_read(file) for folder in folders for file in sorted(folder.glob("rollup-*.parquet"))]


def read_sums(out: Path, days: Iterable[str]) -> list[Day]:
    """Like `read_days`, with one row a topic (its first hour, the tag "") and only business messages: fast for many days."""
    files = [file for day in days for file in sorted((out / "rollup" / f"day={day}").glob("rollup-*.parquet"))]
    return [Day(manifest, _sums(file, manifest), []) for file, manifest in ((file, _manifest(file)) for file in files)]


def rollup_file(out: Path, day: str, broker: str) -> Path:
    return out / "rollup" / f"day={day}" / f"rollup-{file_name(broker)}.parquet"


def file_name(broker: str) -> str:
    """The broker's name, as a file system allows it."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", broker)


def replace(file: Path, write: Callable[[Path], object]) -> None:
    """Writes beside `file`, under a name that Spark and pandas skip, then renames it to `file`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    staging = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        write(staging)
        staging.replace(file)
    finally:
        staging.unlink(missing_ok=True)


def zone_of(out: Path) -> str | None:
    """The time zone of the days that were counted last; None if there are none yet."""
    files = sorted((out / "rollup").glob("day=*/rollup-*.parquet"))
    return _manifest(files[-1]).timezone if files else None


def is_whole(out: Path, day: str, heads: dict[str, str]) -> bool:
    """Whether that day was counted completely from a log with these first records."""
    for file in sorted((out / "rollup" / f"day={day}").glob("rollup-*.parquet")):
        there = _manifest(file)
        if there.complete and any(heads.get(base) == head for base, head in there.heads.items()):
            return True
    return False


def sweep(out: Path) -> None:
    """Removes the half-written files of killed runs. Call it with the lock held."""
    for staging in [*out.glob(".*.new"), *out.glob("*/day=*/.*.new")]:
        staging.unlink(missing_ok=True)


def _beside(file: Path, kind: str) -> Path:
    """The file of another kind of the same day and broker."""
    return file.parent.parent.parent / kind / file.parent.name / file.name.replace("rollup-", f"{kind}-", 1)


def _table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    return pa.table([[getattr(row, name) for row in rows] for name in schema.names], schema=schema)


def _refuse_unnamed(folder: Path) -> None:
    """Raises StoreError for a file without a broker's name: readers of the folder would count it in addition."""
    old = folder / "rollup.parquet"
    if old.exists():
        raise StoreError(f"{old} was written by an older version and says not of which broker it is: move it away")


def _details_table(details: Sequence[Detail], broker: str) -> pa.Table:
    rows = [
        {
            **each._asdict(),
            "broker": broker,
            "sizes": list(each.sizes.items()),
            "delays_ms": list(each.delays_ms.items()),
            "queues": [queue._asdict() for queue in each.queues],
            "origins": list(each.origins.items()),
            "top_keys": [{"key": key, "messages": messages} for key, messages in each.top_keys],
        }
        for each in details
    ]
    return pa.Table.from_pylist(rows, schema=_DETAILS)


def _read(file: Path) -> Day:
    manifest, apart = _manifest(file), _beside(file, "apart")
    return Day(manifest, _rows(file, manifest), _rows(apart, manifest) if apart.exists() else [], _details(file, manifest))


def _rows(file: Path, manifest: Manifest) -> list[Row]:
    found: list[dict[str, Any]] = pq.ParquetFile(file).read().select(_SCHEMA.names).to_pylist()
    return [Row(day=date.fromisoformat(manifest.day), **row) for row in found]


def _sums(file: Path, manifest: Manifest) -> list[Row]:
    sums = [("hour", "min"), ("messages", "sum"), ("bytes", "sum"), ("repeats", "sum")]
    table = pq.ParquetFile(file).read().group_by("topic").aggregate(sums)
    found = table.rename_columns(["topic", "hour", "messages", "bytes", "repeats"]).to_pylist()
    day = date.fromisoformat(manifest.day)
    return [Row(day=day, broker=manifest.broker, tag="", distinct_keys=0, **row) for row in found]


def _details(file: Path, manifest: Manifest) -> list[Detail]:
    """The details that belong to the rollup; [] if its run wrote none, or if a later run wrote them and was killed before its
    rollup."""
    beside = _beside(file, "topics")
    if not beside.exists() or _manifest(beside) != manifest:
        return []
    return [
        Detail(
            **{
                **{name: value for name, value in row.items() if name != "broker"},
                "sizes": dict(row["sizes"]),
                "delays_ms": dict(row["delays_ms"]),
                "origins": dict(row["origins"]),
                "queues": [Queue(**queue) for queue in row["queues"]],
                "top_keys": [(key["key"], key["messages"]) for key in row["top_keys"]],
            }
        )
        for row in pq.ParquetFile(beside).read().to_pylist()
    ]


def _manifest(file: Path) -> Manifest:
    try:
        text = (pq.ParquetFile(file).metadata.metadata or {})[KEY]
        return Manifest(**json.loads(text))
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        advice = "move it away and run the report again"
        raise StoreError(f"{file} is damaged, or not written by `rmq report`: {error!r}; {advice}") from error
