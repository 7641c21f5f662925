"""A real disk that is full, has no inodes left, or turns read-only, under a node that serves (D4, D14)."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rmq.codes import ResponseCode as R
from rmq.errors import Refusal
from rmq.model import GroupConfig
from rmq.net.commands import DeleteTopic, GetMaxOffset, UpdateConsumerOffset, UpdateGroup, UpdateTopic
from rmq.testing import until
from tests.broker.support import Peer, beat, bodies, send
from tests.faults.node import NodeProcess
from tests.faults.smalldisk import SmallDisk, copying_disk, small_disk, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"full disk: {why_not()}")
SMALL = {"segment_bytes": str(2 << 20), "max_message_bytes": "100000"}
BODY = 20_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path, 64, "-N", "256") as disk:
        yield disk


class Node:
    """A node on the small disk, one connection, and what was acknowledged."""

    def __init__(self, disk: SmallDisk, log: Path, flush: str) -> None:
        self.process = NodeProcess(disk.path / "store", log=log, flush=flush, **SMALL)
        self.acknowledged: list[bytes] = []

    async def start(self) -> None:
        await self.process.start()
        self.peer = await Peer.connect(self.process.address)

    async def send(self, size: int = BODY) -> None:
        body = b"%d-" % len(self.acknowledged) + b"x" * size
        answer = await self.peer.ask(send("T", body))
        assert answer.queue_offset == len(self.acknowledged), "what was refused has been counted"
        self.acknowledged.append(body)

    async def send_until_refused(self) -> Refusal:
        while True:
            try:
                await self.send()
            except Refusal as refusal:
                return refusal

    async def send_until_taken(self) -> None:
        async with asyncio.timeout(30):
            while True:
                try:
                    return await self.send()
                except Refusal:
                    await asyncio.sleep(0)

    async def consume(self) -> list[bytes]:
        """From the beginning, as a consumer would."""
        found: list[bytes] = []
        while True:
            answer = await self.peer.pull("T", len(found))
            if answer.status != 0:
                return found
            found += bodies(answer)

    async def follow(self, full: asyncio.Event) -> list[bytes]:
        """A consumer beside the producer, until it has all that was acknowledged when the disk was full."""
        peer = await Peer.connect(self.process.address, "follower")
        found: list[bytes] = []
        while not full.is_set() or len(found) < len(self.acknowledged):
            found += bodies(await peer.pull("T", len(found)))
        await peer.close()
        return found

    async def end(self) -> None:
        await self.peer.close()
        await self.process.kill()


@pytest.fixture
async def node(disk: SmallDisk, tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(disk, tmp_path / "log", "sync")
    await node.start()
    await node.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    yield node
    await node.end()


async def test_a_full_disk_is_told_and_left_by_itself(disk: SmallDisk, node: Node) -> None:
    """D14: sends are refused, all else goes on; with space it goes on by itself; a kill in between loses nothing."""
    await node.peer.ask(UpdateTopic("Old", read_queue_nums=1, write_queue_nums=1))
    await node.peer.ask(UpdateGroup(GroupConfig("g")))
    await node.peer.ask(send("Old"))
    disk.fill(leave_bytes=5 << 20)
    full = asyncio.Event()
    following = asyncio.create_task(node.follow(full))
    refusal = await node.send_until_refused()
    full.set()
    assert await following == node.acknowledged
    assert refusal.code == R.SERVICE_NOT_AVAILABLE
    assert "No space left" in refusal.remark or "the disk with " in refusal.remark  # whoever looks first
    assert len(node.acknowledged) > 100
    disk.fill(leave_bytes=0)
    for _ in range(20):
        assert (await node.send_until_refused()).code == R.SERVICE_NOT_AVAILABLE
        assert await node.consume() == node.acknowledged, "consuming goes on"
    if await node.peer.ask_code(DeleteTopic("Old")) == R.SUCCESS:  # else retention has seen a disk of more than 95 % before
        await until(lambda: not (disk.path / "store" / "consumequeue" / "Old").exists())
    node.peer.channel.post(UpdateConsumerOffset("g", "T", 0, 7))
    assert (await node.peer.ask(GetMaxOffset("T", 0))).offset == len(node.acknowledged)
    for group in ("g", "new"):  # neither has a retry topic, and neither can be made when the last file is full, too
        assert await node.peer.ask_code(beat(f"{group}@1", group)) == 0, "who begins to consume then gets what there is"
    disk.free()
    await node.send_until_taken()
    for _ in range(50):
        await node.send()
    disk.fill(leave_bytes=0)
    await node.send_until_refused()
    await node.end()
    disk.free()
    await node.start()
    assert await node.consume() == node.acknowledged
    await node.send()
    assert "No space left" in node.process.log_text()
    assert "takes records again" in node.process.log_text()


async def test_a_node_stops_and_starts_in_order_on_a_full_disk_and_says_so_when_it_cannot(disk: SmallDisk, node: Node) -> None:
    """D14: stopped or not, what was acknowledged is there. What the store held back is enough for a stop and a start."""
    disk.fill(leave_bytes=3 << 20)
    await node.send_until_refused()
    disk.fill(leave_bytes=0)
    await node.peer.close()
    await node.process.stop()
    await node.start()
    assert await node.consume() == node.acknowledged
    await node.peer.close()
    await node.process.stop()
    disk.fill(leave_bytes=0)
    with pytest.raises(RuntimeError, match="No space left"):
        await node.process.start()
    disk.free()
    await node.start()
    assert await node.consume() == node.acknowledged
    await node.send_until_taken()


async def test_without_inodes_the_log_goes_on_as_long_as_its_files_do(disk: SmallDisk, node: Node) -> None:
    """D14: neither a new segment nor a queue of a new topic can be made; then they can again."""
    await node.send()
    disk.take_inodes()
    refusal = await node.send_until_refused()
    assert (refusal.code, "No space left" in refusal.remark) == (R.SERVICE_NOT_AVAILABLE, True)
    assert len(node.acknowledged) > 50, "the file at hand and the one made ahead are used up first"
    assert await node.consume() == node.acknowledged
    disk.free()
    await node.send_until_taken()
    await node.end()
    await node.start()
    assert await node.consume() == node.acknowledged


async def test_a_disk_that_turns_read_only_ends_writing_and_nothing_else(disk: SmallDisk, node: Node) -> None:
    """D4, D14: what was acknowledged under sync flush is there once the disk is mounted again."""
    for _ in range(50):
        await node.send()
    disk.break_down()
    refusal = await node.send_until_refused()
    assert refusal.code in (R.SERVICE_NOT_AVAILABLE, R.SYSTEM_ERROR)
    stored = len(node.acknowledged)
    assert (await node.consume())[:stored] == node.acknowledged, "reading goes on"
    assert (await node.send_until_refused()).code == R.SERVICE_NOT_AVAILABLE
    await node.end()
    disk.move()
    await node.start()
    assert (await node.consume())[:stored] == node.acknowledged
    node.acknowledged = await node.consume()
    await node.send()


async def test_a_log_file_with_holes_meets_a_full_disk(disk: SmallDisk, node: Node) -> None:
    """D14: a copy (`cp --sparse`), or a file system that copies on write, has no room set aside for the rest of the file."""
    for _ in range(5):
        await node.send()
    await node.peer.close()
    assert await node.process.stop() == 0
    disk.make_sparse(disk.path / "store")
    await node.start()
    disk.fill(leave_bytes=0)
    refusal = await node.send_until_refused()
    assert refusal.code == R.SERVICE_NOT_AVAILABLE
    for _ in range(20):
        assert (await node.send_until_refused()).code == R.SERVICE_NOT_AVAILABLE
        assert await node.consume() == node.acknowledged, "consuming goes on"
    disk.free()
    await node.send_until_taken()
    await node.send()
    assert "could not be undone" not in node.process.log_text()
    await node.end()
    await node.start()
    assert await node.consume() == node.acknowledged


@pytest.mark.skipif(not shutil.which("mkfs.btrfs"), reason="needs mkfs.btrfs")
async def test_a_file_system_that_copies_on_write_meets_a_full_disk(tmp_path: Path) -> None:
    """D14: a record needs new room though its file is there already."""
    with copying_disk(tmp_path) as disk:
        node = Node(disk, tmp_path / "log", "sync")
        await node.start()
        try:
            await node.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
            disk.fill(leave_bytes=3 << 20)
            assert (await node.send_until_refused()).code == R.SERVICE_NOT_AVAILABLE
            disk.fill(leave_bytes=0)
            for _ in range(5):
                assert (await node.send_until_refused()).code == R.SERVICE_NOT_AVAILABLE
                assert await node.consume() == node.acknowledged, "consuming goes on"
            disk.free()
            await node.send_until_taken()
            await node.end()
            await node.start()
            assert await node.consume() == node.acknowledged
        finally:
            await node.end()
