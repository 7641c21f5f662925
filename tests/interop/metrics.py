"""What Prometheus is told of the same work by a broker of ours and by one of Apache RocketMQ 5.5.0, from the same requests.

    python -m tests.interop.metrics             # what differs
    python -m tests.interop.metrics --record    # what RocketMQ says goes to metrics-5.5.0.json, for the test run

Needs Maven and a JDK. Ages, sizes and times are not compared, nor histograms, which ours has others of.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from rmq.log.records import record
from rmq.model import ConsumerData, GroupConfig, Subscription
from rmq.net.commands import Heartbeat, Pull, UpdateConsumerOffset, UpdateGroup, UpdateTopic
from rmq.net.commands.pop import Ack, Pop
from rmq.net.commands.retries import SendBack
from rmq.net.commands.transactions import COMMIT, ROLLBACK, EndTransaction
from rmq.testing import LocalBroker
from tests.broker.javaclient import JavaClient
from tests.broker.popping import take
from tests.interop import java
from tests.interop.java import Java
from tests.net.java_peer import read_answer
from tests.ops.watching import families, scrape_of
from tests.ports import free_port

RECORDED: Final = Path(__file__).parent / "metrics-5.5.0.json"
_OF_ALL: Final = {"cluster", "node_id", "node_type", "otel_scope_name", "job"}
_NOT_COMPARED: Final = ("_milliseconds", "_seconds", "_bytes", "rocketmq_throughput_")
Figures = dict[str, dict[str, float]]
"""By name: labels but for those of the broker, as text, and the value."""


async def work(address: str, counted: Callable[[], Awaitable[Figures]]) -> Figures:
    """What is told behind sends, pulls, pops, dead letters, delays and transactions, of which some are left."""
    async with JavaClient.connect(address) as client:

        async def ask(request: Any) -> Any:
            header, body = await client.ask(request)
            return read_answer(header, body, type(request))

        for topic in ("T", "P"):
            await ask(UpdateTopic(topic, read_queue_nums=1, write_queue_nums=1))
        for group, tries in (("g", 3), ("p", 3), ("q", 0)):
            await ask(UpdateGroup(GroupConfig(group, retry_max_times=tries)))
        pulling = [ConsumerData(group, subscriptions=[Subscription("T")]) for group in "gq"]
        popping = ConsumerData("p", consume_type="CONSUME_POP", subscriptions=[Subscription("P")])
        beats = Heartbeat("pulling", ["sends"], pulling), Heartbeat("popping", [], [popping])
        for beat in beats:
            await ask(beat)
        for _ in range(10):
            await client.send(b"x" * 100, "T")
            await client.send(b"y" * 100, "P")
        await ask(Pull("g", "T", 0, 0, 4, 5))
        await ask(UpdateConsumerOffset("g", "T", 0, 2))
        failed = next(iter(record.iterate((await ask(Pull("q", "T", 0, 0, 4, 4))).messages)))
        await ask(SendBack(failed.physical_offset, "q", 0, "", "T", False, 0))
        first, *_ = await take(ask, Pop("p", "P", -1, 3, 60_000, 0, 0, 0))
        await ask(Ack("p", "P", 0, first.handle, first.queue_offset))
        await client.send(b"later", "T", i="UNIQ_KEY\x01L\x02DELAY\x0118\x02")
        for number, how in enumerate((COMMIT, ROLLBACK, None)):
            properties = f"UNIQ_KEY\x01H{number}\x02TRAN_MSG\x01true\x02PGROUP\x01sends\x02"
            half = (await client.send(b"half", "T", f="4", i=properties))[0].ext
            if how is not None:
                await ask(EndTransaction("sends", int(half["queueOffset"]), int(half["msgId"][16:], 16), how, f"H{number}"))
        for beat in beats:
            await ask(beat)
        return await counted()


def figures(page: str) -> Figures:
    found: Figures = {}
    for name, family in families(page).items():
        if not name.startswith("rocketmq_") or name.endswith(_NOT_COMPARED) or family.type == "histogram":
            continue
        rows = found[name] = {}
        for sample in family.samples:
            labels = {label: said for label, said in sample.labels.items() if label not in _OF_ALL}
            rows[" ".join(f"{label}={labels[label]}" for label in sorted(labels))] = sample.value
    return {name: rows for name, rows in found.items() if not name.startswith(_NOT_COMPARED)}


async def at_ours() -> Figures:
    async with LocalBroker() as broker:

        async def counted() -> Figures:
            await broker.clock.advance(15)  # rates and totals are taken every 10 s
            return figures(await scrape_of(*broker.parts))

        return await work(broker.address, counted)


async def at_rocketmq(folder: Path) -> Figures:
    named, port, told = free_port(), free_port(1, -2), free_port()
    nameserver = await Java.start_nameserver(folder, named)
    prometheus = {"metricsExporterType": "PROM", "metricsPromExporterPort": told, "metricsPromExporterHost": "127.0.0.1"}
    broker = await Java.start_broker(folder, f"127.0.0.1:{named}", port, 16 << 20, **prometheus)

    async def asked() -> Figures:
        with await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{told}/metrics") as answer:
            return figures(answer.read().decode())

    async def counted() -> Figures:
        while not (found := await asked()).get("rocketmq_half_messages"):
            pass
        return found

    try:
        return await work(f"127.0.0.1:{port}", counted)
    finally:
        await broker.kill()
        await nameserver.kill()


def different(ours: Figures, theirs: Figures) -> set[str]:
    """Rows that one has and the other one has not, or has with another value."""
    mine, others = ({(name, *row) for name, rows in each.items() for row in rows.items()} for each in (ours, theirs))
    return {f"{name} {labels}".rstrip() for name, labels, _ in mine ^ others}


async def _main(is_recording: bool) -> int:
    java.build()
    with tempfile.TemporaryDirectory() as folder:
        theirs = await at_rocketmq(Path(folder)) if is_recording else json.loads(RECORDED.read_text())
    if is_recording:
        RECORDED.write_text(json.dumps(theirs, indent=0, sort_keys=True) + "\n")
    ours = await at_ours()
    for row in sorted(different(ours, theirs)):
        name, _, labels = row.partition(" ")
        print(row, "- RocketMQ:", theirs.get(name, {}).get(labels), "- ours:", ours.get(name, {}).get(labels))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="ask RocketMQ again, and keep what it says")
    sys.exit(asyncio.run(_main(parser.parse_args().record)))
