"""Java push consumers of a group that pops, with our broker: assignment, receipts, failed messages come back (C10)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.client import Message
from rmq.net.commands import UpdateTopic
from rmq.net.commands.pop import SetRequestMode
from rmq.testing import LocalBroker, until
from tests.broker.popping import ack, bodies, take
from tests.broker.support import Peer
from tests.interop import java
from tests.interop.java import Java, mqadmin
from tests.ports import free_port

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


@pytest.fixture
async def broker(built: None) -> AsyncIterator[LocalBroker]:
    async with LocalBroker() as broker:
        await broker.create_topic("Popped", queues=4)
        yield broker


async def send(broker: LocalBroker, count: int) -> list[str]:
    async with broker.client() as client, client.producer() as producer:
        sent = [producer.send(Message("Popped", b"%d" % n, tags="red" if n % 2 else "green")) for n in range(count)]
        return [result.message_id for result in await asyncio.gather(*sent)]


async def test_java_pops_what_it_wants_and_what_failed_comes_back(broker: LocalBroker) -> None:
    """Two members share all queues. What is acknowledged is gone, what fails comes back with one try more."""
    await mqadmin("setConsumeMode", "-n", broker.nameserver, "-b", broker.address, "-t", "Popped", "-g", "poppers", "-m", "POP")
    members = [await Java.start("popping", broker.nameserver, "Popped", "poppers", "1") for _ in range(2)]
    for member in members:
        await member.until(lambda member=member: member.got("STARTED"))
    ids = await send(broker, 20)
    tried = lambda: [fields for member in members for fields in member.got("TRY")]  # noqa: E731
    await until(lambda: len({fields[2] for fields in tried() if fields[0] == "0"}) == 10, 60)
    await broker.clock.advance_until(lambda: len({fields[2] for fields in tried() if fields[0] == "1"}) == 10, 0.5, 90)
    for number, message_id in enumerate(ids):
        tries = sorted(fields[:2] for fields in tried() if fields[2] == message_id)
        assert tries == ([["0", "Popped"], ["1", "Popped"]] if number % 2 else [])
    for member in members:
        assert await member.stop() == 0
    await broker.clock.advance(60)
    peer = await Peer.connect(broker.address)
    assert bodies(await take(peer.ask, topic="Popped", group="poppers", exp="red")) == []
    await peer.close()


async def test_java_shares_a_group_with_ours(broker: LocalBroker) -> None:
    """C1: one pool of messages, whoever asks. They come in batches that are one record, and are popped one by one."""
    peer = await Peer.connect(broker.address)
    await peer.ask(UpdateTopic("Batches", read_queue_nums=2, write_queue_nums=2, attributes="+queue.type=BatchCQ"))
    await peer.ask(SetRequestMode("Batches", "mixed", "POP"))
    member = await Java.start("popping", broker.nameserver, "Batches", "mixed", "0")
    await member.until(lambda: member.got("STARTED"))
    async with broker.client() as client, client.producer() as producer:
        for first in range(0, 40, 5):
            batch = [Message("Batches", b"%d" % n, tags="red" if n % 2 else "green") for n in range(first, first + 5)]
            await producer.send_batch(batch)
    ours: list[bytes] = []
    async with asyncio.timeout(60):
        while len(ours) + len(member.got("TRY")) < 20:
            ours += bodies(await take(peer.ask, topic="Batches", group="mixed", exp="red", count=1, poll_ms=100))
    theirs = [fields[3].encode() for fields in member.got("TRY")]
    assert sorted(ours + theirs, key=int) == [b"%d" % n for n in range(1, 40, 2)]
    assert await member.stop() == 0
    await peer.close()


async def test_what_we_handed_out_apache_brings_back_and_the_other_way_round(built: None, tmp_path: Path) -> None:
    """C10, stories 56 and 57: our receipts are RocketMQ's, so its broker, started on our directory, loses nothing and brings
    nothing back that was acknowledged here. What it hands out comes back here."""
    port = free_port()
    theirs_at = f"127.0.0.1:{port}"
    nameserver = await Java.start_nameserver(tmp_path, port)
    async with LocalBroker(store_dir=tmp_path / "store") as broker:
        await broker.create_topic("Popped", queues=2)
        peer = await Peer.connect(broker.address)
        for group in ("movers", "takers"):  # who pulls sends back to a topic of its group's, once it has committed
            await peer.ask(SetRequestMode("Popped", group, "POP"))
        await send(broker, 40)
        popped = await take(peer.ask, topic="Popped", group="movers", exp="red", hidden_ms=5000, count=12)
        await ack(peer.ask, *popped[:6], group="movers")
        await peer.close()
        await broker.stop_broker()
        done = bodies(popped[:6])
        rest = sorted({b"%d" % n for n in range(1, 40, 2)} - set(done), key=int)

        apache = await Java.start_broker(tmp_path, theirs_at, free_port(1, -2))
        member = await Java.start("popping", theirs_at, "Popped", "movers", "0")
        await member.until(lambda: len({fields[3] for fields in member.got("TRY")}) >= len(rest), 120)
        assert sorted({fields[3].encode() for fields in member.got("TRY")}, key=int) == rest
        await member.stop()
        failing = await Java.start("popping", theirs_at, "Popped", "takers", "99")  # these never get done with anything
        await failing.until(lambda: len({fields[3] for fields in failing.got("TRY")}) == 20, 120)
        await failing.kill()
        await apache.terminate()

        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        got: set[bytes] = set()
        async with asyncio.timeout(60):
            while len(got) < 20:
                await broker.clock.advance(5)
                found = await take(peer.ask, topic="Popped", group="takers", exp="red")
                await ack(peer.ask, *found, group="takers")
                got.update(bodies(found))
        assert sorted(got, key=int) == [b"%d" % n for n in range(1, 40, 2)]
        assert bodies(await take(peer.ask, topic="Popped", group="movers", exp="red")) == []
        await peer.close()
    await nameserver.terminate()
