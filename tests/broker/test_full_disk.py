"""A broker whose disk is too full for anything: it frees itself, whatever waits in the old files."""

import dataclasses
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.codes import ResponseCode as R
from rmq.log.files.disk import RealDisk
from rmq.net.commands import Send, UpdateTopic
from rmq.net.commands.pop import Pop
from tests.broker.popping import pop
from tests.broker.support import send
from tests.broker.test_compaction import compacted, value
from tests.broker.test_delays import delayed
from tests.broker.test_retention import Node
from tests.broker.transactions import half


class Spoilt(RealDisk):
    """Files under `root`. `spoilt`: no room can be held back on it, for another reason than that there is none."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.used = 0.0
        self.spoilt = False
        self._root = root

    def paths(self) -> list[str]:
        return sorted(str(path) for path in self._root.rglob("*") if path.is_file())

    def used_ratio(self, path: str) -> float:
        return self.used

    def create(self, path: str) -> int:
        if self.spoilt and path.endswith("/rmq/reserve"):
            raise OSError(errno.EIO, "Input/output error", path)
        return super().create(path)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    node.settings = dataclasses.replace(node.settings, segment_bytes=16_384)
    await node.start()
    await node.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await node.peer.ask(send("T"))
    yield node
    await node.stop()


@pytest.mark.parametrize(
    "waits",
    [
        delayed(b"waits", TIMER_DELAY_SEC=24 * 3600),
        half(b"waits"),
        pop(hidden_ms=24 * 3_600_000),
        value("key", b"newest of its key"),
    ],
    ids=["delayed", "half", "popped", "compacted"],
)
async def test_a_disk_too_full_for_anything_frees_itself_of_what_waits_in_the_oldest_file(node: Node, waits: Send | Pop) -> None:
    """D14: the copies without which no file may go take none of the disk's room. Sends are refused all the while."""
    await node.peer.ask(compacted())
    await node.peer.ask(waits)
    assert len(node.segments()) == 1
    await node.grow(8)
    await node.snapshots(2)
    node.disk.used = 0.97
    await node.clock.advance_until(lambda: len(node.segments()) == 1, 10.0)
    assert await node.peer.refusal(send("T")) == R.SERVICE_NOT_AVAILABLE
    assert await node.peer.refusal(UpdateTopic("New", read_queue_nums=1, write_queue_nums=1)) == R.SERVICE_NOT_AVAILABLE


async def test_files_go_though_no_room_can_be_held_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node, disk = Node(tmp_path), Spoilt(tmp_path)
    node.disk = disk  # type: ignore[assignment]
    node.settings = dataclasses.replace(node.settings, segment_bytes=16_384)
    await node.start()
    await node.fill()
    disk.spoilt = True
    disk.unlink(f"{tmp_path}/rmq/reserve")
    disk.used = 0.86
    await node.clock.advance_until(lambda: len(node.segments()) == 1, 10.0)
    await node.clock.advance_until(lambda: "cannot hold back room" in caplog.text, 10.0)
    await node.stop()


async def test_a_disk_that_is_too_full_for_anything_within_a_minute_frees_itself(node: Node) -> None:
    """Nothing is committed from then on, and of the two snapshots that a deletion needs only the newest knows those files."""
    await node.snapshots(2)
    await node.grow(8)
    node.disk.used = 0.97
    await node.clock.advance_until(lambda: len(node.segments()) == 1, 10.0)


async def test_a_disk_too_full_for_anything_loses_what_lies_before_what_waits(node: Node) -> None:
    """Though the log's last file has no room for a copy."""
    log = node.broker.serving.store.log
    await node.grow(6)
    await node.snapshots(2)
    kept = len(node.segments())
    await node.peer.ask(delayed(b"x" * 900, TIMER_DELAY_SEC=24 * 3600))
    await node.grow(9)
    await node.snapshots(2)
    while (room := log.segments()[-1].end - log.end) > 900:
        await node.peer.ask(send("T", b"x" * min(900, max(room - 1100, 1))))
    before = node.segments()
    node.disk.used = 0.97
    await node.clock.advance_until(lambda: len(node.segments()) < len(before), 10.0)
    assert node.segments() == before[kept - 1 :]
    await node.clock.advance(30)
    assert node.segments() == before[kept - 1 :]
