"""Counts a store with Spark: one pass over the segments in its Python workers, one shuffle of small sums. No page.

The rollup has a row for each day, hour, topic and tag ("" means no tag); days and hours are those of one time zone. A repeat is a
message whose unique id an earlier message of the same topic and day has.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext

from analytics.reports.counting import DELAY, SIZE, Tables, Task, count
from analytics.reports.days import Detail, Queue, Row
from analytics.reports.merging import busiest, largest_keys, merge_all, merge_bucket, pairs
from analytics.reports.zones import day_of

BUCKET_BYTES = 64 << 20  # of the log

Line = tuple[str, str]  # day and topic


class Broken(NamedTuple):
    """Messages that cannot be read any more. `kind`: "lost" or "damage"; `why`: the reason for the first of them in the log."""

    kind: str
    records: int
    bytes: int
    why: str


class Counts(NamedTuple):
    """`rows`: in order. `ranges`: the bytes of the log that each day came from. `details`: by day, for each topic ("": all)."""

    rows: list[Row]
    ranges: dict[str, tuple[int, int]]
    details: dict[str, list[Detail]]
    broken: dict[str, Broken]


def count_store(context: SparkContext, tasks: Sequence[Task], broker: str) -> Counts:
    """Counts the tasks' parts. Raises Spark's errors for errors of tasks."""
    if not tasks:
        return Counts([], {}, {}, {})
    dealt = context.parallelize(tasks, len(tasks)).flatMap(count)
    merged = dealt.partitionBy(tasks[0].buckets, int).mapPartitions(merge_bucket).collect()
    return counts_of(merge_all(merged), broker)


def buckets(log_bytes: int) -> int:
    """The number of buckets for what is compared over the whole log: each must fit into a worker's memory."""
    return min(max(1, -(-log_bytes // BUCKET_BYTES)), 4096)


def counts_of(tables: Tables, broker: str) -> Counts:
    broken = _broken(tables.get("broken"))
    if "places" not in tables:
        return Counts([], {}, {}, broken)
    distinct, repeats = pairs(tables.get("distinct"), "place", "count"), pairs(tables.get("repeats"), "place", "count")
    rows: list[Row] = []
    ranges: dict[str, tuple[int, int]] = {}
    lines: dict[int, tuple[str, str]] = {}
    places = tables["places"].sort_by([(name, "ascending") for name in ("day", "hour", "topic", "tag")])
    for each in places.to_pylist():
        day = day_of(each["day"])
        row = Row(day, broker, datetime.fromtimestamp(each["hour"], UTC), each["topic"], each["tag"], each["messages"],
                  each["bytes"], distinct.get(each["place"], 0), repeats.get(each["place"], 0))  # fmt: skip
        rows.append(row)
        lines[each["line"]] = (day.isoformat(), row.topic)
        first, last = ranges.get(day.isoformat(), (each["log_from"], each["log_to"]))
        ranges[day.isoformat()] = (min(first, each["log_from"]), max(last, each["log_to"]))
    return Counts(rows, ranges, _details(tables, lines), broken)


def _broken(table: pa.Table | None) -> dict[str, Broken]:
    found: dict[str, Broken] = {}
    for row in table.sort_by("offset").to_pylist() if table is not None else ():
        so_far = found.get(row["kind"], Broken(row["kind"], 0, 0, row["why"]))
        found[row["kind"]] = so_far._replace(records=so_far.records + 1, bytes=so_far.bytes + row["bytes"])
    return found


def _details(tables: Tables, lines: dict[int, Line]) -> dict[str, list[Detail]]:
    """The details of each day; the first one is for all business topics together."""
    distinct = {lines[line]: count for line, count in pairs(tables.get("lines"), "line", "count").items()}
    top_keys = largest_keys(tables.get("top"), lines.__getitem__)
    sizes, delays = (_by_line(tables["bins"].filter(pc.field("what") == what), "bin", "messages") for what in (SIZE, DELAY))
    origins = _by_line(tables.get("origins"), "origin", "messages")
    queues: dict[Line, list[Queue]] = {}
    for row in tables["queues"].sort_by("queue_id").to_pylist():
        queues.setdefault(_line(row), []).append(Queue(row["queue_id"], row["messages"], row["bytes"]))
    found: dict[str, list[Detail]] = {}
    for row in busiest(tables["peaks"]).to_pylist():
        line = _line(row)
        found.setdefault(line[0], []).append(Detail(
            line[1], distinct.get(line, 0), row["messages"], row["bytes"], datetime.fromtimestamp(row["second"], UTC),
            sizes.get(line, {}), delays.get(line, {}), queues.get(line, []), top_keys.get(line, []), origins.get(line, {}),
        ))  # fmt: skip
    return {day: sorted(each, key=lambda detail: detail.topic) for day, each in found.items()}


def _line(row: dict[str, Any]) -> Line:
    return day_of(row["day"]).isoformat(), row["topic"] or ""


def _by_line(table: pa.Table | None, key: str, value: str) -> dict[Line, dict[Any, int]]:
    found: dict[Line, dict[Any, int]] = {}
    for row in table.to_pylist() if table is not None else ():
        found.setdefault(_line(row), {})[row[key]] = row[value]
    return found
