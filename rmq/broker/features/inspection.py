"""What operators ask: how queues, groups and the broker itself are doing."""

import time
from collections.abc import Callable, Iterable

from rmq.broker.feature import At, Feature, Job
from rmq.broker.handlers.inspect import InspectHandlers, RuntimeInfoHandler
from rmq.broker.handlers.statistics import StatisticsHandlers
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.ports import Reader
from rmq.broker.shared.stats import SAMPLE_S
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.delivery.groups import ConsumerRegistry
from rmq.delivery.offsets import OffsetTable
from rmq.log.queues.queues import ConsumeQueues
from rmq.net.commands import GetRuntimeInfo
from rmq.routing.topics import is_system_topic


class Inspection(Feature):
    """`facts()`: names and values for the runtime info."""

    def __init__(
        self,
        settings: NodeSettings,
        catalog: Catalog,
        offsets: OffsetTable,
        registry: ConsumerRegistry,
        reader: Reader,
        facts: Callable[[], Iterable[tuple[str, object]]],
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._cluster = settings.cluster_name
        queues = InspectHandlers(
            settings.broker_name, catalog.topics, offsets, registry, reader.store_time, reader.queues, reader.stats
        )
        broker = RuntimeInfoHandler(reader.stats, facts)
        counted = StatisticsHandlers(
            reader.address, reader.stats, catalog.topics, offsets.groups_and_topics, queues.consume_stats, clock
        )
        self.handlers = {**queues.by_request(), **counted.by_request(), GetRuntimeInfo: broker.runtime_info}
        self.jobs = (Job(SAMPLE_S, "rates", self._sample, At.EVERYWHERE),)
        self._sample()

    def _sample(self) -> None:
        clock = self._clock
        stats, now = self._reader.stats, clock.monotonic()
        stats.sample(now, time.localtime(clock.wall_ms() / 1000).tm_yday)
        stats.note(now, self._cluster, _came_bytes(self._reader.queues))


def _came_bytes(queues: ConsumeQueues) -> dict[str, int]:
    """Of each topic, what this process appended."""
    sizes: dict[str, int] = {}
    for queue in queues.all():
        if queue.came_bytes:
            sizes[queue.topic] = sizes.get(queue.topic, 0) + queue.came_bytes
    return sizes


def topic_ends(queues: ConsumeQueues) -> dict[str, int]:
    """Messages ever stored in each topic of users."""
    ends: dict[str, int] = {}
    for queue in queues.all():
        if not is_system_topic(queue.topic):
            ends[queue.topic] = ends.get(queue.topic, 0) + queue.max
    return ends
