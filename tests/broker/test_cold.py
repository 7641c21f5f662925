"""Pulls of what is not in memory: less at once, in threads, bounded, and right also when retention or damage interferes."""

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from rmq.broker.node import Broker
from rmq.broker.shared import coldreads
from rmq.broker.shared.coldreads import ColdReads
from rmq.codes import ResponseCode as R
from rmq.errors import Refusal
from rmq.log import commitlog
from rmq.log.files import gathering
from rmq.log.files.memory import MemoryDisk
from rmq.log.records import record
from rmq.net.commands import PullAnswer, UpdateTopic
from rmq.net.commands.pop import PopAnswer
from rmq.testing import TestClock, entries, until
from tests.broker.popping import pop
from tests.broker.support import Peer, bodies, send, small_node


class Node:
    """A broker with 60 messages on a memory disk, its files no longer in the page cache when `evict` was called."""

    def __init__(self, store: Path) -> None:
        self.disk = MemoryDisk()
        self.settings = small_node(store, stop_grace_ms=100, segment_bytes=140_000, max_message_bytes=1000)

    async def start(self) -> "Node":
        await self._open()
        await self.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        for number in range(60):
            await self.peer.ask(send("T", b"%d" % number, tags="odd" if number % 2 else "even"))
        await self.stop()
        await self._open()
        return self

    async def _open(self) -> None:
        self.broker = Broker(self.settings, TestClock(), self.disk)
        await self.broker.start()
        self.peer = await Peer.connect(self.broker.address)

    def evict(self, part: str, evicted: bool = True) -> None:
        for path in self.disk.paths():
            if part in path:
                self.disk.evict(path, evicted)

    async def stop(self) -> None:
        await self.peer.close()
        await self.broker.stop()


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """It keeps no end of its log in memory, as if what is read were written long ago."""
    monkeypatch.setattr(commitlog, "TAIL_BYTES", 1)
    monkeypatch.setattr(gathering, "NEAR_BYTES", 1)  # nor read lately
    node = await Node(tmp_path).start()
    yield node
    await node.stop()


def numbers(answer: PullAnswer) -> list[int]:
    return [int(body) for body in bodies(answer)]


@pytest.mark.parametrize("cold", ["/commitlog/", "/consumequeue/T/", "/"])
async def test_at_most_eight_messages_come_from_the_device(node: Node, cold: str) -> None:
    """As RocketMQ; whether the log or the queue's file is cold. In memory the limit is 32."""
    node.evict(cold)
    answer = await node.peer.pull("T", 3, max_msg_nums=32)
    assert (numbers(answer), answer.next_begin_offset) == (list(range(3, 11)), 11)
    answer = await node.peer.pull("T", 3, max_msg_nums=32, subscription="odd")
    assert numbers(answer) == list(range(3, 19, 2))
    assert numbers(await node.peer.pull("T", 3, max_msg_nums=2)) == [3, 4]
    none = await node.peer.pull("T", 3, subscription="nobody")
    assert (none.status, none.next_begin_offset) == (R.PULL_RETRY_IMMEDIATELY, 60)
    node.evict(cold, False)
    assert len(numbers(await node.peer.pull("T", 3, max_msg_nums=32))) == 32


async def test_a_pop_goes_on_looking_through_what_is_not_in_memory(node: Node) -> None:
    """Eight at a time bring it on, too: it stopped after three looks, and then waited for a new message."""
    await node.peer.ask(send("T", b"60", tags="last"))
    node.evict("/")
    answer = await node.peer.ask(pop(exp="TAGS = 'last'", exp_type="SQL92", poll_ms=0))
    assert isinstance(answer, PopAnswer)
    assert [int(one.body) for one in record.iterate(answer.messages)] == [60]


