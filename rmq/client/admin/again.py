"""Giving a message to a consumer group once more: a dead letter whose cause is mended, or any other one."""

from rmq.client.client import Client
from rmq.client.shared.message import ReceivedMessage
from rmq.delivery.retry import DROPPED, ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT
from rmq.log.records import record
from rmq.model import RETRY_PREFIX
from rmq.net.commands import Send, SendAnswer

_TRIES = frozenset({"DELAY", "RECONSUME_TIME", "MAX_RECONSUME_TIMES"})


async def consume_again(client: Client, group: str, message: ReceivedMessage) -> None:
    """A copy goes to the group's retry topic: one of its members gets it now, nobody of another group does.

    It counts as never failed, so it may come as often again as a new one. The original stays where it is. Raises Refusal,
    Unreachable (nothing was done), Unknown (it may come).
    """
    stored = message.stored
    known = record.bytes_to_properties(record.strip_reserved(stored.properties))
    kept = {name: value for name, value in known.items() if name not in DROPPED | _TRIES}
    kept |= {RETRY_TOPIC: message.topic, WAIT: "false"}
    kept.setdefault(ORIGIN_MESSAGE_ID, message.offset_message_id)
    topic = RETRY_PREFIX + group
    copy = record.draft_again(stored, topic, record.properties_to_bytes(kept))
    await client.session.routes.get(topic)
    request = Send(group, topic, -1, copy, default_topic_queue_nums=1)
    answer = await client.session.leaders.request(message.queue.broker_name, request, client.session.settings.request_timeout_s)
    assert isinstance(answer, SendAnswer)
