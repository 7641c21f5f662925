"""Apache RocketMQ's Java consumer that starts while the group of brokers has no leader: the followers serve it."""

from pathlib import Path

import pytest

from rmq.client import Client, Message
from rmq.net.commands import UpdateTopic
from tests.broker.groups import LocalGroup
from tests.broker.pair import Pair
from tests.broker.support import Peer
from tests.interop import java
from tests.interop.java import Java

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


async def fill(client: Client, leader: str) -> None:
    """20 messages, the first half of which the group has read."""
    peer = await Peer.connect(leader)
    await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await peer.close()
    for number in range(10):
        await client.producer().send(Message("T", b"%d" % number))
    async with client.consumer("g", "T", start="first") as consumer:
        got = 0
        while got < 10:
            got += len(await consumer.receive())
        await consumer.commit()
    for number in range(10, 20):
        await client.producer().send(Message("T", b"%d" % number))


async def rest_comes(nameserver: str) -> None:
    consumer = await Java.start("consume", nameserver, "T", "g", "*")
    await consumer.until(lambda: len(consumer.got("GOT")) >= 10)
    assert sorted(int(fields[-1]) for fields in consumer.got("GOT")) == list(range(10, 20))
    assert await consumer.stop() == 0


async def test_java_reads_from_the_last_node_of_an_elected_group(tmp_path: Path) -> None:
    java.build()
    async with LocalGroup(tmp_path) as group:
        async with group.client() as client:
            await fill(client, group.nodes[await group.leader()].address)
        await group.level()
        last = (await group.followers())[0]
        await group.stop(*(name for name in list(group.nodes) if name != last))
        await rest_comes(group.nameserver)


async def test_java_reads_from_a_slave(tmp_path: Path) -> None:
    java.build()
    pair = Pair(tmp_path)
    await pair.begin()
    try:
        await pair.start(0, "ASYNC_MASTER")
        await pair.start(1, "SLAVE")
        async with Client(pair.nameserver.address, clock=pair.clock) as client:
            await fill(client, pair.nodes[0].address)
        await pair.level()
        await pair.stop(0)
        await rest_comes(pair.nameserver.address)
    finally:
        for number in list(pair.nodes):
            await pair.stop(number)
        await pair.nameserver.stop()
