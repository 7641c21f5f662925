"""Requests to handlers and back, over real sockets, in both codecs."""

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any, cast

import msgpack
import pytest

from rmq.errors import Refusal, Unknown, Unreachable
from rmq.log.records import fastpath
from rmq.net.codec.limits import Limits
from rmq.net.commands import (
    CODES,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    GetRoute,
    GetTopicList,
    Goodbye,
    Heartbeat,
    HeartbeatAnswer,
    Hello,
    HelloAnswer,
    NotifyConsumerIdsChanged,
    OffsetAnswer,
    Ping,
    Request,
    SearchOffset,
    Send,
    SendAnswer,
    TimestampAnswer,
)
from rmq.net.remoting.codec import RemotingSettings
from rmq.net.remoting.headers import ANSWER_FLAG, read, write
from rmq.net.transport.channel import Channel
from rmq.net.transport.server import LATER, Call, Connection, Later, Server
from rmq.testing import TestClock
from tests.dialing import dial
from tests.net import java_peer
from tests.net.support import NATIVE, BarePeer, eventually


class Broker:
    """Handlers of every kind, and what they saw."""

    def __init__(self) -> None:
        self.later: list[Call] = []
        self.sent: list[Send] = []
        self.ended: list[Connection] = []
        self.release = asyncio.Event()
        self.clock = TestClock(running=False)
        self.server = Server(
            {
                Send: self.send,
                GetMaxOffset: self.answer_later,
                GetMinOffset: self.answer_async,
                SearchOffset: self.refuse,
                GetRoute: self.fail,
                GetTopicList: self.assert_wrongly,
                Heartbeat: self.beat,
                GetEarliestStoreTime: lambda request, call: TimestampAnswer(5),
            },
            limits=Limits(),
            remoting=RemotingSettings(fastpath, store_host=("127.0.0.1", 10911)),
            clock=self.clock,
            on_close=self.ended.append,
        )
        self.server.serve(self.server.handlers, self.allow)

    def allow(self, connection: Connection, request: Request) -> None:
        if isinstance(request, GetEarliestStoreTime) and request.topic == "secret":
            raise Refusal(16, "not yours")

    def send(self, request: Send, call: Call) -> SendAnswer:
        self.sent.append(request)
        return SendAnswer(request.queue_id, len(self.sent), 100)

    def answer_later(self, request: GetMaxOffset, call: Call) -> Later:
        self.later.append(call)
        return LATER

    async def answer_async(self, request: GetMinOffset, call: Call) -> OffsetAnswer:
        await self.release.wait()
        if request.topic != "t":
            raise Refusal(17, "no such topic" if request.topic == "bad" else "/st\udcf6", "127.0.0.1:1")
        return OffsetAnswer(request.queue_id)

    def refuse(self, request: SearchOffset, call: Call) -> OffsetAnswer:
        raise Refusal(17, "no such topic", "127.0.0.1:1")

    def fail(self, request: GetRoute, call: Call) -> None:
        raise ZeroDivisionError("a mistake of ours")

    def assert_wrongly(self, request: GetTopicList, call: Call) -> None:
        raise AssertionError("what must hold did not")

    def beat(self, request: Heartbeat, call: Call) -> HeartbeatAnswer:
        call.connection.client_id = request.client_id
        return HeartbeatAnswer(True, False)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = Broker()
    yield broker
    await broker.server.close(0)


@pytest.fixture
async def address(broker: Broker) -> tuple[str, int]:
    return await broker.server.listen("127.0.0.1", 0)


@pytest.fixture
async def channel(address: tuple[str, int]) -> AsyncIterator[Channel]:
    channel = await dial(f"{address[0]}:{address[1]}", Hello(1, "tester"))
    yield channel
    await channel.close()


async def test_hello_tells_who_is_there(broker: Broker, channel: Channel) -> None:
    assert channel.hello == HelloAnswer(1)
    (connection,) = broker.server.connections
    assert (connection.client_id, connection.language, connection.version) == ("tester", "PYTHON", 513)
    assert connection.peer[0] == "127.0.0.1"
    assert not connection.closed


