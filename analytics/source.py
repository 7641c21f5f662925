"""The Spark data source "rmq": messages of a store directory as rows. One task per segment file, Arrow batches.

Options: `path` (the store directory), `topics` (comma separated; default all), `from` and `to` (store time, ISO or Unix
ms; `from` counts, `to` does not), `system` ("true": system topics too), `body` ("plain" decompressed, "raw" as
stored, "none" left out). What counts as stored is decided in `analytics.segments`; what rows mean to a job is decided by the job.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence, Sized
from datetime import UTC, datetime
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from analytics.segments import Part, find_parts, read_part
from rmq.errors import InvalidArgument
from rmq.log.record import Record, bytes_to_properties, host_text, is_tombstone
from rmq.routing.topics import is_system_topic

SCHEMA = """
topic string, queue_id int, queue_offset bigint, physical_offset bigint, born_timestamp timestamp, store_timestamp timestamp,
born_host string, store_host string, tags string, keys array<string>, properties map<string,string>, body binary,
flag int, sys_flag int, reconsume_times int, size int
"""
_TIME = pa.timestamp("us", tz="UTC")
_ARROW = pa.schema([
    ("topic", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64()), ("physical_offset", pa.int64()),
    ("born_timestamp", _TIME), ("store_timestamp", _TIME), ("born_host", pa.string()), ("store_host", pa.string()),
    ("tags", pa.string()), ("keys", pa.list_(pa.string())), ("properties", pa.map_(pa.string(), pa.string())),
    ("body", pa.binary()), ("flag", pa.int32()), ("sys_flag", pa.int32()), ("reconsume_times", pa.int32()), ("size", pa.int32()),
])  # fmt: skip
_BATCH_ROWS, _BATCH_BYTES = 4096, 16 << 20
_MOST_PLAIN_BYTES = 64 << 20
_BODIES = ("plain", "raw", "none")
_COMPRESSED, _CODEC_MASK = 0x1, 0x700  # sysFlag [MessageSysFlag]
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_CODECS = {0x100: "lz4", 0x200: "zstd"}  # 0 and 0x300 are zlib [CompressionType]


class Wanted(NamedTuple):
    """Which messages a job asked for. Times are Unix ms of storing: from_ms <= time < to_ms."""

    topics: frozenset[str] = frozenset()
    from_ms: int = 0
    to_ms: int = 1 << 62
    system: bool = False
    body: str = "plain"


class SegmentPartition(InputPartition):
    """One task: one part of a store."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self.part = part


class RmqDataSource(DataSource):
    """`spark.read.format("rmq").option("path", store).load()`; register it with `register`."""

    @classmethod
    def name(cls) -> str:
        return "rmq"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> "RmqReader":
        return RmqReader(store_path(self.options), parse_options(self.options))


class RmqReader(DataSourceReader):
    """Plans the parts when the job starts, reads one part per task."""

    def __init__(self, store: Path, wanted: Wanted) -> None:
        self._store = store
        self._wanted = wanted

    def partitions(self) -> list[SegmentPartition]:
        return [SegmentPartition(part) for part in find_parts(self._store)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SegmentPartition)
        return batches(partition.part, self._wanted)


def register(session: SparkSession) -> None:
    """Make the format "rmq" known to a session."""
    session.dataSource.register(RmqDataSource)


def store_path(options: Mapping[str, str]) -> Path:
    """The option `path`. Raises InvalidArgument when it is missing."""
    path = options.get("path")
    if not path:
        raise InvalidArgument('the option "path" is missing: give it the store directory')
    return Path(path.removeprefix("file://"))


def parse_options(options: Mapping[str, str]) -> Wanted:
    """Options of a reader, checked. Raises InvalidArgument naming the option and what is allowed."""
    body = options.get("body", "plain")
    if body not in _BODIES:
        raise InvalidArgument(f'the option "body" is {body!r}; allowed are {", ".join(_BODIES)}')
    topics = frozenset(filter(None, (topic.strip() for topic in options.get("topics", "").split(","))))
    system = options.get("system", "false").lower() == "true"
    default = Wanted()
    return Wanted(topics, _time_ms(options, "from", default.from_ms), _time_ms(options, "to", default.to_ms), system, body)


