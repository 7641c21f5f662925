"""What a filter costs: CPU of the broker for each message that it looks at, in RocketMQ's protocol.

    python -m benchmarks.filters [--count 40000] [--address HOST:PORT --pid PID]

`rmq node` in a process of its own, or another broker that runs (enablePropertyFilter=true; sends make topics).
Messages of 500 bytes in four queues, with ten tags and four more properties; one pull at a time in each queue, of 32 messages.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.cputime import cpu_seconds
from rmq.javahash import java_hash
from rmq.model import ConsumerData, Subscription
from rmq.net.commands import Heartbeat, Pull
from tests.broker.javaclient import JavaClient
from tests.faults.node import NodeProcess

BODY, QUEUES, TOGETHER = b"x" * 500, 4, 50
TOPIC = "Filtered"
LONG = " OR ".join(f"a = {number}" for number in range(100, 200))
CASES = [  # what is wanted, and by which kind of filter
    ("all", "*", "TAG"),
    ("a tag, of 1 in 10", "t3", "TAG"),
    ("a number and a list, of 1 in 4", "a < 20 AND region IN ('north', 'south')", "SQL92"),
    ("a range, of none", "price BETWEEN 500 AND 600", "SQL92"),
    ("the same words, of all", "price BETWEEN 0 AND 600", "SQL92"),
    ("texts, of 1 in 4", "region STARTSWITH 'n' AND NOT (region ENDSWITH 'x') AND vip IS NOT NULL", "SQL92"),
    ("100 comparisons, of none", LONG, "SQL92"),
]


async def fill(client: JavaClient, count: int) -> None:
    for first in range(0, count, TOGETHER):
        sends = []
        for number in range(first, first + TOGETHER):
            place = ("north", "south", "east", "west")[number % 4]
            said = {"a": number % 40, "region": place, "price": number % 100, "vip": number % 2, "TAGS": f"t{number % 10}"}
            text = "".join(f"{name}\x01{value}\x02" for name, value in said.items())
            sends.append(client.send(BODY, TOPIC, e=str(number // 4 % QUEUES), i=f"UNIQ_KEY\x01F{number}\x02{text}"))
        for header, _ in await asyncio.gather(*sends):
            assert header.code == 0, header.remark


async def read(client: JavaClient, group: str, queue_id: int) -> tuple[int, int]:
    """Bytes that came, and the offset behind the last message."""
    at = size = 0
    while True:
        header, body = await client.ask(Pull(group, TOPIC, queue_id, at, sys_flag=0, sub_version=1))
        assert header.code in (0, 19, 20), header.remark
        size += len(body)
        if header.code == 19:
            return size, at
        at = int(header.ext["nextBeginOffset"])


async def run(address: str, pid: int, count: int) -> None:
    process = psutil.Process(pid)
    async with JavaClient.connect(address) as client:
        await fill(client, count)
        for number, (what, expression, kind) in enumerate(CASES):
            group = f"filters-{number}-{time.time_ns()}"
            tags = [expression] if kind == "TAG" and expression != "*" else []
            wanted = Subscription(TOPIC, expression, kind, 1, tags, [java_hash(tag) for tag in tags])
            await client.ask(Heartbeat(group, [], [ConsumerData(group, subscriptions=[wanted])]))
            costs = []
            for _ in range(3):
                began, began_cpu_s = time.perf_counter(), cpu_seconds(process)
                results = await asyncio.gather(*(read(client, group, queue_id) for queue_id in range(QUEUES)))
                looked = sum(end for _, end in results)
                costs.append((cpu_seconds(process) - began_cpu_s) / looked * 1e6)
            rate, mib = looked / (time.perf_counter() - began), sum(size for size, _ in results) / (1 << 20)
            print(
                f"{what}: {looked} messages, {sorted(costs)[1]:.2f} us of CPU each, {rate:.0f}/s, {mib:.1f} MiB came", flush=True
            )


async def with_node(count: int, store: Path) -> None:
    node = NodeProcess(store, property_filter="true")
    await node.start()
    try:
        assert node.process is not None
        await run(node.address, node.process.pid, count)
    finally:
        await node.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=40_000)
    parser.add_argument("--address", default="")
    parser.add_argument("--pid", type=int, default=0)
    options = parser.parse_args()
    if options.address:
        asyncio.run(run(options.address, options.pid, options.count))
    else:
        with tempfile.TemporaryDirectory(prefix="rmq-filters-") as folder:
            asyncio.run(with_node(options.count, Path(folder) / "store"))
