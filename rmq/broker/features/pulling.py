"""Pulling, and the pulls that wait."""

from rmq.broker.catalog import Catalog
from rmq.broker.feature import At, Feature, Job
from rmq.broker.handlers.pull import Guide, PullHandler, Readers
from rmq.broker.longpoll import LongPolls
from rmq.broker.ports import Reader
from rmq.clock import Clock
from rmq.delivery.groups import ConsumerRegistry
from rmq.net.commands import CheckClient, Pull

SWEEP_S = 1.0


class Pulling(Feature):
    """For the arguments see `PullHandler`."""

    def __init__(
        self,
        reader: Reader,
        catalog: Catalog,
        registry: ConsumerRegistry,
        readers: Readers,
        guide: Guide,
        polls: LongPolls,
        clock: Clock,
    ) -> None:
        self._polls = polls
        self._clock = clock
        pulls = PullHandler(reader, catalog, registry.subscription, readers, guide, polls, clock)
        self.handlers = {Pull: pulls.pull, CheckClient: pulls.check}
        self.jobs = (Job(SWEEP_S, "long polls", self._sweep, At.EVERYWHERE),)

    def _sweep(self) -> None:
        self._polls.sweep(self._clock.monotonic())

    def stopping(self) -> None:
        self._polls.wake_all()

    def on_left(self) -> None:
        self._polls.wake_all()

    def on_topic(self, topic: str) -> None:
        self._polls.topic_changed(topic)

    def on_group(self, group: str) -> None:
        self._polls.groups_changed((group,))
