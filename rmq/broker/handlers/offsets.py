"""A group's offset in a queue, and which offsets a queue has.

A one-way commit goes into the overlay at once and is written with all others within 200 ms; a commit that is sent as a
request is answered when its record is committed. Only committed messages are counted in any answer (R18).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.ports import Reader
from rmq.broker.shared.state import Line
from rmq.codes import ResponseCode
from rmq.delivery.offsets import OffsetKey, OffsetTable
from rmq.errors import Refusal, RmqError
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.net.commands import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetAnswer,
    Pull,
    QueryConsumerOffset,
    SearchOffset,
    TimestampAnswer,
    UpdateConsumerOffset,
)
from rmq.net.commands.offsets import NEVER_ANY
from rmq.net.transport.server import Call, Handler
from rmq.routing.kinds import holds_batches


class OffsetHandlers:
    """`commit(lines)` returns once the lines are committed and applied."""

    def __init__(
        self, table: OffsetTable, catalog: Catalog, reader: Reader, commit: Callable[[list[Line]], Awaitable[None]]
    ) -> None:
        self._table = table
        self._catalog = catalog
        self._queues = reader.queues
        self._store_time = reader.store_time
        self._in_memory = reader.in_memory
        self._commit_lines = commit
        self._last_write: asyncio.Task[None] | None = None

    def by_request(self) -> Mapping[type[Any], Handler]:
        """All handlers but that of commits, which others check first."""
        return {
            QueryConsumerOffset: self.query,
            GetMaxOffset: self.max_offset,
            GetMinOffset: self.min_offset,
            SearchOffset: self.search,
            GetEarliestStoreTime: self.earliest,
        }

    def query(self, request: QueryConsumerOffset, _call: Call) -> OffsetAnswer:
        """A group without an offset starts at 0 while message 0 is in memory: so a new group on a new topic misses nothing.
        Its consumeFromMinEnable says nothing here: mqadmin makes every group with false, and RocketMQ's brokers do not look."""
        offset = self._table.query(request.consumer_group, request.topic, request.queue_id)
        if offset is not None:
            return OffsetAnswer(offset)
        queue = self._existing(request.topic, request.queue_id)
        if request.set_zero_if_not_found and (queue is None or self._first_in_memory(queue)):
            return OffsetAnswer(0)
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumes for the first time")

    def _first_in_memory(self, queue: ConsumeQueue) -> bool:
        return queue.min <= 0 and (queue.max == 0 or self._in_memory(queue.entry(0).offset))

    def update(self, request: UpdateConsumerOffset, call: Call) -> Awaitable[None] | None:
        self.check(request)
        self.commit(request.consumer_group, request.topic, request.queue_id, request.commit_offset, call)
        return None if call.oneway else self.write()

    def check(self, request: UpdateConsumerOffset) -> None:
        """Raises Refusal for an offset that nobody may commit. Of a queue that the topic had once its members still say how far
        they were: it may have it again, with all its messages."""
        config = self._catalog.known_topic(request.topic)
        count = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= request.queue_id < count and self._queues.find(request.topic, request.queue_id) is None:
            about = f"queue {request.queue_id} of {request.topic}: it has queues 0 to {count - 1}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, about)
        self._catalog.check_known_group(request.consumer_group)
        if self._is_beyond(request.topic, request.queue_id, request.commit_offset):
            about = f"offset {request.commit_offset} is behind the end of queue {request.queue_id} of {request.topic}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, about)

    def _is_beyond(self, topic: str, queue_id: int, offset: int) -> bool:
        """No reader can have come so far: it knows an older topic of that name, or counts wrong."""
        queue = self._queues.find(topic, queue_id)
        return offset > (queue.max if queue else 0)

    async def write(self) -> None:
        """Commits the overlay as it is now. Raises Refusal; the next try writes what this one could not.

        With nothing new to write it still waits for the write on its way: what its caller commits may be in there.
        """
        dirty, followed = self._table.take_dirty(), self._table.resets.take_followed()
        if dirty or followed:
            self._last_write = asyncio.create_task(self._write(dirty, followed), name="offsets")
        if self._last_write is not None and not self._last_write.done():
            await asyncio.shield(self._last_write)

    async def _write(self, dirty: list[tuple[OffsetKey, int]], followed: list[OffsetKey]) -> None:
        resets = [("reset", key, None) for key in followed]
        try:
            await self._commit_lines([*resets, *(("offset", key, value) for key, value in dirty)])
        except RmqError:
            self._table.resets.give_back(followed)
            self._table.give_back(key for key, _ in dirty)
            raise

    def commit(self, group: str, topic: str, queue_id: int, offset: int, call: Call) -> None:
        self._table.update(group, topic, queue_id, offset, owner=call.connection.client_id or str(call.connection.id))

    def pulled(self, request: Pull, place: OffsetKey, call: Call) -> None:
        owner = call.connection.client_id or str(call.connection.id)
        self._table.pulled(place, owner)
        if request.sys_flag & 1:
            try:
                self._catalog.check_known_group(request.consumer_group)
            except Refusal:  # it may read all the same
                return
            if not self._is_beyond(request.topic, request.queue_id, request.commit_offset):
                self.commit(request.consumer_group, request.topic, request.queue_id, request.commit_offset, call)

    def max_offset(self, request: GetMaxOffset, _call: Call) -> OffsetAnswer:
        queue = self._existing(request.topic, request.queue_id)
        return OffsetAnswer(queue.max if queue else 0)

    def min_offset(self, request: GetMinOffset, _call: Call) -> OffsetAnswer:
        queue = self._existing(request.topic, request.queue_id)
        if queue is None or not queue.max:
            config = self._catalog.topic(request.topic)
            return OffsetAnswer(NEVER_ANY if config is not None and holds_batches(config) else 0)
        return OffsetAnswer(queue.min)

    async def search(self, request: SearchOffset, _call: Call) -> OffsetAnswer:
        queue = self._existing(request.topic, request.queue_id)
        if queue is None:
            return OffsetAnswer(0)
        upper = request.boundary_type.upper() == "UPPER"
        return OffsetAnswer(
            await asyncio.to_thread(queue.search, request.timestamp, "UPPER" if upper else "LOWER", self._store_time)
        )

    async def earliest(self, request: GetEarliestStoreTime, _call: Call) -> TimestampAnswer:
        queue = self._existing(request.topic, request.queue_id)
        if queue is None or queue.max <= queue.min:
            return TimestampAnswer(-1)
        return TimestampAnswer(await asyncio.to_thread(self._store_time, queue.entry(queue.min).offset))

    def _existing(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A question must not make a queue: None for a topic or queue that does not exist."""
        config = self._catalog.topic(topic)
        if config is None or not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return None
        return self._queues.find(topic, queue_id)
