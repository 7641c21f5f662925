"""The walk by numpy against its slow twin, record by record: the same records, and damage found wherever it is."""

import os
import random
from itertools import pairwise
from pathlib import Path

import pytest

from rmq.log.reader import SegmentFile, read_records
from rmq.log.records.record import decode
from tests.analytics.stores import Sent, commit, write_store

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from analytics.stores import walk as walking
from analytics.stores.options import Wanted
from analytics.stores.plan import plan
from analytics.stores.segments import Part, find_parts
from analytics.stores.walk import Block, Damage, walk

MESSAGES = [Sent("T" * (1 + n % 140), bytes(n % 7) * n, {"UNIQ_KEY": f"{n:032X}", "TAGS": "a"}) for n in range(60)]
SEGMENT = 8192


def cut(part: Part, pieces: int) -> list[Part]:
    edges = [part.start + (part.stop - part.start) * number // pieces for number in range(pieces + 1)]
    return [part._replace(start=start, stop=stop, midway=start != part.start) for start, stop in pairwise(edges)]


def found(parts: list[Part]) -> tuple[list[int], list[Damage]]:
    """Offsets of all records, and all damage."""
    offsets: list[int] = []
    damages: list[Damage] = []
    for part in parts:
        for one in walk(part):
            if isinstance(one, Block):
                offsets += one.head["physical_offset"].tolist()
            else:
                damages.append(one)
    return offsets, damages


@pytest.mark.parametrize("block_bytes", [400, 3000, 1 << 20])
@pytest.mark.parametrize("pieces", [1, 2, 3, 17])
def test_pieces_together_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int, block_bytes: int) -> None:
    """A piece begins anywhere: only a record that says it is there is taken, by exactly one piece."""
    monkeypatch.setattr(walking, "BLOCK_BYTES", block_bytes)
    offsets = write_store(tmp_path, MESSAGES, SEGMENT)
    parts = find_parts(tmp_path)
    assert found([piece for part in parts for piece in cut(part, pieces)]) == (offsets, [])
    slowly = [record.physical_offset for part in parts for record in read_records(SegmentFile(part.path, part.base, SEGMENT))]
    assert slowly == offsets


def test_a_copy_of_a_record_in_a_body_is_no_record(tmp_path: Path) -> None:
    """It says that it is somewhere else."""
    write_store(tmp_path / "a", MESSAGES[:5], SEGMENT)
    inside = (tmp_path / "a" / "commitlog" / f"{0:020}").read_bytes()[:2000]
    offsets = write_store(tmp_path / "b", [Sent("T", inside), *MESSAGES[:9]], SEGMENT)
    assert found(cut(find_parts(tmp_path / "b")[0], 9)) == (offsets, [])


@pytest.mark.parametrize("pieces", [1, 4])
def test_a_flipped_bit_anywhere_is_found_also_in_an_archive(tmp_path: Path, pieces: int) -> None:
    """In a directory without rmq/: each bit of each kind of field; all other records are still read, and nothing twice."""
    offsets = write_store(tmp_path, MESSAGES, SEGMENT)
    file = tmp_path / "commitlog" / f"{0:020}"
    good = file.read_bytes()
    inside = [offset for offset in offsets if offset < SEGMENT]
    spots = [*range(inside[7], inside[8]), inside[0] + 5, inside[0] + 50, inside[-1] + 13, inside[-1] + 100]
    chance = random.Random(11)
    for at in spots:
        file.write_bytes(good[:at] + bytes([good[at] ^ 1 << chance.randrange(8)]) + good[at + 1 :])
        read, damages = found([piece for part in find_parts(tmp_path) for piece in cut(part, pieces)])
        hit = max(offset for offset in offsets if offset <= at)
        assert read == [offset for offset in offsets if offset != hit], at
        (damage,) = damages
        assert damage.start == hit
        assert damage.end == next((offset for offset in inside if offset > hit), SEGMENT)
        assert "check the disk" in damage.why


def test_a_flip_in_the_last_file_is_not_its_end(tmp_path: Path) -> None:
    """Whole records stand behind it; a tail that is torn, and zeros, are no damage."""
    offsets = write_store(tmp_path, MESSAGES[:5], SEGMENT)
    file = tmp_path / "commitlog" / f"{0:020}"
    good = file.read_bytes()
    file.write_bytes(good[: offsets[2] + 60] + b"\xff" + good[offsets[2] + 61 :])
    read, (damage,) = found(find_parts(tmp_path))
    assert (read, damage[:2]) == ([*offsets[:2], *offsets[3:]], (offsets[2], offsets[3]))
    file.write_bytes(good[: offsets[4] + 60] + bytes(SEGMENT - offsets[4] - 60))
    assert found(find_parts(tmp_path)) == (offsets[:4], [])


