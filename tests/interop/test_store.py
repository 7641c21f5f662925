"""One directory, used in turn by our node and by Apache RocketMQ 5.5.0's broker (stories 56 and 57, live)."""

import asyncio
from pathlib import Path

import pytest

from rmq.client import Message
from rmq.client.admin import calls as admin
from rmq.codes import ResponseCode
from rmq.testing import LocalBroker
from tests.broker.javaclient import JavaClient
from tests.interop import java
from tests.interop.java import Java, mqadmin
from tests.ports import free_port

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


async def received(nameserver: str, group: str, count: int, topic: str = "Both") -> list[str]:
    """What RocketMQ's consumer gets of the topic, until it has `count` messages; the broker knows that then."""
    consumer = await Java.start("consume", nameserver, topic, group, "*")
    await consumer.until(lambda: len(consumer.got("GOT")) >= count)
    await consumer.stop()
    return sorted(fields[-1] for fields in consumer.got("GOT"))


async def ours(broker: LocalBroker, group: str, count: int, send: str = "", topic: str = "Both") -> list[str]:
    """Send three messages, if told how they begin; then what our consumer gets."""
    got: list[str] = []
    async with broker.client() as client:
        if send:
            async with client.producer() as producer:
                for number in range(3):
                    await producer.send(Message("Both", f"{send}-{number}".encode(), tags="red", keys=[f"k-{send}-{number}"]))
        async with client.consumer(group, topics={topic: "*"}, start="first") as consumer:
            while len(got) < count:
                got += [message.body.decode() for message in await consumer.receive(timeout=20)]
            await consumer.commit(sync=True)
    return sorted(got)


async def ends(nameserver: str, topic: str = "Both") -> list[tuple[str, ...]]:
    """mqadmin's line of each queue: number, minimum, maximum; once the broker is registered."""
    async with asyncio.timeout(60):
        while True:
            lines = (await mqadmin("topicStatus", "-n", nameserver, "-t", topic)).splitlines()
            if found := sorted(tuple(line.split()[1:4]) for line in lines if line.startswith("broker-a")):
                return found


async def our_ends(broker: LocalBroker) -> list[tuple[str, ...]]:
    async with broker.client() as client:
        rows = (await admin.topic_stats(client, "Both")).queues
    return [(str(row.queue.queue_id), str(row.min_offset), str(row.max_offset)) for row in rows]


async def test_both_write_in_turn_and_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    """Queues, messages, keys and group offsets are the same for both, and each goes on where the other stopped. Also batches
    that are one record (queue.type=BatchCQ): Java's and ours, taken apart by both clients, from either broker. A compacted topic
    comes back whole, though RocketMQ itself finds there only what it wrote."""
    await asyncio.to_thread(java.build)
    nameserver_port = free_port()
    theirs_at = f"127.0.0.1:{nameserver_port}"
    nameserver = await Java.start_nameserver(tmp_path, nameserver_port)
    async with LocalBroker(store_dir=tmp_path / "store") as broker:
        await broker.create_topic("Both", queues=4)
        first = await ours(broker, "g", 3, send="first")
        assert first == [f"first-{n}" for n in range(3)]
        before = await our_ends(broker)
        batched = await send_batches(broker)
        assert await received(broker.nameserver, "g", len(batched), "Batches") == sorted(batched)
        async with broker.client() as client:
            at = {"broker": broker.address, "attributes": "+cleanup.policy=COMPACTION"}
            await admin.update_topic(client, "Kept", read_queues=1, write_queues=1, **at)
        await keep(broker.address, b"mine")
        await broker.stop_broker()

        apache = await Java.start_broker(tmp_path, theirs_at, port := free_port(1, -2))
        await keep(f"127.0.0.1:{port}", b"theirs")
        assert await ends(theirs_at) == before
        assert len(await found_by_key(theirs_at, "k-first-1")) == 1
        producer = await Java.start("send", theirs_at, "Both", "4")
        await producer.until(lambda: len(producer.got("SENT")) == 5)
        await producer.stop()
        theirs = sorted([f"single-{n}" for n in range(4)] + [f"batch-{n}" for n in range(3)] + ["oneway"])
        assert await received(theirs_at, "g", len(theirs)) == theirs
        between = await ends(theirs_at)
        assert await ends(theirs_at, "Batches") == [("0", "0", f"{len(batched)}")]
        batched += await sent_by_java(theirs_at)
        assert await received(theirs_at, "again", len(batched), "Batches") == sorted(batched)
        await apache.terminate()

        await broker.start_broker()
        assert await our_ends(broker) == between
        assert await ours(broker, "all", 2, topic="Kept") == ["mine", "theirs"]
        assert await ours(broker, "all", len(batched), topic="Batches") == sorted(batched)
        queue = broker.serving.store.queues.look("Batches", 0)
        assert len({queue.entry(offset).offset for offset in range(queue.max)}) == 1 + 4 + 4, "a batch is one record"
        assert len(await found_by_key(broker.nameserver, "key-single-2")) == 1
        assert await ours(broker, "g", 3, send="second") == [f"second-{n}" for n in range(3)]
        everything = sorted([*first, *theirs, *[f"second-{n}" for n in range(3)]])
        assert await ours(broker, "all", len(everything)) == everything
        after = await our_ends(broker)
        await broker.stop_broker()

        apache = await Java.start_broker(tmp_path, theirs_at, free_port(1, -2))
        assert await ends(theirs_at) == after
        assert len(await found_by_key(theirs_at, "k-second-2")) == 1
        assert await received(theirs_at, "all_again", len(everything)) == everything
        await apache.kill()

        await broker.start_broker()
        assert await our_ends(broker) == after
        assert await ours(broker, "g", 3, send="third") == [f"third-{n}" for n in range(3)]
    await nameserver.terminate()


async def send_batches(broker: LocalBroker) -> list[str]:
    """Makes the topic, and sends with both clients. The bodies."""
    mine = [f"ours-{number}" for number in range(5)]
    async with broker.client() as client, client.producer() as producer:
        at = {"broker": broker.address, "attributes": "+queue.type=BatchCQ"}
        await admin.update_topic(client, "Batches", read_queues=1, write_queues=1, **at)
        await producer.send_batch([Message("Batches", body.encode(), tags="red") for body in mine])
    return mine + await sent_by_java(broker.nameserver)


async def sent_by_java(nameserver: str) -> list[str]:
    """Two messages, a batch of three, and one more."""
    producer = await Java.start("send", nameserver, "Batches", "2")
    await producer.until(lambda: len(producer.got("SENT")) == 3)
    await producer.stop()
    return ["single-0", "single-1", "batch-0", "batch-1", "batch-2", "oneway"]


async def keep(address: str, body: bytes) -> None:
    """A message for the compacted topic; both brokers want it to have a key."""
    async with JavaClient.connect(address) as client:
        assert (await client.send(body, "Kept", i="UNIQ_KEY\x01A\x02"))[0].code == ResponseCode.MESSAGE_ILLEGAL
        assert (await client.send(body, "Kept", i="KEYS\x01k\x02"))[0].code == ResponseCode.SUCCESS


async def found_by_key(nameserver: str, key: str) -> list[str]:
    """mqadmin's line of each message with that key."""
    text = await mqadmin("queryMsgByKey", "-n", nameserver, "-t", "Both", "-k", key)
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
