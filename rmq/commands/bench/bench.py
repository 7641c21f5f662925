"""`rmq bench produce|consume|e2e`: rates, latencies and the brokers' CPU, measured with our own client in one process.

The client is often the slower side, so the rate says what one Python process reaches; the CPU per message is the
broker's own. benchmarks/run.py in the source measures the broker with a client that is never the bottleneck.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from rmq.client import Client, Consumer, Message, Producer, ReceivedMessage
from rmq.commands.bench import figures
from rmq.commands.bench.brokercpu import BrokerCpu
from rmq.commands.shared import asking, options, output
from rmq.errors import RmqError

_TOPIC = "BenchTopic"
_RECEIVED_AT_ONCE = 256
Progress = Callable[[int], None]


class _Starved(RmqError):
    """The topic holds fewer messages than wanted."""


@click.group()
def bench() -> None:
    """Measure sending, receiving, and both together. Stores real messages: use a topic of its own."""


_topic = click.option("-t", "--topic", default=_TOPIC, show_default=True)
_messages = click.option("-m", "--messages", type=click.IntRange(min=1), default=100_000, show_default=True)
_size = click.option(
    "-s", "--size", "size_bytes", type=click.IntRange(min=1), default=500, show_default=True, help="Bytes of a body."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@bench.command()
@options.namesrv
@_topic
@_messages
@_size
@click.option("--in-flight", type=click.IntRange(min=1), default=64, show_default=True, help="Requests in flight.")
@click.option("--batch", "batch_size", type=click.IntRange(1, 1000), default=1, show_default=True, help="Messages in a request.")
@options.timeout
@_json
def produce(
    namesrv: str,
    topic: str,
    messages: int,
    size_bytes: int,
    in_flight: int,
    batch_size: int,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Send MESSAGES with a tag and a key. Latency: from the call to the broker's answer."""
    settings = {"topic": topic, "messages": messages, "size_bytes": size_bytes, "in_flight": in_flight, "batch": batch_size}

    async def work(client: Client, progress: Progress) -> figures.Latencies:
        latencies = figures.Latencies()
        body = os.urandom(size_bytes)
        sizes = iter([batch_size] * (messages // batch_size) + [messages % batch_size] * (messages % batch_size > 0))
        async with client.producer("rmq-bench") as producer, asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(_keep_sending(producer, topic, body, sizes, timeout_s, latencies, progress))
        return latencies

    _measure("produce", namesrv, settings, messages, work, as_json)


async def _keep_sending(
    producer: Producer,
    topic: str,
    body: bytes,
    sizes: Iterator[int],
    timeout_s: float,
    latencies: figures.Latencies,
    progress: Progress,
) -> None:
    for size in sizes:
        batch = [Message(topic, body, tags="TagA", keys=["order-0000000001"]) for _ in range(size)]
        began = time.perf_counter()
        if size == 1:
            await producer.send(batch[0], timeout=timeout_s)
        else:
            await producer.send_batch(batch, timeout=timeout_s)
        latencies.add(time.perf_counter() - began, size)
        progress(size)


@bench.command()
@options.namesrv
@_topic
@_messages
@click.option("-g", "--group", help="Consumer group.  [default: a new one, so that all of the topic comes]")
@click.option(
    "--idle",
    "idle_s",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up when no message comes for this long.",
)
@_json
def consume(namesrv: str, topic: str, messages: int, group: str | None, idle_s: float, as_json: bool) -> None:
    """Receive MESSAGES that are already stored. Latency: from storing to receiving, so it is the age of a message."""
    group = group or f"rmq-bench-{os.getpid()}-{time.time_ns() // 1_000_000}"
    settings = {"topic": topic, "messages": messages, "group": group}

    async def work(client: Client, progress: Progress) -> figures.Latencies:
        latencies = figures.Latencies()
        async with client.consumer(group, topics=[topic], start="first") as consumer:
            while latencies.count < messages:
                received = await consumer.receive(max=min(_RECEIVED_AT_ONCE, messages - latencies.count), timeout=idle_s)
                if not received:
                    raise _Starved(
                        f"{latencies.count} of {messages} messages came, then none for {idle_s} s; "
                        "fill the topic with `rmq bench produce`"
                    )
                now_ms = time.time() * 1000
                for message in received:
                    latencies.add((now_ms - message.store_timestamp) / 1000)
                progress(len(received))
            await consumer.commit()
        return latencies

    _measure("consume", namesrv, settings, messages, work, as_json)


@bench.command()
@options.namesrv
@click.option("-t", "--topic", default=f"{_TOPIC}E2E", show_default=True)
@_size
@click.option("-r", "--rate", type=click.FloatRange(min=0.1), default=1000.0, show_default=True, help="Messages per second.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=10.0, show_default=True, help="How long to send.")
@options.timeout
@_json
def e2e(namesrv: str, topic: str, size_bytes: int, rate: float, seconds: float, timeout_s: float, as_json: bool) -> None:
    """Send at a fixed RATE and receive. Latency: from the planned moment of sending to the handler."""
    messages = max(1, round(rate * seconds))
    settings = {"topic": topic, "messages": messages, "size_bytes": size_bytes, "rate_per_second": rate}

    async def work(client: Client, progress: Progress) -> figures.Latencies:
        latencies = figures.Latencies()
        group = f"rmq-bench-{os.getpid()}-{time.time_ns() // 1_000_000}"
        run_id = os.urandom(8).hex()
        async with client.producer("rmq-bench") as producer:
            await producer.send(Message(topic, b"the first one makes the topic", tags="warm-up"), timeout=timeout_s)
            async with client.consumer(group, topics=[topic], start="last") as consumer:
                receiving = asyncio.create_task(_receive(consumer, run_id, messages, latencies, progress))
                await _send_at_rate(producer, topic, size_bytes, run_id, rate, messages, timeout_s)
                await asyncio.wait_for(receiving, timeout_s + 30)
        return latencies

    _measure("e2e", namesrv, settings, messages, work, as_json)


async def _receive(consumer: Consumer, run_id: str, wanted: int, latencies: figures.Latencies, progress: Progress) -> None:
    def handle(message: ReceivedMessage) -> None:
        if message.properties.get("run") != run_id:
            return
        latencies.add(time.perf_counter() - float(message.properties["at"]))
        progress(1)
        if latencies.count >= wanted:
            consumer.stop()

    await consumer.run(handle)


async def _send_at_rate(
    producer: Producer,
    topic: str,
    size_bytes: int,
    run_id: str,
    rate: float,
    count: int,
    timeout_s: float,
) -> None:
    """Each message starts at its planned moment, whether or not the ones before have been answered."""
    body, began = os.urandom(size_bytes), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for index in range(count):
            planned = began + index / rate
            if (ahead_s := planned - time.perf_counter()) > 0:
                await asyncio.sleep(ahead_s)
            properties = {"run": run_id, "at": repr(planned)}
            group.create_task(producer.send(Message(topic, body, tags="TagA", properties=properties), timeout=timeout_s))


# --- around every measurement -----------------------------------------------------------------------------------------


def _measure(name: str, namesrv: str, settings: dict[str, Any], messages: int, work: Any, as_json: bool) -> None:
    """Runs `work(client, progress)`, measures time and CPU around it, and prints settings and figures."""

    async def measured() -> dict[str, Any]:
        async with asking.client_of(namesrv) as client:
            cpu = await BrokerCpu.find(client)
            with _progress(name, messages) as progress:
                before, began = cpu.read(), time.perf_counter()
                latencies = await work(client, progress)
                took, after = time.perf_counter() - began, cpu.read()
        found: dict[str, Any] = {"seconds": round(took, 3), "messages_per_second": round(messages / took)}
        if "size_bytes" in settings:
            found["mib_per_second"] = round(messages * settings["size_bytes"] / took / 2**20, 2)
        found |= latencies.as_ms()
        found["broker_cpu_us_per_message"] = round((after - before) / messages * 1e6, 2) if cpu.complete else None
        return found

    began_cpu = time.process_time()
    found = options.run_fast(measured())
    found["client_cpu_us_per_message"] = round((time.process_time() - began_cpu) / messages * 1e6, 2)
    _print(name, {"namesrv": namesrv, **settings}, found, as_json)


def _print(name: str, settings: dict[str, Any], found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.show_json({"bench": name, "settings": settings, "figures": found})
        return
    click.echo(f"bench {name}: " + ", ".join(f"{key} {value}" for key, value in settings.items()))
    for key, value in found.items():
        click.echo(f"  {key:26} {'not known (the broker is not local)' if value is None else value}")


@contextmanager
def _progress(name: str, total: int) -> Iterator[Progress]:
    """A bar on stderr where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda count: None
        return
    with Bar(console=console, transient=True) as bar:
        task = bar.add_task(name, total=total)
        yield lambda count: bar.advance(task, count)
