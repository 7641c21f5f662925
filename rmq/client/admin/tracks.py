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
from rmq.net.commands import QueryMessage

CONSUMED, FILTERED, NOT_YET, NOT_ONLINE = "CONSUMED", "CONSUMED_BUT_FILTERED", "NOT_CONSUME_YET", "NOT_ONLINE"
PULL, BROADCAST, UNKNOWN = "PULL", "CONSUME_BROADCASTING", "UNKNOWN"
RETRYING, DEAD = "RETRYING", "DEAD_LETTER"
_MOST_COPIES = 64  # of one broker


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

    `patience_s`: copies at another broker that refuses, or does not answer by then, are not looked for. UNKNOWN where the
    message's own broker does not say whether it has any.
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
        try:
            failed = await _failed(client, message, group, patience_s)
        except Refusal as refusal:
            if refusal.code != lookups.INCOMPLETE:
                raise
            return Track(group, UNKNOWN, offset)
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
    """The newest one in each topic where the broker puts what a group fails. Refusal(INCOMPLETE): there is none, as far as is
    known."""
    topics = (DLQ_PREFIX + group, RETRY_PREFIX + group, DELAY_TOPIC)
    told = await asyncio.gather(*(_newest(client, topic, message, group, patience_s) for topic in topics))
    found = [copy for copy, _ in told if copy is not None]
    if not found and not all(complete for _, complete in told):
        raise Refusal(lookups.INCOMPLETE, f"{message.queue.broker_name} does not say whether {group} failed {message.message_id}")
    return found


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


async def _newest(
    client: Client, topic: str, message: ReceivedMessage, group: str, patience_s: float | None
) -> tuple[ReceivedMessage | None, bool]:
    """And whether the message's own broker has looked at all it has."""
    request = QueryMessage(topic, message.message_id, _MOST_COPIES, 0, lookups.FOREVER_MS, True, "U")
    home = message.queue.broker_name
    try:
        hits, failures = await lookups.by_broker(client, request, patience_s)
    except Refusal as refusal:
        if refusal.code not in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_BUSY):
            raise
        return None, refusal.code == ResponseCode.TOPIC_NOT_EXIST
    except (Unreachable, Unknown):
        if patience_s is None:
            raise
        return None, False
    own = (RETRY_PREFIX + group, None)  # in the delay topic the message of another group waits, too
    copies = [copy for each in hits.values() for copy in each.messages if copy.properties.get("REAL_TOPIC") in own]
    complete = home not in failures and (home not in hits or hits[home].complete)
    return max(copies, key=lambda copy: copy.store_timestamp, default=None), complete


async def _is_consumed(client: Client, group: str, copy: ReceivedMessage) -> bool:
    route = await topic_route(client, copy.queue.topic)
    addresses = [leading(each) for each in route.brokers if each.name == copy.queue.broker_name]
    stats = await one.consume_stats(client, group, addresses[0], copy.queue.topic) if addresses else None
    return any(row.consumer_offset > copy.queue_offset for row in stats.queues if row.queue == copy.queue) if stats else False
