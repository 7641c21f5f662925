"""What an acknowledgement means when the disk is slow, broken or full; the store lies on a disk that tests hold."""

import asyncio
import copy
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rmq.broker.node import Broker
from rmq.codes import ResponseCode as R
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal, StoreError
from rmq.log.files.memory import MemoryDisk
from rmq.model import GroupConfig
from rmq.net.commands import GetMaxOffset, Ping, UpdateConsumerOffset, UpdateGroup, UpdateTopic
from rmq.testing import TestClock, until
from tests.broker.support import Peer, beat, bodies, send


class Node:
    """A broker on a memory disk, and one connection to it."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.disk = MemoryDisk()
        self.clock = TestClock()
        self.release = threading.Event()
        self.release.set()
        self.one_more = threading.Semaphore(0)
        self.failing: dict[str, OSError] = {}
        self.reached = 0

    async def start(self, flush: str) -> "Node":
        small = {"segment_bytes": 140_000, "index_slots": 100, "index_entries": 1000, "max_message_bytes": 1000}
        node = NodeSettings(role="broker", store_dir=self.store, listen_port=0, flush=flush, stop_grace_ms=100, **small)
        self.disk.before = self._before
        self.broker = Broker(node, self.clock, self.disk)
        await self.broker.start()
        self.peer = await Peer.connect(self.broker.address)
        return self

    def _before(self, operation: str, path: str) -> None:
        """Runs in whichever thread changes the disk."""
        if operation == "fdatasync" and "/commitlog/" in path:
            self.reached += 1
            while not self.release.is_set() and not self.one_more.acquire(timeout=0.001):
                pass
        if operation in self.failing:
            raise self.failing[operation]

    def disk_after_power_loss(self) -> MemoryDisk:
        """As it would be found if the machine stopped now; this node knows nothing of it."""
        self.disk.before = lambda operation, path: None
        lost = copy.deepcopy(self.disk)
        self.disk.before = self._before
        lost.crash()
        return lost

    async def stop(self) -> None:
        self.release.set()
        await self.peer.close()
        await self.broker.stop()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    async with AsyncExitStack() as stack:
        stack.callback(node.release.set)
        yield node


async def endless(peer: Peer) -> None:
    while True:
        await peer.ask(send("T", b"x" * 500))


async def hanging_flush(node: Node) -> "asyncio.Task[Any]":
    """A send whose fsync has begun and does not end."""
    await node.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await node.peer.ask(UpdateGroup(GroupConfig("g")))
    await node.peer.ask(Ping())
    node.release.clear()
    before = node.reached
    task = asyncio.create_task(node.peer.ask(send("T", b"first")))
    await until(lambda: node.reached > before)
    return task


async def test_sync_flush_answers_after_the_fsync_and_shows_nothing_before(node: Node) -> None:
    """D1, R18: neither the producer nor any consumer hears of a message that may yet be lost."""
    await node.start("sync")
    sending = await hanging_flush(node)
    more = [asyncio.create_task(node.peer.ask(send("T", b"more"))) for _ in range(10)]
    assert (await node.peer.pull("T", 0)).status == R.PULL_NOT_FOUND
    assert (await node.peer.ask(GetMaxOffset("T", 0))).offset == 0
    assert not sending.done()
    before = node.reached
    node.one_more.release()
    assert (await sending).queue_offset == 0
    await until(lambda: node.reached > before)
    assert (await node.peer.ask(GetMaxOffset("T", 0))).offset == 1, "the fsync did not hold what came after it began"
    assert not any(task.done() for task in more)
    node.release.set()
    answers = await asyncio.gather(*more)
    assert [answer.queue_offset for answer in answers] == list(range(1, 11))
    assert node.reached <= before + 2, "all who came meanwhile share one fsync"
    await node.stop()


async def test_what_was_acknowledged_under_sync_flush_survives_a_power_loss(node: Node) -> None:
    """D1."""
    await node.start("sync")
    await asyncio.gather(*(node.peer.ask(send("T", b"%d" % n)) for n in range(20)))
    after = Node(node.store)
    after.disk = node.disk_after_power_loss()
    await node.stop()
    await after.start("sync")
    found: list[bytes] = []
    while len(found) < 20:
        found += bodies(await after.peer.pull("T", len(found)))
    assert sorted(found) == sorted(b"%d" % n for n in range(20))
    await after.stop()


async def test_a_flush_that_takes_too_long_is_told(node: Node) -> None:
    """FLUSH_DISK_TIMEOUT (10): stored in memory; no refusal, and no second answer when it is flushed after all."""
    await node.start("sync")
    sending = await hanging_flush(node)
    await node.clock.advance(7)
    assert (await sending).status == R.FLUSH_DISK_TIMEOUT
    node.release.set()
    await until(lambda: node.disk.operations)
    assert (await node.peer.ask(send("T", b"second"))).queue_offset == 1
    assert bodies(await node.peer.pull("T", 0)) == [b"first", b"second"]
    await node.stop()


async def test_a_change_that_is_not_on_the_disk_in_time_is_not_in_force(node: Node) -> None:
    await node.start("sync")
    sending = await hanging_flush(node)
    change = asyncio.create_task(node.peer.refusal(UpdateTopic("N", read_queue_nums=1, write_queue_nums=1)))
    made_by_send = asyncio.create_task(node.peer.refusal(send("M")))
    commit = asyncio.create_task(node.peer.refusal(UpdateConsumerOffset("g", "T", 0, 0)))
    await node.peer.ask(Ping())
    await node.clock.advance(7)
    assert [await change, await made_by_send, await commit] == [R.SYSTEM_ERROR] * 3
    assert (await sending).status == R.FLUSH_DISK_TIMEOUT
    node.release.set()
    await node.peer.ask(UpdateConsumerOffset("g", "T", 0, 0))
    await node.stop()


async def test_a_commit_by_request_waits_for_the_same_offset_on_its_way(node: Node) -> None:
    """C5: an answer says that it is written, also when somebody else's write brings it."""
    await node.start("sync")
    sending = await hanging_flush(node)
    node.peer.channel.post(UpdateConsumerOffset("g", "T", 0, 0))
    await node.peer.ask(Ping())
    await node.clock.advance(0.5)
    commits = [asyncio.create_task(node.peer.ask(UpdateConsumerOffset("g", "T", 0, 0))) for _ in range(3)]
    for _ in range(20):
        await node.peer.ask(Ping())
    assert not any(task.done() for task in commits)
    node.release.set()
    await asyncio.gather(sending, *commits)
    await node.stop()