def test_a_missing_file_is_told_in_an_archive_too(tmp_path: Path) -> None:
    offsets = write_store(tmp_path, MESSAGES, SEGMENT)
    assert offsets[-1] >= 2 * SEGMENT
    (tmp_path / "commitlog" / f"{SEGMENT:020}").unlink()
    read, damages = found(find_parts(tmp_path))
    assert read == [offset for offset in offsets if not SEGMENT <= offset < 2 * SEGMENT]
    assert [damage[:2] for damage in damages] == [(SEGMENT, 2 * SEGMENT)]
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    assert found(find_parts(tmp_path))[1] == [], "the oldest ones are retention's"


def test_a_list_made_while_retention_works_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may show files 0 and 2 of 0, 1, 2 when 0 and 1 go meanwhile: no hole, the log begins at 2."""
    write_store(tmp_path, MESSAGES, SEGMENT)
    commit(tmp_path, 3 * SEGMENT)
    directory, listed = tmp_path / "commitlog", os.listdir
    (directory / f"{SEGMENT:020}").unlink()

    def late(path: str) -> list[str]:
        names: list[str] = listed(path)
        (directory / f"{0:020}").unlink(missing_ok=True)
        return names

    monkeypatch.setattr("os.listdir", late)
    assert [part.base for part in find_parts(tmp_path)] == [2 * SEGMENT]


def test_segments_of_other_times_are_not_read(tmp_path: Path) -> None:
    """By their first record and the next file's; damage in them disturbs nobody who did not ask for them."""
    hour = 3_600_000
    messages = [Sent("T", bytes(400), time_ms=1_795_219_200_000 + number * hour // 4) for number in range(96)]
    offsets = write_store(tmp_path, messages, SEGMENT)
    first = 1_795_219_200_000 + 12 * hour
    parts = find_parts(tmp_path, first, first + hour)
    assert 1 <= len(parts) <= 3 < len(find_parts(tmp_path))
    inside = [offset for offset, message in zip(offsets, messages, strict=True) if first <= message.time_ms < first + hour]
    assert set(inside) <= set(found(parts)[0])


def test_no_task_has_more_records_than_asked_for(tmp_path: Path) -> None:
    write_store(tmp_path, MESSAGES, SEGMENT)
    tasks = plan(tmp_path, Wanted(split_records=7))
    counts = [len(found(parts)[0]) for parts in tasks]
    assert sum(counts) == len(MESSAGES)
    assert max(counts) <= 7


def test_small_segments_share_a_task(tmp_path: Path) -> None:
    offsets = write_store(tmp_path, MESSAGES * 5, 2048)
    (parts,) = plan(tmp_path, Wanted())
    assert len(parts) > 20
    assert found(parts) == (offsets, [])
    assert len(plan(tmp_path, Wanted(least_parts=8))) >= 8


def test_tasks_are_of_one_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that cores end together: files are cut where a task is full, and together they are read once."""
    for name, value in (("SPLIT_BYTES", 20_000), ("_LEAST_BYTES", 1000), ("_OPENING_BYTES", 100)):
        monkeypatch.setattr(f"analytics.stores.plan.{name}", value)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    offsets = write_store(tmp_path, [Sent("T", b"x" * 300) for _ in range(130)], SEGMENT)
    tasks = plan(tmp_path, Wanted())
    sizes = [sum(part.stop - part.start for part in parts if isinstance(part, Part)) for parts in tasks]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) < 500
    assert found([part for parts in tasks for part in parts if isinstance(part, Part)]) == (offsets, [])


def test_a_block_is_what_decode_says(tmp_path: Path) -> None:
    write_store(tmp_path, MESSAGES, SEGMENT)
    for part in find_parts(tmp_path):
        for block in walk(part):
            assert isinstance(block, Block)
            for n, at in enumerate(block.at.tolist()):
                record = decode(block.data, at)
                assert block.data[block.body[n] : block.body_end[n]] == record.body
                assert block.data[block.topic[n] : block.topic_end[n]].decode() == record.topic
                assert block.data[block.properties[n] : block.end[n]] == record.properties
                assert block.ints(block.store)[n] == record.store_timestamp
                assert block.data[block.store[n] + 8 : block.reconsume[n]] == record.store_host
