"""kill -9 while messages are popped: nothing is lost, nothing acknowledged comes back, nobody gets what another has (C10).

    python -m tests.faults.pops --kills 20 [--nodes 3] [--flush sync|async] [--seed 1] [--urgent]

An elected group, a producer and four consumers that acknowledge, forget, or renew what they get. The leader, now and then another
node, is killed and started again. In the end everything is taken. Prints what it covered. `--urgent`: messages have priorities,
in a topic made for them whose type is checked, and come back in queues of their own; each must lie in the queue of its priority.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rmq.client import Client, Message, PoppedMessage, SimpleConsumer, Unknown
from rmq.errors import RmqError
from rmq.testing import until
from tests.faults.members import Members
from tests.faults.traffic import make_topic

TOPIC, GROUP, QUEUES = "Popped", "poppers", 4
CONSUMERS = 4
HIDDEN_S = (1.0, 3.0)
MARGIN_S = 0.3  # of this process, between what it was given and when it knows


class Campaign:
    """`acked`: body -> when the answer to its acknowledgement came. `held`: body -> until when it belongs to a consumer."""

    def __init__(self, members: Members, seed: int, urgent: bool = False) -> None:
        self.members = members
        self._urgent = urgent
        self.sent: dict[bytes, bool] = {}  # whether it was acknowledged to the producer
        self.acked: dict[bytes, float] = {}
        self.doubtful: set[bytes] = set()  # acknowledged, and nobody knows whether it counts
        self.held: dict[bytes, float] = {}
        self.covered: Counter[str] = Counter()
        self.faults: list[str] = []
        self._chance = random.Random(seed)
        self._stop = False

    async def play(self, kills: int) -> list[str]:
        await self.members.start()
        async with Client(self.members.nameserver_list) as client:
            await make_topic(client, self.members, TOPIC, QUEUES, "+message.type=PRIORITY" if self._urgent else "")
            working = [asyncio.create_task(self._send(client)), *(asyncio.create_task(self._consume()) for _ in range(CONSUMERS))]
            for _ in range(kills):
                await asyncio.sleep(self._chance.uniform(1.0, 3.0))
                await self._kill()
            self._stop = True
            await asyncio.gather(*working)
            await self._empty(client)
        lost = [body for body, known in self.sent.items() if known and body not in self.acked and body not in self.doubtful]
        return self.faults + [f"{body!r} was never acknowledged: lost" for body in lost] + self.members.troubles()

    async def _kill(self) -> None:
        names = self.members.names
        if self._chance.random() < 0.8 or not self.covered["leader killed"]:
            await until(lambda: self.members.leader)
            name = self.members.leader
        else:
            name = self._chance.choice(names)
        self.covered["leader killed" if name == self.members.leader else "node killed"] += 1
        await self.members.nodes[name].kill()
        await asyncio.sleep(self._chance.uniform(0.0, 2.0))
        await self.members.nodes[name].start()

    async def _send(self, client: Client) -> None:
        async with client.producer() as producer:
            while not self._stop:
                body = b"%d" % len(self.sent)
                self.sent[body] = False
                try:
                    await producer.send(Message(TOPIC, body, priority=int(body) % 6 if self._urgent else -1))
                    self.sent[body] = True
                except RmqError:
                    self.covered["send without an answer"] += 1
                await asyncio.sleep(0.005)

    async def _consume(self) -> None:
        async with Client(self.members.nameserver_list) as client:
            consumer = client.simple_consumer(GROUP, TOPIC, start="first")
            while not self._stop:
                for message in await self._receive(consumer, self._chance.uniform(*HIDDEN_S)):
                    await self._handle(consumer, message)

    async def _receive(self, consumer: SimpleConsumer, hidden_s: float, wait_s: float = 1.0) -> list[PoppedMessage]:
        asked = time.monotonic()
        try:
            found = await consumer.receive(self._chance.randint(1, 16), invisible_seconds=hidden_s, wait_seconds=wait_s)
        except RmqError:
            self.covered["pop without an answer"] += 1
            await asyncio.sleep(0.1)
            return []
        now = time.monotonic()
        for message in found:
            body = message.body
            if self._urgent:
                self._judge_place(message)
            if body in self.acked and self.acked[body] < asked:
                self.faults.append(f"{body!r} came {now - self.acked[body]:.3f} s after it was acknowledged")
            if self.held.get(body, 0.0) > now and body not in self.acked:
                self.faults.append(f"{body!r} was given out while somebody had it")
            self.held[body] = asked + hidden_s - MARGIN_S
            self.covered["given out"] += 1
            self.covered["that came back"] += message.reconsume_times > 0
        return found

    def _judge_place(self, message: PoppedMessage) -> None:
        wanted = min(int(message.body) % 6, QUEUES - 1)
        self.covered["that came back to their own queue"] += message.reconsume_times > 0
        if message.queue.queue_id != wanted:
            self.faults.append(f"{message.body!r} was in queue {message.queue.queue_id}, not in {wanted} ({message})")

    async def _handle(self, consumer: SimpleConsumer, message: PoppedMessage, always: bool = False) -> None:
        what = "ack" if always else self._chance.choice(("ack", "ack", "ack", "forget", "renew"))
        if what == "forget":
            return
        try:
            if what == "renew":
                hidden_s, asked = self._chance.uniform(0.5, 2.0), time.monotonic()
                self.held.pop(message.body, None)
                await consumer.change_invisible(message, hidden_s)
                self.held[message.body] = asked + hidden_s - MARGIN_S
                self.covered["renewed"] += 1
                return
            in_time = self.held.get(message.body, 0.0)
            await consumer.ack(message)
            if time.monotonic() < in_time:  # else another one may have it by now
                self.acked.setdefault(message.body, time.monotonic())
                self.covered["acknowledged"] += 1
            else:
                self.doubtful.add(message.body)
        except RmqError as error:
            self.doubtful.add(message.body) if what == "ack" and isinstance(error, Unknown) else None
            self.covered[f"{what} without an answer"] += 1

    async def _empty(self, client: Client) -> None:
        """Waits until nothing has come for longer than any message was hidden."""
        consumer = client.simple_consumer(GROUP, TOPIC, start="first")
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < max(HIDDEN_S) + 4:
            for message in await self._receive(consumer, 60.0):
                quiet_since = time.monotonic()
                await self._handle(consumer, message, always=True)


async def run(kills: int, nodes: int, seed: int, flush: str, folder: Path, urgent: bool = False) -> tuple[Campaign, list[str]]:
    settings = {"check_message_types": "true", "separate_retry_queues": "true"} if urgent else {}
    members = Members(folder, count=nodes, flush=flush, **settings)
    campaign = Campaign(members, seed, urgent)
    try:
        return campaign, await campaign.play(kills)
    finally:
        await members.kill()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flush", default="async")
    parser.add_argument("--urgent", action="store_true", help="priorities, checked types, separate retry queues")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-pops-") as folder:
        campaign, found = asyncio.run(
            run(options.kills, options.nodes, options.seed, options.flush, Path(folder), options.urgent)
        )
    print(
        f"{options.nodes} nodes, flush {options.flush}, seed {options.seed}: {sum(campaign.sent.values())} sent; "
        + ", ".join(f"{count} {what}" for what, count in sorted(campaign.covered.items()))
    )
    print("\n".join(found[:50]) or "nothing lost, nothing acknowledged came back, nothing was given to two")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
