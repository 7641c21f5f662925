"""Messages whose handling failed: they come again, or become dead letters."""

from collections import Counter
from collections.abc import Iterable, Iterator

from rmq.broker.feature import Feature
from rmq.broker.handlers.sendback import SendBackHandlers
from rmq.delivery.groups import GroupTable, is_system_group
from rmq.measures import Family, Row


class Retries(Feature):
    def __init__(self, failed: SendBackHandlers, groups: GroupTable) -> None:
        self._failed, self._groups = failed, groups
        self.handlers = failed.by_request()

    def on_group_changed(self, group: str) -> None:
        if self._groups.get(group) is None:
            self._failed.forget(group)

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
