"""`rmq changes`: change events of a topic as tables, in their current state and with their history, as Parquet.

    OUT/current/history/database=D/table=T/   a row for each change, in the log's order by (physical_offset, row)
    OUT/current/state/database=D/table=T/     a row for each row that the table has now, with the columns that it has now
    OUT/current/bad/                          messages that are no change events

`landing.canal` says what an event means, `landing.unread` what a run reads, `landing.versions` how a run takes effect.
A run rewrites the state of the tables that it found changes of. `landing.delta` makes history and states Delta tables besides.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import StructType

from analytics.landing import canal, delta
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

_COLUMNS = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "broker_name", "uniq_key", "body")
_OF_DAMAGE = ("tags", "size")
_STATE = "_key string, _data map<string,string>, _place struct<physical_offset: bigint, row: int, step: int>"
_TOTALS = ("messages", "repeats", "bad", "damaged_bytes")
Row = dict[str, Any]
Table = dict[str, Any]  # mysql_type: {column: type}, rows: in its state, unfit: {column: values}; keyed, without_key: changes


class Captured(NamedTuple):
    """What a run did. `repeats`: messages that had come before. `tables`: folder of a changed table -> what its state holds.

    `damaged_bytes`: those that it passed over.
    """

    messages: int
    repeats: int
    bad: int
    tables: dict[str, Table]
    folder: Path
    damaged_bytes: int = 0


def capture(
    store: Directory,
    out: Path,
    topics: frozenset[str],
    *,
    on_damage: str = "fail",
    fail_on_loss: bool = True,
    as_delta: bool = False,
    allow_missing: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Captured:
    """Adds the changes of these topics that are committed and not in `out` yet.

    `allow_missing`: topics that the store does not know, too; only the first run looks. Raises RmqError, OSError.
    """
    if as_delta:
        delta.check_installed()
    wanted = Wanted(topics=topics, on_damage=on_damage, fail_on_loss=fail_on_loss, allow_missing=allow_missing)
    with next_version(out.resolve()) as draft:
        known = draft.manifest
        if known and known["topics"] != sorted(topics):
            raise other_topics(out, f"--topics {','.join(known['topics'])}")
        if not known:
            check_topics([store], wanted)
        if known and known.get("delta", False) != as_delta:
            begun = "without" if as_delta else "with"
            raise InvalidArgument(f"{out} was begun {begun} --delta: go on like that, or give another --out")
        todo = unread(resolved([store]), wanted, known.get("logs", {}))
        if known.get("logs", {}).keys() - todo.marks.keys() or len(todo.marks) > 1:
            of = ", ".join(known["logs"])
            raise InvalidArgument(f"{out} is of {of}, and changes have an order in one log only: give another --out")
        done = Captured(0, 0, 0, {}, out / "current")
        if todo.marks == known.get("logs", {}):
            return done
        if todo.tasks:
            tell("starting Spark")
            with spark_session("rmq changes") as session:
                done = _land(session, draft, todo, wanted, tell)
                if as_delta:
                    _log(session, draft, done, tell)
        else:
            draft.keep()  # no message of these topics: only the mark of how far the log was read is new
        totals = {name: known.get(name, 0) + getattr(done, name) for name in _TOTALS}
        draft.commit(
            {
                "made": datetime.now(UTC).isoformat(),
                "rmq": __version__,
                "topics": sorted(topics),
                "delta": as_delta,
                "logs": todo.marks,
                **totals,
                "tables": known.get("tables", {}) | done.tables,
            }
        )
    return done._replace(folder=out / "current")


def _land(session: SparkSession, draft: Draft, todo: Unread, wanted: Wanted, tell: Callable[[str], None]) -> Captured:
    try:
        every, bad, damaged = _write_history(session, draft, frame(session, todo, wanted, _read_columns(wanted)))
        tell("the history is written")
        tables, events = _write_states(session, draft) if every > bad else ({}, 0)
        tell("the tables are written")
    except FAILURES as error:
        raise plain_error(error) from error
    draft.keep("history")
    draft.keep("bad")
    for folder in _folders(draft.old / "state" if draft.old else None):
        if folder not in tables:
            draft.keep(f"state/{folder}")
    for name in ("history", "bad", "state"):
        draft.add(draft.staging / name, name)
    return Captured(every, every - bad - events, bad, tables, draft.folder, damaged)


def _log(session: SparkSession, draft: Draft, done: Captured, tell: Callable[[str], None]) -> None:
    """Makes the history and the states that are new Delta tables; the others have kept their logs."""
    history = draft.folder / "history"
    if not history.is_dir():
        return  # no event yet
    new = sorted(history.rglob(f"{draft.prefix}*.parquet"))
    if new:
        kind = StructType.fromDDL(canal.HISTORY).json()
        delta.commit(history, new, kind, keep=True, partitions=("database", "table"))
    for name, table in done.tables.items():
        state = draft.folder / "state" / name
        if "%" in name:  # Spark's a%3Ab for a:b; delta-rs looks for a:b
            tell(f"{name} is no Delta table: its folder's name has a %")
        elif table["keyed"]:
            if draft.old:
                delta.take_over(state, draft.old / "state" / name)
            kind = session.read.parquet(str(state)).schema.json()
            delta.commit(state, sorted(state.glob("*.parquet")), kind, keep=False)


def _read_columns(wanted: Wanted) -> StructType:
    return StructType([field for field in schema_of(wanted).fields if field.name in _COLUMNS + _OF_DAMAGE])


def _write_history(session: SparkSession, draft: Draft, read: DataFrame) -> tuple[int, int, int]:
    """Writes the new part of the history. Returns how many messages there were, how many of them were bad, and damaged bytes."""
    found = canal.marked(canal.parsed(read)).persist(StorageLevel.DISK_ONLY)
    messages = found.where("topic is not null").drop(*_OF_DAMAGE)
    try:
        damaged = F.coalesce(F.sum(F.when(F.col("topic").isNull() & (F.col("tags") == "damage"), F.col("size"))), F.lit(0))
        bad = F.count(F.when(F.col("topic").isNotNull(), F.col("bad")))
        counted = found.agg(F.count("topic").alias("all"), bad.alias("bad"), damaged.alias("damaged")).collect()[0]
        if counted["bad"]:
            messages.where("bad is not null").drop("event").coalesce(1).write.parquet(str(draft.staging / "bad"))
        old = draft.old / "history" if draft.old else None
        before = session.read.schema("message_id string").parquet(str(old)) if old and old.is_dir() else None
        events = canal.changes(canal.first_ones(messages.where("bad is null"), before))
        spread = events.hint("rebalance", "database", "table")
        ordered = spread.sortWithinPartitions("database", "table", "physical_offset", "row")
        ordered.write.partitionBy("database", "table").parquet(str(draft.staging / "history"))
    finally:
        found.unpersist()
    return counted["all"], counted["bad"], counted["damaged"]


def _write_states(session: SparkSession, draft: Draft) -> tuple[dict[str, Table], int]:
    """Writes the states of the tables that the new history changed: first all together, then each table in its columns.

    Returns the tables, and how many messages the history came from.
    """
    touched = _folders(draft.staging / "history")
    if not touched:
        return {}, 0  # all were repeats
    history = session.read.schema(canal.HISTORY).parquet(str(draft.staging / "history"))
    known: dict[str, Table] = draft.manifest.get("tables", {})
    said = {(each["database"], each["table"]): each.asDict() for each in _said(history).collect()}
    tables = {folder: _table(said[_names(folder)], known.get(folder)) for folder in touched}
    shown = [folder for folder in touched if tables[folder]["keyed"]]
    old = [folder for folder in shown if draft.old and (draft.old / "state" / folder).is_dir()]
    state = _states(session, draft.old / "state", old) if draft.old and old else None
    done = canal.after(state, canal.steps(history))
    done.write.partitionBy("database", "table").parquet(str(draft.staging / "raw"))
    for folder in shown:
        raw = draft.staging / "raw" / folder
        raw.mkdir(parents=True, exist_ok=True)  # the table has no rows
        rows = session.read.schema(_STATE).parquet(str(raw))
        _write_state(rows, draft.staging / "state" / folder, tables[folder])
    return tables, sum(each["messages"] for each in said.values())


def _said(history: DataFrame) -> DataFrame:
    """What the history says about each table: the newest types of its columns, and how many row changes have a key."""
    place = F.when(F.col("mysql_type").isNotNull(), F.struct("physical_offset", "row"))
    return history.groupBy("database", "table").agg(
        F.max_by(F.map_entries("mysql_type"), place).alias("types"),
        F.count("data").alias("rows"),
        F.count_distinct("physical_offset").alias("messages"),
        F.count(F.when(F.col("data").isNotNull() & canal.has_key(), 1)).alias("keyed"),
    )


def _table(said: Row, before: Table | None) -> Table:
    types = {key: value for key, value in said["types"] or []} or (before or {}).get("mysql_type", {})
    without = said["rows"] - said["keyed"] + (before or {}).get("without_key", 0)
    return {
        "mysql_type": types,
        "rows": 0,
        "keyed": said["keyed"] + (before or {}).get("keyed", 0),
        "without_key": without,
        "unfit": {},
    }


def _states(session: SparkSession, root: Path, folders: Sequence[str]) -> DataFrame:
    kind = f"{_STATE}, database string, table string"
    paths = [str(root / folder) for folder in folders]
    return session.read.schema(kind).option("basePath", str(root)).parquet(*paths)


def _write_state(rows: DataFrame, folder: Path, table: Table) -> None:
    """Writes the table's rows in its columns. A value that its type cannot hold (a date 0000-00-00) is null in the column, and
    stays in `_data`."""
    kinds = canal.columns_of(table["mysql_type"])
    columns = [F.element_at("_data", name).try_cast(kind).alias(name) for name, kind in kinds.items()]
    unfit = [
        F.count(F.when(F.element_at("_data", name).isNotNull() & F.col(_quoted(name)).isNull(), 1)).alias(f"unfit {name}")
        for name, kind in kinds.items()
        if kind != "string"
    ]
    shown = rows.select(*columns, *canal.OF_STATE)
    shown.write.parquet(str(folder))
    found = shown.agg(F.count("*").alias("rows"), *unfit).collect()[0].asDict()
    table["rows"] = found["rows"]
    table["unfit"] = {name[6:]: count for name, count in found.items() if name.startswith("unfit ") and count}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _folders(root: Path | None) -> list[str]:
    return sorted(str(folder.relative_to(root)) for folder in root.glob("*/*/")) if root else []


def _names(folder: str) -> tuple[str, str]:
    """Database and table of a folder; Spark escapes some characters in its name."""
    database, table = (unquote(part.partition("=")[2]) for part in folder.split("/"))
    return database, table


def topics_from(text: str) -> frozenset[str]:
    """Raises InvalidArgument."""
    names: Sequence[str] = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InvalidArgument("--topics is empty: name topics, separated by commas")
    return frozenset(names)
