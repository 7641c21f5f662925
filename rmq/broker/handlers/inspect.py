"""Operators' questions: queues of a topic, progress of a group, readers of a topic, and how the broker is doing."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rmq.broker.shared.stats import BrokerStats
from rmq.codes import ResponseCode
from rmq.delivery.groups import ConsumerRegistry
from rmq.delivery.offsets import OffsetTable
from rmq.errors import Refusal, no_topic
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.queues.queues import ConsumeQueues
from rmq.model import BROADCASTING, MessageQueue, QueueProgress, QueueStats, TopicConfig
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
from rmq.net.transport.server import Call, Handler
from rmq.routing.topics import TopicTable

MAX_ROWS = 50_000  # queues in one answer: each takes some 250 bytes in RocketMQ's form


class InspectHandlers:
    """Reads store times from the log, so these answers are made in a thread."""

    def __init__(
        self,
        broker_name: str,
        topics: TopicTable,
        offsets: OffsetTable,
        registry: ConsumerRegistry,
        store_time: Callable[[int], int],
        queues: ConsumeQueues,
        stats: BrokerStats,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._offsets = offsets
        self._registry = registry
        self._read_store_time = store_time
        self._queues = queues
        self._stats = stats

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {
            GetTopicStats: self.topic_stats,
            GetConsumeStats: self.consume_stats,
            QueryTopicConsumeByWho: self.consumed_by,
        }

    async def topic_stats(self, request: GetTopicStats, _call: Call) -> TopicStats:
        if (config := self._topics.get(request.topic)) is None:
            raise no_topic(request.topic)
        rows = await asyncio.to_thread(lambda: [self._queue_stats(config, queue_id) for queue_id in _queue_ids(config)])
        return TopicStats(rows, self._stats.topic_put_tps(config.name))

    def _queue_stats(self, config: TopicConfig, queue_id: int) -> QueueStats:
        queue = self._queues.look(config.name, queue_id)
        low, high = queue.min, queue.max
        stored = self._store_time(queue, high - 1)
        return QueueStats(MessageQueue(config.name, self._broker_name, queue_id), low, high, stored)

    def _store_time(self, queue: ConsumeQueue, offset: int) -> int:
        return self._read_store_time(queue.entry(offset).offset) if queue.min <= offset < queue.max else 0

    async def consume_stats(self, request: GetConsumeStats, _call: Call) -> ConsumeStats:
        group = request.consumer_group
        if self._keeps_its_own(group):
            return ConsumeStats([])
        topics = [request.topic] if request.topic else sorted({t for t in request.topic_list.split(";") if t})
        topics = topics or sorted(self._offsets.topics_of(group) | self._registry.topics_of(group))
        configs = [config for config in map(self._topics.get, topics) if config is not None]
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
        return QueueProgress(mq, queue.max, max(consumed, 0), max(consumed, 0), stored)

    def consumed_by(self, request: QueryTopicConsumeByWho, _call: Call) -> GroupList:
        return GroupList(sorted(self._offsets.groups_of(request.topic) | self._registry.groups_of(request.topic)))


class RuntimeInfoHandler:
    """RocketMQ's runtime info: `facts` give this node's own values, later ones override earlier ones; this adds the rates."""

    def __init__(self, stats: BrokerStats, *facts: Callable[[], Iterable[tuple[str, object]]]) -> None:
        self._stats = stats
        self._facts = facts

    def runtime_info(self, _request: GetRuntimeInfo, _call: Call) -> RuntimeInfo:
        stats = self._stats
        stats.refresh()
        table = {name: str(value) for some in self._facts for name, value in some()}
        table |= {
            "putTps": stats.put.text(),
            "getFoundTps": stats.found.text(),
            "getMissTps": stats.missed.text(),
            "getTotalTps": stats.found.text().strip(),
            "getTransferredTps": stats.transferred.text(),
            "getTransferedTps": stats.transferred.text(),  # so did RocketMQ spell it up to 4.9, and so rocketmq-exporter reads it
            "msgPutTotalTodayNow": str(stats.put.total),
            "msgPutTotalTodayMorning": str(stats.put_days.today),
            "msgPutTotalYesterdayMorning": str(stats.put_days.yesterday),
            "msgGetTotalTodayNow": str(stats.transferred.total),
            "msgGetTotalTodayMorning": str(stats.get_days.today),
            "msgGetTotalYesterdayMorning": str(stats.get_days.yesterday),
            "putMessageTimesTotal": str(stats.put.total),
            "putMessageSizeTotal": str(stats.put_bytes.total),
            "putMessageAverageSize": f"{stats.put_bytes.total / max(stats.put.total, 1):.1f}",
        }
        return RuntimeInfo(dict(sorted(table.items())))


def _queue_ids(config: TopicConfig) -> range:
    return range(max(config.read_queue_nums, config.write_queue_nums))
