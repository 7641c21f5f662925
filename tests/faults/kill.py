"""kill -9 in the middle of sending at full speed, again and again on one store: nothing acknowledged is lost.

    python -m tests.faults.kill --rounds 100 [--flush sync|async] [--seed 1]

Each round sends over 4 connections with 16 requests in flight, kills the broker at a random moment, starts it again on
the same store and reads everything new. `rmq store verify` looks at all files after every tenth round. Prints how many
sends were acknowledged and how many were in flight.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rmq.errors import RmqError, Unknown
from rmq.log.records import record
from rmq.net.commands import Hello, Pull, PullAnswer, Send, SendAnswer, UpdateTopic
from rmq.net.transport.channel import Channel
from tests.dialing import dial
from tests.faults.checker import Ack, Stored, problems
from tests.faults.node import NodeProcess

TOPIC = "Kill"
CONNECTIONS, IN_FLIGHT, QUEUES = 4, 16, 4


class Round(NamedTuple):
    acknowledged: int
    in_flight: int
    found: list[str]


class Campaign:
    """One store over many kills. `enough`: a round ends by chance within so many acknowledgements."""

    enough = range(500, 4000)

    def __init__(self, node: NodeProcess, seed: int) -> None:
        self.node = node
        self._chance = random.Random(seed)
        self.sent = 0
        self._next = dict.fromkeys(range(QUEUES), 0)

    async def prepare(self) -> None:
        await self.node.start()
        channel = await dial(self.node.address, Hello(1, "setup"))
        await channel.request(UpdateTopic(TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES), 10.0)
        await channel.close()

    async def round(self) -> Round:
        acks: list[Ack] = []
        unknown: list[bytes] = []
        enough = self._chance.choice(self.enough)
        reached = asyncio.Event()
        channels = [await dial(self.node.address, Hello(1, f"sender-{i}")) for i in range(CONNECTIONS)]
        each = [channel for channel in channels for _ in range(IN_FLIGHT)]
        senders = [asyncio.create_task(self._send(channel, acks, unknown, enough, reached)) for channel in each]
        found = await self._when(reached, senders)
        await asyncio.gather(*senders)
        for channel in channels:
            await channel.close()
        await self.node.start()
        queues = {queue_id: await self._read(queue_id) for queue_id in range(QUEUES)}
        found += [
            f"queue {q}: begins at {stored[0].queue_offset}, not {self._next[q]}"
            for q, stored in queues.items()
            if stored and stored[0].queue_offset != self._next[q]
        ]
        found += self.judge(acks, unknown, queues)
        for queue_id, stored in queues.items():
            self._next[queue_id] += len(stored)
        return Round(len(acks), len(unknown), found)

    async def _when(self, reached: asyncio.Event, senders: "list[asyncio.Task[None]]") -> list[str]:
        """Kills the node when it is time; returns what is wrong if it ended before that."""
        blow = asyncio.create_task(reached.wait())
        await asyncio.wait((blow, asyncio.gather(*senders)), return_when=asyncio.FIRST_COMPLETED)
        blow.cancel()
        if reached.is_set():
            await self.strike()
            return []
        await self.node.kill()
        return [f"the node ended by itself, or refuses every send: {self.node.log_text()[-1000:]}"]

    async def strike(self) -> None:
        await self.node.kill()

    def judge(self, acks: list[Ack], unknown: list[bytes], queues: dict[int, list[Stored]]) -> list[str]:
        """Returns what is wrong with what was found afterwards."""
        return problems(acks, unknown, queues)

    async def _send(self, channel: Channel, acks: list[Ack], unknown: list[bytes], enough: int, reached: asyncio.Event) -> None:
        """Sends until the connection breaks."""
        host = record.host_bytes("127.0.0.1", 0)
        while True:
            self.sent += 1
            body = b"%d-%d-" % (os.getpid(), self.sent) + b"x" * self._chance.randrange(10, 900)
            draft = record.draft(TOPIC, body, b"KEYS\x01k\x02", born_timestamp=1, born_host=host)
            queue_id = self.sent % QUEUES
            try:
                answer = await channel.request(Send("killers", TOPIC, queue_id, draft), 30.0)
            except Unknown:
                unknown.append(body)
                return
            except RmqError:
                return
            assert isinstance(answer, SendAnswer)
            acks.append(Ack(queue_id, answer.queue_offset, body, answer.physical_offset, time.monotonic()))
            if len(acks) >= enough:
                reached.set()

    async def _read(self, queue_id: int) -> list[Stored]:
        """Reads everything of a queue behind what was read before."""
        channel = await dial(self.node.address, Hello(1, "reader"))
        offset, stored = self._next[queue_id], []
        try:
            while True:
                answer = await channel.request(Pull("checkers", TOPIC, queue_id, offset, sys_flag=4), 30.0)
                assert isinstance(answer, PullAnswer)
                if answer.status != 0:
                    return stored
                stored += [Stored(r.queue_offset, r.body) for r in record.iterate(answer.messages)]
                offset = answer.next_begin_offset
        finally:  # a store that lost its topic refuses the pull
            await channel.close()


async def verified(node: NodeProcess, store: Path) -> list[str]:
    """Stops the node, and returns what `rmq store verify` says is damaged."""
    await node.stop()
    verify = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rmq.cli", "store", "verify", str(store), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await verify.communicate()
    return [] if verify.returncode == 0 else [f"store verify ({verify.returncode}): {said.decode()[-1000:]}"]


async def campaign(store: Path, flush: str, rounds: int, seed: int, tell: bool = False) -> list[Round]:
    """Kills so many times; `rmq store verify` looks at everything after every tenth kill and at the end."""
    run = Campaign(NodeProcess(store, flush=flush, segment_bytes=str(16 * 1024 * 1024)), seed)
    done = []
    try:
        await run.prepare()
        for number in range(rounds):
            done.append(await run.round())
            if (number + 1) % 10 == 0 and number + 1 < rounds:
                done[-1].found.extend(await verified(run.node, store))
                await run.node.start()
            if tell:
                print(
                    f"{flush} flush, kill {number + 1}: {done[-1].acknowledged} acknowledged, {done[-1].in_flight} in flight,"
                    f" {len(done[-1].found)} problems",
                    flush=True,
                )
        done[-1].found.extend(await verified(run.node, store))
    finally:
        await run.node.kill()
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--flush", choices=["sync", "async"], action="append")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failed = False
    for flush in options.flush or ["sync", "async"]:
        with tempfile.TemporaryDirectory() as folder:
            done = asyncio.run(campaign(Path(folder) / "store", flush, options.rounds, options.seed, tell=True))
        found = [text for one in done for text in one.found]
        failed = failed or bool(found)
        print(
            f"{flush} flush: {len(done)} kills, {sum(r.acknowledged for r in done)} acknowledged, "
            f"{sum(r.in_flight for r in done)} in flight when killed, {len(found)} problems"
        )
        print("\n".join(found[:20]))
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
