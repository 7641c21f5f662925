"""Power is lost, or the disk fails once, at every single operation of everything a store does: old or new, never neither.

Each scenario is run once to count its operations, then once for each of them. What survives of the unflushed is nothing,
all, or one of a few random subsets.
"""

import copy
import random
from collections.abc import Callable

import pytest

from rmq.errors import StoreError
from rmq.log.files import ownfiles, smallfile
from rmq.log.files.memory import MemoryDisk, PowerLoss
from rmq.log.files.ownfiles import Progress, QueueRow, Run, Vote
from rmq.log.files.snapshot import QUEUES
from rmq.log.units import Unit
from tests.log.conftest import ROOT, Bench, nth
from tests.log.model import Model, deletion, problems

Scenario = Callable[["Story"], None]


class Story:
    """A store, what was appended to it, and how much of that was durable."""

    def __init__(self) -> None:
        self.bench = Bench().begin()
        self.model = Model()
        self.durable = self.going = 0  # `going`: where retention wants the log to begin
        for number in range(12):
            self.append(b"x" * (number * 37 % 300), "TU"[number % 2], number % 3)
        self.flush()
        self.bench.store.dispatcher.advance(self.durable)
        self.bench.store.save_progress()
        self.append(b"not flushed")

    def left_behind(self) -> "Story":
        """A story that begins with what this one has on its disk; this one goes on undisturbed."""
        other = copy.copy(self)
        other.bench, other.model = copy.copy(self.bench), copy.deepcopy(self.model)
        other.bench.disk = copy.deepcopy(self.bench.disk)
        return other

    def append(self, body: bytes, topic: str = "T", queue_id: int = 0) -> None:
        self.take(self.bench.unit(body, topic, queue_id))

    def take(self, unit: Unit) -> None:
        try:
            self.bench.append(unit)
        except PowerLoss:
            self.model.take([unit])
            raise
        self.model.take([unit])

    def flush(self) -> None:
        self.durable = max(self.durable, self.bench.store.log.flush())
        self.bench.store.log.prepare()

    def open(self, least: int) -> None:
        """After a crash: a prefix that is not shorter than what was durable, and queues that say the same."""
        end = self.bench.open().log.end
        assert end >= least
        self.model.cut(end)
        assert problems(self.bench, self.model, (self.going,)) == []


def roll(story: Story) -> None:
    for _ in range(4):
        story.append(b"x" * 3000)
    story.flush()


def save(story: Story) -> None:
    story.bench.store.dispatcher.advance(story.bench.store.log.end)
    story.bench.store.save_progress()
    story.durable = story.bench.store.log.durable_end


def delete_a_topic(story: Story) -> None:
    story.take(deletion(story.bench, "U"))
    save(story)
    story.append(b"again", "U", 1)
    save(story)


