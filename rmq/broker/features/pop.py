"""POP: messages are handed out for a time, and acknowledged, or they come back."""

import random
from collections.abc import Callable, Iterable

from rmq.broker.feature import Export, Feature, Job
from rmq.broker.handlers.ack import AckHandler
from rmq.broker.handlers.pop import PopHandler
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.pending.ordered import OrderedPopReader
from rmq.broker.pending.popreader import PopReader
from rmq.broker.pending.popwaits import PopWaits
from rmq.broker.pending.receipts import ReceiptWriter
from rmq.broker.pending.revive import ReviveService
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.ports import Reader
from rmq.broker.shared.stats import counted
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.delivery.orders import orders_json
from rmq.measures import Family, gauge
from rmq.net.commands.pop import Ack, Pop as PopRequest, PopAnswer

SWEEP_S = 1.0


class Pop(Feature):
    """`ordered`: ordered pops; `receipts`: the state of the others. `check_in_touch`: as of `AckHandler`."""

    def __init__(
        self,
        ordered: OrderedPopReader,
        waits: PopWaits,
        receipts: ReceiptWriter,
        catalog: Catalog,
        check_in_touch: Callable[[], None],
        clock: Clock,
        chance: random.Random,
    ) -> None:
        self._places = places = ordered.reader
        self._clock = clock
        self._waits = waits
        self._pop_reader = pop_reader = PopReader(places, receipts.table, receipts, waits.freed)
        ordered.told.append(lambda place, opens_ms: None if opens_ms else waits.freed(*place))
        self._pops = pops = PopHandler(catalog, pop_reader, ordered, waits, receipts, clock, chance)
        acks = AckHandler(receipts.table, catalog.known_topic, places.reader.queues, receipts, ordered, check_in_touch, clock)
        self.handlers = {
            **pops.by_request(),
            **acks.by_request(),
            PopRequest: counted(pops.pop, places.reader.stats, _handed_out),
        }
        self.takes = {Ack: acks.take}
        self.jobs = (Job(SWEEP_S, "pops that wait", self._sweep),)
        self.exports = {"consumerOrderInfo.json": Export(lambda: orders_json(ordered.table), empty={"table": {}})}

    async def on_settings(self, settings: NodeSettings) -> None:
        self._pops.change_settings(settings)

    async def carry_forward(self, below: int) -> None:
        self._places.leave(below)

    def on_group_changed(self, group: str) -> None:
        self._waits.group_changed(group)

    def _sweep(self) -> None:
        self._pop_reader.free_decided()
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


def _handed_out(answer: PopAnswer) -> int:
    return answer.msg_offset_info.count(";") + answer.msg_offset_info.count(",") + 1
