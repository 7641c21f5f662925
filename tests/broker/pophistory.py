"""What happens in the histories of POP: a broker that is stopped and killed now and then, deletes what is old, and is asked by
our clients and by RocketMQ's. The books of its consumers are kept elsewhere."""

import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from rmq.errors import Refusal
from rmq.log.records import record
from rmq.log.records.record import Record
from rmq.model import GroupConfig
from rmq.net.commands import (
    DeleteExpiredLog,
    DeleteTopic,
    GetConsumeStats,
    GetMaxOffset,
    GetMinOffset,
    Pull,
    UpdateGroup,
    UpdateTopic,
)
from rmq.net.commands.pop import Ack, AckedRange, BatchAck
from rmq.testing import LocalBroker, TestClock
from tests.broker.javaclient import JavaClient
from tests.broker.popping import Popped
from tests.broker.support import SUBSCRIBED, Peer, send, stop_somehow
from tests.net.java_peer import read_answer

SETTINGS: dict[str, Any] = {
    "segment_bytes": 1 << 16,
    "max_message_bytes": 4096,
    "idle_timeout_ms": 86_400_000,
    "client_expiry_ms": 3_600_000,
    "index_slots": 100,
    "index_entries": 400,
    "reserved_hours": 4,
}
HOUR_MS = 3_600_000
QUEUES, TAGS = 2, "abc"
GROUPS = "g", "h"
MOST_TRIES = 2  # then a message is a dead letter
ALL, ONE_TAG, TWO_TAGS, BY_SQL = ("*", "TAG"), ("b", "TAG"), ("a || c", "TAG"), ("TAGS = 'b'", "SQL92")
WANTED = {ALL: "abc", ONE_TAG: "b", TWO_TAGS: "ac", BY_SQL: "b"}
"""By what consumers say that they want, and in which language: the tags of that."""


