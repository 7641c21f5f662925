"""What is being written for a group, or found out for one, while it or its topic is deleted: it must not come behind the deletion
in the log, where a group of that name that is made later would find it.

As in `test_deletions` a disk that does not flush holds what is to happen first.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rmq.broker.shared.state import lines_of
from rmq.codes import ResponseCode as R
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import record
from rmq.model import BROADCASTING, STATE_TOPIC, ConsumerData, GroupConfig, Subscription
from rmq.net.commands import (
    DeleteGroup,
    DeleteTopic,
    GetConsumeStats,
    GetMaxOffset,
    Heartbeat,
    Pull,
    QueryConsumerOffset,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateTopic,
)
from rmq.net.commands.resets import CloneOffsets, ResetOffset
from rmq.testing import until
from tests.broker.support import Peer, send
from tests.broker.test_deletions import Node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """With two messages in T, and a group g."""
    node = await Node(tmp_path).start()
    await node.make()
    await node.peer.ask(UpdateGroup(GroupConfig("g")))
    await node.peer.send(send("T", b"1"), send("T", b"2"))
    yield node
    await node.stop()


async def held(node: Node, request: Any) -> "asyncio.Task[Any]":
    """Returns once its line is in the log, not committed."""
    end = node.broker.serving.store.log.end
    node.disk.flushes.clear()
    task = asyncio.create_task(node.peer.ask(request))
    await node.clock.advance_until(lambda: node.broker.serving.store.log.end > end, 0.0)
    return task


async def offset(node: Node, group: str = "g") -> int | None:
    code = await node.peer.ask_code(ask := QueryConsumerOffset(group, "T", 0, False))
    return None if code == R.QUERY_NOT_FOUND else int((await node.peer.ask(ask)).offset)


async def test_a_commit_that_is_not_written_goes_with_its_group(node: Node) -> None:
    """It was written behind the deletion, 200 ms later, and the next group of that name began there."""
    node.peer.channel.post(UpdateConsumerOffset("g", "T", 0, 2))
    deleting = await held(node, DeleteGroup("g", True))
    await node.clock.advance(1)
    node.disk.flushes.set()
    await deleting
    await node.clock.advance(1)
    await node.peer.ask(UpdateGroup(GroupConfig("g")))
    assert await offset(node) is None


async def test_a_topic_whose_deletion_may_still_come_to_nothing_is_not_called_gone(node: Node) -> None:
    """A consumer whose topic is gone begins anew, and the next leader may have it: 200 committed messages came once more."""
    tool = await Peer.connect(node.broker.address, "tool")
    deleting = await held(node, DeleteTopic("T"))
    pull = Pull("g", "T", 0, 1, subscription="*")
    assert await tool.refusal(pull) == R.SYSTEM_BUSY
    assert await tool.refusal(UpdateConsumerOffset("g", "T", 0, 1)) == R.SYSTEM_BUSY
    node.disk.flushes.set()
    await deleting
    assert await tool.refusal(pull) == R.TOPIC_NOT_EXIST
    await tool.close()


async def test_a_reset_on_its_way_goes_with_its_group(node: Node) -> None:
    """It stands before the deletion, which did not know its offset."""
    tool = await Peer.connect(node.broker.address, "tool")
    resetting = await held(node, ResetOffset("T", "g", 0, 2))
    deleting = asyncio.create_task(tool.ask(DeleteGroup("g", True)))
    await until(lambda: node.broker.serving.tables.groups.is_leaving("g"))
    node.disk.flushes.set()
    await asyncio.gather(resetting, deleting)
    await node.peer.ask(UpdateGroup(GroupConfig("g")))
    assert await offset(node) is None
    await tool.close()


async def test_a_group_with_many_offsets_is_there_until_the_last_is_gone(node: Node) -> None:
    """Their lines take several records: after a kill between two of them the deletion can be repeated."""
    for topic in ("U", "V"):
        await node.peer.ask(UpdateTopic(topic, "TBW102", 1024, 1024))
        await node.peer.ask(ResetOffset(topic, "g"))
    begin = (await node.peer.ask(GetMaxOffset(STATE_TOPIC, 0))).offset
    await node.peer.ask(DeleteGroup("g", True))
    records = [*record.iterate((await node.peer.pull(STATE_TOPIC, begin)).messages)]
    assert [len(lines_of(one.body)) for one in records] == [2000, 49]
    assert lines_of(records[-1].body)[-1] == ("group", "g", None)
    assert not node.broker.serving.tables.offsets.committed()


async def test_a_group_that_is_deleted_while_offsets_are_copied_to_it(node: Node) -> None:
    """They were copied topic by topic: those of the second came behind the deletion."""
    await node.make("U")
    await node.peer.send(send("U"))
    await node.peer.ask(UpdateGroup(GroupConfig("copy")))
    for topic in ("T", "U"):
        await node.peer.ask(UpdateConsumerOffset("g", topic, 0, 1))
    tool = await Peer.connect(node.broker.address, "tool")
    cloning = await held(node, CloneOffsets("g", "copy"))
    deleting = asyncio.create_task(tool.ask(DeleteGroup("copy", True)))
    await until(lambda: node.broker.serving.tables.groups.is_leaving("copy"))
    node.disk.flushes.set()
    await asyncio.gather(cloning, deleting)
    assert not [key for key in node.broker.serving.tables.offsets.committed() if key.group == "copy"]
    await tool.close()


async def test_a_place_that_was_looked_up_in_the_life_before(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reset by time reads the log in a thread; the group was set behind the end of the topic made again."""
    reading, go_on, search = threading.Event(), threading.Event(), ConsumeQueue.search

    def slowly(self: ConsumeQueue, *asked: Any) -> int:
        reading.set()
        go_on.wait(20)
        return search(self, *asked)

    monkeypatch.setattr(ConsumeQueue, "search", slowly)
    tool = await Peer.connect(node.broker.address, "tool")
    late = ResetOffset("T", "g", timestamp=node.clock.wall_ms() + 3_600_000)
    resetting = asyncio.create_task(tool.refusal(late))
    await until(reading.is_set)
    await node.peer.ask(DeleteTopic("T"))
    await node.make()
    go_on.set()
    assert await resetting == R.SYSTEM_BUSY
    assert await offset(node) is None
    await tool.close()


