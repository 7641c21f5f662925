"""One process that works with the Python client, as a service would; `benchmarks.pyclient` starts it and its broker.

    python -m benchmarks.clientload NAMESERVER single|batch|consume COUNT [--in-flight N] [--uvloop]

Bodies of 500 bytes with a tag and one key of 16 characters. One line of JSON on stdout: messages, seconds, and this process's
user and system time in microseconds a message; what it does before the first message and behind the last one is left out.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable

from rmq.client import Client, Message, Producer

TOPIC, BODY, BATCH = "BenchTopic", bytes(range(250)) * 2, 100
WARM = 2000  # messages: routes, connections


class Meter:
    """Time and CPU since it was made."""

    def __init__(self) -> None:
        self._began, self._before = time.perf_counter(), os.times()

    def read(self, messages: int) -> dict[str, float]:
        now, seconds = os.times(), time.perf_counter() - self._began
        user, system = now.user - self._before.user, now.system - self._before.system
        return {
            "messages": messages,
            "seconds": round(seconds, 3),
            "per_second": round(messages / seconds),
            "cpu_us": round((user + system) / messages * 1e6, 2),
            "user_us": round(user / messages * 1e6, 2),
            "system_us": round(system / messages * 1e6, 2),
        }


def message(number: int) -> Message:
    return Message(TOPIC, BODY, tags="TagA", keys=[f"order-{number:010d}"])


async def singles(producer: Producer, count: int) -> None:
    """One of many that send one message after the other."""
    for number in range(count):
        await producer.send(message(number))


async def batches(producer: Producer, count: int) -> None:
    for _ in range(count // BATCH):
        await producer.send_batch([message(number) for number in range(BATCH)])


async def send(client: Client, work: Callable[[Producer, int], Awaitable[None]], count: int, in_flight: int) -> dict[str, float]:
    producer = client.producer("bench")
    await work(producer, WARM)
    meter, each = Meter(), max(count // in_flight // BATCH, 1) * BATCH
    await asyncio.gather(*(work(producer, each) for _ in range(in_flight)))
    return meter.read(each * in_flight)


async def consume(client: Client, count: int) -> dict[str, float]:
    """A group of its own reads from the first message on, with an async handler that looks at the body."""
    seen = 0

    async with client.consumer(f"bench-{os.getpid()}", [TOPIC], start="first") as consumer:

        async def handle(found: object) -> None:
            nonlocal seen
            seen += len(found.body) > 0  # type: ignore[attr-defined]
            if seen == count:
                consumer.stop()

        meter = Meter()
        await consumer.run(handle)
        return meter.read(seen)


async def run(nameserver: str, kind: str, count: int, in_flight: int) -> dict[str, float]:
    async with Client(nameserver) as client:
        if kind == "consume":
            return await consume(client, count)
        return await send(client, singles if kind == "single" else batches, count, in_flight)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nameserver")
    parser.add_argument("kind", choices=["single", "batch", "consume"])
    parser.add_argument("count", type=int)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--uvloop", action="store_true")
    asked = parser.parse_args()
    if asked.uvloop:
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    print(json.dumps(asyncio.run(run(asked.nameserver, asked.kind, asked.count, asked.in_flight))))


if __name__ == "__main__":
    main()
