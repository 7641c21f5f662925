"""Producers, a consumer group (`takers`) and readers at a group of brokers; everything they saw is kept as a history."""

import asyncio
import itertools
import random
import time
from bisect import bisect_left

from rmq.client import Client, Message, Producer
from rmq.client.admin import calls as admin
from rmq.client.admin.groups import transfer_leader
from rmq.codes import ResponseCode
from rmq.errors import Refusal, RmqError, Unknown
from rmq.log.records import record
from rmq.model import MessageQueue
from rmq.net.commands import Hello, Pull, PullAnswer
from rmq.net.transport.channel import Channel
from tests.dialing import dial
from tests.faults.checker import Stored
from tests.faults.history import ACKED, REFUSED, UNKNOWN, Attempt, Delivery, History
from tests.faults.members import GROUP, Members
from tests.faults.takers import Takers, name_of

TOPIC = "Group"
QUEUES, SENDERS = 8, 40
FILLING = b"-" + b"x" * 250
CATCH_UP_S = 10.0  # what was not sent so long is made up for, at twice the rate at most


class Traffic:
    """`rate`: sends a second in all."""

    def __init__(self, members: Members, rate: float, seed: int) -> None:
        self._members = members
        self.rate = rate  # may be changed
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self.attempts: list[Attempt] = []
        self.acked = 0
        self.takers = Takers(members.nameserver_list, TOPIC, random.Random(seed))
        self._seen: dict[tuple[int, int], bytes] = {}
        self._read: list[Delivery] = []  # the first of each, and what differs from it
        self.reads = 0
        self._sending: list[asyncio.Task[None]] = []
        self._reading: list[asyncio.Task[None]] = []
        self._client = Client(members.nameserver_list)
        self._stopped = False

    async def start(self) -> None:
        self._client.start()
        await make_topic(self._client, self._members, TOPIC, QUEUES)
        producer = self._client.producer("movers")
        self._sending = [asyncio.create_task(self._send(producer, number)) for number in range(SENDERS)]
        self._reading = [asyncio.create_task(self._follow(name)) for name in self._members.names]
        self.takers.join()

    async def hand_over(self, node: str) -> None:
        """To that node of the group, as soon as it may lead: it has been there for a while. TimeoutError."""
        async with asyncio.timeout(60):
            while self._members.leader != node:
                try:
                    await transfer_leader(self._client, GROUP, node, 10.0)
                    return
                except RmqError:
                    await asyncio.sleep(0.1)

    async def stop_sending(self) -> None:
        self._stopped = True
        await asyncio.gather(*self._sending)

    async def stop(self) -> None:
        self._stopped = True
        for task in (*self._sending, *self._reading):
            task.cancel()
        await asyncio.gather(*self._sending, *self._reading, return_exceptions=True)
        await self.takers.stop()
        await self._client.close()

    def acked_since(self, moment_s: float) -> bool:
        """Whether a send that began after that was acknowledged."""
        for attempt in reversed(self.attempts):
            if attempt.ended_s < moment_s:
                return False
            if attempt.outcome == ACKED and attempt.began_s > moment_s:
                return True
        return False

    def since(self, moment_s: float) -> list[Attempt]:
        """Returns the sends that ended after that."""
        first = bisect_left(self.attempts, moment_s, key=lambda attempt: attempt.ended_s)
        return self.attempts[first:]

    def forget(self) -> list[Attempt]:
        """Returns the sends since the last call and forgets them, for runs of hours; deliveries are not judged then."""
        attempts, self.attempts = self.attempts, []
        for kept in (self.takers.delivered, self.takers.got, self._read, self._seen):
            kept.clear()
        return attempts

    def consumed(self, queues: dict[int, list[Stored]]) -> bool:
        return not self.missing(queues)

    def missing(self, queues: dict[int, list[Stored]]) -> dict[int, tuple[int, int]]:
        """Of queues that are not consumed: how many messages are missing, and the offset of the first."""
        got, found = self.takers.got, dict[int, tuple[int, int]]()
        for queue_id, stored in queues.items():
            offsets = [each.queue_offset for each in stored if (queue_id, each.queue_offset) not in got]
            if offsets:
                found[queue_id] = len(offsets), offsets[0]
        return found

    def history(self, queues: dict[int, list[Stored]]) -> History:
        return History(self.attempts, [self.takers.delivered], self._read, queues, self._members.leads)

    async def _send(self, producer: Producer, number: int) -> None:
        queue = MessageQueue(TOPIC, GROUP, number % QUEUES)
        due = at = time.monotonic() + self._chance.random() * SENDERS / self.rate
        while not self._stopped:
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            body = b"%d" % next(self._numbers)
            began, offset = time.monotonic(), -1
            try:
                offset = (await producer.send(Message(TOPIC, body + FILLING, keys=["k"]), queue=queue)).queue_offset
                outcome, trouble = ACKED, ""
            except RmqError as error:
                outcome, trouble = outcome_of(error), str(error)
            ended, each = time.monotonic(), SENDERS / self.rate
            self.attempts.append(Attempt(queue.queue_id, body, began, ended, outcome, offset, trouble))
            self.acked += outcome == ACKED
            due = max(due + each, ended - CATCH_UP_S)
            at = max(due, began + each / 2)

    async def _follow(self, name: str) -> None:
        """Reads all queues at one node, whatever its role is."""
        offsets = dict.fromkeys(range(QUEUES), 0)
        channel: Channel | None = None
        while True:
            await asyncio.sleep(0.2)
            try:
                if channel is None or channel.closed.is_set():
                    channel = await dial(self._members.nodes[name].address, Hello(1, "reader"), timeout_s=1.0)
                for queue_id in offsets:
                    while some := await pulled(channel, queue_id, offsets[queue_id]):
                        offsets[queue_id] = some[-1].queue_offset + 1
                        self._note(queue_id, some)
            except RmqError:
                if channel is not None:
                    channel.abort("asked again on another")  # after a cut a new one is faster

    def _note(self, queue_id: int, some: list[Stored]) -> None:
        """Keeps the first message of each offset, and those that differ from it, because three nodes say the same."""
        self.reads += len(some)
        for each in some:
            if self._seen.get((queue_id, each.queue_offset)) != each.body:
                self._seen.setdefault((queue_id, each.queue_offset), each.body)
                self._read.append(Delivery(queue_id, each.queue_offset, each.body, time.monotonic()))