async def test_how_far_a_deleted_group_had_pulled_is_forgotten(node: Node) -> None:
    """Tools showed messages in flight of a group made again, though nobody had pulled for it."""
    await node.peer.pull("T", 0)
    for clean in (True, False):
        await node.peer.ask(DeleteGroup("g", clean))
        await node.peer.ask(UpdateGroup(GroupConfig("g")))
        row = (await node.peer.ask(GetConsumeStats("g", "T"))).queues[0]
        assert (row.consumer_offset, row.pull_offset) == (0, 0)


# --- broadcast groups, whose slowest offsets are kept ---------------------------------------------------------------------------


@pytest.fixture
async def broadcast(node: Node) -> Node:
    data = ConsumerData("b", message_model=BROADCASTING, subscriptions=[Subscription("T")])
    await node.peer.ask(Heartbeat("c", [], [data]))
    await node.peer.ask(Pull("b", "T", 0, 1, sys_flag=4))
    await node.clock.advance_until(lambda: node.broker.serving.tables.cursors.committed())
    return node


async def test_a_deleted_broadcast_groups_offsets_are_not_written_again(broadcast: Node) -> None:
    """Five seconds later they were there again, for a group of that name that is made later."""
    await broadcast.peer.ask(DeleteGroup("b"))
    await broadcast.clock.advance(6)
    await broadcast.peer.ask(UpdateGroup(GroupConfig("b")))
    await broadcast.clock.advance(6)
    assert not broadcast.broker.serving.tables.cursors.committed()


@pytest.mark.parametrize("request_", [DeleteTopic("T"), DeleteGroup("b")], ids=["topic", "group"])
async def test_a_broadcast_groups_offsets_are_not_written_behind_a_deletion(broadcast: Node, request_: Any) -> None:
    await broadcast.clock.advance(3)
    await broadcast.peer.ask(Pull("b", "T", 0, 2, sys_flag=4))
    deleting = await held(broadcast, request_)
    await broadcast.clock.advance(2.5)
    broadcast.disk.flushes.set()
    await deleting
    await broadcast.clock.advance(6)
    assert not broadcast.broker.serving.tables.cursors.committed()
