"""Log files are shipped whole or not at all, and what was shipped comes back on empty hosts."""

import asyncio
import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmq.cli import run
from rmq.errors import BadBytes, StoreError
from rmq.log import reader
from rmq.log.files import ownfiles
from rmq.log.files.disk import RealDisk
from rmq.log.records.record import Record, draft, host_bytes
from rmq.log.store import Store, StoreSettings
from rmq.log.units import Unit
from rmq.model import GroupConfig
from rmq.net.commands import (
    DeleteExpiredLog,
    GetTopicConfig,
    QueryConsumerOffset,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateTopic,
)
from rmq.net.commands.peers import AddPeer
from rmq.ops import manifest
from rmq.ops.archive import ship, verify
from rmq.ops.places import Folder, Remote
from rmq.ops.restore import Member, restore
from rmq.testing import TestClock
from tests.broker.groups import SHORT_LIVED, LocalGroup, fill_and_restart_later
from tests.broker.support import Peer, everything, send
from tests.faults.node import NodeProcess

HOST = host_bytes("127.0.0.1", 10911)
SMALL = StoreSettings(HOST, segment_bytes=8192, group="orders")


def grow(root: Path, count: int, settings: StoreSettings = SMALL, body: bytes = b"x" * 300) -> None:
    """So many messages more, in a store that is opened and closed in order."""
    store = Store.open(RealDisk(), str(root), settings)
    now_ms = time.time_ns() // 1_000_000
    store.open_epoch(now_ms)
    queue = store.queues.get("T", 0)
    for _ in range(count):
        record = draft("T", b"%d " % queue.next + body, b"", born_timestamp=now_ms, born_host=HOST)
        store.log.append([Unit(record, (len(record),), (0,), queue)], now_ms)
        store.dispatcher.advance(store.log.flush())
    store.save_progress()
    store.close()


def messages(root: Path) -> list[Record]:
    end = reader.committed_end(str(root))
    found = (one for segment in reader.read_segments(str(root)) for one in reader.read_records(segment, end))
    return [one for one in found if one.topic == "T"]


def numbers(root: Path) -> list[int]:
    return [int(one.body.rstrip(b"x")) for one in messages(root)]


@pytest.mark.parametrize("remote", [False, True], ids=["directory", "pyarrow"])
def test_what_is_rolled_is_shipped_once_and_read_like_a_store(tmp_path: Path, remote: bool) -> None:
    store, where = tmp_path / "store", tmp_path / "archive"
    place: Folder | Remote = Folder(where)
    if remote:
        fs = pytest.importorskip("pyarrow.fs", reason="needs the extra spark")
        place = Remote(fs.LocalFileSystem(), str(where), "local")
    grow(store, 50)
    first = ship(store, place)
    assert first.segments == len(first.manifest.segments) == 2
    assert 0 < first.left_bytes < 8192
    assert numbers(where) == numbers(store)[: len(numbers(where))]
    assert ship(store, place).segments == 0
    grow(store, 50)
    second = ship(store, place)
    assert second.segments == 3
    for stored in second.manifest.segments:
        assert (where / stored.path).read_bytes() == (store / stored.path).read_bytes()
    assert verify(place) == []
    assert ownfiles.load_archived(RealDisk(), str(store / "rmq")) == second.manifest.end
    with pytest.raises(StoreError, match="is an archive: make a store of it"):
        Store.open(RealDisk(), str(where), SMALL)


