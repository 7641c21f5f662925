"""Lookups of single messages for tools: by id, key, offset in a queue, or store time. [MQAdminImpl]

Nothing here changes anything at a broker. Every function raises Refusal (with the reason), Unreachable or Unknown.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from rmq.client.admin.calls import Silent, leading, max_offset, search_offset, topic_route
from rmq.client.client import Client
from rmq.client.shared.message import ReceivedMessage
from rmq.client.shared.reading import read_all
from rmq.client.shared.routes import find
from rmq.clock import latest_ms
from rmq.codes import ResponseCode
from rmq.errors import BadBytes, InvalidArgument, Refusal, RmqError, Unknown, Unreachable
from rmq.log.records.record import host_text
from rmq.model import PERM_READ, BrokerAddresses, MessageQueue
from rmq.net.commands import (
    PULL_SUBSCRIPTION,
    MessageAnswer,
    Pull,
    PullAnswer,
    QueryMessage,
    QueryMessageAnswer,
    ViewMessage,
)

FOREVER_MS = 2**63 - 1
TOOLS_GROUP = "TOOLS_CONSUMER"  # exists everywhere, commits nothing
INCOMPLETE = ResponseCode.SYSTEM_BUSY  # nothing is found, but somebody could not look
_OFFSET_ID_DIGITS = (32, 56)  # IPv4, IPv6
_PULL_COUNT = 32


class Hits(NamedTuple):
    """Messages by store time. Not `complete`: a broker is still building its index, or is silent, and there may be more."""

    messages: list[ReceivedMessage]
    complete: bool


class OffsetId(NamedTuple):
    """The content of an offsetMsgId: the broker, and the offset in its log."""

    address: str
    offset: int


def parse_offset_id(message_id: str) -> OffsetId:
    """Raises InvalidArgument for anything else: a unique key looks alike, but names no port."""
    try:
        data = bytes.fromhex(message_id)
    except ValueError:
        data = b""
    port = int.from_bytes(data[-12:-8], "big")
    if len(message_id) not in _OFFSET_ID_DIGITS or len(data) * 2 != len(message_id) or not 0 < port < 65536:
        raise InvalidArgument(f"{message_id!r} is no offset message id (32 or 56 hex digits: address, port, place in the log)")
    return OffsetId(host_text(data[:-8]), int.from_bytes(data[-8:], "big", signed=True))


async def by_offset_id(client: Client, message_id: str) -> ReceivedMessage:
    """The message an offsetMsgId names, from the broker it names; of an inner batch the first. Raises InvalidArgument; Refusal
    if there is none."""
    address, offset = parse_offset_id(message_id)
    answer = await client.session.connections.request(address, ViewMessage(offset))
    assert isinstance(answer, MessageAnswer)
    found = _received(answer.message, address)
    if len({one.stored.physical_offset for one in found}) != 1:
        raise BadBytes(f"{address} gave {len(found)} messages for one id")
    return found[0]


async def by_key(
    client: Client,
    topic: str,
    key: str,
    *,
    begin_ms: int = 0,
    end_ms: int = FOREVER_MS,
    limit: int = 64,
    unique: bool = False,
    tag: bool = False,
    patience_s: float | None = None,
) -> Hits:
    """The newest messages of the topic with that key (`unique`: unique key, `tag`: tag), at most 64 of each broker.

    `patience_s`: a broker that refuses, or does not answer by then, is left out, and the hits are not complete; without it, and
    where none answers, the first failure is raised. Refusal(SYSTEM_BUSY) when none is found and a broker is left out, or is still
    building its index.
    """
    request = QueryMessage(topic, key, limit, begin_ms, end_ms, unique, "T" if tag else "U" if unique else "K")
    hits, failures = await by_broker(client, request, patience_s)
    found = sorted((message for each in hits.values() for message in each.messages), key=_age)
    found = [one for one in found if unique and one.message_id == key] or found  # a batch with that key: all its messages
    complete = not failures and all(each.complete for each in hits.values())
    if not found and not complete:
        refused = next((f"; one refuses: {each}" for each in failures.values() if isinstance(each, Refusal)), "")
        why = "a broker does not answer, refuses, or is still building its index; ask again later"
        raise Refusal(INCOMPLETE, f"incomplete: {why}{refused}")
    return Hits(found[-limit:], complete)


async def by_broker(
    client: Client, request: QueryMessage, patience_s: float | None
) -> tuple[dict[str, Hits], dict[str, RmqError]]:
    """What each broker of the topic found, and why others did not look, as of `by_key`."""
    groups = (await topic_route(client, request.topic)).brokers
    answers = await asyncio.gather(*(_ask(client, group, request, patience_s) for group in groups))
    told = {group.name: answer for group, answer in zip(groups, answers, strict=True)}
    hits = {name: each for name, each in told.items() if isinstance(each, Hits)}
    failures = {name: each for name, each in told.items() if isinstance(each, RmqError)}
    if failures and (patience_s is None or not hits):
        raise next(iter(failures.values()))
    return hits, failures


async def _ask(client: Client, group: BrokerAddresses, request: QueryMessage, patience_s: float | None) -> Hits | RmqError:
    """An error: it gave no answer."""
    try:
        async with asyncio.timeout(patience_s):
            answer = await client.session.connections.request(leading(group), request)
    except Refusal as refusal:
        return Hits([], False) if refusal.code == ResponseCode.SYSTEM_BUSY else refusal
    except (Unreachable, Unknown) as error:
        return error
    except TimeoutError:
        return Unknown(f"{leading(group)}: no answer within {patience_s:g} s")
    assert isinstance(answer, QueryMessageAnswer)
    return Hits(_received(answer.messages, group.name), answer.complete)


def _received(messages: bytes, broker_name: str) -> list[ReceivedMessage]:
    return [ReceivedMessage(one, MessageQueue(one.topic, broker_name, one.queue_id)) for one in read_all(messages)]


def _age(message: ReceivedMessage) -> tuple[int, str, int, int]:
    return message.store_timestamp, message.queue.broker_name, message.stored.physical_offset, message.queue_offset


async def at(client: Client, queue: MessageQueue, offset: int) -> ReceivedMessage:
    """The message at that offset of the queue. Refusal(QUERY_NOT_FOUND) if there is none."""
    answer = await _pull(client, queue, offset, 1)
    found = [one for one in _received(answer.messages, queue.broker_name) if one.queue_offset == offset]
    if not found:
        kept = (
            f"messages {answer.min_offset} to {answer.max_offset - 1}" if answer.max_offset > answer.min_offset else "no message"
        )
        gone = f"and {offset} is no more among them" if answer.min_offset <= offset < answer.max_offset else f"not {offset}"
        about = f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name} has {kept}, {gone}"
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, about)
    return found[0]


async def between(
    client: Client,
    topic: str,
    *,
    begin_ms: int = 0,
    end_ms: int = FOREVER_MS,
    queue_id: int | None = None,
    silent: Silent | None = None,
) -> AsyncIterator[ReceivedMessage]:
    """Messages stored in that time and not deleted, queue by queue. `queue_id`: of these queues only. `silent`: as in `calls`, by
    broker name; also of brokers that refuse."""
    readable = [data for data in sorted((await topic_route(client, topic)).queues) if data.perm & PERM_READ]
    for data in readable:
        try:
            for each in range(data.read_queue_nums):
                if queue_id in (None, each):
                    async for message in _between(client, MessageQueue(topic, data.broker_name, each), begin_ms, end_ms):
                        yield message
        except (Refusal, Unreachable, Unknown) as error:
            if silent is None:
                raise
            silent[data.broker_name] = error
    if silent and len(silent) == len(readable):
        raise silent[readable[0].broker_name]


async def _between(client: Client, queue: MessageQueue, begin_ms: int, end_ms: int) -> AsyncIterator[ReceivedMessage]:
    offset, end = await search_offset(client, queue, begin_ms), await max_offset(client, queue)
    while offset < end:
        answer = await _pull(client, queue, offset, min(_PULL_COUNT, end - offset))
        for message in _received(answer.messages, queue.broker_name):
            if begin_ms <= message.store_timestamp <= end_ms:
                yield message
            elif end_ms < message.store_timestamp <= latest_ms(client.session.clock):
                return  # behind one of a time to come, of a clock that was ahead, there are others
        if answer.next_begin_offset <= offset:
            return
        offset = answer.next_begin_offset


async def _pull(client: Client, queue: MessageQueue, offset: int, count: int) -> PullAnswer:
    routes = client.session.routes
    await find(routes, queue.broker_name, queue.topic)
    request = Pull(TOOLS_GROUP, queue.topic, queue.queue_id, offset, count, sys_flag=PULL_SUBSCRIPTION)
    answer = await client.session.connections.request(routes.reader(queue.broker_name), request)
    assert isinstance(answer, PullAnswer)
    return answer


class Span(NamedTuple):
    """Messages `begin` to before `end` of a queue, as far as they were stored in that time."""

    queue: MessageQueue
    begin: int
    end: int
    begin_ms: int = 0
    end_ms: int = FOREVER_MS


async def span(client: Client, queue: MessageQueue, begin_ms: int = 0, end_ms: int = FOREVER_MS) -> Span:
    """What the queue has now that was stored in that time."""
    begin, most = await asyncio.gather(search_offset(client, queue, begin_ms), max_offset(client, queue))
    end = most if end_ms == FOREVER_MS else await search_offset(client, queue, end_ms + 1)
    if end < most and not await _is_later(client, queue, end, end_ms):  # others stand behind those of a clock that was ahead
        low, end = end + 1, most
        while low < end:
            middle = (low + end) // 2
            low, end = (low, middle) if await _is_later(client, queue, middle, end_ms) else (middle + 1, end)
    return Span(queue, begin, max(begin, end), begin_ms, end_ms)


async def _is_later(client: Client, queue: MessageQueue, offset: int, end_ms: int) -> bool:
    """Whether that message was stored later, and not by a clock that was ahead."""
    found = _received((await _pull(client, queue, offset, 1)).messages, queue.broker_name)
    return not found or end_ms < found[0].store_timestamp <= latest_ms(client.session.clock)


async def newest(client: Client, within: Span, limit: int = _PULL_COUNT) -> list[ReceivedMessage]:
    """At most `limit` of the last messages of the span, oldest first; fewer where they are so long that one answer has no room
    for more."""
    count = min(limit, _PULL_COUNT)
    while within.end > within.begin:
        start = max(within.begin, within.end - count)
        answer = await _pull(client, within.queue, start, within.end - start)
        if answer.next_begin_offset >= within.end or count == 1:
            some = [
                each for each in _received(answer.messages, within.queue.broker_name) if start <= each.queue_offset < within.end
            ]
            found = [each for each in some if within.begin_ms <= each.store_timestamp <= within.end_ms]
            if found or not some or min(each.store_timestamp for each in some) < within.begin_ms:
                return found
            within = within._replace(end=start)  # all of them of a clock that was ahead
            continue
        count = max(1, min(count - 1, answer.next_begin_offset - start))
    return []
