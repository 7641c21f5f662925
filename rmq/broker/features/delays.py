"""Delayed messages: after a delay level, or at a time of their own; these can be recalled."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from rmq.broker.feature import Export, Feature
from rmq.broker.handlers.recall import RecallHandler
from rmq.broker.pending.delayexport import DelayExport
from rmq.broker.pending.delayintake import LevelIntake, TimerIntake
from rmq.broker.pending.delays import DelayService, TimerInterceptor, take_level
from rmq.broker.pending.intake import FastInterceptor, Interceptor
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.shared.ports import Reader
from rmq.broker.shared.state import Line
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.delivery.due import Cancelling, DueTable
from rmq.log.records.delays import LEVELS_MS
from rmq.measures import Family, gauge
from rmq.routing.topics import TopicTable


class Delays(Feature):
    """`commit` writes state lines. `interceptors`: one for each of the two kinds, for the intake; `fast`: before them."""

    def __init__(
        self,
        settings: NodeSettings,
        table: DueTable,
        topics: TopicTable,
        reader: Reader,
        internal_producer: InternalProducer,
        commit: Callable[[list[Line]], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._table, self._clock = table, clock
        self._timers = timers = TimerInterceptor(clock, settings.broker_name, settings.timer_max_delay_s)
        self.interceptors: Sequence[Interceptor] = (timers.take, partial(take_level, delays_ms=settings.delays_ms))
        levels = (LevelIntake(table, internal_producer),) if tuple(settings.delays_ms) == LEVELS_MS else ()
        self.fast: Sequence[FastInterceptor] = (*levels, TimerIntake(table, internal_producer, timers))
        cancelling = Cancelling()
        self._service = DelayService(table, cancelling, internal_producer, commit, topics, clock)
        self._export = DelayExport(table, reader.log, reader.queues, settings.store_dir, clock, settings.timer_log_file_bytes)
        self._recalls = RecallHandler(
            timers, cancelling, internal_producer, clock, settings.broker_name, settings.recall_messages
        )
        self.handlers = self._recalls.by_request()
        self.jobs = self._service.jobs
        self.exports = {"delayOffset.json": Export(self._export.delay_offsets), "timercheck": Export(self._export.timercheck)}

    async def on_settings(self, settings: NodeSettings) -> None:
        self._timers.max_delay_s = settings.timer_max_delay_s
        self._recalls.enabled = settings.recall_messages

    def facts(self) -> Iterable[tuple[str, object]]:
        return self._export.facts()

    def led_metrics(self) -> Iterable[Family]:
        first_ms = self._table.first_ms()
        late_ms = 0 if first_ms is None else max(0, self._clock.wall_ms() - first_ms)
        yield gauge("rmq_delayed_messages", "messages that wait for their time", self._table.pending)
        about = "how late the earliest message is that should have come"
        yield gauge("rocketmq_timer_dequeue_latency_milliseconds", about, late_ms)

    async def begin(self) -> None:
        self._export.begin()

    async def finish(self) -> None:
        await self._export.finish()

    async def carry_forward(self, below: int) -> None:
        await self._service.carry_forward(below)
