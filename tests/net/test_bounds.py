"""What bad peers cost: nothing that is not bounded, and nobody else's service (S4, S5, S6, D18)."""

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rmq.access.quotas import Quota
from rmq.errors import Unreachable
from rmq.guard.quotas import Metering
from rmq.log.records import fastpath
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import Native
from rmq.net.commands import GetMaxOffset, Hello, OffsetAnswer, Ping, Pull, PullAnswer, Send, SendAnswer
from rmq.net.remoting.codec import RemotingSettings
from rmq.net.transport.channel import Channel
from rmq.net.transport.server import LATER, Call, Connection, Later, Server
from rmq.testing import TestClock
from tests.dialing import dial
from tests.net import java_peer
from tests.net.support import BarePeer, eventually

NATIVE = Native(1 << 20)
MESSAGES = bytes(64 * 1024)


class Broker:
    """A server with small limits and a clock that stands still; `hold` keeps sends unanswered."""

    def __init__(self, **limits: Any) -> None:
        self.clock = TestClock(running=False)
        self.held: list[Call] = []
        self.hold = False
        self.reasons: list[Connection] = []
        self.server = Server(
            {Send: self.send, Pull: self.pull, GetMaxOffset: lambda request, call: OffsetAnswer(1)},
            limits=Limits(**limits),
            remoting=RemotingSettings(fastpath),
            clock=self.clock,
            on_close=self.reasons.append,
        )

    def send(self, request: Send, call: Call) -> SendAnswer | Later:
        if self.hold:
            self.held.append(call)
            return LATER
        return SendAnswer(0, 0, 0)

    def pull(self, request: Pull, call: Call) -> PullAnswer | Later:
        if self.hold:
            self.held.append(call)
            return LATER
        return PullAnswer(1, 0, 1, MESSAGES)

    async def listen(self) -> tuple[str, int]:
        return await self.server.listen("127.0.0.1", 0)


@pytest.fixture
async def brokers() -> AsyncIterator[list[Broker]]:
    """Those made by a test; closed behind it."""
    made: list[Broker] = []
    yield made
    for broker in made:
        await broker.server.close(0)


async def opened(address: tuple[str, int]) -> Channel:
    return await dial(f"{address[0]}:{address[1]}", Hello(1, "good"))


async def test_a_peer_that_says_nothing(brokers: list[Broker]) -> None:
    """S6: the handshake has a deadline; ping alone does not extend it."""
    brokers.append(broker := Broker())
    address = await broker.listen()
    silent, pinging = await BarePeer.connect(address), await BarePeer.connect(address)
    pinging.ask(Ping(), 1)
    await pinging.answer()
    await eventually(lambda: len(broker.server.connections) == 2)
    await broker.clock.advance(9)
    assert len(broker.server.connections) == 2
    await broker.clock.advance(3)
    assert await silent.closed()
    assert await pinging.closed()
    await silent.close()
    await pinging.close()


async def test_a_frame_that_does_not_end(brokers: list[Broker]) -> None:
    """S6: a byte now and then does not keep a half frame alive; whole requests do."""
    brokers.append(broker := Broker())
    address = await broker.listen()
    slow, good = await BarePeer.greeted(address), await BarePeer.greeted(address)
    frame = NATIVE.request(Send("g", "t", 0, b"x" * 100), 1, False)
    (connection, _) = broker.server.connections
    for at in range(29):
        slow.send(frame[at : at + 1])
        good.ask(Ping(), at)
        await good.answer()
        await eventually(lambda at=at: connection.half_frame_bytes == at + 1)  # type: ignore[misc]
        await broker.clock.advance(1)
    assert len(broker.server.connections) == 2
    await broker.clock.advance(3)
    assert await slow.closed()
    good.ask(Ping(), 99)
    assert await good.answer() == [0, 99, 1, None]
    await slow.close()
    await good.close()


async def test_an_idle_peer(brokers: list[Broker]) -> None:
    """120 s without a byte [NettyServerConfig]; a call in flight keeps the connection."""
    brokers.append(broker := Broker())
    address = await broker.listen()
    idle, waiting = await BarePeer.greeted(address), await BarePeer.greeted(address)
    broker.hold = True
    waiting.ask(Send("g", "t", 0, b"x"), 1)
    await eventually(lambda: broker.held)
    await broker.clock.advance(119)
    assert len(broker.server.connections) == 2
    await broker.clock.advance(3)
    assert await idle.closed()
    broker.held[0].answer(SendAnswer(0, 0, 0))
    assert (await waiting.answer())[1] == 1
    await idle.close()
    await waiting.close()


