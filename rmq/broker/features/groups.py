"""Consumer groups and their members: who is connected, and the notice to all of them when the members change."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from rmq import background
from rmq.broker.feature import At, Export, Feature, Job
from rmq.broker.handlers.clients import ClientHandlers
from rmq.broker.handlers.connected import ConnectedHandlers
from rmq.broker.handlers.groups import ConsumerGroupHandlers
from rmq.broker.shared.catalog import Catalog
from rmq.clock import Clock
from rmq.codes import version_name
from rmq.config.settings import NodeSettings
from rmq.delivery.groups import ConsumerRegistry, groups_json, is_system_group
from rmq.delivery.offsets import OffsetTable
from rmq.errors import Refusal
from rmq.measures import Family, Row, gauge
from rmq.net.transport.server import Connection, Handler

log = logging.getLogger("rmq.groups")

EXPIRE_S = 10.0
_MODES = {"CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}


class Groups(Feature):
    """`hearing`: as `Front.hearing`."""

    def __init__(
        self,
        catalog: Catalog,
        registry: ConsumerRegistry,
        clients: ClientHandlers,
        offsets: OffsetTable,
        hearing: Callable[[Handler], Handler],
        clock: Clock,
    ) -> None:
        self._registry, self._groups, self._catalog = registry, catalog.groups, catalog
        self._clients = clients
        self._making: asyncio.Task[None] | None = None
        self.handlers = {
            **ConsumerGroupHandlers(catalog, offsets.end_group).by_request(),
            **clients.by_request(hearing),
            **ConnectedHandlers(registry, offsets.topics_of, clock).by_request(),
        }
        self.jobs = (Job(EXPIRE_S, "expire", clients.expire, At.EVERYWHERE),)
        groups, forbidden = catalog.groups, catalog.forbidden
        self.exports = {
            "subscriptionGroup.json": Export(
                lambda: groups_json(groups, forbidden), lambda: (groups.changes, groups.data_version, forbidden.changes)
            )
        }

    async def on_settings(self, settings: NodeSettings) -> None:
        self._catalog.auto_group, self._clients.notifies = settings.auto_create_group, settings.notify_members
        self._clients.differing = settings.differing_subscriptions

    def on_leader_ready(self) -> None:
        """Makes the groups of members that are here already: the former leader ended before it had, and they say again who they
        are only every half minute."""
        missing = [name for name in self._registry.group_names() if self._groups.decided(name) is None]
        if missing:
            self._making = background.start(self._make(missing), "groups of members")

    async def _make(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                await self._catalog.ensure_group(name)
            except Refusal as refusal:
                log.info("group %s is made when a member says again that it is here: %s", name, refusal)

    def metrics(self) -> Iterable[Family]:
        yield gauge("rocketmq_consumer_group_number", "consumer groups, the broker's own included", self._groups.count)
        labels = ("consumer_group", "consume_mode", "language", "version", "protocol_type", "is_system")
        about = "connected consumers"
        yield Family("rocketmq_consumer_connections", "gauge", about, labels, self._consumers())
        about = "connected producers"
        yield Family("rocketmq_producer_connections", "gauge", about, ("language", "version", "protocol_type"), self._producers())

    def _consumers(self) -> Iterator[Row]:
        for name in self._registry.group_names():
            if (view := self._registry.connection_view(name)) is None:
                continue
            mode = _MODES.get(view.consume_type, "pull")
            system = "true" if is_system_group(name) else "false"
            counted = Counter((one.language.lower(), version_name(one.version).lower()) for one in view.connections)
            for who, count in counted.items():
                yield (name, mode, *who, "remoting", system), float(count)

    def _producers(self) -> Iterator[Row]:
        for name in self._registry.producer_names():
            for one in self._registry.producers_of(name):
                yield (one.language.lower(), version_name(one.version).lower(), "remoting"), 1.0

    def on_connection_closed(self, connection: Connection) -> None:
        self._clients.closed(connection)
