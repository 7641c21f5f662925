"""kill -9 of leaders while a tool sets groups to other places: the place holds, and the group goes on there (E6).

    python -m tests.faults.moves --kills 20 [--seed 1] [--flush sync|async]

An elected group of three, a topic of four queues, and three groups of consumers: one pulls, one pops, one pops in order. Round by
round, each is set to a random place in one queue, the leader is killed around that moment, and what was taken before is
acknowledged after it. In each round every message from that place on comes, none before that place comes any more once the group
has gone there, and the group ends behind the last one. Prints what it covered.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rmq.client import Client, Message, ReceivedMessage
from rmq.commands.shared.options import run_fast
from rmq.delivery.popping import pop_retry_topic
from rmq.errors import RmqError
from rmq.log.records import record
from rmq.model import GroupConfig, MessageQueue
from rmq.net.commands import Hello, QueryConsumerOffset, UpdateGroup
from rmq.net.commands.pop import Ack, Pop, PopAnswer
from rmq.net.commands.resets import ResetOffset
from rmq.net.transport.channel import Channel
from tests.dialing import dial
from tests.faults.hurting import listed, until
from tests.faults.members import GROUP as BROKER, Members
from tests.faults.traffic import make_topic

TOPIC, QUEUES, EACH = "Moved", 4, 60
PULLS, POPS, ORDERED = KINDS = ("pulls", "pops", "pops in order")
HIDDEN_MS = 5_000
ROUND_S = 60.0


class Popper:
    """Takes from one queue, and acknowledges; `kept`: what it took and did not acknowledge yet."""

    def __init__(self, ask: Callable[[Any], Awaitable[Any]], group: str, took: Callable[[int, int, bool], None]) -> None:
        self._ask = ask
        self._group = group
        self._took = took
        self._ordered = group == name_of(ORDERED)
        self.kept: list[Ack] = []
        self.keeps = False

    async def run(self) -> None:
        while True:
            for queue_id in range(QUEUES):
                answer = await self._ask(Pop(self._group, TOPIC, queue_id, 16, HIDDEN_MS, 0, 0, 0, order=self._ordered))
                if isinstance(answer, PopAnswer) and answer.messages:
                    await self._take(answer, queue_id)
            await asyncio.sleep(0.02)

    async def _take(self, answer: PopAnswer, queue_id: int) -> None:
        starts = {tuple(part.split()[:2]): part.split()[2] for part in answer.start_offset_info.split(";")}
        parts = [part.split() for part in answer.msg_offset_info.split(";")]
        places = [(flag, queue, offset) for flag, queue, offsets in parts for offset in offsets.split(",")]
        for stored, (flag, queue, offset) in zip(record.iterate(answer.messages), places, strict=True):
            first_queue, _, first_offset = stored.body.partition(b"-")
            self._took(int(first_queue), int(first_offset), flag != "0")
            handle = (starts[flag, queue], answer.pop_time, answer.invisible_time, answer.revive_qid, flag, BROKER, queue, offset)
            topic = TOPIC if flag == "0" else pop_retry_topic(self._group, TOPIC)
            self.kept.append(Ack(self._group, topic, int(queue), " ".join(map(str, handle)), int(offset)))
        if not self.keeps:
            await self.acknowledge()

    async def acknowledge(self) -> None:
        acks, self.kept = self.kept, []
        for ack in acks:
            await self._ask(ack)


class Campaign:
    def __init__(self, members: Members, seed: int) -> None:
        self._members = members
        self._chance = random.Random(seed)
        self._channel: Channel | None = None
        self._taken: dict[str, list[tuple[int, int, bool, float]]] = {kind: [] for kind in KINDS}
        self.covered: Counter[str] = Counter()
        self.found: list[str] = []

    async def play(self, kills: int) -> None:
        await self._members.start()
        async with Client(self._members.nameserver_list) as client:
            await make_topic(client, self._members, TOPIC, QUEUES)
            for kind in KINDS:
                await self._surely(UpdateGroup(GroupConfig(name_of(kind))))
            for number in range(QUEUES * EACH):
                queue_id, offset = number % QUEUES, number // QUEUES
                await client.producer().send(
                    Message(TOPIC, b"%d-%d" % (queue_id, offset)), queue=MessageQueue(TOPIC, BROKER, queue_id)
                )
            poppers = {kind: Popper(self._perhaps, name_of(kind), self._noting(kind)) for kind in (POPS, ORDERED)}
            working = [asyncio.create_task(self._pull(client))]
            working += [asyncio.create_task(one.run()) for one in poppers.values()]
            try:
                for _ in range(kills):
                    await self._round(poppers)
            finally:
                for task in working:
                    task.cancel()
                await asyncio.gather(*working, return_exceptions=True)
                if self._channel is not None:
                    await self._channel.close()
        self.found += self._members.troubles()

    async def _pull(self, client: Client) -> None:
        note = self._noting(PULLS)

        def handle(message: ReceivedMessage) -> None:
            note(message.queue.queue_id, message.queue_offset, False)

        while True:
            try:
                async with client.consumer(name_of(PULLS), TOPIC, start="first") as consumer:
                    await consumer.run(handle)
            except RmqError:
                await asyncio.sleep(0.2)

    def _noting(self, kind: str) -> Callable[[int, int, bool], None]:
        """Of a message that came back, for who had it has died, that is said too."""
        return lambda queue_id, offset, back: self._taken[kind].append((queue_id, offset, back, time.monotonic()))

    # --- a round

    async def _round(self, poppers: dict[str, Popper]) -> None:
        """All three are set to a place in one queue; the leader dies before that, in the middle of it, or behind it."""
        queue_id, to = self._chance.randrange(QUEUES), self._chance.randrange(EACH + 1)
        for one in poppers.values():
            one.keeps = self._chance.random() < 0.5
        killing = asyncio.create_task(self._kill(self._chance.uniform(0.0, 0.4)))
        await asyncio.sleep(self._chance.uniform(0.0, 0.4))
        asked_at = {}  # what comes again may come before the answer does
        for kind in KINDS:
            asked_at[kind] = time.monotonic()
            await self._surely(ResetOffset(TOPIC, name_of(kind), queue_id, to))
        for one in poppers.values():  # of before, and after
            one.keeps = False
            await one.acknowledge()
        await killing
        for kind in KINDS:
            await self._judge(kind, queue_id, to, asked_at[kind])
        self.covered["rounds"] += 1

    async def _judge(self, kind: str, queue_id: int, to: int, asked_at: float) -> None:
        def came(and_back: bool = True) -> list[int]:
            taken = self._taken[kind]
            return [
                offset for queue, offset, back, at in taken if queue == queue_id and at >= asked_at and (and_back or not back)
            ]

        wanted = set(range(to, EACH))
        if not await _until(lambda: wanted <= set(came())):
            self.found.append(
                f"{kind}: set to {to} of queue {queue_id}, and {sorted(wanted - set(came()))[:5]} did not come again"
            )
        self.covered[f"came again to who {kind}"] += len(wanted)
        if not await self._ends(kind, queue_id):
            self.found.append(f"{kind}: its offset in queue {queue_id} did not become {EACH}")
        after = came(and_back=False)
        first = after.index(to) if to in after else len(after)
        if below := sorted({offset for offset in after[first:] if offset < to}):
            self.found.append(f"{kind}: set to {to} of queue {queue_id}, and then came {below[:5]}")

    async def _ends(self, kind: str, queue_id: int) -> bool:
        end = time.monotonic() + ROUND_S
        while time.monotonic() < end:
            answer = await self._perhaps(QueryConsumerOffset(name_of(kind), TOPIC, queue_id))
            if answer is not False and answer.offset == EACH:
                return True
            await asyncio.sleep(0.2)
        return False

    async def _kill(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if not await until(lambda: self._members.leader):
            raise TimeoutError(f"nobody leads: {self._members.status}")
        victim = self._members.nodes[self._members.leader]
        await victim.kill()
        self.covered["leader killed"] += 1
        await asyncio.sleep(self._chance.uniform(0.0, 1.5))
        await victim.start()

    # --- asking

    async def _perhaps(self, request: Any) -> Any:
        """The answer; False if there is none, or a refusal."""
        try:
            return await (await self._connected()).request(request, 8.0)
        except RmqError:
            self.covered["requests without an answer"] += 1
            await asyncio.sleep(0.05)
            return False

    async def _surely(self, request: Any) -> None:
        async with asyncio.timeout(ROUND_S):
            while await self._perhaps(request) is False:
                pass

    async def _connected(self) -> Channel:
        while not self._members.leader:
            await asyncio.sleep(0.05)
        leader = self._members.nodes[self._members.leader].address
        if self._channel is None or self._channel.closed.is_set() or self._channel.address != leader:
            self._channel = await dial(leader, Hello(1, "mover"), timeout_s=2.0)
        return self._channel


def name_of(kind: str) -> str:
    """The group that reads so."""
    return f"who-{kind.replace(' ', '-')}"


async def _until(condition: Callable[[], object]) -> bool:
    end = time.monotonic() + ROUND_S
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.05)
    return True


async def run(folder: Path, kills: int, seed: int, flush: str = "async") -> Campaign:
    members = Members(folder, flush=flush)
    campaign = Campaign(members, seed)
    try:
        await campaign.play(kills)
    finally:
        await members.kill()
    return campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flush", choices=["sync", "async"], default="async")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-moves-") as folder:
        campaign = run_fast(run(Path(folder), options.kills, options.seed, options.flush))
    print(listed(campaign.covered))
    print(f"{len(campaign.found)} problems", *campaign.found[:40], sep="\n")
    return bool(campaign.found)


if __name__ == "__main__":
    sys.exit(main())
