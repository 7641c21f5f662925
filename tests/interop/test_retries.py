"""Java consumers that fail, with our broker: their messages come again later, in the end as dead letters (C10)."""

from collections.abc import AsyncIterator

import pytest

from rmq.client import Client, Message, ReceivedMessage
from rmq.testing import LocalBroker
from tests.interop import java
from tests.interop.java import Java

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


@pytest.fixture
async def broker(built: None) -> AsyncIterator[LocalBroker]:
    async with LocalBroker() as broker:
        await broker.create_topic("Work", queues=2)
        yield broker


async def make_group(client: Client, group: str) -> None:
    """With its retry topic, which a Java member else looks for every 30 s only."""
    async with client.consumer(group, "Work"):
        pass


async def dead_letters(client: Client, group: str, count: int) -> list[ReceivedMessage]:
    async with client.consumer("undertakers", f"%DLQ%{group}", start="first") as consumer:
        found: list[ReceivedMessage] = []
        while len(found) < count:
            found += await consumer.receive(timeout=30)
        return found + await consumer.receive(timeout=0.2)


async def test_java_gives_back_what_it_cannot_handle_and_gets_it_again(broker: LocalBroker) -> None:
    """36: fails twice, then succeeds; topic and id are those that were sent, tries count up by one."""
    async with broker.client() as client:
        sent = [await client.producer().send(Message("Work", b"%d" % number)) for number in range(5)]
        await make_group(client, "stubborn")
    consumer = await Java.start("failing", broker.nameserver, "Work", "stubborn", "2", "16")
    await consumer.until(lambda: len(consumer.got("TRY")) == 15, 120)
    assert await consumer.stop() == 0
    for result in sent:
        assert [fields[:2] for fields in consumer.got("TRY") if fields[2] == result.message_id] == [
            [str(tries), "Work"] for tries in range(3)
        ]


async def test_what_java_cannot_handle_at_all_is_a_dead_letter(broker: LocalBroker) -> None:
    async with broker.client() as client:
        sent = [await client.producer().send(Message("Work", b"%d" % number, keys=["k"])) for number in range(3)]
        await make_group(client, "hopeless")
        consumer = await Java.start("failing", broker.nameserver, "Work", "hopeless", "99", "1")
        await consumer.until(lambda: len(consumer.got("TRY")) == 6, 120)
        letters = await dead_letters(client, "hopeless", 3)
    assert await consumer.stop() == 0
    assert sorted(letter.message_id for letter in letters) == sorted(result.message_id for result in sent)
    assert {(letter.topic, letter.reconsume_times, *letter.keys) for letter in letters} == {("Work", 2, "k")}


async def test_what_java_cannot_handle_in_order_is_a_dead_letter(broker: LocalBroker) -> None:
    """310 to %RETRY%: tried twice more in its place, then the queue goes on [ConsumeMessageOrderlyService]."""
    async with broker.client() as client:
        queue = (await client.producer().send(Message("Work", b"before"))).queue
        for body, keys in ((b"bad", ["dead"]), (b"after", [])):
            await client.producer().send(Message("Work", body, keys=keys), queue=queue)
        await make_group(client, "tidy")
        consumer = await Java.start("orderly", broker.nameserver, "Work", "tidy")
        await consumer.until(lambda: any(fields[-1] == "after" for fields in consumer.got("GOT")), 60)
        (letter,) = await dead_letters(client, "tidy", 1)
    assert await consumer.stop() == 0
    assert [fields[-1] for fields in consumer.got("GOT")] == ["before", "bad", "bad", "bad", "after"]
    assert (letter.topic, letter.body, letter.keys) == ("Work", b"bad", ["dead"])
