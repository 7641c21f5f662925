"""Transactions: half messages, their end, and the questions to producers that stay silent."""

from collections.abc import Iterable

from rmq.broker.feature import Feature
from rmq.broker.handlers.halves import OpenHalvesHandler
from rmq.broker.handlers.transactions import TransactionHandlers
from rmq.broker.pending.halfintake import HalfIntake
from rmq.broker.pending.halves import half_interceptor
from rmq.broker.pending.intake import Interceptor
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.pending.transactions import CheckService, CheckSettings, Producers
from rmq.broker.shared.catalog import Catalog
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.delivery.transactions import COMMITTED, PARKED, PARKED_TOPIC, ROLLED_BACK, HalfTable
from rmq.measures import Family, counter
from rmq.model import TopicConfig
from rmq.net.commands.transactions import EndTransaction


class Transactions(Feature):
    """`interceptor`: recognises halves; `halves` takes usual ones before."""

    def __init__(
        self,
        settings: NodeSettings,
        table: HalfTable,
        catalog: Catalog,
        internal_producer: InternalProducer,
        producers: Producers,
        ending: TransactionHandlers,
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._table = table
        self.halves = halves = HalfIntake(table, settings.reject_transactions, internal_producer)
        self.interceptor: Interceptor = half_interceptor(table, lambda: halves.rejects)
        self.checks = CheckService(table, internal_producer, _limits(settings), producers, self._make_parked_topic, clock)
        self._ending = ending
        shown = OpenHalvesHandler(table, lambda: self.checks.settings, clock)
        self.handlers = {**ending.by_request(), **shown.by_request()}
        self.takes = {EndTransaction: ending.take}
        self.jobs = self.checks.jobs

    async def on_settings(self, settings: NodeSettings) -> None:
        self.halves.rejects = settings.reject_transactions
        self.checks.settings = _limits(settings)
        self._ending.immunity_ms = settings.transaction_timeout_ms

    def led_metrics(self) -> Iterable[Family]:
        halves = [((group,), float(count)) for group, count in self._table.open_groups()]
        yield Family("rocketmq_half_messages", "gauge", "transactions without an outcome", ("producer_group",), halves)
        ended = self._table.outcomes
        yield counter("rocketmq_commit_messages_total", "transactions that were committed", ended[COMMITTED])
        yield counter("rocketmq_rollback_messages_total", "transactions that were rolled back", ended[ROLLED_BACK])
        yield counter("rmq_transactions_put_aside_total", "transactions that were asked after too often", ended[PARKED])
        asked = [(("false",), float(self.checks.asked)), (("true",), float(self.checks.asked_again))]
        about = "questions to producers what became of a transaction; again: not the first one"
        yield Family("rmq_transaction_checks_total", "counter", about, ("again",), asked)

    async def carry_forward(self, below: int) -> None:
        await self.checks.carry_forward(below)

    async def _make_parked_topic(self) -> None:
        if self._catalog.topic(PARKED_TOPIC) is None:
            await self._catalog.create(TopicConfig(PARKED_TOPIC, 1, 1))


def _limits(settings: NodeSettings) -> CheckSettings:
    every_s = settings.transaction_check_interval_ms / 1000
    return CheckSettings(settings.transaction_timeout_ms, every_s, settings.transaction_check_max, settings.broker_name)
