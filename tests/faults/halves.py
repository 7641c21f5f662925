"""Transactions while their brokers are killed and paused and their producers die: one outcome for each, and it stays (C11, C12).

    python -m tests.faults.halves --kills 30 --pauses 10 [--seed 1] [--rate 100] [--flush sync]

Three `rmq node` processes that elect their leader, and two producers of one group, one of which dies every few seconds without a
word. A transaction is decided by a common book, when its work is done or when a producer is asked about it, whichever comes
first; a fifth of the work says "unknown" all the same, a few break. In the end each message that the book committed lies in its
topic once, and no other. A run counts only if there was enough trouble (G4). Prints what it covered.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from rmq.client import Client, Decision, Message, ReceivedMessage, SendResult, TransactionProducer
from rmq.errors import RmqError
from tests.faults.hurting import hurt_all, listed, main, too_few, until
from tests.faults.members import Members
from tests.faults.traffic import make_topic

TOPIC, QUEUE_COUNT, GROUP = "Money", 4, "shop"
LATE_S = 10.0  # a question may lie in the sockets of a node that was paused
QUIET_S = 2.5  # longer than halves are left alone, and asked after again
SOON = {"transaction_timeout_ms": "1000", "transaction_check_interval_ms": "1000", "transaction_check_max": "10000"}


class Broken(Exception):
    """The work of a transaction fails."""


class Result(NamedTuple):
    seconds: float
    covered: Counter[str]
    leader_changes: int
    confirmed: int
    unknown: int
    asked: int
    committed: int
    rolled_back: int
    found: list[str]


def problems(
    book: Mapping[str, Decision], confirmed: Mapping[str, Decision], delivered: Mapping[str, int], late: Collection[str]
) -> list[str]:
    """Returns what is wrong. By message id: what was decided, what a broker confirmed, and how often the message lies in its
    topic. `late`: those that a broker asked about long after it had confirmed them."""
    found = [f"{one} was delivered, nobody decided that" for one in delivered.keys() - book.keys()]
    for one, decision in book.items():
        wanted = 1 if decision == Decision.COMMIT else 0
        if delivered.get(one, 0) != wanted:
            found.append(f"{one} was decided {decision.name} and lies there {delivered.get(one, 0)} times")
    found += [f"{one} was confirmed as {said.name}" for one, said in confirmed.items() if book.get(one) != said]
    return found + [f"{one} was asked after when it had ended" for one in late]


class Shop:
    """Producers that come and go, and the book in which they note decisions."""

    def __init__(self, nameservers: str, rate: float, chance: random.Random) -> None:
        self._nameservers = nameservers
        self._rate = rate
        self._chance = chance
        self._client = Client(nameservers)
        self._members: list[tuple[Client, TransactionProducer]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._sending: set[asyncio.Task[None]] = set()
        self._stopped = False
        self.book: dict[str, Decision] = {}
        self.confirmed: dict[str, tuple[Decision, float]] = {}
        self.places: dict[str, set[tuple[int, int]]] = {}  # where each was seen in its topic
        self.late: set[str] = set()
        self.unknown = self.asked = self.died = 0

    async def start(self, members: Members) -> None:
        self._client.start()
        await make_topic(self._client, members, TOPIC, QUEUE_COUNT)
        self._members = [self._join(), self._join()]
        self._tasks = [asyncio.create_task(work) for work in (self._send(), self._come_and_go(), self._look())]

    async def stop_trouble(self) -> None:
        self._stopped = True
        await asyncio.gather(*self._tasks[:2], *self._sending)

    async def stop(self) -> None:
        for task in (*self._tasks, *self._sending):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._sending, return_exceptions=True)
        for client in (self._client, *(client for client, _ in self._members)):
            await client.close()

    def delivered(self) -> dict[str, int]:
        return {one: len(places) for one, places in self.places.items()}

    def finished(self) -> bool:
        return {one for one, decision in self.book.items() if decision == Decision.COMMIT} <= self.places.keys()

    def _join(self) -> tuple[Client, TransactionProducer]:
        client = Client(self._nameservers)
        client.start()
        return client, client.transaction_producer(self._check, GROUP, topics=[TOPIC])

    async def _check(self, message: ReceivedMessage) -> Decision:
        self.asked += 1
        _, since = self.confirmed.get(message.message_id, (None, time.monotonic()))
        if time.monotonic() - since > LATE_S:
            self.late.add(message.message_id)
        return self.book.setdefault(message.message_id, Decision.ROLLBACK)  # its work was never done

    async def _send(self) -> None:
        number, due = 0, time.monotonic()
        while not self._stopped:
            due = max(due + 1 / self._rate, time.monotonic() - 1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            number += 1
            task = asyncio.create_task(self._transact(self._chance.choice(self._members)[1], number))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _transact(self, producer: TransactionProducer, number: int) -> None:
        async def work(sent: SendResult) -> Decision:
            await asyncio.sleep(self._chance.uniform(0.0, 0.05))
            if number % 17 == 0:
                raise Broken
            wanted = Decision.ROLLBACK if number % 3 == 0 else Decision.COMMIT
            decided = self.book.setdefault(sent.message_id, wanted)
            return Decision.UNKNOWN if number % 5 == 0 else decided

        try:
            result = await producer.send_in_transaction(Message(TOPIC, b"%d" % number), work)
        except (RmqError, Broken):
            self.unknown += 1
        else:
            if result.decision != Decision.UNKNOWN:
                self.confirmed[result.sent.message_id] = result.decision, time.monotonic()

    async def _come_and_go(self) -> None:
        while not self._stopped:
            await asyncio.sleep(self._chance.uniform(1.0, 5.0))
            client, _ = self._members.pop(self._chance.randrange(2))
            await client.session.connections.close()  # nothing that it still says gets through
            await client.close()
            self._members.append(self._join())
            self.died += 1

    async def _look(self) -> None:
        async with self._client.consumer("bank", TOPIC, start="first") as consumer:
            while True:
                for message in await consumer.receive(timeout=1.0):
                    place = (message.queue.queue_id, message.queue_offset)
                    self.places.setdefault(message.message_id, set()).add(place)


async def campaign(folder: Path, kills: int, pauses: int, *, seed: int, rate: float, flush: str = "async") -> Result:
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        members = Members(folder, None, flush=flush, **SOON)
        stack.push_async_callback(members.kill)
        await members.start()
        shop, covered = Shop(members.nameserver_list, rate, chance), Counter[str]()
        stack.push_async_callback(shop.stop)
        await shop.start(members)
        began = time.monotonic()
        await hurt_all(members, kills, pauses, chance, covered)
        await shop.stop_trouble()
        await asyncio.sleep(QUIET_S)
        found = [] if await until(shop.finished) else ["not everything was delivered in time"]
        await asyncio.sleep(QUIET_S)
        covered["producer that died"] = shop.died
        confirmed = {one: decision for one, (decision, _) in shop.confirmed.items()}
        found += problems(shop.book, confirmed, shop.delivered(), shop.late) + members.troubles()
        decided = Counter(shop.book.values())
        return Result(
            time.monotonic() - began, covered, members.told("this node leads the group") - 1, len(confirmed), shop.unknown,
            shop.asked, decided[Decision.COMMIT], decided[Decision.ROLLBACK], found,
        )  # fmt: skip


def too_little(result: Result, kills: int, pauses: int) -> list[str]:
    """Says why the run proves little, if it does (G4)."""
    few = too_few(result.covered, result.leader_changes, kills, pauses)
    if min(result.confirmed, result.asked, result.committed, result.rolled_back) < 5 * (kills + pauses):
        few.append("too few transactions of some kind")
    return few


def told(result: Result) -> str:
    return (
        f"{result.seconds:.0f} s; {result.committed} committed, {result.rolled_back} rolled back, {result.confirmed} of them "
        f"confirmed to who sent them, {result.unknown} sends unknown or broken; {result.asked} questions; "
        f"{result.leader_changes} leader changes, {listed(result.covered)}"
    )


if __name__ == "__main__":
    main(__doc__, 100.0, campaign, too_little, told)
