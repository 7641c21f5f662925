"""Where a log that grows ends, and what lies between two of its offsets."""

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from analytics.records import tail
from analytics.records.batches import chosen
from analytics.spark.streamoptions import parse_stream_options, resumed, since
from analytics.stores.options import Wanted
from analytics.stores.walk import Block, walk
from rmq.errors import InvalidArgument, StoreError
from tests.analytics.stores import Sent, live, write_store


def numbers(store: Path, start: int, stop: int, fail_on_loss: bool = True) -> list[int]:
    parts = tail.between([store], start, stop, fail_on_loss)
    blocks = [found for part in parts for found in walk(part) if isinstance(found, Block)]
    return [number for block in blocks for number in block.head["queue_offset"][chosen(block, Wanted())].tolist()]


def test_a_store_that_is_written_rolled_and_retained(tmp_path: Path) -> None:
    with live(tmp_path) as store:
        store.put("T", [b"%300d" % n for n in range(30)])
        first = tail.last_offset([tmp_path], 0)
        store.put("T", [b"%300d" % n for n in range(30, 60)])
        second = tail.last_offset([tmp_path], first)
        assert first < second
        assert numbers(tmp_path, 0, first) == [*range(30)]
        assert numbers(tmp_path, first, second) == [*range(30, 60)]
        assert numbers(tmp_path, second, second) == []
        store.retain(1)
        assert numbers(tmp_path, first, second) == [*range(30, 60)]
        assert tail.first_offset([tmp_path], 0) == 8192
        with pytest.raises(StoreError, match="bytes 0 to 8192 of the log were not read yet and are gone"):
            numbers(tmp_path, 0, first)
        left = numbers(tmp_path, 0, first, fail_on_loss=False)
        assert left == [*range(left[0], 30)]
        with pytest.raises(StoreError, match="a copy that is behind, or another store"):
            numbers(tmp_path, first, second + 1000)


def test_a_limit_counts_what_was_asked_for(tmp_path: Path) -> None:
    sent = [Sent("AB"[n % 2], b"x" * 300, {"TAGS": "ab"[n % 3 == 0]}) for n in range(60)]
    offsets = write_store(tmp_path, sent, segment_bytes=8192)
    end = tail.last_offset([tmp_path], 0)
    parts = tail.between([tmp_path], 0, end, True)
    assert tail.reach(parts, end, Wanted(), 7) == offsets[7]
    assert tail.reach(parts, end, Wanted(topics=frozenset("B")), 7) == offsets[15]
    assert tail.reach(parts, end, Wanted(tags=frozenset("b")), 7) == offsets[21]
    assert tail.reach(parts, end, Wanted(), 60) == end


def test_a_directory_of_rocketmq_ends_behind_its_last_whole_record(tmp_path: Path) -> None:
    offsets = write_store(tmp_path, [Sent("T", b"x" * 300) for _ in range(30)], segment_bytes=8192)
    file = tmp_path / "commitlog" / f"{8192:020}"
    raw = file.read_bytes()
    torn = offsets[29] - 8192 + 100
    file.write_bytes(raw[:torn].ljust(8192, b"\0"))
    assert tail.last_offset([tmp_path], 0) == tail.last_offset([tmp_path], offsets[20]) == offsets[29]
    (tmp_path / "commitlog" / f"{16384:020}").write_bytes(bytes(8192))  # made ahead of time
    assert tail.last_offset([tmp_path], 0) == offsets[29]
    file.write_bytes(raw)
    assert tail.last_offset([tmp_path], offsets[29]) > offsets[29]


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    assert parse_stream_options({}).latest
    assert parse_stream_options({"startingOffsets": "latest"}).latest
    for given in ({"startingOffsets": "earliest"}, {"from": "2026-11-21"}, {"startingOffsets": '{"T": {"0": 5}}'}):
        assert not parse_stream_options(given).latest
    began = parse_stream_options({"startingOffsets": '{"T": {"0": 5}}', "from": "2026-11-21"}).wanted
    kept = since(began)
    assert resumed(Wanted(), {"starts": {"T": {"0": 5}}, "from_ms": kept["from_ms"]}) == began
    assert resumed(began, {}) == Wanted(), "options that come later change nothing"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endingOffsets": "latest"}, "is for batch reads"),
        ({"to": "2026-11-21"}, "is for batch reads"),
        ({"startingOffsets": "latest", "from": "2026-11-21"}, "choose one"),
        ({"maxOffsetsPerTrigger": "0"}, "a number from 1 on"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        parse_stream_options(options)
