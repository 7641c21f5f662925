"""The real disk does what the port promises, and the memory disk forgets what it should."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rmq.errors import StoreError
from rmq.log.files.disk import Disk, RealDisk, allocated
from rmq.log.files.memory import MemoryDisk
from rmq.log.reader import committed_end, read_records, read_segments
from rmq.log.records.checking import check
from rmq.log.store import Store, StoreSettings
from rmq.log.units import Unit
from tests.log.conftest import HOST, draft

SETTINGS = StoreSettings(HOST, segment_bytes=65536, queue_file_entries=100)


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return RealDisk(), str(tmp_path)
    made = MemoryDisk()
    made.make_directory("/d")
    return made, "/d"


def test_both_disks_keep_the_port(disk: tuple[Disk, str]) -> None:
    """The twin is judged by the same calls as the real one."""
    port, root = disk
    port.make_directory(f"{root}/a/b")
    handle = port.create(f"{root}/a/b/file")
    port.allocate(handle, 8192)
    assert port.pread(handle, 10_000, 0) == bytes(8192)
    assert port.pwrite(handle, b"hello", 100) == 5
    assert port.pread(handle, 5, 100) == b"hello"
    assert port.pread(handle, 100, 8190) == bytes(2)
    found = bytearray(7)
    assert port.pread_cached(handle, memoryview(found), 99)
    assert bytes(found) == b"\0hello\0"
    first = port.data_from(handle, 0)
    assert first is not None
    assert first <= 100
    port.truncate(handle, 102)
    port.truncate(handle, 200)
    assert port.pread(handle, 200, 0) == bytes(100) + b"he" + bytes(98)
    port.fdatasync(handle)
    port.close(handle)
    port.rename(f"{root}/a/b/file", f"{root}/a/b/name")
    port.fsync_directory(f"{root}/a/b")
    assert (port.size(f"{root}/a/b/name"), port.listdir(f"{root}/a/b"), port.exists(f"{root}/a/b/file")) == (200, ["name"], False)
    assert port.listdir(f"{root}/nowhere") == []
    with pytest.raises(OSError, match="not empty"):
        port.remove_directory(f"{root}/a/b")
    port.unlink(f"{root}/a/b/name")
    port.remove_directory(f"{root}/a/b")
    for call in (port.open, port.unlink, port.size):
        with pytest.raises(FileNotFoundError):
            call(f"{root}/a/b/name")
    assert port.listdir(f"{root}/a") == []
    assert port.boot_id() == port.boot_id()
    assert len(port.random_bytes(8)) == 8
    lock = port.lock(f"{root}/lock")
    with pytest.raises(StoreError, match="stop that one first"):
        port.lock(f"{root}/lock")
    port.unlock(lock)
    port.unlock(port.lock(f"{root}/lock"))


def test_files_and_directories_are_the_owners_alone(tmp_path: Path) -> None:
    """S13."""
    disk = RealDisk()
    disk.make_directory(f"{tmp_path}/a/b")
    disk.close(disk.create(f"{tmp_path}/a/b/file"))
    disk.unlock(disk.lock(f"{tmp_path}/a/lock"))
    modes = [stat.S_IMODE(os.stat(f"{tmp_path}/{name}").st_mode) for name in ("a", "a/b", "a/b/file", "a/lock")]
    assert modes == [0o700, 0o700, 0o600, 0o600]
    assert Path(f"{tmp_path}/a/lock").read_bytes() == b"lock"


def fill(store: Store, count: int) -> None:
    for number in range(count):
        records = draft("T", b"%d" % number * 50, TAGS="a")
        checked = check(records, "T")
        store.log.append([Unit(records, checked.sizes, checked.tags_codes, store.queues.get("T", number % 4))], 1000 + number)
    store.dispatcher.advance(store.log.flush())


def test_a_store_on_the_real_disk(tmp_path: Path) -> None:
    """Append, roll, kill, recover, stop, start; and the read-only reader sees the committed records."""
    store = Store.open(RealDisk(), str(tmp_path / "store"), SETTINGS)
    store.open_epoch(1)
    fill(store, 900)
    store.save_progress()
    end = store.log.end
    assert len(store.log.segments()) > 2
    spans = store.queues.get("T", 2).find(0, 32, 1 << 18, None).spans
    assert store.log.gather(spans) in (None, store.log.gather_cold(spans))
    assert committed_end(str(tmp_path / "store")) == end
    fill(store, 1)
    segments = read_segments(str(tmp_path / "store"))
    assert all(entry.epoch for segment in segments for entry in segment.epochs)
    seen = [one for segment in segments for one in read_records(segment, end)]
    assert sum(one.topic == "T" for one in seen) == 900
    store.abandon()
    store = Store.open(RealDisk(), str(tmp_path / "store"), SETTINGS)
    assert not store.recovered.clean
    assert store.log.end > end
    assert sum(1 for _ in store.records("T", 0)) == 226
    store.close()
    store = Store.open(RealDisk(), str(tmp_path / "store"), SETTINGS)
    assert store.recovered.clean
    assert not store.recovered.may_have_lost
    store.close()


def test_stale_bytes_in_an_allocated_file_are_found_and_zeroed(tmp_path: Path) -> None:
    """Not flushed yet, and far behind the end: the file system may not take them for a hole."""
    store = Store.open(RealDisk(), str(tmp_path), SETTINGS)
    store.open_epoch(1)
    end = store.log.flush()
    store.abandon()
    path = tmp_path / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(40_000)
        file.write(b"stale")
        file.flush()
        store = Store.open(RealDisk(), str(tmp_path), SETTINGS)
    assert (store.log.end, store.recovered.cut_bytes) == (end, 40_005 - end)
    store.close()
    content = path.read_bytes()
    assert len(content) == 65536
    assert not content[end:].strip(b"\0")


class TakesAll(MemoryDisk):
    """There is not room for a whole file: what there is is taken, and kept, as by posix_fallocate."""

    def allocate(self, handle: int, size: int) -> None:
        super().allocate(handle, size - 1)
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_does_not_fit_leaves_nothing_behind() -> None:
    disk = TakesAll()
    disk.make_directory("/d")
    with pytest.raises(OSError, match="No space left"):
        allocated(disk, "/d/file", 8192)
    assert not disk.exists("/d/file")


def test_what_cannot_fit_takes_no_room_on_the_way(tmp_path: Path) -> None:
    """Others find some meanwhile, who need little. A file system without the length of such a file says so."""
    disk = RealDisk()
    handle = disk.create(f"{tmp_path}/file")
    with pytest.raises(OSError, match=r"No space left on device for a file of \d+ bytes \(segment_bytes\)"):
        disk.allocate(handle, 1 << 60)
    assert disk.size(f"{tmp_path}/file") == 0
    disk.close(handle)


class CountingDisk(RealDisk):
    """`came`: bytes that were read."""

    came = 0

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        data = super().pread(handle, size, offset)
        self.came += len(data)
        return data


def test_a_start_after_a_kill_does_not_read_what_was_only_allocated(tmp_path: Path) -> None:
    """The kernel reads ahead behind the last record, and would take these zeros for data, and read on behind them."""
    settings, disk = SETTINGS._replace(segment_bytes=64 << 20), CountingDisk()
    probe = disk.create(f"{tmp_path}/probe")
    disk.allocate(probe, 1 << 20)
    if disk.data_from(probe, 0) is not None:
        pytest.skip("this file system keeps allocated zeros as data")
    disk.close(probe)
    store = Store.open(disk, str(tmp_path / "store"), settings)
    store.open_epoch(1)
    fill(store, 9000)
    end = store.log.flush()
    store.abandon()
    disk.came = 0
    store = Store.open(disk, str(tmp_path / "store"), settings)
    assert (store.recovered.clean, store.log.end, store.recovered.cut_bytes) == (False, end, 0)
    assert disk.came < 4 * end + (8 << 20)
    store.close()


def test_who_reads_the_newest_bytes_makes_no_zeros_in_memory_behind_them(tmp_path: Path) -> None:
    """The kernel reads ahead into what was only allocated, while the event loop waits."""
    disk = RealDisk()
    store = Store.open(disk, str(tmp_path), SETTINGS._replace(segment_bytes=64 << 20))
    store.open_epoch(1)
    fill(store, 2000)
    [segment] = store.log.segments()
    behind, handle = store.log.end // (4 << 20) * (4 << 20) + (4 << 20), disk.open(segment.path)
    if disk.data_from(handle, behind) is not None:
        pytest.skip("this file system keeps allocated zeros as data")
    for page in range(2):
        segment.read(behind + page * 4096, 1)
    assert disk.data_from(handle, behind + 2 * 4096) is None
    disk.close(handle)
    store.close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    """D16: also when the first is in another process, and the answer says what to do."""
    code = (
        "import sys; from rmq.log.files.disk import RealDisk; from rmq.log.store import Store, StoreSettings\n"
        "store = Store.open(RealDisk(), sys.argv[1], StoreSettings(bytes(8), segment_bytes=65536)); print('open', flush=True)\n"
        "sys.stdin.read()"
    )
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StoreError, match=r"in use by another process.*directory of its own"):
            Store.open(RealDisk(), str(tmp_path), SETTINGS)
        other.kill()
    Store.open(RealDisk(), str(tmp_path), SETTINGS).close()


def test_a_directory_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot use"):
        Store.open(RealDisk(), str(tmp_path / "file" / "store"), SETTINGS)


def test_the_memory_disk_forgets_sectors_and_names() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    handle = disk.create("/d/a")
    disk.pwrite(handle, b"x" * 2000, 0)
    disk.fdatasync(handle)
    disk.crash()
    assert disk.paths() == []
    handle = disk.create("/d/a")
    disk.pwrite(handle, b"x" * 2000, 0)
    disk.fdatasync(handle)
    disk.fsync_directory("/d")
    disk.pwrite(handle, b"y" * 2000, 0)
    answers = iter([True, False, True, False])
    disk.crash(lambda: next(answers))
    assert bytes(disk.content("/d/a")) == b"y" * 512 + b"x" * 512 + b"y" * 512 + b"x" * 464
    disk.rename("/d/a", "/d/b")
    disk.crash()
    assert disk.paths() == ["/d/a"]


def test_the_memory_disk_loses_what_a_failed_flush_held() -> None:
    """D4: as with Linux, the flush after the failed one succeeds, and the bytes are seen until the power goes."""
    disk = MemoryDisk(sector_bytes=4096)
    disk.make_directory("/d")
    handle = disk.create("/d/a")
    disk.pwrite(handle, b"x" * 8192, 0)
    disk.fdatasync(handle)
    disk.fsync_directory("/d")
    disk.pwrite(handle, b"y" * 5000, 0)

    def fail(operation: str, path: str) -> None:
        raise OSError(5, "input/output error")

    disk.before = fail
    with pytest.raises(OSError, match="input"):
        disk.fdatasync(handle)
    disk.before = lambda operation, path: None
    disk.fdatasync(handle)
    assert disk.pread(handle, 5000, 0) == b"y" * 5000
    disk.crash()
    assert bytes(disk.content("/d/a")) == b"x" * 8192