def cut(story: Story) -> None:
    """Behind what was flushed, so what is cut off may or may not be there, and what was flushed must."""
    roll(story)
    events = story.model.events
    target = events[len(events) // 2].end
    story.durable = target
    ownfiles.save_progress(story.bench.disk, f"{ROOT}/rmq", Progress(target, target, 0, 0))
    story.bench.store.log.cut(target)
    story.model.cut(target)


def snapshot(story: Story) -> None:
    store = story.bench.store
    store.dispatcher.advance(store.log.end)
    writer = store.begin_snapshot()
    writer.add(QUEUES, [(queue.topic, queue.queue_id, queue.max) for queue in store.queues.all()])
    store.publish_snapshot(writer, store.dispatcher.position, store.dispatcher.position)
    story.durable = store.log.durable_end


def retention(story: Story) -> None:
    for _ in range(3):
        roll(story)
    snapshot(story)
    story.going = story.bench.store.log.segments()[2].base
    for segment in story.bench.store.cleaning.drop_before(story.going):
        segment.withdraw()()
    story.durable = story.bench.store.log.durable_end


def stop(story: Story) -> None:
    story.durable = story.bench.store.log.durable_end
    story.bench.store.close()
    story.durable = story.bench.store.log.end


def stop_and_start(story: Story) -> None:
    stop(story)
    story.bench.open()
    story.bench.begin()


def recover(story: Story) -> None:
    story.bench.disk.kill()
    story.bench.open()
    story.durable = story.bench.store.log.end
    story.bench.begin()


SCENARIOS = [roll, save, snapshot, retention, delete_a_topic, cut, stop, stop_and_start, recover]


def operations_of(scenario: Scenario) -> int:
    story = Story()
    story.bench.disk.operations.clear()
    scenario(story)
    return len(story.bench.disk.operations)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_power_is_lost_at_each_operation(scenario: Scenario) -> None:
    """D1, D5, D6, D10, D11: of each kind of operation; what survives is nothing, all, and three random subsets."""
    total = operations_of(scenario)
    assert total >= 3
    for at in range(1, total + 2):  # the last time all of it is done
        story = Story()
        story.bench.disk.before = nth(at, PowerLoss())
        try:
            scenario(story)
        except PowerLoss:
            assert at <= total
        for seed, share in enumerate((0.0, 1.0, 0.3, 0.6, 0.9)):
            after, chance = story.left_behind(), random.Random(seed)
            after.bench.disk.crash(lambda chance=chance, share=share: chance.random() < share)  # type: ignore[misc]
            after.open(after.durable)
            after.bench.begin()
            after.append(b"next")
            after.flush()
            after.bench.disk.crash()
            after.open(after.durable)


@pytest.mark.parametrize("error", [OSError(28, "no space left"), OSError(5, "input/output error"), OSError(30, "read-only")])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_disk_fails_at_each_operation(scenario: Scenario, error: OSError) -> None:
    """D4, D14: once, whichever operation it is; then it is well, the node goes on or is started anew, and power is lost."""
    for at in range(1, operations_of(scenario) + 1):
        story = Story()
        story.bench.disk.before = nth(at, error)
        try:
            scenario(story)
        except (StoreError, OSError):
            story.bench.disk.before = lambda operation, path: None
            go_on(story)
        story.bench.disk.crash()
        story.open(story.durable)


def go_on(story: Story) -> None:
    """As a node does after trouble: it tries again; a store that takes nothing more is started again."""
    try:
        story.append(b"after the trouble")
        save(story)
    except (StoreError, KeyError, ValueError):  # closed, or not open: killed and started
        story.bench.disk.kill()
        story.open(story.durable)
        story.bench.begin()
        story.append(b"after a restart")
        save(story)


def save_small(disk: MemoryDisk, kind: str, n: int) -> None:
    if kind == "vote":
        ownfiles.save_vote(disk, "/own", Vote("aa", "n0", "g", n, "-", n, True))
    elif kind == "run":
        ownfiles.save_run(disk, "/own", Run("running", "b", "m", n, n))
    elif kind == "progress":
        ownfiles.save_progress(disk, "/own", Progress(n, n, n, n))
    elif kind == "epochs":
        ownfiles.save_epochs(disk, "/own", [], n)
    else:
        ownfiles.save_queues(disk, "/own", [QueueRow("T" * 300, n, n, n)] * 9)  # over several sectors


@pytest.mark.parametrize("sector_bytes", [512, 4096])
@pytest.mark.parametrize("kind", ["vote", "run", "progress", "epochs", "queues"])
def test_each_small_file_is_old_or_new_after_a_crash_at_each_operation(kind: str, sector_bytes: int) -> None:
    """D5: any subset of sectors and names; a second save over what a broken one left behind as well."""

    def load(disk: MemoryDisk) -> object:
        return smallfile.load(disk, "/own", kind)

    for at in range(1, 7):
        for seed in range(20):
            chance = random.Random(seed)
            disk = MemoryDisk(sector_bytes)
            disk.make_directory("/own")
            save_small(disk, kind, 1)
            old = load(disk)
            disk.before = nth(at, PowerLoss() if seed % 2 else OSError(28, "no space left"))
            try:
                save_small(disk, kind, 2)
                done = True
            except (PowerLoss, OSError):
                done = False
            assert done == (at == 6), "a save is five operations"
            disk.crash(lambda chance=chance: chance.random() < 0.5)  # type: ignore[misc]
            left = load(disk)
            save_small(disk, kind, 2)
            new = load(disk)
            assert left == new if done else left in (old, new)
            disk.crash()
            assert load(disk) == new


# --- what the campaigns found -----------------------------------------------------------------------------------------


def test_the_name_of_a_file_made_by_a_failed_append_is_durable_before_it_is_used(bench: Bench) -> None:
    """D1, D5: the append that made the file failed, and a run that knew nothing of it used it under sync flush."""
    while bench.store.log.end < 5000:
        bench.append(bench.unit(b"x" * 100))
    bench.store.log.flush()
    bench.disk.before = nth(1, OSError(28, "no space left"), ("pwrite",))
    with pytest.raises(StoreError, match="not stored"):
        bench.append(bench.unit(b"x" * 3500))
    assert bench.disk.exists(bench.segment(8192))
    bench.disk.before = lambda operation, path: None
    bench.store.close()
    bench.open()
    bench.begin()
    end = bench.send(b"x" * 3500).end
    bench.disk.crash()
    assert bench.open().log.end == end


def test_a_queue_file_whose_directory_flush_failed_is_made_again(bench: Bench) -> None:
    """D11: else the progress speaks of a file that a power loss takes away."""
    bench.send(b"one")
    bench.disk.before = nth(1, OSError(28, "no space left"), ("fsync_directory",))
    with pytest.raises(StoreError, match="free space"):
        bench.store.save_progress()
    bench.disk.before = lambda operation, path: None
    bench.store.save_progress()
    bench.disk.crash()
    assert not bench.open().recovered.queues_rebuilt
    assert bench.bodies() == [b"one"]


def test_a_deletion_that_a_power_loss_takes_back_has_deleted_nothing(bench: Bench) -> None:
    """D10, D12: the files of the topic were gone and the saved rows spoke of it no more; its messages were in the log."""
    bench.send(b"one", "U")
    bench.append(deletion(bench, "U"))
    bench.store.dispatcher.advance(bench.store.log.end)

    def lose_power(operation: str, path: str) -> None:
        if "queues" in path or "progress" in path:
            raise PowerLoss

    bench.disk.before = lose_power
    with pytest.raises(PowerLoss):
        bench.store.save_progress()
    bench.disk.crash()
    bench.open()
    assert bench.bodies("U") == []
    assert bench.store.log.end == bench.store.log.durable_end


def test_what_a_failed_flush_held_is_written_again_by_the_next_run(bench: Bench) -> None:
    """D4: the kernel takes such pages for clean, so the next run sees the records and its fsync succeeds without them."""
    bench.fill(10)
    bench.append(bench.unit(b"held"))
    bench.disk.before = nth(1, OSError(5, "input/output error"), ("fdatasync",))
    with pytest.raises(StoreError, match="a flush failed"):
        bench.store.log.flush()
    bench.disk.kill()
    bench.open()
    bench.begin()
    end = bench.send(b"behind").end
    bench.store.save_progress()
    bench.disk.crash()
    assert bench.open().log.end == end
    assert bench.bodies()[-2:] == [b"held", b"behind"]


def test_files_of_a_deleted_topic_that_cannot_be_removed_stop_nothing(bench: Bench) -> None:
    """D14: what they hold is never taken for entries of the topic made anew."""
    for _ in range(3):
        bench.send(b"old", "U")
    bench.store.save_progress()
    bench.append(deletion(bench, "U"))
    bench.disk.before = nth(1, OSError(5, "input/output error"), ("unlink",))
    bench.commit()
    bench.disk.before = lambda operation, path: None
    bench.send(b"new", "U")
    bench.store.save_progress()
    bench.disk.crash()
    assert not bench.open().recovered.queues_rebuilt
    assert bench.bodies("U") == [b"new"]
    assert bench.store.queues.get("U", 0).max == 1


def test_queues_that_begin_behind_the_log_are_made_anew_when_progress_is_lost(bench: Bench) -> None:
    """D10: power went in the middle of a retention, and whoever looked at the disk afterwards deleted a file."""
    while len(bench.store.log.segments()) < 4:
        bench.send(b"x" * 700)
    bench.store.save_progress()
    bench.disk.before = nth(1, PowerLoss(), ("unlink",))
    with pytest.raises(PowerLoss):
        bench.store.cleaning.drop_before(2 * 8192)
    bench.disk.crash()
    bench.disk.unlink(f"{ROOT}/rmq/progress")
    bench.open()
    assert bench.store.log.start == 0
    assert [one.queue_offset for one in bench.store.records("T", 0)] == list(range(bench.store.queues.get("T", 0).max))
