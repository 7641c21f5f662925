"""What tools ask about lite topics [LiteManagerProcessor]. Only the leader knows who wants which."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from rmq.broker.pending.lites import LiteEvents
from rmq.broker.shared.ports import Reader
from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.delivery.groups import LiteRules, lite_rules
from rmq.delivery.offsets import OffsetTable
from rmq.errors import Refusal, StoreError, no_group
from rmq.javahash import consistent_bucket, java_hash
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.model import LITE_EXPIRATION, LITE_PREFIX, MessageQueue, TopicConfig
from rmq.names import lite_parts, lite_queue
from rmq.net.commands.lites import (
    BrokerLiteInfo,
    GetBrokerLiteInfo,
    GetLiteClientInfo,
    GetLiteGroupInfo,
    GetLiteTopicInfo,
    GetParentTopicInfo,
    LiteClientInfo,
    LiteGroupInfo,
    LiteLag,
    LiteSubscriber,
    LiteTopicInfo,
    ParentTopicInfo,
    TriggerLiteDispatch,
)
from rmq.net.transport.server import Call, Handler
from rmq.routing.kinds import has_lite_topics

MOST_NAMES = 10_000  # in one answer [LiteManagerProcessor.MAX_RETURN_COUNT]
MOST_LAGS = 1000
Routed = Callable[[str], Awaitable[list[MessageQueue] | None]]


class LiteAdminHandlers:
    """`queues_of(topic)`: at all brokers, as nameservers tell it; None: none answers."""

    def __init__(
        self,
        lites: LiteEvents,
        offsets: OffsetTable,
        reader: Reader,
        queues_of: Routed,
        settings: NodeSettings,
    ) -> None:
        self._lites = lites
        self._catalog = lites.catalog
        self._offsets = offsets
        self._orders = lites.ordered.table
        self._queues = reader.queues
        self._read_store_time = reader.store_time
        self._queues_of = queues_of
        self._name, self._most = settings.broker_name, settings.max_light_queues

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {
            GetBrokerLiteInfo: self.broker,
            GetParentTopicInfo: self.parent,
            GetLiteTopicInfo: self.topic,
            GetLiteClientInfo: self.client,
            GetLiteGroupInfo: self.group,
            TriggerLiteDispatch: self.trigger,
        }

    async def broker(self, _request: GetBrokerLiteInfo, _call: Call) -> BrokerLiteInfo:
        subscriptions, topics = self._lites.subscriptions, self._catalog.topics.all()
        rows, queues = list(self._orders.committed()), self._queues.all()
        handed_out = await asyncio.to_thread(lambda: sum(name.startswith(LITE_PREFIX) for name in rows))
        return BrokerLiteInfo(
            "default",
            self._most,
            len(self._queues.lights()),
            subscriptions.count,
            handed_out,
            await asyncio.to_thread(lambda: len({queue.topic for queue in queues})),
            self._offsets.pairs,
            len(subscriptions.clients),
            {config.name: _minutes(config) for config in topics if has_lite_topics(config)},
            self._groups(),
        )

    def parent(self, request: GetParentTopicInfo, _call: Call) -> ParentTopicInfo:
        config = self._lites.parent(request.topic)
        count = len(self._lites.there_are(request.topic))
        groups = self._groups().get(request.topic, [])
        return ParentTopicInfo(request.topic, _minutes(config), groups, len(self._queues.lights()), count)

    def _groups(self) -> dict[str, list[str]]:
        """Groups by the topic that they are bound to."""
        found: dict[str, list[str]] = {}
        for group in self._catalog.groups.all():
            if rules := lite_rules(group):
                found.setdefault(rules.topic, []).append(group.name)
        return found

    async def topic(self, request: GetLiteTopicInfo, _call: Call) -> LiteTopicInfo:
        parent, lite = request
        self._lites.parent(parent)
        name = lite_queue(parent, lite)
        queue, routed = self._queues.look(name, 0), await self._queues_of(parent)
        here = not routed or routed[consistent_bucket(java_hash(lite), len(routed))].broker_name == self._name
        who = self._lites.subscriptions.who(name)
        wanting = {LiteSubscriber("*" if one.wants_all else one.key.client_id, one.key.group): None for one in who}
        last_ms = await asyncio.to_thread(self._store_time, queue, queue.max - 1)
        return LiteTopicInfo(parent, lite, list(wanting)[:MOST_NAMES], queue.min, queue.max, last_ms, here)

    def client(self, request: GetLiteClientInfo, _call: Call) -> LiteClientInfo:
        parent, group, client_id, most = request
        self._lites.parent(parent)
        if self._rules(group).topic != parent:
            raise _invalid(f"group {group} is not bound to topic {parent}")
        known = self._lites.subscriptions.get(group, client_id)
        if known is None:
            return LiteClientInfo(parent, group, client_id, -1, 0, -1, [])
        names = self._lites.wanted_by(known)
        some = list(names[: max(0, min(most, MOST_NAMES))])
        return LiteClientInfo(parent, group, client_id, known.accessed_ms, known.consumed_ms, len(names), some)

    async def group(self, request: GetLiteGroupInfo, _call: Call) -> LiteGroupInfo:
        group, lite, most = request
        parent = self._rules(group).topic
        if not lite:
            names = self._offsets.topics_of(group)  # here: the loop changes what a thread would walk through
            return await asyncio.to_thread(self._lags, group, parent, names, max(0, min(most, MOST_LAGS)))
        name = lite_queue(parent, lite)
        queue, reached = self._queues.look(name, 0), self._offsets.query(group, name, 0)
        if not queue.max:
            return LiteGroupInfo(group, parent, lite, -1, -1)
        if reached is None:
            return LiteGroupInfo(group, parent, lite, 0, 0)
        first_ms, last_ms = await asyncio.to_thread(lambda: [self._store_time(queue, at) for at in (reached, reached - 1)])
        return LiteGroupInfo(group, parent, lite, first_ms or -1, queue.max - reached, [], [], queue.max, reached, last_ms)

    def _lags(self, group: str, parent: str, names: Iterable[str], most: int) -> LiteGroupInfo:
        """Of all lite topics among those where the group has an offset. In any thread."""
        lags: list[tuple[int, int, str]] = []  # place in the log, count, lite topic
        for name in names:
            of, lite = lite_parts(name)
            queue, reached = self._queues.look(name, 0), self._offsets.query(group, name, 0) or 0
            if of == parent and max(reached, queue.min) < queue.max:
                lags.append((queue.entry(max(reached, queue.min)).offset, queue.max - reached, lite))
        by_count, by_time = sorted(lags, key=lambda lag: (-lag[1], lag[0]))[:most], sorted(lags)[:most]
        first_ms = self._store_time_at(min(lags)[0]) or -1 if lags else -1
        counted, timed = (
            [LiteLag(lite, count, self._store_time_at(at) or -1) for at, count, lite in some] for some in (by_count, by_time)
        )
        return LiteGroupInfo(group, parent, "", first_ms, sum(count for _, count, _ in lags), counted, timed)

    def trigger(self, request: TriggerLiteDispatch, _call: Call) -> None:
        self._rules(request.group)
        clients = self._lites.subscriptions.of_group(request.group)
        self._lites.look_through(one for one in clients if request.client_id in ("", one.key.client_id))

    def _store_time(self, queue: ConsumeQueue, offset: int) -> int:
        """Of that message; 0 if it is not there, or cannot be read. In any thread."""
        return self._store_time_at(queue.entry(offset).offset) if queue.min <= offset < queue.max else 0

    def _store_time_at(self, offset: int) -> int:
        """0 if it cannot be read: the other figures are of use all the same."""
        try:
            return self._read_store_time(offset)
        except StoreError:
            return 0

    def _rules(self, group: str) -> LiteRules:
        config = self._catalog.group(group)
        if config is None:
            raise no_group(group)
        if (rules := lite_rules(config)) is None:
            raise _invalid(f"group {group} is bound to no topic of type LITE: set its attribute lite.bind.topic")
        return rules


def _minutes(config: TopicConfig) -> int:
    return int(config.attributes.get(LITE_EXPIRATION, "-1"))


def _invalid(about: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, about)
