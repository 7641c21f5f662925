"""Reads from running brokers with Spark, as a table or as a stream: options `nameservers`, topics, and `group`.

A stream's position is, for each queue, the queue offset of the first message that was not read yet; Spark keeps it in a
checkpoint. The position is also saved as the group's offsets, so that operators see the lag, but is never read from there. With
it stands where in the log the message before was, which tells a queue from another one that has its name and offsets by now.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from analytics.records import cluster
from analytics.records.batches import rows
from analytics.records.cluster import Cluster, Span
from analytics.spark.pushed import narrowed
from analytics.spark.stream import Position, Quiet
from analytics.spark.streamoptions import Streamed, shares
from analytics.stores.options import Wanted
from analytics.stores.segments import SLACK_MS
from rmq.client.shared.session import checked_group
from rmq.errors import InvalidArgument, RmqError
from rmq.model import MessageQueue

_log = logging.getLogger("rmq.spark")
_TASK_MESSAGES = 50_000
Places = dict[MessageQueue, int]


class SpanTask(InputPartition):
    """What one task reads."""

    def __init__(self, spans: list[Span]) -> None:
        super().__init__(spans)
        self.spans = spans


class NetworkReader(DataSourceReader):
    """A table of the messages that exist when the job starts."""

    def __init__(self, nameservers: str, wanted: Wanted, schema: StructType) -> None:
        self._nameservers = nameservers
        self._wanted = wanted
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        wanted = self._wanted
        with Cluster(self._nameservers) as brokers:
            there = brokers.run(partial(cluster.ends, wanted=wanted, least={}))
            spans = brokers.run(partial(cluster.chosen, wanted=wanted, spans=there.values(), slack_ms=SLACK_MS))
        return _tasks(spans, wanted) or [SpanTask([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpanTask)
        return _read(self._nameservers, partition.spans, self._wanted, self._schema)


class NetworkStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One instance, in a process beside the driver, plans all triggers; the others, in the workers, only `read`."""

    def __init__(self, nameservers: str, streamed: Streamed, schema: StructType, group: str) -> None:
        self._nameservers = nameservers
        self._streamed = streamed
        self._wanted = streamed.wanted._replace(starts={}, from_ms=0)  # a stream's first position has both
        self._schema = schema
        self._group = group
        self._brokers: Cluster | None = None
        self._last: dict[MessageQueue, Span] | None = None  # the end of a run with availableNow
        self._told: Places = {}
        self._quiet = Quiet()

    def initialOffset(self) -> Position:
        there = self._there({})
        if self._streamed.latest:
            return self._position({queue: span.stop for queue, span in there.items()})
        begun = self._connected().run(partial(cluster.chosen, wanted=self._streamed.wanted, spans=there.values()))
        return self._position({span.queue: span.start for span in begun})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._streamed.most) if self._streamed.most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._there({})

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        """A new queue enters the position with its beginning, so every trigger knows where to read from."""
        if self._quiet.lasts(start):
            return start
        at = _places(start)
        self._tell(at)  # Spark has done all before; `commit` is not called after availableNow's last trigger
        last = self._last
        if last is None or any(span.stop < at.get(queue, 0) for queue, span in last.items()):
            there = self._there(at)  # raises or logs what was lost
        there = there if last is None else last
        lags = {queue: span.stop - at[queue] for queue, span in there.items() if span.stop > at.get(queue, span.stop)}
        steps = shares(lags, limit.max_rows) if isinstance(limit, ReadMaxRows) else lags
        new = {queue: span.start for queue, span in there.items() if queue not in at}
        if not new and not lags:
            return self._quiet.begin(start)
        return self._position({queue: at[queue] + step for queue, step in steps.items()}, at | new, _places(start, "places"))

    def reportLatestOffset(self) -> Position:
        return {"queues": _tree({queue: span.stop for queue, span in (self._last or self._there({})).items()})}

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        at = _places(start)
        spans = [Span(queue, at[queue], stop) for queue, stop in _places(end).items() if at.get(queue, stop) < stop]
        return _tasks(spans, self._wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpanTask)
        return _read(self._nameservers, partition.spans, self._wanted, self._schema)

    def _position(self, reached: Places, others: Places | None = None, known: Places | None = None) -> Position:
        """`others`: of queues that it leaves where they are; `known`: where in the logs the last messages read stood."""
        others, known, ask = others or {}, known or {}, self._connected().run
        before = {queue: place for queue, place in known.items() if queue in reached}
        now = ask(partial(cluster.places, reached={queue: others[queue] for queue in before}))
        cluster.check_places(before, now, self._wanted.fail_on_loss)
        places = known | ask(partial(cluster.places, reached=reached))
        return {"queues": _tree(others | reached)} | ({"places": _tree(places)} if places else {})

    def _tell(self, at: Places) -> None:
        """Saves the group's offsets, for operators only: if that fails now, the next time saves more."""
        news = {queue: queue_offset for queue, queue_offset in at.items() if self._told.get(queue) != queue_offset}
        if not self._group or not news:
            return
        try:
            self._connected().run(partial(cluster.tell_group, group=self._group, offsets=news))
        except RmqError as error:
            _log.warning("group %s is not told how far the stream is; the stream goes on: %s", self._group, error)
        else:
            self._told |= news

    def stop(self) -> None:
        if self._brokers is not None:
            brokers, self._brokers = self._brokers, None
            brokers.close()

    def _there(self, least: Mapping[MessageQueue, int]) -> dict[MessageQueue, Span]:
        return self._connected().run(partial(cluster.ends, wanted=self._wanted, least=least))

    def _connected(self) -> Cluster:
        if self._brokers is None:
            self._brokers = Cluster(self._nameservers)
        return self._brokers


