"""Consumer groups and their members: who is connected, and the notice to all of them when the members change."""

from collections.abc import Callable, Container, Iterable

from rmq.broker.catalog import Catalog
from rmq.broker.feature import At, Feature, Job
from rmq.broker.handlers.clients import ClientHandlers
from rmq.broker.handlers.groups import ConsumerGroupHandlers
from rmq.clock import Clock
from rmq.delivery.groups import ConsumerRegistry, groups_json
from rmq.delivery.offsets import OffsetKey
from rmq.net.transport.server import Connection, Handler

EXPIRE_S = 10.0


class Groups(Feature):
    """`offsets_of`: as of `ConsumerGroupHandlers`; `connection`, `changed`: as of `ClientHandlers`.
    `hearing`: as `Front.hearing`."""

    def __init__(
        self,
        catalog: Catalog,
        registry: ConsumerRegistry,
        offsets_of: Callable[[str], Iterable[OffsetKey]],
        connection: Callable[[int], Connection | None],
        hearing: Callable[[Handler], Handler],
        changed: Callable[[Container[str]], None],
        clock: Clock,
    ) -> None:
        self.clients = ClientHandlers(registry, catalog.groups, catalog.let_in, connection, changed, clock)
        self.handlers = {
            **ConsumerGroupHandlers(catalog, offsets_of).by_request(),
            **self.clients.by_request(hearing),
        }
        self.jobs = (Job(EXPIRE_S, "expire", self.clients.expire, At.EVERYWHERE),)
        self.exports = {"subscriptionGroup.json": lambda: groups_json(catalog.groups)}

    def on_closed(self, connection: Connection) -> None:
        self.clients.closed(connection)
