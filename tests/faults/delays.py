"""kill -9 while messages fall due, again and again: each comes once, none early, none is lost (C13).

    python -m tests.faults.delays --rounds 20 [--flush sync|async] [--seed 1]
    python -m tests.faults.delays --group --rounds 20      # three nodes that elect their leader, which is the one killed

Messages of levels 1 and 2 and timers of 1 to 4 s are sent all the while. Each round kills the node (or the leader) while earlier
ones fall due, and starts it again. Every fourth stop is one in order, so that snapshots are loaded too. In the end everything
is read. Prints how many were acknowledged, and how many came behind a stop that they were sent before.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, Protocol

from rmq.client import Client, Message, Producer, RmqError, Unknown
from rmq.client.admin import calls as admin
from rmq.log.records import record
from rmq.net.commands import Hello, Pull, PullAnswer
from tests.dialing import dial
from tests.faults.members import Members
from tests.faults.node import NodeProcess

TOPIC = "Later"
IN_FLIGHT = 16
PATIENCE_S = 120.0  # for messages that were acknowledged
LEVELS_MS = {1: 1000, 2: 5000}


class Target(Protocol):
    """What the campaign stops and starts again."""

    @property
    def nameservers(self) -> str: ...

    @property
    def address(self) -> str:
        """The address of the node that serves now."""

    async def start(self) -> None: ...

    async def strike(self, in_order: bool) -> None:
        """Stops the node; it is up again when this returns."""

    async def end(self) -> None: ...


class One:
    """A node that stands alone; it is the one that is stopped."""

    def __init__(self, folder: Path, flush: str) -> None:
        self._node = NodeProcess(folder / "store", flush=flush)
        self.nameservers, self.address = f"127.0.0.1:{self._node.namesrv_port}", self._node.address
        self.start, self.end = self._node.start, self._node.kill

    async def strike(self, in_order: bool) -> None:
        await (self._node.stop() if in_order else self._node.kill())
        await self._node.start()


class Three:
    """A group, of which the leader is stopped."""

    def __init__(self, folder: Path, flush: str) -> None:
        self._members = Members(folder, flush=flush)
        self.nameservers = self._members.nameserver_list
        self.end = self._members.kill

    @property
    def address(self) -> str:
        return self._members.nodes[self._members.leader].address

    async def start(self) -> None:
        await self._members.start()
        await self._found()

    async def strike(self, in_order: bool) -> None:
        await self._found()
        node = self._members.nodes[self._members.leader]
        await (node.stop() if in_order else node.kill())
        await self._found()
        await node.start()

    async def _found(self) -> None:
        """Waits until a node leads, and notes which."""
        async with asyncio.timeout(60):
            while not self._members.leader:
                await asyncio.sleep(0.05)


class Sent(NamedTuple):
    due_ms: int
    acknowledged: bool


class Campaign:
    def __init__(self, target: Target, seed: int) -> None:
        self.sent: dict[bytes, Sent] = {}
        self.crossed = 0  # messages that were sent before a blow and came after it
        self._target = target
        self._chance = random.Random(seed)
        self._number = 0
        self._blows: list[int] = []  # when, Unix ms
        self._over = False

    async def run(self, rounds: int) -> list[str]:
        """Runs the campaign, and returns what is wrong in the end."""
        await self._target.start()
        async with Client(self._target.nameservers) as client, client.producer("delays") as producer:
            await self._make_topic(client)
            senders = [asyncio.create_task(self._send(producer)) for _ in range(IN_FLIGHT)]
            for number in range(rounds):
                await asyncio.sleep(self._chance.uniform(0.5, 3.0))
                self._blows.append(_now_ms())
                await self._target.strike(in_order=number % 4 == 3)
            self._over = True
            await asyncio.gather(*senders)
        return await self._judge()

    async def _make_topic(self, client: Client) -> None:
        await admin.update_topic(client, TOPIC, broker=self._target.address, read_queues=1, write_queues=1)

    async def _send(self, producer: Producer) -> None:
        while not self._over:
            self._number += 1
            body, now_ms = b"%d" % self._number, _now_ms()
            if self._chance.random() < 0.5:
                level = self._chance.choice(list(LEVELS_MS))
                due_ms, message = now_ms + LEVELS_MS[level], Message(TOPIC, body, delay_level=level)
            else:
                due_ms = now_ms + self._chance.randrange(1000, 4000)
                message = Message(TOPIC, body, deliver_at_ms=due_ms)
            try:
                await producer.send(message)
            except Unknown:
                self.sent[body] = Sent(due_ms, False)
            except RmqError:  # certainly not stored
                await asyncio.sleep(0.05)
            else:
                self.sent[body] = Sent(due_ms, True)
                await asyncio.sleep(0.002)

    async def _judge(self) -> list[str]:
        """Returns what is wrong, once all that was acknowledged came, or `PATIENCE_S` passed. Others may come as well, so that
        their number tells nothing."""
        wanted = {body for body, one in self.sent.items() if one.acknowledged}
        last_ms = max(one.due_ms for one in self.sent.values())
        came: dict[bytes, list[record.Record]] = {}
        patient_until_s = time.monotonic() + PATIENCE_S
        while _now_ms() < last_ms + 3000 or (wanted - came.keys() and time.monotonic() < patient_until_s):
            await asyncio.sleep(0.5)
            came = await self._read()
        first = [each[0] for each in came.values()]
        self.crossed = sum(any(one.born_timestamp < at < one.store_timestamp for at in self._blows) for one in first)
        found = [f"{body!r} was acknowledged and did not come" for body in wanted - came.keys()]
        found += [f"{body!r} came {len(each)} times" for body, each in came.items() if len(each) > 1]
        found += [f"{body!r} was refused" for body in came.keys() - self.sent.keys()]
        early = {body: self.sent[body].due_ms - each[0].store_timestamp for body, each in came.items() if body in self.sent}
        return found + [f"{body!r} came {ms} ms early" for body, ms in early.items() if ms > 0]

    async def _read(self) -> dict[bytes, list[record.Record]]:
        channel = await dial(self._target.address, Hello(1, "reader"))
        came: dict[bytes, list[record.Record]] = {}
        offset = 0
        while True:
            answer = await channel.request(Pull("checkers", TOPIC, 0, offset, sys_flag=4), 30.0)
            assert isinstance(answer, PullAnswer)
            if answer.status != 0:
                await channel.close()
                return came
            for one in record.iterate(answer.messages):
                came.setdefault(one.body, []).append(one)
            offset = answer.next_begin_offset


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def run(target: Target, rounds: int, seed: int) -> tuple[Campaign, list[str]]:
    campaign = Campaign(target, seed)
    try:
        return campaign, await campaign.run(rounds)
    finally:
        await target.end()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--group", action="store_true")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flush", default="async")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-delays-") as folder:
        target: Target = (Three if options.group else One)(Path(folder), options.flush)
        campaign, found = asyncio.run(run(target, options.rounds, options.seed))
    known = sum(one.acknowledged for one in campaign.sent.values())
    print(f"{'a group' if options.group else 'one node'}, {options.rounds} stops, flush {options.flush}, seed {options.seed}:")
    print(f"{known} of {len(campaign.sent)} acknowledged; {campaign.crossed} came behind a stop that they were sent before")
    print("\n".join(found) or "each came once, none early")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
