"""Counts messages in and out: rates of the last 10, 60 and 600 seconds and totals, for clusterList and brokerStatus.

Sampled every 10 s from counters that exist anyway, so the hot path pays one addition per request.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from typing import Any

from rmq.broker.shared.history import History
from rmq.broker.shared.turns import some_at_a_time
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.model import STATE_TOPIC
from rmq.net.transport.connection import Call, Handler
from rmq.routing.topics import HELD_TYPES, is_system_topic

SAMPLE_S = 10
KEPT = 61  # ten minutes and the sample before


class Rate:
    """One counter over time."""

    def __init__(self) -> None:
        self.total = 0
        self._samples: deque[tuple[float, int]] = deque(maxlen=KEPT)

    def sample(self, now: float) -> None:
        self._samples.append((now, self.total))

    def per_second(self, seconds: int) -> float | None:
        """Average over the last `seconds`, None while there is no sample that old (RocketMQ leaves the number out, too)."""
        steps = seconds // SAMPLE_S
        if len(self._samples) <= steps:
            return None
        (then, before), (now, after) = self._samples[-1 - steps], self._samples[-1]
        return (after - before) / (now - then) if now > then else 0.0

    def text(self) -> str:
        """ "a b c " as RocketMQ's runtime info prints rates."""
        rates = [self.per_second(seconds) for seconds in (10, 60, 600)]
        return "".join(f"{rate:.2f} " for rate in (rates[0] or 0.0, *rates[1:]) if rate is not None)


Reader = tuple[str, str]
"""Topic and group."""


class Sum:
    """Of counters that only rise. What one counted stays in `total` when it is gone, or has begun at 0 again."""

    def __init__(self, known: dict[str, int]) -> None:
        self.known = known
        self.total = 0

    async def see(self, counts: dict[str, int]) -> None:
        async for some in some_at_a_time(counts.items()):
            for name, count in some:
                before = self.known.get(name, 0)
                self.total += count - before if count >= before else count
        self.known = counts


MAX_READERS = 100_000  # groups times the topics that they read


