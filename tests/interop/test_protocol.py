"""What RocketMQ's Java client asks of a broker beside sending and consuming: SQL92 filters, questions and replies."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rmq.client import Message, ReceivedMessage
from rmq.testing import LocalBroker, until
from tests.interop import java
from tests.interop.java import Java

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    java.build()
    async with LocalBroker(property_filter=True) as broker:
        for topic in ("Asked", "Answered"):
            await broker.create_topic(topic, queues=2)
        yield broker


async def test_java_filters_by_sql_and_asks_and_answers(broker: LocalBroker) -> None:
    """Its consumer gets what an expression is true of, and answers us; its producer asks, and we answer."""
    sql = "price > 10 AND region IN ('north', 'south')"
    peer = await Java.start("asking", broker.nameserver, "Answered", "java-answers", sql, "Asked")
    await peer.until(lambda: peer.got("STARTED"))
    async with broker.client() as client, client.consumer("ours", "Asked", start="first") as consumer:

        @consumer.reply
        async def answer(message: ReceivedMessage) -> bytes:
            return b"python:" + message.body

        task = asyncio.create_task(consumer.run(answer))
        await peer.tell("word")
        await peer.until(lambda: peer.got("REPLY"))
        assert peer.got("REPLY") == [["python:word"]]
        producer = client.producer()
        await producer.send(Message("Answered", b"cheap", properties={"price": "9", "region": "north"}))
        await producer.send(Message("Answered", b"elsewhere", properties={"price": "11", "region": "west"}))
        # Java leaves its first heartbeat out if the one of a timer is under way, and the next one comes 30 s later
        reply = await client.request(Message("Answered", b"this", properties={"price": "11", "region": "south"}), timeout=60)
        assert reply.body == b"java:this"
        assert peer.got("ASKED") == [["this"]]
        await until(lambda: [fields[0] for fields in peer.got("SENT")] == ["SEND_OK"])
        task.cancel()
    assert await peer.stop() == 0