async def test_a_peer_that_does_not_read(brokers: list[Broker]) -> None:
    """S6, D18: it is no longer read from, what waits for it is bounded, and it is dropped in time."""
    brokers.append(broker := Broker(write_high_bytes=256 * 1024))
    address = await broker.listen()
    peer = await BarePeer.greeted(address, read_limit=1024)
    peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    (connection,) = broker.server.connections
    frame = NATIVE.request(Pull("g", "t", 0, 0), 1, False)
    for _ in range(20):
        peer.send(frame * 200)
        await asyncio.sleep(0)
    await eventually(lambda: not connection.reading)
    assert 0 < connection.unread_bytes < 64 * 1024 * 1024
    channel = await opened(address)
    assert await channel.request(GetMaxOffset("t", 0), 10) == OffsetAnswer(1)
    await broker.clock.advance(29)
    assert connection in broker.server.connections
    await broker.clock.advance(3)
    await eventually(lambda: connection not in broker.server.connections)
    assert await channel.request(GetMaxOffset("t", 0), 10) == OffsetAnswer(1)
    await channel.close()
    await peer.close()


async def test_a_peer_that_reads_slowly_is_served_again(brokers: list[Broker]) -> None:
    """Back-pressure is no punishment: who reads on gets all answers."""
    brokers.append(broker := Broker(write_high_bytes=64 * 1024))
    address = await broker.listen()
    peer = await BarePeer.greeted(address, read_limit=1024)
    (connection,) = broker.server.connections
    for number in range(400):
        peer.ask(Pull("g", "t", 0, 0), number)
    await eventually(lambda: not connection.reading)
    for number in range(400):
        assert (await peer.answer())[1] == number
    assert connection.reading
    await peer.close()


async def test_more_unread_answers_than_allowed_end_the_connection_at_once(brokers: list[Broker]) -> None:
    """D18: long polls may all be answered together."""
    brokers.append(broker := Broker(max_out_bytes=16 * 1024 * 1024, write_high_bytes=16 * 1024))
    broker.hold = True
    address = await broker.listen()
    peer = await BarePeer.greeted(address, read_limit=1024)
    peer.send(NATIVE.request(Pull("g", "t", 0, 0), 1, False) * 4000)
    await eventually(lambda: len(broker.held) == 4000)
    tracemalloc.start()
    for call in broker.held:
        call.answer(PullAnswer(1, 0, 1, MESSAGES))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 96 * 1024 * 1024  # of 256 MiB
    await eventually(lambda: not broker.server.connections)
    await peer.close()


async def test_unread_answers_of_all_together_are_bounded(brokers: list[Broker]) -> None:
    """D18: who left the most unread goes first; who reads stays."""
    brokers.append(broker := Broker(max_unread_bytes=1024 * 1024, write_high_bytes=16 * 1024))
    broker.hold = True
    address = await broker.listen()
    peers = [await BarePeer.greeted(address, read_limit=1024) for _ in range(3)]
    for peer, count in zip(peers, (400, 800, 1), strict=True):
        peer.send(NATIVE.request(Pull("g", "t", 0, 0), 1, False) * count)
    await eventually(lambda: len(broker.held) == 1201)
    for call in broker.held:
        call.answer(PullAnswer(1, 0, 1, MESSAGES))
    await eventually(lambda: sum(not one.reading for one in broker.server.connections) == 2)
    await broker.clock.advance(1.5)
    await eventually(lambda: sum(one.unread_bytes for one in broker.server.connections) <= 1024 * 1024)
    assert (await peers[2].answer())[:2] == [0, 1]
    assert any(one.reading for one in broker.server.connections)
    for peer in peers:
        await peer.close()


