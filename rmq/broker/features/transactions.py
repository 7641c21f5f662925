"""Transactions: half messages, their end, and the questions to producers that were silent."""

from rmq.broker.catalog import Catalog
from rmq.broker.feature import Feature
from rmq.broker.handlers.transactions import TransactionHandlers
from rmq.broker.held.halves import half_taker
from rmq.broker.held.intake import Intake, Taker
from rmq.broker.held.outlet import Outlet
from rmq.broker.held.transactions import CheckService, CheckSettings, Producers
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.delivery.transactions import ASIDE_TOPIC, HalfTable
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
        immunity_ms = settings.transaction_timeout_ms
        limits = CheckSettings(
            immunity_ms, settings.transaction_check_interval_ms / 1000, settings.transaction_check_max, settings.broker_name
        )
        self.taker: Taker = half_taker(table, reject=settings.reject_transactions)
        self.checks = CheckService(table, outlet, limits, producers, self._make_aside, clock)
        self.handlers = TransactionHandlers(table, outlet, later, immunity_ms, clock).by_request()
        self.jobs = self.checks.jobs

    async def carry(self, below: int) -> None:
        await self.checks.carry(below)

    async def _make_aside(self) -> None:
        if self._catalog.topic(ASIDE_TOPIC) is None:
            await self._catalog.create(TopicConfig(ASIDE_TOPIC, 1, 1))
