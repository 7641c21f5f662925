"""Messages that are sent to see how long it takes. They are stored: use a topic that nobody reads, as a broker's own."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from rmq.client.client import Client
from rmq.client.producer.producer import Producer
from rmq.client.shared.message import Message, SendResult
from rmq.errors import RmqError

PROBE_GROUP = "TOOLS_PRODUCER"
ENOUGH = 3  # failures in a row: each may have taken the whole time of a request


class Probe(NamedTuple):
    """One send, and how long it took until the answer or the failure."""

    outcome: SendResult | RmqError
    ms: float


async def probes(client: Client, producer: Producer, topic: str, size_bytes: int, count: int) -> AsyncIterator[Probe]:
    """Sends so many messages of that size, one after another; the queues take turns. It ends when nothing gets through."""
    clock, message = client.session.clock, Message(topic, b"a" * size_bytes)
    timeout_s = client.session.settings.request_timeout_s
    failed = 0
    for _ in range(count):
        if failed == ENOUGH:
            return
        begun = clock.monotonic()
        outcome: SendResult | RmqError
        try:
            outcome, failed = await producer.send(message, timeout=timeout_s), 0
        except RmqError as error:
            outcome, failed = error, failed + 1
        yield Probe(outcome, (clock.monotonic() - begun) * 1000)


def mean_ms(found: Sequence[Probe]) -> float:
    """Without the first, which also asked for the route and opened a connection. [CheckMsgSendRTCommand]"""
    counted = found[1:] or found
    return sum(each.ms for each in counted) / len(counted)
