"""From messages to counts: the Spark half of the report. Knows no files and no page.

One row of the rollup per day, hour, topic and tag (all in UTC; tag "" means none): messages, bytes (stored size), distinct_keys,
repeats (messages whose unique id was in the same topic that day before), and the bytes of the log that they come from. Keys and
ids are compared by 64-bit hashes.
"""

from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_GROUP = ["day", "hour", "topic", "tag"]
_HOUR_S, _DAY_S = 3600, 86400
FIRST_YEAR_S = 946_684_800  # 2000: a time before it comes from a clock that nobody has set
COLUMNS = ["topic", "store_timestamp", "tags", "keys", "size", "uniq_key", "physical_offset"]  # all that is read of a message


class KeyCount(NamedTuple):
    """Distinct keys of one topic on one day (they cannot be added up from the rollup's rows)."""

    day: str
    topic: str
    distinct_keys: int


class Broken(NamedTuple):
    """What is no message any more. `kind`: "lost" or "damage"; `why`: of the first one in the log."""

    kind: str
    number: int
    bytes: int
    why: str


def facts(messages: DataFrame, time_property: str | None) -> DataFrame:
    """What the counts need of each message: day, hour, topic, tag, keys, size, unique id, place in the log.

    The time is the store time, or that in the property `time_property` (Unix ms or ISO) where a message has one. What is damaged
    has no day and no topic.
    """
    seconds = F.unix_seconds(_time(time_property))
    return messages.select(
        F.date_from_unix_date(F.floor(seconds / _DAY_S).cast("int")).alias("day"),
        F.timestamp_seconds(F.floor(seconds / _HOUR_S) * _HOUR_S).alias("hour"),
        "topic",
        F.coalesce("tags", F.lit("")).alias("tag"),
        "keys",
        F.col("size").cast("bigint").alias("size"),
        F.when(F.col("uniq_key").isNotNull(), F.xxhash64("uniq_key")).alias("unique_id"),
        "physical_offset",
    )


def rollup(of: DataFrame) -> list[dict[str, Any]]:
    """Facts counted by day, hour, topic and tag, in that order.

    Three small results are put together here: joins in Spark would cost more than the counting.
    """
    counts = of.groupBy(_GROUP).agg(
        F.count("*").alias("messages"), F.sum("size").alias("bytes"),
        F.min("physical_offset").alias("log_from"), F.max(F.col("physical_offset") + F.col("size")).alias("log_to"),
    )  # fmt: skip
    found = {_place(row): row | {"distinct_keys": 0, "repeats": 0} for row in _rows(counts)}
    for row in _rows(_keys(of, _GROUP).groupBy(_GROUP).agg(F.count("*").alias("n"))):
        found[_place(row)]["distinct_keys"] = row["n"]
    for row in _rows(_repeats(of)):
        found[_place(row)]["repeats"] = row["n"]
    return [found[place] for place in sorted(found)]


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _GROUP)


def _rows(counted: DataFrame) -> list[dict[str, Any]]:
    """With hours in UTC whatever the session's zone is: the instants are the same."""
    table = counted.toArrow()
    at = table.schema.get_field_index("hour")
    rows: list[dict[str, Any]] = table.set_column(at, "hour", table["hour"].cast(pa.timestamp("us", tz="UTC"))).to_pylist()
    return rows


def key_counts(of: DataFrame) -> list[KeyCount]:
    """Distinct keys of each day and topic that has any."""
    by = _keys(of, ["day", "topic"]).groupBy("day", "topic").agg(F.count("*").alias("n"))
    return sorted(KeyCount(str(row["day"]), row["topic"], row["n"]) for row in by.collect())


def broken(of: DataFrame) -> list[Broken]:
    """What of the facts is no message."""
    why = F.min_by(F.col("keys")[0], "physical_offset").alias("why")
    by = of.where("topic is null").groupBy("tag").agg(F.count("*").alias("count"), F.sum("size").alias("bytes"), why)
    return [Broken(row["tag"], row["count"], row["bytes"], row["why"]) for row in by.collect()]


def _keys(of: DataFrame, group: list[str]) -> DataFrame:
    return of.select(*group, F.explode("keys").alias("key")).select(*group, F.xxhash64("key").alias("key")).distinct()


def _repeats(of: DataFrame) -> DataFrame:
    """Only ids that come more than once are looked at twice: there are few."""
    same = ["day", "topic", "unique_id"]
    named = of.where("unique_id is not null").select(*_GROUP, "unique_id", "physical_offset")
    many = named.groupBy(same).agg(F.count("*").alias("times"), F.min("physical_offset").alias("first")).where("times > 1")
    later = named.join(many, same).where("physical_offset > first")
    return later.groupBy(_GROUP).agg(F.count("*").alias("n"))


def _time(time_property: str | None) -> Column:
    stored = F.col("store_timestamp")
    if time_property is None:
        return stored
    text = F.col("properties")[time_property]
    said = F.coalesce(F.timestamp_millis(F.when(text.rlike(r"^\d{1,15}$"), text).cast("bigint")), F.try_to_timestamp(text))
    return F.when(F.unix_seconds(said) >= FIRST_YEAR_S, said).otherwise(stored)
