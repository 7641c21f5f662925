"""How long nobody is answered when the leader of a real group is killed.

    python -m tests.faults.failover --kills 100

A group of three and two nameservers, each a process. Our own client sends all the while, and so does one in RocketMQ's frames
that talks to a follower and asks for no routes. The leader is killed with kill -9 and comes back once another one leads. Prints,
for both, the time from the last answer of the old leader to the first of the new one: the longest silence around each kill.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

from rmq.client import Client, Message
from rmq.client.producer.producer import Producer
from rmq.commands.shared.options import run_fast
from rmq.errors import RmqError
from tests.broker.javaclient import JavaClient
from tests.faults.members import Members
from tests.faults.traffic import make_topic

TOPIC, QUEUES = "Failover", 4
SENDERS = 8
EACH_S = 0.005  # between two sends of one sender
BEFORE_S, AFTER_S = 0.5, 5.0  # of a kill: where the silence is looked for
WITHIN_S = 60.0


async def measure(folder: Path, kills: int, seed: int, **settings: str) -> tuple[list[float], list[float]]:
    """Returns the seconds of silence at each kill, for our client and for one that speaks RocketMQ's frames."""
    chance, members = random.Random(seed), Members(folder, **settings)
    native: list[float] = []
    found: tuple[list[float], list[float]] = ([], [])
    async with AsyncExitStack() as stack:
        stack.push_async_callback(members.kill)
        await members.start()
        client = await stack.enter_async_context(Client(members.nameserver_list))
        await make_topic(client, members, TOPIC, QUEUES)
        producer = client.producer("failover")
        sending = [asyncio.create_task(_send(producer, native)) for _ in range(SENDERS)]
        stack.push_async_callback(_cancel, sending)
        for _ in range(kills):
            await _until(lambda: len(members.status) == 3 and members.level_enough())
            for into, gap in zip(found, await _kill(members, native, chance), strict=True):
                into.append(gap)
    return found


async def _kill(members: Members, native: list[float], chance: random.Random) -> tuple[float, float]:
    leader = members.leader
    survivor = chance.choice([name for name in members.names if name != leader])
    remoting: list[float] = []
    async with JavaClient.connect(members.nodes[survivor].address) as java:
        asking = asyncio.create_task(_ask(java, remoting))
        await _until(lambda: len(remoting) > 50)
        await asyncio.sleep(BEFORE_S + chance.random() * 0.3)
        moment = time.monotonic()
        await members.nodes[leader].kill()
        await _until(lambda: members.leader not in ("", leader))
        later = time.monotonic()
        await _until(lambda: native[-1] > later + 0.2 and remoting[-1] > later + 0.2)
        await _cancel([asking])
    await members.nodes[leader].start()
    return _silence(native, moment), _silence(remoting, moment)


def _silence(answers: Sequence[float], moment: float) -> float:
    near = [each for each in answers if moment - BEFORE_S < each < moment + AFTER_S]
    return max(after - before for before, after in pairwise(near))


async def _send(producer: Producer, answered: list[float]) -> None:
    while True:
        try:
            await producer.send(Message(TOPIC, b"x"))
            answered.append(time.monotonic())
        except RmqError:
            pass  # of a leader that died: the next one counts
        await asyncio.sleep(EACH_S)


async def _ask(java: JavaClient, answered: list[float]) -> None:
    async def one() -> None:
        header, _ = await java.send(b"x", topic=TOPIC)
        if header.code == 0:
            answered.append(time.monotonic())

    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(one())
            await asyncio.sleep(EACH_S)


async def _until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.01)


async def _cancel(tasks: Sequence["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def shown(found: Sequence[float]) -> str:
    took = sorted(found)
    p50, p90, p99 = (took[min(len(took) - 1, int(len(took) * share))] for share in (0.5, 0.9, 0.99))
    return f"{len(took)} kills: p50 {p50:.3f} s, p90 {p90:.3f} s, p99 {p99:.3f} s, longest {took[-1]:.3f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-failover-") as folder:
        native, remoting = run_fast(measure(Path(folder), asked.kills, asked.seed))
    print(f"our client, {shown(native)}")
    print(f"RocketMQ's frames, {shown(remoting)}")


if __name__ == "__main__":
    main()
