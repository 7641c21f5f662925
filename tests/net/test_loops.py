"""The same conversation on asyncio's loop, on uvloop, and over the network in memory."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rmq.errors import Refusal, Unknown
from rmq.net.codec.limits import Limits
from rmq.net.commands import (
    GetMaxOffset,
    Hello,
    NotifyConsumerIdsChanged,
    OffsetAnswer,
    Pull,
    PullAnswer,
    Request,
    Send,
    SendAnswer,
)
from rmq.net.transport.memory import MemoryNetwork
from rmq.net.transport.network import TcpNetwork
from rmq.net.transport.server import LATER, Call, Later, Server
from tests.dialing import dial
from tests.net.support import eventually

Run = Callable[[Coroutine[Any, Any, None]], None]
RUNS: list[Any] = [pytest.param(asyncio.run, id="asyncio")]
try:
    import uvloop

    RUNS.append(pytest.param(uvloop.run, id="uvloop"))
except ImportError:
    pass


async def conversation(network: TcpNetwork | MemoryNetwork) -> None:
    """Bursts, large answers against a slow reader, a push, a late answer, and the end."""
    later: list[Call] = []
    pushed: list[Request] = []

    def answer_later(request: GetMaxOffset, call: Call) -> Later:
        later.append(call)
        return LATER

    async def pull(request: Pull, call: Call) -> PullAnswer:
        return PullAnswer(1, 0, 1, bytes(50_000))

    handlers: dict[type[Any], Any] = {
        Send: lambda request, call: SendAnswer(request.queue_id, 1, 2),
        Pull: pull,
        GetMaxOffset: answer_later,
    }
    limits = Limits(write_high_bytes=64 * 1024, max_in_flight_bytes=100_000)
    server = Server(handlers, limits=limits, network=network)
    host, port = await server.listen("127.0.0.1", 0)
    channel = await dial(f"{host}:{port}", Hello(1, "me"), pushed.append, limits=limits, network=network)
    sends = [channel.request(Send("g", "t", number, b"x" * 3000), 30) for number in range(300)]
    pulls = [channel.request(Pull("g", "t", 0, 0), 30) for _ in range(100)]
    answers = await asyncio.gather(*sends, *pulls)
    assert [answer.queue_id for answer in answers[:300]] == list(range(300))  # type: ignore[union-attr]
    assert {len(answer.messages) for answer in answers[300:]} == {50_000}  # type: ignore[union-attr]
    server.connections[0].push(NotifyConsumerIdsChanged("g"))
    asked = asyncio.ensure_future(channel.request(GetMaxOffset("t", 0), 30))
    await eventually(lambda: later and pushed)
    closing = asyncio.ensure_future(server.close(30))
    later[0].answer(OffsetAnswer(3))
    assert await asked == OffsetAnswer(3)
    await closing
    await channel.closed.wait()
    await channel.close()


@pytest.mark.parametrize("run", RUNS)
def test_real_sockets(run: Run) -> None:
    run(conversation(TcpNetwork()))


def test_in_memory() -> None:
    asyncio.run(conversation(MemoryNetwork()))


async def test_a_cut_cable_in_memory() -> None:
    """What was sent is unknown; the listener lives on."""
    network = MemoryNetwork()
    server = Server({GetMaxOffset: lambda request, call: LATER}, network=network)
    address = await server.listen("broker-a", 10911)
    assert address == ("broker-a", 10911)
    with pytest.raises(OSError, match="taken"):
        await server.listen("broker-a", 10911)
    channel = await dial("broker-a:10911", Hello(1, "me"), network=network)
    asked = asyncio.ensure_future(channel.request(GetMaxOffset("t", 0), 30))
    await eventually(lambda: server.connections[0].in_flight_bytes)
    network.cut()
    with pytest.raises(Unknown):
        await asked
    await channel.close()
    again = await dial("broker-a:10911", Hello(1, "me"), network=network)
    with pytest.raises(Refusal):
        await again.request(Send("g", "t", 0, b"x"), 30)
    await again.close()
    await server.close(0)
