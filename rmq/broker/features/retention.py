"""Deletes old segments, regularly and when an administrator asks; refuses sends that a full disk cannot take.

`rmq.log.retention` decides which segments go.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from rmq.background import Rests
from rmq.broker.feature import At, Feature, Job
from rmq.broker.membership import Membership
from rmq.clock import Clock, WallDrift
from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal, StoreError
from rmq.log.files.segment import Segment
from rmq.log.retention import Facts, RetentionSettings, SegmentFacts, count_to_delete
from rmq.log.store import Store
from rmq.measures import Family, gauge
from rmq.net.commands import CleanExpiredQueues, DeleteExpiredLog
from rmq.net.commands.node import CleanUnusedTopics
from rmq.net.transport.server import Call

RUN_S = 10.0
log = logging.getLogger("rmq.retention")
_DRIFTED = "nothing is deleted by age until it is back, or this node is restarted"


class Retention:
    """Files stay that the slowest follower still reads. Messages that wait keep their segments, and so do the newest ones of
    compacted topics: `alive_from()`: below that offset there is none of them (None: nowhere). `carry_forward(offset)`: those
    below it are appended again, now or soon; a node that does not lead appends nothing, the leader's copies come by
    themselves."""

    def __init__(
        self,
        settings: RetentionSettings,
        store: Store,
        clock: Clock,
        membership: Membership,
        alive_from: Callable[[], int | None],
        carry_forward: Callable[[int], Awaitable[None]],
    ) -> None:
        self.settings = settings
        self._store = store
        self._clock = clock
        self._membership = membership
        self._appender = membership.appender
        self._alive_from = alive_from
        self._carry = carry_forward
        self._drift = WallDrift(clock, log, _DRIFTED)
        self._held = False
        self._asked = False  # by an administrator, and something had to be carried forward first
        self._looking = asyncio.Lock()  # a look makes a file and removes it: of two at once, one would miss it
        self.full = ""  # why sends are refused now
        self.used: float | None = None  # of the disk, 0 to 1; None: not asked yet

    async def run(self) -> None:
        """Called every 10 s. Raises StoreError."""
        await self._delete(await self._look_at_disk(), by_hand=self._asked)
        if not self.full:  # behind the deletion, which must not wait for it
            await asyncio.to_thread(self._store.cleaning.hold_back)

    async def delete_expired(self) -> int:
        """Deletes all expired segments, at any hour, because an administrator asks. Returns how many. The next runs go on with
        those from which something has to be carried forward first.

        Raises StoreError, Refusal: a damaged log stays as it is.
        """
        self._check_writable()
        total = 0
        # By force as much as a run deletes, no more: where this frees nothing at once, all would go.
        while count := await self._delete(await self._look_at_disk(), by_hand=True, by_force=not total):
            total += count
        return total

    async def clean_queues(self) -> None:
        """Deletes queue files whose messages are all gone; the offsets of those queues stay. Raises StoreError, Refusal."""
        self._check_writable()
        async with self._membership.files:
            await asyncio.to_thread(self._store.cleaning.drop_empty_queues)

    async def clean_topics(self) -> None:
        """Deletes the queue files of topics that were deleted, which happens soon anyway. Raises Refusal."""
        self._check_writable()
        await asyncio.to_thread(self._store.queues.remove_deleted)

    def _check_writable(self) -> None:
        if self._store.read_only:
            about = f"{self._store.log.damages}: nothing is deleted before it is repaired"
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, about)

    async def _look_at_disk(self) -> float:
        """How full it is, 0 to 1. Sends are refused while it is too full, everything while it takes nothing. Raises
        StoreError."""
        async with self._looking:
            cleaning, limits = self._store.cleaning, self.settings
            nothing = await asyncio.to_thread(self._refusal)
            try:
                used, where = await asyncio.to_thread(cleaning.fullest)
            except StoreError:
                if not nothing:
                    raise
                used, where = self.used or 0.0, ""  # a directory that is gone cannot be asked
            helps = "free space, or let messages expire sooner (fileReservedTime)"
            about = nothing or f"the disk with {where} is {used:.0%} full; {helps}"
            self.used, self.full = used, about if nothing or used >= limits.refuse_sends else ""
            self._appender.refuse(self.full, about if nothing or used >= limits.refuse_all else "", nothing)
            return used

    def _refusal(self) -> str:
        """Why the disk takes nothing, "" if it does. What could not be saved is tried again first. In a thread."""
        store = self._store
        if store.saved.trouble:
            with contextlib.suppress(StoreError):  # `trouble` says it
                store.save_progress(0, Rests().between, lambda: False)
        return store.cleaning.refusal() or store.saved.trouble

    async def _delete(self, used: float, by_hand: bool, by_force: bool = True) -> int:
        settings = self.settings if by_force else self.settings._replace(by_force=False)
        async with self._membership.files:
            segments = await asyncio.to_thread(self._store.cleaning.oldest_segments)
            facts = self._facts(used, by_hand)
            if settings.archived_only:
                facts = facts._replace(archived_to=await asyncio.to_thread(self._store.cleaning.archived_to))
                self._tell_unarchived(segments, facts)
            wanted, alive = count_to_delete(segments, facts, settings), self._alive_from()
            count = sum(alive is None or segment.end <= alive for segment in segments[:wanted])
            self._asked = by_hand and count < wanted
            if count:
                start = segments[count - 1].end
                await self._drop(start)
                log.info("%d segments deleted, the log begins at %d", count, start, extra={"disk_used": round(used, 3)})
            if count < wanted:  # they are deleted next time, once the copies are committed everywhere
                with self._appender.making_room():
                    await self._carry(segments[wanted - 1].end)
            return count

    async def _drop(self, start: int) -> None:
        try:
            dropped: list[Segment] = await asyncio.to_thread(self._store.cleaning.drop_before, start)
        finally:  # some may be gone also where something has to stay
            self._membership.retained()
        closing = [segment.withdraw() for segment in dropped]
        await asyncio.to_thread(lambda: [close() for close in closing])  # frees their space, which takes long

    def _tell_unarchived(self, segments: Sequence[SegmentFacts], facts: Facts) -> None:
        """Tells the operator once that expired files stay because nobody archived them."""
        would_go = count_to_delete(segments, facts, self.settings._replace(archived_only=False))
        held = would_go > count_to_delete(segments, facts, self.settings)
        if held and not self._held:
            log.warning(
                "old log files stay, because they are not archived (keep_unarchived): see to `rmq archive`",
                extra={"archived_to": facts.archived_to, "disk_used": round(facts.used, 3)},
            )
        self._held = held

    def _facts(self, used: float, by_hand: bool) -> Facts:
        store, now_ms = self._store, self._clock.wall_ms()
        safe_to = min(self._appender.committed_end, store.log.durable_end, store.snapshots.covered)
        hour = time.localtime(now_ms / 1000).tm_hour
        return Facts(now_ms, hour, used, self._drift.ms(), safe_to, self._membership.follower_from(), by_hand)


class Cleaning(Feature):
    """`alive_from`, `carry_forward`: as of `Retention`."""

    def __init__(
        self,
        settings: NodeSettings,
        store: Store,
        membership: Membership,
        alive_from: Callable[[], int | None],
        carry_forward: Callable[[int], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._membership = membership
        self._limits = _limits(settings)
        self._retention = Retention(self._limits, store, clock, membership, alive_from, carry_forward)
        self.handlers = {
            DeleteExpiredLog: self._delete_expired,
            CleanExpiredQueues: self._clean_queues,
            CleanUnusedTopics: self._clean_topics,
        }
        self.jobs = (Job(RUN_S, "retention", self._run, At.WRITABLE),)

    async def on_settings(self, settings: NodeSettings) -> None:
        self._retention.settings = self._limits = _limits(settings)

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

    async def _delete_expired(self, _request: DeleteExpiredLog, _call: Call) -> None:
        await self._retention.delete_expired()

    async def _clean_queues(self, _request: CleanExpiredQueues, _call: Call) -> None:
        await self._retention.clean_queues()

    async def _clean_topics(self, _request: CleanUnusedTopics, _call: Call) -> None:
        await self._retention.clean_topics()


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
