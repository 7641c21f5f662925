"""Members of a group that leave: in order, interrupted, from a handler."""

import asyncio
import logging

import pytest

from rmq.client import ClientSettings, Closed, Message, ReceivedMessage
from rmq.testing import LocalBroker, until
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, queue
from tests.reached import sizes


async def test_close_lets_running_handlers_end_and_commits_them(broker: Broker, make_client: MakeClient) -> None:
    """C17."""
    broker.put("T", 0, 3)
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        begun.set()
        await may_end.wait()

    consumer = make_client().consumer("g", "T", start="first")
    await consumer.start()
    running = asyncio.create_task(consumer.run(handler, concurrency=2))
    await begun.wait()
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    assert not closing.done()
    may_end.set()
    await asyncio.gather(closing, running)
    assert broker.offsets["g", "T", 0] == 2
    with pytest.raises(Closed):
        await consumer.receive()


async def test_two_members_share_and_a_leaving_one_hands_over(broker: Broker, make_client: MakeClient) -> None:
    """C8, C17: each queue has one owner; nothing twice, nothing lost."""
    seen: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(bytes([message.queue.queue_id]) + message.body)

    first, second = (make_client(instance=name).consumer("g", "T", start="first") for name in ("i1", "i2"))
    await first.start()
    runs = [asyncio.create_task(first.run(handler))]
    broker.put("T", 0, 50)
    broker.put("T", 1, 50)
    await until(lambda: len(seen) == 100)
    await second.start()
    runs.append(asyncio.create_task(second.run(handler)))
    await until(lambda: first.queues[-1:] + second.queues[-1:] == [queue("T", 0), queue("T", 1)])
    broker.put("T", 0, 50)
    broker.put("T", 1, 50)
    await until(lambda: len(seen) == 200)
    await first.close()
    broker.put("T", 0, 50)
    broker.put("T", 1, 50)
    await until(lambda: len(seen) == 300)
    await second.close()
    await asyncio.gather(*runs)
    assert len(set(seen)) == 300
    assert broker.offsets["g", "T", 0] == broker.offsets["g", "T", 1] == 150


async def test_a_member_whose_leaving_is_interrupted_leaves_all_the_same(broker: Broker, make_client: MakeClient) -> None:
    """C17: it stayed a member that pulls nothing, and its queues stood still for as long as its client lived."""
    seen: list[int] = []
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(message: ReceivedMessage) -> None:
        begun.set()
        await may_end.wait()

    first, second = (make_client(instance=name).consumer("g", "T", start="first") for name in ("i1", "i2"))
    await first.start()
    await second.start()
    await until(lambda: first.queues == [queue("T", 0)] and second.queues == [queue("T", 1)])
    runs = [asyncio.create_task(first.run(lambda message: seen.append(message.queue.queue_id)))]
    runs.append(asyncio.create_task(second.run(slow)))
    broker.put("T", 1, 2)
    await begun.wait()
    leaving = asyncio.create_task(second.close())
    await asyncio.sleep(0)  # it waits for its handler
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    may_end.set()
    await until(lambda: 1 in seen)
    await second.close()  # waits for the rest
    assert first.queues == [queue("T", 0), queue("T", 1)]
    assert broker.offsets["g", "T", 1] >= 1
    await first.close()
    await asyncio.gather(*runs)


async def test_handlers_may_close_their_consumer_and_their_client(broker: Broker, make_client: MakeClient) -> None:
    """Those who wait for the handlers do not wait for the one that waits for them."""
    broker.put("T", 0, 2)
    client, together, clock = make_client(), asyncio.Barrier(2), make_client().session.clock
    consumer = client.consumer("g", "T", start="first")

    async def ends_it(message: ReceivedMessage) -> None:
        await together.wait()
        await (client.close() if message.body == b"0" else consumer.close())

    await consumer.start()
    began = clock.monotonic()
    await consumer.run(ends_it, concurrency=2)
    assert clock.monotonic() - began < ClientSettings().drain_timeout_s
    assert consumer.closed


@pytest.mark.parametrize("closed", [False, True])
async def test_a_member_that_is_stopped_while_it_joins_leaves_nothing_behind(closed: bool) -> None:
    """Cancelled, or closed by somebody else: for two minutes its queues belonged to it, whom nobody asked any more; closed, it
    pulled for ever."""
    async with LocalBroker() as local:
        await local.create_topic("T", queues=2)
        for turns in range(0, 60, 3):
            async with local.client() as client, local.client() as other:
                joining = client.consumer(f"g{turns}", ["T"])
                starting = asyncio.create_task(joining.start())
                for _ in range(turns):
                    await asyncio.sleep(0)
                if closed:
                    await joining.close()
                else:
                    starting.cancel()
                await asyncio.wait([starting])
                await joining.close()
                assert not {"pull", "rebalance", "commit"} & {task.get_name().split()[0] for task in asyncio.all_tasks()}
                async with asyncio.timeout(20), other.consumer(f"g{turns}", ["T"]) as second:
                    await until(lambda: sum(each.topic == "T" for each in second.queues) == 2)


async def test_a_client_whose_closing_is_interrupted_closes_all_the_same(broker: Broker, make_client: MakeClient) -> None:
    """Its heartbeats went on and its connections stayed open, unless somebody closed it once more."""
    broker.put("T", 0, 1)
    client, begun, may_end = make_client(), asyncio.Event(), asyncio.Event()

    async def slow(message: ReceivedMessage) -> None:
        begun.set()
        await may_end.wait()

    consumer = client.consumer("g", "T", start="first")
    await consumer.start()
    running = asyncio.create_task(consumer.run(slow))
    await begun.wait()
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)  # it waits for the handler
    closing.cancel()
    await asyncio.wait([closing])
    may_end.set()
    await running
    await until(lambda: not client.session.connections.is_open(broker.address))
    assert "heartbeats" not in {task.get_name() for task in asyncio.all_tasks()}
    assert broker.offsets["g", "T", 0] == 1


@pytest.mark.parametrize("whole", [False, True])
async def test_a_handler_that_closes_the_client_as_well_is_committed(
    broker: Broker, make_client: MakeClient, whole: bool
) -> None:
    """C17: it closed the connections under a consumer, or a client, that was leaving because somebody else closed it."""
    broker.put("T", 0, 1)
    client, begun, may_end = make_client(), asyncio.Event(), asyncio.Event()

    async def ends_it(message: ReceivedMessage) -> None:
        begun.set()
        await may_end.wait()
        await client.close()

    consumer = client.consumer("g", "T", start="first")
    await consumer.start()
    running = asyncio.create_task(consumer.run(ends_it))
    await begun.wait()
    closing = asyncio.create_task(client.close() if whole else consumer.close())
    await asyncio.sleep(0)
    may_end.set()
    await closing
    await running
    assert broker.offsets["g", "T", 0] == 1


async def test_brokers_that_have_gone_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    """A client that stays while brokers come back at other addresses kept each address that it had ever said hello to."""
    caplog.set_level(logging.INFO, "rmq.client")
    async with LocalBroker() as broker, broker.client() as client, client.producer() as producer:

        def met() -> int:
            return sum(count for way, count in sizes({"": client.session.heartbeats}).items() if way.endswith("._met"))

        await producer.send(Message("T", b"x"))
        assert met() == 1
        await broker.stop_broker()
        await until(lambda: f"no heartbeat to {broker.address}" in caplog.text and not met())
