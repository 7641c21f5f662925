"""The client's side of a connection: what is known after each way it can end."""

import asyncio
import gc
import math
import select
import tracemalloc
from collections.abc import AsyncIterator, Callable

import pytest

from rmq.errors import BadBytes, InvalidArgument, Unknown, Unreachable
from rmq.net.commands import GetMaxOffset, Goodbye, Hello, HelloAnswer, OffsetAnswer, Ping, Send
from rmq.net.transport.channel import CLOSE_SECONDS, Channel
from rmq.net.transport.network import Listener, P, close_server, split_address
from rmq.testing import TestClock
from tests.dialing import dial
from tests.net.support import NATIVE, eventually


class Scripted:
    """A listener that answers hello and then does what the test says."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.received = bytearray()
        self.address = ""
        self._server: asyncio.Server

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size)
        writer.write(NATIVE.answer(1, None, HelloAnswer(1, "C", "b", 0, "127.0.0.1:1"), ""))
        while data := await reader.read(65536):
            self.received += data

    async def stop(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        await close_server(self._server)


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    scripted = Scripted()
    await scripted.start()
    yield scripted
    await scripted.stop()


async def test_nobody_there() -> None:
    with pytest.raises(Unreachable, match="cannot be reached"):
        await dial("127.0.0.1:1", Hello(1))


async def test_closed_channels_keep_no_memory(scripted: Scripted) -> None:
    """D18: a leader's idle connections to its followers end and begin again every two minutes, and the collector may come
    once in hours: in the soak of an hour it grew by 23 MiB."""
    kept: list[Channel] = []
    gc.disable()
    tracemalloc.start()
    try:
        for number in range(12):
            channel = await dial(scripted.address, Hello(1))
            if number % 2:
                await channel.close()
            else:
                scripted.writers[-1].transport.abort()
                await eventually(channel.closed.is_set)
            kept.append(channel)
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
        gc.enable()


class Forgetful:
    """A network like uvloop's when a connect is answered and cancelled at once: the transport is closed, and nobody is told."""

    async def listen(self, make_protocol: object, host: str, port: int) -> Listener:
        raise NotImplementedError

    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        protocol = make_protocol()
        protocol.connection_made(_Deaf())
        await asyncio.Event().wait()
        return protocol


class _Deaf(asyncio.Transport):
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        pass


async def test_a_connect_that_is_answered_just_when_the_time_is_over_does_not_hang() -> None:
    """Found by partitions that healed one SYN's patience later: that node never dialled the other one again."""
    async with asyncio.timeout(10):
        with pytest.raises(Unreachable, match="no answer in time"):
            await dial("127.0.0.1:1", Hello(1), network=Forgetful(), timeout_s=0.01)


@pytest.mark.parametrize(
    "address",
    ["nonsense", "host:", ":1", "host:99999", "host:0", "host:-1", "host:x", pytest.param("host:" + "9" * 5000, id="long")],
)
async def test_a_bad_address(address: str) -> None:
    with pytest.raises(InvalidArgument, match="write host:port"):
        await dial(address, Hello(1))


def test_addresses() -> None:
    assert split_address("127.0.0.1:9876") == ("127.0.0.1", 9876)
    assert split_address("[::1]:9876") == ("::1", 9876)


async def test_somebody_who_is_no_broker() -> None:
    """It answers, but not in a way we know; nothing hangs."""

    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(chatter, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Unreachable):
        await dial(f"127.0.0.1:{port}", Hello(1))
    await close_server(server)


async def test_a_timeout_is_unknown_and_a_late_answer_is_dropped(scripted: Scripted) -> None:
    """C19: sent, no answer: it may have been done."""
    clock = TestClock(running=False)
    channel = await dial(scripted.address, Hello(1), clock=clock)
    asked = asyncio.ensure_future(channel.request(GetMaxOffset("t", 0), 3))
    await eventually(lambda: scripted.received)
    await clock.advance(2.5)
    assert not asked.done()
    await clock.advance(1)
    with pytest.raises(Unknown) as caught:
        await asked
    assert not caught.value.retryable
    scripted.writers[0].write(NATIVE.answer(2, None, OffsetAnswer(1), "") + NATIVE.answer(77, None, None, ""))
    again = asyncio.ensure_future(channel.request(GetMaxOffset("t", 0), 3))
    scripted.writers[0].write(NATIVE.answer(3, None, OffsetAnswer(5), ""))
    assert await again == OffsetAnswer(5)
    await channel.close()


async def test_a_broken_link_is_unknown_for_what_left_and_unreachable_after(scripted: Scripted) -> None:
    """C19"""
    channel = await dial(scripted.address, Hello(1))
    asked = asyncio.ensure_future(channel.request(Send("g", "t", 0, b"x"), 30))
    await eventually(lambda: scripted.received)
    scripted.writers[0].transport.abort()
    with pytest.raises(Unknown):
        await asked
    await channel.closed.wait()
    with pytest.raises(Unreachable) as caught:
        await channel.request(Ping(), 3)
    assert caught.value.retryable
    with pytest.raises(Unreachable):
        channel.post(Ping())
    await channel.close()


