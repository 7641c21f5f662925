"""OpenTelemetry's spans of a client, with its real SDK: what is exported, and how spans of both sides hang together."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rmq.client import Client, ClientSettings, Message, ReceivedMessage, Refusal, RetryLater
from rmq.testing import LocalBroker

pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk (the extra `dev`)")
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from rmq.client.spans import Spans, context_of


class Telemetry:
    """`provider`: a real SDK that keeps what it exports."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("program")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker() as broker:
        yield broker


def client_of(broker: LocalBroker, telemetry: Telemetry) -> Client:
    return broker.client(settings=ClientSettings(observers=[Spans(telemetry.provider)]))


async def test_a_consumer_s_spans_are_linked_to_the_producer_s_also_after_a_retry(broker: LocalBroker) -> None:
    """The sender's span is a child of the program's; the handler's own spans are children of the consumer's."""
    telemetry = Telemetry()

    async def handle(message: ReceivedMessage) -> None:
        with telemetry.tracer.start_as_current_span("cook"):
            await asyncio.sleep(0)
            if message.reconsume_times == 0:
                raise RetryLater(1)
            consumer.stop()

    async with client_of(broker, telemetry) as client:
        with telemetry.tracer.start_as_current_span("checkout") as checkout:
            sent = await client.producer("shop").send(Message("Orders", b"coffee", "hot"))
        async with client.consumer("kitchen", ["Orders"], start="first") as consumer:
            await consumer.run(handle)
    [produced] = telemetry.named("send Orders")
    assert produced.kind is SpanKind.PRODUCER
    assert produced.parent is not None
    assert produced.parent.span_id == checkout.get_span_context().span_id
    attributes = produced.attributes or {}
    assert attributes["messaging.message.id"] == sent.message_id
    assert attributes["messaging.destination.partition.id"] == str(sent.queue.queue_id)
    assert attributes["messaging.rocketmq.message.tag"] == "hot"
    tries = telemetry.named("process Orders")
    assert [span.kind for span in tries] == [SpanKind.CONSUMER] * 2
    assert [span.status.status_code for span in tries] == [StatusCode.ERROR, StatusCode.UNSET]
    for span in tries:
        assert span.parent is None
        assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [_ids(produced)]
    for span, cooked in zip(tries, telemetry.named("cook"), strict=True):
        assert cooked.parent is not None
        assert (cooked.parent.trace_id, cooked.parent.span_id) == _ids(span)


def _ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


async def test_batches_failures_and_messages_that_are_pulled(broker: LocalBroker) -> None:
    telemetry = Telemetry()
    async with client_of(broker, telemetry) as client:
        producer = client.producer()
        await producer.send_batch([Message("Orders", b"1"), Message("Orders", b"2")])
        await producer.send_oneway(Message("Orders", b"3"))
        with pytest.raises(Refusal):
            await producer.send(Message("Late", b"x", deliver_at_ms=2**63))
        async with client.consumer("pullers", ["Orders"], start="first") as consumer:
            got: list[ReceivedMessage] = []
            while len(got) < 3:
                got += await consumer.receive()
            assert not telemetry.named("process Orders"), "they are not finished yet"
            await consumer.commit()
    batch, oneway = telemetry.named("send Orders")
    assert (batch.attributes or {})["messaging.batch.message_count"] == 2
    [failed] = telemetry.named("send Late")
    assert (failed.status.status_code, (failed.attributes or {})["error.type"]) == (StatusCode.ERROR, "Refusal")
    linked = [link.context.span_id for span in telemetry.named("process Orders") for link in span.links]
    assert sorted(linked) == sorted([_ids(batch)[1], _ids(batch)[1], _ids(oneway)[1]])
    assert {trace.get_current_span(context_of(message)).get_span_context().span_id for message in got} == set(linked)


async def test_what_others_wrote_is_linked_or_passed_over_and_without_an_sdk_nothing_is_added(broker: LocalBroker) -> None:
    """`traceparent` as OpenTelemetry's agent for Java writes it; another one, which is none; and our own without an SDK."""
    telemetry = Telemetry()
    parent = f"00-{7:032x}-{9:016x}-01"
    async with broker.client(settings=ClientSettings(observers=[Spans()])) as bare, client_of(broker, telemetry) as client:
        for number, said in enumerate(({"traceparent": parent}, {"traceparent": "nonsense"}, {})):
            await bare.producer().send(Message("Orders", b"%d" % number, properties=said))
        async with client.simple_consumer("pickers", ["Orders"], start="first") as picker:
            got: list[ReceivedMessage] = []
            while len(got) < 3:
                for message in await picker.receive():
                    await picker.ack(message)
                    got.append(message)
    assert sorted(message.properties.get("traceparent", "") for message in got) == ["", parent, "nonsense"]
    spans = telemetry.named("process Orders")
    assert [(link.context.trace_id, link.context.span_id) for span in spans for link in span.links] == [(7, 9)]
    assert len(spans) == 3
