"""Joins the kinds of messages that wait: who recognises them when they come in, and who hands them on at a leader."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from rmq.broker.apply import Tables
from rmq.broker.handlers.clients import ClientHandlers
from rmq.broker.handlers.query import QueryHandlers
from rmq.broker.handlers.recall import RecallHandler
from rmq.broker.handlers.topics import TopicHandlers
from rmq.broker.handlers.transactions import Places, TransactionHandlers
from rmq.broker.held.delays import DelayService, TimerTaker, take_level
from rmq.broker.held.halves import half_taker
from rmq.broker.held.intake import Intake
from rmq.broker.held.outlet import Outlet
from rmq.broker.held.services import Service, Services
from rmq.broker.held.transactions import CheckSettings, Transactions
from rmq.broker.state import Line
from rmq.clock import Clock
from rmq.config import NodeSettings
from rmq.delivery.transactions import ASIDE_TOPIC
from rmq.model import TopicConfig


class Parts(NamedTuple):
    """What the kinds need of others. `commit` writes state lines; `host`: this broker as records name it."""

    tables: Tables
    outlet: Outlet
    commit: Callable[[list[Line]], Awaitable[None]]
    topics: TopicHandlers
    clients: ClientHandlers
    lookups: QueryHandlers
    host: bytes


def holding(settings: NodeSettings, parts: Parts, clock: Clock, *others: Service) -> tuple[Services, Intake]:
    """`others`: kinds of which nothing comes in by a send."""
    tables = parts.tables
    timers = TimerTaker(clock, settings.broker_name, settings.timer_max_delay_s)
    recalls = RecallHandler(tables.topics, timers, parts.outlet, parts.host, clock, settings.recall_messages)
    delays = DelayService(tables.due, parts.outlet, parts.commit, tables.topics, clock, recalls.by_request())
    halves = half_taker(tables.halves, reject=settings.reject_transactions)
    later = (timers.take, partial(take_level, delays_ms=settings.delays_ms))
    return Services(delays, _transactions(settings, parts, Intake(later), clock), *others), Intake((halves, *later))


def _transactions(settings: NodeSettings, parts: Parts, later: Intake, clock: Clock) -> Transactions:
    tables, immunity_ms = parts.tables, settings.transaction_timeout_ms
    places = Places(tables.topics.get, later, parts.host)
    handlers = TransactionHandlers(tables.halves, parts.outlet, parts.lookups.find, places, immunity_ms, clock)
    checks = CheckSettings(
        immunity_ms, settings.transaction_check_interval_ms / 1000, settings.transaction_check_max, parts.host,
        settings.broker_name,
    )  # fmt: skip
    make_aside = partial(_make_aside, parts)
    return Transactions(
        tables.halves, parts.outlet, checks, parts.clients, make_aside, handlers.by_request(), clock
    )  # fmt: skip


async def _make_aside(parts: Parts) -> None:
    if parts.tables.topics.get(ASIDE_TOPIC) is None:
        await parts.topics.create(TopicConfig(ASIDE_TOPIC, 1, 1))
