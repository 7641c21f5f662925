"""Transactions of Apache RocketMQ's Java client 5.5.0 at our broker, and half messages that two brokers see in one directory."""

import asyncio
from pathlib import Path

import pytest

from rmq.testing import LocalBroker, until
from tests.broker.support import Peer, beat
from tests.broker.transactions import ROLLBACK, checks, commit, end, half, stored
from tests.interop import java
from tests.interop.java import Java
from tests.ports import free_port

COMMIT = "COMMIT_MESSAGE"
pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


async def test_java_commits_rolls_back_and_is_asked() -> None:
    """C11, C12: TransactionMQProducer's three answers; what it left open it is asked after, and then it is delivered."""
    await asyncio.to_thread(java.build)
    async with LocalBroker() as broker:
        await broker.create_topic("Money", queues=2)
        states = (COMMIT, "ROLLBACK_MESSAGE", "UNKNOW")
        producer = await Java.start("transact", broker.nameserver, "Money", "payers", COMMIT, *states)
        consumer = await Java.start("consume", broker.nameserver, "Money", "bank", "*")
        await producer.until(lambda: len(producer.got("SENT")) == 3)
        assert {fields[0] for fields in producer.got("SENT")} == {"SEND_OK"}
        await consumer.until(lambda: COMMIT in [fields[-1] for fields in consumer.got("GOT")])
        # The clock runs meanwhile: a consumer that began late, on a busy machine, may have got both at once, from two queues.
        assert [fields[-1] for fields in consumer.got("GOT")] == [COMMIT] or producer.got("CHECK"), "it was not asked after yet"
        await broker.clock.advance(40)
        await producer.until(lambda: producer.got("CHECK"))
        await consumer.until(lambda: len(consumer.got("GOT")) == 2)
        assert {fields[-1] for fields in consumer.got("GOT")} == {COMMIT, "UNKNOW"}
        [(topic, keys, transaction, times)] = producer.got("CHECK")
        assert (topic, keys, times) == ("Money", "key-UNKNOW", "1")
        assert transaction == producer.got("SENT")[2][2]
        assert await producer.stop() == 0
        assert await consumer.stop() == 0


async def test_one_directory_two_brokers_each_half_ended_once(tmp_path: Path) -> None:
    """C11, C12, stories 56, 57: RocketMQ asks after what we left open and nothing else; what it leaves open we ask after."""
    await asyncio.to_thread(java.build)
    port = free_port()
    nameserver = await Java.start_nameserver(tmp_path, port)
    theirs_at = f"127.0.0.1:{port}"
    soon = {"transaction_check_interval_ms": 2000, "transaction_timeout_ms": 0}
    async with LocalBroker(store_dir=tmp_path / "store", **soon) as broker:
        await broker.create_topic("Money", queues=1)
        peer = await Peer.connect(broker.address)
        await peer.ask(beat("c"))
        await peer.send(half(b"open", "Money", born_ms=broker.clock.wall_ms(), KEYS="open"))
        await until(lambda: checks(peer))  # it has two places now
        await commit(peer, b"done", topic="Money", KEYS="done")
        await commit(peer, b"undone", ROLLBACK, topic="Money", KEYS="undone")
        await peer.close()
        await broker.stop_broker()

        quick = {"transactionCheckInterval": 4000, "transactionTimeOut": 1000, "transactionOpBatchInterval": 200}
        apache = await Java.start_broker(tmp_path, theirs_at, free_port(1, -2), **quick)
        producer = await Java.start("transact", theirs_at, "Money", "p", COMMIT)
        await producer.until(lambda: producer.got("STARTED"))
        consumer = await Java.start("consume", theirs_at, "Money", "bank", "*")
        await consumer.until(lambda: len(consumer.got("GOT")) == 2)
        assert {fields[-1] for fields in consumer.got("GOT")} == {"done", "open"}  # its threads print in any order
        other = await Java.start("transact", theirs_at, "Money", "q", "UNKNOW", "UNKNOW", COMMIT)
        await other.until(lambda: other.got("CHECK"))  # a round of checks later
        assert [fields[1] for fields in producer.got("CHECK")] == ["open"]
        await consumer.until(lambda: len(consumer.got("GOT")) == 3)
        await asyncio.gather(*(one.kill() for one in (apache, producer, other, consumer)))  # it has not saved its offsets

        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        assert [one.body for one in await stored(peer, "Money")] == [b"done", b"open", COMMIT.encode()]
        await peer.ask(beat("c")._replace(producers=["p", "q"]))
        await until(lambda: checks(peer))
        await peer.ask(end(checks(peer)[0])._replace(producer_group="q"))
        assert (await stored(peer, "Money"))[-1].body == b"UNKNOW"
        await broker.clock.advance(5)
        assert len({question.msg_id for question in checks(peer)}) == 1
        await peer.close()
    await nameserver.kill()
