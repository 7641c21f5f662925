"""What waiting costs: memory and CPU of messages that are all due at one moment, and what other sends feel then.

    python -m benchmarks.delays [--count 100000] [--ahead 45]

`rmq node` in a process of its own takes in so many timed messages of 200 bytes, due `--ahead` seconds later (choose it so that
all are in by then). When they fall due one client sends on, one message after the other.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.cputime import cpu_seconds
from rmq.clock import SystemClock
from rmq.log.records import record
from rmq.net.commands import GetMaxOffset, Hello, OffsetAnswer, Send, UpdateTopic
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer
from tests.faults.node import NodeProcess

BODY_BYTES, TOGETHER = 200, 200
HOST = record.host_bytes("127.0.0.1", 0)


def message(queue_id: int, **properties: str) -> Send:
    text = record.properties_to_bytes(properties)
    return Send("p", "T", queue_id, record.draft("T", b"x" * BODY_BYTES, text, born_timestamp=1, born_host=HOST))


class Run:
    def __init__(self, node: NodeProcess, channel: Channel, count: int) -> None:
        assert node.process is not None
        self._process = psutil.Process(node.process.pid)
        self._channel = channel
        self._count = count

    async def take_in(self, due_ms: int) -> None:
        cpu_s, began, rss = cpu_seconds(self._process), time.perf_counter(), self._process.memory_info().rss
        for first in range(0, self._count, TOGETHER):
            some = range(first, min(self._count, first + TOGETHER))
            timed = [message(0, UNIQ_KEY=f"{number:032d}", TIMER_DELIVER_MS=str(due_ms)) for number in some]
            await asyncio.gather(*(self._channel.request(one, 30.0) for one in timed))
        wall_s, cost_us = time.perf_counter() - began, (cpu_seconds(self._process) - cpu_s) / self._count * 1e6
        grown_mb = (self._process.memory_info().rss - rss) / 1e6
        print(f"taken in: {self._count / wall_s:.0f}/s, {cost_us:.0f} us of CPU each; the broker grew by {grown_mb:.0f} MB")

    async def hand_on(self) -> None:
        while not await self._arrived():  # noqa: ASYNC110 (asks another process)
            await asyncio.sleep(0.001)
        cpu_s, began = cpu_seconds(self._process), time.perf_counter()
        waits: list[float] = []
        while await self._arrived() < self._count:
            sent = time.perf_counter()
            await self._channel.request(message(1), 30.0)
            waits.append((time.perf_counter() - sent) * 1e3)
            await asyncio.sleep(0.001)
        wall_s, cost_us = time.perf_counter() - began, (cpu_seconds(self._process) - cpu_s) / self._count * 1e6
        waits.sort()
        print(f"handed on: {self._count} in {wall_s:.1f} s, {self._count / wall_s:.0f}/s, {cost_us:.0f} us of CPU each")
        print(
            f"sends meanwhile: {len(waits)}, median {waits[len(waits) // 2]:.1f} ms, 99 % below "
            f"{waits[len(waits) * 99 // 100]:.1f} ms, longest {waits[-1]:.1f} ms"
        )

    async def _arrived(self) -> int:
        answer = await self._channel.request(GetMaxOffset("T", 0), 30.0)
        assert isinstance(answer, OffsetAnswer)
        return answer.offset


async def run(count: int, ahead_s: float, store: Path) -> None:
    node = NodeProcess(store)
    await node.start()
    try:
        channel = await Dialer(SystemClock()).open(node.address, Hello(1, "delays"))
        await channel.request(UpdateTopic("T", read_queue_nums=2, write_queue_nums=2), 10.0)
        due_ms = time.time_ns() // 1_000_000 + int(ahead_s * 1000)
        found = Run(node, channel, count)
        await found.take_in(due_ms)
        await found.hand_on()
        await channel.close()
    finally:
        await node.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--ahead", type=float, default=45.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-delays-") as folder:
        asyncio.run(run(options.count, options.ahead, Path(folder) / "store"))
