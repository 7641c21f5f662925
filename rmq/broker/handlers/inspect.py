"""Operators' questions: queues of a topic, progress of a group, readers of a topic, and how the broker is doing."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rmq.broker.shared.ports import Reader
from rmq.broker.shared.stats import BrokerStats
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery import filters
from rmq.delivery.groups import ConsumerRegistry
from rmq.delivery.offsets import OffsetTable
from rmq.errors import Refusal, StoreError, no_topic
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.model import BROADCASTING, MessageQueue, QueueProgress, QueueStats, Subscription, TopicConfig
from rmq.net.commands import (
    ConsumeStats,
    GetConsumeStats,
    GetRuntimeInfo,
    GetTopicStats,
    GroupList,
    QueryTopicConsumeByWho,
    RuntimeInfo,
    TopicStats,
)
from rmq.net.commands.progress import (
    Corrections,
    GetCorrections,
    GetQueueEntries,
    GetTimeSpans,
    QueueEntries,
    QueueEntry,
    TimeSpan,
    TimeSpans,
)
from rmq.net.transport.server import Call, Handler
from rmq.routing.topics import TopicTable

MAX_ROWS = 50_000  # queues in one answer: each takes some 250 bytes in RocketMQ's form
MAX_ENTRIES = 1_000  # of a queue
_BEHIND = 2**63 - 1  # Java's Long.MAX_VALUE


class InspectHandlers:
    """Reads store times from the log, so these answers are made in a thread."""

    def __init__(
        self, topics: TopicTable, offsets: OffsetTable, registry: ConsumerRegistry, reader: Reader, clock: Clock
    ) -> None:
        self._broker_name = reader.broker_name
        self._topics = topics
        self._offsets = offsets
        self._registry = registry
        self._read_store_time = reader.store_time
        self._queues = reader.queues
        self._stats = reader.stats
        self._clock = clock

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {
            GetTopicStats: self.topic_stats,
            GetConsumeStats: self.consume_stats,
            QueryTopicConsumeByWho: self.consumed_by,
            GetTimeSpans: self.time_spans,
            GetCorrections: self.corrections,
            GetQueueEntries: self.entries,
        }

    async def topic_stats(self, request: GetTopicStats, _call: Call) -> TopicStats:
        config = self._known(request.topic)
        rows = await asyncio.to_thread(lambda: [self._queue_stats(config, queue_id) for queue_id in _queue_ids(config)])
        return TopicStats(rows, self._stats.topic_put_tps(config.name))

    def _queue_stats(self, config: TopicConfig, queue_id: int) -> QueueStats:
        queue = self._queues.look(config.name, queue_id)
        low, high = queue.min, queue.max
        stored = self._store_time(queue, high - 1)
        return QueueStats(MessageQueue(config.name, self._broker_name, queue_id), low, high, stored)

    def _store_time(self, queue: ConsumeQueue, offset: int) -> int:
        """Of that message; 0 if it is not there, or cannot be read: the other figures are of use all the same."""
        try:
            return self._read_store_time(queue.entry(offset).offset) if queue.min <= offset < queue.max else 0
        except StoreError:
            return 0

    async def consume_stats(self, request: GetConsumeStats, _call: Call) -> ConsumeStats:
        group = request.consumer_group
        if self._keeps_its_own(group):
            return ConsumeStats([])
        topics = {topic for topic in request.topic_list.split(";") if topic}
        if not topics:
            found = {request.topic} if request.topic else self._offsets.topics_of(group) | self._registry.topics_of(group)
            topics = {topic for topic in found if not self._registry.has_left(group, topic)}
        configs = [config for config in map(self._topics.get, sorted(topics)) if config is not None]
        count = sum(len(_queue_ids(config)) for config in configs)
        if count > MAX_ROWS:
            about = f"{count} queues of {len(configs)} topics: at most {MAX_ROWS} in one answer; ask for one topic (-t) at a time"
            raise Refusal(ResponseCode.SYSTEM_ERROR, about)
        rows = await asyncio.to_thread(
            lambda: [self._progress(group, config, q) for config in configs for q in _queue_ids(config)]
        )
        return ConsumeStats(rows, self._stats.group_get_tps(group, [config.name for config in configs]))

    def _keeps_its_own(self, group: str) -> bool:
        """A broadcast group: each member keeps its offsets where it runs; offsets stored here, if any, are old."""
        view = self._registry.connection_view(group)
        return view is not None and view.message_model == BROADCASTING

    def _progress(self, group: str, config: TopicConfig, queue_id: int) -> QueueProgress:
        queue = self._queues.look(config.name, queue_id)
        reached = self._offsets.query(group, config.name, queue_id)
        consumed = -1 if reached is None else reached
        stored = self._store_time(queue, consumed - 1)
        mq = MessageQueue(config.name, self._broker_name, queue_id)
        pulled = min(self._offsets.pull_offset(group, config.name, queue_id), max(queue.max, consumed, 0))
        return QueueProgress(mq, queue.max, max(consumed, 0), pulled, stored)

    async def time_spans(self, request: GetTimeSpans, _call: Call) -> TimeSpans:
        """[AdminBrokerProcessor.queryConsumeTimeSpan]"""
        config, now_ms = self._known(request.topic), self._clock.wall_ms()
        return TimeSpans(
            await asyncio.to_thread(
                lambda: [self._time_span(request, queue_id, now_ms) for queue_id in range(config.write_queue_nums)]
            )
        )

    def _time_span(self, request: GetTimeSpans, queue_id: int, now_ms: int) -> TimeSpan:
        queue = self._queues.look(request.topic, queue_id)
        low, high = queue.min, queue.max
        offset = max(self._offsets.query(request.group, request.topic, queue_id) or 0, low)
        first, last, consumed, waiting = (self._store_time(queue, at) or -1 for at in (low, high - 1, offset - 1, offset))
        delay_ms = max(0, now_ms - waiting) if waiting > 0 else 0
        mq = MessageQueue(request.topic, self._broker_name, queue_id)
        return TimeSpan(mq, first, last, consumed if consumed > 0 else first, delay_ms)

    def corrections(self, request: GetCorrections, _call: Call) -> Corrections:
        """[AdminBrokerProcessor.queryCorrectionOffset]. RocketMQ deletes the offsets of the groups that are left out; nothing is
        deleted here."""
        config = self._topics.get(request.topic)
        if config is None:
            return Corrections({})
        groups = self._offsets.groups_of(request.topic) - set(request.filter_groups.split(","))
        found = {queue_id: self._correction(request, groups, queue_id) for queue_id in _queue_ids(config)}
        return Corrections({queue_id: offset for queue_id, offset in found.items() if offset is not None})

    def _correction(self, request: GetCorrections, groups: Iterable[str], queue_id: int) -> int | None:
        known = [self._offsets.query(group, request.topic, queue_id) for group in groups]
        low = self._queues.look(request.topic, queue_id).min
        lowest = min((offset for offset in known if offset is not None and offset >= low), default=None)
        compared = self._offsets.query(request.compare_group, request.topic, queue_id)
        return _BEHIND if lowest is not None and compared is not None and lowest > compared else lowest

    async def entries(self, request: GetQueueEntries, _call: Call) -> QueueEntries:
        """[AdminBrokerProcessor.queryConsumeQueue]"""
        return await asyncio.to_thread(self._entries, request)

    def _entries(self, request: GetQueueEntries) -> QueueEntries:
        if request.queue_id not in _queue_ids(self._known(request.topic)):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{request.queue_id}@{request.topic} is not exist!")
        queue, group = self._queues.look(request.topic, request.queue_id), request.consumer_group
        wanted = self._registry.subscription(group, request.topic) if group else None
        about = "" if not group else "null" if wanted else f"{group}@{request.topic} is not online!"
        codes, rows = _codes(wanted), []
        for at in range(max(request.start, queue.min), min(queue.max, request.start + min(request.most, MAX_ENTRIES))):
            entry = queue.entry(at)
            eval_ = wanted is not None and (codes is None or entry.tags_code in codes)
            rows.append(QueueEntry(entry.offset, entry.size, entry.tags_code, eval_))
        return QueueEntries(rows, queue.min, queue.max, [] if wanted is None else [wanted], about)

    def _known(self, topic: str) -> TopicConfig:
        if (config := self._topics.get(topic)) is None:
            raise no_topic(topic)
        return config

    def consumed_by(self, request: QueryTopicConsumeByWho, _call: Call) -> GroupList:
        return GroupList(sorted(self._offsets.groups_of(request.topic) | self._registry.groups_of(request.topic)))


class RuntimeInfoHandler:
    """RocketMQ's runtime info: `facts` give this node's own values, later ones override earlier ones; this adds the rates."""

    def __init__(self, stats: BrokerStats, *facts: Callable[[], Iterable[tuple[str, object]]]) -> None:
        self._stats = stats
        self._facts = facts

    async def runtime_info(self, _request: GetRuntimeInfo, _call: Call) -> RuntimeInfo:
        stats = self._stats
        await stats.refresh()
        table = {name: str(value) for some in self._facts for name, value in some()}
        table |= {
            "putTps": stats.put.text(),
            "getFoundTps": stats.found.text(),
            "getMissTps": stats.missed.text(),
            "getTotalTps": stats.found.text().strip(),
            "getTransferredTps": stats.transferred.text(),
            "getTransferedTps": stats.transferred.text(),  # so did RocketMQ spell it up to 4.9, and so rocketmq-exporter reads it
            "putMessageTimesTotal": str(stats.came.total),
            "putMessageSizeTotal": str(stats.came_bytes.total),
            "putMessageAverageSize": f"{stats.came_bytes.total / max(stats.came.total, 1):.1f}",
        }
        return RuntimeInfo(dict(sorted(table.items())))


def _codes(wanted: Subscription | None) -> frozenset[int] | None:
    """Hashes of the tags that the group wants; None: all messages, or a filter that looks at the messages themselves."""
    try:
        return None if wanted is None else filters.tag_codes(filters.selection(wanted.expression, wanted.expression_type))
    except Refusal:  # a client may subscribe to nonsense: it is refused when it pulls
        return None


def _queue_ids(config: TopicConfig) -> range:
    return range(max(config.read_queue_nums, config.write_queue_nums))
