"""Light queues: how many there are, and the end of those whose messages have all expired [ConsumeQueueStore.cleanExpired]."""

import asyncio
from collections.abc import Callable, Iterable

from rmq.broker.feature import Feature, Job
from rmq.broker.shared.catalog import Catalog
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.queues.queues import ConsumeQueues
from rmq.measures import Family, gauge

CLEAN_S = 60.0
MOST_AT_ONCE = 500


class Lights(Feature):
    """`drop_pending(topic)` drops commits of offsets there that are not written yet."""

    def __init__(self, catalog: Catalog, queues: ConsumeQueues, drop_pending: Callable[[str], None]) -> None:
        self._catalog, self._queues, self._drop_pending = catalog, queues, drop_pending
        self.jobs = (Job(CLEAN_S, "light queues", self.clean),)

    def metrics(self) -> Iterable[Family]:
        yield gauge("rmq_light_queues", "light queues (%LMQ%)", len(self._queues.lights()))

    async def clean(self) -> None:
        """Deletes empty ones, with the offsets in them: one that is written to again begins at 0. Raises Refusal."""
        queues, topics = self._queues, self._catalog.topics
        found = (queues.find(name, 0) for name in list(queues.lights()))
        empty = [queue for queue in found if queue is not None and _is_spent(queue)][:MOST_AT_ONCE]
        for queue in empty:
            topics.stage(queue.topic, None)  # from now on nobody proposes a message for it
        for _ in range(2):
            await asyncio.sleep(0)  # what was proposed is appended
        spent = [queue.topic for queue in empty if _is_spent(queue)]
        for queue in empty:
            if queue.topic not in spent:
                topics.unstage(queue.topic)
        for name in spent:
            self._drop_pending(name)
        if spent:
            await self._catalog.commit([("topic", name, None) for name in spent])


def _is_spent(queue: ConsumeQueue) -> bool:
    """Whether it had messages, and they are gone."""
    return 0 < queue.min == queue.max == queue.next
