"""`spark.readStream.format("rmq")` over the files of a store: the log as it grows, a stretch of it in each trigger.

A position is the offset in the log behind which nothing was read yet; Spark keeps it in its checkpoint.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from analytics import tail
from analytics.batches import batches
from analytics.look import broker_name, group_name
from analytics.options import Wanted
from analytics.plan import check_names, tasks
from analytics.rare import Places
from analytics.segments import Part
from analytics.streamoptions import Streamed, resumed, since
from rmq.errors import InvalidArgument, StoreError

_QUIET_S = 0.5  # Spark asks every 10 ms
Position = dict[str, Any]  # {"log": {name: offset}, and perhaps "since": what the options said when the stream began}
LONE = "log"  # name of a store that is of no group: its address may change


class Quiet:
    """When a look found nothing new, the next one comes a little later: it costs the broker or the disk something."""

    def __init__(self) -> None:
        self._at: Position | None = None
        self._until_s = 0.0

    def lasts(self, start: Position) -> bool:
        return start == self._at and time.monotonic() < self._until_s

    def begin(self, start: Position) -> Position:
        self._at, self._until_s = start, time.monotonic() + _QUIET_S
        return start


class StreamTask(InputPartition):
    """What one task of one trigger reads, and how: tasks do not know the positions."""

    def __init__(self, parts: list[Part | Places], wanted: Wanted, broker: str) -> None:
        super().__init__(parts)
        self.parts = parts
        self.wanted = wanted
        self.broker = broker


class SegmentStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One instance in a process beside the driver plans all triggers; others, in the workers, only `read`."""

    def __init__(self, store: Path, streamed: Streamed, schema: StructType) -> None:
        self._store = store
        self._streamed = streamed
        self._schema = schema
        self._last: int | None = None  # of a run that ends with what is available now
        self._seen = 0  # the log went so far
        self._quiet = Quiet()

    def initialOffset(self) -> Position:
        wanted = self._streamed.wanted
        check_names(self._store, wanted)
        latest = self._streamed.latest
        offset = self._end(0) if latest else tail.first_offset(self._store, wanted.from_ms)
        return self._position(offset, since(wanted))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._streamed.most) if self._streamed.most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._end(0)

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        if self._quiet.lasts(start):
            return start
        begin, kept = self._offset(start), start.get("since", {})
        wanted = resumed(self._streamed.wanted, kept)
        end = self._end(begin) if self._last is None else self._last
        if end <= begin:
            if end < begin and wanted.fail_on_loss and self._last is None:
                raise StoreError(tail.behind(self._store, end, begin))
            return self._quiet.begin(start)
        if isinstance(limit, ReadMaxRows):
            parts = tail.between(self._store, begin, end, wanted.fail_on_loss)
            end = tail.reach(parts, end, wanted, limit.max_rows)
        return self._position(end, kept)

    def reportLatestOffset(self) -> Position:
        return self._position(self._end(0) if self._last is None else self._last, {})

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        wanted = resumed(self._streamed.wanted, end.get("since", {}))
        parts = tail.between(self._store, self._offset(start), self._offset(end), wanted.fail_on_loss)
        broker = wanted.broker or broker_name(self._store)
        return [StreamTask(each, wanted, broker) for each in tasks(self._store, wanted, parts)] if parts else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StreamTask)
        return batches(partition.parts, partition.wanted, to_arrow_schema(self._schema, timezone="UTC"), partition.broker)

    def _end(self, after: int) -> int:
        """Of the log, now. What was seen is not walked again."""
        self._seen = tail.last_offset(self._store, max(after, self._seen))
        return self._seen

    def _position(self, offset: int, kept: dict[str, Any]) -> Position:
        return {"log": {self._name(): offset}} | ({"since": kept} if kept else {})

    def _offset(self, position: Position) -> int:
        """Raises InvalidArgument for a position in another log."""
        logs = position.get("log", {})
        offset = logs.get(self._name(), logs.get(LONE))
        if offset is None:
            raise InvalidArgument(
                f"the checkpoint is of {', '.join(logs) or 'something else'}, the store {self._store} is of {self._name()}: "
                "give the path of before, or a new checkpointLocation"
            )
        return int(offset)

    def _name(self) -> str:
        return self._streamed.wanted.broker or group_name(self._store) or LONE
