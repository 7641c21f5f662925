"""Copies with fixed roles (RocketMQ's master and slaves) over real sockets."""

import asyncio

import pytest

from rmq.client import Client, Message, SendStatus
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.commands import UpdateTopic
from rmq.net.peercommands import GetGroupStatus, Promote
from rmq.testing import until
from tests.broker.pair import Pair
from tests.broker.support import Peer, bodies, send

TOPIC = UpdateTopic("N", read_queue_nums=1, write_queue_nums=1)


async def test_a_slave_copies_serves_reads_and_refuses_sends(pair: Pair) -> None:
    master = await pair.start(0, "ASYNC_MASTER")
    slave = await pair.start(1, "SLAVE")
    one, other = await Peer.connect(master.address), await Peer.connect(slave.address)
    await one.ask(TOPIC)
    await one.ask(send("N", b"a"))
    await pair.level()
    assert bodies(await other.pull("N", 0)) == [b"a"]
    assert await pair.told() == {0: master.address, 1: slave.address}
    with pytest.raises(Refusal) as refused:
        await other.ask(send("N", b"b"))
    assert (refused.value.code, refused.value.hint) == (ResponseCode.SERVICE_NOT_AVAILABLE, master.address)
    await one.close()
    await other.close()


async def test_a_sync_master_says_what_its_slaves_have(pair: Pair) -> None:
    """Docs/operators, what an answer means: 0 on two nodes, 12 stored here but late there, 11 no slave is there."""
    await pair.start(0, "SYNC_MASTER", in_sync_replicas=2)
    await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    async with Client(pair.nameserver.address) as client, client.producer("p") as producer:
        assert (await producer.send(Message("N", b"a"))).status is SendStatus.SEND_OK
    await pair.level()
    await pair.stop(1)
    late = asyncio.create_task(peer.ask(send("N", b"b")))
    await pair.clock.advance_until(late.done)
    assert (await late).status == ResponseCode.FLUSH_SLAVE_TIMEOUT
    await pair.clock.advance(11)
    missing = asyncio.create_task(peer.ask(send("N", b"c")))
    await pair.clock.advance_until(missing.done)
    assert (await missing).status == ResponseCode.SLAVE_NOT_AVAILABLE
    await peer.close()


async def test_a_slave_is_promoted_by_hand(pair: Pair) -> None:
    """The master is gone: its slave opens an epoch of its own, takes sends, and is told as the master."""
    await pair.start(0, "ASYNC_MASTER")
    slave = await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    await peer.ask(send("N", b"a"))
    await peer.close()
    await pair.level()
    await pair.stop(0)
    peer = await Peer.connect(slave.address)
    before = (await peer.ask(GetGroupStatus())).epoch
    await peer.ask(Promote())
    while (status := await pair.status(1)).epochs[-1].epoch == before or status.committed <= status.epochs[-1].start:
        await pair.clock.advance(0.1)
    status = await peer.ask(GetGroupStatus())
    assert (status.role, status.epoch) == ("leader", before + 1)
    await peer.ask(send("N", b"b"))
    assert bodies(await peer.pull("N", 0)) == [b"a", b"b"]
    await until_told(pair, {0: slave.address})
    await peer.close()


async def until_told(pair: Pair, wanted: dict[int, str]) -> None:
    while await pair.told() != wanted:
        await pair.clock.advance(0.1)


async def test_a_slave_that_was_away_gets_what_it_missed(pair: Pair) -> None:
    master = await pair.start(0, "ASYNC_MASTER")
    await pair.start(1, "SLAVE")
    await pair.level()
    await pair.stop(1)
    peer = await Peer.connect(master.address)
    await peer.ask(TOPIC)
    for number in range(5):
        await peer.ask(send("N", b"%d" % number))
    await peer.close()
    again = await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(again.address)
    assert bodies(await peer.pull("N", 0)) == [b"0", b"1", b"2", b"3", b"4"]
    await peer.close()
    await until(lambda: again._store.log.end == master._store.log.end)
