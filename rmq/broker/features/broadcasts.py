"""Offsets of broadcast groups, kept for clients that come by a proxy, or come back from one [BroadcastOffsetManager]."""

from collections.abc import Awaitable, Callable

from rmq.broker.feature import Feature, Job
from rmq.broker.handlers.pull import Readers
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.ports import Reader
from rmq.broker.shared.state import Line
from rmq.broker.shared.truncation import reader_of
from rmq.clock import Clock
from rmq.delivery.broadcasts import BroadcastOffsets, TopicAndGroup
from rmq.delivery.cursors import BROADCAST, CursorTable
from rmq.delivery.members import ConsumerRegistry
from rmq.delivery.offsets import BROADCAST_SUFFIX
from rmq.net.commands import Pull
from rmq.net.transport.server import Call

WRITE_S = 5.0
BY_PROXY = 1  # a pull's source [RequestSource.PROXY_FOR_BROADCAST]


class Broadcasts(Feature):
    """What pulls ask of `readers`, and of this. The slowest offset of each group is in `cursors`, as in RocketMQ's file."""

    def __init__(
        self,
        readers: Readers,
        registry: ConsumerRegistry,
        catalog: Catalog,
        reader: Reader,
        cursors: CursorTable,
        commit: Callable[[list[Line]], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._readers, self._registry, self._catalog, self._reader = readers, registry, catalog, reader
        self._cursors, self._commit, self._clock = cursors, commit, clock
        self.sent_back, self.pulled, self.handed_out = readers.sent_back, readers.pulled, readers.handed_out
        self._offsets = BroadcastOffsets()
        self.jobs = (Job(WRITE_S, "broadcast offsets", self._write, at_stop=True),)

    @property
    def unsettled(self) -> bool:
        return self._readers.unsettled

    def follows(self, request: Pull) -> bool:
        return request.request_source == BY_PROXY or self._registry.is_broadcast(request.consumer_group)

    def set_to(self, request: Pull, call: Call) -> int | None:
        if not self.follows(request):
            return self._readers.set_to(request, call)
        by_proxy = request.request_source == BY_PROXY
        client = request.proxy_client_id if by_proxy else reader_of(call)
        place, offset = (request.topic, request.consumer_group), request.queue_offset
        begin = None
        if self._offsets.may_begin(place, client, offset, by_proxy):
            begin = offset = self._begin(place, client, request.queue_id)
        self._offsets.pulled(place, client, request.queue_id, offset, by_proxy, self._clock.monotonic())
        return begin

    def _begin(self, place: TopicAndGroup, client: str, queue_id: int) -> int:
        """Where the client was, or else the slowest of its group, or else where a new one begins."""
        queue = self._reader.queues.look(place[0], queue_id)
        known = self._offsets.reached(place, client, queue_id)
        if known is None or known < 0:
            known = (self._cursors.get(BROADCAST, _name(place)) or {}).get(queue_id)
        if known is None:
            first = queue.min <= 0 and (queue.max == 0 or self._reader.in_memory(queue.entry(0).offset))
            known = 0 if first else queue.max
        return min(known, queue.max)

    async def _write(self) -> None:
        """Keeps what has changed; of a topic or group that is being deleted it would come behind that. Raises Refusal."""
        self._offsets.expire(lambda group, client: client in self._registry.members(group), self._clock.monotonic())
        lines: list[Line] = []
        for place, lowest in self._offsets.slowest():
            if self._catalog.topics.is_leaving(place[0]) or self._catalog.groups.is_leaving(place[1]):
                continue
            key = (BROADCAST, _name(place))
            kept = self._cursors.get(*key) or {}
            changed = {**kept, **{queue_id: offset for queue_id, offset in lowest.items() if offset >= 0}}
            if changed != kept:
                lines.append(("cursor", key, changed))
        if lines:
            await self._commit(lines)

    def on_topic_changed(self, topic: str) -> None:
        self._offsets.forget(topic)

    def on_group_changed(self, group: str) -> None:
        if self._catalog.group(group) is None:
            self._offsets.forget_group(group)

    def on_leadership_lost(self) -> None:
        self._offsets = BroadcastOffsets()


def _name(place: TopicAndGroup) -> str:
    topic, group = place
    return f"{topic}@{group}{BROADCAST_SUFFIX}"
