"""The unread messages of some stores as one Spark frame: from the end of the last job to what is committed now.

A mark says up to which byte a log was read, and the checksums of the first records of its last files. By these a log is known
again, whatever its store calls it: the name of a mark is the first one. An archive and a directory of RocketMQ have none but the
address in their records, until they are restored or adopted. They tell a log from another one of the same name, too. The epoch of
the last byte that was read tells it from one that goes on otherwise in the midst of a file: a slave was promoted without the last
messages, or a backup was put in place.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from analytics.records import tail
from analytics.records.batches import batches
from analytics.stores.copies import Copy, by_log, name_of, tasks_of
from analytics.stores.files import Directory
from analytics.stores.look import checksum
from analytics.stores.options import Wanted
from analytics.stores.rare import Places
from analytics.stores.segments import Part
from rmq.errors import InvalidArgument, StoreError
from rmq.log.files.epochs import EpochHistory

_HEADS = 3  # files that a mark remembers
Mark = dict[str, Any]  # {"to": offset, "heads": {offset of a file: checksum}, "epoch": [number, start, writer]}, if there is one


class Unread(NamedTuple):
    """The tasks (broker's name, parts) that read the unread messages, and the marks that hold afterwards."""

    tasks: list[tuple[str, list[Part | Places]]]
    marks: dict[str, Mark]


class _Log(NamedTuple):
    """`heads`: checksum of the first record of each file, by its offset as text. `stores`: the copies of the log."""

    name: str
    stop: int
    start: int
    heads: dict[str, str]
    stores: Sequence[Directory]
    epochs: EpochHistory


def unread(stores: Sequence[Directory], wanted: Wanted, marks: Mapping[str, Mark]) -> Unread:
    """What these marks leave unread. Raises InvalidArgument (no store), StoreError (another log; bytes that retention took)."""
    found: list[tuple[str, list[Part | Places]]] = []
    new = dict(marks)
    logs = [_log(copies, marks) for copies in by_log(stores)]
    for name, before in marks.items():
        _refuse_shorter(before, [log for log in logs if log.name == name and log.heads])
    for log in sorted(logs, key=lambda log: log[:2]):  # an archive may have another part of a log
        name, stop, start = log.name, log.stop, log.start
        mark = new.get(name)
        if mark:
            _refuse_another(log, mark)
            start = int(mark["to"])
        if start >= stop:
            continue
        parts = tail.between(log.stores, start, stop, wanted.fail_on_loss)
        found += [(name, each) for each in tasks_of(log.stores, wanted, parts)]
        last = {base: head for base, head in log.heads.items() if int(base) < stop}
        new[name] = {"to": stop, "heads": dict(list(last.items())[-_HEADS:])}
        if epoch := tail.epoch_below(log.epochs, stop):
            new[name]["epoch"] = epoch
    return Unread(found, new)


def _log(copies: Sequence[Copy], marks: Mapping[str, Mark]) -> _Log:
    stores = [copy.store for copy in copies]
    first = {base: checksum(head) for copy in copies for base, head in copy.heads.items()}
    heads = {str(base): first[base] for base in sorted(first)}
    known = [name for name, mark in marks.items() if mark["heads"].items() & heads.items()]
    furthest = max(known, key=lambda name: int(marks[name]["to"]), default="")  # a log may have been landed under two names
    start = min((copy.log.files[0].segment.base for copy in copies if copy.log.files), default=0)
    epochs = next((copy.log.epochs for copy in copies if copy.log.epochs), ())
    return _Log(furthest or name_of(stores), tail.last_offset(stores, 0), start, heads, stores, epochs)


def frame(session: SparkSession, what: Unread, wanted: Wanted, schema: StructType) -> DataFrame:
    """The messages, in no particular order; each task reads its parts once.

    Damage that is to be skipped is a row without a topic (as by `quarantine`), so that whoever lands the messages can count it.
    """
    if wanted.on_damage == "skip":
        wanted = wanted._replace(on_damage="quarantine")
    todo, arrow = what.tasks, to_arrow_schema(schema, timezone="UTC")

    def read(indexes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in indexes:
            for index in some.column(0).to_pylist():
                broker, parts = todo[index]
                yield from batches(parts, wanted, arrow, broker)

    return session.range(0, len(todo), 1, max(1, len(todo))).mapInArrow(read, schema)


def other_topics(out: Path, begun: str) -> InvalidArgument:
    """The refusal of topics that a directory was not begun with: what was read before has no messages of new ones."""
    return InvalidArgument(
        f"{out} was begun with other topics: go on with {begun}; for others give another --out (or remove this one), which then "
        "begins with the oldest messages that are left"
    )


def _refuse_another(log: _Log, mark: Mark) -> None:
    common = mark["heads"].keys() & log.heads.keys()
    parted = tail.goes_on_otherwise(mark.get("epoch"), log.epochs, log.stop, int(mark["to"]))
    if parted or any(mark["heads"][base] != log.heads[base] for base in common):
        raise StoreError(f"{tail.another(log.stores, log.name)}: give another --out")


def _refuse_shorter(mark: Mark, logs: Sequence[_Log]) -> None:
    """All that was given of a log ends below what was read of it before, and has none of the files that tell it from another."""
    if logs and all(log.stop < int(mark["to"]) and not log.heads.keys() & mark["heads"].keys() for log in logs):
        raise StoreError(
            f"{' and '.join(str(store) for log in logs for store in log.stores)}: {mark['to']} bytes of {logs[0].name} were read "
            "before, and this log is shorter: it was made anew (give another --out), or is a copy that is far behind (give one "
            "that is not)"
        )