@asynccontextmanager
async def small_broker(folder: Path, seed: int) -> AsyncIterator[LocalBroker]:
    """It deletes nothing by itself: all its hours are odd ones, or all even, as only two at a time go by, and minutes."""
    clock = TestClock(running=False, wall_ms=(time.time_ns() // 1_000_000 // HOUR_MS + 1) * HOUR_MS)
    other = (time.localtime(clock.wall_ms() // 1000).tm_hour + 1) % 24
    async with LocalBroker(store_dir=folder / f"{seed}" / "store", clock=clock, delete_hours=(other,), **SETTINGS) as broker:
        yield broker


class Happenings:
    """`batches`: the topic T holds them. Hours pass only in `age`, and what was stored before `aged_ms` may be deleted."""

    def __init__(self, broker: LocalBroker, seed: int, batches: bool) -> None:
        self.broker = broker
        self.clock: TestClock = broker.clock
        self.batches = batches
        self.chance = random.Random(seed)
        self.aged_ms = 0

    async def begin(self) -> None:
        await self.connect()
        await self.make_topic()
        await self.peer.ask(UpdateTopic("F", read_queue_nums=1, write_queue_nums=1))
        for group in GROUPS:
            await self.make_group(group)

    async def connect(self) -> None:
        self.peer = await Peer.connect(self.broker.address)
        self._java = AsyncExitStack()
        self.java = await self._java.enter_async_context(JavaClient.connect(self.broker.address))
        await self.by_java(GetMaxOffset("TBW102", 0))  # who says nothing is not let in for long

    async def end(self) -> None:
        await self.peer.close()
        await self._java.aclose()

    def now(self) -> int:
        return self.clock.wall_ms()

    # --- what is asked

    async def by_java(self, request: Any) -> Any:
        """As `Peer.ask`, in RocketMQ's JSON."""
        header, body = await self.java.ask(request)
        if header.code and header.code not in (209, 210):
            raise Refusal(header.code, header.remark)
        return read_answer(header, body, type(request))

    async def ask(self, request: Any) -> Any:
        """Of our clients, or of RocketMQ's."""
        return await self.chance.choice((self.peer.ask, self.by_java))(request)

    async def make_topic(self) -> None:
        kind = "+queue.type=BatchCQ" if self.batches else ""
        await self.peer.ask(UpdateTopic("T", read_queue_nums=QUEUES, write_queue_nums=QUEUES, attributes=kind))

    async def make_group(self, group: str) -> None:
        await self.peer.ask(UpdateGroup(GroupConfig(group, retry_max_times=MOST_TRIES)))

    async def delete_topic(self, topic: str) -> None:
        """Some milliseconds go by, so that no two receipts have one name."""
        await self.peer.ask(DeleteTopic(topic))
        await self.clock.advance(0.01)

    async def store(self, queue_id: int, tag: str, new: Sequence[bytes]) -> list[int]:
        """Their offsets in the queue."""
        sends = [send("T", body, queue_id=queue_id, tags=tag) for body in new]
        if self.batches:
            sends = [sends[0]._replace(records=b"".join(one.records for one in sends), batch=True)]
        found = [answer.queue_offset for answer in await self.peer.send(*sends)]
        return [*range(found[0], found[0] + len(new))] if self.batches else found

    async def acknowledge(self, group: str, one: Popped) -> None:
        """In one of the ways in which clients do it."""
        request = self.chance.choice((_ack, _batch_ack))(group, one)
        await self.ask(request)

    async def read(self, topic: str, at: int) -> list[Record]:
        """What is in the first queue of that topic from there on; nothing if there is no such topic."""
        found: list[Record] = []
        try:
            at = max(at, int((await self.peer.ask(GetMinOffset(topic, 0))).offset))
            while more := [*record.iterate((await self.peer.ask(Pull("w", topic, 0, at, sys_flag=SUBSCRIBED))).messages)]:
                found += more
                at = more[-1].queue_offset + 1
        except Refusal:
            return []
        return found

    async def lag(self, group: str) -> int:
        """How many messages stand behind its place, wanted or not, as tools show it."""
        queues = (await self.peer.ask(GetConsumeStats(group, "T"))).queues
        return sum(each.broker_offset - each.consumer_offset for each in queues)

    # --- what happens to the broker

    async def grow(self) -> None:
        await self.peer.send(*(send("F", b"x" * 3000) for _ in range(10)))

    async def pass_time(self) -> None:
        await self.clock.advance(self.chance.choice((0.5, 3.0, 15.0)))

    async def restart(self) -> None:
        await self.end()
        await stop_somehow(self.broker, self.chance)
        await self.broker.start_broker()
        await self.connect()

    async def age(self) -> None:
        """Hours go by, and old segments are deleted."""
        await self.grow()
        await self.grow()
        self.clock.jump_wall(self.chance.choice((2, 6)) * HOUR_MS)
        await self.restart()  # a clock that jumped is not believed before
        for _ in range(3):
            await self.peer.ask(DeleteExpiredLog())
            await self.clock.advance(11.0)
        self.aged_ms = self.now() - SETTINGS["reserved_hours"] * HOUR_MS


def _ack(group: str, one: Popped) -> Ack:
    return Ack(group, one.topic, one.queue_id, one.handle, one.queue_offset)


def _batch_ack(group: str, one: Popped) -> BatchAck:
    start, pop_time, hidden_ms, revive_queue, flag = one.handle.split()[:5]
    bits = (1 << one.queue_offset - int(start)).to_bytes(128, "little")
    numbers = (int(start), one.queue_id, int(revive_queue), int(pop_time), int(hidden_ms))
    return BatchAck("broker", [AckedRange(group, "T", flag, *numbers, bits)])


class History(Protocol):
    """Of one kind, with the books of its consumers."""

    async def begin(self) -> None: ...

    async def step(self) -> None: ...

    async def finish(self) -> None: ...

    async def end(self) -> None: ...


Kind = Callable[[LocalBroker, int, tuple[str, str], bool], History]
"""Broker, seed, what the first group wants, whether the topic holds batches."""


async def play(
    kind: Kind, folder: Path, seed: int, expression: tuple[str, str] = ALL, batches: bool = False, steps: int = 40
) -> None:
    async with small_broker(folder, seed) as broker:
        history = kind(broker, seed, expression, batches)
        await history.begin()
        try:
            for _ in range(steps):
                await history.step()
            await history.finish()
        finally:
            await history.end()


async def play_all(kind: Kind, folder: Path, seeds: Iterable[int]) -> None:
    for at, seed in enumerate(seeds):
        await play(kind, folder / f"{at}", seed)
