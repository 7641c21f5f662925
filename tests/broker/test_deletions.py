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
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.pending.popreader import QueueReader
from rmq.codes import ResponseCode as R
from rmq.config.settings import NodeSettings
from rmq.delivery.due import Source
from rmq.errors import Refusal
from rmq.log.records import record
from rmq.model import DELAY_TOPIC, HALF_TOPIC, TIMER_TOPIC
from rmq.net.commands import (
    DeleteGroup,
    DeleteTopic,
    GetMaxOffset,
    GetTopicConfig,
    OffsetAnswer,
    QueryConsumerOffset,
    Send,
    UpdateTopic,
)
from rmq.net.commands.pop import Peek
from rmq.testing import TestClock
from tests.broker.groups import LocalGroup
from tests.broker.helddisk import HeldDisk
from tests.broker.popping import bodies, pop, popped, take
from tests.broker.support import BORN, HELD, Peer, beat, everything, hold_reads, send
from tests.broker.transactions import checks, end, half

RETRY = "%RETRY%g_T"
CARRIED = ((DELAY_TOPIC, 9), (TIMER_TOPIC, 0), (HALF_TOPIC, 0))


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
        end = self.broker.serving.store.log.end
        self.disk.flushes.clear()
        task = asyncio.create_task(self.peer.ask(DeleteTopic(topic)))
        await self.clock.advance_until(lambda: self.broker.serving.store.log.end > end, 0.0)
        return task

    async def again(self, deleting: "asyncio.Task[Any]") -> None:
        """The deletion is committed, and the topic made once more."""
        self.disk.flushes.set()
        await deleting
        await self.make()

    def waits(self) -> list[Source]:
        """Delayed messages."""
        return [source for bite in self.broker.serving.tables.due.below(1 << 62, 100) for source in bite]

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
    await node.again(deleting)
    await node.peer.send(send("T", b"new"))
    assert bodies(await take(node.peer.ask, hidden_ms=1000)) == [b"new"], "nothing of the life before"
    async with asyncio.timeout(20):
        while await node.end(RETRY) < 1:
            await node.clock.advance(1)
    await node.restart_without_queues()
    assert (await node.end("T"), await node.end(RETRY)) == (1, 1)
    assert bodies(await take(node.peer.ask)) == [b"new"]


async def test_a_retry_topic_that_is_being_made_when_its_topic_is_deleted(node: Node) -> None:
    """The deletion knew nothing of it: what came back stayed for whoever popped of the topic's next life."""
    await node.peer.send(send("T", b"old"))
    assert len(await take(node.peer.ask, hidden_ms=1000)) == 1
    log, end = node.broker.serving.store.log, node.broker.serving.store.log.end
    node.disk.flushes.clear()
    await node.clock.advance_until(lambda: log.end > end)
    deleting = await node.deleting()
    await node.again(deleting)
    await node.clock.advance(5)
    assert await take(node.peer.ask) == []
    assert await node.peer.ask_code(GetMaxOffset(RETRY, 0)) or await node.end(RETRY) == 0


@pytest.mark.parametrize("deletion", [DeleteTopic("T"), DeleteGroup("g")], ids=["topic", "group"])
async def test_no_retry_topic_is_made_for_what_was_deleted_meanwhile(
    node: Node, monkeypatch: pytest.MonkeyPatch, deletion: Any
) -> None:
    """Revive was reading the messages: an empty topic stayed for good; or one with messages for the next group of that name."""
    await node.peer.send(send("T", b"old"))
    assert len(await take(node.peer.ask, hidden_ms=1000)) == 1
    reading, go_on = hold_reads(monkeypatch, InternalProducer)
    await node.clock.advance_until(reading.is_set)
    await node.peer.ask(deletion)
    go_on.set()
    await node.clock.advance(5)
    assert await node.peer.refusal(GetTopicConfig(RETRY)) == R.TOPIC_NOT_EXIST


async def test_what_came_back_to_a_group_that_was_deleted_before_its_topic(node: Node) -> None:
    """Story 35: nobody knew any more whose retry topic that is, so it stayed, and so did what is in it. A group of that name gets
    nothing of it in the topic's next life, and is not shown it either."""
    await come_back(node, b"1", b"2")
    await node.peer.ask(DeleteGroup("g", clean_offset=True))
    await node.peer.ask(DeleteTopic("T"))
    await node.make()
    await node.peer.send(send("T", b"new"))
    assert bodies(popped(await node.peer.ask(Peek("g", "T", -1, 8)), pop())) == [b"new"]
    assert bodies(await take(node.peer.ask, hidden_ms=1000)) == [b"new"]
    async with asyncio.timeout(20):
        while await node.end(RETRY) < 3:
            await node.clock.advance(1)
    assert bodies(await take(node.peer.ask)) == [b"new"], "what comes back in this life comes"


