"""Installs a snapshot: this node's log is no prefix of the leader's, so it takes the leader's snapshot and goes on from there.

The snapshot is read part by part into a temporary file. The store puts it in place in one step, before it removes anything of
the old log (docs/storage): a crash at any point leaves the old store, or one that fills up from the leader.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from rmq import background
from rmq.broker.replication.filework import finished
from rmq.broker.replication.member import Member
from rmq.broker.replication.peers import Peers
from rmq.errors import BadBytes, RmqError, StoreError
from rmq.log.files import epochs
from rmq.log.files.disk import Disk
from rmq.log.files.snapshot import EPOCHS, RECEIVED, VOTERS
from rmq.log.store import Store
from rmq.model import EpochEntry, EpochHistory, Voter
from rmq.net.commands.peers import GetGroupStatus, GroupStatus, ReadSnapshot, SnapshotPart
from rmq.raft import effects as fx, events as ev, messages as m

log = logging.getLogger("rmq.snapshot")

PART_S = 10.0
AGAIN_S = 5.0  # before a snapshot is fetched again for which the disk had no room


class SnapshotInstaller:
    """`done()` is called when the store has begun anew. `files`: as of `Membership`."""

    def __init__(
        self,
        store: Store,
        disk: Disk,
        own: str,
        done: Callable[[], None],
        member: Member,
        peers: Peers,
        files: asyncio.Lock,
    ) -> None:
        """`own`: the directory of the store's own files."""
        self._store = store
        self._disk = disk
        self._path = f"{own}/{RECEIVED}"
        self._done = done
        self._task: asyncio.Task[None] | None = None
        self._begun = False  # the old log is gone
        self._member = member
        self._peers = peers
        self._files = files

    def begin(self, order: fx.InstallSnapshot) -> None:
        self._task = background.start(self._run(order), "snapshot install")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, order: fx.InstallSnapshot) -> None:
        answer, self._begun, failed = order.answer, False, None
        async with AsyncExitStack() as held:
            try:
                await self._fetch(order)
                await held.enter_async_context(self._files)
                history, voters = await asyncio.to_thread(self._read)
                history = epochs.with_rocketmqs(history, await self._leaders(order.node))
                self._check(history)
                self._member.install_from(answer.log_start, answer.s1, history, voters, self._install)
            except (RmqError, OSError) as error:
                if self._begun or self._store.log.broken:  # what this node says of its log is not true any more
                    raise AssertionError(f"the log could not begin anew; the next start goes on with it: {error}") from error
                log.warning("the snapshot of %s could not be had: %s; trying again", order.node, error)
                await asyncio.to_thread(self._store.snapshots.drop_received)
                failed = error
        if failed is None:
            self._done()
            return
        if isinstance(failed, StoreError | OSError):  # what does not fit now need not be sent again at once
            await self._peers.clock.sleep(AGAIN_S)
        self._member.handle(ev.InstallFailed())

    async def _fetch(self, order: fx.InstallSnapshot) -> None:
        """Writes into the temporary file. Raises RmqError, OSError."""
        handle, position, total = self._disk.create(self._path), 0, 1
        try:
            while position < total:
                part = await self._peers.request(order.node, ReadSnapshot(self._peers.group, order.answer.s0, position), PART_S)
                assert isinstance(part, SnapshotPart)
                total = part.total
                if not part.data:
                    raise StoreError(f"it ends after {position} of {total} bytes")
                position += await finished(partial(self._disk.pwrite, handle, part.data, position))
            await finished(partial(self._disk.fdatasync, handle))
        finally:
            self._disk.close(handle)

    def _read(self) -> tuple[EpochHistory, m.Voters]:
        """Epoch history and voters of the snapshot. Raises StoreError, BadBytes."""
        found = {section: rows for section, rows in self._store.snapshots.received() if section in (EPOCHS, VOTERS)}
        if len(found) < 2:
            raise BadBytes("it names no epochs or no voters")
        return tuple(EpochEntry(*row) for row in found[EPOCHS]), tuple(Voter(*row) for row in found[VOTERS])

    async def _leaders(self, node: str) -> EpochHistory:
        """The leader's history: RocketMQ may have written in its log since the snapshot was made. Raises RmqError."""
        status = await self._peers.request(node, GetGroupStatus())
        assert isinstance(status, GroupStatus)
        return tuple(status.epochs)

    def _check(self, history: EpochHistory) -> None:
        """Raises BadBytes for an epoch newer than this node's: its leader cannot have held it; what a log names is durable."""
        newest, known = max((entry.epoch for entry in history), default=0), self._member.core.state.epoch
        if newest > known:
            raise BadBytes(f"it names epoch {newest}, the newest that has begun is {known}")

    def _install(self) -> None:
        self._begun = True
        self._store.snapshots.install()
