"""A group is set to another place while its members read: they go on there."""

import asyncio

import pytest

from rmq.client import Client, InvalidArgument, Message, MessageQueue, ReceivedMessage, Refusal
from rmq.client.admin import calls as admin, resets
from rmq.testing import LocalBroker, until

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
