"""Messages whose handling failed: they come again, or become dead letters."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from rmq.broker.feature import Feature
from rmq.broker.handlers.sendback import SendBackHandlers
from rmq.broker.pending.intake import Intake
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.shared.catalog import Catalog
from rmq.delivery.groups import is_system_group
from rmq.measures import Family, Row
from rmq.net.transport.server import Call


class Retries(Feature):
    """For the arguments, and `given_up`, see `SendBackHandlers`."""

    def __init__(
        self,
        catalog: Catalog,
        internal_producer: InternalProducer,
        intake: Intake,
        locked: Callable[[str], bool],
        check_reads: Callable[[Call, str, str], None],
    ) -> None:
        failed = SendBackHandlers(catalog, internal_producer, intake, locked, check_reads)
        self._failed, self._groups = failed, catalog.groups
        self.given_up = failed.given_up
        self.handlers = failed.by_request()

    def metrics(self) -> Iterable[Family]:
        labels = ("consumer_group", "is_system")
        retried, dead = self._rows(self._failed.retried), self._rows(self._failed.dead)
        yield Family(
            "rmq_send_to_retry_messages_total", "counter", "messages that a consumer failed, to come again", labels, retried
        )
        yield Family("rocketmq_send_to_dlq_messages_total", "counter", "messages that came too often: dead letters", labels, dead)

    def _rows(self, counted: Counter[str]) -> Iterator[Row]:
        """Of every group, though nothing was counted yet: what begins at 1 has not risen for Prometheus."""
        for config in self._groups.all():
            if not is_system_group(config.name):
                yield (config.name, "false"), float(counted[config.name])
