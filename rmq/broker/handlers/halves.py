"""Which transactions are open: shown to administrators."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rmq.broker.pending.transactions import CheckSettings
from rmq.broker.shared.turns import some_at_a_time
from rmq.clock import Clock
from rmq.delivery.transactions import Half, HalfTable
from rmq.net.commands.transactions import ListHalves, OpenHalf, OpenHalves
from rmq.net.transport.server import Call, Handler

MOST: Final = 1_000  # halves in one answer


class OpenHalvesHandler:
    """`settings()`: those of the checks, as they are now."""

    def __init__(self, table: HalfTable, settings: Callable[[], CheckSettings], clock: Clock) -> None:
        self._table = table
        self._settings = settings
        self._clock = clock

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {ListHalves: self.all}

    async def all(self, request: ListHalves, _call: Call) -> OpenHalves:
        """In the order of the log, so the oldest first."""
        group, found = request.producer_group, list[OpenHalf]()
        total = self._table.number_open(group)
        most = min(max(request.most, 0), total, MOST)
        async for some in some_at_a_time(list(self._table.open.rows.values()) if most else ()):
            found += [self._shown(half) for half in some if not group or half.group == group]
            if len(found) >= most:
                break
        return OpenHalves(total, found[:most])

    def _shown(self, half: Half) -> OpenHalf:
        checks = self._settings()
        aside_ms = half.aside_ms(self._clock.wall_ms(), checks.immunity_ms, round(checks.every_s * 1000), checks.most)
        return OpenHalf(half.queue_offset, half.group, half.since_ms, half.checks, aside_ms)
