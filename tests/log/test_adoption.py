"""Bytes that Apache RocketMQ wrote in or beside ours: which stretch of the log is whose, and what opening makes of it."""

import struct
from collections.abc import Callable, Sequence

import pytest

from rmq.errors import StoreError
from rmq.log.files import ownfiles, smallfile
from rmq.log.files.epochs import ROCKETMQ_EPOCH, EpochEntry, EpochRecord, joined, merged, pieces, written_by_rocketmq
from rmq.log.files.memory import MemoryDisk, PowerLoss
from rmq.log.files.ownfiles import ADOPTING, CLEAN, RUNNING
from rmq.log.records import record
from rmq.log.records.record import Record
from rmq.log.repair.verify import Verifier
from rmq.log.store import Store
from tests.log.conftest import BORN, HOST, ROOT, SETTINGS, Bench

OWN, CONFIG = f"{ROOT}/rmq", f"{ROOT}/config"


def foreign(topic: str, number: int, at: int, body: bytes = b"theirs", queue_id: int = 0, **properties: str) -> bytes:
    """A record as RocketMQ 5 writes it: no checksum over the whole."""
    body_crc = record.crc32(body) & record.CRC_MASK
    text, magic = record.properties_to_bytes(properties), record.topic_field_of(topic)[0]
    made = Record(0, magic, body_crc, queue_id, 0, number, at, 0, 1000, BORN, 2000, HOST, 0, 0, body, topic, text)
    return record.encode(made)


def write_theirs(disk: MemoryDisk, at: int, records: Sequence[Callable[[int], bytes]]) -> int:
    """Puts them behind each other from `at` of the log, in one segment; the end."""
    base = at // SETTINGS.segment_bytes * SETTINGS.segment_bytes
    path = f"{ROOT}/commitlog/{base:020d}"
    if not disk.exists(path):
        disk.make_directory(f"{ROOT}/commitlog")
        handle = disk.create(path)
        disk.truncate(handle, SETTINGS.segment_bytes)
        disk.close(handle)
    handle = disk.open(path)
    for make in records:
        data = make(at)
        disk.pwrite(handle, data, at - base)
        at += len(data)
    disk.close(handle)
    return at


def theirs(topic: str, *numbers: int) -> list[Callable[[int], bytes]]:
    return [lambda at, number=number: foreign(topic, number, at) for number in numbers]  # type: ignore[misc]


def finish(bench: Bench) -> None:
    """As the broker does once RocketMQ's tables are in the log."""
    assert bench.store.adopting
    bench.begin()
    bench.commit()
    bench.store.finish_adoption()


@pytest.fixture
def theirs_only() -> Bench:
    """A directory with ten messages of RocketMQ's, nothing of ours."""
    bench = Bench.__new__(Bench)
    bench.disk, bench.settings, bench.wall_ms = MemoryDisk(), SETTINGS, 1_700_000_000_000
    write_theirs(bench.disk, 0, theirs("T", *range(10)))
    return bench


# --- the epoch history --------------------------------------------------------------------------------------------------


def test_entries_of_rocketmq_stand_between_ours() -> None:
    history = merged(
        merged(merged((EpochEntry(1, 0, "a"),), EpochEntry(ROCKETMQ_EPOCH, 50, "a")), EpochEntry(2, 80, "a")),
        EpochEntry(3, 90, "a"),
    )
    assert [(entry.epoch, entry.start) for entry in history] == [(1, 0), (0, 50), (2, 80), (3, 90)]
    assert list(pieces(history, 10, 100)) == [(10, 50, True), (50, 80, False), (80, 90, True), (90, 100, True)]
    assert list(pieces(history, 60, 70)) == [(60, 70, False)]
    assert list(pieces((), 5, 9)) == [(5, 9, True)]
    assert [written_by_rocketmq(history, at) for at in (0, 49, 50, 79, 80)] == [False, False, True, True, False]
    older = EpochRecord(1, 0, "a", "n0", "roll", False, (), (EpochEntry(1, 0, "a"),))
    assert joined(history, older) == history, "an older record does not know what came later"


# --- a directory of theirs --------------------------------------------------------------------------------------------


