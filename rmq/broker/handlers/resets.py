"""Resets a group's offsets [AdminBrokerProcessor.resetOffsetInner, useServerSideResetOffset].

Connected members keep offsets of their own. So the next pull of the queue is sent to the new offset (pulls that wait, at
once), and commits before the reader goes on from there do not count (`rmq.delivery.resets`). RocketMQ's clients of all
languages follow that answer; RocketMQ pushes them nothing either.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.ports import Reader
from rmq.broker.shared.state import Line
from rmq.codes import ResponseCode
from rmq.delivery.groups import ConsumerRegistry
from rmq.delivery.offsets import OffsetKey, OffsetTable
from rmq.errors import Refusal, no_group
from rmq.guard import audit
from rmq.model import BROADCASTING, MessageQueue, TopicConfig
from rmq.net.commands import UpdateConsumerOffset
from rmq.net.commands.resets import CloneOffsets, FollowReset, QueueOffset, ResetOffset, ResetOffsets
from rmq.net.transport.server import Call, Connection

Commit = Callable[[UpdateConsumerOffset, Call], Awaitable[None] | None]


class ResetHandlers:
    """`commit(lines)` returns when they are committed. `members(group)`: open connections of its members. `by_members`: they are
    told to move (useServerSideResetOffset=false)."""

    def __init__(
        self,
        offsets: OffsetTable,
        catalog: Catalog,
        registry: ConsumerRegistry,
        reader: Reader,
        commit: Callable[[list[Line]], Awaitable[None]],
        members: Callable[[str], Iterable[Connection]],
    ) -> None:
        self._offsets = offsets
        self._catalog = catalog
        self._registry = registry
        self._queues = reader.queues
        self._store_time = reader.store_time
        self._commit = commit
        self._broker_name = reader.broker_name
        self._members = members
        self.by_members = False

    async def reset(self, request: ResetOffset, _call: Call) -> ResetOffsets:
        config = self._checked(request)
        count = max(config.read_queue_nums, config.write_queue_nums)
        if request.queue_id >= count or (request.offset >= 0 and request.queue_id < 0):
            raise _invalid(f"queue {request.queue_id} of {request.topic}: it has queues 0 to {count - 1}")
        wanted = range(count) if request.queue_id < 0 else (request.queue_id,)
        places = await asyncio.to_thread(lambda: [(queue_id, self._place(request, queue_id)) for queue_id in wanted])
        if self._checked(request) is not config:  # these are places of the topic as it was
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"topic {request.topic} was changed meanwhile: try again")
        moved = [QueueOffset(MessageQueue(request.topic, self._broker_name, queue_id), offset) for queue_id, offset in places]
        if not self.by_members or self._tell(request, moved):
            await self.move(request.group, request.topic, places)
        return ResetOffsets(moved)

    def _tell(self, request: ResetOffset, moved: list[QueueOffset]) -> bool:
        """Tells RocketMQ's members to move; whether there are others too, which follow the broker. Raises Refusal if there are
        none [Broker2Client.resetOffset]."""
        connections = list(self._members(request.group))
        if not connections:
            about = f"Consumer not online, so can not reset offset, Group: {request.group} Topic: {request.topic}"
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"{about} Timestamp: {request.timestamp}")
        theirs = [one for one in connections if one.is_forwarded or not one.follows_hints]
        for one in theirs:
            one.push(FollowReset(request.topic, request.group, request.timestamp, request.is_force, moved, one.language == "CPP"))
        return len(theirs) < len(connections)

    async def clone(self, request: CloneOffsets, _call: Call) -> None:
        """[ConsumerOffsetManager.cloneOffset]"""
        source, group = request.src_group, request.dest_group
        if self._catalog.group(group) is None:
            raise no_group(group)
        wanted, places = self._registry.topics_of(source), dict[OffsetKey, int]()
        for topic in [request.topic] if request.topic else sorted(self._offsets.topics_of(source)):
            config = self._catalog.topic(topic)
            if config is None or (not request.offline and wanted and topic not in wanted):
                continue
            found = [(one, self._offsets.query(source, topic, one)) for one in range(config.read_queue_nums)]
            places |= {OffsetKey(group, topic, one): offset for one, offset in found if offset is not None}
        if places:  # at once: either group may be deleted meanwhile
            await self.move_all(places)

    def _checked(self, request: ResetOffset) -> TopicConfig:
        config = self._catalog.known_topic(request.topic)
        if self._catalog.group(request.group) is None:
            raise no_group(request.group)
        view = self._registry.connection_view(request.group)
        if view is not None and view.message_model == BROADCASTING:
            about = f"group {request.group} reads as a broadcast: each member keeps its own offsets, where it runs"
            raise _invalid(about)
        return config

    def _place(self, request: ResetOffset, queue_id: int) -> int:
        """In any thread. Raises Refusal."""
        queue = self._queues.look(request.topic, queue_id)
        low, high = queue.min, queue.max
        if request.offset >= 0:
            if not low <= request.offset <= high:
                raise _invalid(f"offset {request.offset}: queue {queue_id} of {request.topic} reaches from {low} to {high}")
            return request.offset
        found = high if request.timestamp < 0 else queue.search(request.timestamp, "LOWER", self._store_time)
        known = self._offsets.query(request.group, request.topic, queue_id)
        return found if request.is_force or known is None else min(found, known)

    async def move(self, group: str, topic: str, places: Sequence[tuple[int, int]]) -> None:
        await self.move_all({OffsetKey(group, topic, queue_id): offset for queue_id, offset in places})

    async def move_all(self, wanted: Mapping[OffsetKey, int]) -> None:
        """Sets groups to these places. Raises Refusal."""
        lines = self._offsets.stage_reset(wanted)
        try:
            await self._commit(lines)
        except BaseException:
            self._offsets.resets.unstage(wanted)
            raise

    def committing(self, check: Callable[[UpdateConsumerOffset], None], commit: Commit) -> Commit:
        """Wraps a commit. One from outside the group comes from a tool: connected members have to hear of it, or their next
        commit would undo it; and it may be lower. `check` raises Refusal for an offset that nobody may commit."""

        def checked(request: UpdateConsumerOffset, call: Call) -> Awaitable[None] | None:
            group, topic, queue_id, offset = request
            members = self._registry.members(group)
            lower = offset < (self._offsets.query(group, topic, queue_id) or 0) or OffsetKey(*request[:3]) in self._offsets.resets
            if call.oneway or call.connection.client_id in members or not (members or lower):
                return commit(request, call)
            check(request)
            return self._move_told(request, call)

        return checked

    async def _move_told(self, request: UpdateConsumerOffset, call: Call) -> None:
        """An administrator's commit: a line of the audit log tells it."""
        group, topic, queue_id, offset = request
        before = self._offsets.query(group, topic, queue_id)
        await self.move(group, topic, [(queue_id, offset)])
        audit.done(request, call, before, offset)


def _invalid(about: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, about)
