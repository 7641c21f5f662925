"""Consumers that fail, while their brokers are killed and paused and they die themselves: no message is lost on the way (C10).

    python -m tests.faults.failing --kills 30 --pauses 10 [--seed 1] [--rate 200] [--flush sync]

Three `rmq node` processes that elect their leader, and two members of one group, one of which dies every few seconds without a
word. Of four messages one fails twice and then is handled; of fifty one always fails, and must end as a dead letter. Every second
kill hits a leader whose followers were stopped a moment before: what it answers then, nobody else has. What was seen is judged
(`problems`). A run counts only if there was enough trouble (G4). Prints what it covered.
"""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from rmq.client import Client, ClientSettings, Message, ReceivedMessage, RetryLater
from rmq.errors import RmqError
from tests.faults.hurting import hurt_all, listed, main, too_few, until
from tests.faults.members import Members
from tests.faults.traffic import make_topic

TOPIC, QUEUE_COUNT, GROUP = "Work", 8, "stubborn"
MOST, LEVEL, LEVEL_S = 2, 1, 1.0  # a failed message may come again twice, a second later each time
EARLY_S = 0.1  # what the clocks of this machine's processes may differ by
QUIET_S = 3.0
WORK_S = 0.05  # a handler takes up to so long: some are at work whenever a node is killed


class Try(NamedTuple):
    """A message as a handler got it: its number, how often it had come again by then, and when (monotonic s)."""

    number: int
    tries: int
    at_s: float


class Result(NamedTuple):
    seconds: float
    covered: Counter[str]
    leader_changes: int
    acked: int
    unknown: int
    handed: int
    repeats: int
    dead: int
    found: list[str]


def failures(number: int) -> int:
    """How often this message fails; more than MOST: always."""
    if number % 50 == 7:
        return MOST + 1
    return MOST if number % 4 == 0 else 0


# --- judging ----------------------------------------------------------------------------------------------------------


def problems(acked: Iterable[int], unknown: Iterable[int], tries: Sequence[Try], dead: Sequence[int]) -> list[str]:
    """Returns what is wrong. `dead`: the numbers of the dead letters, with repeats."""
    known, letters = {*acked, *unknown}, {*dead}
    by_number: dict[int, dict[int, float]] = defaultdict(dict)  # -> tries -> when first
    for one in sorted(tries, key=lambda one: one.at_s):
        by_number[one.number].setdefault(one.tries, one.at_s)
    found = [f"{number} was invented" for number in (by_number.keys() | letters) - known]
    for number in sorted({*acked} | by_number.keys()):
        found += _of_one(number, by_number.get(number, {}), number in letters)
    return found + [f"{number} is a dead letter, but it did not always fail" for number in letters if failures(number) <= MOST]


def _of_one(number: int, seen: dict[int, float], dead: bool) -> list[str]:
    wanted = failures(number)
    if sorted(seen) != list(range(len(seen))):
        return [f"{number} came with tries {sorted(seen)}: not one after the other"]
    if len(seen) > min(wanted, MOST) + 1:
        return [f"{number} came {len(seen) - 1} times again, {min(wanted, MOST)} are right"]
    found = [] if len(seen) == min(wanted, MOST) + 1 else [f"{number} was lost after {len(seen)} deliveries"]
    found += [f"{number} was lost after its last try"] if wanted > MOST and not dead else []
    return found + [
        f"{number} came again after {seen[count] - seen[count - 1]:.2f} s"
        for count in seen
        if count and seen[count] - seen[count - 1] < LEVEL_S - EARLY_S
    ]


# --- doing ------------------------------------------------------------------------------------------------------------


