"""How consumer groups are: what waits for them, dead letters, and what is wrong among their members. [MonitorService]

Raises Refusal, Unreachable or Unknown. A group or a topic that is deleted meanwhile is left out.
"""

from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple, TypeVar

from rmq.client.admin import calls as ask, members, one
from rmq.client.client import Client
from rmq.client.shared.tasks import some_at_a_time
from rmq.model import DLQ_PREFIX, QueueProgress, QueueStats

T = TypeVar("T")
_AT_ONCE: Final = 8  # groups


class Waiting(NamedTuple):
    """Of one topic, messages that a group has not consumed: all of them, and the most in one queue; and how much newer the newest
    one is than the last that was consumed, in ms of store time (0: unknown). [UndoneMsgs]"""

    topic: str
    total: int
    most: int
    behind_ms: int


class GroupHealth(NamedTuple):
    """`members`: clients that are connected. `troubles`: what is wrong among them."""

    group: str
    members: int
    waiting: list[Waiting]
    dead_letters: int
    troubles: list[str]


async def health_of_groups(client: Client, silent: ask.Silent | None = None) -> list[GroupHealth]:
    """Of all groups that consume, by name, also of those with nobody connected. `silent`: as in `calls`; groups of which nobody
    else knows are left out, too."""
    found = await some_at_a_time(_AT_ONCE, lambda group: _health(client, group, silent), await ask.group_list(client))
    return one.known(found, silent)


async def _health(client: Client, group: str, silent: ask.Silent | None) -> GroupHealth | None:
    stats = await _told(ask.consume_stats(client, group, silent=silent), silent)
    if stats is None:
        return None
    topics = sorted({row.queue.topic for row in stats.queues})
    waiting = [
        _waiting(topic, [row for row in stats.queues if row.queue.topic == topic], await _queues(client, topic, silent))
        for topic in topics
    ]
    dead = sum(row.max_offset - row.min_offset for row in await _queues(client, DLQ_PREFIX + group, silent))
    connected, troubles = await _members(client, group, silent)
    return GroupHealth(group, connected, waiting, dead, troubles)


async def _told(asked: Awaitable[T], silent: ask.Silent | None) -> T | None:
    """None: it is not there, or only brokers know it that are in `silent`."""
    return await one.unless_silent(one.if_there(asked), silent)


async def _queues(client: Client, topic: str, silent: ask.Silent | None) -> list[QueueStats]:
    stats = await _told(ask.topic_stats(client, topic, silent), silent)
    return stats.queues if stats else []


def _waiting(topic: str, rows: Sequence[QueueProgress], queues: Sequence[QueueStats]) -> Waiting:
    newest = {each.queue: each.last_update_timestamp for each in queues}
    lags = [max(0, row.broker_offset - row.consumer_offset) for row in rows]
    behind = [
        newest.get(row.queue, 0) - row.last_timestamp for row, lag in zip(rows, lags, strict=True) if lag and row.last_timestamp
    ]
    return Waiting(topic, sum(lags), max(lags), max(0, *behind, 0))


async def _members(client: Client, group: str, silent: ask.Silent | None) -> tuple[int, list[str]]:
    """How many are connected, and what is wrong."""
    found, mute = await _told(members.all_running(client, group, silent=silent), silent) or ({}, {})
    wrong = [f"{name} does not say how it is: {why}" for name, why in mute.items()]
    return len(found) + len(mute), wrong + members.troubles(found, client.session.clock.wall_ms())
