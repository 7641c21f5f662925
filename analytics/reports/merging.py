"""Merges what the tasks of a report counted: each bucket in one of Spark's workers, then all buckets. No Spark here."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.records.arrays import texts
from analytics.reports.counting import Tables
from analytics.reports.days import BUSINESS, kind_of

TOP_KEYS = 10  # of a topic
_ADDED: dict[str, tuple[list[str], list[tuple[str, str]]]] = {
    "places": (["place", "line", "day", "hour", "topic", "tag"],
               [("messages", "sum"), ("bytes", "sum"), ("log_from", "min"), ("log_to", "max")]),
    "queues": (["day", "topic", "queue_id"], [("messages", "sum"), ("bytes", "sum")]),
    "bins": (["day", "topic", "what", "bin"], [("messages", "sum")]),
    "origins": (["day", "topic", "origin"], [("messages", "sum")]),
    "distinct": (["place"], [("count", "sum")]),
    "repeats": (["place"], [("count", "sum")]),
    "lines": (["line"], [("count", "sum")]),
    "peaks": (["day", "topic"], []),
    "top": (["line"], []),
    "broken": (["kind"], []),
}  # fmt: skip


def merge_bucket(found: Iterable[tuple[int, tuple[int, Tables]]]) -> Iterator[Tables]:
    """Merges one bucket's tables from all tasks into one table of each kind. Equal keys, ids and seconds share a bucket."""
    by_kind: dict[str, list[tuple[int, pa.Table]]] = {}
    for _, (index, tables) in found:
        for kind, table in tables.items():
            by_kind.setdefault(kind, []).append((index, table))
    if not by_kind:
        return
    whole = {kind: pa.concat_tables(table for _, table in sorted(each, key=lambda one: one[0])) for kind, each in by_kind.items()}
    made: Tables = {kind: added(kind, table) for kind, table in whole.items() if kind in _ADDED}
    if "seconds" in whole:
        made["peaks"] = _peaks(whole["seconds"])
    if "keys" in whole:
        made |= _keys(whole["keys"], whole.get("names"))
    if "unique" in whole:
        made["repeats"] = _repeats(whole["unique"])
    yield made


def merge_all(buckets: Sequence[Tables]) -> Tables:
    """Merges all buckets; kinds that no task counted are missing."""
    kinds = {kind for tables in buckets for kind in tables}
    return {kind: added(kind, pa.concat_tables(tables[kind] for tables in buckets if kind in tables)) for kind in kinds}


def added(kind: str, table: pa.Table) -> pa.Table:
    """Adds up rows with the same key."""
    by, sums = _ADDED[kind]
    if not sums:
        return table
    found = table.group_by(by).aggregate(sums)
    return found.rename_columns([*by, *(name for name, _ in sums)])


def pairs(table: pa.Table | None, key: str, value: str) -> Mapping[int, int]:
    """As a dict."""
    return dict(zip(table[key].to_pylist(), table[value].to_pylist(), strict=True)) if table is not None else {}


def _peaks(seconds: pa.Table) -> pa.Table:
    """The busiest second of each day and topic, and of all business topics together (topic null)."""
    by_topic = seconds.group_by(["day", "topic", "second"]).aggregate([("messages", "sum"), ("bytes", "sum")])
    names = seconds["topic"].unique().to_pylist()
    business = texts([name for name in names if kind_of(name) == BUSINESS])
    seconds = seconds.filter(pc.is_in(seconds["topic"], business))
    together = seconds.group_by(["day", "second"]).aggregate([("messages", "sum"), ("bytes", "sum")])
    together = together.append_column("topic", pa.nulls(len(together), pa.string())).select(by_topic.schema.names)
    return busiest(pa.concat_tables([by_topic, together]).rename_columns(["day", "topic", "second", "messages", "bytes"]))


def busiest(seconds: pa.Table) -> pa.Table:
    """For each day and topic: the second with the most messages (the first of equal ones), and the most bytes in any second."""
    order = [("day", "ascending"), ("topic", "ascending"), ("messages", "descending"), ("second", "ascending")]
    rows = seconds.sort_by(order).group_by(["day", "topic"], use_threads=False)
    found = rows.aggregate([("second", "first"), ("messages", "first"), ("bytes", "max")])
    return found.rename_columns(["day", "topic", "second", "messages", "bytes"])


def _keys(keys: pa.Table, names: pa.Table | None) -> Tables:
    """How many keys each place and each line has, and the most frequent keys of each line."""
    by_pair = keys.group_by("pair").aggregate([("place", "min")])
    by_name = keys.group_by("named").aggregate([("line", "min"), ("count", "sum")])
    by_name = by_name.rename_columns(["named", "line", "count"])
    made = {"distinct": _counted(by_pair["place_min"], "place"), "lines": _counted(by_name["line"], "line")}
    if names is not None:
        texts = names.group_by("named").aggregate([("key", "min")]).rename_columns(["named", "key"])
        made["top"] = _largest(by_name.join(texts, "named", join_type="inner").select(["line", "key", "count"]))
    return made


def _counted(values: Any, name: str) -> pa.Table:
    found = pc.value_counts(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)
    return pa.table({name: found.field("values"), "count": found.field("counts")})


def _largest(keys: pa.Table) -> pa.Table:
    ordered = keys.sort_by([("line", "ascending"), ("count", "descending"), ("key", "ascending")])
    lines = ordered["line"].to_numpy()
    return ordered.filter(pa.array(np.arange(len(lines)) - np.searchsorted(lines, lines) < TOP_KEYS))


def _repeats(unique: pa.Table) -> pa.Table:
    """How many messages of each place have an id that an earlier message has. The rows are in log order."""
    once = unique["once"].to_numpy()
    order = np.argsort(once, kind="stable")
    again = order[1:][once[order][1:] == once[order][:-1]]
    return _counted(unique["place"].take(pa.array(again)), "place")


def largest_keys(top: pa.Table | None, by_line: Callable[[int], Any]) -> dict[Any, list[tuple[str, int]]]:
    """For each line, as named by `by_line`: its keys and how often they occur, the most frequent first."""
    found: dict[Any, list[tuple[str, int]]] = {}
    for row in _largest(top).to_pylist() if top is not None else ():
        found.setdefault(by_line(row["line"]), []).append((row["key"], row["count"]))
    return found
