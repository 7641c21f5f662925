"""Pending messages at a group of brokers that is killed and cut apart: they wait for their time, for the end of a transaction, or
for an acknowledgement. In the end what the clients saw is compared with what the topic holds (C11, C12, C13, story 41)."""

import asyncio
import itertools
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from rmq.client import Client, Decision, Message, PoppedMessage, ReceivedMessage, SimpleConsumer, TransactionProducer
from rmq.errors import Refusal, RmqError
from rmq.log.records import record
from rmq.net.commands import Hello, Pull, PullAnswer
from tests.dialing import dial
from tests.faults.members import Members
from tests.faults.traffic import make_topic

TOPIC, QUEUES = "Waiting", 4
SETTINGS = {  # of the brokers: a transaction is asked after soon, and is not put aside while nobody leads
    "transaction_check_interval_ms": "1000",
    "transaction_timeout_ms": "2000",
    "transaction_check_max": "10000",
}
DELAYED, COMMITTED, ROLLED_BACK, ASKED = b"d", b"c", b"r", b"q"
HIDDEN_S = 3.0
LET_GO = 0.1  # of what is popped the first time
EARLY_MS = 50  # what the clocks of this machine's processes may differ by
END_S = 90.0
Kind = Callable[[TransactionProducer], Awaitable[None]]


class Wish(NamedTuple):
    """What was asked for: `due_ms` (Unix ms) of a delayed message. `promised`: the broker has confirmed it."""

    due_ms: int
    promised: bool


class Seen(NamedTuple):
    """A popped message: when (monotonic s) it came each time, and when its acknowledgement was confirmed: 0 if it was not,
    infinite if that was late or is unknown (it may come again, or not)."""

    came_s: list[float]
    acked_s: float


def problems(wishes: Mapping[bytes, Wish], topic: Mapping[bytes, list[int]], popped: Mapping[bytes, Seen]) -> list[str]:
    """Returns what is wrong, in words. `topic`: body -> when (Unix ms) each of its records was stored."""
    found = [f"{body!r} was invented" for body in topic if body not in wishes]
    for body, (due_ms, promised) in wishes.items():
        stored = topic.get(body, [])
        if body[:1] == ROLLED_BACK or (body[:1] == ASKED and not commits(body)):
            found += [f"{body!r} was rolled back and is there (C11)"] if stored else []
            continue
        if promised and not stored:
            found.append(f"{body!r} was promised and is not there (C11, C13)")
        if len(stored) > 1:
            found.append(f"{body!r} is there {len(stored)} times (C11, C13)")
        if stored and stored[0] < due_ms - EARLY_MS:
            found.append(f"{body!r} came {due_ms - stored[0]} ms early (C13)")
    for body in topic:
        seen = popped.get(body)
        if seen is None or not seen.acked_s:
            found.append(f"{body!r} was popped and acknowledged by nobody (story 41)")
        elif seen.came_s[-1] > seen.acked_s:
            found.append(f"{body!r} came again {seen.came_s[-1] - seen.acked_s:.1f} s after its acknowledgement was confirmed")
    return found


def commits(body: bytes) -> bool:
    """Returns what the producer says of a transaction when it is asked."""
    return body[:1] == COMMITTED or (body[:1] == ASKED and int(body[1:]) % 2 == 0)


def _answer(half: ReceivedMessage) -> Decision:
    return Decision.COMMIT if commits(half.body) else Decision.ROLLBACK


