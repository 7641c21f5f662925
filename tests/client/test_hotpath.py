"""What the client does for each message, counted as at the broker (tests/broker/test_hotpath.py): calls of our functions.

Who makes a count smaller lowers its limit; who passes one looks for what can be done per burst instead.
"""

import asyncio

from rmq.client import Message, Producer, ReceivedMessage
from rmq.testing import until
from tests.broker.test_hotpath import counted, for_each
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker

WORKERS, EACH = 16, 50
SEND_CALLS, BATCH_CALLS, CONSUME_CALLS = 20, 5, 4


CLIENT = "client/"  # a broker runs in this process, too


async def send_all(producer: Producer) -> None:
    async def worker() -> None:
        for _ in range(EACH):
            await producer.send(Message("T", b"x" * 500, tags="TagA", keys=["order-1"]))

    await asyncio.gather(*(worker() for _ in range(WORKERS)))


async def test_a_send_takes_so_many_calls(broker: Broker, make_client: MakeClient) -> None:
    producer = make_client().producer()
    await send_all(producer)
    with counted(CLIENT) as found:
        await send_all(producer)
    calls = for_each(found.calls, WORKERS * EACH)
    assert sum(calls.values()) <= SEND_CALLS, dict(calls)


async def test_a_message_of_a_batch_takes_so_many_calls(broker: Broker, make_client: MakeClient) -> None:
    producer = make_client().producer()
    await producer.send(Message("T", b"x"))
    with counted(CLIENT) as found:
        await producer.send_batch([Message("T", b"x" * 500, tags="TagA", keys=["order-1"]) for _ in range(800)])
    calls = for_each(found.calls, 800)
    assert sum(calls.values()) <= BATCH_CALLS, dict(calls)


async def test_a_consumed_message_takes_so_many_calls(broker: Broker, make_client: MakeClient) -> None:
    broker.put("T", 0, 960)
    seen = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with make_client().consumer("g", ["T"], start="first") as consumer:
        await until(lambda: consumer.held == 960)
        with counted(CLIENT) as found:
            running = asyncio.create_task(consumer.run(handle))
            await until(lambda: len(seen) == 960)
        consumer.stop()
        await running
    calls = for_each(found.calls, 960)
    assert sum(calls.values()) <= CONSUME_CALLS, dict(calls)