async def test_many_at_once_get_their_own_answers(broker: Broker, channel: Channel) -> None:
    """Pipelining: a burst is handled in order."""
    answers = await asyncio.gather(*[channel.request(Send("g", "t", n, b"x" * 700), 10) for n in range(500)])
    assert [answer.queue_id for answer in answers] == list(range(500))  # type: ignore[union-attr]
    assert [send.queue_id for send in broker.sent] == list(range(500))


async def test_answers_overtake(broker: Broker, channel: Channel) -> None:
    """LATER and async handlers answer when they can."""
    slow = asyncio.ensure_future(channel.request(GetMaxOffset("t", 0), 10))
    waiting = asyncio.ensure_future(channel.request(GetMinOffset("t", 7), 10))
    assert await channel.request(Send("g", "t", 1, b"x"), 10) == SendAnswer(1, 1, 100)
    assert not slow.done()
    broker.release.set()
    assert await waiting == OffsetAnswer(7)
    broker.later[0].answer(OffsetAnswer(42))
    assert await slow == OffsetAnswer(42)


async def greeted(address: tuple[str, int]) -> socket.socket:
    """Written to at once, so that the loop finds what several peers wrote in one turn."""
    peer = socket.create_connection(address)
    peer.setblocking(False)
    peer.send(NATIVE.request(Hello(1, "bare"), 0, False))
    await asyncio.get_running_loop().sock_recv(peer, 4096)
    return peer


async def test_a_turn_ends_behind_all_of_its_reads_or_with_the_read_that_is_alone(
    broker: Broker, address: tuple[str, int]
) -> None:
    """Who has read last, too, is taken to be alone; it is no mistake if he was not."""
    peers = [await greeted(address) for _ in range(2)]
    seen: list[str] = []

    def handle(request: GetMaxOffset, call: Call) -> OffsetAnswer:
        seen.append(request.topic)
        broker.server.at_turn_end(lambda: seen.append("end"))
        return OffsetAnswer(1)

    async def ask(*which: int) -> list[str]:
        seen.clear()
        for number in which:
            peers[number].send(NATIVE.request(GetMaxOffset("read", number), 1, False))
        for number in which:
            assert await asyncio.get_running_loop().sock_recv(peers[number], 4096)
        return seen

    broker.server.serve({GetMaxOffset: handle})
    await ask(0)
    assert await ask(0) == ["read", "end"]
    assert sorted(await ask(0, 1)) == ["end", "end", "read", "read"]
    await ask(1)
    await ask(0)
    assert await ask(1) == ["read", "end"]
    for peer in peers:
        peer.close()


async def test_what_fails_at_the_end_of_a_turn_holds_nobody_up(broker: Broker, channel: Channel) -> None:
    seen: list[type[BaseException]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: seen.append(type(context["exception"])))
    done = asyncio.Event()

    def fail() -> None:
        raise ZeroDivisionError

    broker.server.at_turn_end(fail)
    broker.server.at_turn_end(done.set)
    assert await channel.request(Ping(), 10) is None
    await done.wait()
    assert seen == [ZeroDivisionError]


async def test_a_read_that_breaks_off_ends_only_its_connection(broker: Broker, address: tuple[str, int]) -> None:
    """Also where it was taken to be alone, so that it was to write."""
    seen: list[type[BaseException]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: seen.append(type(context["exception"])))

    def broken(*_: object) -> int:
        raise ZeroDivisionError

    other, one = await BarePeer.greeted(address), await BarePeer.greeted(address)
    broker.server.serve(broker.server.handlers, takes={Send: broken})
    one.ask(Ping(), 1)
    assert await one.answer() == [0, 1, 1, None]
    one.ask(Send("g", "t", 1, b"x"), 2)
    assert await one.closed()
    other.ask(Ping(), 3)
    assert await other.answer() == [0, 3, 1, None]
    assert seen == [ZeroDivisionError]
    for peer in (one, other):
        await peer.close()


