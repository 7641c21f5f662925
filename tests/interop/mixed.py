"""One group of Java's, C++'s and our consumers, in order, while the leader is killed every 20 s (C1, C4).

    python -m tests.interop.mixed [--minutes 10] [--rate 200] [--keep FOLDER]

Three `rmq node` processes that elect their leader, and two nameservers. The members are Apache RocketMQ's Java client 5.5.0, its
C++ client (PyPI rocketmq 0.4.4) and ours, each with its default settings; our client sends. Each member notes when it handles
which message. In the end every acknowledged message is where its answer said, and came to the group; within a queue each message
was handled behind the one before it, whoever held the queue; each member had queues; all nodes hold the same log.
"""

import argparse
import asyncio
import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from rmq.client import Client, Message, ReceivedMessage
from rmq.commands.shared.options import run_fast
from rmq.errors import RmqError
from rmq.model import MessageQueue
from tests.faults.history import ACKED, Attempt, Delivery, History, problems, repeats
from tests.faults.hurting import until
from tests.faults.members import GROUP, Members
from tests.faults.takers import name_of
from tests.faults.traffic import FILLING, QUEUES, TOPIC, make_topic, outcome_of, whole_queues
from tests.interop import cppclient, java
from tests.interop.java import Java
from tests.interop.program import Program

EVERY_S, AWAY_S = 20.0, 2.0  # between two kills; until the killed node is started again
READY_S, END_S = 90.0, 180.0
OURS, JAVAS, CPPS = "rmq", "Java", "C++"


class Result(NamedTuple):
    seconds: float
    attempts: Sequence[Attempt]
    handled: Mapping[str, Sequence[Delivery]]
    kills: int
    found: Sequence[str]


class Mixed:
    """The senders and the three members."""

    def __init__(self, members: Members, rate: float) -> None:
        self._members = members
        self._each_s = QUEUES / rate
        self._numbers = itertools.count()
        self._client = Client(members.nameserver_list)
        self._ours: list[Delivery] = []
        self._others: dict[str, Java | Program] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False
        self.attempts: list[Attempt] = []

    async def start(self, home: Path, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._client)
        stack.push_async_callback(self._stop)
        await make_topic(self._client, self._members, TOPIC, QUEUES)
        where = (self._members.nameserver_list, TOPIC, "mixed")
        self._others[JAVAS] = await Java.start("mixing", *where)
        stack.push_async_callback(self._others[JAVAS].kill)
        self._others[CPPS] = await cpp_program(home, "mixing", *where)
        stack.push_async_callback(self._others[CPPS].kill)
        self._tasks = [asyncio.create_task(self._consume())]
        self._tasks += [asyncio.create_task(self._send(queue_id)) for queue_id in range(QUEUES)]
        if not await _until(lambda: all(self.handled().values()), READY_S):
            raise TimeoutError(f"not every member got a queue: {self.counts()}")

    async def stop_sending(self) -> None:
        self._stopped = True
        await asyncio.gather(*self._tasks[1:])

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def handled(self) -> dict[str, list[Delivery]]:
        """By member, as it came."""
        found = {name: [_delivery(words) for words in one.got("AT")] for name, one in self._others.items()}
        return {OURS: list(self._ours), **found}

    def counts(self) -> dict[str, int]:
        return {name: len(some) for name, some in self.handled().items()}

    def acked(self) -> set[bytes]:
        return {one.body for one in self.attempts if one.outcome == ACKED}

    def all_handled(self) -> bool:
        return self.acked() <= {one.body for some in self.handled().values() for one in some}

    async def _consume(self) -> None:
        while True:
            try:
                async with self._client.consumer("mixed", TOPIC, start="first", ordered=True) as consumer:
                    await consumer.run(self._handle)
            except RmqError:
                await asyncio.sleep(0.2)

    def _handle(self, message: ReceivedMessage) -> None:
        stored = message.stored
        self._ours.append(Delivery(stored.queue_id, stored.queue_offset, name_of(stored.body), time.time()))

    async def _send(self, queue_id: int) -> None:
        producer, queue = self._client.producer("mixers"), MessageQueue(TOPIC, GROUP, queue_id)
        while not self._stopped:
            body, began, offset = b"%d" % next(self._numbers), time.monotonic(), -1
            try:
                offset = (await producer.send(Message(TOPIC, body + FILLING), queue=queue)).queue_offset
                outcome, trouble = ACKED, ""
            except RmqError as error:
                outcome, trouble = outcome_of(error), str(error)
            self.attempts.append(Attempt(queue_id, body, began, time.monotonic(), outcome, offset, trouble))
            await asyncio.sleep(self._each_s)