async def test_others_do_not_wait_for_a_slow_device(node: Node) -> None:
    """A read that hangs takes a thread, not the loop."""
    release = threading.Event()
    pread = node.disk.pread

    def slow(handle: int, size: int, offset: int) -> bytes:
        assert threading.current_thread() is not threading.main_thread(), "the loop waits for the device"
        release.wait(20)
        return pread(handle, size, offset)

    node.evict("/")
    node.disk.pread = slow  # type: ignore[method-assign]
    waiting = asyncio.create_task(node.peer.pull("T", 0))
    other = await Peer.connect(node.broker.address)
    assert (await other.ask(send("T", b"60"))).queue_offset == 60
    assert not waiting.done()
    release.set()
    node.disk.pread = pread  # type: ignore[method-assign]
    assert numbers(await waiting) == list(range(8))
    await other.close()


async def test_a_flipped_bit_on_the_device_is_not_served(node: Node) -> None:
    """D8: the records before it are, then an error that says what to do."""
    content = node.disk.content(f"{node.settings.store_dir}/commitlog/{0:020d}")
    at = content.index(b"\x0225\x01T")
    content[at + 1] ^= 1
    node.evict("/commitlog/")
    assert numbers(await node.peer.pull("T", 10)) == list(range(10, 18))
    for _ in range(2):
        assert numbers(await node.peer.pull("T", 20)) == list(range(20, 25))
        with pytest.raises(Refusal, match="damaged.*rmq store repair"):
            await node.peer.pull("T", 25)
    assert numbers(await node.peer.pull("T", 26)) == list(range(26, 34))


def flip(node: Node, number: int) -> None:
    content = node.disk.content(f"{node.settings.store_dir}/commitlog/{0:020d}")
    content[content.index(b"\x02%d\x01T" % number) + 1] ^= 1


async def test_a_flipped_bit_of_an_earlier_run_is_not_served_from_memory_either(node: Node) -> None:
    """D8: after a stop in order nothing is walked, and the page cache may hold what a disk gave back."""
    flip(node, 25)
    for _ in range(2):
        assert numbers(await node.peer.pull("T", 0, max_msg_nums=32))[:8] == list(range(8))
        assert numbers(await node.peer.pull("T", 20)) == list(range(20, 25))
        with pytest.raises(Refusal, match="damaged.*rmq store repair"):
            await node.peer.pull("T", 25)
    assert numbers(await node.peer.pull("T", 26, max_msg_nums=20)) == list(range(26, 46))


async def test_what_was_read_ahead_is_checked(node: Node) -> None:
    """D8: records of this run that memory lost; the kernel brings back more than was asked for."""
    for number in range(60, 90):
        await node.peer.ask(send("T", b"%d" % number))
    flip(node, 75)
    node.evict("/commitlog/")
    assert numbers(await node.peer.pull("T", 60)) == list(range(60, 68))
    node.evict("/commitlog/", False)
    assert numbers(await node.peer.pull("T", 70)) == list(range(70, 75))
    with pytest.raises(Refusal, match="damaged.*rmq store repair"):
        await node.peer.pull("T", 75)


async def five_waiting() -> tuple[ColdReads, threading.Event, list[asyncio.Task[bool]]]:
    """Cold reads of group g that wait for the event."""
    cold, release = ColdReads(8, 65536), threading.Event()
    tasks = [asyncio.create_task(cold.run("g", partial(release.wait, 20))) for _ in range(5)]
    await until(lambda: cold.waiting == 5)
    return cold, release, tasks


async def test_too_many_waiting_reads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """D18."""
    monkeypatch.setattr(coldreads, "MAX_WAITING", 5)
    cold, release, tasks = await five_waiting()
    with pytest.raises(Refusal, match="wait for the disk"):
        await cold.run("g", release.wait)
    release.set()
    assert all(await asyncio.gather(*tasks))
    assert await cold.run("g", lambda: 7) == 7
    cold.close()


async def test_no_group_takes_all_the_room_of_waiting_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coldreads, "MAX_WAITING_OF_GROUP", 5)
    cold, release, tasks = await five_waiting()
    with pytest.raises(Refusal, match="group g"):
        await cold.run("g", release.wait)
    tasks.append(asyncio.create_task(cold.run("h", partial(release.wait, 20))))
    await until(lambda: cold.waiting == 6)
    release.set()
    assert all(await asyncio.gather(*tasks))
    assert not entries(cold)
    cold.close()