async def test_refusals_arrive_with_code_remark_and_hint(broker: Broker, channel: Channel) -> None:
    broker.release.set()
    for request in (SearchOffset("t", 0, 0), GetMinOffset("bad", 0)):
        with pytest.raises(Refusal) as caught:
            await channel.request(request, 10)
        assert (caught.value.code, caught.value.remark, caught.value.hint) == (17, "no such topic", "127.0.0.1:1")
        assert caught.value.refresh_routes
    with pytest.raises(Refusal, match=r"/st\\udcf6"):
        await channel.request(GetMinOffset("file", 0), 10)


async def test_a_mistake_of_ours_is_logged_and_answered(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    """The peer learns no inner text (S12); the next request is served."""
    with caplog.at_level(logging.ERROR), pytest.raises(Refusal) as caught:
        await channel.request(GetRoute("t"), 10)
    assert caught.value.code == 1
    assert "a mistake of ours" not in caught.value.remark
    assert "a mistake of ours" in caplog.text
    assert await channel.request(Ping(), 10) is None


async def test_an_answer_that_cannot_be_written_is_a_refusal(broker: Broker, channel: Channel) -> None:
    """S5: it ended the connection, with everything else that was asked on it."""
    asked = asyncio.ensure_future(channel.request(GetMaxOffset("t", 0), 10))
    await eventually(lambda: broker.later)
    broker.later[0].answer(OffsetAnswer(cast(int, object())))
    with pytest.raises(Refusal, match="internal error"):
        await asked
    assert await channel.request(Ping(), 10) is None


async def test_a_broken_assertion_reaches_the_loop(channel: Channel) -> None:
    """Where a node ends the process."""
    seen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: seen.append(context))
    with pytest.raises(Refusal):
        await channel.request(GetTopicList(), 10)
    assert [type(context["exception"]) for context in seen] == [AssertionError]


async def test_answering_twice_is_a_bug(broker: Broker, channel: Channel) -> None:
    asked = asyncio.ensure_future(channel.request(GetMaxOffset("t", 0), 10))
    await eventually(lambda: broker.later)
    broker.later[0].answer(OffsetAnswer(1))
    with pytest.raises(AssertionError, match="twice"):
        broker.later[0].refuse(Refusal(1, "no"))
    assert await asked == OffsetAnswer(1)


async def test_answering_the_gone_does_nothing(broker: Broker, channel: Channel) -> None:
    asked = asyncio.ensure_future(channel.request(GetMaxOffset("t", 0), 10))
    await eventually(lambda: broker.later)
    await channel.close()
    with pytest.raises(Unknown):
        await asked
    await eventually(lambda: broker.ended)
    assert broker.ended[0].closed
    broker.later[0].answer(OffsetAnswer(1))
    broker.ended[0].push(NotifyConsumerIdsChanged("g"))
    with pytest.raises(Unreachable):
        await broker.ended[0].request(Ping(), 1)


async def test_oneway_is_never_answered(broker: Broker, address: tuple[str, int]) -> None:
    """Not even when refused, unknown, or failing."""
    peer = await BarePeer.greeted(address)
    for number, request in enumerate((Send("g", "t", 1, b"x"), SearchOffset("t", 0, 0), NotifyConsumerIdsChanged("g"))):
        peer.ask(request, number, oneway=True)
    peer.ask(Ping(), 99)
    assert await peer.answer() == [0, 99, 1, None]
    assert len(broker.sent) == 1
    await peer.close()


async def test_codes_nobody_serves(address: tuple[str, int]) -> None:
    peer = await BarePeer.greeted(address)
    peer.ask(NotifyConsumerIdsChanged("g"), 5)
    assert await peer.answer() == [3, 5, 1, " request type 40 not supported", ""]
    await peer.close()


async def test_the_access_check_comes_before_the_handler(channel: Channel) -> None:
    assert await channel.request(GetEarliestStoreTime("open", 0), 10) == TimestampAnswer(5)
    with pytest.raises(Refusal, match="not yours"):
        await channel.request(GetEarliestStoreTime("secret", 0), 10)