class Waiting:
    """`rate`: messages a second of each kind."""

    def __init__(self, members: Members, rate: float, seed: int) -> None:
        self._members = members
        self._each_s = 1 / rate
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self._client = Client(members.nameserver_list)
        self._wishes: dict[bytes, Wish] = {}
        self._popped: dict[bytes, Seen] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._poppers: list[asyncio.Task[None]] = []
        self.covered: Counter[str] = Counter()

    async def start(self) -> None:
        self._client.start()
        await make_topic(self._client, self._members, TOPIC, QUEUES)
        producer = self._client.transaction_producer(_answer, "waiters", topics=[TOPIC])
        self._tasks = [asyncio.create_task(self._send(producer, kind)) for kind in (self._delayed, self._transaction)]
        self._poppers = [asyncio.create_task(self._pop()) for _ in range(2)]

    async def stop(self) -> None:
        for task in (*self._tasks, *self._poppers):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._poppers, return_exceptions=True)
        await self._client.close()

    async def finish(self) -> list[str]:
        """Stops sending, and returns what is wrong once all messages were received and acknowledged, or no more come."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        until = time.monotonic() + END_S
        while True:
            last_s = max((seen.came_s[-1] for seen in self._popped.values()), default=0.0)
            found = problems(self._wishes, await self._stored(), self._popped)
            quiet = time.monotonic() > last_s + 2 * HIDDEN_S  # nothing comes any more
            if (quiet and not found) or time.monotonic() > until:
                return found
            await asyncio.sleep(1.0)

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _send(self, producer: TransactionProducer, kind: Kind) -> None:
        pending: set[asyncio.Future[None]] = set()
        try:
            while True:
                await asyncio.sleep(self._each_s)
                task = asyncio.ensure_future(kind(producer))
                pending.add(task)
                task.add_done_callback(pending.discard)
        finally:
            await asyncio.gather(*pending)

    async def _delayed(self, producer: TransactionProducer) -> None:
        body, now_ms = b"%b%d" % (DELAYED, next(self._numbers)), time.time_ns() // 1_000_000
        if self._chance.random() < 0.5:
            message, due_ms = Message(TOPIC, body, delay_level=1), now_ms + 1000
        else:
            due_ms = now_ms + self._chance.randrange(500, 5000)
            message = Message(TOPIC, body, deliver_at_ms=due_ms)
        self._wishes[body] = Wish(due_ms, False)
        try:
            await producer.send(message)
        except RmqError:
            self.covered["waits: unknown or refused"] += 1
        else:
            self._wishes[body] = Wish(due_ms, True)
            self.covered["waits: delayed"] += 1

    async def _transaction(self, producer: TransactionProducer) -> None:
        kind = self._chance.choice((COMMITTED, COMMITTED, ROLLED_BACK, ASKED))
        body = b"%b%d" % (kind, next(self._numbers))
        self._wishes[body] = Wish(0, False)
        said = {COMMITTED: Decision.COMMIT, ROLLED_BACK: Decision.ROLLBACK, ASKED: Decision.UNKNOWN}[kind]
        stored = False

        def execute(_: object) -> Decision:
            nonlocal stored
            stored = True
            return said

        try:
            await producer.send_in_transaction(Message(TOPIC, body), execute)
        except RmqError:
            self.covered["waits: unknown or refused"] += 1
        if stored:  # whatever became of the word, the broker asks
            self._wishes[body] = Wish(0, True)
            self.covered["waits: transactions"] += 1

    # --- taking -------------------------------------------------------------------------------------------------------

    async def _pop(self) -> None:
        consumer = self._client.simple_consumer("poppers", TOPIC, start="first")
        while True:
            try:
                for message in await consumer.receive(8, invisible_seconds=HIDDEN_S, wait_seconds=2.0):
                    await self._popped_one(consumer, message)
            except RmqError:
                await asyncio.sleep(0.2)

    async def _popped_one(self, consumer: SimpleConsumer, message: PoppedMessage) -> None:
        seen = self._popped.setdefault(message.body, Seen([], 0.0))
        seen.came_s.append(time.monotonic())
        if len(seen.came_s) == 1 and self._chance.random() < LET_GO:
            self.covered["waits: popped and let go"] += 1
            return
        self.covered["waits: popped again"] += len(seen.came_s) > 1
        try:
            await consumer.ack(message)
            acked_s = time.monotonic()
        except Refusal:
            return
        except RmqError:
            acked_s = math.inf
        if acked_s > seen.came_s[-1] + HIDDEN_S - 1.0:  # it may have come back before that was heard
            acked_s = math.inf
        self._popped[message.body] = seen._replace(acked_s=acked_s)

    async def _stored(self) -> dict[bytes, list[int]]:
        """Reads what the topic holds, at its leader."""
        leader = self._members.nodes[self._members.leader] if self._members.leader else None
        found: dict[bytes, list[int]] = defaultdict(list)
        if leader is None:
            return found
        channel = await dial(leader.address, Hello(1, "reader"))
        for queue_id in range(QUEUES):
            offset = 0
            while True:
                answer = await channel.request(Pull("waiting", TOPIC, queue_id, offset, sys_flag=4), 10.0)
                assert isinstance(answer, PullAnswer)
                if answer.status != 0:
                    break
                for one in record.iterate(answer.messages):
                    found[one.body].append(one.store_timestamp)
                offset = answer.next_begin_offset
        await channel.close()
        return found