class Work:
    """A producer, and members of a group that come and go."""

    def __init__(self, nameservers: str, rate: float, chance: random.Random) -> None:
        self._nameservers = nameservers
        self._rate = rate
        self._chance = chance
        self._client = Client(nameservers)
        self._members: list[tuple[Client, asyncio.Task[None]]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.acked: set[int] = set()
        self.unknown: set[int] = set()
        self.tries: list[Try] = []
        self._tried: set[int] = set()  # came for the last time
        self.died = 0
        self._stopped = False

    async def start(self, members: Members) -> None:
        self._client.start()
        await make_topic(self._client, members, TOPIC, QUEUE_COUNT)
        self._members = [self._join(), self._join()]
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._come_and_go())]

    async def stop_trouble(self) -> None:
        """Stops sending, and kills no more members."""
        self._stopped = True
        await asyncio.gather(*self._tasks)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client, task in self._members:
            await _end(client, task)
        await self._client.close()

    def finished(self) -> bool:
        """Whether everything acknowledged came as often as it must."""
        return self.acked <= self._tried

    async def dead_letters(self) -> list[int]:
        async with self._client.consumer("undertakers", f"%DLQ%{GROUP}", start="first") as consumer:
            found: list[int] = []
            while messages := await consumer.receive(timeout=QUIET_S):
                found += [int(message.body) for message in messages]
            return found

    async def _send(self) -> None:
        producer, number, due = self._client.producer("senders"), 0, time.monotonic()
        while not self._stopped:
            due = max(due + 1 / self._rate, time.monotonic() - 1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            number += 1
            try:
                await producer.send(Message(TOPIC, b"%d" % number))
                self.acked.add(number)
            except RmqError:
                self.unknown.add(number)

    async def _come_and_go(self) -> None:
        while not self._stopped:
            await asyncio.sleep(self._chance.uniform(2.0, 6.0))
            client, task = self._members.pop(self._chance.randrange(2))
            await client.session.connections.close()  # nothing that it still says gets through
            await _end(client, task)
            self._members.append(self._join())
            self.died += 1

    def _join(self) -> "tuple[Client, asyncio.Task[None]]":
        client = Client(self._nameservers, settings=ClientSettings(commit_s=1.0))
        client.start()
        return client, asyncio.create_task(self._consume(client))

    async def _consume(self, client: Client) -> None:
        while True:
            try:
                async with client.consumer(GROUP, TOPIC, start="first", max_retries=MOST) as consumer:
                    await consumer.run(self._handle, concurrency=8)
            except RmqError:
                await asyncio.sleep(0.2)  # no nameserver could be reached

    async def _handle(self, message: ReceivedMessage) -> None:
        number = int(message.body)
        self.tries.append(Try(number, message.reconsume_times, time.monotonic()))
        if message.reconsume_times == min(failures(number), MOST):
            self._tried.add(number)
        await asyncio.sleep(self._chance.uniform(0.0, WORK_S))
        if message.reconsume_times < failures(number):
            raise RetryLater(LEVEL)


async def _end(client: Client, task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await client.close()


async def campaign(folder: Path, kills: int, pauses: int, *, seed: int, rate: float, flush: str = "async") -> Result:
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        members = Members(folder, None, flush=flush)
        stack.push_async_callback(members.kill)
        await members.start()
        work, covered = Work(members.nameserver_list, rate, chance), Counter[str]()
        stack.push_async_callback(work.stop)
        await work.start(members)
        began = time.monotonic()
        await hurt_all(members, kills, pauses, chance, covered)
        await work.stop_trouble()
        found = [] if await until(work.finished) else ["not everything was handled in time"]
        dead = await work.dead_letters()
        covered["consumer that died"] = work.died
        found += problems(work.acked, work.unknown, work.tries, dead) + members.troubles()
        repeats = len(work.tries) - len({one[:2] for one in work.tries})
        return Result(
            time.monotonic() - began, covered, members.told("this node leads the group") - 1, len(work.acked), len(work.unknown),
            len(work.tries), repeats, len(dead), found,
        )  # fmt: skip


def too_little(result: Result, kills: int, pauses: int) -> list[str]:
    """Says why the run proves little, if it does (G4)."""
    few = too_few(result.covered, result.leader_changes, kills, pauses)
    if not result.dead or result.handed < 1.2 * result.acked:
        few.append(f"only {result.dead} dead letters, {result.handed} deliveries of {result.acked}")
    return few


def told(result: Result) -> str:
    return (
        f"{result.seconds:.0f} s; {result.acked} acknowledged, {result.unknown} unknown; {result.handed} deliveries, "
        f"{result.repeats} of them repeats, {result.dead} dead letters; {result.leader_changes} leader changes, "
        f"{listed(result.covered)}"
    )


if __name__ == "__main__":
    main(__doc__, 200.0, campaign, too_little, told)
