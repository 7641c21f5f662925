"""`spark.readStream.format("rmq")` over the files of stores: their logs as they grow, a stretch of each in each trigger.

A position is, for each log, the offset up to which it was read; Spark keeps it in its checkpoint. Copies of a log count as one.
With it stands the epoch of the last byte that was read, which tells a log from one that goes on otherwise.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from analytics.records import tail
from analytics.records.batches import batches
from analytics.spark.streamoptions import Streamed, resumed, shares, since
from analytics.stores.copies import by_log, log_of, name_of, tasks_of
from analytics.stores.files import Directory, Remote
from analytics.stores.look import group_name
from analytics.stores.options import Wanted
from analytics.stores.paths import resolved
from analytics.stores.plan import check_starts, check_topics
from analytics.stores.rare import Places
from analytics.stores.segments import Log, Part
from rmq.errors import InvalidArgument, StoreError

_log = logging.getLogger("rmq.spark")
_QUIET_S = 0.5  # Spark asks every 10 ms
_QUIET_REMOTE_S = 5.0  # if a look goes over the network
Position = dict[str, Any]  # {"log": {name: offset}}, "epochs" there, and perhaps "since": what the options said when it began
Ends = dict[str, int]  # of each log, by its name
LONE = "log"  # name of a store without a group, whose address may change


class Quiet:
    """After a look that found nothing new, the next one waits a little: looks cost the broker or the disk something."""

    def __init__(self, lasts_s: float = _QUIET_S) -> None:
        self._lasts_s = lasts_s
        self._at: Position | None = None
        self._until_s = 0.0

    def lasts(self, start: Position) -> bool:
        return start == self._at and time.monotonic() < self._until_s

    def begin(self, start: Position) -> Position:
        self._at, self._until_s = start, time.monotonic() + self._lasts_s
        return start


class StreamTask(InputPartition):
    """What one task of one trigger reads, and how; tasks do not know the positions."""

    def __init__(self, parts: list[Part | Places], wanted: Wanted, broker: str) -> None:
        super().__init__(parts)
        self.parts = parts
        self.wanted = wanted
        self.broker = broker


class SegmentStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One instance, in a process beside the driver, plans all triggers; the others, in the workers, only `read`."""

    def __init__(self, stores: Sequence[Directory], streamed: Streamed, schema: StructType) -> None:
        self._stores = stores
        self._streamed = streamed
        self._schema = schema
        self._known: dict[str, list[Directory]] = {}
        self._last: Ends | None = None  # the end of a run with availableNow
        self._seen: Ends = {}  # how far the logs went at the last look
        self._quiet = Quiet(_QUIET_REMOTE_S if any(isinstance(store, Remote) for store in stores) else _QUIET_S)

    def initialOffset(self) -> Position:
        wanted = self._streamed.wanted
        check_topics(self._stores, wanted)
        logs = self._logs()
        if len(logs) > 1 and wanted.starts:
            raise InvalidArgument(f'the option "startingOffsets" is of one log, and these are {", ".join(logs)}: give one path')
        check_starts(self._stores, wanted)
        begun = self._ends({}) if self._streamed.latest else self._beginnings(wanted.from_ms)
        return _position(begun, self._looked(), since(wanted))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._streamed.most) if self._streamed.most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._ends({})

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        """A new log enters the position with its beginning, so every trigger knows where to read from."""
        if self._quiet.lasts(start):
            return start
        at, kept = self._offsets(start), start.get("since", {})
        wanted = resumed(self._streamed.wanted, kept)
        new = {name: offset for name, offset in self._beginnings(0).items() if name not in at} if self._logs().keys() - at else {}
        ends = self._ends(at) if self._last is None else self._last
        if wanted.fail_on_loss:
            for name, end in ends.items():
                if end < at.get(name, end):
                    raise StoreError(tail.behind(self._logs()[name], end, at[name]))
        if not new and all(end == at.get(name, end) for name, end in ends.items()):
            return self._quiet.begin(start)
        logs = self._looked()
        before, at = at, self._reached(start, logs, wanted.fail_on_loss)
        lags = {name: end - at[name] for name, end in ends.items() if end > at.get(name, end)}
        if not new and not lags and at == before:  # a copy that is behind
            return self._quiet.begin(start)
        if isinstance(limit, ReadMaxRows):
            counts = shares(lags, limit.max_rows)
            reached = {name: self._reach(name, at[name], ends[name], wanted, counts[name]) for name in lags}
        else:
            reached = {name: ends[name] for name in lags}
        offsets, epochs = at | new | reached, self._by_log(start.get("epochs", {}))
        stands = {name for name, offset in offsets.items() if offset == before.get(name) == at[name]}
        return _position(offsets, logs, kept, {name: epochs[name] for name in stands & epochs.keys()})

    def reportLatestOffset(self) -> Position:
        return {"log": self._ends({}) if self._last is None else self._last}

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        wanted = resumed(self._streamed.wanted, end.get("since", {}))
        logs = self._looked()
        begins = self._reached(start, logs, wanted.fail_on_loss)
        found: list[InputPartition] = []
        for name, stop in self._reached(end, logs, wanted.fail_on_loss).items():
            stores = resolved(self._logs()[name])
            parts = tail.between(stores, begins.get(name, stop), stop, wanted.fail_on_loss)
            if parts:
                broker = wanted.broker or name_of(stores)
                found += [StreamTask(each, wanted, broker) for each in tasks_of(stores, wanted, parts)]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StreamTask)
        return batches(partition.parts, partition.wanted, to_arrow_schema(self._schema, timezone="UTC"), partition.broker)

    def _reach(self, name: str, start: int, end: int, wanted: Wanted, most: int) -> int:
        """The offset where `most` messages end."""
        if not most:
            return start
        return tail.reach(tail.between(self._logs()[name], start, end, wanted.fail_on_loss), end, wanted, most)

    def _beginnings(self, from_ms: int) -> Ends:
        return {name: tail.first_offset(stores, from_ms) for name, stores in self._logs().items()}

    def _ends(self, after: Ends) -> Ends:
        """The ends of the logs now. Bytes that were seen before are not walked again."""
        for name, stores in self._logs().items():
            self._seen[name] = tail.last_offset(stores, max(after.get(name, 0), self._seen.get(name, 0)))
        return dict(self._seen)

    def _looked(self) -> dict[str, Log]:
        """The logs as they are now, by name."""
        return {name: log_of(stores) for name, stores in self._logs().items()}

    def _reached(self, position: Position, logs: Mapping[str, Log], fail_on_loss: bool) -> Ends:
        """Up to where the logs were read; one that has other bytes there by now than those that were read: up to where these
        begin. Raises StoreError instead if loss is not allowed, InvalidArgument as `_offsets`."""
        offsets, epochs = self._offsets(position), self._by_log(position.get("epochs", {}))
        for name in offsets.keys() & epochs.keys():
            log, was, reached = logs[name], epochs[name], offsets[name]
            if not tail.goes_on_otherwise(was, log.epochs, log.committed or reached, reached):
                continue
            about = tail.another(self._logs()[name], name)
            if fail_on_loss:
                raise StoreError(f"{about}: give a new checkpointLocation, or failOnDataLoss=false to read on where they part")
            offsets[name] = min(reached, tail.parting(was, log.epochs, log.files[0].segment.base if log.files else 0))
            _log.warning("%s; the stream reads on where they part, at %d", about, offsets[name])
        return offsets

    def _by_log(self, found: dict[str, Any]) -> dict[str, Any]:
        logs = self._logs()
        return {name: found[LONE] for name in logs} if len(logs) == 1 and LONE in found else found  # it has got a group since

    def _offsets(self, position: Position) -> Ends:
        """The offsets of the existing logs. Raises InvalidArgument for a position in other logs."""
        found, logs = self._by_log(position.get("log", {})), self._logs()
        gone = found.keys() - logs.keys()
        if not found or gone:
            raise InvalidArgument(
                f"the checkpoint is of {', '.join(sorted(gone)) or 'something else'}, the path leads to {', '.join(logs)}: "
                "give the path of before, or a new checkpointLocation"
            )
        return {name: int(offset) for name, offset in found.items()}

    def _logs(self) -> dict[str, list[Directory]]:
        """The copies of each log, by the log's name. Raises InvalidArgument if two logs have one name."""
        if not self._known:
            families = [[copy.store for copy in copies] for copies in by_log(self._stores)]
            named = [(self._name(stores, len(families) == 1), stores) for stores in families]
            self._known = dict(sorted(named))
            if len(self._known) < len(named):
                raise InvalidArgument("two of these stores are different logs of one group's name: give a stream to each")
        return self._known

    def _name(self, stores: Sequence[Directory], is_only: bool) -> str:
        group = next(filter(None, map(group_name, stores)), "")
        if is_only:
            return self._streamed.wanted.broker or group or LONE
        if self._streamed.wanted.broker:
            raise InvalidArgument('the option "brokerName" is of one log: give one path')
        return group or str(stores[0])


def _position(offsets: Ends, logs: Mapping[str, Log], kept: dict[str, Any], known: Mapping[str, Any] = {}) -> Position:
    """`known`: epochs of logs that are not read further, as they were: a copy that is behind does not know them."""
    offsets = dict(sorted(offsets.items()))
    found = {name: known.get(name) or tail.epoch_below(logs[name].epochs, offset) for name, offset in offsets.items()}
    epochs = {name: epoch for name, epoch in found.items() if epoch}
    return {"log": offsets} | ({"epochs": epochs} if epochs else {}) | ({"since": kept} if kept else {})
