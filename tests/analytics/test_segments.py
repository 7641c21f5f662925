"""Which bytes of a store directory a job counts, and what it says of bytes that are missing or damaged."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq.errors import BadBytes, InvalidArgument, StoreError
from rmq.log.files.disk import RealDisk
from rmq.log.records.record import Record, decode, draft, host_bytes
from rmq.log.store import Store, StoreSettings
from rmq.log.units import Unit
from tests.analytics.stores import Sent, commit, write_store

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from analytics.stores.look import extent
from analytics.stores.options import Wanted
from analytics.stores.plan import plan
from analytics.stores.segments import Part, find_parts
from analytics.stores.walk import Damage, walk

MESSAGES = [Sent("T", bytes([65 + n]) * 300) for n in range(12)]
SEGMENT = 2048  # holds four of them


def read_part(part: Part) -> Iterator[Record]:
    for found in walk(part):
        if isinstance(found, Damage):
            raise BadBytes(found.why)
        yield from (decode(found.data, at) for at in found.at.tolist())


def records(store: Path) -> Iterator[Record]:
    return (record for parts in plan(store, Wanted()) for part in parts for record in read_part(part))


def bodies(store: Path) -> list[int]:
    return [record.body[0] - 65 for record in records(store)]


def test_rolled_segments_are_one_part_each(tmp_path: Path) -> None:
    write_store(tmp_path, MESSAGES, SEGMENT)
    assert len(find_parts(tmp_path)) == 3
    assert bodies(tmp_path) == list(range(12))


def test_a_file_that_a_clock_that_was_ahead_began_is_read(tmp_path: Path) -> None:
    """It was taken for one of that time, and what came behind was left out."""
    now_ms = MESSAGES[0].time_ms
    ahead = [one._replace(time_ms=4_000_000_000_000) if 2 < number < 6 else one for number, one in enumerate(MESSAGES)]
    write_store(tmp_path, ahead, SEGMENT)
    wanted = Wanted(from_ms=now_ms, to_ms=now_ms + 1)
    read = [record for parts in plan(tmp_path, wanted) for part in parts for record in read_part(part)]
    assert [record.body[0] - 65 for record in read if record.store_timestamp == now_ms] == [0, 1, 2, *range(6, 12)]


def test_a_log_that_a_clock_that_was_ahead_began_begins_with_the_next_file(tmp_path: Path) -> None:
    """It was said to begin in a time to come: its days were incomplete, and quiet ones missing."""
    write_store(tmp_path, [MESSAGES[0]._replace(time_ms=4_000_000_000_000), *MESSAGES[1:]], SEGMENT)
    assert extent(tmp_path).first_ms == MESSAGES[0].time_ms


def test_only_committed_bytes_count(tmp_path: Path) -> None:
    offsets = write_store(tmp_path, MESSAGES, SEGMENT)
    for count, end in enumerate(offsets):
        commit(tmp_path, end)
        assert bodies(tmp_path) == list(range(count))


def test_a_store_without_progress_has_nothing_committed(tmp_path: Path) -> None:
    write_store(tmp_path, MESSAGES, SEGMENT)
    (tmp_path / "rmq").mkdir()
    assert find_parts(tmp_path) == []


def test_damage_below_the_committed_offset_is_told(tmp_path: Path) -> None:
    """D7: a flipped bit anywhere in a committed record is found, also outside its body."""
    offsets = write_store(tmp_path, MESSAGES, SEGMENT)
    commit(tmp_path, offsets[3])
    file = tmp_path / "commitlog" / f"{0:020}"
    good = file.read_bytes()
    for at in (offsets[1] + 12, offsets[1] + 100, offsets[1] + 1, offsets[2] - 3):
        file.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        with pytest.raises(BadBytes, match=r"check the disk"):
            bodies(tmp_path)


def test_a_log_that_ends_before_its_committed_offset_is_told(tmp_path: Path) -> None:
    write_store(tmp_path, MESSAGES, SEGMENT)
    commit(tmp_path, 2 * SEGMENT + 400)
    (tmp_path / "commitlog" / f"{SEGMENT:020}").unlink()
    with pytest.raises(BadBytes, match="commitlog/ is missing"):
        plan(tmp_path, Wanted())


def test_a_foreign_log_counts_up_to_its_first_bad_byte(tmp_path: Path) -> None:
    offsets = write_store(tmp_path, MESSAGES[:4], SEGMENT)
    file = tmp_path / "commitlog" / f"{0:020}"
    for cut in range(offsets[2], offsets[3] + 1):
        os.truncate(file, cut)
        assert bodies(tmp_path) == [0, 1] if cut < offsets[3] else [0, 1, 2]
        os.truncate(file, SEGMENT)


def test_foreign_damage_in_a_rolled_segment_is_told(tmp_path: Path) -> None:
    offsets = write_store(tmp_path, MESSAGES, SEGMENT)
    file = tmp_path / "commitlog" / f"{0:020}"
    good = file.read_bytes()
    file.write_bytes(good[: offsets[1] + 100] + b"?" + good[offsets[1] + 101 :])
    with pytest.raises(BadBytes, match=f"record at {offsets[1]}"):
        bodies(tmp_path)


def test_a_file_made_ahead_of_time_is_no_segment(tmp_path: Path) -> None:
    write_store(tmp_path, MESSAGES, SEGMENT)
    (tmp_path / "commitlog" / f"{3 * SEGMENT:020}").write_bytes(bytes(SEGMENT))
    (tmp_path / "commitlog" / f"{4 * SEGMENT:020}").write_bytes(b"")
    assert bodies(tmp_path) == list(range(12))


def test_a_segment_removed_meanwhile_says_so(tmp_path: Path) -> None:
    write_store(tmp_path, MESSAGES, SEGMENT)
    first, *_ = find_parts(tmp_path)
    Path(first.path).unlink()
    with pytest.raises(StoreError, match="run the job again"):
        list(read_part(first))


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no commitlog/"):
        find_parts(tmp_path)
    (tmp_path / "dledger-n0").mkdir()
    with pytest.raises(InvalidArgument, match="DLedger"):
        find_parts(tmp_path)


def test_a_store_that_runs_and_rolls_is_read_up_to_its_progress(tmp_path: Path) -> None:
    """The real store: what it calls committed is read, through fillers and epoch records; a later append is not."""
    with_epochs = StoreSettings(host_bytes("127.0.0.1", 10911), segment_bytes=8192)
    store = Store.open(RealDisk(), str(tmp_path), with_epochs)
    store.open_epoch(1_000)
    append(store, range(100))
    store.dispatcher.advance(store.log.flush())
    store.save_progress()
    append(store, range(100, 120))
    assert numbers_in(tmp_path) == list(range(100))
    store.close()
    assert numbers_in(tmp_path) == list(range(120))
    assert len(find_parts(tmp_path)) > 3


def append(store: Store, numbers: range) -> None:
    queue = store.queues.get("T", 0)
    for number in numbers:
        record = draft("T", b"%300d" % number, b"", born_timestamp=1_000, born_host=host_bytes("127.0.0.1", 1))
        store.log.append([Unit(record, (len(record),), (0,), queue)], 1_000)


def numbers_in(store: Path) -> list[int]:
    return [int(record.body) for record in records(store) if record.topic == "T"]
