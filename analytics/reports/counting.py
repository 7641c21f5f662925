"""What a task of the report does: it passes once over its part of the log and gives small sums in Arrow tables. No Spark.

Sums that can be added are given as they are. What must be compared over the whole log (keys, unique ids, seconds) goes into
buckets by its hash, so that equal ones meet in one bucket. Keys and ids are compared by 64-bit hashes.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from analytics.records.batches import batches
from analytics.reports.bins import bins
from analytics.reports.hashes import Hashes, both, hash_texts, mixed
from analytics.reports.zones import local_places
from analytics.stores.options import Wanted, unix_ms
from analytics.stores.rare import Places
from analytics.stores.segments import Part
from analytics.stores.walk import Ints
from rmq.model import DLQ_PREFIX, RETRY_PREFIX

FIRST_YEAR_S = 946_684_800  # the year 2000: an earlier time comes from a clock that nobody has set
LAST_YEAR_S = 253_370_764_800  # the year 9999: from then on times mean "never", and days have no next one
SIZE, DELAY = 0, 1  # of bins
_TIME = pa.timestamp("us", tz="UTC")
_READ = pa.schema([
    ("topic", pa.string()), ("queue_id", pa.int32()), ("physical_offset", pa.int64()), ("size", pa.int32()),
    ("store_timestamp", _TIME), ("born_timestamp", _TIME), ("tags", pa.string()), ("keys", pa.list_(pa.string())),
    ("uniq_key", pa.string()), ("properties", pa.map_(pa.string(), pa.string())),
])  # fmt: skip
_TOP_OF_TASK = 20  # so many keys of a topic, at most, are given as text by one task
_ORIGIN = "RETRY_TOPIC"  # property of a message in a retry or dead-letter topic: the topic that it came from

Tables = dict[str, pa.Table]


class Task(NamedTuple):
    """`order`: its place in the log's order. `days`: the days to count (since 1970), None is all. `zone`: the days' time zone."""

    order: int
    parts: list[Part | Places]
    wanted: Wanted
    broker: str
    days: frozenset[int] | None
    zone: ZoneInfo
    time_property: str | None
    buckets: int


class Facts(NamedTuple):
    """One number for each message. `topic`, `tag`: indexes into the task's names. `key_row`: the message of each key."""

    topic: Ints
    tag: Ints
    queue: Ints
    size: Ints
    offset: Ints
    second: Ints
    delay_ms: Ints
    day: Ints
    hour: Ints
    unique: Hashes
    has_unique: Ints
    key_row: Ints
    key: Hashes


