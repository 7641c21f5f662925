"""Sending."""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

from rmq.broker.feature import Feature
from rmq.broker.handlers.send import SendHandler
from rmq.broker.pending.intake import Intake
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.ports import Writer
from rmq.config.settings import NodeSettings
from rmq.errors import BadBytes
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.records import record
from rmq.measures import Family, Row
from rmq.net.commands import DraftedSend, Send, SendAnswer
from rmq.net.transport.server import Call, Later
from rmq.routing.topics import is_system_topic, message_type

_TRACED: Final = b"TRACE_ON\x01true\x02"
_SendHandler = Callable[[Send, Call], Later | Awaitable[Later | SendAnswer]]


class Sending(Feature):
    """For the arguments see `SendHandler`."""

    def __init__(
        self,
        settings: NodeSettings,
        writer: Writer,
        catalog: Catalog,
        all_known: Callable[[], Awaitable[None]],
        intake: Intake,
        given_up: Callable[[Send], Awaitable[SendAnswer] | None],
    ) -> None:
        self._handler = handler = SendHandler(settings, writer, catalog.topic, catalog.ensure_topic, all_known, intake, given_up)
        self._queues, self._topic = writer.queues, catalog.topic
        send = handler.send if settings.trace_messages else _untraced(handler.send)
        self.handlers = {Send: send, DraftedSend: handler.drafted}
        if settings.trace_messages:
            self.takes = {Send: handler.take, DraftedSend: handler.take}

    async def on_settings(self, settings: NodeSettings) -> None:
        self._handler.change_settings(settings)

    def on_topic_changed(self, topic: str) -> None:
        self._handler.forget(topic)

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


def _untraced(send: _SendHandler) -> _SendHandler:
    """Native clients that trace say so in their records; here consumers must read that the message is not traced
    [AbstractSendMessageProcessor.buildMsgContext]."""

    def serve(request: Send, call: Call) -> Later | Awaitable[Later | SendAnswer]:
        if _TRACED in request.records:
            with contextlib.suppress(BadBytes):  # `send` refuses them
                request = request._replace(records=b"".join(map(_without_trace, record.iterate(request.records))))
        return send(request, call)

    return serve


def _without_trace(sent: record.Record) -> bytes:
    properties = sent.properties.replace(_TRACED, b"TRACE_ON\x01false\x02")
    return record.draft_again(sent, sent.topic, properties, sent.reconsume_times)
