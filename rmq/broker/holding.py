"""Joins the kinds of messages that wait: who recognises them when they come in, and who hands them on at a leader."""

from collections.abc import Awaitable, Callable

from rmq.broker.apply import Tables
from rmq.broker.delays import DelayService, TimerTaker, take_level
from rmq.broker.intake import Intake, no_transactions
from rmq.broker.outlet import Outlet
from rmq.broker.services import Services
from rmq.broker.state import Line
from rmq.clock import Clock
from rmq.config import NodeSettings


def holding(
    settings: NodeSettings, tables: Tables, outlet: Outlet, commit: Callable[[list[Line]], Awaitable[None]], clock: Clock
) -> tuple[Services, Intake]:
    """`commit` writes state lines."""
    timers = TimerTaker(clock, settings.broker_name, settings.timer_max_delay_s)
    delays = DelayService(tables.due, outlet, commit, tables.topics, clock)
    return Services(delays), Intake((no_transactions, timers.take, take_level))
