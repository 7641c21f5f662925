"""What became of one message in each group that consumes its topic. [MessageTrack, DefaultMQAdminExtImpl.messageTrackDetail]

RocketMQ's words, and two more: a message that a group failed lies in its retry topic, or among its dead letters, while its
place in the topic counts as consumed.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from rmq.client.admin import lookups, one
from rmq.client.admin.calls import leading, topic_route
from rmq.client.client import Client
from rmq.client.shared.message import ReceivedMessage
from rmq.codes import ResponseCode
from rmq.errors import Refusal, Unknown, Unreachable
from rmq.model import BROADCASTING, DELAY_TOPIC, DLQ_PREFIX, RETRY_PREFIX, MessageQueue

CONSUMED, FILTERED, NOT_YET, NOT_ONLINE = "CONSUMED", "CONSUMED_BUT_FILTERED", "NOT_CONSUME_YET", "NOT_ONLINE"
PULL, BROADCAST, UNKNOWN = "PULL", "CONSUME_BROADCASTING", "UNKNOWN"
RETRYING, DEAD = "RETRYING", "DEAD_LETTER"


class Track(NamedTuple):
    """`at`: where its copy lies, if the group failed it; `tries`: how often it has come again. `offset`: how far the group is in
    the message's queue, -1 if it never consumed there."""

    group: str
    state: str
    offset: int = -1
    at: MessageQueue | None = None
    at_offset: int = 0
    tries: int = 0


async def tracks(client: Client, message: ReceivedMessage, patience_s: float | None = None) -> list[Track]:
    """Of every group that the message's broker knows to consume the topic, by name. Raises Refusal, Unreachable, Unknown.

    `patience_s`: copies at another broker that does not answer by then are not looked for.
    """
    route = await topic_route(client, message.queue.topic)
    addresses = [leading(group) for group in route.brokers if group.name == message.queue.broker_name]
    if not addresses:
        return []
    groups = await one.groups_of_topic(client, message.queue.topic, addresses[0])
    return list(await asyncio.gather(*(_track(client, message, group, addresses[0], patience_s) for group in sorted(groups))))


async def _track(client: Client, message: ReceivedMessage, group: str, address: str, patience_s: float | None) -> Track:
    stats, members = await asyncio.gather(
        one.consume_stats(client, group, address, message.queue.topic), one.connection(client, group, address)
    )
    offset = next((row.consumer_offset for row in stats.queues if row.queue == message.queue), -1)
    if members is not None and members.message_model == BROADCASTING:
        return Track(group, BROADCAST)
    if offset > message.queue_offset:
        failed = await _failed(client, message, group, patience_s)
        if failed is not None:
            return failed._replace(offset=offset)
        return Track(group, CONSUMED if _wants(members, message) else FILTERED, offset)
    if members is None:
        return Track(group, NOT_ONLINE, offset)
    return Track(group, PULL if members.consume_type == "CONSUME_ACTIVELY" else NOT_YET, offset)


def _wants(members: one.ConsumerConnection | None, message: ReceivedMessage) -> bool:
    """By tags, as far as the group says now what it wants."""
    for each in members.subscriptions if members else ():
        if each.topic == message.queue.topic and each.expression_type in ("", "TAG") and each.expression.strip() not in ("", "*"):
            return message.tags in {tag.strip() for tag in each.expression.split("||")}
    return True


async def _failed(client: Client, message: ReceivedMessage, group: str, patience_s: float | None) -> Track | None:
    """The newest copy of the message that the group gave back; None if there is none, or it was consumed since."""
    copies = await _copies(client, message, group, patience_s)
    found = await _newest_of(client, copies, group)
    return None if found is None or found.state == CONSUMED else found


async def since_death(client: Client, letter: ReceivedMessage, group: str, patience_s: float | None = None) -> Track | None:
    """What became of a dead letter that was given to its group again: CONSUMED, RETRYING (it waits) or DEAD_LETTER (it failed
    once more); None if it was not given again. Raises Refusal, Unreachable, Unknown."""
    copies = await _copies(client, letter, group, patience_s)
    place = letter.queue, letter.queue_offset
    later = [one for one in copies if one.store_timestamp >= letter.store_timestamp and (one.queue, one.queue_offset) != place]
    return await _newest_of(client, later, group)


async def _copies(client: Client, message: ReceivedMessage, group: str, patience_s: float | None) -> list[ReceivedMessage]:
    """The newest one in each topic where the broker puts what a group fails."""
    topics = (DLQ_PREFIX + group, RETRY_PREFIX + group, DELAY_TOPIC)
    found = await asyncio.gather(*(_newest(client, topic, message.message_id, group, patience_s) for topic in topics))
    return [copy for copy in found if copy is not None]


async def _newest_of(client: Client, copies: Sequence[ReceivedMessage], group: str) -> Track | None:
    if not copies:
        return None
    last = max(copies, key=lambda copy: copy.store_timestamp)
    track = Track(group, RETRYING, -1, last.queue, last.queue_offset, last.reconsume_times)
    if last.queue.topic == DLQ_PREFIX + group:
        return track._replace(state=DEAD)
    if last.queue.topic == RETRY_PREFIX + group and await _is_consumed(client, group, last):
        return track._replace(state=CONSUMED)
    return track


async def _newest(client: Client, topic: str, message_id: str, group: str, patience_s: float | None) -> ReceivedMessage | None:
    try:
        found = await lookups.by_key(client, topic, message_id, unique=True, patience_s=patience_s)
    except Refusal as refusal:
        if refusal.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_BUSY):
            return None
        raise
    except (Unreachable, Unknown):
        if patience_s is None:
            raise
        return None
    own = (RETRY_PREFIX + group, None)  # in the delay topic the message of another group waits, too
    return next((copy for copy in reversed(found.messages) if copy.properties.get("REAL_TOPIC") in own), None)


async def _is_consumed(client: Client, group: str, copy: ReceivedMessage) -> bool:
    route = await topic_route(client, copy.queue.topic)
    addresses = [leading(each) for each in route.brokers if each.name == copy.queue.broker_name]
    stats = await one.consume_stats(client, group, addresses[0], copy.queue.topic) if addresses else None
    return any(row.consumer_offset > copy.queue_offset for row in stats.queues if row.queue == copy.queue) if stats else False