class Names:
    """Gives texts numbers, in the order in which they first appear."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def codes(self, array: pa.Array) -> Ints:
        found = array.dictionary_encode()
        ids = [self.texts.setdefault(text, len(self.texts)) for text in found.dictionary.to_pylist()]
        codes: Ints = np.array(ids, np.int64)[found.indices.to_numpy()]
        return codes

    def column(self) -> pa.Array:
        return pa.array(list(self.texts), pa.string())


class _Reading:
    """A task's messages as numbers, and the texts that the result needs."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.topics, self.tags = Names(), Names()
        self.key_texts: list[pa.Array] = []
        self.origins: list[pa.Table] = []
        self.broken: list[tuple[str, int, int, str]] = []

    def facts(self) -> Facts | None:
        """The facts of all messages; None if there is none."""
        pieces: list[Facts] = []
        for batch in batches(self.task.parts, self.task.wanted, _READ, self.task.broker):
            messages = self._sound(batch)
            if messages.num_rows:
                pieces += self._facts(messages)
        if not pieces:
            return None
        ends = np.cumsum([0, *(len(piece.topic) for piece in pieces[:-1])])
        shifted = [piece._replace(key_row=piece.key_row + end) for piece, end in zip(pieces, ends, strict=True)]
        return Facts(*map(np.concatenate, zip(*shifted, strict=True)))

    def _sound(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch without rows for damage and tombstones, which it counts as broken."""
        if not batch["topic"].null_count:
            return batch
        for row in batch.filter(pc.is_null(batch["topic"])).select(["tags", "physical_offset", "size", "keys"]).to_pylist():
            self.broken.append((row["tags"], row["physical_offset"], row["size"], row["keys"][0]))
        return batch.filter(pc.is_valid(batch["topic"]))

    def _facts(self, batch: pa.RecordBatch) -> Iterator[Facts]:
        stored = _milliseconds(batch["store_timestamp"])
        second = _times(batch, stored, self.task.time_property) // 1000
        day, hour = local_places(second, self.task.zone)
        chosen = _is_believed(second) if self.task.days is None else np.isin(day, list(self.task.days))
        if not chosen.all():
            batch, stored, second = batch.filter(pa.array(chosen)), stored[chosen], second[chosen]
            day, hour = day[chosen], hour[chosen]
        if not batch.num_rows:
            return
        topic = self.topics.codes(batch["topic"])
        self._note_origins(batch, topic, day)
        keys = batch["keys"]
        texts = keys.flatten()
        self.key_texts.append(texts)
        yield Facts(
            topic=topic,
            tag=self.tags.codes(pc.fill_null(batch["tags"], "")),
            queue=_ints(batch["queue_id"]),
            size=_ints(batch["size"]),
            offset=_ints(batch["physical_offset"]),
            second=second,
            delay_ms=stored - _milliseconds(batch["born_timestamp"]),
            day=day,
            hour=hour,
            unique=hash_texts(batch["uniq_key"]),
            has_unique=_ints(pc.is_valid(batch["uniq_key"]).cast(pa.int8())),
            key_row=_ints(pc.list_parent_indices(keys)),
            key=hash_texts(texts),
        )

    def _note_origins(self, batch: pa.RecordBatch, topic: Ints, day: Ints) -> None:
        """Notes the original topics of retried messages and dead letters."""
        again = [index for text, index in self.topics.texts.items() if text.startswith((RETRY_PREFIX, DLQ_PREFIX))]
        rows = np.flatnonzero(np.isin(topic, again)) if again else ()
        if len(rows):
            some = batch.take(pa.array(rows))
            origin = pc.fill_null(pc.map_lookup(some["properties"], _ORIGIN, "first"), "")
            table = pa.table({"day": day[rows], "topic": some["topic"], "origin": origin, "messages": day[rows]})
            self.origins.append(table.group_by(["day", "topic", "origin"]).aggregate([("messages", "count")]))


def count(task: Task) -> Iterator[tuple[int, tuple[int, Tables]]]:
    """Everything that a task counts, as (bucket, (index of the task, tables))."""
    reading = _Reading(task)
    facts = reading.facts()
    own = task.order % task.buckets
    if reading.broken:
        kinds, offsets, sizes, whys = zip(*reading.broken, strict=True)
        broken = {"kind": kinds, "offset": offsets, "bytes": sizes, "why": whys}
        yield own, (task.order, {"broken": pa.table(broken)})
    if facts is None:
        return
    place, line = _hashes(facts, reading)
    small = {
        "places": _places(facts, reading, place, line),
        "queues": _grouped(facts, reading, {"queue_id": facts.queue}),
        "bins": pa.concat_tables([_bins(facts, reading, SIZE, facts.size), _bins(facts, reading, DELAY, facts.delay_ms)]),
    }
    if reading.origins:
        small["origins"] = pa.concat_tables(reading.origins).rename_columns(["day", "topic", "origin", "messages"])
    yield own, (task.order, small)
    dealt = [
        ("seconds", _grouped(facts, reading, {"second": facts.second}), "second"),
        ("keys", _keys(facts, place, line), "named"),
        ("names", _key_names(facts, line, reading), "named"),
        ("unique", _unique(facts, place, line), "once"),
    ]
    for name, table, column in dealt:
        yield from ((bucket, (task.order, {name: some})) for bucket, some in _deal(table, column, task.buckets))


# --- times and texts --------------------------------------------------------------------------------------------------


def _ints(array: pa.Array) -> Ints:
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def _milliseconds(array: pa.Array) -> Ints:
    return _ints(array.view(pa.int64())) // 1000


def _times(batch: pa.RecordBatch, stored: Ints, time_property: str | None) -> Ints:
    """Unix ms: the time in the property (Unix ms or ISO) if it is of the years 2000 to 9998, else the store time."""
    if time_property is None:
        return stored
    said = pc.map_lookup(batch["properties"], time_property, "first").dictionary_encode()
    known = np.array([_said_ms(text) for text in said.dictionary.to_pylist()] + [-1], np.int64)
    found = known[_ints(pc.fill_null(said.indices, len(known) - 1))]
    return np.where(_is_believed(found // 1000), found, stored)


def _is_believed(second: Ints) -> npt.NDArray[np.bool_]:
    return (second >= FIRST_YEAR_S) & (second < LAST_YEAR_S)


def _said_ms(text: str) -> int:
    """Unix ms of a text; -1 if it is no time."""
    if text.isdecimal() and text.isascii() and len(text) <= 15:
        return int(text)
    try:
        return unix_ms(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):
        return -1


# --- sums -------------------------------------------------------------------------------------------------------------


def _hashes(facts: Facts, reading: _Reading) -> tuple[Hashes, Hashes]:
    """Two hashes of each message: of its place in the rollup (hour, topic, tag), and of its day and topic."""
    topic = hash_texts(reading.topics.column())[facts.topic]
    line = mixed(topic ^ facts.day.astype(np.uint64))
    tag = hash_texts(reading.tags.column())[facts.tag]
    return both(both(line, facts.hour.astype(np.uint64)), tag), line


def _places(facts: Facts, reading: _Reading, place: Hashes, line: Hashes) -> pa.Table:
    columns = {"place": place, "line": line, "day": facts.day, "hour": facts.hour, "topic": facts.topic, "tag": facts.tag}
    columns |= {"bytes": facts.size, "log_from": facts.offset, "log_to": facts.offset + facts.size}
    same = [(name, "min") for name in ("line", "day", "hour", "topic", "tag", "log_from")]
    found = pa.table(columns).group_by("place").aggregate([*same, ("bytes", "sum"), ("bytes", "count"), ("log_to", "max")])
    found = found.rename_columns(["place", *(name for name, _ in same), "bytes", "messages", "log_to"])
    for name, names in (("topic", reading.topics), ("tag", reading.tags)):
        found = found.set_column(found.schema.get_field_index(name), name, names.column().take(found[name]))
    return found


def _grouped(facts: Facts, reading: _Reading, by: dict[str, Ints]) -> pa.Table:
    """Messages and bytes by day, topic and one more number."""
    (name,) = by
    table = pa.table({"day": facts.day, "topic": facts.topic, **by, "bytes": facts.size})
    found = table.group_by(["day", "topic", name]).aggregate([("bytes", "sum"), ("bytes", "count")])
    found = found.rename_columns(["day", "topic", name, "bytes", "messages"])
    return found.set_column(1, "topic", reading.topics.column().take(found["topic"]))


def _bins(facts: Facts, reading: _Reading, what: int, values: Ints) -> pa.Table:
    found = _grouped(facts, reading, {"bin": bins(values)}).drop_columns(["bytes"])
    return found.append_column("what", pa.array(np.full(len(found), what)))


def _keys(facts: Facts, place: Hashes, line: Hashes) -> pa.Table:
    """How often each key occurs in each place."""
    rows = facts.key_row
    named = both(line[rows], facts.key)
    columns = {"pair": both(place[rows], facts.key), "place": place[rows], "line": line[rows], "named": named, "count": rows}
    grouped = pa.table(columns).group_by("pair")
    found = grouped.aggregate([("place", "min"), ("line", "min"), ("named", "min"), ("count", "count")])
    return found.rename_columns(list(columns))


def _key_names(facts: Facts, line: Hashes, reading: _Reading) -> pa.Table:
    """The texts of the most frequent keys of each topic in this task."""
    texts = pa.concat_arrays(reading.key_texts)
    lines = line[facts.key_row]
    columns = {"named": both(lines, facts.key), "line": lines, "row": np.arange(len(texts))}
    found = pa.table(columns).group_by("named").aggregate([("line", "min"), ("row", "min"), ("row", "count")])
    found = found.filter(pc.greater(found["row_count"], 1)).sort_by([("line_min", "ascending"), ("row_count", "descending")])
    lines = found["line_min"].to_numpy()
    first = np.searchsorted(lines, lines)  # of its line
    top = np.flatnonzero(np.arange(len(lines)) - first < _TOP_OF_TASK)
    chosen = found.take(pa.array(top))
    return pa.table({"named": chosen["named"], "key": texts.take(chosen["row_min"].combine_chunks())})


def _unique(facts: Facts, place: Hashes, line: Hashes) -> pa.Table:
    """The unique id of each message that has one, in log order."""
    rows = np.flatnonzero(facts.has_unique)
    return pa.table({"once": both(line[rows], facts.unique[rows]), "place": place[rows]})


def _deal(table: pa.Table, column: str, buckets: int) -> Iterable[tuple[int, pa.Table]]:
    """The rows by bucket; they keep their order."""
    if not len(table):
        return
    bucket = (table[column].to_numpy().astype(np.uint64) % np.uint64(buckets)).astype(np.uint16)
    order = np.argsort(bucket, kind="stable")
    there, first = np.unique(bucket[order], return_index=True)
    for index, rows in zip(there.tolist(), np.split(order, first[1:]), strict=True):
        yield index, table.take(pa.array(rows))
