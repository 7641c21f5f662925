"""Deleting topics while messages wait for them: for an acknowledgement, for their time, for the end of a transaction.

What is handed on belongs to the life of the topic that it was made for. A deletion is held between its append and its commit
by a disk that does not flush: what a leader does in between once reached the log behind the deletion, with numbers of the life
that had ended (D12).
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rmq.broker.node import Broker
from rmq.config import NodeSettings
from rmq.net.commands import DeleteTopic, GetMaxOffset, UpdateTopic
from rmq.testing import TestClock
from tests.broker.helddisk import HeldDisk
from tests.broker.popping import bodies, take
from tests.broker.support import Peer, send

RETRY = "%RETRY%g_T"


class Node:
    """A broker that answers what its disk has flushed, and one connection to it."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.disk = HeldDisk()
        self.clock = TestClock()

    async def start(self) -> "Node":
        small = {"segment_bytes": 16 << 20, "index_slots": 100, "index_entries": 1000}
        settings = NodeSettings(role="broker", store_dir=self.store, listen_port=0, flush="sync", stop_grace_ms=100, **small)
        self.broker = Broker(settings, self.clock, self.disk)
        await self.broker.start()
        self.peer = await Peer.connect(self.broker.address)
        return self

    async def stop(self) -> None:
        self.disk.flushes.set()
        await self.peer.close()
        await self.broker.stop()

    async def restart_without_queues(self) -> None:
        """What only the log knows."""
        await self.stop()
        shutil.rmtree(self.store / "consumequeue")
        await self.start()

    async def make(self, topic: str = "T") -> None:
        await self.peer.ask(UpdateTopic(topic, "TBW102", 1, 1))

    async def deleting(self, topic: str = "T") -> "asyncio.Task[Any]":
        """Returns once the line is in the log, not committed."""
        end = self.broker._store.log.end
        self.disk.flushes.clear()
        task = asyncio.create_task(self.peer.ask(DeleteTopic(topic)))
        await self.clock.advance_until(lambda: self.broker._store.log.end > end, 0.0)
        return task

    async def end(self, topic: str, queue_id: int = 0) -> int:
        return int((await self.peer.ask(GetMaxOffset(topic, queue_id))).offset)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(node.stop)
        await node.start()
        await node.make()
        yield node


async def come_back(node: Node, *sent: bytes) -> None:
    """They were popped and not acknowledged; now they lie in the retry topic."""
    await node.peer.send(*(send("T", body) for body in sent))
    assert len(await take(node.peer.ask, hidden_ms=1000)) == len(sent)
    async with asyncio.timeout(20):
        while await node.end(RETRY) < len(sent):
            await node.clock.advance(1)


async def test_revive_while_the_topic_is_being_deleted(node: Node) -> None:
    """D12: messages of the retry topic were due once more while the line that deletes it was not committed yet."""
    await come_back(node, b"1", b"2")
    assert len(await take(node.peer.ask, hidden_ms=1000)) == 2, "popped of the retry topic this time"
    deleting = await node.deleting()
    await node.clock.advance(5)
    node.disk.flushes.set()
    await deleting
    await node.make()
    await node.peer.send(send("T", b"new"))
    assert bodies(await take(node.peer.ask, hidden_ms=1000)) == [b"new"], "nothing of the life before"
    async with asyncio.timeout(20):
        while await node.end(RETRY) < 1:
            await node.clock.advance(1)
    await node.restart_without_queues()
    assert (await node.end("T"), await node.end(RETRY)) == (1, 1)
    assert bodies(await take(node.peer.ask)) == [b"new"]