async def test_only_ping_comes_before_hello(address: tuple[str, int]) -> None:
    peer = await BarePeer.connect(address)
    peer.ask(Ping(), 1)
    assert await peer.answer() == [0, 1, 1, None]
    peer.ask(Send("g", "t", 0, b"x"), 2)
    answer = await peer.answer()
    assert answer[:2] == [15, 2]
    assert "Hello" in answer[3]
    assert await peer.closed()
    await peer.close()


@pytest.mark.parametrize("binary", [True, False])
async def test_an_answer_as_first_frame_ends_only_its_connection(address: tuple[str, int], binary: bool) -> None:
    """Nothing was asked of the peer: what it says is no answer, in either codec."""
    broken: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: broken.append(context["message"]))
    remoting, native = await BarePeer.connect(address), await BarePeer.connect(address)
    remoting.send(write(binary, 0, ANSWER_FLAG, 7, "", {}))
    assert await remoting.closed()
    body = msgpack.packb([0, 2**63, ANSWER_FLAG, None])
    native.send(len(body).to_bytes(4, "big") + body)
    assert await native.closed()
    for peer in (remoting, native):
        await peer.close()
    assert not broken


async def test_a_version_nobody_speaks(address: tuple[str, int]) -> None:
    with pytest.raises(Refusal) as caught:
        await dial(f"{address[0]}:{address[1]}", Hello(0, "old"))
    assert caught.value.code == 15


async def test_the_older_version_of_both_is_spoken(address: tuple[str, int]) -> None:
    channel = await dial(f"{address[0]}:{address[1]}", Hello(99, "new"))
    assert channel.hello.version == 1
    await channel.close()


async def test_pushes_and_questions_of_the_broker(broker: Broker, address: tuple[str, int]) -> None:
    """On the same connection, in the other direction."""
    seen: list[Request] = []

    async def offset() -> OffsetAnswer:
        return OffsetAnswer(9)

    def serve(request: Request) -> Any:
        seen.append(request)
        if isinstance(request, GetMinOffset):
            raise Refusal(17, "gone")
        return offset() if isinstance(request, GetMaxOffset) else None

    channel = await dial(f"{address[0]}:{address[1]}", Hello(1, "tester"), on_request=serve)
    (connection,) = broker.server.connections
    connection.push(NotifyConsumerIdsChanged("g"))
    assert await connection.request(GetMaxOffset("t", 0), 10) == OffsetAnswer(9)
    with pytest.raises(Refusal, match="gone"):
        await connection.request(GetMinOffset("t", 0), 10)
    assert seen[0] == NotifyConsumerIdsChanged("g")
    await channel.close()


async def test_a_client_that_serves_nothing_says_so(broker: Broker, channel: Channel) -> None:
    (connection,) = broker.server.connections
    with pytest.raises(Refusal, match="not supported"):
        await connection.request(GetMaxOffset("t", 0), 10)


async def test_a_question_without_answer_is_unknown(broker: Broker, address: tuple[str, int]) -> None:
    peer = await BarePeer.greeted(address)
    (connection,) = broker.server.connections
    asked = asyncio.ensure_future(connection.request(GetMaxOffset("t", 0), 3))
    await peer.answer()
    await broker.clock.advance(5)
    with pytest.raises(Unknown):
        await asked
    peer.send(b"\x00\x00\x00\x06\x95\x00\x01\x01\xc0\x05")  # late: dropped
    peer.ask(Ping(), 4)
    assert await peer.answer() == [0, 4, 1, None]
    await peer.close()


async def test_both_codecs_reach_the_same_handlers(broker: Broker, address: tuple[str, int], channel: Channel) -> None:
    peer = await BarePeer.connect(address)
    peer.send(java_peer.request_frame(Heartbeat("java@1"), 1, binary=False) + java_peer.send_frame(2, b"body", binary=True))
    headers = []
    for _ in range(2):
        size = int.from_bytes(await peer.reader.readexactly(4), "big")
        headers.append(read(await peer.reader.readexactly(size), 1 << 16)[0])
    assert headers[0].ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}
    assert (headers[1].binary, headers[1].opaque, headers[1].ext["queueOffset"]) == (True, 2, "1")
    java = next(one for one in broker.server.connections if one.language == "JAVA")
    assert (java.client_id, java.version) == ("java@1", 513)
    java.push(NotifyConsumerIdsChanged("g"))
    size = int.from_bytes(await peer.reader.readexactly(4), "big")
    header, _ = read(await peer.reader.readexactly(size), 1 << 16)
    assert (header.code, header.flag, header.ext) == (40, 2, {"consumerGroup": "g"})
    await channel.request(Send("g", "t", 3, b"native"), 10)
    assert [send.topic for send in broker.sent] == ["orders", "t"]
    await peer.close()


