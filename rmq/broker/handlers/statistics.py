"""Counts and rates as RocketMQ's tools ask for them [AdminBrokerProcessor.ViewBrokerStatsData, fetchAllConsumeStatsInBroker]."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from rmq.broker.shared.stats import BrokerStats
from rmq.codes import ResponseCode
from rmq.errors import NotThere, Refusal
from rmq.net.commands import ConsumeStats, GetConsumeStats
from rmq.net.commands.statistics import BrokerConsumeStats, GetBrokerConsumeStats, GetStatsData, StatsData
from rmq.net.transport.server import Call, Handler
from rmq.routing.topics import TopicTable

MAX_ROWS: Final = 50_000  # queues in one answer


class StatisticsHandlers:
    """`groups()`: groups with offsets here, with the topics of each; `consume_stats`: as `InspectHandlers`."""

    def __init__(
        self,
        address: str,
        stats: BrokerStats,
        topics: TopicTable,
        groups: Callable[[], Iterable[tuple[str, list[str]]]],
        consume_stats: Callable[[GetConsumeStats, Call], Awaitable[ConsumeStats]],
    ) -> None:
        self._address = address
        self._stats = stats
        self._topics = topics
        self._groups = groups
        self._consume_stats = consume_stats

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {GetStatsData: self.data, GetBrokerConsumeStats: self.all_progress}

    def data(self, request: GetStatsData, _call: Call) -> StatsData:
        found = self._stats.history.of(tuple(request))
        if found is None:
            raise NotThere(ResponseCode.SYSTEM_ERROR, f"The stats <{request.stats_name}> <{request.stats_key}> not exist")
        return found

    async def all_progress(self, request: GetBrokerConsumeStats, call: Call) -> BrokerConsumeStats:
        found: dict[str, list[ConsumeStats]] = {}
        count = 0
        for group, topics in sorted(self._groups()):
            for topic in topics:
                config = self._topics.get(topic)
                if config is None or (request.is_order and not config.order):
                    continue
                count += max(config.read_queue_nums, config.write_queue_nums)
                if count > MAX_ROWS:
                    about = f"more than {MAX_ROWS} queues: ask group by group (consumerProgress -g)"
                    raise Refusal(ResponseCode.SYSTEM_ERROR, about)
                found.setdefault(group, []).append(await self._consume_stats(GetConsumeStats(group, topic), call))
                await asyncio.sleep(0)
        rows = [row for some in found.values() for stats in some for row in stats.queues]
        diff = sum(row.broker_offset - row.consumer_offset for row in rows)
        return BrokerConsumeStats(self._address, found, diff, sum(max(0, row.pull_offset - row.consumer_offset) for row in rows))
