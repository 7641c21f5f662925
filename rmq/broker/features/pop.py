"""POP: messages are handed out for a time, and acknowledged, or they come back."""

import random
from collections.abc import Awaitable, Callable, Iterable

from rmq.broker.feature import Feature, Job
from rmq.broker.handlers.ack import AckHandler
from rmq.broker.handlers.pop import PopHandler
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.pending.ordered import OrderedPopReader
from rmq.broker.pending.popreader import PopReader, QueueReader
from rmq.broker.pending.popwaits import PopWaits
from rmq.broker.pending.receipts import ReceiptWriter
from rmq.broker.pending.revive import ReviveService
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.longpoll import LongPolls
from rmq.broker.shared.ports import Reader
from rmq.broker.shared.stats import BrokerStats
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.delivery.orders import OrderTable, orders_json
from rmq.measures import Family, gauge
from rmq.net.commands.pop import Pop as PopRequest, PopAnswer
from rmq.net.transport.server import Call, Handler

SWEEP_S = 1.0


class Pop(Feature):
    """`places`: the groups' offsets. `orders`: the state of ordered pops; `receipts`: the state of the others."""

    def __init__(
        self,
        places: QueueReader,
        orders: OrderTable,
        receipts: ReceiptWriter,
        catalog: Catalog,
        polls: LongPolls,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        self._places = places
        self._clock = clock
        self._waits = waits = PopWaits(polls)
        pop_reader = PopReader(places, receipts.table, receipts, waits.freed)
        ordered = OrderedPopReader(places, orders, waits.freed)
        self._pops = pops = PopHandler(catalog, pop_reader, ordered, waits, receipts, clock, chance)
        acks = AckHandler(receipts.table, catalog.known_topic, places.reader.queues, receipts, ordered, clock)
        self.handlers = {**pops.by_request(), **acks.by_request(), PopRequest: _counted(pops.pop, places.reader.stats)}
        self.jobs = (Job(SWEEP_S, "pops that wait", self._sweep),)
        self.exports = {"consumerOrderInfo.json": lambda: orders_json(orders)}

    async def on_settings(self, settings: NodeSettings) -> None:
        self._pops.change_settings(settings)

    async def carry_forward(self, below: int) -> None:
        self._places.leave(below)

    def on_group_changed(self, group: str) -> None:
        self._waits.group_changed(group)

    def _sweep(self) -> None:
        self._waits.sweep(self._clock.monotonic())


class Revival(Feature):
    """Popped messages that nobody acknowledged come back. `waits_from_ms`: as for `ReviveService`."""

    def __init__(
        self,
        catalog: Catalog,
        reader: Reader,
        internal_producer: InternalProducer,
        receipts: ReceiptWriter,
        waits_from_ms: Callable[[], int | None],
        clock: Clock,
    ) -> None:
        self._table, self._clock = receipts.table, clock
        self._service = ReviveService(receipts.table, catalog, reader.queues, internal_producer, receipts, waits_from_ms, clock)
        self.jobs = self._service.jobs

    async def on_settings(self, settings: NodeSettings) -> None:
        self._service.separate = settings.separate_retry_queues

    def led_metrics(self) -> Iterable[Family]:
        late_ms = self._table.overdue_ms(self._clock.wall_ms())
        yield gauge(
            "rocketmq_pop_checkpoint_buffer_size", "pops that are not acknowledged, and whose time is not over", len(self._table)
        )
        yield gauge(
            "rocketmq_pop_revive_latency_milliseconds", "how late the first popped message is that should be back", late_ms
        )

    async def carry_forward(self, below: int) -> None:
        await self._service.carry_forward(below)


def _counted(pop: Callable[[PopRequest, Call], Awaitable[PopAnswer]], stats: BrokerStats) -> Handler:
    async def counted(request: PopRequest, call: Call) -> PopAnswer:
        answer = await pop(request, call)
        if answer.status:
            stats.missed.total += 1
        else:
            count = answer.msg_offset_info.count(";") + answer.msg_offset_info.count(",") + 1
            stats.handed_out(call, request.topic, request.consumer_group, count, len(answer.messages))
        return answer

    return counted
