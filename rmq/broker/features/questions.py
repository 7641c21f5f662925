"""Questions of tools to the members of groups."""

from collections.abc import Callable

from rmq.broker.feature import Feature
from rmq.broker.handlers.questions import QuestionHandlers
from rmq.broker.shared.catalog import Catalog
from rmq.delivery.groups import ConsumerRegistry
from rmq.net.transport.server import Connection


class Questions(Feature):
    """For the arguments see `QuestionHandlers`."""

    def __init__(
        self,
        broker_name: str,
        registry: ConsumerRegistry,
        catalog: Catalog,
        members: Callable[[str, str], list[Connection]],
        record_at: Callable[[int], bytes | None],
    ) -> None:
        self.handlers = QuestionHandlers(broker_name, registry, catalog, members, record_at).by_request()
