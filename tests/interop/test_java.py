"""Apache RocketMQ's own Java client and mqadmin 5.5.0 with our broker and nameserver (remoting spelling, C1, C8)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from rmq.client import Client, Message, MessageQueue
from rmq.client.admin import calls as admin, lookups
from rmq.model import UNIT, UNIT_SUBSCRIBED
from rmq.testing import LocalBroker, until
from tests.interop import java
from tests.interop.java import Java, mqadmin

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


@pytest.fixture
async def broker(built: None) -> AsyncIterator[LocalBroker]:
    async with LocalBroker() as broker:
        yield broker


async def test_java_sends_and_java_and_python_consume_in_one_group(broker: LocalBroker) -> None:
    """Every message once in the group, from both producers, however the queues are split (C1, C8)."""
    await broker.create_topic("Shared", queues=8)
    consumer = await Java.start("consume", broker.nameserver, "Shared", "mixed", "*")
    got: list[str] = []
    async with broker.client() as client, client.consumer("mixed", topics={"Shared": "*"}, start="first") as ours:
        running = asyncio.create_task(ours.run(lambda message: got.append(message.body.decode())))
        await consumer.until(lambda: consumer.got("STARTED"))
        producer = await Java.start("send", broker.nameserver, "Shared", "40")
        await producer.until(lambda: len(producer.got("SENT")) == 41)
        async with client.producer("python-producers") as python:
            for number in range(40):
                await python.send(Message("Shared", f"python-{number}".encode(), tags="red", keys=[f"k{number}"]))
        everything = {f"{who}-{i}" for who in ("single", "python") for i in range(40)}
        everything |= {"batch-0", "batch-1", "batch-2", "oneway"}
        await until(lambda: {fields[-1] for fields in consumer.got("GOT")} | set(got) == everything, 90)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert await producer.stop() == 0
    assert await consumer.stop() == 0
    assert all(fields[0] == "SEND_OK" for fields in producer.got("SENT"))
    assert len(consumer.got("GOT")), "the Java member had no queue"
    assert got, "the Python member had no queue"


async def test_mqadmin_sets_a_group_to_another_place(broker: LocalBroker) -> None:
    """resetOffsetByTime and skipAccumulatedMessage, with a Java member that is connected: it gets everything again."""
    await broker.create_topic("Again", queues=2)
    n = ("-n", broker.nameserver, "-t", "Again", "-g", "again")
    consumer = await Java.start("consume", broker.nameserver, "Again", "again", "*")
    await consumer.until(lambda: consumer.got("STARTED"))
    async with broker.client() as client, client.producer() as producer:
        for number in range(10):
            await producer.send(Message("Again", b"%d" % number))
    await consumer.until(lambda: len(consumer.got("GOT")) == 10)
    shown = await mqadmin("resetOffsetByTime", *n, "-s", "0")
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith("broker-a")] == ["0", "0"]
    await consumer.until(lambda: len(consumer.got("GOT")) >= 20, 60)
    assert sorted(int(fields[-1]) for fields in consumer.got("GOT")[10:20]) == list(range(10))
    assert await consumer.stop() == 0
    assert "broker-a" in await mqadmin("resetOffsetByTime", *n, "-s", "0")
    shown = await mqadmin("skipAccumulatedMessage", *n)
    assert sum(int(line.split()[-1]) for line in shown.splitlines() if line.startswith("broker-a")) == 10
    shown = await mqadmin("resetOffsetByTime", *n, "-s", "-1", "-b", broker.address, "-q", "1", "-o", "2")
    assert "2" in shown.split()


async def test_mqadmin_sets_a_retry_policy(broker: LocalBroker) -> None:
    """updateSubGroup -p printed success and dropped it."""
    n = ("-n", broker.nameserver, "-g", "patient")
    policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,2000,3000]}}'
    assert "success" in await mqadmin("updateSubGroup", *n, "-c", "DefaultCluster", "-p", policy)
    async with broker.client() as client:
        kept = (await admin.group_config(client, "patient", broker.address)).retry_policy
    assert json.loads(kept)["customizedRetryPolicy"] == {"next": [1000, 2000, 3000]}
    assert "next=[1000, 2000, 3000]" in await mqadmin("getConsumerConfig", *n)


async def test_mqadmin_deletes_a_group_with_its_topics(broker: LocalBroker) -> None:
    """deleteSubGroup -c: it ended half-way on code 102 and left the dead letters."""
    n = ("-n", broker.nameserver)
    await broker.create_topic("Failing", queues=1)
    async with broker.client() as client, client.consumer("gone", "Failing", start="first") as consumer:
        await client.producer().send(Message("Failing", b"x"))
        await consumer.retry_later(await anext(consumer), delay_level=-1)
        await until_async(client, lambda topics: "%DLQ%gone" in topics)
    shown = await mqadmin("deleteSubGroup", *n, "-c", "DefaultCluster", "-g", "gone")
    assert "Exception" not in shown
    async with broker.client() as client:
        await until_async(client, lambda topics: not [topic for topic in topics if topic.endswith("%gone")])
        assert "gone" not in await admin.group_list(client)


async def until_async(client: Client, condition: Callable[[list[str]], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition(await admin.topic_list(client)):
            pass


async def test_java_consumes_in_order_and_shares_the_queues(broker: LocalBroker) -> None:
    """C9: a queue's messages come one after the other, a failed one again in place. Another Java member joins, and one of ours:
    each gets queues, nothing is lost. (What Java handles while it gives a queue away it does not commit: that comes again.)"""
    await broker.create_topic("Ordered", queues=4)
    first = await Java.start("orderly", broker.nameserver, "Ordered", "in_order")
    members = [first]
    ours: list[tuple[int, int]] = []  # queue, message
    await first.until(lambda: first.got("STARTED"))
    async with broker.client() as client, client.producer() as producer:

        async def send(start: int) -> None:
            for number in range(start, start + 10):
                for queue in range(4):
                    keys = ["again"] if (number, queue) == (3, 2) else []
                    place = MessageQueue("Ordered", "broker-a", queue)
                    await producer.send(Message("Ordered", b"%d" % number, keys=keys), queue=place)

        def handled() -> list[list[tuple[int, int]]]:
            """By each member."""
            return [*([(int(fields[0]), int(fields[-1])) for fields in java.got("GOT")] for java in members), ours]

        async def all_came(count: int) -> None:
            await until(lambda: len(set().union(*handled())) == count, 60)

        await send(0)
        await all_came(40)
        second = await Java.start("orderly", broker.nameserver, "Ordered", "in_order")
        members.append(second)
        sent = 10
        while not second.got("GOT"):
            await send(sent)
            sent += 10
            await all_came(4 * sent)
        async with client.consumer("in_order", "Ordered", ordered=True) as third:
            running = asyncio.create_task(third.run(lambda message: ours.append((message.queue.queue_id, int(message.body)))))
            while not ours:
                await send(sent)
                sent += 10
                await all_came(4 * sent)
            third.stop()
            await running
    assert await second.stop() == 0
    assert await first.stop() == 0
    assert handled()[0].count((2, 3)) == 2
    for queue in range(4):
        got = [[number for place, number in each if place == queue] for each in handled()]
        assert got == [sorted(each) for each in got]
        assert set().union(*got) == set(range(sent))


async def test_java_filters_by_tag_and_sees_what_python_sent(broker: LocalBroker) -> None:
    """C14: keys, tags and user properties arrive as they were given."""
    await broker.create_topic("Tagged", queues=2)
    async with broker.client() as client, client.producer() as producer:
        for number in range(10):
            tag = "red" if number % 2 else "blue"
            await producer.send(Message("Tagged", b"%d" % number, tags=tag, keys=[f"key-{number}"], properties={"colour": tag}))
    consumer = await Java.start("consume", broker.nameserver, "Tagged", "reds", "red || green")
    await consumer.until(lambda: len(consumer.got("GOT")) == 5)
    await consumer.stop()
    assert sorted(fields[2:] for fields in consumer.got("GOT")) == [["red", f"key-{n}", "red", str(n)] for n in range(1, 10, 2)]


async def test_java_makes_its_topic_and_goes_on_after_a_restart(broker: LocalBroker) -> None:
    """A topic by the template TBW102; a group's offsets survive the broker's restart (C5). Java is of a unit: so are both topics
    that it makes."""
    unit = ["unit=east"]
    producer = await Java.start("send", broker.nameserver, "Made", "4", properties=unit)
    await producer.until(lambda: len(producer.got("SENT")) == 5)
    assert await producer.stop() == 0
    consumer = await Java.start("consume", broker.nameserver, "Made", "again", "*", properties=unit)
    await consumer.until(lambda: len(consumer.got("GOT")) == 8)
    await consumer.stop()
    flags = {one.name: one.sys_flag for one in broker.serving.tables.topics.all()}
    assert (flags["Made"], flags["%RETRY%again"]) == (UNIT, UNIT_SUBSCRIBED)
    await broker.stop_broker()
    await broker.start_broker()
    async with Client(broker.nameserver, clock=broker.clock) as client, client.producer() as python:
        await python.send(Message("Made", b"after"))
    consumer = await Java.start("consume", broker.nameserver, "Made", "again", "*")
    await consumer.until(lambda: consumer.got("GOT"))
    await consumer.stop()
    assert [fields[-1] for fields in consumer.got("GOT")] == ["after"]


async def test_mqadmin_finds_messages_by_key_and_id(broker: LocalBroker) -> None:
    """C16: messages of both clients, in all four ways of mqadmin."""
    await broker.create_topic("Looked", queues=2)
    producer = await Java.start("send", broker.nameserver, "Looked", "3")
    await producer.until(lambda: len(producer.got("SENT")) == 4)
    assert await producer.stop() == 0
    async with broker.client() as client, client.producer() as ours:
        sent = await ours.send(Message("Looked", b"by python", tags="red", keys=["shared", "k-py"]))
        found = (await lookups.by_key(client, "Looked", "key-single-1")).messages
        place = (await lookups.by_key(client, "Looked", sent.message_id, unique=True)).messages[0].offset_message_id
    assert [message.body for message in found] == [b"single-1"]
    n = ("-n", broker.nameserver, "-t", "Looked")
    queue, offset = sent.queue.queue_id, sent.queue_offset
    rows, other_rows, none, block, other_block, by_id, by_offset = await asyncio.gather(  # each waits seconds for itself
        mqadmin("queryMsgByKey", *n, "-k", "k-py"),
        mqadmin("queryMsgByKey", *n, "-k", "key-single-1"),
        mqadmin("queryMsgByKey", *n, "-k", "nobody"),
        mqadmin("queryMsgByUniqueKey", *n, "-i", sent.message_id),
        mqadmin("queryMsgByUniqueKey", *n, "-i", found[0].message_id),
        mqadmin("queryMsgById", *n, "-i", place),
        mqadmin("queryMsgByOffset", *n, "-b", "broker-a", "-i", str(queue), "-o", str(offset)),
    )
    for text, unique in ((rows, sent.message_id), (other_rows, found[0].message_id)):
        assert [row.split()[0] for row in text.splitlines() if row.strip() and not row.startswith("#")] == [unique]
    assert "Keys:                [shared k-py]" in block
    assert "Keys:                [key-single-1]" in other_block
    assert f"OffsetID:            {place}" in by_id
    assert "Topic:               Looked" in by_id
    assert f"Queue Offset:        {offset}" in by_offset
    assert "no message" in none


async def test_mqadmin_prints_what_operators_look_for(broker: LocalBroker) -> None:
    n = ("-n", broker.nameserver)
    assert "success" in await mqadmin("updateTopic", *n, "-c", "DefaultCluster", "-t", "Orders", "-r", "4", "-w", "4")
    async with broker.client() as client:
        async with client.producer() as producer:
            for number in range(8):
                await producer.send(Message("Orders", b"x", keys=[str(number)]))
        async with client.consumer("billing", topics={"Orders": "*"}, start="first") as consumer:
            count = 0
            while count < 8:
                count += len(await consumer.receive(timeout=10))
            await consumer.commit(sync=True)
            progress, groups, cluster, topics, route, status = await asyncio.gather(
                mqadmin("consumerProgress", *n, "-g", "billing"),
                mqadmin("consumerProgress", *n),
                mqadmin("clusterList", *n),
                mqadmin("topicList", *n),
                mqadmin("topicRoute", *n, "-t", "Orders"),
                mqadmin("topicStatus", *n, "-t", "Orders"),
            )
    assert broker.address in cluster
    assert "V5_5_0" in cluster
    assert "Orders" in topics
    assert f'"brokerAddrs":{{0:"{broker.address}"' in "".join(route.split())
    assert sum(int(line.split()[3]) for line in status.splitlines() if line.startswith("broker-a")) == 8
    assert "Consume Diff Total: 0" in progress
    assert "billing" in groups