def test_their_log_becomes_a_foreign_stretch_of_ours(theirs_only: Bench) -> None:
    """Story 57: epoch 0 up to where our first epoch begins; sends go on with the next number (D12)."""
    bench = theirs_only
    end = bench.open().log.end
    finish(bench)
    assert [(entry.epoch, entry.start) for entry in bench.store.epochs] == [(ROCKETMQ_EPOCH, 0), (1, end)]
    assert bench.send(b"ours").queue_offset == 10
    assert bench.bodies() == [b"theirs"] * 10 + [b"ours"]
    bench.store.close()
    assert bench.open().recovered.clean
    assert not bench.store.adopting
    assert bench.bodies()[-1] == b"ours"


def test_a_stale_checksum_in_their_bytes_is_no_damage(theirs_only: Bench) -> None:
    """Story 50: RocketMQ put one of our messages again and kept our property; the same bytes of ours would be damage."""
    bench = theirs_only
    end = write_theirs(bench.disk, 0, [lambda at: foreign("T", 0, at, __CRC32__="no", **{"__CRC32#": "1234567890"})])
    assert end < len(foreign("T", 0, 0)) * 2
    bench.disk.content(bench.segment())[end:] = bytes(SETTINGS.segment_bytes - end)
    assert bench.open().log.end == end
    finish(bench)
    bench.disk.crash()
    assert bench.open().log.end > end


def test_their_torn_tail_is_kept_aside_and_cut(theirs_only: Bench) -> None:
    bench = theirs_only
    end = 10 * len(foreign("T", 0, 0))
    torn = foreign("T", 10, end)[:30]
    write_theirs(bench.disk, end, [lambda _: torn])
    adopted = bench.open().adopted
    assert adopted is not None
    assert (adopted.end, adopted.records, adopted.cut_bytes) == (end, 10, len(torn.rstrip(b"\0")))
    assert smallfile.read_file(bench.disk, f"{OWN}/lost-0-{end}") == torn.rstrip(b"\0")
    assert not bench.disk.content(bench.segment())[end:].strip(b"\0")


def test_whole_records_behind_a_bad_one_are_not_dropped(theirs_only: Bench) -> None:
    """RocketMQ would end its log at a flipped bit and go on writing over what follows: that is refused."""
    bench = theirs_only
    before = bytes(bench.disk.content(bench.segment()))
    bench.disk.content(bench.segment())[3 * len(foreign("T", 0, 0)) + 90] ^= 1
    with pytest.raises(StoreError, match=r"damaged at .*rmq store repair"):
        bench.open()
    bench.disk.content(bench.segment())[3 * len(foreign("T", 0, 0)) + 90] ^= 1
    assert bytes(bench.disk.content(bench.segment())) == before
    assert bench.open().adopted


def test_a_missing_file_of_theirs_is_said_so(theirs_only: Bench) -> None:
    bench = theirs_only
    write_theirs(bench.disk, 2 * SETTINGS.segment_bytes, theirs("T", 11))
    with pytest.raises(StoreError, match="missing"):
        bench.open()
    assert bench.disk.exists(bench.segment(2 * SETTINGS.segment_bytes)), "nothing is removed"


