"""The Spark data source "rmq": messages of store directories as rows, in Arrow batches. Options are in `stores.options`.

`stores.segments` decides what counts as stored, `stores.walk` what a whole record is; this module connects them to Spark.
Code that talks to brokers is imported only when used, because each of Spark's Python processes imports this file again.
"""

import gc
import json
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from analytics.records.arrays import numbers
from analytics.records.batches import batches
from analytics.spark.pushed import narrowed
from analytics.spark.reads import COUNTED, PLANNED, plan_reads
from analytics.spark.stream import SegmentStream
from analytics.spark.streamoptions import parse_stream_options
from analytics.stores.copies import plan_all
from analytics.stores.files import Directory
from analytics.stores.options import Wanted, given_options, nearest, parse_options
from analytics.stores.paths import resolved, stores_at
from analytics.stores.rare import Places
from analytics.stores.segments import Part
from rmq.errors import InvalidArgument

_TEXT, _INT, _LONG, _TIME, _BYTES = StringType(), IntegerType(), LongType(), TimestampType(), BinaryType()
_SCHEMA: dict[str, DataType] = {
    "topic": _TEXT, "queue_id": _INT, "queue_offset": _LONG, "physical_offset": _LONG, "born_timestamp": _TIME,
    "store_timestamp": _TIME, "born_host": _TEXT, "store_host": _TEXT, "tags": _TEXT, "keys": ArrayType(_TEXT),
    "properties": MapType(_TEXT, _TEXT), "body": _BYTES, "flag": _INT, "sys_flag": _INT, "reconsume_times": _INT, "size": _INT,
    "broker_name": _TEXT, "msg_id": _TEXT, "uniq_key": _TEXT,
}  # fmt: skip
_KAFKA: dict[str, DataType] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": _TEXT,
    "partition": _INT,
    "offset": _LONG,
    "timestamp": _TIME,
    "timestampType": _INT,
}
_HEADERS: dict[str, DataType] = {"headers": ArrayType(StructType([StructField("key", _TEXT), StructField("value", _BYTES)]))}
_KEPT = "rmq.options"
_OVER_NETWORK = ("nameservers", "group")
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"


class Task(InputPartition):
    """What one task reads: parts of one broker's log."""

    def __init__(self, parts: list[Part | Places], broker: str = "") -> None:
        super().__init__(parts)
        self.parts = parts
        self.broker = broker


class RmqDataSource(DataSource):
    """`spark.read.format("rmq").option("path", store).load()`; register it with `register`."""

    @classmethod
    def name(cls) -> str:
        return "rmq"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        _leave_imports_alone()

    def schema(self) -> StructType:
        given = given_options(self.options)
        given.pop("startingOffsets", None)  # streams have more options; the readers check them
        found = schema_of(parse_options(given))
        if "provider" in self.options:  # a table made by SQL: Spark keeps its schema, but not its options when it is read
            found.fields[0].metadata = {_KEPT: json.dumps(given_options(self.options))}
        return found

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = given_options(self.options)
        streamed = parse_stream_options(options)
        _check_schema(schema, streamed.wanted)
        if not options.keys().isdisjoint(_OVER_NETWORK):
            from analytics.spark.network import NetworkStream, addresses

            return NetworkStream(addresses(options, streamed.wanted), streamed, schema, options.get("group", ""))
        return SegmentStream(stores_at(options), streamed, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from analytics.spark.sink import RowSender

        return RowSender(*_receiver(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from analytics.spark.sink import StreamRowSender

        return StreamRowSender(*_receiver(self.options, schema, overwrite))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader. It takes filters in a read that Reads.java has planned, and only in the process where Spark offers them.

        Spark 4.3 by itself keeps the filters of one read for other reads of the same frame, and refuses a reader that takes
        filters where it offers none.
        """
        kept = [json.loads(field.metadata[_KEPT]) for field in schema.fields if _KEPT in field.metadata]
        options = {**(kept[0] if kept else {}), **given_options(self.options)}
        wanted = parse_options(options)
        for field in schema.fields:
            if COUNTED in field.metadata:
                counted = StructType.fromJson(json.loads(field.metadata[COUNTED]))
                return CountingReader(self._reader(counted, options, wanted), schema)
        return self._reader(schema, options, wanted)

    def _reader(self, schema: StructType, options: Mapping[str, str], wanted: Wanted) -> DataSourceReader:
        _check_schema(schema, wanted)
        pushing = _PUSHING in sys.modules and any(PLANNED in field.metadata for field in schema.fields)
        if not options.keys().isdisjoint(_OVER_NETWORK):
            from analytics.spark.network import NetworkReader, PushingNetworkReader, addresses

            return (PushingNetworkReader if pushing else NetworkReader)(addresses(options, wanted), wanted, schema)
        return (PushingReader if pushing else RmqReader)(stores_at(options), wanted, schema)


class RmqReader(DataSourceReader):
    """Plans the parts when the job starts; reads the parts of one task."""

    def __init__(self, stores: list[Directory], wanted: Wanted, schema: StructType) -> None:
        self._stores = stores
        self._wanted = wanted
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [Task(parts, broker) for broker, parts in plan_all(resolved(self._stores), self._wanted)] or [Task([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        _leave_imports_alone()
        return batches(partition.parts, self._wanted, to_arrow_schema(self._schema, timezone="UTC"), partition.broker)


class PushingReader(RmqReader):
    """A reader that gets filters. It gives all of them back: Spark applies them once more."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        self._wanted = narrowed(self._wanted, filters)
        return filters


class CountingReader(DataSourceReader):
    """Gives one row for each task of another reader: how many rows that one has."""

    def __init__(self, counted: DataSourceReader, schema: StructType) -> None:
        self._counted = counted
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return self._counted.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        found: Iterator[Any] = self._counted.read(partition)  # batches of Arrow, as all of ours
        count = sum(batch.num_rows for batch in found)
        yield pa.RecordBatch.from_arrays([numbers([count], np.int64)], schema=to_arrow_schema(self._schema, timezone="UTC"))


def register(session: SparkSession) -> None:
    """Makes the format "rmq" known to a session, and its queries read no more than they use."""
    session.dataSource.register(RmqDataSource)
    plan_reads(session)


def schema_of(wanted: Wanted) -> StructType:
    """All columns of the wanted shape."""
    columns = _SCHEMA if wanted.shape == "rmq" else (_KAFKA | _HEADERS if wanted.headers else _KAFKA)
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@cache
def _leave_imports_alone() -> None:
    """Spark collects garbage after each task, which takes 30 ms with all that was imported, and a task may take 100."""
    gc.freeze()


def _receiver(options: Mapping[str, str], schema: StructType, overwrite: bool) -> tuple[str, str]:
    """Nameservers and topic. Raises InvalidArgument."""
    from analytics.spark.sending import parse_sink_options
    from analytics.spark.sink import columns_of

    if overwrite:
        raise InvalidArgument('messages are only added: give mode("append"), in a stream outputMode("append") or ("update")')
    return parse_sink_options(options, columns_of(schema))


def _check_schema(given: StructType, wanted: Wanted) -> None:
    """Raises InvalidArgument unless the schema only leaves out or reorders columns; it may change no type."""
    ours = {field.name: field.dataType for field in schema_of(wanted).fields}
    for field in given.fields:
        kind = ours.get(field.name)
        if kind is None:
            near = nearest(field.name, tuple(ours))
            raise InvalidArgument(f"there is no column {field.name!r}{near} There are: {', '.join(ours)}")
        if field.dataType != kind:
            raise InvalidArgument(f"the column {field.name!r} is {kind.simpleString()}, not {field.dataType.simpleString()}")
