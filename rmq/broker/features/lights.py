"""Light queues: how many there are, and the end of those whose messages have all expired [ConsumeQueueStore.cleanExpired]."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set

from rmq.broker.feature import Feature, Job
from rmq.broker.shared.catalog import Catalog
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.queues.queues import ConsumeQueues
from rmq.measures import Family, gauge

CLEAN_S = 60.0
MOST_AT_ONCE = 500


class Lights(Feature):
    """`drop_pending(topics)` drops commits of offsets there that are not written yet."""

    def __init__(self, catalog: Catalog, queues: ConsumeQueues, drop_pending: Callable[[Set[str]], None]) -> None:
        self._catalog, self._queues, self._drop_pending = catalog, queues, drop_pending
        self.jobs = (Job(CLEAN_S, "light queues", self.clean),)

    def metrics(self) -> Iterable[Family]:
        yield gauge("rmq_light_queues", "light queues (%LMQ%)", len(self._queues.lights()))

    async def clean(self) -> None:
        """Deletes empty ones. Raises Refusal."""
        found = (self._queues.find(name, 0) for name in list(self._queues.lights()))
        empty = [queue for queue in found if queue is not None and _is_spent(queue)][:MOST_AT_ONCE]
        await self.end({queue.topic: queue.next for queue in empty})

    async def end(self, ends: Mapping[str, int]) -> None:
        """Deletes those to which nothing was written behind that queue offset, with the offsets in them: one that is written to
        again begins at 0. Raises Refusal."""
        topics = self._catalog.topics
        names = [name for name in ends if not topics.is_leaving(name)]
        for name in names:
            topics.stage(name, None)  # from now on nobody proposes a message for it
        for _ in range(2):
            await asyncio.sleep(0)  # what was proposed is appended
        over = [name for name in names if (queue := self._queues.find(name, 0)) is not None and queue.next == ends[name]]
        for name in names:
            if name not in over:
                topics.unstage(name)
        self._drop_pending({*over})
        if over:
            await self._catalog.commit([("topic", name, None) for name in over])


def _is_spent(queue: ConsumeQueue) -> bool:
    """Whether it had messages, and they are gone."""
    return 0 < queue.min == queue.max == queue.next
