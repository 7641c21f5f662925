"""A client that is closed while its calls are on their way: they say Closed, and only who is cancelled is cancelled."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from rmq.client import Client, Closed, Message, Unknown, Unreachable
from rmq.net.commands import GetRoute, Pull, Send, UnregisterClient
from rmq.testing import until
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, never_answer

T = Message("T", b"x")
CALLS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "send": lambda client: client.producer().send(T, timeout=60),
    "send_batch": lambda client: client.producer().send_batch([T, T], timeout=60),
    "send_oneway": lambda client: client.producer().send_oneway(T),
    "request": lambda client: client.request(T, timeout=60),
    "consumer.start": lambda client: client.consumer("g", ["T"]).start(),
    "simple receive": lambda client: client.simple_consumer("g", ["T"]).receive(wait_seconds=20),
}


class Silent:
    """Somebody who takes connections and says nothing."""

    def __init__(self) -> None:
        self.address = ""
        self.writers: list[asyncio.StreamWriter] = []

    def taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)


@pytest.fixture
async def silent() -> AsyncIterator[Silent]:
    silent = Silent()
    server = await asyncio.start_server(silent.taken, "127.0.0.1", 0)
    silent.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield silent
    for writer in silent.writers:
        writer.close()
    server.close()


@pytest.mark.parametrize("dialled", [False, True])
@pytest.mark.parametrize("name", CALLS)
async def test_closed_while_the_connection_is_opened(silent: Silent, make_client: MakeClient, name: str, dialled: bool) -> None:
    """They were cancelled, without anybody's having cancelled them: a TaskGroup takes that for a good end."""
    client = make_client(silent.address)
    call = asyncio.ensure_future(CALLS[name](client))
    await asyncio.sleep(0)
    if dialled:
        await until(lambda: silent.writers)
    await client.close()
    async with asyncio.timeout(10):
        await asyncio.wait([call])
    assert not call.cancelled()
    assert isinstance(call.exception(), Closed)


async def test_who_is_cancelled_is_cancelled_and_the_others_wait_on(silent: Silent, make_client: MakeClient) -> None:
    client = make_client(silent.address)
    producer = client.producer()
    calls = [asyncio.create_task(producer.send(T, timeout=60)) for _ in range(2)]
    await until(lambda: silent.writers)
    calls[0].cancel()
    await asyncio.wait(calls[:1])
    assert calls[0].cancelled()
    assert not calls[1].done()
    await client.close()
    with pytest.raises(Closed):
        await calls[1]


async def test_closed_while_a_nameserver_stands_still(broker: Broker, make_client: MakeClient) -> None:
    """A send to a topic that is not known yet went on asking until its time was up."""
    client = make_client()
    broker.faults[GetRoute] = [never_answer] * 100
    sending = asyncio.create_task(client.producer().send(T, timeout=60))
    await until(lambda: broker.seen(GetRoute))
    await client.close()
    async with asyncio.timeout(10):
        with pytest.raises(Closed):
            await sending


async def test_what_a_broker_has_in_its_hands_is_unknown(broker: Broker, make_client: MakeClient) -> None:
    """C19: it may be stored; a client that closes does not know better."""
    client = make_client()
    broker.faults[Send] = [never_answer]
    sending = asyncio.create_task(client.producer().send(T, timeout=60))
    await until(lambda: broker.seen(Send))
    await client.close()
    with pytest.raises(Unknown):
        await sending


async def test_the_time_of_a_call_is_over_while_it_still_connects() -> None:
    """A host that swallows everything: a send with half a second took the three that a connection may take."""
    with socket.socket() as deaf, contextlib.ExitStack() as full:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(3):  # whom nobody takes in; from then on the kernel answers nobody
            waiting = full.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        async with Client("127.0.0.1:9876") as client:
            address = f"127.0.0.1:{deaf.getsockname()[1]}"
            with pytest.raises(Unreachable, match=r"no answer within 0\.5 s"):
                await client.session.connections.request(address, GetRoute("T"), 0.5)


async def test_a_client_that_is_closed_while_a_question_leaves_says_so_once(broker: Broker, make_client: MakeClient) -> None:
    """And not once more, as an exception that was never retrieved."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["message"]))
    broker.topics |= {"c_REPLY_TOPIC": 1}
    broker.faults[Send] = [never_answer]
    client = make_client()
    asking = asyncio.create_task(client.request(Message("T", b"?"), timeout=60))
    await until(lambda: broker.seen(Send))
    await client.close()
    with pytest.raises(Unknown):
        await asking
    del asking
    gc.collect()
    assert not told


@pytest.mark.parametrize("whole", [False, True])
async def test_who_reads_a_light_queue_hears_that_it_is_closed(broker: Broker, make_client: MakeClient, whole: bool) -> None:
    """Of a client that was closed it heard for ever that nothing is there, and a warning came every three seconds."""
    client = make_client()
    consumer = client.light_consumer("g", "room", "T")
    async with consumer, asyncio.timeout(20):
        receiving = asyncio.create_task(consumer.receive(timeout=3600))
        await until(lambda: broker.seen(Pull))
        await (client if whole else consumer).close()
        with pytest.raises(Closed):
            await receiving
        with pytest.raises(Closed):
            await consumer.receive()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("read %LMQ%room")]


async def test_a_broker_that_stands_still_holds_up_the_closing_once(broker: Broker, make_client: MakeClient) -> None:
    """Each of the producers waited for it, one after the other."""
    client = make_client(request_timeout_s=0.3)
    groups = [f"p{number}" for number in range(20)]
    for group in groups:
        await client.producer(group).send(T)
    await until(lambda: broker.heartbeats and set(groups) <= set(broker.heartbeats[-1].producers))
    broker.faults[UnregisterClient] = [never_answer] * 100
    began = client.session.clock.monotonic()
    await client.close()
    assert client.session.clock.monotonic() - began < 3
    assert {each.producer_group for each in broker.seen(UnregisterClient)} >= set(groups)
