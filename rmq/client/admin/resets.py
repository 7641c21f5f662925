"""Resets a consumer group's offsets; shows first what that would do. [resetOffsetByTime, skipAccumulatedMessage]"""

import asyncio
from typing import Literal, NamedTuple

from rmq.client.admin.calls import (
    Silent,
    change_each,
    consume_stats,
    leaders,
    max_offset,
    min_offset,
    search_offset,
    topic_route,
)
from rmq.client.client import Client
from rmq.client.consumer.offsets import BrokerOffsets
from rmq.client.shared.routes import find
from rmq.codes import ResponseCode
from rmq.errors import InvalidArgument, Refusal, RmqError, Unknown, Unreachable, done_in_part
from rmq.model import MessageQueue
from rmq.net.commands.resets import CloneOffsets, ResetOffset
from rmq.routing.choose import readable_queues


class Offset(NamedTuple):
    """The queue offset of a message."""

    offset: int


Target = Literal["first", "last"] | Offset | int
"""The oldest message, behind the newest one, a queue offset, or the first message stored at or after a time (Unix ms)."""


class Move(NamedTuple):
    """The effect of a reset on one queue. `now`: the group's offset, None if it has none. `first`, `end`: of the queue."""

    queue: MessageQueue
    first: int
    end: int
    now: int | None
    to: int


async def plan_reset(client: Client, group: str, topic: str, target: Target, queue: MessageQueue | None = None) -> list[Move]:
    """The effect of a reset, queue by queue, without changing anything. `queue`: only this one.

    Raises Refusal: the topic or the group does not exist; InvalidArgument: no such queue, or an offset beyond its end.
    """
    queues = readable_queues(await topic_route(client, topic), topic)
    if queue is not None:
        if queue not in queues:
            raise InvalidArgument(f"{queue}: `rmq admin topicRoute -t {topic}` shows its queues")
        queues = [queue]
    reached = await _reached(client, group, topic)
    return [await _move(client, each, target, reached.get(each)) for each in queues]


async def _reached(client: Client, group: str, topic: str) -> dict[MessageQueue, int]:
    """The group's offsets; none where it never consumed the topic, and of a broker that does not answer: nothing else is known of
    its queues either. Raises Refusal if nobody knows the group."""
    stats = await consume_stats(client, group, topic, silent={})
    return {row.queue: row.consumer_offset for row in stats.queues}


async def _move(client: Client, queue: MessageQueue, target: Target, now: int | None) -> Move:
    first, end = await asyncio.gather(min_offset(client, queue), max_offset(client, queue))
    if isinstance(target, Offset):
        if not first <= target.offset <= end:
            raise InvalidArgument(
                f"offset {target.offset}: queue {queue.queue_id} of {queue.topic} at {queue.broker_name} "
                f"reaches from {first} to {end}"
            )
        return Move(queue, first, end, now, target.offset)
    to = {"first": first, "last": end}.get(target) if isinstance(target, str) else await search_offset(client, queue, target)
    assert to is not None
    return Move(queue, first, end, now, to)


async def reset(client: Client, group: str, moves: list[Move]) -> None:
    """Does the reset. Connected members go on there, too. The first failure is raised after all queues were tried, but for others
    of a broker that gave no answer; it says how many were set.

    Raises Refusal, Unreachable or Unknown.
    """
    failures: dict[str, RmqError] = {}  # by broker, its last one
    done, timeout_s = 0, client.session.settings.request_timeout_s
    for move in moves:
        name = move.queue.broker_name
        if not isinstance(failures.get(name), Refusal | None):
            continue
        request = ResetOffset(move.queue.topic, group, move.queue.queue_id, move.to)
        try:
            await find(client.session.routes, name, move.queue.topic)
            await client.session.leaders.request(name, request, timeout_s)
            done += 1
        except RmqError as error:
            failures[name] = error
    if failures:
        first = next(iter(failures.values()))
        raise done_in_part(first, failures.values(), done, f"; {done} of {len(moves)} queues were set")


async def clone(client: Client, source: str, group: str, topic: str, *, offline: bool = False) -> list[str]:
    """`group` goes on in the topic where `source` is; returns the brokers' addresses. Unless `offline`, not at brokers where the
    source has members of which none subscribes to the topic. Refusal: a broker does not know the group, or no broker an offset of
    the source. [cloneGroupOffset]"""
    offsets, route = BrokerOffsets(source, client.session, False), await client.session.routes.refresh(topic)
    silent: Silent = {}
    for queue in readable_queues(route, topic):
        if queue.broker_name in silent:
            continue
        try:
            if (await offsets.load(queue)).offset is not None:
                break
        except (Unreachable, Unknown) as error:
            silent[queue.broker_name] = error
    else:
        nowhere = Refusal(ResponseCode.QUERY_NOT_FOUND, f"group {source} has no offset in {topic}: is its name right?")
        raise next(iter(silent.values()), nowhere)
    addresses = leaders(route)
    await change_each(client, addresses, CloneOffsets(source, group, topic, offline))
    return addresses