def test_left_out_numbers_become_blank_entries(theirs_only: Bench) -> None:
    """replication 4: a gap in their range is filled and passed over by readers; a number from before is passed over (D12)."""
    bench = theirs_only
    size = len(foreign("T", 0, 0))
    write_theirs(bench.disk, 10 * size, theirs("T", 13, 4, 14))
    bench.open()
    finish(bench)
    queue = bench.store.queues.get("T", 0)
    assert queue.max == 15
    for _ in range(2):
        found = queue.find(8, 100, 1 << 20, None)
        assert [offset // size for offset, _ in found.spans] == [8, 9, 10, 12]
        assert (found.next_offset, queue.find(10, 2, 1 << 20, None).next_offset) == (15, 12)
        assert queue.find(9, 100, 1 << 20, frozenset([0])).spans == found.spans[1:]
        assert queue.first_at_or_behind(10 * size) == 13
        bench.store.close()
        queue = bench.open().queues.get("T", 0)
    assert [one.queue_offset for one in bench.store.records("T", 0, 9)] == [9, 13, 14]


@pytest.mark.parametrize("bit", [30, 40, 62])
def test_a_bit_that_flipped_in_a_number_of_theirs(theirs_only: Bench, caplog: pytest.LogCaptureFixture, bit: int) -> None:
    """No checksum of theirs covers it. Blank entries for the gap took more memory than there is, and no start succeeded."""
    bench = theirs_only
    size = len(foreign("T", 0, 0))
    write_theirs(bench.disk, 10 * size, theirs("T", 10 | 1 << bit, 11))
    bench.open()
    assert f"the record at {10 * size}" in caplog.text
    finish(bench)
    assert [one.queue_offset for one in bench.store.records("T", 0, 8)] == [8, 9, 11]
    bench.store.close()
    report = Verifier(bench.disk, ROOT, SETTINGS.index_slots).run()
    assert report.clean
    assert any("a bit of it flipped" in found.what for found in report.findings)


def test_a_bit_that_flipped_in_a_queue_or_topic_of_theirs(theirs_only: Bench) -> None:
    """No checksum of theirs covers these. A topic that was no UTF-8 any more, or a queue below 0, ended each start, and the first
    one `rmq store verify`, too."""
    bench, size = theirs_only, len(foreign("T", 0, 0))
    before = bytes(bench.disk.content(bench.segment()))
    for bit in (*range(12 * 8, 16 * 8), *range((size - 3) * 8, (size - 2) * 8)):
        bench.disk = MemoryDisk()
        bench.disk.put(bench.segment(), before)
        bench.disk.flip(bench.segment(), 5 * size * 8 + bit)
        bench.open()
        finish(bench)
        assert bench.bodies() == [b"theirs"] * 9, bit
        bench.store.close()
        assert Verifier(bench.disk, ROOT, SETTINGS.index_slots).run().clean, bit


def test_a_topic_that_they_deleted_and_made_again_begins_anew(theirs_only: Bench) -> None:
    bench = theirs_only
    write_theirs(bench.disk, 10 * len(foreign("T", 0, 0)), theirs("T", 0, 1))
    bench.open()
    assert [one.queue_offset for one in bench.store.records("T", 0)] == [0, 1]


def test_a_record_that_went_to_several_queues(theirs_only: Bench) -> None:
    """RocketMQ 5's light queues: one record, an entry in each queue that its properties name."""
    bench = theirs_only
    end = 10 * len(foreign("T", 0, 0))
    lmq = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%$T$b", "INNER_MULTI_QUEUE_OFFSET": "0,0"}
    write_theirs(bench.disk, end, [lambda at: foreign("T", 10, at, **lmq)])
    bench.open()
    for topic in ("T", "%LMQ%a", "%LMQ%$T$b"):
        queue = bench.store.queues.get(topic, 0)
        assert queue.entry(queue.max - 1).offset == end


def test_a_member_of_a_group_is_not_adopted_by_itself(theirs_only: Bench) -> None:
    """replication 11: the others would have to follow; an operator says so."""
    bench = theirs_only
    before = bytes(bench.disk.content(bench.segment()))
    with pytest.raises(StoreError, match=r"rmq store adopt .*--config.*empty directories"):
        Store.open(bench.disk, ROOT, SETTINGS._replace(alone=False))
    assert bytes(bench.disk.content(bench.segment())) == before
    assert bench.open().adopted


def test_a_store_of_ours_whose_own_files_are_gone(bench: Bench) -> None:
    """All of it is foreign then; epochs of its earlier life count no more, its state records do."""
    bench.fill(10)
    end, queues = bench.store.log.end, bench.queues()
    bench.store.close()
    for path in [path for path in bench.disk.paths() if path.startswith(OWN)]:
        bench.disk.unlink(path)
    bench.open()
    finish(bench)
    for _ in range(2):
        assert [(entry.epoch, entry.start) for entry in bench.store.epochs] == [(ROCKETMQ_EPOCH, 0), (1, end)]
        assert {key: value for key, value in bench.queues().items() if key[0] != "rmq_sys_EPOCH"} == {
            key: value for key, value in queues.items() if key[0] != "rmq_sys_EPOCH"
        }
        bench.disk.kill()
        bench.open()


# --- ours, after a visit ----------------------------------------------------------------------------------------------


def test_rocketmq_visited_after_a_clean_stop(bench: Bench) -> None:
    """Story 56: its records behind our end are taken over as foreign; ours before and behind keep their checksums."""
    bench.fill(5)
    end, last = bench.store.log.end, bench.store.queues.get("U", 0).max
    bench.store.close()
    theirs_end = write_theirs(bench.disk, end, theirs("U", last, last + 1))
    store = bench.open()
    assert store.adopted is not None
    assert (store.adopted.visited, store.adopted.tidy, store.adopted.records) == (True, True, 2)
    bench.disk.kill()  # its tables were not taken over yet: what is known of the visit is known to the next start
    store = bench.open()
    assert (store.adopted, store.adopting, store.visited, store.tidy) == (None, True, True, True)
    finish(bench)
    assert [(entry.epoch, entry.start) for entry in store.epochs] == [(1, 0), (ROCKETMQ_EPOCH, end), (2, theirs_end)]
    assert bench.bodies("U")[-2:] == [b"theirs", b"theirs"]
    assert bench.send(b"x", "U").queue_offset == last + 2
    bench.disk.crash()
    bench.disk.unlink(f"{OWN}/epochs")  # story 9: the log itself says which bytes are foreign
    history = bench.open().epochs
    assert [(entry.epoch, entry.start) for entry in history] == [(1, 0), (ROCKETMQ_EPOCH, end), (2, theirs_end)]


def test_a_visit_that_changed_only_tables(bench: Bench) -> None:
    bench.disk.make_directory(CONFIG)
    smallfile.write_file(bench.disk, f"{CONFIG}/topics.json", b"{}")
    bench.store.close()
    run = ownfiles.load_run(bench.disk, OWN)
    assert run is not None
    assert [name for name, _ in run.exports] == ["topics.json"]
    assert bench.open().adopted is None
    bench.begin()
    bench.store.close()
    smallfile.write_file(bench.disk, f"{CONFIG}/topics.json", b'{\n\t"a": 1\n}')
    adopted = bench.open().adopted
    assert adopted is not None
    assert (adopted.records, adopted.start) == (0, adopted.end)


@pytest.mark.parametrize("became", [b'[\n  "a": 1}', b'{\n  "b": 1}', None])
def test_an_export_of_ours_that_is_damaged_or_gone_is_no_visit(bench: Bench, became: bytes | None) -> None:
    """Our tables are in our log: older ones beside the file (.bak) must not win over them."""
    path = f"{CONFIG}/topics.json"
    bench.disk.make_directory(CONFIG)
    smallfile.write_file(bench.disk, path, b'{\n  "a": 1}')
    bench.store.close()
    bench.disk.unlink(path)
    if became is not None:
        smallfile.write_file(bench.disk, path, became)
    assert bench.open().adopted is None


@pytest.mark.parametrize("seen", ["tables", "records"])
def test_rocketmq_visited_after_a_crash_of_ours(bench: Bench, seen: str) -> None:
    """Its tables have tabs; or, when it was killed before it wrote them, `abort` is its own and its records follow ours."""
    bench.fill(5)
    end = bench.store.log.end
    bench.disk.kill()
    if seen == "tables":
        bench.disk.make_directory(CONFIG)
        smallfile.write_file(bench.disk, f"{CONFIG}/consumerOffset.json", b'{\n\t"offsetTable":{}\n}')
    else:
        smallfile.write_file(bench.disk, f"{ROOT}/abort", b"1")
    write_theirs(bench.disk, end, theirs("New", 0))
    store = bench.open()
    assert store.adopted is not None
    assert (store.adopted.start, store.adopted.records, store.adopted.tidy) == (end, 1, False)
    assert bench.bodies("New") == [b"theirs"]


def test_damage_of_ours_is_never_taken_for_a_visit(bench: Bench) -> None:
    """Story 49: a flip in the checksum's name of our last record, even with a strange `abort`."""
    bench.fill(5)
    bench.store.save_progress()
    unit = bench.append(bench.unit(b"last"))[0]
    bench.disk.kill()
    content = bench.disk.content(bench.segment(unit.physical_offset // 8192 * 8192))
    at = content.index(b"last", unit.physical_offset % 8192)
    content[content.index(b"__CRC32#", at)] ^= 1
    assert bench.open().adopted is None
    assert bench.store.log.end <= unit.physical_offset


def test_the_checkpoint_does_not_say_more_than_the_queues_hold(bench: Bench) -> None:
    """D11: RocketMQ starts its recovery by these times; a record that is flushed and not dispatched counts for the log only."""
    bench.send(b"dispatched")
    bench.store.save_progress()
    first = bench.wall_ms
    bench.append(bench.unit(b"flushed only"))
    bench.store.save_progress()
    said = struct.unpack_from(">6q", bytes(bench.disk.content(f"{ROOT}/checkpoint")))
    assert said[:2] == (bench.wall_ms, first)
    assert said[5] < bench.store.log.end
    bench.store.close()
    said = struct.unpack_from(">6q", bytes(bench.disk.content(f"{ROOT}/checkpoint")))
    assert (said[:2], said[5]) == ((bench.wall_ms, bench.wall_ms), bench.store.log.end)


# --- interrupted ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("visited", [False, True])
def test_an_adoption_may_be_interrupted_anywhere(visited: bool, new_bench: Callable[[], Bench]) -> None:
    """D5: power fails at each changing operation of the opening; the next one takes over the same records."""

    def prepared() -> tuple[Bench, int]:
        bench = new_bench().begin()
        if visited:
            bench.fill(2)
            end = bench.store.log.end
            bench.store.close()
            write_theirs(bench.disk, end, theirs("New", 0, 1, 2))
        else:
            end = 0
            bench.disk = MemoryDisk()
            write_theirs(bench.disk, 0, theirs("New", 0, 1, 2))
        for path in bench.disk.paths():
            handle = bench.disk.open(path)
            bench.disk.fdatasync(handle)
            bench.disk.close(handle)
        for folder in (ROOT, f"{ROOT}/commitlog"):
            bench.disk.fsync_directory(folder)
        return bench, end

    step = 0
    while True:
        bench, start = prepared()
        left = step

        def before(_operation: str, _path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerLoss

        bench.disk.before = before
        try:
            bench.open()
        except PowerLoss:
            bench.disk.crash()
            bench.open()
        else:
            break
        assert bench.bodies("New") == [b"theirs"] * 3, step
        assert bench.store.adopting
        assert (ROCKETMQ_EPOCH, start) in [(entry.epoch, entry.start) for entry in bench.store.epochs]
        finish(bench)
        assert bench.send(b"x", "New").queue_offset == 3
        step += 1
    assert step > 20


def test_until_the_tables_are_in_the_log_the_store_says_so(theirs_only: Bench) -> None:
    bench = theirs_only
    bench.open()
    bench.disk.crash()
    assert bench.open().adopting, "the tables were not taken over"
    bench.begin()
    bench.commit()
    bench.store.close()
    run = ownfiles.load_run(bench.disk, OWN)
    assert run is not None
    assert run.state == ADOPTING, "a stop in order before that changes nothing"
    bench.open()
    finish(bench)
    run = ownfiles.load_run(bench.disk, OWN)
    assert run is not None
    assert run.state == RUNNING
    bench.store.close()
    run = ownfiles.load_run(bench.disk, OWN)
    assert run is not None
    assert run.state == CLEAN


LONGEST = "%RETRY%" + "g" * 120 + "_" + "T" * 127
STRANGE_NAMES = ["%RETRY%g+T", "", "~", "a\nb", LONGEST, "a.b", "a b", "données", ".", "..", "../../x", "a/b", "x" * 256]


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_whatever_their_topics_are_called_they_are_opened(theirs_only: Bench, name: str) -> None:
    """D17, S9: RocketMQ makes such names itself (enableRetryTopicV2), or takes them from clients; none leaves its directory."""
    bench = theirs_only
    end = write_theirs(bench.disk, 10 * len(foreign("T", 0, 0)), theirs(name, 0, 1))
    bench.open()
    finish(bench)
    assert bench.store.adopted is None or bench.store.adopted.end == end
    for _ in range(2):
        assert [one.queue_offset for one in bench.store.records(name, 0)] == [0, 1]
        bench.store.close()
        inside = [path.removeprefix(f"{ROOT}/consumequeue/") for path in bench.disk.paths() if "consumequeue" in path]
        assert all(path.count("/") == 2 and len(path.split("/")[0].encode()) <= 255 for path in inside)
        bench.open()
    bench.store.queues.delete(name)
    assert bench.store.queues.find(name, 0) is None
