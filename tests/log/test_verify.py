"""`Verifier` finds every kind of damage, and finds nothing where nothing is wrong."""

import contextlib
import random
from collections.abc import Callable

import msgpack
import pytest

from rmq.errors import StoreError
from rmq.log.files import ownfiles
from rmq.log.files.disk import ReadOnlyDisk
from rmq.log.files.memory import MemoryDisk, PowerLoss
from rmq.log.records import record
from rmq.log.repair.verify import Report, Verifier
from rmq.log.settings import StoreSettings
from tests.golden import SETS, setting, told, unpack
from tests.log.conftest import HOST, ROOT, Bench, nth
from tests.log.test_adoption import finish, theirs, write_theirs
from tests.log.test_crash import SCENARIOS, Scenario, Story, operations_of

OWN = f"{ROOT}/rmq"
INDEXED = StoreSettings(HOST, segment_bytes=8192, queue_file_entries=50, index_slots=16, index_entries=40)


def verify(disk: MemoryDisk) -> Report:
    return Verifier(disk, ROOT, INDEXED.index_slots).run()


def damage(disk: MemoryDisk) -> str:
    """What is damaged, as text; it must say where."""
    report = verify(disk)
    assert not report.clean
    assert all(found.where and found.what for found in report.findings)
    return "\n".join(f"{found.where}: {found.what}" for found in report.findings if found.damage)


@pytest.fixture
def stopped() -> Bench:
    """A store with an index, stopped in order; several segments, queues of two topics, keys."""
    bench = Bench(INDEXED).begin()
    for number in range(30):
        bench.append(
            bench.unit(b"x" * (number * 29 % 700), "T", number % 3, TAGS="t", KEYS=f"k{number} all", UNIQ_KEY=f"U{number}"),
            bench.unit(b"y", "U", 0, 2),
        )
    bench.commit()
    bench.store.close()
    return bench


def overwrite(disk: MemoryDisk, path: str, at: int, data: bytes) -> None:
    disk.content(path)[at : at + len(data)] = data


def index_file(bench: Bench) -> str:
    return next(path for path in bench.disk.paths() if path.startswith(f"{ROOT}/index/"))


# --- nothing is wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_every_golden_set_is_clean_and_completely_read(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Counts are those of another reader, written from the format's page alone."""
    root = unpack(name, tmp_path_factory.mktemp("verify"))
    report = Verifier(ReadOnlyDisk(), str(root), setting(name, "maxHashSlotNum")).run()
    assert report.findings == []
    if "dledger" in name:
        assert "DLedger" in report.unchecked[0]
        return
    checked = told(name)["checked"]
    assert any("headers unprotected" in text for text in report.unchecked)
    names = {"records": "records", "segments": "segments", "index entries": "indexEntries", "index files": "indexFiles"}
    assert {ours: report.checked[ours] for ours in names} == {ours: checked[key] for ours, key in names.items()}
    assert report.end == checked["logEnd"]
    if report.start == 0:
        batches = checked["records"] - 1 if "innerbatch" in name else 0
        assert report.checked["queue units"] == checked["cqEntries"] + batches


def test_a_stopped_store_is_clean(stopped: Bench) -> None:
    before = {path: bytes(stopped.disk.content(path)) for path in stopped.disk.paths()}
    report = verify(stopped.disk)
    assert report.findings == []
    assert report.unchecked == []
    assert report.checked["index entries"] == 30 * 4
    assert report.checked["queue units"] == report.checked["records"]
    assert {path: bytes(stopped.disk.content(path)) for path in stopped.disk.paths()} == before


def test_a_killed_store_is_clean_with_notes(bench: Bench) -> None:
    """What a kill leaves is no damage: units that are not written, an unfinished tail."""
    bench.fill(20)
    bench.store.save_progress()
    bench.fill(5)
    unit = bench.append(bench.unit(b"torn" * 30))[0]
    bench.disk.kill()
    base = unit.physical_offset // 8192 * 8192
    overwrite(bench.disk, bench.segment(base), unit.physical_offset - base + 100, bytes(200))
    report = verify(bench.disk)
    assert report.clean, report.findings
    assert report.end == unit.physical_offset
    told = " ".join(found.what for found in report.findings)
    assert "not written yet" in told
    assert "torn tail" in told


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_power_loss_leaves_nothing_that_is_called_damage(scenario: Scenario) -> None:
    """Looked at before the next start, which tidies up: at each operation, whatever of the unflushed survived."""
    for at in range(1, operations_of(scenario) + 1):
        story = Story()
        story.bench.disk.before = nth(at, PowerLoss())
        with contextlib.suppress(PowerLoss):
            scenario(story)
        for seed, share in enumerate((1.0, 0.3, 0.9)):
            left, chance = story.left_behind().bench.disk, random.Random(seed)
            left.crash(lambda chance=chance, share=share: chance.random() < share)  # type: ignore[misc]
            assert [str(found) for found in verify(left).findings if found.damage] == []