def batches(part: Part, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The wanted records of a part as Arrow batches of at most 4096 rows."""
    rows: list[Record] = []
    bodies: list[bytes | None] = []
    waiting_bytes = 0
    for record in read_part(part):
        if not _is_wanted(record, wanted):
            continue
        rows.append(record)
        bodies.append(_body(record, wanted.body))
        waiting_bytes += record.total_size + len(bodies[-1] or b"")
        if len(rows) == _BATCH_ROWS or waiting_bytes >= _BATCH_BYTES:
            yield _batch(rows, bodies)
            rows, bodies, waiting_bytes = [], [], 0
    if rows:
        yield _batch(rows, bodies)


def plain_body(record: Record) -> bytes | None:
    """The body, decompressed when the record's sysFlag says so.

    None where that is not true, or it would be longer than 64 MiB: whoever may send may claim anything, and one message must
    not stop a job.
    """
    if not record.sys_flag & _COMPRESSED:
        return record.body
    codec = _CODECS.get(record.sys_flag & _CODEC_MASK)
    try:
        if codec is None:
            inflater = zlib.decompressobj()
            body = inflater.decompress(record.body, _MOST_PLAIN_BYTES)
            return body if inflater.eof else None
        with pa.CompressedInputStream(pa.BufferReader(record.body), codec) as stream:
            body = bytes(stream.read(_MOST_PLAIN_BYTES + 1))
            return body if len(body) <= _MOST_PLAIN_BYTES else None
    except (zlib.error, OSError):
        return None


def _is_wanted(record: Record, wanted: Wanted) -> bool:
    if is_tombstone(record):  # says that a message is lost; it is none
        return False
    if not wanted.from_ms <= record.store_timestamp < wanted.to_ms:
        return False
    if wanted.topics and record.topic not in wanted.topics:
        return False
    return wanted.system or not is_system_topic(record.topic)


def _batch(rows: list[Record], bodies: list[bytes | None]) -> pa.RecordBatch:
    properties = [bytes_to_properties(row.properties) for row in rows]
    columns = [
        [row.topic for row in rows],
        [row.queue_id for row in rows],
        [row.queue_offset for row in rows],
        [row.physical_offset for row in rows],
        [_microseconds(row.born_timestamp) for row in rows],
        [_microseconds(row.store_timestamp) for row in rows],
        [_host_text(row.born_host) for row in rows],
        [_host_text(row.store_host) for row in rows],
        [each.get("TAGS") for each in properties],
        _lists([each.get("KEYS", "").split() for each in properties]),
        _maps(properties),
        bodies,
        [row.flag for row in rows],
        [row.sys_flag for row in rows],
        [row.reconsume_times for row in rows],
        [row.total_size for row in rows],
    ]
    pairs = zip(columns, _ARROW.types, strict=True)
    arrays = [pa.array(column, kind) if isinstance(column, list) else column for column, kind in pairs]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _lists(values: list[list[str]]) -> pa.ListArray:
    return pa.ListArray.from_arrays(_offsets(values), pa.array(list(chain.from_iterable(values)), pa.string()))


def _maps(values: list[dict[str, str]]) -> pa.MapArray:
    names = pa.array(list(chain.from_iterable(values)), pa.string())
    items = pa.array(list(chain.from_iterable(map(dict.values, values))), pa.string())
    return pa.MapArray.from_arrays(_offsets(values), names, items)


def _offsets(values: Sequence[Sized]) -> pa.Array:
    """Where each row's elements begin, and the end: this way Arrow need not look at every element's type."""
    return pa.array([0, *accumulate(map(len, values))], pa.int32())


def _microseconds(time_ms: int) -> int:
    """Arrow's unit. A client may claim any 64-bit time of birth: it is held inside the years 1 to 9999."""
    return max(_FIRST_MS, min(time_ms, _LAST_MS)) * 1000


@lru_cache(maxsize=4096)
def _host_text(host: bytes) -> str:
    return host_text(host)


def _body(record: Record, how: str) -> bytes | None:
    if how == "none":
        return None
    return plain_body(record) if how == "plain" else record.body


def _time_ms(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f'the option "{name}" is {text!r}; give an ISO time (UTC unless it says so) or Unix ms') from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
