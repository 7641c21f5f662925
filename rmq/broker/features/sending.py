"""Sending."""

from collections.abc import Awaitable, Callable, Iterable, Iterator

from rmq.broker.feature import Feature
from rmq.broker.handlers.send import SendHandler
from rmq.broker.pending.intake import Intercepted
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.ports import Writer
from rmq.config.settings import NodeSettings
from rmq.log.queues.queues import ConsumeQueues
from rmq.measures import Family, Row
from rmq.net.commands import DraftedSend, Send, SendAnswer
from rmq.routing.topics import is_system_topic, message_type


class Sending(Feature):
    """For the arguments see `SendHandler`."""

    def __init__(
        self,
        settings: NodeSettings,
        writer: Writer,
        catalog: Catalog,
        all_known: Callable[[], Awaitable[None]],
        take: Callable[[bytes, int, int], Intercepted | None],
        given_up: Callable[[Send], Awaitable[SendAnswer] | None],
    ) -> None:
        self._handler = handler = SendHandler(settings, writer, catalog.topic, catalog.ensure_topic, all_known, take, given_up)
        self._queues, self._topic = writer.queues, catalog.topic
        self.handlers = {Send: handler.send, DraftedSend: handler.drafted}

    async def on_settings(self, settings: NodeSettings) -> None:
        self._handler.auto_create = settings.auto_create_topic

    def metrics(self) -> Iterable[Family]:
        """Counted at the node that appended them, which is the leader; from 0 on when the process starts."""
        labels = ("topic", "message_type", "is_system")
        queues = self._queues
        yield Family("rocketmq_messages_in_total", "counter", "messages that came", labels, self._rows(queues, "came"))
        yield Family("rocketmq_throughput_in_total", "counter", "bytes that came", labels, self._rows(queues, "came_bytes"))

    def _rows(self, queues: ConsumeQueues, count: str) -> Iterator[Row]:
        """One value for each queue: the exporter adds those of a topic up."""
        for queue in queues.all():
            if queue.came:
                kind = message_type(queue.topic, self._topic(queue.topic))
                system = "true" if is_system_topic(queue.topic) else "false"
                yield (queue.topic, kind, system), float(getattr(queue, count))
