"""Consumer groups and their members: who is connected, and the notice to all of them when the members change."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

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
from rmq.measures import Family, Row, gauge
from rmq.net.transport.server import Connection, Handler

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
