"""Where a consumer group's offsets are kept: at the brokers (cluster), or in a file (broadcast: `fileoffsets`).

An offset that cannot be read is an error, never 0 (C5).
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from rmq.client.shared.session import Session
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.model import MessageQueue
from rmq.net.commands import OffsetAnswer, QueryConsumerOffset, UpdateConsumerOffset


class Stored(NamedTuple):
    """The group's offset in a queue; None if it has none. Not `sure`: a follower answered, the leader may know better. `last`:
    queue offset and place in the log of a message that was pulled, before it or not; -1: unknown."""

    offset: int | None
    sure: bool = True
    last: tuple[int, int] = (-1, -1)


class OffsetStore(Protocol):
    async def open(self) -> None:
        """Called once, first. Raises RmqError when offsets will not be readable."""
        ...

    async def load(self, queue: MessageQueue) -> Stored:
        """Raises RmqError when it cannot be told now."""
        ...

    def forget(self, queue: MessageQueue) -> None:
        """The topic was deleted: its offset is void where this host keeps it."""
        ...

    async def save(self, offsets: Mapping[MessageQueue, int], sync: bool, lasts: Mapping[MessageQueue, tuple[int, int]]) -> None:
        """Stores them; with `sync` returns when they are durable. `lasts`: see `Stored`; a broker knows by itself whether an
        offset is of its log. Raises RmqError."""
        ...


class BrokerOffsets:
    """Offsets of a group at the brokers that hold its queues [RemoteBrokerOffsetStore].

    `zero_if_in_memory`: for a queue whose first message is still in memory the broker may answer 0 instead of "none", so
    that a new group on a new topic misses nothing.
    """

    def __init__(self, group: str, session: Session, zero_if_in_memory: bool) -> None:
        self._group = group
        self._session = session
        self._zero_if_in_memory = zero_if_in_memory

    async def open(self) -> None:
        """Offsets at brokers need no preparation: each queue is asked for by itself."""

    async def load(self, queue: MessageQueue) -> Stored:
        query = QueryConsumerOffset(self._group, queue.topic, queue.queue_id, self._zero_if_in_memory)
        session = self._session
        answer, by_follower = await session.leaders.read(queue.broker_name, query, session.settings.request_timeout_s)
        if isinstance(answer, Refusal):
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                return Stored(None, not by_follower)
            raise answer
        assert isinstance(answer, OffsetAnswer)
        return Stored(answer.offset, not by_follower)

    def forget(self, queue: MessageQueue) -> None:
        """The broker deletes a topic's offsets with it."""

    async def save(
        self, offsets: Mapping[MessageQueue, int], sync: bool, lasts: Mapping[MessageQueue, tuple[int, int]] = {}
    ) -> None:
        results = await asyncio.gather(
            *(self._save_one(queue, offset, sync) for queue, offset in offsets.items()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _save_one(self, queue: MessageQueue, offset: int, sync: bool) -> None:
        update = UpdateConsumerOffset(self._group, queue.topic, queue.queue_id, offset)
        if sync:  # through an election: an offset may be set twice
            timeout_s = self._session.settings.request_timeout_s
            await self._session.leaders.persist(queue.broker_name, update, timeout_s, harmless=True)
        else:
            await self._session.connections.post(self._session.routes.leader(queue.broker_name), update)
