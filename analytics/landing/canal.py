"""Change events as Canal writes them (flat messages in JSON), made into rows of one change each. Spark, no files.

A message tells of several rows of one table (`data`, `old`), or of a DDL statement. This module decides what is a repeat, what a
row's key is, and the order: it is the log's (physical offset, row in the message), never `es` or `ts`.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window, functions as F
from pyspark.sql.types import ArrayType, BooleanType, LongType, MapType, StringType, StructField, StructType

_TEXT = StringType()
_ROW = MapType(_TEXT, _TEXT)
_CORRUPT = "_corrupt_record"
FLAT = StructType([
    StructField("database", _TEXT), StructField("table", _TEXT), StructField("type", _TEXT), StructField("isDdl", BooleanType()),
    StructField("sql", _TEXT), StructField("es", LongType()), StructField("ts", LongType()),
    StructField("pkNames", ArrayType(_TEXT)), StructField("mysqlType", _ROW), StructField("data", ArrayType(_ROW)),
    StructField("old", ArrayType(_ROW)), StructField(_CORRUPT, _TEXT),
])  # fmt: skip
PUT, DELETE, CLEAR = "put", "delete", "clear"
HISTORY = (
    "broker_name string, physical_offset bigint, row int, queue_id int, queue_offset bigint, store_timestamp timestamp, "
    "message_id string, type string, is_ddl boolean, sql string, es timestamp, ts timestamp, pk_names array<string>, "
    "mysql_type map<string,string>, data map<string,string>, old map<string,string>, database string, table string"
)
_NAMES = ("database", "table", "type")
_ROWS = ("INSERT", "UPDATE", "DELETE")
_CLEARING = ("TRUNCATE", "ERASE")  # ERASE: the table is dropped
OF_STATE = ("_key", "_data", "_place")  # columns of a table's state besides its own
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999, which all readers have
_FOLDER_BYTES = 255 - len("database=")
_ESCAPED = r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]"""  # by three characters, in the name of a folder [ExternalCatalogUtils]
_NO_NAME = "__HIVE_DEFAULT_PARTITION__"  # of a folder: Spark's word for null


def parsed(messages: DataFrame) -> DataFrame:
    """The messages with `event`, and `bad`: why there is no event (null if there is one)."""
    read = F.from_json(F.col("body").cast("string"), FLAT, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})
    found = messages.withColumn("event", read)
    event = F.col("event")
    rows = F.upper(event["type"]).isin(*_ROWS)
    lost = F.when(F.col("body").isNull(), "no body that can be decompressed")
    why = (
        lost.when(event.isNull() | event[_CORRUPT].isNotNull(), "no flat message of Canal in JSON")
        .when(~_is_one_value(F.col("body").cast("string")), "more than one JSON value")
        .when(F.least(*(F.length(F.coalesce(event[name], F.lit(""))) for name in _NAMES)) == 0, "no database, table or type")
        .when(
            _has_no_folder(event["database"]) | _has_no_folder(event["table"]),
            "a database or table that no folder can be named by",
        )
        .when(rows & F.coalesce(F.size(event["data"]) < 1, F.lit(True)), "a change of rows without data")
        .when(_name_twice(event["data"]) | _name_twice(event["old"]), "a row that has a column twice")
    )
    return found.withColumn("bad", why)


def _is_one_value(text: Column) -> Column:
    """Whether JSON ends where its first value does: Spark reads no further. As the element of a list it is read to the end."""
    listed = F.from_json(F.concat(F.lit("["), text, F.lit("]")), ArrayType(_TEXT))
    return F.coalesce(F.size(listed) == 1, F.lit(False))


def _has_no_folder(name: Column) -> Column:
    is_long = F.octet_length(F.regexp_replace(name, _ESCAPED, "%00")) > _FOLDER_BYTES
    return is_long | F.contains(name, F.lit("\0")) | (name == _NO_NAME)


def _name_twice(rows: Column) -> Column:
    """Whether one of the rows does: JSON allows it, Spark's functions of maps do not."""
    return F.coalesce(
        F.exists(rows, lambda row: F.size(F.array_distinct(F.map_keys(row))) < F.size(F.map_keys(row))), F.lit(False)
    )


def marked(messages: DataFrame) -> DataFrame:
    """The messages with `message_id`: what a message and its repeats have in common, or its place if they have nothing.

    A producer that sends again keeps the unique id, but RocketMQ's batches of 4.9 and 5.3 share one: so the body counts, too.
    """
    same = F.when(F.col("uniq_key").isNotNull(), F.concat_ws(":", "uniq_key", F.md5("body")))
    return messages.withColumn("message_id", F.coalesce(same, F.concat_ws("@", "broker_name", "physical_offset")))


def first_ones(messages: DataFrame, before: DataFrame | None) -> DataFrame:
    """The messages without those that repeat another one, or one of `before`, by `message_id`."""
    order = Window.partitionBy("message_id").orderBy("physical_offset")
    first = messages.withColumn("_number", F.row_number().over(order)).where("_number = 1").drop("_number")
    return first if before is None else first.join(before.select("message_id").distinct(), "message_id", "left_anti")