def test_whole_records_behind_a_torn_tail_are_told(bench: Bench) -> None:
    bench.fill(5)
    bench.store.save_progress()
    torn, end = bench.append(bench.unit(b"torn"), bench.unit(b"behind"))[0], bench.store.log.end
    bench.disk.kill()
    overwrite(bench.disk, bench.segment(), torn.physical_offset + 90, b"x")
    report = verify(bench.disk)
    assert report.clean
    assert report.end == end
    (found,) = [one for one in report.findings if "torn tail" in one.what]
    assert "rmq store repair" in found.what
    assert found.at == torn.physical_offset


@pytest.mark.parametrize("seed", range(10))
def test_a_topic_that_was_deleted_and_made_again(new_bench: Callable[[], Bench], seed: int) -> None:
    bench = new_bench().begin()
    bench.fill(5 + seed)
    bench.send(state(("topic", "T", None)), "rmq_sys_STATE")
    bench.fill(3)
    bench.store.close()
    assert verify(bench.disk).findings == []


def state(*lines: object) -> bytes:
    return bytes(msgpack.packb(lines))


def test_a_visited_store_and_one_that_was_adopted(bench: Bench) -> None:
    bench.fill(5)
    end, last = bench.store.log.end, bench.store.queues.get("U", 0).max
    bench.store.close()
    write_theirs(bench.disk, end, theirs("U", last, last + 2))
    found = verify(bench.disk)
    assert not found.clean, "a record without our checksum behind our end"
    bench.open()
    finish(bench)
    bench.store.close()
    report = verify(bench.disk)
    assert report.clean, report.findings
    assert any("headers unprotected" in text for text in report.unchecked)
    assert any("would be next" in found.what for found in report.findings), "the number that RocketMQ left out is told"