def _delivery(words: Sequence[str]) -> Delivery:
    """AT milliseconds queue offset body."""
    at_ms, queue_id, offset, body = words
    return Delivery(int(queue_id), int(offset), name_of(body.encode()), int(at_ms) / 1000)


async def cpp_program(home: Path, *arguments: str) -> Program:
    return await Program.start(cppclient.command(*arguments), cppclient.environment(home))


async def campaign(folder: Path, minutes: float, rate: float) -> Result:
    async with AsyncExitStack() as stack:
        members = Members(folder)
        stack.push_async_callback(members.kill)
        await members.start()
        mixed, began = Mixed(members, rate), time.monotonic()
        await mixed.start(folder, stack)
        kills = 0
        while time.monotonic() < began + minutes * 60:
            await asyncio.sleep(EVERY_S)
            kills += await _kill_leader(members)
        await mixed.stop_sending()
        found = [] if await _until(mixed.all_handled, END_S) else ["not all acknowledged messages were handled in time"]
        found += await _judge(members, mixed)
        return Result(time.monotonic() - began, mixed.attempts, mixed.handled(), kills, found)


async def _kill_leader(members: Members) -> int:
    if not await until(lambda: members.leader):
        raise TimeoutError(f"nobody leads: {members.status}")
    victim = members.nodes[members.leader]
    await victim.kill()
    await asyncio.sleep(AWAY_S)
    await victim.start()
    return 1


async def _judge(members: Members, mixed: Mixed) -> list[str]:
    members.look_anew()
    if not await until(members.level):
        return [f"the nodes did not become equal: {members.status}"]
    queues = await whole_queues(members.nodes[members.leader].address)
    together = sorted((one for some in mixed.handled().values() for one in some), key=lambda one: (one.at_s, one.offset))
    found = problems(History(mixed.attempts, [together], (), queues, members.leads))
    found += [f"{name} handled nothing" for name, some in mixed.handled().items() if not some]
    if len(set(members.log_digests().values())) > 1:
        found.append("the logs differ")
    return found + members.troubles()


async def _until(condition: object, seconds: float) -> bool:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.2)
    return True


def show(result: Result) -> None:
    outcomes = Counter(one.outcome for one in result.attempts)
    together = [one for some in result.handled.values() for one in some]
    counts = ", ".join(f"{name} {len(some)}" for name, some in result.handled.items())
    print(
        f"{result.seconds:.0f} s, {result.kills} kills of the leader; sends: {dict(outcomes)}; "
        f"handled: {counts}, {repeats(together)} of them again"
    )
    print(f"{len(result.found)} problems", *result.found[:40], sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=200.0, help="sends a second, at most")
    parser.add_argument("--keep", type=Path, help="where stores and the nodes' logs are left")
    options = parser.parse_args()
    java.build()
    with tempfile.TemporaryDirectory(prefix="rmq-mixed-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if why_not := cppclient.install(folder):
            raise SystemExit(why_not)
        result = run_fast(campaign(folder, options.minutes, options.rate))
    show(result)
    raise SystemExit(bool(result.found))


if __name__ == "__main__":
    main()
