"""Messages whose handling failed: they come again, or become dead letters."""

from collections.abc import Callable, Iterable

from rmq.broker.catalog import Catalog
from rmq.broker.feature import Feature
from rmq.broker.handlers.sendback import SendBackHandlers
from rmq.broker.pending.intake import Intake
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.delivery.groups import is_system_group
from rmq.measures import Family, Row


class Retries(Feature):
    """For the arguments, and `given_up`, see `SendBackHandlers`."""

    def __init__(
        self, catalog: Catalog, internal_producer: InternalProducer, intake: Intake, locked: Callable[[str], bool]
    ) -> None:
        failed = SendBackHandlers(catalog, internal_producer, intake, locked)
        self._failed = failed
        self.given_up = failed.given_up
        self.handlers = failed.by_request()

    def metrics(self) -> Iterable[Family]:
        labels = ("consumer_group", "is_system")
        retried, dead = _rows(self._failed.retried), _rows(self._failed.dead)
        yield Family(
            "rmq_send_to_retry_messages_total", "counter", "messages that a consumer failed, to come again", labels, retried
        )
        yield Family("rocketmq_send_to_dlq_messages_total", "counter", "messages that came too often: dead letters", labels, dead)


def _rows(counted: dict[str, int]) -> list[Row]:
    return [((group, "true" if is_system_group(group) else "false"), float(count)) for group, count in counted.items()]
