"""A consumer group whose members come and go: in order, or without a word, as processes that are killed do."""

import asyncio
import random
import time
from collections import Counter
from typing import NamedTuple

from rmq.client import Client, ClientSettings, ReceivedMessage
from rmq.errors import RmqError
from tests.faults.history import Delivery

STAYS_S = (3.0, 9.0)  # from one change of the members to the next
DIES = 0.7  # of those that go, so many do without a word


class Member(NamedTuple):
    client: Client
    task: "asyncio.Task[None]"


class Takers:
    """One member, or two for a while. `delivered`: what all of them got, as it came; `got`: queue ids and offsets of it."""

    def __init__(self, nameservers: str, topic: str, chance: random.Random) -> None:
        self._nameservers = nameservers
        self._topic = topic
        self._chance = chance
        self._members: list[Member] = []
        self._going: list[Member] = []
        self.delivered: list[Delivery] = []
        self.got: set[tuple[int, int]] = set()
        self.covered: Counter[str] = Counter()

    def join(self) -> None:
        client = Client(self._nameservers, settings=ClientSettings(commit_s=1.0))
        client.start()
        self._members.append(Member(client, asyncio.create_task(self._consume(client))))

    async def come_and_go(self, stays_s: tuple[float, float] = STAYS_S) -> None:
        """Runs until cancelled; sometimes the older member leaves, sometimes the younger one."""
        while True:
            await asyncio.sleep(self._chance.uniform(*stays_s))
            if len(self._members) < 2:
                self.join()
                self.covered["consumer that joined"] += 1
                continue
            dies = self._chance.random() < DIES
            self.covered["consumer that died" if dies else "consumer that left"] += 1
            self._going.append(self._members.pop(self._chance.randrange(2)))
            await self._end(self._going[-1], dies)
            self._going.clear()

    async def settle(self) -> None:
        """After `come_and_go` was cancelled: who was about to go has gone."""
        await asyncio.gather(*(self._end(member, dies=False) for member in self._going))

    async def stop(self) -> None:
        await asyncio.gather(*(self._end(member, dies=False) for member in (*self._going, *self._members)))

    def standing(self) -> list[str]:
        """Of each member that lives: where it believes the leaders to be, and how it stands with its queues."""
        return [f"{member.client.session.routes.brokers()} {member.task}" for member in self._members]

    async def _end(self, member: Member, dies: bool) -> None:
        if dies:  # nothing that it still says gets through
            await member.client.session.connections.close()
        member.task.cancel()
        await asyncio.gather(member.task, return_exceptions=True)
        await member.client.close()

    async def _consume(self, client: Client) -> None:
        while True:
            try:
                async with client.consumer("takers", self._topic, start="first") as consumer:
                    await consumer.run(self._take)
            except RmqError:
                await asyncio.sleep(0.2)  # no nameserver could be reached

    def _take(self, message: ReceivedMessage) -> None:
        stored = message.stored
        self.got.add((stored.queue_id, stored.queue_offset))
        self.delivered.append(Delivery(stored.queue_id, stored.queue_offset, name_of(stored.body), time.monotonic()))


def name_of(body: bytes) -> bytes:
    """Returns the number at the begin of a message's body, which no other message has."""
    return body.partition(b"-")[0]
