"""Locks of queues for ordered consumption."""

from collections.abc import Awaitable, Callable

from rmq.broker.feature import Feature
from rmq.broker.handlers.locks import LockHandlers
from rmq.broker.state import Line
from rmq.clock import Clock
from rmq.delivery.locks import LockTable
from rmq.model import TopicConfig


class Locks(Feature):
    """For the arguments see `LockHandlers`."""

    def __init__(
        self,
        table: LockTable,
        broker_name: str,
        topic: Callable[[str], TopicConfig | None],
        check_group: Callable[[str], None],
        commit: Callable[[list[Line]], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._table = table
        self._clock = clock
        self.handlers = LockHandlers(table, broker_name, topic, check_group, commit, clock).by_request()

    def on_lead(self) -> None:
        """Each lock holder gets the full time again: nobody could renew a lock meanwhile."""
        self._table.begin(self._clock.monotonic())

    def is_locked(self, group: str) -> bool:
        """Whether a member of the group has a queue for itself."""
        return self._table.is_held(group, self._clock.monotonic())
