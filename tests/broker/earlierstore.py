"""What an earlier build left: writes a store in which a bit of everything waits, as `tests/data/earlier` keeps it.

    PYTHONSAFEPATH=1 PYTHONPATH=OLDER_CLONE python tests/broker/earlierstore.py OUT

OUT/stopped is the store after a stop in order, OUT/killed as a kill leaves it. An older build runs it, so nothing of the tests
is imported here. `test_earlier.py` says what a node of today must find.
"""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

from rmq.client import Client, Decision, Message, RetryLater
from rmq.client.admin import access, calls
from rmq.model import GroupConfig, MessageQueue
from rmq.net.commands.access import CreateUser, UserInfo
from rmq.testing import LocalBroker, TestClock, until

BEGAN_MS = 1_764_000_000_000
SETTINGS: dict[str, Any] = {
    "segment_bytes": 8 << 20,
    "queue_file_bytes": 20_000,
    "batch_queue_file_bytes": 46_000,
    "timer_log_file_bytes": 52_000,
    "light_queues": True,
    "light_dispatch": True,
    "recall_messages": True,
    "cluster_name": "C",
    "broker_name": "B",
}
TOPICS = {
    "Plain": "",
    "Batches": "+queue.type=BatchCQ",
    "Keys": "+cleanup.policy=COMPACTION",
    "Rooms": "+message.type=LITE",
    "Urgent": "+message.type=PRIORITY",
    "Later": "",
    "Halves": "+message.type=TRANSACTION",
    "Popped": "",
    "Failing": "",
    "Gone": "",
}


async def fill(broker: LocalBroker) -> None:
    async with broker.client(instance="earlier") as client:
        for topic, attribute in TOPICS.items():
            await calls.update_topic(client, topic, broker=broker.address, read_queues=2, write_queues=2, attributes=attribute)
        for group in ("readers", "poppers", "failers", "takers"):
            await calls.update_group(client, _group(group), broker=broker.address)
        await _store(client)
        await broker.clock.advance(90)  # a snapshot is made; what follows is behind it
        await _leave_waiting(client)
        await _consume(client)
        await _pop(client)
        await _administer(client, broker)


def _group(name: str) -> GroupConfig:
    if name == "takers":
        return GroupConfig(name, attributes={"+lite.bind.topic": "Rooms"})
    return GroupConfig(name, retry_max_times=3)


async def _store(client: Client) -> None:
    producer = client.producer("makers")
    for number in range(20):
        queue = MessageQueue("Plain", "B", number % 2)
        body = b"plain-%d" % number if number else b"long " * 2000
        tag = "even" if number % 2 == 0 else "odd"
        await producer.send(Message("Plain", body, tags=tag, keys=[f"key-{number}"], properties={"n": str(number)}), queue=queue)
    await producer.send_batch([Message("Batches", b"batch-%d" % number) for number in range(5)])
    for number in range(6):
        await producer.send(Message("Keys", b"value-%d" % number, keys=[f"k{number % 2}"]), key=f"k{number % 2}")
    for number in range(4):
        await producer.send(Message("Rooms", b"room-%d" % number, lite_topic=f"r{number % 2}"))
        await producer.send(Message("Plain", b"light-%d" % number, light_queues=[f"l{number % 2}"]))
        await producer.send(Message("Urgent", b"urgent-%d" % number, priority=number % 2))


async def _leave_waiting(client: Client) -> None:
    producer = client.producer("makers")
    await producer.send(Message("Later", b"by level", delay_level=5))
    await producer.send(Message("Later", b"by time", deliver_at_ms=BEGAN_MS + 600_000))
    sent = await producer.send(Message("Later", b"recalled", deliver_at_ms=BEGAN_MS + 600_000))
    await producer.recall(sent)
    cashier = client.transaction_producer(lambda half: Decision.UNKNOWN, "cashiers", topics="Halves")
    for decision in (Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN):
        await cashier.send_in_transaction(Message("Halves", decision.name.encode()), lambda _, said=decision: said)


async def _consume(client: Client) -> None:
    async with client.consumer("readers", "Plain", start="first", auto_commit=False) as consumer:
        taken = 0
        while taken < 24:
            taken += len(await consumer.receive())
        await consumer.commit()
    failed = 0

    async def fail(_: object) -> None:
        nonlocal failed
        failed += 1
        raise RetryLater

    producer = client.producer("makers")
    await producer.send(Message("Failing", b"dead"))
    async with client.consumer("failers", "Failing", start="first", max_retries=0) as consumer:
        running = asyncio.create_task(consumer.run(fail))
        await until(lambda: failed)
        consumer.stop()
        await running


async def _pop(client: Client) -> None:
    producer = client.producer("makers")
    for number in range(4):
        await producer.send(Message("Popped", b"popped-%d" % number), queue=MessageQueue("Popped", "B", 0))
    async with client.simple_consumer("poppers", "Popped", start="first") as consumer:
        [first, _] = await consumer.receive(2, invisible_seconds=600)
        await consumer.ack(first)
    async with client.lite_consumer("takers", "Rooms", ["r0"]) as lite:
        [first, *_] = await lite.receive(1, invisible_seconds=600)
        await lite.ack(first)


async def _administer(client: Client, broker: LocalBroker) -> None:
    await access.change(client, "", broker.address, CreateUser("ann", UserInfo("ann", "secret-1", "Normal", "enable")))
    await client.producer("makers").send(Message("Gone", b"gone", deliver_at_ms=BEGAN_MS + 300_000))
    await calls.delete_topic(client, "Gone", broker=broker.address)


async def write(out: Path) -> None:
    """`out`: an empty directory."""
    store = out / "stopped"
    async with LocalBroker(clock=TestClock(wall_ms=BEGAN_MS), store_dir=store, **SETTINGS) as broker:
        await fill(broker)
        shutil.copytree(store, out / "killed", ignore=shutil.ignore_patterns("*.new"))  # they go while it copies


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    asyncio.run(write(folder))