async def test_after_a_goodbye_what_was_not_answered_was_not_done(scripted: Scripted) -> None:
    """C19: a send that crosses the end of a node that stops in order may go to the next one."""
    channel = await dial(scripted.address, Hello(1))
    asked = asyncio.ensure_future(channel.request(Send("g", "t", 0, b"x"), 30))
    await eventually(lambda: scripted.received)
    scripted.writers[0].write(NATIVE.request(Goodbye(), 0, True))
    scripted.writers[0].close()
    with pytest.raises(Unreachable, match="stopped before it took this") as caught:
        await asked
    assert caught.value.passing
    await channel.close()


async def test_what_was_never_written_is_unreachable(scripted: Scripted) -> None:
    """C19: nothing happened at the other side, so it may be tried elsewhere."""
    channel = await dial(scripted.address, Hello(1))
    asked = asyncio.ensure_future(channel.request(Send("g", "t", 0, b"x"), 30))
    channel.abort("the test pulled the plug")
    await channel.closed.wait()
    with pytest.raises(Unreachable):
        await asked
    assert not scripted.received
    await channel.close()


async def test_a_cancelled_request_leaves_nothing(scripted: Scripted) -> None:
    channel = await dial(scripted.address, Hello(1))
    asked = asyncio.ensure_future(channel.request(GetMaxOffset("t", 0), 30))
    await eventually(lambda: scripted.received)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert not channel.waits
    scripted.writers[0].write(NATIVE.answer(2, None, OffsetAnswer(1), ""))
    await channel.close()


async def test_an_answer_of_the_wrong_type_is_bad_bytes(scripted: Scripted) -> None:
    channel = await dial(scripted.address, Hello(1))
    asked = asyncio.ensure_future(channel.request(GetMaxOffset("t", 0), 30))
    scripted.writers[0].write(NATIVE.answer(2, None, HelloAnswer(1), "")[:-30] or b"")
    scripted.writers[0].write(b"")
    scripted.writers[0].transport.abort()
    with pytest.raises((Unknown, BadBytes)):
        await asked
    await channel.close()


async def test_posts_leave_in_order_with_requests(scripted: Scripted) -> None:
    channel = await dial(scripted.address, Hello(1))
    for number in range(3):
        channel.post(Send("g", "t", number, b"x"))
    asked = asyncio.ensure_future(channel.request(Ping(), 30))
    expected = b"".join(NATIVE.request(Send("g", "t", number, b"x"), 0, True) for number in range(3))
    expected += NATIVE.request(Ping(), 2, False)
    await eventually(lambda: len(scripted.received) == len(expected))
    assert bytes(scripted.received) == expected
    scripted.writers[0].write(NATIVE.answer(2, None, None, ""))
    assert await asked is None
    await channel.close()


async def test_what_one_turn_asks_leaves_at_its_end_but_much_of_it_at_once(scripted: Scripted) -> None:
    """Else both sides would wait for each other's bursts in turns, and one core of two would rest."""
    channel = await dial(scripted.address, Hello(1))
    other_end = scripted.writers[0].get_extra_info("socket").fileno()

    def arrived() -> bool:
        return select.select([other_end], [], [], 0)[0] != []

    asked = [channel.ask(Send("g", "t", 0, b"x" * 1000), math.inf) for _ in range(10)]
    assert not arrived()
    asked += [channel.ask(Send("g", "t", 0, b"x" * 1000), math.inf) for _ in range(10)]
    assert arrived()
    await eventually(lambda: len(scripted.received) > 20_000)
    for each in asked:
        each.cancel()
    await channel.close()


async def test_closing_ends_though_the_other_side_reads_no_more(scripted: Scripted) -> None:
    """A process that stands still keeps its connections: without an end a client never closed, and gave no sign of life to other
    brokers while it dropped the link."""
    clock = TestClock(running=False)
    channel = await dial(scripted.address, Hello(1), clock=clock)
    scripted.writers[0].transport.pause_reading()
    sends = [channel.ask(Send("g", "t", 0, b"x" * 1_000_000), math.inf) for _ in range(20)]
    closing = asyncio.ensure_future(channel.close())
    await clock.advance(0.0)  # it has begun
    await clock.advance(CLOSE_SECONDS - 0.1)
    assert not closing.done(), "it may still read"
    await clock.advance(0.1)
    async with asyncio.timeout(10):
        await closing
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {Unknown}


async def test_closing_twice_is_nothing(scripted: Scripted) -> None:
    channel = await dial(scripted.address, Hello(1))
    await channel.close()
    await channel.close()
    assert channel.closed.is_set()