async def make_topic(client: Client, members: Members, topic: str, queues: int, attributes: str = "") -> None:
    """Makes the topic as soon as a node leads, and returns when clients can find it."""
    async with asyncio.timeout(60):
        while True:
            try:
                leader = members.nodes[members.leader].address if members.leader else ""
                if leader:
                    await admin.update_topic(
                        client, topic, broker=leader, read_queues=queues, write_queues=queues, attributes=attributes
                    )
                    await client.session.routes.get(topic)
                    return
            except RmqError:
                pass
            await asyncio.sleep(0.1)


def outcome_of(error: RmqError) -> str:
    """Of a send that failed so."""
    unknown = isinstance(error, Unknown) or (isinstance(error, Refusal) and error.code == ResponseCode.SYSTEM_ERROR)
    return UNKNOWN if unknown else REFUSED


async def pulled(channel: Channel, queue_id: int, offset: int) -> list[Stored]:
    """Returns the messages of one pull. Raises RmqError."""
    answer = await channel.request(Pull("readers", TOPIC, queue_id, offset, sys_flag=4), 3.0)
    assert isinstance(answer, PullAnswer)
    if answer.status != 0:
        return []
    return [Stored(found.queue_offset, name_of(found.body)) for found in record.iterate(answer.messages)]


async def whole_queues(address: str) -> dict[int, list[Stored]]:
    """Returns everything that a node holds."""
    channel = await dial(address, Hello(1, "reader"))
    queues: dict[int, list[Stored]] = {}
    for queue_id in range(QUEUES):
        stored = queues[queue_id] = list[Stored]()
        while some := await pulled(channel, queue_id, len(stored)):
            stored += some
    await channel.close()
    return queues
