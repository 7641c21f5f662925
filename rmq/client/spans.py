"""Spans of OpenTelemetry for what a client sends and consumes: `ClientSettings(observers=[Spans()])`. Needs `rmq[opentelemetry]`.

The producer's span travels in the message: W3C's `traceparent` and `tracestate` are among its properties, where OpenTelemetry's
agents put them for RocketMQ's own clients. So it survives retries, delays and dead letters. Names are those of the semantic
conventions for messaging. Without an SDK in the program nothing is recorded, and nothing is added to messages.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from rmq.client.shared.message import Message, ReceivedMessage, SendResult
from rmq.client.shared.observers import Handling, Observer, Sending
from rmq.client.shared.traceformat import Outcome

try:
    from opentelemetry import context, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError("spans need OpenTelemetry's API: pip install 'rmq[opentelemetry]'") from missing

_W3C: Final = TraceContextTextMapPropagator()
_SYSTEM: Final = {"messaging.system": "rocketmq"}
Attributes = dict[str, str | int]


def context_of(message: ReceivedMessage) -> Context:
    """The context in which the message was sent, for spans of the program's own."""
    return _W3C.extract(message.properties, context=Context())


class Spans(Observer):
    """Each call that sends is a producer's span, a child of the span that is current there. Each time that a consumer has a
    message is a consumer's span, linked to the sender's: current while a handler runs, else from when the message was given out
    until it is finished. `provider`: the process's own unless another is given."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("rmq.client", tracer_provider=provider)

    def sending(self, group: str, messages: Sequence[Message], half: bool) -> Sending:
        topics = {message.topic for message in messages}
        topic = next(iter(topics)) if len(topics) == 1 else ""
        attributes: Attributes = {**_SYSTEM, "messaging.operation.name": "send", "messaging.operation.type": "send"}
        attributes["messaging.rocketmq.client_group"] = group
        if topic:
            attributes["messaging.destination.name"] = topic
        if len(messages) == 1:
            attributes |= _about(messages[0], half)
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        span = self._tracer.start_span(f"send {topic}".strip(), kind=SpanKind.PRODUCER, attributes=attributes)
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, trace.set_span_in_context(span))
        return _SendSpan(span, [_carrying(message, carrier) for message in messages] if carrier else messages)

    def handling(self, group: str, message: ReceivedMessage, pushed: bool) -> Handling:
        sender = trace.get_current_span(context_of(message)).get_span_context()
        attributes: Attributes = {
            **_SYSTEM,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": group,
            "messaging.destination.name": message.topic,
            "messaging.destination.partition.id": str(message.queue.queue_id),
            "messaging.message.id": message.message_id,
            "messaging.message.body.size": message.body_bytes,
            "rmq.message.reconsume_times": message.reconsume_times,
        }
        links = [Link(sender)] if sender.is_valid else []
        span = self._tracer.start_span(f"process {message.topic}", kind=SpanKind.CONSUMER, attributes=attributes, links=links)
        return _HandleSpan(span, pushed)


def _about(message: Message, half: bool) -> Attributes:
    kind = "delay" if message.waits else "transaction" if half else "normal"
    found: Attributes = {
        "messaging.message.id": message.message_id,
        "messaging.message.body.size": len(message.body),
        "messaging.rocketmq.message.type": kind,
    }
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    return found


def _carrying(message: Message, carrier: Mapping[str, str]) -> Message:
    return message._replace(properties={**message.properties, **carrier})


class _SendSpan(Sending):
    def __init__(self, span: Span, messages: Sequence[Message]) -> None:
        super().__init__(messages)
        self._span = span

    def ended(self, results: Sequence[SendResult], error: BaseException | None) -> None:
        span = self._span
        if len(self.messages) == len(results) == 1:
            span.set_attribute("messaging.destination.partition.id", str(results[0].queue.queue_id))
        if error is not None:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR, str(error))
        span.end()


class _HandleSpan(Handling):
    def __init__(self, span: Span, current: bool) -> None:
        self._span = span
        self._token = context.attach(trace.set_span_in_context(span)) if current else None

    def ended(self, outcome: Outcome) -> None:
        if self._token is not None:
            context.detach(self._token)
        if outcome is not Outcome.SUCCESS:
            name = outcome.name.lower()
            self._span.set_attribute("error.type", name)
            self._span.set_status(StatusCode.ERROR, f"the message was not handled: {name.replace('_', ' ')}")
        self._span.end()
