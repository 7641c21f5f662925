"""A compacted topic on a disk that is always nearly full, while nodes of a group are killed and paused: no key is lost.

    python -m tests.faults.compacted --kills 20 --pauses 6 [--seed 1] [--rate 500] [--flush sync]

Three `rmq node` processes that elect their leader share a small disk (mounted by loop: needs root), so each deletes the oldest
files of its log as soon as it may. Messages go to a compacted topic: some keys again and again, others once and never more, and
tombstones. In the end who reads from the beginning, at whichever node, must have the last value of each key that was answered,
or one that was sent after it and not answered, or none where that is a tombstone; all nodes have the same log. A run counts
only if there was enough trouble, and keys whose file was deleted (G4). Prints what it covered. A fault takes 20 s: nothing is
deleted before two snapshots, and one is taken each minute.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from rmq.client import Client, Message, Producer
from rmq.errors import RmqError
from rmq.log.records import record
from rmq.model import MessageQueue
from rmq.net.commands import GetMinOffset, Hello, Pull, PullAnswer
from tests.dialing import dial
from tests.faults.hurting import hurt, listed, main, too_few, until
from tests.faults.members import GROUP, Members
from tests.faults.smalldisk import small_disk
from tests.faults.traffic import make_topic

TOPIC, QUEUES, SENDERS = "Kept", 2, 8
DISK_MB, FULL_PERCENT = 600, 30
FILLING = b"x" * 1000
LONGEST_S = 40.0  # until the next fault
CARRIED_MS = 5_000  # a message that is stored so long after its birth was appended again
Key = tuple[int, str]  # queue, key


class Sent(NamedTuple):
    """What was sent of one key. `answered`: the last value that was, b"" for a tombstone or nothing; `unknown`: later ones that
    may be stored."""

    answered: bytes = b""
    unknown: tuple[bytes, ...] = ()


class Result(NamedTuple):
    seconds: float
    covered: Counter[str]
    leader_changes: int
    found: list[str]


def problems(sent: Mapping[Key, Sent], stored: Mapping[Key, bytes]) -> list[str]:
    """Returns what is wrong. `stored`: the last value of each key, as who reads from the beginning has it."""
    found = [f"{key} was never sent" for key in sorted(stored.keys() - sent.keys())]
    for key, (answered, unknown) in sent.items():
        value = stored.get(key, b"")
        if value != answered and value not in unknown:
            found.append(f"{key}: {value!r} is stored, and {answered!r} was answered last, behind it {unknown}")
    return found


class Senders:
    """`rate`: sends a second in all. Each sender has keys of its own, and waits for an answer before it sends the next value."""

    def __init__(self, client: Client, rate: float, chance: random.Random) -> None:
        self._client = client
        self._pause_s = SENDERS / rate
        self._chance = chance
        self._stopped = False
        self._tasks: list[asyncio.Task[None]] = []
        self.sent: dict[Key, Sent] = {}
        self.covered: Counter[str] = Counter()

    def start(self) -> None:
        producer = self._client.producer("keepers")
        self._tasks = [asyncio.create_task(self._send(producer, number)) for number in range(SENDERS)]

    async def stop(self) -> None:
        self._stopped = True
        await asyncio.gather(*self._tasks)

    async def _send(self, producer: Producer, number: int) -> None:
        queue, count = MessageQueue(TOPIC, GROUP, number % QUEUES), 0
        while not self._stopped:
            count += 1
            name = f"{number}-{self._chance.randrange(5)}" if self._chance.random() < 0.95 else f"{number}-once-{count}"
            tombstone = self._chance.random() < 0.02
            key, value = (queue.queue_id, name), b"" if tombstone else b"%d" % count
            before = self.sent.get(key, Sent())
            self.sent[key] = before._replace(unknown=(*before.unknown, value))
            try:
                said = {"TOMBSTONE": "true"} if tombstone else {}
                await producer.send(Message(TOPIC, value + FILLING, keys=[name], properties=said), queue=queue)
                self.sent[key] = Sent(value)
                self.covered["sends answered"] += 1
            except RmqError:
                self.covered["sends without an answer"] += 1
            await asyncio.sleep(self._pause_s)


async def stored_at(address: str, covered: Counter[str]) -> dict[Key, bytes]:
    """The last value of each key, as that node has it. Counts what begins behind 0, and what was appended again."""
    channel, found = await dial(address, Hello(1, "judge")), dict[Key, bytes]()
    try:
        for queue_id in range(QUEUES):
            offset = (await channel.request(GetMinOffset(TOPIC, queue_id), 10.0)).offset  # type: ignore[union-attr]
            covered["messages deleted"] += offset
            while True:
                answer = await channel.request(Pull("judges", TOPIC, queue_id, offset, sys_flag=4), 10.0)
                assert isinstance(answer, PullAnswer)
                if answer.status != 0:
                    break
                _note(queue_id, list(record.iterate(answer.messages)), found, covered)
                offset = answer.next_begin_offset
    finally:
        await channel.close()
    return found


def _note(queue_id: int, messages: Sequence[record.Record], found: dict[Key, bytes], covered: Counter[str]) -> None:
    for one in messages:
        found[queue_id, record.bytes_to_properties(one.properties)["KEYS"]] = one.body.removesuffix(FILLING)
        covered["found that was appended again"] += one.store_timestamp - one.born_timestamp > CARRIED_MS


async def campaign(folder: Path, kills: int, pauses: int, *, seed: int, rate: float, flush: str = "async") -> Result:
    chance, began = random.Random(seed), time.monotonic()
    async with AsyncExitStack() as stack:
        disk = stack.enter_context(small_disk(folder, DISK_MB))
        members = Members(disk.path, None, flush=flush, clean_forcibly_percent=str(FULL_PERCENT))
        stack.push_async_callback(members.kill)
        await members.start()
        client = await stack.enter_async_context(Client(members.nameserver_list))
        await make_topic(client, members, TOPIC, QUEUES, "+cleanup.policy=COMPACTION")
        senders = Senders(client, rate, chance)
        senders.start()
        for number, fault in enumerate(chance.sample(["kill"] * kills + ["pause"] * pauses, kills + pauses)):
            await asyncio.sleep(chance.uniform(0.0, LONGEST_S))
            await hurt(members, fault, number % 3 != 2, chance, senders.covered)
        await senders.stop()
        members.look_anew()
        found = [] if await until(members.level) else ["the nodes' logs are not the same"]
        for node in members.nodes.values():
            found += problems(senders.sent, await stored_at(node.address, senders.covered))
        if len(set(members.log_digests().values())) != 1:
            found.append("the nodes' logs differ")
        changes = members.told("this node leads the group") - 1
        return Result(time.monotonic() - began, senders.covered, changes, found + members.troubles())


def too_little(result: Result, kills: int, pauses: int) -> list[str]:
    """Says why the run proves little, if it does (G4)."""
    few = too_few(result.covered, result.leader_changes, kills, pauses)
    wanted = ("sends answered", "messages deleted", "found that was appended again")
    return few + [f"only {result.covered[what]} {what}" for what in wanted if result.covered[what] < 100]


def told(result: Result) -> str:
    return f"{result.seconds:.0f} s; {result.leader_changes} leader changes, {listed(result.covered)}"


if __name__ == "__main__":
    main(__doc__, 500.0, campaign, too_little, told)