@pytest.mark.parametrize("flush", ["sync", "async"])
async def test_a_failed_flush_is_final(node: Node, flush: str, caplog: pytest.LogCaptureFixture) -> None:
    """D4: nobody who depends on it is acknowledged, a later flush is not believed, and the operator is told."""
    await node.start(flush)
    await node.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await node.peer.ask(send("T", b"good"))
    node.failing["fdatasync"] = OSError(5, "Input/output error")
    if flush == "sync":
        assert await node.peer.refusal(send("T")) == R.SYSTEM_ERROR, "outcome unknown"
    else:
        await node.peer.ask(send("T", b"good"))
        await node.clock.advance(1)
        await until(lambda: "stops writing" in caplog.text)
    node.failing.clear()
    assert await node.peer.refusal(send("T")) == R.SERVICE_NOT_AVAILABLE
    assert "this broker stops writing" in caplog.text
    assert "repair the disk and restart" in caplog.text
    assert bodies(await node.peer.pull("T", 0))[0] == b"good"
    await node.peer.close()
    with pytest.raises(StoreError):
        await node.broker.stop()


async def test_a_full_disk_refuses_sends_and_nothing_else_and_is_left_by_itself(node: Node) -> None:
    """D14."""
    await node.start("async")
    await node.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await node.peer.ask(beat("c", "g"))
    node.failing |= {name: OSError(28, "No space left on device") for name in ("create", "allocate")}
    with pytest.raises(Refusal) as refused:
        await endless(node.peer)
    stored = (await node.peer.ask(GetMaxOffset("T", 0))).offset
    assert stored > 100
    assert refused.value.code == R.SERVICE_NOT_AVAILABLE
    assert "No space left" in refused.value.remark
    await node.clock.advance(30)
    seen = 0
    while seen < stored:
        seen += len(bodies(await node.peer.pull("T", seen, flag=0, sub_version=1)))
    assert seen == stored, "consuming goes on"
    node.peer.channel.post(UpdateConsumerOffset("g", "T", 0, stored))
    await node.peer.ask(beat("c", "g"))
    node.failing.clear()
    await node.clock.advance(11)  # it looks whether the disk takes files again
    await until(lambda: not list(node.broker.waits_for()))
    assert (await node.peer.ask(send("T"))).queue_offset == stored, "nothing of the refused ones was counted"
    await node.peer.ask(UpdateConsumerOffset("g", "T", 0, stored))
    await node.stop()
    again = Node(node.store)
    again.disk = node.disk
    await again.start("async")
    assert (await again.peer.ask(GetMaxOffset("T", 0))).offset == stored + 1
    await again.stop()


async def test_an_append_that_cannot_be_undone_has_an_unknown_outcome(node: Node) -> None:
    """C2: the record may be found after a restart, so the producer must not hear "not stored" (14)."""
    await node.start("async")
    await node.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    before = node.disk.before
    writes = 0

    def broken_after_half_a_write(operation: str, path: str) -> None:
        nonlocal writes
        writes += operation == "pwrite" and "commitlog" in path
        if writes > 1:
            raise OSError(5, "Input/output error")
        before(operation, path)

    node.disk.before = broken_after_half_a_write
    node.disk.short_write_bytes = 300
    assert await node.peer.refusal(send("T", b"x" * 500)) == R.SYSTEM_ERROR
    assert await node.peer.refusal(send("T")) == R.SERVICE_NOT_AVAILABLE
    node.disk.before = before
    await node.peer.close()
    with pytest.raises(StoreError, match="could not be undone"):
        await node.broker.stop()