class BrokerStats:
    """`queues()`: all queues, those of system topics too. `own`: topics with the names of cluster and broker, which do not count
    as users' (RocketMQ: BrokerPutNumsWithoutSystemTopic).

    Puts are not counted: what was put since the start follows from the ends of the queues. There may be 100 000 topics, so
    whatever looks at all of them gives others a turn now and then.
    """

    def __init__(self, queues: Callable[[], Sequence[ConsumeQueue]], own: Container[str] = ()) -> None:
        self._queues = queues
        self._own = own
        self._ends = Sum({topic: end for topic, end in _ends(queues()).items() if self._counts(topic)})
        self.came = Sum({})  # messages that this process appended, as leader; of system topics, too [StoreStatsService]
        self.came_bytes = Sum({})  # of their records in the log
        self._held: dict[str, int] = {}  # topic of messages that wait for something -> its messages
        self.ends = sum(self._ends.known.values())  # of all topics of users, when it was looked last
        self._turn = asyncio.Lock()
        self.put = Rate()
        self.found = Rate()  # pull requests that found messages
        self.missed = Rate()
        self.transferred = Rate()  # messages handed out
        self.out: dict[Reader, list[int]] = {}  # messages and bytes handed out, as long as topic and group exist
        self._gone: set[str] = set()  # groups that were deleted since the last sample
        self.charge: Callable[[Call, str, int, int], None] | None = None  # where there are quotas: topic, messages, bytes
        self.history = History()

    def handed_out(self, call: Call, topic: str, group: str, count: int, size: int) -> None:
        """Counts one answer with messages."""
        if self.charge is not None:
            self.charge(call, topic, count, size)
        self.found.total += 1
        self.transferred.total += count
        row = self.out.get((topic, group))
        if row is None:
            if len(self.out) >= MAX_READERS:
                self.out.clear()  # counters begin at 0 again, as after a restart
            row = self.out[topic, group] = [0, 0]
        row[0] += count
        row[1] += size

    def forget_group(self, group: str) -> None:
        """It was deleted."""
        self._gone.add(group)

    async def _forget(self, readers: Sequence[Reader], topics: Container[str]) -> None:
        """Of these readers those whose topic or group is gone."""
        gone, self._gone = self._gone, set()
        async for some in some_at_a_time(readers):
            for reader in some:
                if reader[0] not in topics or reader[1] in gone:
                    self.out.pop(reader, None)

    def _counts(self, topic: str) -> bool:
        return topic not in self._own and not is_system_topic(topic)

    async def refresh(self) -> None:
        """Brings `put`, `came` and `came_bytes` up to now."""
        async with self._turn:
            await self._refresh()

    async def _refresh(self) -> Container[str]:
        """Returns all topics that have queues."""
        ends: dict[str, int] = {}
        came: dict[str, int] = {}
        sizes: dict[str, int] = {}
        async for queues in some_at_a_time(self._queues()):
            for queue in queues:
                topic = queue.topic
                ends[topic] = ends.get(topic, 0) + queue.max
                if queue.came and topic != STATE_TOPIC:  # what we note for ourselves are no messages
                    came[topic] = came.get(topic, 0) + queue.came
                    sizes[topic] = sizes.get(topic, 0) + queue.came_bytes
        self._held = {topic: ends[topic] for topic in HELD_TYPES if topic in ends}
        users: dict[str, int] = {}
        async for some in some_at_a_time(ends.items()):
            users.update((topic, end) for topic, end in some if self._counts(topic))
        await self._ends.see(users)
        await self.came.see(came)
        await self.came_bytes.see(sizes)
        self.ends, self.put.total = sum(users.values()), self._ends.total
        return ends

    async def sample(self, now: float, cluster: str) -> None:
        """Notes for rates and `history` what stands now."""
        async with self._turn:
            readers = [*self.out]
            await self._forget(readers, await self._refresh())
            for rate in (self.put, self.found, self.missed, self.transferred):
                rate.sample(now)
            await self._note(now, cluster, [(reader, row[0], row[1]) for reader, row in self.out.items()])

    async def _note(self, now: float, cluster: str, out: list[tuple[Reader, int, int]]) -> None:
        history = self.history
        history.begin(now)
        history.add({("BROKER_PUT_NUMS", cluster): self.put.total, ("BROKER_GET_NUMS", cluster): self.transferred.total})
        async for rows in some_at_a_time(self._ends.known.items()):
            history.add({("TOPIC_PUT_NUMS", topic): end for topic, end in rows})
        history.add({("TOPIC_PUT_NUMS", topic): end for topic, end in self._held.items()})
        async for rows in some_at_a_time(self.came_bytes.known.items()):
            history.add({("TOPIC_PUT_SIZE", topic): size for topic, size in rows})
        async for taken in some_at_a_time(out):
            history.add({("GROUP_GET_NUMS", f"{topic}@{group}"): count for (topic, group), count, _ in taken})
            history.add({("GROUP_GET_SIZE", f"{topic}@{group}"): size for (topic, group), _, size in taken})
        history.end()

    def group_get_tps(self, group: str, topics: Iterable[str]) -> float:
        """Messages of these topics that the group was handed, a second. [BrokerStatsManager.tpsGroupGetNums]"""
        return sum(self.history.per_second(("GROUP_GET_NUMS", f"{topic}@{group}")) for topic in topics)

    def topic_put_tps(self, topic: str) -> float:
        """[BrokerStatsManager.tpsTopicPutNums]"""
        return self.history.per_second(("TOPIC_PUT_NUMS", topic))


def _ends(queues: Iterable[ConsumeQueue]) -> dict[str, int]:
    """Messages ever stored in each topic."""
    ends: dict[str, int] = {}
    for queue in queues:
        ends[queue.topic] = ends.get(queue.topic, 0) + queue.max
    return ends


def counted(pop: Callable[[Any, Call], Awaitable[Any]], stats: BrokerStats, count: Callable[[Any], int]) -> Handler:
    """A handler of pops, of any kind, that counts what it hands out. `count(answer)`: how many messages that has."""

    async def popped(request: Any, call: Call) -> Any:
        answer = await pop(request, call)
        if answer.status:
            stats.missed.total += 1
        else:
            stats.handed_out(call, request.topic, request.consumer_group, count(answer), len(answer.messages))
        return answer

    return popped