# --- the log ----------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_of_a_record_is_found(stopped: Bench) -> None:
    """D7: any bit of a record in the middle; the walk goes on behind it and counts all others."""
    units = records_of(stopped)
    victim = units[len(units) // 2]
    whole = verify(stopped.disk).checked["records"]
    for bit in range(0, victim.total_size * 8, 7):
        stopped.disk.flip(stopped.segment(victim.physical_offset // 8192 * 8192), victim.physical_offset % 8192 * 8 + bit)
        report = verify(stopped.disk)
        assert [(hole.start, hole.end) for hole in report.holes] == [
            (victim.physical_offset, victim.physical_offset + victim.total_size)
        ], bit
        assert report.checked["records"] == whole - 1
        stopped.disk.flip(stopped.segment(victim.physical_offset // 8192 * 8192), victim.physical_offset % 8192 * 8 + bit)
    assert verify(stopped.disk).clean


def records_of(bench: Bench) -> list[record.Record]:
    store = bench.open()
    found = [one for one in store.log.scan(0, store.log.end) if one.topic == "T"]
    store.close()
    return found


def test_a_lost_last_segment_and_a_lost_middle_one(stopped: Bench) -> None:
    last = max(path for path in stopped.disk.paths() if "/commitlog/" in path)
    content = bytes(stopped.disk.content(last))
    stopped.disk.unlink(last)
    assert "were durable" in damage(stopped.disk)
    stopped.disk.put(last, content)
    stopped.disk.unlink(stopped.segment(8192))
    assert "missing or of another length" in damage(stopped.disk)


def test_bytes_behind_the_end_of_a_stopped_store(stopped: Bench) -> None:
    run = ownfiles.load_run(stopped.disk, OWN)
    assert run is not None
    overwrite(stopped.disk, stopped.segment(run.end // 8192 * 8192), run.end % 8192 + 500, b"stale")
    assert "behind the end of the log" in damage(stopped.disk)


def test_a_number_given_twice(bench: Bench) -> None:
    """D12: two records of a queue with one number, both whole and with right checksums."""
    queue = bench.store.queues.get("T", 0)
    bench.append(bench.unit())
    queue.next = 0
    bench.append(bench.unit())
    bench.disk.kill()
    assert "has queue offset 0, 1 would be next" in damage(bench.disk)


# --- what is derived --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "what"), [(7, "its record"), (11, "its record"), (19, "its record")])
def test_a_wrong_unit(stopped: Bench, at: int, what: str) -> None:
    path = f"{ROOT}/consumequeue/T/1/{0:020d}"
    stopped.disk.flip(path, (3 * 20 + at) * 8)
    assert what in damage(stopped.disk)
    assert "consumequeue/T/1" in damage(stopped.disk)


def test_missing_units_and_units_of_nothing(stopped: Bench) -> None:
    path = f"{ROOT}/consumequeue/T/1/{0:020d}"
    unit = bytes(stopped.disk.content(path)[9 * 20 : 10 * 20])
    overwrite(stopped.disk, path, 9 * 20, bytes(20))
    assert "1 units are missing" in damage(stopped.disk)
    overwrite(stopped.disk, path, 9 * 20, unit + unit)
    assert "unit 10 points to" in damage(stopped.disk)
    stopped.disk.unlink(path)
    assert "10 units are missing" in damage(stopped.disk)


def test_directories_of_a_mounted_disk_are_passed_over(stopped: Bench) -> None:
    """`lost+found`, where index/ is a disk of its own. It was opened as a file."""
    for folder in ("commitlog", "index", "consumequeue"):
        stopped.disk.make_directory(f"{ROOT}/{folder}/lost+found")
    assert verify(stopped.disk).clean


def test_a_wrong_index_entry_chain_and_slot(stopped: Bench) -> None:
    path, entries = index_file(stopped), 40 + 16 * 4
    third = entries + 3 * 20
    for at, what in (
        (third + 2, "no such key"),
        (third + 10, "where no record begins"),
        (third + 19, "goes on at"),
        (40 + 3, "slot 0 says"),
        (38, "entries, there is room for"),
    ):
        before = stopped.disk.content(path)[at]
        stopped.disk.content(path)[at] ^= 0x10
        assert what in damage(stopped.disk), at
        stopped.disk.content(path)[at] = before
    assert verify(stopped.disk).clean


def test_slots_that_are_ahead_of_the_header(stopped: Bench) -> None:
    """A live store, or a copy of one: slots are written before the header; that is no damage."""
    paths = sorted(path for path in stopped.disk.paths() if path.startswith(f"{ROOT}/index/"))
    stopped.disk.content(paths[-1])[39] -= 1
    report = verify(stopped.disk)
    assert report.clean
    assert "slots are ahead of its header" in "".join(found.what for found in report.findings)


def test_a_key_that_the_index_lacks(stopped: Bench) -> None:
    paths = sorted(path for path in stopped.disk.paths() if path.startswith(f"{ROOT}/index/"))
    assert len(paths) > 2
    stopped.disk.unlink(paths[1])
    assert "not under all their keys" in damage(stopped.disk)


# --- small files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["vote", "run", "epochs", "progress", "queues", "index"])
def test_a_damaged_own_file(stopped: Bench, kind: str) -> None:
    stopped.disk.flip(f"{OWN}/{kind}", 200)
    assert f"rmq/{kind}" in damage(stopped.disk)


def test_a_damaged_snapshot(bench: Bench) -> None:
    bench.fill(3)
    writer = bench.store.begin_snapshot()
    bench.store.publish_snapshot(writer, 0, bench.store.log.end)
    bench.store.close()
    assert verify(bench.disk).checked["snapshots"] == 1
    path = next(path for path in bench.disk.paths() if "snapshot-" in path)
    bench.disk.flip(path, 300)
    assert "snapshot" in damage(bench.disk)


@pytest.mark.parametrize(("at", "what"), [(1, "are flushed"), (40, "queues are flushed up to")])
def test_a_checkpoint_that_claims_too_much(stopped: Bench, at: int, what: str) -> None:
    """D11"""
    overwrite(stopped.disk, f"{ROOT}/checkpoint", at, b"\x01")
    assert what in damage(stopped.disk)


def test_a_checkpoint_of_another_length(stopped: Bench) -> None:
    stopped.disk.content(f"{ROOT}/checkpoint").extend(b"x")
    assert "4097 bytes" in damage(stopped.disk)


def test_an_epochs_file_that_contradicts_the_log(stopped: Bench) -> None:
    history, checked_to = ownfiles.load_epochs(stopped.disk, OWN) or ((), 0)
    ownfiles.save_epochs(stopped.disk, OWN, [history[0]._replace(epoch=7), *history[1:]], checked_to)
    assert "a record in the log says" in damage(stopped.disk)


def test_a_directory_that_is_no_store() -> None:
    with pytest.raises(StoreError, match="no store directory"):
        Verifier(MemoryDisk(), "/nothing", 1).run()