async def test_three_kills_of_a_job_leave_whole_files_only(tmp_path: Path) -> None:
    """SIGKILL after the first files; readers see a log without a hole at any time, the next job goes on behind."""
    store, where = tmp_path / "store", tmp_path / "archive"
    grow(store, 15, StoreSettings(HOST, segment_bytes=4 << 20, group="orders"), b"x" * 3_000_000)
    arguments = [sys.executable, "-m", "rmq.cli", "archive", str(store), str(where)]
    for kill in range(3):
        before = len(list((where / "commitlog").glob("*"))) if where.exists() else 0
        job = await asyncio.create_subprocess_exec(*arguments, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(60):  # in the middle of a file, or just behind one
            while len(list((where / "commitlog").glob("*"))) <= before + kill and job.returncode is None:
                await asyncio.sleep(0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(job.pid, signal.SIGKILL)
        assert await job.wait() == -signal.SIGKILL
        await job.communicate()
        known = manifest.load(Folder(where))
        if known is not None:
            assert verify(Folder(where)) == []
            assert (reader.committed_end(str(where)) or 0) <= known.end
            assert numbers(where) == list(range(len(numbers(where))))
    assert run(["archive", str(store), str(where), "--verify"]) == 0
    assert numbers(where) == list(range(14))
    assert not list(where.rglob("*.new"))


def test_before_the_first_full_file_there_is_no_archive_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, where = tmp_path / "store", tmp_path / "archive"
    grow(store, 1)
    assert run(["archive", str(store), str(where)]) == 0
    assert run(["archive", "--verify", str(where)]) == 1
    assert "which comes with the first full file of a log" in capsys.readouterr().err


def test_damage_is_not_shipped_and_damage_there_is_found(tmp_path: Path) -> None:
    store, where = tmp_path / "store", tmp_path / "archive"
    grow(store, 100)
    ship(store, Folder(where))
    grow(store, 50)
    segment = store / "commitlog" / f"{5 * 8192:020d}"
    raw = segment.read_bytes()
    segment.write_bytes(raw[:700] + bytes([raw[700] ^ 1]) + raw[701:])
    with pytest.raises(BadBytes, match="CommitLog at"):
        ship(store, Folder(where))
    assert manifest.load(Folder(where)).end == 5 * 8192  # type: ignore[union-attr]
    segment.write_bytes(raw)
    ship(store, Folder(where))
    there = where / "commitlog" / f"{8192:020d}"
    there.write_bytes(there.read_bytes().replace(b"xxx", b"xxy", 1))
    (where / "commitlog" / f"{16384:020d}").unlink()
    assert run(["archive", "--verify", str(where)]) == 5
    assert run(["restore", str(where), str(tmp_path / "other")]) == 5
    with pytest.raises(BadBytes, match=r"damaged \(wrong checksum\)"):
        restore(Folder(where), tmp_path / "new", Member(), TestClock())
    assert not (tmp_path / "new" / "commitlog").exists()


def test_an_archive_inside_the_store_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store"
    grow(store, 100)
    (tmp_path / "link").symlink_to(store)
    before = sorted(store.rglob("*"))
    for inside in (store, store / "commitlog" / "sub", tmp_path / "link" / "a"):
        assert run(["archive", str(store), str(inside)]) == 2
    assert sorted(store.rglob("*")) == before


def test_a_restore_that_was_killed_behind_its_last_move_is_told_as_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grow(tmp_path / "store", 100)
    where, new = tmp_path / "archive", tmp_path / "new"
    ship(tmp_path / "store", Folder(where))
    assert run(["restore", str(where), str(tmp_path / "six"), "--node", "n0-[::1]:10911"]) == 0
    assert run(["restore", str(where), str(tmp_path / "bad"), "--node", "n0-nowhere"]) == 2
    assert run(["restore", str(where), str(new)]) == 0
    said = capsys.readouterr().out.strip().rpartition("; ")[2]
    (new / ".lock").touch()  # as it was a moment before the end
    assert run(["restore", str(where), str(new)]) == 1
    assert f"If `rmq restore` made it, that is done: {said}. Otherwise give a new directory" in capsys.readouterr().err
    assert said == f"start a node with brokerName=orders, mappedFileSizeCommitLog=8192, storePathRootDir={new}"


def test_another_log_or_a_gap_is_refused(tmp_path: Path) -> None:
    store, other, where = tmp_path / "store", tmp_path / "other", tmp_path / "archive"
    grow(store, 100)
    grow(other, 100)
    ship(store, Folder(where))
    with pytest.raises(StoreError, match="another log of the group orders"):
        ship(other, Folder(where))
    grow(store, 100)
    opened = Store.open(RealDisk(), str(store), SMALL)
    for segment in opened.cleaning.drop_before(7 * 8192):
        segment.withdraw()()
    opened.close()
    with pytest.raises(StoreError, match="not here any more: archive from another node"):
        ship(store, Folder(where))
    assert ownfiles.load_archived(RealDisk(), str(store / "rmq")) == 0, "retention waits until somebody has seen to it"
    another = Folder(tmp_path / "another")
    assert not ship(store, another).manifest.restorable, "it begins later, and there is no snapshot"
    with pytest.raises(StoreError, match="no snapshot of the tables"):
        restore(another, tmp_path / "new", Member(), TestClock())


async def test_restored_on_an_empty_host_a_node_serves_all_that_was_archived(tmp_path: Path) -> None:
    """Real processes. A restore that is killed at the end goes on; a node does not start on half of one."""
    small = {"segment_bytes": "140000", "max_message_bytes": "1000", "auto_create_topic": "true"}
    node = NodeProcess(tmp_path / "store", **small)
    await node.start()
    peer = await Peer.connect(node.address)
    await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await peer.ask(UpdateGroup(GroupConfig("g")))
    for number in range(600):
        await peer.ask(send("T", b"%d" % number + b"x" * 700))
        if number == 10:
            await peer.ask(UpdateConsumerOffset("g", "T", 0, 7))
    await peer.close()
    assert await node.stop() == 0
    where = tmp_path / "archive"
    assert run(["archive", str(tmp_path / "store"), str(where)]) == 0
    assert run(["restore", str(where), str(tmp_path / "new")]) == 0
    assert run(["restore", str(where), str(tmp_path / "new")]) == 1, "it is not empty"
    (tmp_path / "new" / "commitlog").rename(tmp_path / "aside")
    again = NodeProcess(tmp_path / "new", **small)
    with pytest.raises(RuntimeError, match="the node ended with 1"):
        await again.start()
    (tmp_path / "new" / "commitlog").rmdir()
    (tmp_path / "new" / "restored").mkdir()
    (tmp_path / "aside").rename(tmp_path / "new" / "restored" / "commitlog")
    assert run(["restore", str(where), str(tmp_path / "new")]) == 0, "it finishes what was killed"
    await again.start()
    peer = await Peer.connect(again.address)
    archived = numbers(where)
    assert 400 < len(archived) < 600
    assert [int(one.body.rstrip(b"x")) for one in await everything(peer)] == archived == list(range(len(archived)))
    assert (await peer.ask(QueryConsumerOffset("g", "T", 0))).offset == 7
    assert (await peer.ask(send("T", b"new"))).queue_offset == len(archived)
    await peer.close()
    assert await again.stop() == 0
    assert run(["store", "verify", str(tmp_path / "new")]) == 0
    with pytest.raises(StoreError, match="another log"):
        ship(tmp_path / "new", Folder(tmp_path / "archive"))


async def test_an_elected_group_comes_back_from_an_archive_that_begins_later(tmp_path: Path) -> None:
    """Retention had taken the beginning: the tables come from a snapshot. One node is restored, the others copy it."""
    where = Folder(tmp_path / "archive")
    async with LocalGroup(tmp_path / "old", **SHORT_LIVED) as group:
        await fill_and_restart_later(group)
        name = await group.leader()
        leader = await group.connect(name)
        await leader.ask(DeleteExpiredLog())
        await leader.send(*(send("T", b"y" * 2000) for _ in range(5)))
        await group.level()
        await group.stop("n0", "n1", "n2")
        ship(group.store(name), where)
        await group.start("n0", "n1", "n2")
        leader = await group.connect(await group.leader())
        await leader.send(*(send("T", b"z" * 2000) for _ in range(10)))
        await group.level()
        await group.stop("n0", "n1", "n2")
        archived = ship(group.store("n1"), where).manifest
        assert archived.restorable
        assert archived.start > 0
    back = LocalGroup(tmp_path / "new", count=1, spare=1, **SHORT_LIVED)
    host, _, port = back.peer_address("n0").rpartition(":")
    restore(where, tmp_path / "new" / "n0", Member("n0", host, int(port)), group.clock)
    back.clock = TestClock(wall_ms=group.clock.wall_ms())
    async with back:
        leader = await back.connect("n0")
        found = await everything(leader)
        assert [one.queue_offset for one in found] == [one.queue_offset for one in messages(tmp_path / "archive")]
        assert (await leader.ask(GetTopicConfig("Idle"))).read_queue_nums == 1
        assert (await leader.ask(QueryConsumerOffset("g", "T", 0))).offset == 7
        assert (await leader.send(send("Idle", b"next")))[0].queue_offset == 1
        await back.start("n1")
        await leader.ask(AddPeer("n1", back.peer_address("n1")))
        await back.level()
        assert len(await everything(await back.connect("n1"))) == len(found)


@pytest.fixture
def size_limit() -> Iterator[Callable[[int], None]]:
    """Files take so many bytes from then on, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda most: resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def test_an_error_of_the_disk_names_the_file(tmp_path: Path, size_limit: Callable[[int], None]) -> None:
    """It said "No space left on device" alone: source and target are two places."""
    grow(tmp_path / "store", 50)
    size_limit(4096)
    with pytest.raises(OSError, match="File too large") as failed:
        ship(tmp_path / "store", Folder(tmp_path / "archive"))
    assert failed.value.filename == f"{tmp_path}/archive/commitlog/{0:020}.new"
    size_limit(16384)
    ship(tmp_path / "store", Folder(tmp_path / "archive"))
    size_limit(4096)
    with pytest.raises(OSError, match="File too large") as failed:
        restore(Folder(tmp_path / "archive"), tmp_path / "new", Member(), TestClock())
    assert failed.value.filename == f"{tmp_path}/new/restoring/commitlog/{0:020}.new"
