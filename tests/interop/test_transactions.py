"""Transactions of Apache RocketMQ's Java client 5.5.0 at our broker, and half messages that two brokers see in one directory."""

import asyncio

import pytest

from rmq.testing import LocalBroker
from tests.interop import java
from tests.interop.java import Java

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


async def test_java_commits_rolls_back_and_is_asked() -> None:
    """C11, C12: TransactionMQProducer's three answers; what it left open it is asked after, and then it is delivered."""
    await asyncio.to_thread(java.build)
    async with LocalBroker() as broker:
        await broker.create_topic("Money", queues=2)
        producer = await Java.start("transact", broker.nameserver, "Money")
        consumer = await Java.start("consume", broker.nameserver, "Money", "bank", "*")
        await producer.until(lambda: len(producer.got("SENT")) == 3)
        assert {fields[0] for fields in producer.got("SENT")} == {"SEND_OK"}
        await consumer.until(lambda: consumer.got("GOT"))
        assert [fields[-1] for fields in consumer.got("GOT")] == ["COMMIT_MESSAGE"]
        await broker.clock.advance(40)
        await producer.until(lambda: producer.got("CHECK"))
        await consumer.until(lambda: len(consumer.got("GOT")) == 2)
        assert [fields[-1] for fields in consumer.got("GOT")] == ["COMMIT_MESSAGE", "UNKNOW"]
        [(topic, keys, transaction, times)] = producer.got("CHECK")
        assert (topic, keys, times) == ("Money", "key-UNKNOW", "1")
        assert transaction == producer.got("SENT")[2][2]
        assert await producer.stop() == 0
        assert await consumer.stop() == 0
