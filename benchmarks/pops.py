"""What popping costs: CPU of the broker for messages handed out, acknowledged, and brought back.

    python -m benchmarks.pops [--count 40000]

`rmq node` in a process of its own, messages of 500 bytes in four queues, eight connections that pop 32 each.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil

from benchmarks.cputime import cpu_seconds
from rmq.clock import SystemClock
from rmq.log.records import record
from rmq.net.commands import GetMaxOffset, Hello, OffsetAnswer, Send, UpdateTopic
from rmq.net.commands.pop import PopAnswer
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer
from tests.broker.popping import Popped, ack, batch_ack, pop, popped
from tests.faults.node import NodeProcess

BODY_BYTES, QUEUES, TOGETHER, CONNECTIONS = 500, 4, 100, 8
HOST = record.host_bytes("127.0.0.1", 0)
End = Callable[[Channel, str, PopAnswer, list[Popped]], Awaitable[None]]


async def nothing(channel: Channel, group: str, answer: PopAnswer, found: list[Popped]) -> None:
    """They come back."""


async def each(channel: Channel, group: str, answer: PopAnswer, found: list[Popped]) -> None:
    await ack(lambda request: channel.request(request, 30.0), *found, group=group)


async def together(channel: Channel, group: str, answer: PopAnswer, found: list[Popped]) -> None:
    await channel.request(batch_ack(answer, found, group), 30.0)


class Run:
    def __init__(self, node: NodeProcess, channels: list[Channel], count: int) -> None:
        assert node.process is not None
        self._process = psutil.Process(node.process.pid)
        self._channels = channels
        self._count = count

    async def fill(self) -> None:
        draft = record.draft("T", b"x" * BODY_BYTES, b"", born_timestamp=1, born_host=HOST)
        for number in range(self._count // TOGETHER):
            await self._channels[0].request(Send("p", "T", number % QUEUES, draft * TOGETHER, batch=True), 30.0)

    async def take(self, what: str, group: str, hidden_ms: int, end: End) -> None:
        cpu_s, began = cpu_seconds(self._process), time.perf_counter()
        counts = await asyncio.gather(*(self._take_all(channel, group, hidden_ms, end) for channel in self._channels))
        self._tell(what, sum(counts), cpu_s, began)

    async def _take_all(self, channel: Channel, group: str, hidden_ms: int, end: End) -> int:
        count, request = 0, pop(group=group, hidden_ms=hidden_ms)
        while True:
            answer = await channel.request(request, 30.0)
            assert isinstance(answer, PopAnswer)
            if answer.status:
                return count
            found = popped(answer, request)
            await end(channel, group, answer, found)
            count += len(found)

    async def come_back(self, group: str) -> None:
        retry, cpu_s, began = f"%RETRY%{group}_T", 0.0, 0.0
        while True:
            answer = await self._channels[0].request(GetMaxOffset(retry, 0), 30.0)
            assert isinstance(answer, OffsetAnswer)
            if answer.offset and not began:
                cpu_s, began = cpu_seconds(self._process), time.perf_counter()
            if answer.offset >= self._count:
                break
            await asyncio.sleep(0.01)
        self._tell("brought back", self._count, cpu_s, began)

    def _tell(self, what: str, count: int, cpu_s: float, began: float) -> None:
        wall_s, cost_us = time.perf_counter() - began, (cpu_seconds(self._process) - cpu_s) / count * 1e6
        print(f"{what}: {count} messages, {cost_us:.1f} us of CPU each, {count / wall_s:.0f}/s")


async def run(count: int, store: Path) -> None:
    node = NodeProcess(store)
    await node.start()
    try:
        channels = [await Dialer(SystemClock()).open(node.address, Hello(1, "pops")) for _ in range(CONNECTIONS)]
        await channels[0].request(UpdateTopic("T", read_queue_nums=QUEUES, write_queue_nums=QUEUES), 10.0)
        found = Run(node, channels, count)
        await found.fill()
        await found.take("popped", "never", 600_000, nothing)
        await found.take("popped, acknowledged one by one", "singly", 600_000, each)
        await found.take("popped, acknowledged together", "jointly", 600_000, together)
        await found.take("popped for a moment", "forgets", 5000, nothing)
        await found.come_back("forgets")
        for channel in channels:
            await channel.close()
    finally:
        await node.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=40_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-pops-") as folder:
        asyncio.run(run(options.count, Path(folder) / "store"))
