"""kill -9 while messages fall due, again and again on one store: each comes once, none early, none is lost (C13).

    python -m tests.faults.delays --rounds 20 [--flush sync|async] [--seed 1]

Each round sends messages of levels 1 and 2 and timers of 1 to 4 s, kills the broker at a random moment while earlier ones
fall due, and starts it again. Every fourth stop is one in order, so that snapshots are loaded too. In the end everything is
read. Prints how many were acknowledged, and how many came behind a stop that they were sent before.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rmq.errors import RmqError, Unknown
from rmq.log import record
from rmq.net.channel import Channel
from rmq.net.commands import GetMaxOffset, Hello, OffsetAnswer, Pull, PullAnswer, Send, UpdateTopic
from tests.faults.node import NodeProcess

TOPIC = "Later"
IN_FLIGHT = 16
LEVELS_MS = {1: 1000, 2: 5000}


class Sent(NamedTuple):
    due_ms: int
    acknowledged: bool


class Campaign:
    def __init__(self, node: NodeProcess, seed: int) -> None:
        self.node = node
        self.sent: dict[bytes, Sent] = {}
        self.crossed = 0  # messages that were sent before a blow and came after it
        self._blows: list[int] = []  # when, Unix ms
        self._chance = random.Random(seed)
        self._number = 0

    async def prepare(self) -> None:
        await self.node.start()
        channel = await Channel.open(self.node.address, Hello(1, "setup"))
        await channel.request(UpdateTopic(TOPIC, read_queue_nums=1, write_queue_nums=1), 10.0)
        await channel.close()

    async def round(self, number: int) -> None:
        channel = await Channel.open(self.node.address, Hello(1, "sender"))
        senders = [asyncio.create_task(self._send(channel)) for _ in range(IN_FLIGHT)]
        until_s = time.monotonic() + self._chance.uniform(0.5, 3.0)
        while time.monotonic() < until_s:
            await asyncio.sleep(0.05)
        if number % 4 == 3:
            await self.node.stop()
        else:
            await self.node.kill()
        await asyncio.gather(*senders)
        await channel.close()
        self._blows.append(time.time_ns() // 1_000_000)
        await self.node.start()

    async def _send(self, channel: Channel) -> None:
        """Until the connection breaks."""
        host = record.host_bytes("127.0.0.1", 0)
        while True:
            self._number += 1
            body, now_ms = b"%d" % self._number, time.time_ns() // 1_000_000
            if self._chance.random() < 0.5:
                level = self._chance.choice(list(LEVELS_MS))
                due_ms, wish = now_ms + LEVELS_MS[level], {"DELAY": str(level)}
            else:
                due_ms = now_ms + self._chance.randrange(1000, 4000)
                wish = {"TIMER_DELIVER_MS": str(due_ms)}
            properties = record.properties_to_bytes({"UNIQ_KEY": str(self._number), **wish})
            draft = record.draft(TOPIC, body, properties, born_timestamp=now_ms, born_host=host)
            try:
                await channel.request(Send("delays", TOPIC, 0, draft), 30.0)
            except Unknown:
                self.sent[body] = Sent(due_ms, False)
                return
            except RmqError:
                return
            self.sent[body] = Sent(due_ms, True)
            await asyncio.sleep(0.002)

    async def finish(self) -> list[str]:
        """What is wrong, once nothing more comes."""
        wanted = {body for body, one in self.sent.items() if one.acknowledged}
        channel = await Channel.open(self.node.address, Hello(1, "reader"))
        async with asyncio.timeout(120):
            while await _maximum(channel) < len(wanted) or time.time_ns() // 1_000_000 < self._last_ms() + 3000:
                await asyncio.sleep(0.1)
        came: dict[bytes, list[int]] = {}
        offset = 0
        while True:
            answer = await channel.request(Pull("checkers", TOPIC, 0, offset, sys_flag=4), 30.0)
            assert isinstance(answer, PullAnswer)
            if answer.status != 0:
                break
            for one in record.iterate(answer.messages):
                came.setdefault(one.body, []).append(one.store_timestamp)
                self.crossed += any(one.born_timestamp < blow < one.store_timestamp for blow in self._blows)
            offset = answer.next_begin_offset
        await channel.close()
        found = [f"{body!r} was acknowledged and did not come" for body in wanted - came.keys()]
        found += [f"{body!r} came {len(times)} times" for body, times in came.items() if len(times) > 1]
        found += [f"{body!r} was never sent" for body in came.keys() - self.sent.keys()]
        return found + [
            f"{body!r} came {self.sent[body].due_ms - min(times)} ms early"
            for body, times in came.items() if body in self.sent and min(times) < self.sent[body].due_ms
        ]  # fmt: skip

    def _last_ms(self) -> int:
        return max(one.due_ms for one in self.sent.values())


async def _maximum(channel: Channel) -> int:
    answer = await channel.request(GetMaxOffset(TOPIC, 0), 30.0)
    assert isinstance(answer, OffsetAnswer)
    return answer.offset


async def run(rounds: int, seed: int, flush: str, store: Path) -> tuple[Campaign, list[str]]:
    node = NodeProcess(store, flush=flush)
    campaign = Campaign(node, seed)
    try:
        await campaign.prepare()
        for number in range(rounds):
            await campaign.round(number)
        return campaign, await campaign.finish()
    finally:
        await node.kill()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flush", default="async")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-delays-") as folder:
        campaign, found = asyncio.run(run(options.rounds, options.seed, options.flush, Path(folder) / "store"))
    sent = len(campaign.sent)
    known = sum(one.acknowledged for one in campaign.sent.values())
    print(f"{options.rounds} rounds, flush {options.flush}, seed {options.seed}: {known} of {sent} acknowledged; "
          f"{campaign.crossed} came behind a stop that they were sent before")  # fmt: skip
    print("\n".join(found) or "each came once, none early")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
