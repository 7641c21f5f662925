"""How many messages came and went: ever, and until today and yesterday began (`rmq.delivery.totals`)."""

import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import date

from rmq.broker.feature import Feature, Job
from rmq.broker.shared.state import Line
from rmq.broker.shared.stats import SAMPLE_S, BrokerStats
from rmq.clock import Clock
from rmq.delivery.totals import KEY, Totals, TotalsTable

SAVE_S = 60.0


class DayTotals(Feature):
    """The leader counts; another node tells what its leader kept last. `commit(lines)`: done when they are committed."""

    def __init__(
        self, table: TotalsTable, stats: BrokerStats, commit: Callable[[list[Line]], Awaitable[None]], clock: Clock
    ) -> None:
        self._table = table
        self._stats = stats
        self._commit = commit
        self._clock = clock
        self._base: Totals | None = None  # while this node leads: what was kept before
        self._put = self._got = 0  # of this process, when that was kept
        self.jobs = (
            Job(SAMPLE_S, "midnight", self._look_for_midnight),
            Job(SAVE_S, "totals", self._save, at_stop=True),
        )

    def facts(self) -> Iterable[tuple[str, object]]:
        now = self._now()
        yield "msgPutTotalTodayNow", now.put
        yield "msgPutTotalTodayMorning", now.put_today
        yield "msgPutTotalYesterdayMorning", now.put_yesterday
        yield "msgGetTotalTodayNow", now.got
        yield "msgGetTotalTodayMorning", now.got_today
        yield "msgGetTotalYesterdayMorning", now.got_yesterday

    def on_leader_ready(self) -> None:
        """Goes on where the last leader ended: what came since then is in the queues."""
        stats, kept = self._stats, self._table.kept or Totals(self._day(), ends=self._stats.ends)
        self._put, self._got = stats.put.total, stats.transferred.total
        self._base = kept.after(max(0, stats.ends - kept.ends), 0, stats.ends)

    def on_leadership_lost(self) -> None:
        self._base = None

    def _now(self) -> Totals:
        if self._base is None:
            return self._table.kept or Totals()
        stats = self._stats
        now = self._base.after(stats.put.total - self._put, stats.transferred.total - self._got, stats.ends)
        return now.on(self._day())

    async def _look_for_midnight(self) -> None:
        if self._base is not None and self._base.day != self._day():
            await self._save()

    async def _save(self) -> None:
        """Writes what changed."""
        await self._stats.refresh()
        now, put, got = self._now(), self._stats.put.total, self._stats.transferred.total
        if self._base is None or now == self._base:
            return
        await self._commit([("total", KEY, list(now))])
        self._base, self._put, self._got = now, put, got

    def _day(self) -> int:
        year, month, day = time.localtime(self._clock.wall_ms() / 1000)[:3]
        return date(year, month, day).toordinal()
