"""Who is connected, and for what, as tools ask [AdminBrokerProcessor]."""

from collections.abc import Callable, Mapping, Set
from typing import Any, Final

from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery.groups import ConsumerRegistry
from rmq.errors import NotThere
from rmq.net.commands import TopicList
from rmq.net.commands.clients import (
    GetAllProducers,
    GetProducerConnection,
    GetSubscription,
    GetTopicsOfGroup,
    GroupSubscription,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from rmq.net.transport.server import Call, Handler

MAX_PRODUCERS: Final = 50_000  # in one answer


class ConnectedHandlers:
    """`topics_of(group)`: topics in which it has an offset."""

    def __init__(self, registry: ConsumerRegistry, topics_of: Callable[[str], Set[str]], clock: Clock) -> None:
        self._registry = registry
        self._topics_of = topics_of
        self._clock = clock

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {
            GetProducerConnection: self.producers,
            GetAllProducers: self.all_producers,
            GetTopicsOfGroup: self.topics,
            GetSubscription: self.subscription,
        }

    def producers(self, request: GetProducerConnection, _call: Call) -> ProducerConnection:
        found = self._registry.producers_of(request.producer_group)
        if not found:
            raise NotThere(ResponseCode.SYSTEM_ERROR, f"the producer group[{request.producer_group}] not exist")
        return ProducerConnection(found)

    def all_producers(self, _request: GetAllProducers, _call: Call) -> ProducerTable:
        began_ms = self._clock.wall_ms() - self._clock.monotonic() * 1000
        groups: dict[str, list[ProducerInfo]] = {}
        for count, (group, client, heard) in enumerate(self._registry.all_producers()):
            if count >= MAX_PRODUCERS:
                break
            groups.setdefault(group, []).append(ProducerInfo(*client, int(began_ms + heard * 1000)))
        return ProducerTable(groups)

    def topics(self, request: GetTopicsOfGroup, _call: Call) -> TopicList:
        group = request.group
        return TopicList(sorted(self._topics_of(group) | self._registry.topics_of(group)))

    def subscription(self, request: GetSubscription, _call: Call) -> GroupSubscription:
        found = self._registry.subscription(request.group, request.topic)
        return GroupSubscription(request.group, request.topic, [] if found is None else [found])
