"""What operators ask: how queues, groups and the broker itself are doing."""

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
from rmq.net.commands import GetRuntimeInfo


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
        queues = InspectHandlers(catalog.topics, offsets, registry, reader, clock)
        broker = RuntimeInfoHandler(reader.stats, facts)
        counted = StatisticsHandlers(
            reader.address, reader.stats, catalog.topics, offsets.groups_and_topics, queues.consume_stats
        )
        self.handlers = {**queues.by_request(), **counted.by_request(), GetRuntimeInfo: broker.runtime_info}
        self.jobs = (Job(SAMPLE_S, "rates", self._sample, At.EVERYWHERE, first_s=0.0),)

    async def _sample(self) -> None:
        await self._reader.stats.sample(self._clock.monotonic(), self._cluster)
