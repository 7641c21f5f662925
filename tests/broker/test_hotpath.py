"""What the hot path does for each message, counted: calls of our functions, calls of the operating system, memory that stays.

Not time: counts are the same on a busy machine. Only what happens for every message counts, not what happens for each burst. Who
makes a count smaller lowers its limit; who passes one looks for what can be done per burst instead (docs/benchmarks).
"""

import asyncio
import gc
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rmq
from rmq.log.index.harvest import harvest
from rmq.log.records import fastpath, record
from rmq.net.codec.frames import decode_frame
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import VERSION, Native
from rmq.net.codec.wire import Reader
from rmq.net.commands import Hello, Pull, Request, Send
from rmq.net.commands.pop import Ack
from rmq.net.commands.transactions import COMMIT, EndTransaction
from rmq.net.remoting.codec import RemotingSettings
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.popping import take
from tests.broker.support import BORN, SUBSCRIBED, Peer
from tests.broker.test_delays import delayed
from tests.broker.transactions import half
from tests.net import java_peer
from tests.net.test_remoting_known import KINDS, frame, whole

PACKAGE = f"{Path(rmq.__file__).parent}/"  # a clone may be called rmq, too
IN_FLIGHT, BURSTS = 64, 24
MOST_CALLS_OF_HALF, MOST_CALLS_OF_END = 7, 11
MOST_CALLS_OF_LEVEL, MOST_CALLS_OF_TIMER = (11, 4), (18, 5)  # it comes; it goes on
MOST_CALLS_OF_ACK = 4
MOST_CALLS = 17  # for a message that comes, and is answered, alone on its connection
MOST_CALLS_OF_JAVA = 7  # from the bytes of a send in RocketMQ's protocol to its record, and its answer
MOST_CALLS_TOGETHER = 3  # from its bytes to its record, where others of its length come with it
MOST_CALLS_ALONE = 58  # for one that is alone in its turn of the loop


class Counts:
    """How often each of our functions below `where` was called, and the operating system (files; sockets are the loop's)."""

    def __init__(self, where: str) -> None:
        self._where = PACKAGE + where
        self.calls: Counter[str] = Counter()
        self.system: Counter[str] = Counter()

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self._where) and not code.co_filename.endswith("/testing.py"):
            self.calls[code.co_qualname] += 1
        elif event == "c_call" and argument.__module__ == "posix":
            self.system[argument.__name__] += 1