async def test_requests_in_flight_are_bounded(brokers: list[Broker]) -> None:
    """D18: who has too much unanswered is not read from until half of it is answered."""
    brokers.append(broker := Broker(max_in_flight_bytes=64 * 1024))
    broker.hold = True
    address = await broker.listen()
    peer = await BarePeer.greeted(address)
    (connection,) = broker.server.connections
    frame = NATIVE.request(Send("g", "t", 0, b"x" * 1000), 1, False)
    for _ in range(3000):
        peer.send(frame)
    await eventually(lambda: not connection.reading)
    bound = 64 * 1024 + 2 * 256 * 1024  # what one read may bring on top
    assert connection.in_flight_bytes < bound
    answered = 0
    while answered < 3000:
        await eventually(lambda: broker.held)
        for call in broker.held:
            call.answer(SendAnswer(0, 0, 0))
        answered += len(broker.held)
        broker.held.clear()
    assert connection.in_flight_bytes == 0
    assert connection.reading
    await peer.close()


async def test_what_waits_for_room_is_counted_once(brokers: list[Broker]) -> None:
    """S11: a burst that goes on when there is room again was counted when it came."""
    brokers.append(broker := Broker(max_in_flight_bytes=64 * 1024))
    broker.hold = True
    quotas = {"Client:127.0.0.1": Quota(messages_in=500)}
    broker.server.guard = metering = Metering(quotas, None, lambda kind, name, subjects: None, broker.clock)
    peer = await BarePeer.greeted(await broker.listen())
    (connection,) = broker.server.connections
    peer.send(NATIVE.request(Send("g", "t", 0, b"x" * 1000), 1, False) * 500)
    answered = 0
    while answered < 500:
        await eventually(lambda: broker.held or metering.refused)
        assert not metering.refused
        for call in broker.held:
            call.answer(SendAnswer(0, 0, 0))
        answered += len(broker.held)
        broker.held.clear()
    assert connection.in_flight_bytes == 0
    await peer.close()


async def test_requests_in_flight_of_all_together_are_bounded(brokers: list[Broker]) -> None:
    """Past the bound each connection may have a little only: nobody is cut off, and all go on in the end."""
    brokers.append(broker := Broker(max_in_flight_bytes=1 << 20, max_in_flight_all=2 << 20, fair_in_flight_bytes=100_000))
    broker.hold = True
    address = await broker.listen()
    peers = [await BarePeer.greeted(address) for _ in range(8)]
    frame = NATIVE.request(Send("g", "t", 0, b"x" * 10_000), 1, False)
    for peer in peers:
        peer.send(frame * 300)
    await eventually(lambda: sum(not one.reading for one in broker.server.connections) == 8)
    bound = (2 << 20) + 8 * (100_000 + 256 * 1024)
    assert broker.server.in_flight_bytes <= sum(one.in_flight_bytes for one in broker.server.connections) <= bound
    little = await opened(address)
    assert await little.request(GetMaxOffset("t", 0), 10) == OffsetAnswer(1)
    answered = 0
    while answered < 8 * 300:
        for call in broker.held:
            call.answer(SendAnswer(0, 0, 0))
        answered += len(broker.held)
        broker.held.clear()
        await broker.clock.advance(1.1)
    await broker.clock.advance(1.1)
    assert broker.server.in_flight_bytes == 0
    await little.close()
    for peer in peers:
        await peer.close()


async def test_caps_on_connections(brokers: list[Broker]) -> None:
    """S6: per address and in total; places become free again."""
    brokers.append(broker := Broker(max_connections_per_address=3))
    address = await broker.listen()
    first = [await BarePeer.greeted(address) for _ in range(3)]
    extra = await BarePeer.connect(address)
    assert await extra.closed()
    await first[0].close()
    await eventually(lambda: len(broker.server.connections) == 2)
    again = await opened(address)
    assert await again.request(Ping(), 10) is None
    await again.close()
    for peer in (*first, extra):
        await peer.close()


async def test_half_frames_of_all_together_are_bounded(brokers: list[Broker]) -> None:
    """D18: each within its own limit, but not all at once."""
    brokers.append(broker := Broker(max_half_frame_bytes=300_000))
    address = await broker.listen()
    begun = (1_000_000).to_bytes(4, "big") + b"\x94" + bytes(99_995)
    peers = []
    for _ in range(5):
        peers.append(await BarePeer.greeted(address))
        peers[-1].send(begun)
    await eventually(lambda: len(broker.reasons) == 2)
    assert broker.server.half_frame_bytes == sum(one.half_frame_bytes for one in broker.server.connections)
    assert broker.server.half_frame_bytes <= 300_000
    for peer in peers:
        await peer.close()
    await eventually(lambda: not broker.server.connections)
    assert broker.server.half_frame_bytes == 0


