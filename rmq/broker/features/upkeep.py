"""What a node saves so that its next start is short: snapshots of the tables, and up to where queues and log are complete."""

import asyncio
from collections.abc import Callable, Mapping

from rmq.background import Rests
from rmq.broker.feature import At, Feature, Job
from rmq.broker.membership import Membership
from rmq.broker.shared.state import Table
from rmq.broker.shared.turns import some_at_a_time
from rmq.broker.tables.snapshot import SnapshotService
from rmq.clock import Clock
from rmq.log.store import Store

PROGRESS_S, SNAPSHOT_S = 10.0, 60.0
FIRST_PROGRESS_S = 2.0  # a node that dies again within seconds need not dispatch the same once more
LEAST_QUEUES = 2_000  # are made durable each time, with a flush of the device for each, and four or five for a new one
TIMES = 3  # in which all are, if there are more
TRIM_QUEUES = 500  # trimmed together, which takes a ms


class Upkeep(Feature):
    """`tables`: by the name of their sections. `committed`: as for `SnapshotService`."""

    def __init__(
        self, store: Store, tables: Mapping[str, Table], committed: Callable[[], int], membership: Membership, clock: Clock
    ) -> None:
        self._store = store
        self._snapshots = SnapshotService(tables, store, committed)
        self._membership = membership
        self._clock = clock
        self._marked: tuple[int, int] | None = None  # a wall time (ms), and where the log ended then
        self._seen: tuple[int, int] | None = None  # the same of the last turn, if in touch with the group
        self._behind_ms = 0  # the leader's wall clock behind this node's
        self._stopped = False
        self.jobs = (
            Job(PROGRESS_S, "progress", self._save_progress, At.WRITABLE, first_s=FIRST_PROGRESS_S),
            Job(SNAPSHOT_S, "snapshot", self._take_snapshot, At.WRITABLE),
        )

    def stopping(self) -> None:
        self._stopped = True

    async def finish(self) -> None:
        await self._take_snapshot()

    async def _save_progress(self) -> None:
        self._settle()
        await asyncio.to_thread(self._save_some)
        async for some in some_at_a_time(self._store.queues.all(), TRIM_QUEUES):
            for queue in some:
                queue.trim()

    def _save_some(self) -> None:
        """In a thread, which rests now and then. A node that stops waits for one queue at most."""
        store = self._store
        most = max(LEAST_QUEUES, len(store.queues.all()) // TIMES)
        store.save_progress(most, Rests().between, lambda: self._stopped)

    def _settle(self) -> None:
        """A time that was marked in touch with the group is settled when all that the log held then is committed."""
        if self._marked and self._store.dispatcher.position >= self._marked[1]:
            self._store.saved.settled_ms = self._marked[0]
            self._marked = None
        wall_ms, end = self._clock.wall_ms(), self._store.log.end
        if self._membership.leads:
            self._behind_ms = 0
        elif self._seen and self._seen[1] < end:  # the leader stored the last record since then, by its own clock
            self._behind_ms = max(0, self._seen[0] - self._store.log.last_stored_ms)
        self._seen = (wall_ms, end) if self._membership.in_touch else None
        if self._marked is None and self._seen:
            self._marked = wall_ms - self._behind_ms, end

    async def _take_snapshot(self) -> None:
        if not self._membership.filling:
            await self._snapshots.take()
            self._membership.retained()
