"""Pulling, and the pulls that wait."""

from collections.abc import Iterable, Iterator

from rmq.broker.feature import At, Feature, Job
from rmq.broker.handlers.pull import Guide, PullHandler
from rmq.broker.shared.longpoll import LongPolls
from rmq.broker.shared.ports import Reader
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.delivery.groups import GroupTable
from rmq.measures import Family, Row, counter, gauge
from rmq.model import RETRY_PREFIX
from rmq.net.commands import CheckClient, Pull
from rmq.routing.topics import is_system_topic

SWEEP_S = 1.0


class Pulling(Feature):
    def __init__(
        self, pulls: PullHandler, groups: GroupTable, reader: Reader, guide: Guide, polls: LongPolls, clock: Clock
    ) -> None:
        self._polls, self._groups, self._reader, self._guide = polls, groups, reader, guide
        self._stats = reader.stats
        self._clock = clock
        self.handlers = {Pull: pulls.pull, CheckClient: pulls.check}
        self.takes = {Pull: pulls.take}
        self.jobs = (Job(SWEEP_S, "long polls", self._sweep, At.EVERYWHERE),)

    async def on_settings(self, settings: NodeSettings) -> None:
        self._reader.limit(settings)
        self._guide.follower_reads = settings.follower_reads

    def _sweep(self) -> None:
        self._polls.sweep(self._clock.monotonic())

    def metrics(self) -> Iterable[Family]:
        labels, out = ("topic", "consumer_group", "is_retry", "is_system"), self._stats.out
        yield Family("rocketmq_messages_out_total", "counter", "messages handed out", labels, _rows(out, 0))
        yield Family("rocketmq_throughput_out_total", "counter", "bytes handed out", labels, _rows(out, 1))
        yield counter("rmq_pulls_found_total", "pulls and pops that got messages", self._stats.found.total)
        yield counter("rmq_pulls_missed_total", "pulls and pops that got none", self._stats.missed.total)
        yield gauge("rmq_long_polls", "pulls that wait for messages", len(self._polls))

    def stopping(self) -> None:
        self._polls.wake_all()

    def on_leadership_lost(self) -> None:
        self._polls.wake_all()

    def on_topic_changed(self, topic: str) -> None:
        self._polls.topic_changed(topic)

    def on_group_changed(self, group: str) -> None:
        self._polls.groups_changed((group,))
        if self._groups.get(group) is None:
            self._stats.forget_group(group)


def _rows(out: dict[tuple[str, str], list[int]], which: int) -> Iterator[Row]:
    for (topic, group), row in list(out.items()):
        yield (topic, group, _said(topic.startswith(RETRY_PREFIX)), _said(is_system_topic(topic))), float(row[which])


def _said(holds: bool) -> str:
    return "true" if holds else "false"