class PushingNetworkReader(NetworkReader):
    """A reader that gets filters. It gives all of them back: Spark applies them once more."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        self._wanted = narrowed(self._wanted, filters)
        return filters


def addresses(options: Mapping[str, str], wanted: Wanted) -> str:
    """The nameservers. Raises InvalidArgument for options that do not go together."""
    if "nameservers" not in options:
        raise InvalidArgument('the option "group" belongs to streams over the network: give nameservers, too')
    checked_group(options.get("group", "any"))
    if "path" in options:
        raise InvalidArgument("the options path and nameservers were given: read files, or ask brokers")
    if wanted.topics is None and not wanted.pattern:
        raise InvalidArgument("say which topics: give subscribe, subscribePattern or assign")
    if wanted.on_damage != "fail":
        raise InvalidArgument('over the network the option "onDamage" is fail: brokers give out nothing that is damaged')
    return options["nameservers"]


def _tasks(spans: Sequence[Span], wanted: Wanted) -> list[InputPartition]:
    return [SpanTask(each) for each in cluster.packed(spans, wanted.split_records or _TASK_MESSAGES, wanted.least_parts)]


def _read(nameservers: str, spans: Sequence[Span], wanted: Wanted, schema: StructType) -> Iterator[pa.RecordBatch]:
    if not spans:
        return
    arrow = to_arrow_schema(schema, timezone="UTC")
    with Cluster(nameservers) as brokers:
        for span in spans:
            for block in cluster.read_span(brokers, span, wanted.fail_on_loss):
                yield from rows(block, wanted, arrow, wanted.broker or span.queue.broker_name)


def _tree(numbers: Places) -> dict[str, dict[str, dict[str, int]]]:
    """{topic: {broker: {queue: number}}}, always in one order, since Spark compares positions as texts."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for (topic, broker, queue_id), number in sorted(numbers.items()):
        found.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = number
    return found


def _places(position: Mapping[str, Any], kind: str = "queues") -> Places:
    """The queue offsets in a position, or what of another kind it has. Raises InvalidArgument for the position of another kind of
    stream."""
    if "queues" not in position:
        raise InvalidArgument("the checkpoint is of a stream over files, not over the network: give a new checkpointLocation")
    return {
        MessageQueue(topic, broker, int(queue_id)): int(number)
        for topic, brokers in position.get(kind, {}).items()
        for broker, queues in brokers.items()
        for queue_id, number in queues.items()
    }