BAD = [
    b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff\xff", b"\x00" * 1000,
    b"\x01\x00\x00\x00\x94" + b"\xff" * 60, b"\x00\x00\x01\x00\x94" + b"\xdd\xff" * 128, b"\x00\x00\x00\x05\x91\x91\x91\x91\x91",
    b"\x00\x00\x00\x10\x00\x00\x00\x0c{\"code\":10,}", (70_000).to_bytes(4, "big") + b"\xdc\xff\xff" * 23_400,
    b"\x00\x10\x00\x00\x94" + bytes(500_000), NATIVE.request(Hello(1, "x"), 1, False)[:-2],
    NATIVE.request(Hello(1, "x"), 1, False) + NATIVE.request(Pull("g", "t", 0, 0), 1, False) * 300,
    java_peer.send_frame(1, b"body", g="x") * 50 + b"\x07" * 5,
    java_peer.request_frame(Pull("g", "t", 0, 0), 1, True)[:-5] + b"\xff" * 40,
    NATIVE.request(Ping(), 1, False) * 1000 + b"\x80", b"\x94", b"",
]  # fmt: skip


async def test_200_bad_connections_while_a_good_client_works(brokers: list[Broker]) -> None:
    """S5, S6: malformed, oversized, truncated, endless, slow and never-reading peers; service and memory stay."""
    brokers.append(broker := Broker(write_high_bytes=64 * 1024))
    address = await broker.listen()
    channel = await opened(address)
    tracemalloc.start()
    peers = []
    try:
        for number in range(200):
            peer = await BarePeer.connect(address, read_limit=1024)
            peer.send(BAD[number % len(BAD)])
            peers.append(peer)
            if number % 10 == 0:
                assert await channel.request(Send("g", "t", 0, b"x" * 500), 10) == SendAnswer(0, 0, 0)
        answers = await asyncio.gather(*[channel.request(Send("g", "t", 0, b"x" * 500), 10) for _ in range(1000)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answers == [SendAnswer(0, 0, 0)] * 1000
    assert peak < 64 * 1024 * 1024
    for _ in range(5):
        await broker.clock.advance(10)
        assert await channel.request(Ping(), 10) is None
    await eventually(lambda: len(broker.server.connections) == 1)
    assert await channel.request(Send("g", "t", 0, b"x"), 10) == SendAnswer(0, 0, 0)
    for peer in peers:
        await peer.close()
    await channel.close()


async def test_nothing_is_unhandled(brokers: list[Broker], caplog: pytest.LogCaptureFixture) -> None:
    """S5: no bad bytes reach the loop's exception handler or the error log."""
    seen: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: seen.append(context))
    brokers.append(broker := Broker())
    address = await broker.listen()
    for bad in BAD:
        peer = await BarePeer.connect(address)
        peer.send(bad)
        peer.writer.write_eof()
        await peer.closed()
        await peer.close()
    await eventually(lambda: not broker.server.connections)
    assert not seen
    assert not caplog.records


async def test_a_server_that_does_not_read_holds_the_client_back(brokers: list[Broker]) -> None:
    """The other direction: `post` and `request` wait, unsent, instead of filling memory."""
    brokers.append(broker := Broker(max_in_flight_bytes=1024))
    broker.hold = True
    address = await broker.listen()
    channel = await opened(address)
    tasks = []
    while channel.writable:
        tasks.append(asyncio.ensure_future(channel.request(Send("g", "t", 0, b"x" * 100_000), 100)))
        await asyncio.sleep(0)
    with pytest.raises(Unreachable, match="does not read"):
        await channel.request(Send("g", "t", 0, b"x"), 0.01)
    with pytest.raises(Unreachable, match="does not read"):
        await channel.drained(0.01)
    broker.hold = False
    while not all(task.done() for task in tasks):
        for call in broker.held:
            call.answer(SendAnswer(0, 0, 0))
        broker.held.clear()
        await asyncio.sleep(0)
    await channel.drained()
    assert {task.result() for task in tasks} == {SendAnswer(0, 0, 0)}
    await channel.close()
