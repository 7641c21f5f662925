"""From messages to counts: the Spark half of the report. Knows no files and no page.

One row of the rollup per day, hour, topic and tag (all in UTC; tag "" means none): messages, bytes (stored size), distinct_keys,
repeats (messages whose unique id was in the same topic that day before), and the bytes of the log that they come from.
"""

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

UNIQUE_ID = "UNIQ_KEY"  # the property with the id a producer made [MessageConst]
_GROUP = ["day", "hour", "topic", "tag"]
_HOUR_S, _DAY_S = 3600, 86400
FIRST_YEAR_S = 946_684_800  # 2000: a time before it comes from a clock that nobody has set


class KeyCount(NamedTuple):
    """Distinct keys of one topic on one day (they cannot be added up from the rollup's rows)."""

    day: str
    topic: str
    distinct_keys: int


def facts(messages: DataFrame, time_property: str | None) -> DataFrame:
    """What the counts need of each message: day, hour, topic, tag, keys, size, place in the log, repeat (0 or 1).

    The time is the store time, or that in the property `time_property` (Unix ms or ISO) where a message has one.
    """
    seconds = F.unix_seconds(_time(time_property))
    named = messages.select(
        F.date_from_unix_date(F.floor(seconds / _DAY_S).cast("int")).alias("day"),
        F.timestamp_seconds(F.floor(seconds / _HOUR_S) * _HOUR_S).alias("hour"),
        "topic",
        F.coalesce("tags", F.lit("")).alias("tag"),
        "keys",
        F.col("size").cast("bigint").alias("size"),
        F.col("properties")[UNIQUE_ID].alias("unique_id"),
        "physical_offset",
    )
    earlier = Window.partitionBy("day", "topic", "unique_id").orderBy("physical_offset")
    is_repeat = F.col("unique_id").isNotNull() & (F.row_number().over(earlier) > 1)
    return named.withColumn("repeat", is_repeat.cast("bigint")).drop("unique_id")


def rollup(of: DataFrame) -> DataFrame:
    """Facts counted by day, hour, topic and tag, in that order."""
    counts = of.groupBy(_GROUP).agg(
        F.count("*").alias("messages"), F.sum("size").alias("bytes"), F.sum("repeat").alias("repeats"),
        F.min("physical_offset").alias("log_from"), F.max(F.col("physical_offset") + F.col("size")).alias("log_to"),
    )  # fmt: skip
    keys = of.select(*_GROUP, F.explode("keys").alias("key")).groupBy(_GROUP).agg(F.count_distinct("key").alias("distinct_keys"))
    joined = counts.join(keys, _GROUP, "left").fillna(0, ["distinct_keys"])
    return joined.select(*_GROUP, "messages", "bytes", "distinct_keys", "repeats", "log_from", "log_to").orderBy(_GROUP)


def key_counts(of: DataFrame) -> list[KeyCount]:
    """Distinct keys of each day and topic that has any."""
    keys = of.select(F.col("day").cast("string"), "topic", F.explode("keys").alias("key"))
    rows = keys.groupBy("day", "topic").agg(F.count_distinct("key").alias("n")).collect()
    return sorted(KeyCount(row["day"], row["topic"], row["n"]) for row in rows)


def _time(time_property: str | None) -> Column:
    stored = F.col("store_timestamp")
    if time_property is None:
        return stored
    text = F.col("properties")[time_property]
    said = F.coalesce(F.timestamp_millis(F.when(text.rlike(r"^\d{1,15}$"), text).cast("bigint")), F.try_to_timestamp(text))
    return F.when(F.unix_seconds(said) >= FIRST_YEAR_S, said).otherwise(stored)