async def test_a_pop_while_its_topic_is_being_deleted(node: Node) -> None:
    """Its receipt would move the place of the group in the topic's next life."""
    await node.peer.send(send("T", b"1"), send("T", b"2"))
    deleting = await node.deleting()
    popping = asyncio.create_task(node.peer.ask_code(pop(count=2)))
    await node.clock.advance(0.1)
    await node.again(deleting)
    assert await popping == R.SYSTEM_BUSY
    await node.peer.send(send("T", b"new"))
    assert bodies(await take(node.peer.ask)) == [b"new"]


async def test_a_pop_that_was_reading_over_a_deletion(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It read of one life and would have written its receipt in the next."""
    await node.peer.send(send("T", b"1"), send("T", b"2"))
    reading, go_on = hold_reads(monkeypatch, QueueReader)
    other = await Peer.connect(node.broker.address, "other")
    popping = asyncio.create_task(take(other.ask, pop(count=2, queue_id=0)))
    await reading.wait()
    await node.peer.ask(DeleteTopic("T"))
    await node.make()
    await node.peer.send(send("T", b"new"))
    go_on.set()
    assert bodies([*await popping, *await take(node.peer.ask)]) == [b"new"], "it looked again"
    await other.close()


def waiting(body: bytes, **said: object) -> Send:
    properties = record.properties_to_bytes({"UNIQ_KEY": body.hex(), **{name: str(value) for name, value in said.items()}})
    return Send("p", "T", 0, record.draft("T", body, properties, born_timestamp=1000, born_host=BORN))


async def test_delayed_messages_of_a_deleted_topic_do_not_come_in_its_next_life(node: Node) -> None:
    """Levels and timers; those of the next life do."""
    await node.peer.send(waiting(b"level", DELAY=1), waiting(b"timer", TIMER_DELAY_MS=1500))
    await node.peer.ask(DeleteTopic("T"))
    await node.make()
    await node.peer.send(waiting(b"new level", DELAY=1), waiting(b"new timer", TIMER_DELAY_MS=1500))
    async with asyncio.timeout(20):
        while await node.end("T") < 2:
            await node.clock.advance(1)
    await node.clock.advance_until(lambda: not node.waits())
    assert sorted(one.body for one in await everything(node.peer)) == [b"new level", b"new timer"]


async def test_a_delayed_message_is_due_while_its_topic_is_being_deleted(node: Node) -> None:
    """Neither put nor dropped before that is decided: here the deletion is decided, and it goes."""
    await node.peer.send(waiting(b"1", DELAY=1))
    deleting = await node.deleting()
    await node.clock.advance(4)  # at 5 s the deletion's outcome is unknown [syncFlushTimeout]
    assert len(node.waits()) == 1, "it still waits"
    await node.again(deleting)
    await node.clock.advance_until(lambda: not node.waits())
    assert await everything(node.peer) == []
    await node.restart_without_queues()
    assert await node.end("T") == 0


async def test_delayed_messages_are_dropped_after_a_restart_too(node: Node) -> None:
    """Deletions are known from the snapshot, and from the log without one."""
    await node.peer.send(waiting(b"1", DELAY=2))
    await node.peer.ask(DeleteTopic("T"))
    await node.make()
    await node.stop()
    await node.start()
    await node.clock.advance(20)
    assert await everything(node.peer) == []


async def test_transactions_of_a_deleted_topic_are_rolled_back(node: Node) -> None:
    """Whether their producer speaks or is to be asked; in the topic's next life a commit stores nothing."""
    await node.peer.ask(beat("c", "g"))
    spoken, asked = await node.peer.send(half(b"spoken"), half(b"asked"))
    await node.peer.ask(DeleteTopic("T"))
    await node.make()
    [new] = await node.peer.send(half(b"new"))
    assert await node.peer.refusal(end(spoken)) == R.TOPIC_NOT_EXIST
    assert await node.peer.refusal(end(spoken)) == R.ILLEGAL_OPERATION, "it was rolled back"
    await node.peer.ask(end(new))
    await node.clock.advance(90)
    assert checks(node.peer) == [], "nobody is asked after what has no place to go"
    assert await node.peer.refusal(end(asked)) == R.ILLEGAL_OPERATION
    assert [one.body for one in await everything(node.peer)] == [b"new"]
    assert not node.broker.serving.tables.halves.open.rows


async def test_what_is_said_of_a_topic_behind_its_deletion_goes_with_it(node: Node) -> None:
    """Offsets and locks; in its next life nobody has them."""
    await node.peer.ask(beat("c", "g"))
    await node.peer.send(send("T", b"1"), send("T", b"2"))
    end = node.broker.serving.store.log.end
    node.disk.flushes.clear()
    deleting = asyncio.create_task(node.peer.ask(DeleteTopic("T")))
    await node.clock.advance_until(lambda: node.broker.serving.store.log.end > end, 0.0)
    lines = [("offset", ("g", "T", 0), 2), ("lock", ("g", "T", 0), "c"), ("mode", "T@g", ["POP", 0])]
    written = asyncio.create_task(node.broker.serving.writer.commit(lines))
    await node.clock.advance(0.1)
    await node.again(deleting)
    await written
    tables = node.broker.serving.tables
    assert await node.peer.refusal(QueryConsumerOffset("g", "T", 0, False)) == R.QUERY_NOT_FOUND
    assert [key for key in (*tables.offsets.committed(), *tables.locks.committed()) if key.topic == "T"] == []
    assert not tables.modes.committed()
    assert tables.locks.lock("another", [("g", "T", 0)], node.clock.monotonic())[0], "the lock is free"


async def test_those_who_wait_for_messages_hear_of_a_deletion_at_once(node: Node) -> None:
    """Pulls and pops."""
    peers = [await Peer.connect(node.broker.address, f"c{number}") for number in range(2)]
    await node.peer.ask(beat("c", "g"))
    asked = [
        asyncio.create_task(peers[0].ask_code(pop(poll_ms=60_000))),
        asyncio.create_task(peers[1].pull("T", 0, HELD, suspend_timeout_ms=60_000)),
    ]
    await node.clock.advance(0.5)
    await node.peer.ask(DeleteTopic("T"))
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert outcomes[0] == R.TOPIC_NOT_EXIST
    for peer in peers:
        await peer.close()


async def test_a_reader_of_the_former_life_hears_of_it_later(node: Node) -> None:
    """It was busy meanwhile. Its numbers mean other messages now, so nothing is read from there on, and nothing committed."""
    await node.peer.send(*(send("T") for _ in range(3)))
    stale = record.decode((await node.peer.pull("T", 1)).messages).physical_offset
    await node.peer.ask(DeleteTopic("T"))
    await node.make()
    await node.peer.send(*(send("T", b"new") for _ in range(3)))
    late = {"after": stale, "flag": HELD | 1, "commit_offset": 2}
    for _ in range(2):
        with pytest.raises(Refusal, match="made again") as refusal:
            await node.peer.pull("T", 2, **late)
        assert refusal.value.code == R.TOPIC_NOT_EXIST
        for _ in range(2):  # the same reader in the present life; then such pulls are checked no more
            fresh = record.decode((await node.peer.pull("T", 1, HELD | 1)).messages).physical_offset
            assert (await node.peer.pull("T", 2, HELD | 1, after=fresh)).max_offset == 3
    assert await node.peer.ask(QueryConsumerOffset("g", "T", 0)) == OffsetAnswer(0)


async def test_a_deletion_in_the_tail_that_a_new_leader_inherits(tmp_path: Path) -> None:
    """Story 35: sends are refused until it is dispatched, then numbers begin at 0, at all nodes."""
    async with LocalGroup(tmp_path) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", "TBW102", 1, 1))
        await leader.send(send("T", b"1"), send("T", b"2"))
        await group.level()
        first, (second, third) = await group.leader(), await group.followers()
        await group.stop(third)
        await leader.ask(DeleteTopic("T"))
        await group.stop(first)
        await group.start(third, first)
        await group.clock.advance(3)
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", "TBW102", 1, 1))
        await leader.send(send("T", b"new"))
        await group.level()
        for name in group.nodes:
            peer = await group.connect(name)
            assert [one.body for one in await everything(peer)] == [b"new"], (name, second)


async def test_what_waits_for_a_deleted_topic_is_not_carried_forward(node: Node) -> None:
    """Stories 39, 40: an old segment goes, and what waits there for a life that has ended; not before that is decided."""
    await node.peer.send(waiting(b"1", DELAY=10), waiting(b"2", TIMER_DELAY_MS=600_000), half(b"3"))
    store, tables = node.broker.serving.store, node.broker.serving.tables
    deleting = await node.deleting()
    end = store.log.end
    await node.broker.serving.carry_forward(end)
    assert (len(node.waits()), len(tables.halves.open.rows), store.log.end) == (2, 1, end)
    await node.again(deleting)
    numbers = [store.queues.get(topic, queue_id).max for topic, queue_id in CARRIED]
    await node.broker.serving.carry_forward(store.log.end)
    assert (node.waits(), tables.halves.open.rows) == ([], {})
    assert [store.queues.get(topic, queue_id).max for topic, queue_id in CARRIED] == numbers, "nothing was appended again"