def for_each(counts: Counter[str], messages: int) -> dict[str, int]:
    """How often each is called for every message."""
    return {name: count // messages for name, count in counts.items() if count >= messages}


@contextmanager
def counted(where: str = "") -> Iterator[Counts]:
    """Of this thread, which is the loop's."""
    found = Counts(where)
    sys.setprofile(found.note)
    try:
        yield found
    finally:
        sys.setprofile(None)
    assert found.calls


def draft(number: int) -> bytes:
    said = {"UNIQ_KEY": f"7F0000010BAD3E8B27C74C0F{number:08X}", "TAGS": "TagA", "KEYS": f"order-{number:010d}"}
    return record.draft("T", b"x" * 500, record.properties_to_bytes(said), born_timestamp=1000, born_host=BORN)


class Load:
    """A client in a thread, on a plain socket: it sends prepared frames, so many at a time, and waits for as many answers."""

    def __init__(self, address: str, requests: list[Request]) -> None:
        native = Native(1 << 24)
        host, port = address.rsplit(":", 1)
        self._frames = [native.request(request, number + 2, False) for number, request in enumerate(requests)]
        self._hello = native.request(Hello(VERSION, "load"), 1, False)
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._answers = self._socket.makefile("rb")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.greeted = threading.Event()
        self.begin = threading.Event()

    def start(self) -> None:
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._socket.sendall(self._hello)
        self._read(1)
        self.greeted.set()
        self.begin.wait(60)
        for first in range(0, len(self._frames), IN_FLIGHT):
            burst = self._frames[first : first + IN_FLIGHT]
            self._socket.sendall(b"".join(burst))
            self._read(len(burst))
        self._socket.close()

    def _read(self, count: int) -> None:
        for _ in range(count):
            self._answers.read(int.from_bytes(self._answers.read(4), "big"))


async def cost(broker: LocalBroker, requests: list[Request]) -> tuple[Counts, int]:
    """What these requests cost; and by how many blocks the memory of this process grew."""
    load = Load(broker.address, requests)
    load.start()
    await until(load.greeted.is_set)
    gc.collect()
    before = sys.getallocatedblocks()
    with counted() as found:
        load.begin.set()
        await until(lambda: load.done)
    gc.collect()
    return found, sys.getallocatedblocks() - before


SENDS: list[Request] = [Send("p", "T", number % 4, draft(number)) for number in range(IN_FLIGHT * BURSTS)]
BATCH = b"".join(map(draft, range(100)))
BATCHES: list[Request] = [Send("p", "T", number % 4, BATCH) for number in range(IN_FLIGHT)]
PULLS: list[Request] = [Pull("g", "T", number % 4, 32, 32, sys_flag=SUBSCRIBED) for number in range(IN_FLIGHT * 8)]


@pytest.mark.parametrize(
    ("requests", "messages", "calls", "system"),
    [
        pytest.param(SENDS, len(SENDS), 2, 0, id="single sends"),
        pytest.param(BATCHES, len(BATCHES) * 100, 0, 0, id="batches of 100"),
        pytest.param(PULLS, len(PULLS), 14, 0, id="pulls of 32"),
    ],
)
async def test_the_hot_path_does_no_more_for_a_message(requests: list[Request], messages: int, calls: int, system: int) -> None:
    """`calls`, `system`: at most so many for every message (every pull). The clock is at rest, so no job runs meanwhile."""
    async with LocalBroker(clock=TestClock(running=False)) as broker:
        await broker.create_topic("T", 4)
        await cost(broker, SENDS)
        await cost(broker, requests)  # what is made once is made
        found, grown = await cost(broker, requests)
    often, asked = for_each(found.calls, messages), for_each(found.system, messages)
    assert sum(often.values()) <= calls, often
    assert sum(asked.values()) <= system, asked
    assert grown < messages / 2


async def test_a_transaction_takes_few_calls() -> None:
    """Its half, and its commit: those of one turn lie in one unit for each queue."""
    halves = [half(b"%0300d" % number, queue_id=number % 4) for number in range(len(SENDS))]
    async with LocalBroker(clock=TestClock(running=False)) as broker:
        await broker.create_topic("T", 4)
        await cost(broker, SENDS)
        begun, _ = await cost(broker, [*halves])
        waiting = broker.serving.tables.halves.open.rows
        assert len(waiting) == len(halves)
        ended, _ = await cost(
            broker, [EndTransaction("p", each.queue_offset, place, COMMIT, "") for place, each in waiting.items()]
        )
        assert not waiting
    for found, most in ((begun, MOST_CALLS_OF_HALF), (ended, MOST_CALLS_OF_END)):
        often = for_each(found.calls, len(halves))
        assert sum(often.values()) <= most, often
        assert not for_each(found.system, len(halves))


@pytest.mark.parametrize(("asked", "most"), [({"DELAY": 1}, MOST_CALLS_OF_LEVEL), ({"TIMER_DELAY_SEC": 1}, MOST_CALLS_OF_TIMER)])
async def test_a_delayed_message_takes_few_calls(asked: dict[str, int], most: tuple[int, int]) -> None:
    """When it comes, and when it goes on: those of one turn lie in one unit for each queue."""
    sends = [delayed(b"%0300d" % number, queue_id=number % 4, **asked) for number in range(len(SENDS))]
    async with LocalBroker(clock=TestClock(running=False)) as broker:
        await broker.create_topic("T", 4)
        await cost(broker, SENDS)
        taken, _ = await cost(broker, [*sends])
        waiting = broker.serving.tables.due
        assert waiting.pending == len(sends)
        with counted() as gone_on:
            await broker.clock.advance_until(lambda: not waiting.pending)
    for found, calls in zip((taken, gone_on), most, strict=True):
        often = for_each(found.calls, len(sends))
        assert sum(often.values()) <= calls, often
        assert not for_each(found.system, len(sends))


async def test_an_acknowledgement_takes_few_calls() -> None:
    """Of a popped message; those of a receipt come together."""
    async with LocalBroker(clock=TestClock(running=False)) as broker:
        await broker.create_topic("T", 4)
        await cost(broker, SENDS)
        peer = await Peer.connect(broker.address)
        popped = [one for _ in range(len(SENDS) // 32) for one in await take(peer.ask, count=32)]
        await peer.close()
        found, _ = await cost(broker, [Ack("g", "T", one.queue_id, one.handle, one.queue_offset) for one in popped])
        assert not broker.serving.tables.receipts
    often = for_each(found.calls, len(popped))
    assert sum(often.values()) <= MOST_CALLS_OF_ACK, often
    assert not for_each(found.system, len(popped))


async def greeted(address: str, native: Native) -> socket.socket:
    host, port = address.rsplit(":", 1)
    peer = socket.create_connection((host, int(port)), timeout=60)
    peer.setblocking(False)
    peer.send(native.request(Hello(VERSION, "load"), 1, False))
    await asyncio.get_running_loop().sock_recv(peer, 4096)
    return peer


async def test_a_read_and_an_answer_of_one_message_take_few_calls() -> None:
    """Where each message has a connection of its own. All of a burst are written before the broker looks, so all are read,
    appended and answered in one turn of its loop."""
    native, loop = Native(1 << 24), asyncio.get_running_loop()
    frames = [native.request(request, number + 2, False) for number, request in enumerate(SENDS)]
    async with LocalBroker(clock=TestClock(running=False)) as broker:
        await broker.create_topic("T", 4)
        peers = [await greeted(broker.address, native) for _ in range(IN_FLIGHT)]
        await cost(broker, SENDS)
        with counted() as found:
            for first in range(0, len(frames), IN_FLIGHT):
                for peer, frame in zip(peers, frames[first : first + IN_FLIGHT], strict=True):
                    assert peer.send(frame) == len(frame)
                for peer in peers:
                    assert await loop.sock_recv(peer, 4096)
        for peer in peers:
            peer.close()
    often, asked = for_each(found.calls, len(frames)), for_each(found.system, len(frames))
    assert sum(often.values()) <= MOST_CALLS, often
    assert asked == {"write": 1}


async def test_a_message_alone_in_its_turn_takes_few_calls() -> None:
    """Its sender waits for each answer."""
    native, loop = Native(1 << 24), asyncio.get_running_loop()
    frames = [native.request(request, number + 2, False) for number, request in enumerate(SENDS)]
    async with LocalBroker(clock=TestClock(running=False)) as broker:
        await broker.create_topic("T", 4)
        await cost(broker, SENDS)
        peer = await greeted(broker.address, native)
        with counted() as found:
            for frame in frames:
                assert peer.send(frame) == len(frame)
                assert await loop.sock_recv(peer, 4096)
        peer.close()
    often, asked = for_each(found.calls, len(frames)), for_each(found.system, len(frames))
    assert sum(often.values()) <= MOST_CALLS_ALONE, often
    assert asked == {"pwrite": 1, "write": 1}


@pytest.mark.parametrize("binary", [False, True])
def test_a_known_header_of_rocketmq_takes_few_calls(binary: bool) -> None:
    """From its bytes to the record that is stored; and its answer."""
    remoting = RemotingSettings(fastpath).codec(("10.0.0.1", 4000))
    said = "UNIQ_KEY\x017F0000010BAD3E8B27C7%04d\x02TAGS\x01TagA\x02KEYS\x01order-%04d\x02"
    frames = [java_peer.send_frame(1000 + number, b"x" * 500, binary, i=said % (number, number))[4:] for number in range(100)]
    encode = remoting.stored(0, 0)
    for _ in range(2):
        with counted() as found:
            for number, frame in enumerate(frames):
                _, call_id, _, context, _ = decode_frame(remoting, frame)
                encode(call_id, context, 1000 + number, 1 << 40)
    often = for_each(found.calls, len(frames))
    del often["decode_frame"]
    assert sum(often.values()) <= MOST_CALLS_OF_JAVA, often


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("half", "most"), [(False, MOST_CALLS_TOGETHER), (True, MOST_CALLS_TOGETHER + 1)])
def test_known_headers_of_one_length_that_come_together_take_fewer_calls(half: bool, most: int, binary: bool) -> None:
    reader = Reader(Limits(), Native(1 << 20), lambda: RemotingSettings(fastpath).codec(("10.0.0.1", 4000)))
    said = "UNIQ_KEY\x017F0000010BAD3E8B27C7%04d\x02TAGS\x01TagA\x02KEYS\x01order-%04d\x02"
    flags, more = ("4", "TRAN_MSG\x01true\x02PGROUP\x01PG\x02") if half else ("0", "")
    said += more
    frames = [
        java_peer.send_frame(1000 + number, b"x" * 500, binary, f=flags, i=said % (number, number)) for number in range(100)
    ]
    for _ in range(2):
        with counted() as found:
            assert len(reader.feed(b"".join(frames))) == len(frames)
    often = for_each(found.calls, len(frames))
    assert sum(often.values()) <= most, often


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_known_requests_of_rocketmq_that_come_together_take_no_calls(kind: type[Any]) -> None:
    """Pulls, acknowledgements and ends of transactions, from their bytes to what they mean."""
    code, fields = KINDS[kind]
    reader = Reader(Limits(), Native(1 << 20), lambda: RemotingSettings(fastpath).codec(("10.0.0.1", 4000)))
    frames = [whole(frame(code, fields, 1000 + number)) for number in range(100)]
    reader.feed(frames[0])
    with counted() as found:
        assert [type(one[0]) for one in reader.feed(b"".join(frames))] == [kind] * len(frames)
    assert for_each(found.calls, len(frames)) == {}


def test_the_index_calls_nothing_for_each_message() -> None:
    """Of messages of one shape, however many."""

    def calls(count: int) -> int:
        data = b"".join(map(draft, range(count)))
        with counted() as found:
            assert len(harvest(data, 0)[0]) == 3 * count
        return found.calls.total()

    calls(150)  # what is made once is made, also where this test is alone
    assert calls(1500) == calls(150)