async def test_closing_answers_what_is_in_flight(broker: Broker, channel: Channel) -> None:
    """And refuses what comes meanwhile, so that clients go elsewhere at once."""
    slow = asyncio.ensure_future(channel.request(GetMaxOffset("t", 0), 10))
    await eventually(lambda: broker.later)
    closing = asyncio.ensure_future(broker.server.close(30))
    await asyncio.sleep(0)
    with pytest.raises(Refusal) as caught:
        await channel.request(Send("g", "t", 0, b"x"), 10)
    assert caught.value.code == 14
    assert caught.value.retryable
    assert not broker.sent
    broker.later[0].answer(OffsetAnswer(5))
    assert await slow == OffsetAnswer(5)
    await closing
    assert channel.closed.is_set() or await channel.closed.wait()
    assert not broker.server.connections


async def test_goodbye_comes_after_the_last_answer_and_nothing_is_done_behind_it(
    broker: Broker, address: tuple[str, int]
) -> None:
    """C19: whoever reads it knows. The remoting codec has no such word."""
    peer, java = await BarePeer.greeted(address), await BarePeer.connect(address)
    java.send(java_peer.request_frame(Heartbeat("java@1"), 1, binary=False))
    await java.reader.readexactly(int.from_bytes(await java.reader.readexactly(4), "big"))
    peer.ask(GetMaxOffset("t", 0), 1)
    await eventually(lambda: broker.later)
    closing = asyncio.ensure_future(broker.server.close(30))
    await asyncio.sleep(0)
    broker.later[0].answer(OffsetAnswer(5))
    assert (await peer.answer())[:2] == [0, 1]
    peer.ask(Send("g", "t", 0, b"x"), 2)
    assert (await peer.answer())[0] == CODES[Goodbye]
    assert await peer.closed()
    assert await java.reader.read() == b""
    await peer.close()
    await java.close()
    await closing
    assert not broker.sent


async def test_closing_while_peers_break_their_connections(broker: Broker, address: tuple[str, int]) -> None:
    """The loop has not heard of it yet, and our half cannot be ended any more."""
    peers = [socket.create_connection(address) for _ in range(3)]
    for peer in peers:
        peer.sendall(java_peer.request_frame(GetTopicList(), 1, False))  # which nobody serves: it is answered at once
    for peer in peers:
        await asyncio.to_thread(peer.recv, 4096)
    for peer in peers:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    await broker.server.close(30)
    assert not broker.server.connections


async def test_closing_does_not_wait_for_ever(broker: Broker, channel: Channel) -> None:
    slow = asyncio.ensure_future(channel.request(GetMaxOffset("t", 0), 100))
    await eventually(lambda: broker.later)
    closing = asyncio.ensure_future(broker.server.close(5))
    await asyncio.sleep(0)
    assert not closing.done()
    await broker.clock.advance(6)
    await closing
    with pytest.raises(Unknown):
        await slow
    assert len(broker.ended) == 1


async def test_a_closed_server_accepts_nobody(broker: Broker, address: tuple[str, int]) -> None:
    await broker.server.close(0)
    with pytest.raises(Unreachable, match="cannot be reached"):
        await dial(f"{address[0]}:{address[1]}", Hello(1, "late"))


async def test_a_server_may_listen_twice(broker: Broker, address: tuple[str, int]) -> None:
    other = await broker.server.listen("127.0.0.1", 0)
    assert other != address
    channel = await dial(f"{other[0]}:{other[1]}", Hello(1, "there"))
    assert await channel.request(Ping(), 10) is None
    await channel.close()
    with pytest.raises(OSError, match="in use"):
        await broker.server.listen(*address)
