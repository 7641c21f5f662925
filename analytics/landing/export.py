"""`rmq export`: messages of stores as Parquet by topic and day, each message once. `landing.unread` says what a run reads,
`landing.versions` how a run takes effect all at once.

JSON bodies become columns if a schema is given for their topic. A body that does not fit the schema stays as it is, and `bad`
says why.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from analytics.landing.fitting import ALL, SEVERAL, held
from analytics.landing.unread import Unread, frame, other_topics, unread
from analytics.landing.versions import Draft, next_version
from analytics.spark.failures import FAILURES, plain_error
from analytics.spark.session import spark_session
from analytics.spark.source import schema_of
from analytics.stores.files import Directory
from analytics.stores.options import Wanted
from analytics.stores.paths import resolved
from analytics.stores.plan import check_topics
from rmq import __version__
from rmq.errors import InvalidArgument

BAD = "bad"
_CORRUPT = "_corrupt_record"
_DAY_S = 86400
_MAX_NAME_BYTES = 255
_BEGINNING = 50  # characters of a name that is too long for a folder
_NOWHERE = Path("topic=__HIVE_DEFAULT_PARTITION__", "day=__HIVE_DEFAULT_PARTITION__")  # of rows without a topic and a time


class Exported(NamedTuple):
    """What a run did: the messages, how many of them are bad, the folder to read, and the damaged bytes that it passed over."""

    messages: int
    bad: int
    files: int
    folder: Path
    damaged_bytes: int = 0


def _columns(text: str) -> StructType:
    found = StructType.fromDDL(text)
    if not isinstance(found, StructType):
        raise ValueError(f"{text!r} is a single type")
    return found


class Schema(NamedTuple):
    """The schema of one topic's bodies. `text`: as it was given."""

    topic: str
    text: str

    @property
    def type(self) -> StructType:
        """Raises InvalidArgument."""
        try:
            found = StructType.fromJson(json.loads(self.text)) if self.text.lstrip().startswith("{") else _columns(self.text)
        except (PySparkException, ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(
                f"the schema of {self.topic} is neither columns like `id bigint, price decimal(10,2)` nor "
                f"Spark's JSON of a struct: {str(error).splitlines()[0]}"
            ) from error
        return found


def export(
    stores: Sequence[Directory],
    out: Path,
    *,
    topics: frozenset[str] | None = None,
    schemas: Sequence[Schema] = (),
    on_damage: str = "fail",
    fail_on_loss: bool = True,
    allow_missing: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Exported:
    """Exports the messages that are committed and not in `out` yet.

    `allow_missing`: topics that no store knows, too; only the first run looks. Raises RmqError, OSError.
    """
    wanted = Wanted(topics=topics, on_damage=on_damage, fail_on_loss=fail_on_loss, allow_missing=allow_missing)
    asked = sorted(topics) if topics is not None else None
    with next_version(out.resolve()) as draft:
        known = draft.manifest
        if known and known["topics"] != asked:
            begun = f"--topics {','.join(known['topics'])}" if known["topics"] else "all topics, without --topics"
            raise other_topics(out, begun)
        if not known:
            check_topics(stores, wanted)
        todo = unread(resolved(stores), wanted, known.get("logs", {}))
        if todo.marks == known.get("logs", {}):
            return Exported(0, 0, 0, out / "current")
        damaged = 0
        if todo.tasks:
            tell("starting Spark")
            with spark_session("rmq export") as session:
                damaged = _export(session, draft, todo, wanted, schemas, tell)
        draft.keep()
        added = [file for name in ("shaped", "plain") for file in draft.add(draft.staging / name)]
        counts = {str(file.relative_to(draft.folder)): _counts(file) for file in added}
        messages, bad = (sum(each[name] for each in counts.values()) for name in ("messages", "bad"))
        draft.commit(
            {
                "made": datetime.now(UTC).isoformat(),
                "rmq": __version__,
                "topics": asked,
                "logs": todo.marks,
                "messages": known.get("messages", 0) + messages,
                "bad": known.get("bad", 0) + bad,
                "damaged_bytes": known.get("damaged_bytes", 0) + damaged,
                "added": counts,
            }
        )
    return Exported(messages, bad, len(added), out / "current", damaged)


def _export(
    session: SparkSession, draft: Draft, todo: Unread, wanted: Wanted, schemas: Sequence[Schema], tell: Callable[[str], None]
) -> int:
    """Returns the damaged bytes."""
    try:
        _write(frame(session, todo, wanted, schema_of(wanted)), draft)
        damaged = _damage_taken_out(draft.staging / "plain" / _NOWHERE)
        tell("messages are written")
        for schema in schemas:
            _shape(session, draft, schema)
            tell(f"bodies of {schema.topic} are columns")
    except FAILURES as error:
        raise plain_error(error) from error
    return damaged


def _damage_taken_out(folder: Path) -> int:
    """The bytes in the rows that are damage. Removes the folder, in which no message is."""
    if not folder.exists():
        return 0
    rows = pq.read_table(folder, columns=["tags", "size"]).to_pylist()
    shutil.rmtree(folder)
    return sum(row["size"] for row in rows if row["tags"] == "damage")  # the others are tombstones


def folder_topic(topic: str) -> str:
    """The topic as folders name it: a file system takes 255 bytes, and `%` is written as `%25`. A longer one is named by its
    beginning and a hash."""
    if len(f"topic={topic}".replace("%", "%25").encode()) <= _MAX_NAME_BYTES:
        return topic
    return f"{topic[:_BEGINNING]}-{hashlib.sha256(topic.encode()).hexdigest()[:16]}"


def folder_topics() -> Column:
    """The same by Spark, of the column `topic`."""
    topic = F.col("topic")
    size = F.octet_length(F.regexp_replace(F.concat(F.lit("topic="), topic), "%", "%25"))
    short = F.concat(F.substring(topic, 1, _BEGINNING), F.lit("-"), F.substring(F.sha2(topic, 256), 1, 16))
    return F.when(size > _MAX_NAME_BYTES, short).otherwise(topic)


def _write(messages: DataFrame, draft: Draft) -> None:
    """Writes by topic and day, in files of a useful size: Spark joins small ones and splits large ones."""
    seconds = F.unix_seconds("store_timestamp")
    dated = messages.withColumn("day", F.date_from_unix_date(F.floor(seconds / _DAY_S).cast("int")).cast("string"))
    spread = dated.withColumn("topic", folder_topics()).hint("rebalance", "topic", "day")
    spread.write.partitionBy("topic", "day").parquet(str(draft.staging / "plain"))


def _shape(session: SparkSession, draft: Draft, schema: Schema) -> None:
    """Makes columns of the bodies of one topic."""
    raw = draft.staging / "raw"
    raw.mkdir(exist_ok=True)
    for folder in (draft.staging / "plain").glob("topic=*"):
        if unquote(folder.name.partition("=")[2]) == folder_topic(schema.topic):
            read = session.read.parquet(str(folder.rename(raw / folder.name)))
            shaped = with_columns(read.withColumn("day", F.col("day").cast("string")), schema.type)
            shaped.write.partitionBy("day").parquet(str(draft.staging / "shaped" / folder.name))


def with_columns(messages: DataFrame, schema: StructType) -> DataFrame:
    """The messages with the fields of the body as columns (`json_` goes before a name that a message has).

    A bad body stays, and one that the columns do not hold all of.
    """
    read = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options: Mapping[str, str] = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = messages.withColumn("_json", F.from_json(F.col("body").cast("string"), read, dict(options)))
    parsed = parsed.withColumn("_held", _held_by(schema)(F.col("body")))
    several = F.col("_held") == SEVERAL
    bad = F.col("_json").isNull() | F.col(f"_json.{_CORRUPT}").isNotNull() | several
    why = F.when(F.col("body").isNull(), F.lit("no body that can be decompressed"))
    why = why.when(several, F.lit("more than one JSON value")).when(bad, F.lit("no JSON of that schema"))
    there = {name.lower() for name in messages.columns} | {"topic", BAD}
    names = {field.name: f"json_{field.name}" if field.name.lower() in there else field.name for field in schema.fields}
    fields = [F.when(~bad, F.col("_json").getField(field)).alias(name) for field, name in names.items()]
    others = [F.col(name) for name in messages.columns if name != "body"]
    kept = F.when(bad | (F.col("_held") != ALL), F.col("body"))
    return parsed.select(*fields, *others, kept.alias("body"), why.alias(BAD))


def _held_by(schema: StructType) -> Callable[[Column], Column]:
    def held_all(bodies: pa.Array) -> pa.Array:
        return pa.array([held(body, schema) for body in bodies.to_pylist()], pa.int32())

    return arrow_udf(held_all, IntegerType())  # type: ignore[no-any-return, call-overload]


def _counts(file: Path) -> dict[str, Any]:
    """The counts in the file's footer."""
    found = pq.ParquetFile(file).metadata
    names = [found.schema.column(index).path for index in range(found.num_columns)]
    bad = 0
    if BAD in names:
        groups = [found.row_group(index).column(names.index(BAD)) for index in range(found.num_row_groups)]
        bad = found.num_rows - sum(group.statistics.null_count for group in groups)
    return {"messages": found.num_rows, "bad": bad}


def schema_from(said: str) -> Schema:
    """TOPIC=COLUMNS or TOPIC=@FILE. Raises InvalidArgument, OSError."""
    topic, mark, text = said.partition("=")
    if not mark or not topic or not text:
        raise InvalidArgument(f"--schema {said!r}: give TOPIC=COLUMNS, or TOPIC=@FILE")
    return Schema(topic, Path(text[1:]).read_text() if text.startswith("@") else text)
