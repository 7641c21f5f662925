"""A group is set to another place while its members read: they go on there."""

import asyncio

import pytest

from rmq.client import Client, InvalidArgument, Message, MessageQueue, ReceivedMessage, Refusal, Unknown
from rmq.client.admin import calls as admin, resets
from rmq.model import GroupConfig, TopicConfig
from rmq.net.commands import RegisterBroker
from rmq.testing import LocalBroker, until
from tests.broker.support import Peer

QUEUE = MessageQueue("T", "broker-a", 0)


async def publish(client: Client, count: int) -> None:
    for number in range(count):
        await client.producer().send(Message("T", b"%d" % number))


@pytest.mark.parametrize("ordered", [False, True])
async def test_connected_members_go_back_and_forward(ordered: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T", queues=1)
        await publish(client, 10)
        got: list[int] = []
        async with client.consumer("g", "T", start="first", ordered=ordered) as consumer:
            running = asyncio.create_task(consumer.run(lambda message: got.append(int(message.body))))
            await until(lambda: len(got) == 10)
            await resets.reset(client, "g", await resets.plan_reset(client, "g", "T", resets.Offset(4)))
            await until(lambda: len(got) >= 16)
            assert got[10:16] == list(range(4, 10))
            assert "goes on at 4 instead of 10: the group was set there" in caplog.text
            assert "is not in the queue any more" not in caplog.text
            consumer.stop()
            await running
        async with client.consumer("g", "T", start="first", ordered=ordered) as consumer:
            first = asyncio.create_task(anext(consumer))
            await publish(client, 1)
            assert (await first).queue_offset == 10, "the end was committed again after the reset"


async def test_skipping_drops_what_was_pulled_and_not_handled() -> None:
    """ "last" while a handler is slow: what it holds ends, what waits behind it does not come any more."""
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T", queues=1)
        await publish(client, 10)
        got: list[int] = []
        slow = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            got.append(int(message.body))
            await slow.wait()

        async with client.consumer("g", "T", start="first") as consumer:
            running = asyncio.create_task(consumer.run(handle, concurrency=1))
            await until(lambda: got)
            await resets.reset(client, "g", await resets.plan_reset(client, "g", "T", "last"))
            await client.producer().send(Message("T", b"99"))
            await until(lambda: consumer.held == 1)  # the new one: what was pulled before is dropped
            slow.set()
            await until(lambda: got[-1] == 99)
            consumer.stop()
            await running
        assert got == [0, 99]
        assert [row.consumer_offset for row in (await admin.consume_stats(client, "g", "T")).queues] == [11]


async def test_a_plan_changes_nothing_and_says_what_is_wrong() -> None:
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T", queues=2)
        await publish(client, 10)
        with pytest.raises(Refusal):
            await resets.plan_reset(client, "nobody", "T", "first")
        with pytest.raises(Refusal):
            await resets.plan_reset(client, "g", "Nowhere", "first")
        async with client.consumer("g", "T", start="first") as consumer:
            await anext(consumer)
        plan = await resets.plan_reset(client, "g", "T", "last")
        assert [move.first for move in plan] == [0, 0]
        assert sum(move.end for move in plan) == sum(move.to for move in plan) == 10
        assert [move.now for move in await resets.plan_reset(client, "g", "T", "first", QUEUE)] == [0]
        with pytest.raises(InvalidArgument, match="reaches from 0 to"):
            await resets.plan_reset(client, "g", "T", resets.Offset(11))
        with pytest.raises(InvalidArgument, match="topicRoute"):
            await resets.plan_reset(client, "g", "T", "first", QUEUE._replace(queue_id=7))
        await admin.delete_group(client, "g", broker="broker-a")
        with pytest.raises(Refusal):
            await resets.reset(client, "g", plan)


async def test_a_broker_that_refuses_does_not_keep_the_queues_of_another_one() -> None:
    """Those behind it were not tried, and nothing said which were set."""
    async with LocalBroker() as broker, LocalBroker() as other, broker.client() as client:
        for each in (broker, other):
            await each.create_topic("T", queues=2)
            async with each.client() as producing:
                for queue in range(2):
                    place = MessageQueue("T", "broker-a", queue)
                    await producing.producer().send(Message("T", b"x"), queue=place)
        await admin.update_group(client, GroupConfig("g"), broker=broker.address)
        registering = await Peer.connect(broker.nameserver)
        await registering.ask(RegisterBroker("C", "0-other", 0, other.address, 0, [TopicConfig("T", 2, 2)]))
        await client.session.routes.refresh("T")
        queues = [MessageQueue("T", name, queue) for name in ("0-other", "broker-a") for queue in (0, 1)]
        moves = [resets.Move(queue, 0, 1, None, 1) for queue in queues]
        with pytest.raises(Refusal, match="; 2 of 4 queues were set"):
            await resets.reset(client, "g", moves)
        rows = (await admin.consume_stats(client, "g", "T")).queues
        assert {row.consumer_offset for row in rows if row.queue.broker_name == "broker-a"} == {1}
        await other.stop_broker()
        with pytest.raises(Unknown, match="; 2 of 4 queues were set"):  # that nobody could be reached was said, as if none were
            await resets.reset(client, "g", moves)
        await registering.close()
