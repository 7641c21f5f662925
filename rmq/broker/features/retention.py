"""Deletes old segments, regularly and when an administrator asks; refuses sends that a full disk cannot take."""

from collections.abc import Awaitable, Callable, Iterable

from rmq.broker.feature import At, Feature, Job
from rmq.broker.handlers.cleaning import CleaningHandlers
from rmq.broker.membership import Membership
from rmq.broker.retention import Retention
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.log.retention import RetentionSettings
from rmq.log.store import Store
from rmq.measures import Family, gauge
from rmq.net.commands import CleanExpiredQueues, DeleteExpiredLog

RUN_S = 10.0


class Cleaning(Feature):
    """`alive_from`, `carry`: as of `Retention`."""

    def __init__(
        self,
        settings: NodeSettings,
        store: Store,
        membership: Membership,
        alive_from: Callable[[], int | None],
        carry: Callable[[int], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._membership = membership
        self._limits = _limits(settings)
        self._retention = Retention(self._limits, store, clock, membership.appender, membership.follower_from, alive_from, carry)
        asked = CleaningHandlers(self._delete_expired, self._retention.clean_queues)
        self.handlers = {DeleteExpiredLog: asked.delete_expired_log, CleanExpiredQueues: asked.clean_expired_queues}
        self.jobs = (Job(RUN_S, "retention", self._run, At.WRITABLE),)

    def metrics(self) -> Iterable[Family]:
        used = [] if self._retention.used is None else [((), self._retention.used)]
        about = "how full the disk with the store is, 0 to 1; asked every 10 s"
        yield Family("rmq_disk_used_ratio", "gauge", about, (), used)
        yield gauge("rmq_disk_refuse_ratio", "so full it refuses sends", self._limits.refuse_sends)

    def waits_for(self) -> Iterable[str]:
        if self._retention.full:
            yield f"disk full: {self._retention.full}"

    async def _run(self) -> None:
        await self._retention.run()
        self._membership.retained()

    async def _delete_expired(self) -> int:
        count = await self._retention.delete_expired()
        self._membership.retained()
        return count


def _limits(settings: NodeSettings) -> RetentionSettings:
    percents = (settings.max_used_percent, settings.clean_forcibly_percent, settings.refuse_sends_percent)
    max_used, forcibly, refuse_sends = (percent / 100 for percent in percents)
    return RetentionSettings(
        reserved_ms=settings.reserved_hours * 3_600_000,
        hours=frozenset(settings.delete_hours),
        max_used=max_used,
        clean_forcibly=forcibly,
        refuse_sends=refuse_sends,
        by_force=settings.clean_forcibly,
        archived_only=settings.keep_unarchived,
    )
