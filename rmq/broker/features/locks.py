"""Locks of queues for ordered consumption: granted, kept and given up [AdminBrokerProcessor, RebalanceLockManager].

A grant is answered when its record is committed, so it survives a change of leader; keeping a lock writes nothing.
"""

from collections.abc import Awaitable, Callable

from rmq.broker.feature import Feature
from rmq.broker.shared.state import Line, undoing
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery.locks import Change, LockKey, LockTable
from rmq.errors import Refusal
from rmq.model import MessageQueue, TopicConfig
from rmq.names import check_client_id, check_group_name
from rmq.net.commands.locks import MAX_QUEUES, LockedQueues, LockQueues, UnlockQueues
from rmq.net.transport.server import Call

MAX_LOCKS = 200_000  # of groups that consume in order


class Locks(Feature):
    """`topic(name)`: its settings, if it exists. `check_group` raises Refusal for a group that does not exist.
    `commit(lines)` returns once the lines, one record of them, are committed and applied."""

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
        self._broker_name = broker_name
        self._topic = topic
        self._check_group = check_group
        self._commit = commit
        self._clock = clock
        self.handlers = {LockQueues: self.lock, UnlockQueues: self.unlock}

    def on_leader_ready(self) -> None:
        """Each lock holder gets the full time again: nobody could renew a lock meanwhile."""
        self._table.begin(self._clock.monotonic())

    def is_locked(self, group: str) -> bool:
        """Whether a member of the group has a queue for itself."""
        return self._table.is_held(group, self._clock.monotonic())

    async def lock(self, request: LockQueues, _call: Call) -> LockedQueues:
        """Leaves out queues that do not exist here, or that others have locked: the client asks again."""
        self._check_group(request.consumer_group)
        keys = {queue: key for queue, key in _keys(request).items() if self._is_here(queue)}
        known = self._table.committed()
        if len(known) + sum(key not in known for key in keys.values()) > max(MAX_LOCKS, len(known)):
            about = f"{MAX_LOCKS} locks are kept already: delete groups that are not used any more"
            raise Refusal(ResponseCode.SYSTEM_BUSY, about)
        held, changes = self._table.lock(request.client_id, keys.values(), self._clock.monotonic())
        await self._write(changes)
        return LockedQueues([queue for queue, key in keys.items() if key in held])

    async def unlock(self, request: UnlockQueues, _call: Call) -> None:
        await self._write(self._table.unlock(request.client_id, _keys(request).values()))

    def _is_here(self, queue: MessageQueue) -> bool:
        config = self._topic(queue.topic)
        count = max(config.read_queue_nums, config.write_queue_nums) if config else 0
        return queue.broker_name == self._broker_name and 0 <= queue.queue_id < count

    async def _write(self, changes: list[Change]) -> None:
        if not changes:
            return
        with undoing(lambda: self._table.not_stored(changes)):
            await self._commit([("lock", key, owner) for key, owner in changes])


def _keys(request: LockQueues | UnlockQueues) -> dict[MessageQueue, LockKey]:
    """Raises Refusal."""
    if len(request.queues) > MAX_QUEUES:
        about = f"{len(request.queues)} queues: at most {MAX_QUEUES} in one request, ask for them in parts"
        raise Refusal(ResponseCode.INVALID_PARAMETER, about)
    check_client_id(request.client_id)
    check_group_name(request.consumer_group)
    return {queue: LockKey(request.consumer_group, queue.topic, queue.queue_id) for queue in request.queues}
