"""The unread messages of some stores as one Spark frame: from the end of the last job to what is committed now.

A mark says up to which byte a log (named by its broker) was read, and the checksums of the first records of its last files. These
tell the log from another one of the same name. A log may be read from an archive first and from a store later.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from analytics.records import tail
from analytics.records.batches import batches
from analytics.stores.files import Directory
from analytics.stores.look import Extent, extent
from analytics.stores.options import Wanted
from analytics.stores.plan import tasks
from analytics.stores.rare import Places
from analytics.stores.segments import Part, refuse_others
from rmq.errors import BadBytes, InvalidArgument, RmqError, StoreError

_HEADS = 3  # files that a mark remembers
Mark = dict[str, Any]  # {"to": offset, "heads": {offset of a file: checksum}}


class Unread(NamedTuple):
    """The tasks (broker's name, parts) that read the unread messages, and the marks that hold afterwards."""

    tasks: list[tuple[str, list[Part | Places]]]
    marks: dict[str, Mark]


def unread(stores: Sequence[Directory], wanted: Wanted, marks: Mapping[str, Mark]) -> Unread:
    """What these marks leave unread. Raises InvalidArgument (no store), StoreError (another log; bytes that retention took)."""
    for store in stores:
        refuse_others(store)
    found: list[tuple[str, list[Part | Places]]] = []
    new = dict(marks)
    known = [(extent(store), tail.last_offset([store], 0), store) for store in stores]
    for about, stop, store in sorted(known, key=lambda each: (each[0].broker, each[1])):
        mark = new.get(about.broker)
        start = int(mark["to"]) if mark else about.log_start
        if mark:
            _refuse_another(about, mark, store)
        if start >= stop:
            continue
        if start < about.log_start and any(other.broker == about.broker and end > stop for other, end, _ in known):
            continue  # a later copy of this log may hold it
        parts = tail.between([store], start, stop, wanted.fail_on_loss)
        found += [(about.broker, each) for each in tasks(store, wanted, parts)]
        heads = {str(base): head for base, head in sorted(about.heads.items()) if base < stop}
        new[about.broker] = {"to": stop, "heads": dict(list(heads.items())[-_HEADS:])}
    return Unread(found, new)


def frame(session: SparkSession, what: Unread, wanted: Wanted, schema: StructType) -> DataFrame:
    """The messages, in no particular order; each task reads its parts once."""
    todo, arrow = what.tasks, to_arrow_schema(schema, timezone="UTC")

    def read(indexes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in indexes:
            for index in some.column(0).to_pylist():
                broker, parts = todo[index]
                yield from batches(parts, wanted, arrow, broker)

    return session.range(0, len(todo), 1, max(1, len(todo))).mapInArrow(read, schema)


def plain_error(error: PySparkException) -> RmqError:
    """The reader's own error, taken out of Spark's pages of traceback."""
    kinds = {kind.__name__: kind for kind in (BadBytes, StoreError, InvalidArgument)}
    for line in str(error).splitlines():
        name, _, words = line.strip().partition(": ")
        if name.startswith(("rmq.errors.", "analytics.")) and words:
            return kinds.get(name.rpartition(".")[2], StoreError)(words)
    return StoreError(f"Spark failed: {error}")


def _refuse_another(about: Extent, mark: Mark, store: Directory) -> None:
    common = [base for base in mark["heads"] if int(base) in about.heads]
    if any(mark["heads"][base] != about.heads[int(base)] for base in common):
        raise StoreError(
            f"{store} holds another log of {about.broker} than the one that was read before (it was restored, or "
            "made anew): give another --out"
        )
