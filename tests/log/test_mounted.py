"""A store whose `commitlog/` is a disk of its own, mounted there."""

import errno

import pytest

from rmq.log.files.memory import MemoryDisk
from tests.log.conftest import ROOT, SETTINGS, Bench


class TwoDisks(MemoryDisk):
    """One for a directory alone."""

    def __init__(self, mounted: str = "commitlog") -> None:
        super().__init__()
        self._mounted = mounted

    def together(self, one: str, other: str) -> bool:
        return False

    def used_ratio(self, path: str) -> float:
        return 0.8 if path.endswith(f"/{self._mounted}") else 0.1


@pytest.mark.parametrize("disk", [TwoDisks(), MemoryDisk()], ids=["seen", "met"])
def test_a_log_on_a_disk_of_its_own_makes_its_files_where_they_stay(disk: MemoryDisk) -> None:
    """`commitlog/` is a mount: nothing can be renamed from `rmq/` to there, and the disk with `rmq/` may be a small one."""

    def before(operation: str, path: str) -> None:
        if operation == "rename" and "/commitlog/" in path:
            raise OSError(errno.EXDEV, "Invalid cross-device link", path)

    disk.before = before
    bench = Bench(SETTINGS, disk).begin()
    for _ in range(40):
        bench.send(b"x" * 900)
    assert len(bench.store.log.segments()) > 3
    assert not disk.exists(f"{ROOT}/rmq/next")
    assert any(path.endswith("/next") for _, path in disk.operations) != isinstance(disk, TwoDisks)
    disk.crash(lambda: True)
    bench.open()
    assert len(bench.bodies()) == 40


@pytest.mark.parametrize("mounted", ["commitlog", "consumequeue"])
def test_the_fuller_disk_counts(mounted: str) -> None:
    """Where the queues' own disk was full, their entries stayed in memory, for as long as sends were taken."""
    assert Bench(disk=TwoDisks(mounted)).store.cleaning.fullest() == (0.8, f"{ROOT}/{mounted}")
