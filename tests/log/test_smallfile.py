"""Our own small files: old or new after any crash, never half; never guessed at."""

from zlib import crc32

import pytest

from rmq.errors import StoreError
from rmq.log.files import ownfiles, smallfile
from rmq.log.files.epochs import EpochEntry
from rmq.log.files.memory import MemoryDisk, PowerLoss
from rmq.log.files.ownfiles import Progress, QueueRow, Run, Vote

VOTE = Vote("00ff00ff00ff00ff", "n0", "broker-a", 3, "-", 7, True)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/own")
    return disk


def test_what_is_saved_is_loaded(disk: MemoryDisk) -> None:
    ownfiles.save_vote(disk, "/own", VOTE)
    ownfiles.save_run(disk, "/own", Run("running", "-", "ASYNC_FLUSH", 12, 0))
    ownfiles.save_progress(disk, "/own", Progress(10, 9, 8, 7, 6))
    ownfiles.save_epochs(disk, "/own", (EpochEntry(1, 0, "aa"), EpochEntry(2, 50, "bb")), 70)
    ownfiles.save_queues(disk, "/own", [QueueRow("T", 0, 1, 5)])
    assert ownfiles.load_vote(disk, "/own") == VOTE
    assert ownfiles.load_run(disk, "/own") == Run("running", "-", "ASYNC_FLUSH", 12, 0)
    assert ownfiles.load_progress(disk, "/own") == Progress(10, 9, 8, 7, 6)
    assert ownfiles.load_epochs(disk, "/own") == ((EpochEntry(1, 0, "aa"), EpochEntry(2, 50, "bb")), 70)
    assert ownfiles.load_queues(disk, "/own") == [QueueRow("T", 0, 1, 5)]


def test_the_file_is_text_with_its_version_and_checksum(disk: MemoryDisk) -> None:
    ownfiles.save_vote(disk, "/own", VOTE)
    lines = smallfile.read_file(disk, "/own/vote").decode().splitlines()  # type: ignore[union-attr]
    assert lines[:3] == ["rmq-vote 1", "storeId 00ff00ff00ff00ff", "nodeId n0"]
    assert lines[-1].startswith("crc ")
    assert len(lines[-1]) == 12


def test_nothing_there_is_none(disk: MemoryDisk) -> None:
    loads = (ownfiles.load_vote, ownfiles.load_run, ownfiles.load_progress, ownfiles.load_epochs, ownfiles.load_queues)
    assert [load(disk, "/own") for load in loads] == [None] * 5


@pytest.mark.parametrize("kept", [True, False])
def test_a_crash_at_any_point_of_a_save_leaves_the_old_or_the_new_file(kept: bool) -> None:
    """D5: power is lost before each single operation, with and without what was not flushed."""
    for steps in range(20):
        disk = MemoryDisk()
        disk.make_directory("/own")
        ownfiles.save_vote(disk, "/own", VOTE)
        newer = VOTE._replace(epoch=4)
        finished = save_with_power_for(disk, newer, steps)
        disk.crash(lambda: kept)
        found = ownfiles.load_vote(disk, "/own")
        assert found in ((newer,) if finished else (VOTE, newer))
        if finished:
            return
    raise AssertionError("a save takes more operations than expected")


def save_with_power_for(disk: MemoryDisk, vote: Vote, steps: int) -> bool:
    left = steps

    def before(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerLoss

    disk.before = before
    try:
        ownfiles.save_vote(disk, "/own", vote)
    except PowerLoss:
        return False
    return True


def test_every_flipped_bit_is_found(disk: MemoryDisk) -> None:
    ownfiles.save_vote(disk, "/own", VOTE)
    for bit in range(disk.size("/own/vote") * 8):
        disk.flip("/own/vote", bit)
        with pytest.raises(StoreError, match="damaged"):
            ownfiles.load_vote(disk, "/own")
        disk.flip("/own/vote", bit)


def test_a_newer_version_is_refused_and_not_guessed_at(disk: MemoryDisk) -> None:
    """D17."""
    text = b"rmq-vote 2\nstoreId aa\n"
    smallfile.write_file(disk, "/own/vote", text + b"crc %08x\n" % crc32(text))
    with pytest.raises(StoreError, match=r"rmq-vote 2.*run the newer version"):
        ownfiles.load_vote(disk, "/own")


def test_a_file_with_a_missing_line_is_said_so(disk: MemoryDisk) -> None:
    smallfile.save(disk, "/own", "vote", [["storeId", "aa"]])
    with pytest.raises(StoreError, match="lacks a line"):
        ownfiles.load_vote(disk, "/own")


def test_a_file_that_is_replaced_while_it_is_read_is_read_as_it_was() -> None:
    """A running broker saves `queues` anew, shorter, between a reader's looks at its name."""

    class Replaced(MemoryDisk):
        def open(self, path: str) -> int:
            handle = super().open(path)
            ownfiles.save_queues(self, "s/rmq", [])
            return handle

    disk = Replaced()
    disk.make_directory("s/rmq")
    rows = [QueueRow("T", queue, 0, 100) for queue in range(50)]
    ownfiles.save_queues(disk, "s/rmq", rows)
    assert ownfiles.load_queues(disk, "s/rmq") == rows
    assert ownfiles.load_queues(disk, "s/rmq") == []
