"""Many records at once, by numpy, against one after the other."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rmq.errors import BadBytes
from rmq.javahash import java_hash, utf16_length
from rmq.log import dispatch
from rmq.log.files import segment
from rmq.log.files.segment import BadEntry, RecordView, walk
from rmq.log.records import columns, record
from rmq.log.records.fastread import usual_records
from tests.log.conftest import ROOT, SETTINGS, Bench, draft

BASE = 5_000


def stamped(seed: int, count: int = 300) -> bytes:
    """Records of all kinds, as they stand at `BASE` of a log."""
    chance, found = random.Random(seed), b""
    for number in range(count):
        given: dict[str, Any] = {"born_timestamp": number, "born_host": bytes(chance.choice([8, 20]))}
        properties = record.properties_to_bytes({"TAGS": "t" * chance.randrange(1, 9)} if chance.random() < 0.7 else {})
        topic = "T" * chance.choice([1, 1, 2, 127, 200])
        run = bytearray(record.draft(topic, bytes(chance.randrange(400)), properties, **given))
        record.stamp(run, [(0, [len(run)], 1, number)], BASE + len(found), bytes(16))
        found += run
    return found


def alike(seed: int, count: int = 300, shapes: int = 1) -> bytes:
    """The same of one size and with the same names, or of some shapes in turns; their values differ."""
    chance, found = random.Random(seed), b""
    for number in range(count):
        said = {"TAGS": chance.choice(["ab", "cd", "é"]), "KEYS": f"{number:08d}", "UNIQ_KEY": f"{chance.randrange(10**9):032d}"}
        said |= {f"more{one}": "x" for one in range(number % shapes)}
        made = record.draft("T", chance.randbytes(200), record.properties_to_bytes(said), born_timestamp=9, born_host=bytes(8))
        run = bytearray(made)
        record.stamp(run, [(0, [len(run)], 1, number)], BASE + len(found), bytes(16))
        found += run
    return found


def alone(data: bytes, at: int, protected: bool) -> bool:
    try:
        record.verify(data, at, BASE + at, protected)
    except BadBytes:
        return False
    return True


@pytest.mark.parametrize("made", [stamped, alike])
@pytest.mark.parametrize("protected", [True, False])
def test_what_is_whole_is_what_each_check_says(protected: bool, made: Callable[[int], bytes]) -> None:
    """D7, D8, twin: a flipped bit in any record, in the checksums' digits, in any field of the head."""
    chance, good = random.Random(protected), made(1)
    starts, end = columns.starts(good)
    assert end == len(good)
    damaged = bytearray(good)
    for at, stop in zip(starts.tolist(), [*starts[1:].tolist(), end], strict=True):
        if chance.random() < 0.6:
            places = chance.randrange(at, stop), at + chance.randrange(8, 92), stop - chance.randrange(1, 22)
            damaged[chance.choice(places)] ^= 1 << chance.randrange(8)
    data = bytes(damaged)
    block, adds_up = columns.layout(data, starts)
    whole = np.zeros(len(block), np.bool_)
    whole[adds_up] = columns.are_whole(block.only(adds_up), BASE, protected)
    expected = [alone(data, at, protected) for at in starts.tolist()]
    assert whole.tolist() == expected
    assert 60 < sum(expected) < 290
    usual = [usual_records(data, at, BASE + at, end)[1] > at for at in starts.tolist()]
    wide = ((block.head["magic"] == record.MAGIC_V2) | (block.head["sys_flag"] & 0x30 > 0)).tolist()
    assert not protected or usual == [good and not odd for good, odd in zip(expected, wide, strict=True)]
    assert all(alone(good, at, protected) for at in starts.tolist())


