"""Messages that wait: for their time, or for the end of their transaction."""

import base64
from typing import cast

from rmq.client.admin import lookups
from rmq.client.client import Client
from rmq.client.shared.message import ReceivedMessage
from rmq.client.shared.routes import find
from rmq.delivery.transactions import PARKED_TOPIC as PARKED_TOPIC
from rmq.log.records.delays import LEVELS_MS, delay_ms
from rmq.log.records.properties import is_number
from rmq.model import HALF_TOPIC, MessageQueue
from rmq.net.commands.timers import Recall
from rmq.net.commands.transactions import ListHalves, OpenHalf as OpenHalf, OpenHalves, ResumeCheck

_OUT = "TIMER_OUT_MS"
_RECALLS = "TIMER_DEL_UNIQKEY"


def due_ms(message: ReceivedMessage) -> int:
    """When a message of the topics of delayed ones comes (Unix ms), by the levels that RocketMQ has unless it says itself."""
    out = message.properties.get(_OUT, "")
    return int(out) if is_number(out) else message.store_timestamp + delay_ms(message.properties, LEVELS_MS)


def is_mark(message: ReceivedMessage) -> bool:
    """Whether it is no message, but says that the one with its id was taken back."""
    return _RECALLS in message.properties


async def is_recalled(client: Client, message: ReceivedMessage, patience_s: float) -> bool:
    """Whether a message with a time was taken back. Raises Refusal, Unreachable, Unknown."""
    hits = await lookups.by_key(client, message.queue.topic, message.message_id, unique=True, patience_s=patience_s)
    return any(map(is_mark, hits.messages))


async def open_halves(client: Client, address: str, producer_group: str = "", most: int = 100) -> OpenHalves:
    """Transactions that nobody has ended, of the broker at `address`. Raises Refusal, Unreachable, Unknown."""
    request = ListHalves(producer_group, most)
    return cast(OpenHalves, await client.session.connections.request(address, request))


async def half_message(client: Client, broker_name: str, half: OpenHalf) -> ReceivedMessage:
    """Its message, as it waits. Raises Refusal (it ended meanwhile), Unreachable, Unknown."""
    return await lookups.at(client, MessageQueue(HALF_TOPIC, broker_name, 0), half.queue_offset)


async def recall(client: Client, message: ReceivedMessage) -> None:
    """Take a timed message back, found in its waiting place. Raises Refusal: it is due, or the broker does not allow it
    (recallMessageEnable); Unreachable, Unknown. [RecallMessageHandle]"""
    said = message.properties
    topic = said.get("REAL_TOPIC", "")
    names_ms = due_ms(message) + 1  # a handle names a time that becomes the due one again
    words = f"v1 {topic} {message.queue.broker_name} {names_ms} {said.get('UNIQ_KEY', '')}"
    request = Recall(topic, base64.urlsafe_b64encode(words.encode()).decode())
    await find(client.session.routes, message.queue.broker_name, message.queue.topic)
    timeout_s = client.session.settings.request_timeout_s
    await client.session.leaders.request(message.queue.broker_name, request, timeout_s)


async def resume_check(client: Client, message_id: str) -> None:
    """Ask again after a transaction that nobody ended in time. `message_id`: with its place in the log, of PARKED_TOPIC.

    Raises InvalidArgument, Refusal, Unreachable, Unknown.
    """
    address = lookups.parse_offset_id(message_id).address
    await client.session.leaders.request_from(address, ResumeCheck(PARKED_TOPIC, message_id))
