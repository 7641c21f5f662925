"""Transactions: half messages, their end, and the questions to producers that were silent."""

from collections.abc import Iterable

from rmq.broker.catalog import Catalog
from rmq.broker.feature import Feature
from rmq.broker.handlers.transactions import TransactionHandlers
from rmq.broker.held.halves import half_taker
from rmq.broker.held.intake import Intake, Taker
from rmq.broker.held.outlet import Outlet
from rmq.broker.held.transactions import CheckService, CheckSettings, Producers
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.delivery.transactions import ASIDE_TOPIC, COMMITTED, PUT_ASIDE, ROLLED_BACK, HalfTable
from rmq.measures import Family, counter
from rmq.model import TopicConfig


class Transactions(Feature):
    """`later`: what waits again when it is committed. `taker`: of halves, for the intake."""

    def __init__(
        self,
        settings: NodeSettings,
        table: HalfTable,
        catalog: Catalog,
        outlet: Outlet,
        producers: Producers,
        later: Intake,
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._table = table
        immunity_ms = settings.transaction_timeout_ms
        limits = CheckSettings(
            immunity_ms, settings.transaction_check_interval_ms / 1000, settings.transaction_check_max, settings.broker_name
        )
        self.taker: Taker = half_taker(table, reject=settings.reject_transactions)
        self.checks = CheckService(table, outlet, limits, producers, self._make_aside, clock)
        self.handlers = TransactionHandlers(table, outlet, later, immunity_ms, clock).by_request()
        self.jobs = self.checks.jobs

    def led_metrics(self) -> Iterable[Family]:
        halves = [((group,), float(count)) for group, count in self._table.open_groups()]
        yield Family("rocketmq_half_messages", "gauge", "transactions without an outcome", ("producer_group",), halves)
        ended = self._table.outcomes
        yield counter("rocketmq_commit_messages_total", "transactions that were committed", ended[COMMITTED])
        yield counter("rocketmq_rollback_messages_total", "transactions that were rolled back", ended[ROLLED_BACK])
        yield counter("rmq_transactions_put_aside_total", "transactions that were asked after too often", ended[PUT_ASIDE])
        asked = [(("false",), float(self.checks.asked)), (("true",), float(self.checks.asked_again))]
        about = "questions to producers what became of a transaction; again: not the first one"
        yield Family("rmq_transaction_checks_total", "counter", about, ("again",), asked)

    async def carry(self, below: int) -> None:
        await self.checks.carry(below)

    async def _make_aside(self) -> None:
        if self._catalog.topic(ASIDE_TOPIC) is None:
            await self._catalog.create(TopicConfig(ASIDE_TOPIC, 1, 1))