@pytest.mark.parametrize("shapes", [1, 2, 4])
@pytest.mark.parametrize("flips", [0, 40])
def test_hashes_of_values_that_look_alike_are_those_of_each(flips: int, shapes: int) -> None:
    """Twin: of ASCII and other texts, of one that is the same everywhere, and where a bit flipped in some of their properties; of
    one shape or some, each of which is looked at alone."""
    chance, data = random.Random(flips), bytearray(alike(4, 300 * shapes, shapes))
    block, _ = columns.layout(bytes(data), columns.starts(bytes(data))[0])
    for index in chance.sample(range(len(block)), flips):
        data[chance.randrange(int(block.properties[index]), int(block.end[index]))] ^= 1 << chance.randrange(8)
    block, _ = columns.layout(bytes(data), block.at)
    parts, others = columns.properties(block)
    seen = set(others.tolist())
    for part in parts:
        for name in "TAGS", "KEYS", "UNIQ_KEY", "__CRC32#", "none":
            records, hashes, units = part.hashes(name.encode())
            expected = [(index, text) for index in part.records.tolist() if (text := value_of(block, index, name))]
            assert records.tolist() == [index for index, _ in expected]
            assert hashes.view(np.int32).tolist() == [java_hash(text) for _, text in expected]
            assert np.broadcast_to(units, len(records)).tolist() == [utf16_length(text) for _, text in expected]
        seen |= set(part.records.tolist())
        assert part.may_name(b"KEYS\x01")
        assert not part.may_name(b"none\x01")
    assert seen == set(range(len(block)))
    assert flips or (len(parts) == shapes and not len(others))


def value_of(block: columns.Block, index: int, name: str) -> str:
    pairs = block.data[block.properties[index] : block.end[index]].decode("utf-8", "replace").split("\x02")
    return dict(pair.split("\x01") for pair in pairs if pair).get(name, "")


@pytest.mark.parametrize("bad", [None, 0, 7, 299])
def test_a_walk_over_many_is_a_walk_over_each(bad: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: the same records, and the same error at the same place."""
    data = stamped(2)
    if bad is not None:
        at = int(columns.starts(data)[0][bad])
        data = data[: at + 50] + bytes([data[at + 50] ^ 1]) + data[at + 51 :]
    assert len(data) > segment.MANY_BYTES
    many = walked(data)
    monkeypatch.setattr(segment, "MANY_BYTES", len(data) + 1)
    assert many == walked(data)
    assert len(many[0]) == (300 if bad is None else bad)


def walked(data: bytes) -> tuple[list[tuple[int, int]], str]:
    found: list[RecordView] = []
    why = ""
    try:
        for place in walk(lambda at, size: data[at - BASE : at - BASE + size], 1 << 30, BASE, BASE + len(data), True):
            found.append(place)
    except BadEntry as error:
        why = str(error)
    assert all(place.offset - BASE == place.at and place.buf == data for place in found[:1])
    return [(place.offset, place.size) for place in found], why


def test_queues_made_anew_many_records_at_once_are_the_same(
    new_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10, twin: as they were dispatched, and as one record after the other makes them; tags, odd properties, proofs, batches."""
    chance = random.Random(3)
    bench = new_bench(SETTINGS._replace(segment_bytes=1 << 18)).begin()
    for number in range(900):
        said = chance.choice([{"TAGS": "x"}, {"TAGS": "中"}, {"KEYS": "k"}, {}, {"RMQ_SRC": "due 1 2"}])
        unit = bench.unit(b"x" * chance.randrange(300), chance.choice("ABC"), chance.randrange(3))
        unit.parts, unit.tags_codes = [draft(unit.queue.topic, b"x" * chance.randrange(300), **said)], [0]
        unit.tags_codes = [record.entry_code(record.decode(unit.parts[0]))]
        unit.sizes, unit.size = [len(unit.parts[0])], len(unit.parts[0])
        bench.append(unit)
        if number % 7 == 0:
            bench.append(bench.unit(b"many", "B", 1, 5, TAGS="y"))
    bench.commit()
    expected = bench.queues()
    bench.store.save_progress()
    for few in 64, 1 << 30:
        monkeypatch.setattr(dispatch, "_FEW", few)
        bench.disk.kill()
        for path in [path for path in bench.disk.paths() if "/consumequeue/" in path or path == f"{ROOT}/rmq/queues"]:
            bench.disk.unlink(path)
        bench.open()
        assert bench.store.recovered.queues_rebuilt
        assert bench.queues() == expected
