"""The locks of an ordered consumer: its brokers let nobody else of the group lock these queues [RebalanceImpl, ProcessQueue].

A lock is asked for queue by queue, and renewed every 20 s. One that could not be renewed for 30 s counts as lost here;
brokers hold it for 60 s, so nobody else has it before we have stopped.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from rmq.background import pause
from rmq.client.shared.session import Session
from rmq.errors import RmqError
from rmq.model import MessageQueue
from rmq.net.commands.locks import MAX_QUEUES, LockedQueues, LockQueues, UnlockQueues

_log = logging.getLogger("rmq.client")
KEEP_S, LOST_S = 20.0, 30.0  # [REBALANCE_LOCK_INTERVAL, REBALANCE_LOCK_MAX_LIVE_TIME]
_RETRY_S = 1.0  # while another member has the queue, or its broker does not answer


class QueueLocks:
    """The locks of one consumer. Times are of the clock that goes on while the client's machine sleeps, as the broker's does,
    counted from when a lock was asked for."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._until: dict[MessageQueue, float] = {}

    def holds(self, queue: MessageQueue) -> bool:
        """Whether certainly nobody else has it now."""
        return self._session.clock.since_boot() < self._until.get(queue, 0.0)

    def locked_at(self, queue: MessageQueue) -> float | None:
        """When it was locked, or renewed, last (monotonic s)."""
        clock = self._session.clock
        return clock.monotonic() - (clock.since_boot() - self._until[queue] + LOST_S) if self.holds(queue) else None

    async def acquire(self, queue: MessageQueue) -> None:
        """Returns once the queue is ours; a lock that we had is no longer believed."""
        self._until.pop(queue, None)
        while True:
            asked = self._session.clock.since_boot()
            try:
                if queue in await self._lock(queue.broker_name, [queue]):
                    self._until[queue] = asked + LOST_S
                    return
                _log.debug("%s: another member of %s has it still", queue, self._group)
            except RmqError as error:
                _log.info("%s is not locked yet: %s", queue, error)
            await self._session.clock.sleep(_RETRY_S)

    async def _lock(self, broker_name: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        request = LockQueues(self._group, self._session.client_id, queues)
        answer = await self._session.leaders.request(broker_name, request, self._session.settings.request_timeout_s)
        assert isinstance(answer, LockedQueues)
        return answer.queues

    async def keep(self, lost: Callable[[MessageQueue], None]) -> None:
        """Runs until cancelled. `lost` hears of each queue that others may have by now."""
        pause_s, never = KEEP_S, asyncio.Event()
        while True:
            await pause(self._session.clock, pause_s, never)
            kept = await asyncio.gather(*(self._keep(name, queues) for name, queues in _by_broker(self._until)))
            pause_s = KEEP_S if all(kept) else _RETRY_S
            for queue in [queue for queue in self._until if not self.holds(queue)]:
                del self._until[queue]
                lost(queue)

    async def _keep(self, broker_name: str, queues: list[MessageQueue]) -> bool:
        """Whether the broker answered."""
        asked = self._session.clock.since_boot()
        try:
            ours = set(await self._lock(broker_name, queues))
        except RmqError as error:
            _log.info("%d locks of %s at %s are kept later: %s", len(queues), self._group, broker_name, error)
            return False
        for queue in filter(self.holds, queues):  # one that was lost meanwhile may have been somebody else's
            self._until[queue] = asked + LOST_S if queue in ours else 0.0
        return True

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Releases queues, so that others may have them. A broker that cannot be reached will notice in 60 s."""
        queues = list(queues)
        for queue in queues:
            self._until.pop(queue, None)
        await asyncio.gather(*(self._release(name, part) for name, part in _by_broker(queues)))

    async def _release(self, broker_name: str, queues: list[MessageQueue]) -> None:
        request = UnlockQueues(self._group, self._session.client_id, queues)
        try:
            await self._session.leaders.request(broker_name, request, self._session.settings.request_timeout_s)
        except RmqError as error:
            _log.info("%s was not told that %d queues are free, others wait up to a minute: %s", broker_name, len(queues), error)


def _by_broker(queues: Iterable[MessageQueue]) -> list[tuple[str, list[MessageQueue]]]:
    """Cut into parts that fit one request."""
    brokers: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        brokers.setdefault(queue.broker_name, []).append(queue)
    return [(name, own[i : i + MAX_QUEUES]) for name, own in brokers.items() for i in range(0, len(own), MAX_QUEUES)]
