"""A client belongs to one event loop. Whoever calls from another one, or from another thread, is told so, and harms nobody."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rmq.client import Client, Closed, InvalidArgument, Message, SendStatus, Unknown
from rmq.net.commands.lites import DeclareLites, PopLite
from rmq.net.transport.server import LATER
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, bodies

T = Message("T", b"x")
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def elsewhere() -> Iterator[Run]:
    """Runs a coroutine in a loop of another thread to its end, while this thread stands still."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda work: pool.submit(asyncio.run, work).result(10)


async def some_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_another_threads_loop_is_refused_and_changes_nothing(
    broker: Broker, make_client: MakeClient, elsewhere: Run
) -> None:
    """With asyncio's debug mode (python -X dev) the next send of the rightful loop failed, too."""
    asyncio.get_running_loop().set_debug(True)
    client = make_client()
    producer = client.producer()
    await producer.send(T)
    await some_turns()
    other, started, light = client.consumer("g", ["T"]), client.consumer("s", ["T"]), client.light_consumer("s", "n", "T")
    await started.start()
    await light.__aenter__()
    for kind in (DeclareLites, PopLite):
        broker.also(kind, lambda request, call: LATER if isinstance(request, PopLite) else None)
    simple, lite = client.simple_consumer("p", "T"), client.lite_consumer("l", "T", ["a"])
    await lite.__aenter__()
    receiving = asyncio.create_task(lite.receive())
    await some_turns()
    calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: producer.send(T),
        lambda: producer.send_batch([T, T]),
        lambda: producer.send_oneway(T),
        lambda: producer.send(Message("New", b"x")),
        lambda: client.request(T),
        other.start,
        started.receive,
        started.commit,
        lambda: started.__anext__(),
        lambda: started.run(print),
        started.close,
        light.receive,
        light.close,
        simple.receive,
        simple.close,
        lite.receive,
        lambda: lite.add("b"),
        lambda: lite.remove("a"),
        lite.close,
        producer.close,
        client.close,
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match="run_coroutine_threadsafe"):
            elsewhere(call())
    for hand_out in (client.producer, lambda: client.consumer("h", ["T"]), lambda: client.simple_consumer("h", ["T"])):
        with pytest.raises(InvalidArgument, match="run_coroutine_threadsafe"):
            await asyncio.to_thread(hand_out)
    assert (await producer.send(T)).status is SendStatus.SEND_OK
    assert len(sum(bodies(broker, "T").values(), [])) == 2
    broker.put("T", 0, 1)
    assert len(await started.receive()) == 1
    await started.close()
    await light.close()
    assert (lite.lite_topics, lite.closed, simple.closed) == (["a"], False, False)
    await lite.close()
    with pytest.raises(Closed):
        await receiving


async def test_who_comes_while_the_loop_is_about_to_write_is_told_the_truth(
    broker: Broker, make_client: MakeClient, elsewhere: Run
) -> None:
    producer = make_client().producer()
    await producer.send(T)  # in this turn the loop writes what else there is
    with pytest.raises(Unknown, match="another loop or thread.*may or may not be stored"):
        elsewhere(producer.send(T))
    assert (await producer.send(T)).status is SendStatus.SEND_OK


async def test_another_thread_may_stop_a_consumer(broker: Broker, make_client: MakeClient) -> None:
    """The loop heard of it when something else woke it, as the next commit after 5 s; in asyncio's debug mode the call failed."""
    asyncio.get_running_loop().set_debug(True)
    client, handled = make_client(), asyncio.Event()
    broker.put("T", 0, 1)
    async with client.consumer("g", ["T"], start="first") as consumer:
        running = asyncio.create_task(consumer.run(lambda _: handled.set()))
        await handled.wait()
        await some_turns()
        await asyncio.to_thread(consumer.stop)
        await running


async def test_another_thread_may_ask_the_loop(broker: Broker, make_client: MakeClient) -> None:
    producer, loop = make_client().producer(), asyncio.get_running_loop()
    sent = await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(producer.send(T), loop).result(10))
    assert sent.status is SendStatus.SEND_OK


def test_a_second_loop_of_the_same_thread_is_refused() -> None:
    async def enter(client: Client) -> None:
        client.start()

    async def again(client: Client) -> list[str]:
        producer = client.producer()
        return [type(await producer.send(T)).__name__]

    client = Client("127.0.0.1:1")
    asyncio.run(enter(client))
    with pytest.raises(InvalidArgument, match="event loop in which it was entered"):
        asyncio.run(again(client))


async def test_a_client_may_be_made_outside_a_loop(broker: Broker, elsewhere: Run) -> None:
    client = Client(broker.address)

    async def prepare() -> None:
        client.producer()

    elsewhere(prepare())
    async with client:
        assert (await client.producer().send(T)).status is SendStatus.SEND_OK


PRELOADED = """
import asyncio, os
from rmq.client import Client, InvalidArgument
client = Client("127.0.0.1:1")

async def work():
    try:
        client.start()
    except InvalidArgument as error:
        print(error, flush=True)

if child := os.fork():
    os.waitpid(child, 0)
    asyncio.run(work())
else:
    asyncio.run(work())
    os._exit(0)
"""


def test_a_client_of_before_a_fork_is_refused_in_the_child() -> None:
    """All children were one member of a group, and each got all its messages; their messages had equal ids."""
    ended = subprocess.run([sys.executable, "-c", PRELOADED], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("make a client of its own in each child") == 1, "the parent may use it"
