"""Quotas of users, clients and topics."""

from collections.abc import Callable, Iterable

from rmq.broker.feature import At, Feature, Job
from rmq.broker.handlers.quotas import QuotaHandlers
from rmq.guard.quotas import Metering
from rmq.measures import Family, counter
from rmq.net.transport.server import Connection

LOOK_S = 0.25


class Quotas(Feature):
    """`switch(on)`: starts or stops counting requests."""

    def __init__(self, handlers: QuotaHandlers, metering: Metering, switch: Callable[[bool], None]) -> None:
        self._metering = metering
        self._switch = switch
        self._on = False
        self.handlers = handlers.by_request()
        self.jobs = (Job(LOOK_S, "quotas", self._look, At.EVERYWHERE),)

    def _look(self) -> None:
        on = bool(self._metering.quotas)
        if on != self._on:
            self._on = on
            self._switch(on)

    def on_connection_closed(self, connection: Connection) -> None:
        self._metering.closed(connection)

    def metrics(self) -> Iterable[Family]:
        yield counter(
            "rmq_quota_refusals_total", "requests that were refused because a quota was used up", self._metering.refused
        )