def changes(events: DataFrame) -> DataFrame:
    """One row for each changed row, and one for each DDL statement: the history."""
    event = F.col("event")
    no_rows = F.array(F.create_map().cast("map<string,string>"))
    rows = F.when(F.upper(event["type"]).isin(*_ROWS), event["data"]).otherwise(no_rows)
    exploded = events.select("*", F.posexplode(rows).alias("row", "data"))
    is_row = F.upper(event["type"]).isin(*_ROWS)
    return exploded.select(
        event["database"].alias("database"), event["table"].alias("table"),
        "broker_name", "physical_offset", "row", "queue_id", "queue_offset", "store_timestamp", "message_id",
        F.upper(event["type"]).alias("type"), F.coalesce(event["isDdl"], ~is_row).alias("is_ddl"), event["sql"].alias("sql"),
        _time(event["es"]).alias("es"), _time(event["ts"]).alias("ts"),
        event["pkNames"].alias("pk_names"), event["mysqlType"].alias("mysql_type"),
        F.when(is_row, F.col("data")).alias("data"), F.get(event["old"], F.col("row")).alias("old"),
    )  # fmt: skip


def _time(unix_ms: Column) -> Column:
    """Null for a time that no calendar has."""
    return F.when(unix_ms.between(_FIRST_MS, _LAST_MS), F.timestamp_millis(unix_ms))


def steps(history: DataFrame) -> DataFrame:
    """What each change does to its table's state: `_place` (offset, row, step; it orders them), action, `_key` and `_data`.

    An update that changes the key deletes under the old one first. A row without its whole key is no step.
    """
    table, nothing = (F.col("database"), F.col("table")), F.lit(None).cast("map<string,string>").alias("_data")
    place, later = (F.struct("physical_offset", "row", F.lit(step).alias("step")).alias("_place") for step in (0, 1))
    cleared = history.where(F.col("type").isin(*_CLEARING)).select(
        *table, place, F.lit(CLEAR).alias("action"), F.lit("").alias("_key"), nothing
    )
    rows = history.where(F.col("type").isin(*_ROWS) & has_key()).withColumn("_key", key_of(F.col("data")))
    before = F.when(F.col("old").isNotNull(), F.map_concat(_without(F.col("data"), F.col("old")), F.col("old")))
    updated = rows.where(F.col("type") == "UPDATE").withColumn("_key_before", key_of(before))
    moved = updated.where(F.col("_key_before") != F.col("_key"))
    gone = moved.select(*table, place, F.lit(DELETE).alias("action"), F.col("_key_before").alias("_key"), nothing)
    is_gone = F.col("type") == "DELETE"
    action, data = F.when(is_gone, DELETE).otherwise(PUT), F.when(~is_gone, F.col("data"))
    done = rows.select(*table, later, action.alias("action"), "_key", data.alias("_data"))
    return cleared.unionByName(gone).unionByName(done)


def has_key() -> Column:
    """Whether a row of `data` has its whole key."""
    return F.coalesce(F.size("pk_names") > 0, F.lit(False)) & key_of(F.col("data")).isNotNull()


def key_of(row: Column) -> Column:
    """The values of pkNames as JSON; null if one of them is missing."""
    values = F.transform(F.array_sort("pk_names"), lambda name: F.element_at(row, name))
    return F.when(row.isNotNull() & ~F.exists(values, lambda value: value.isNull()), F.to_json(values))


def _without(row: Column, names: Column) -> Column:
    return F.map_filter(row, lambda name, value: ~F.map_contains_key(names, name))


def after(state: DataFrame | None, todo: DataFrame) -> DataFrame:
    """The states (`_key`, `_data`, `_place` by table) after the steps `todo`: for each key the last step counts."""
    table = ("database", "table")
    clears = todo.where(F.col("action") == CLEAR).groupBy(*table).agg(F.max("_place").alias("_cleared"))
    new = todo.where(F.col("action") != CLEAR).select(*table, "_key", "_data", "_place")
    every = new if state is None else state.select(*table, "_key", "_data", "_place").unionByName(new)
    standing = every.join(F.broadcast(clears), [*table], "left").where("_cleared is null or _place > _cleared")
    last = standing.groupBy(*table, "_key").agg(F.max_by(F.struct("_data", "_place"), "_place").alias("_last"))
    return last.where("_last._data is not null").select(*table, "_key", "_last._data", "_last._place")


# --- types ------------------------------------------------------------------------------------------------------------

_KINDS = {
    "tinyint": "bigint", "smallint": "bigint", "mediumint": "bigint", "int": "bigint", "integer": "bigint", "bigint": "bigint",
    "year": "bigint", "float": "double", "double": "double", "real": "double", "date": "date", "datetime": "timestamp_ntz",
    "timestamp": "timestamp_ntz",
}  # fmt: skip


def columns_of(types: Mapping[str, str | None]) -> dict[str, str]:
    """The columns that a table's state shows, with Spark's types. One whose name Spark takes for another's (of ours, or in other
    letters) is in `_data` alone."""
    found: dict[str, str] = {}
    taken = set(OF_STATE)
    for name, kind in types.items():
        if name.lower() not in taken:
            taken.add(name.lower())
            found[name] = spark_type(kind or "")
    return found


def spark_type(mysql: str) -> str:
    """The Spark type for a MySQL type; string if no other is certainly right."""
    said = mysql.strip().lower()
    name, _, rest = said.partition("(")
    inside = [part.strip() for part in rest.partition(")")[0].split(",")]
    base = name.split()[0] if name.split() else ""
    if base in ("decimal", "numeric", "dec"):
        size = [int(part[:3]) for part in inside if part.isdecimal()] or [10]
        digits, scale = size[0], size[1] if len(size) > 1 else 0
        return f"decimal({digits},{scale})" if max(scale, 1) <= digits <= 38 else "string"
    if base == "bigint" and "unsigned" in said:
        return "decimal(20,0)"
    return _KINDS.get(base, "string")
