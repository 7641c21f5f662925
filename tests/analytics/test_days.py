"""Counted days on the disk: what is written is read back, also after a run that was killed between two files."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from analytics.reports.days import (
    Detail,
    Manifest,
    Queue,
    Row,
    is_whole,
    name_in,
    named,
    read_days,
    read_sums,
    sweep,
    write_day,
    zone_of,
)
from rmq.errors import InvalidArgument

DAY = date(2026, 11, 21)
MANIFEST = Manifest(
    "b", DAY.isoformat(), "/store", 0, 900, True, "", "store time", 9, 0, 0, {}, {"0": "abc"}, "2026-11-22T00:30:00+00:00", {},
    "Europe/Berlin", {"total": 3, "free": 2, "store": 1},
)  # fmt: skip


def row(topic: str, hour: int, messages: int) -> Row:
    return Row(DAY, "b", datetime(2026, 11, 21, hour, tzinfo=UTC), topic, "t", messages, messages * 100, 1, 2)


PEAK_AT = datetime(2026, 11, 21, 9, tzinfo=UTC)
DETAIL = Detail("T", 3, 2, 200, PEAK_AT, {5: 9}, {-1: 2, 7: 7}, [Queue(0, 9, 900)], [("k", 4)], {"U": 1})


def test_what_was_written_is_read(tmp_path: Path) -> None:
    rows, apart = [row("T", 1, 4), row("T", 2, 5), row("U", 2, 1)], [row("%RETRY%g", 3, 6)]
    assert write_day(tmp_path, MANIFEST, [*rows, *apart], [DETAIL]) is None
    (found,) = read_days(tmp_path)
    assert found == (MANIFEST, rows, apart, [DETAIL])
    assert zone_of(tmp_path) == "Europe/Berlin"
    (sums,) = read_sums(tmp_path, ["2026-11-20", "2026-11-21"])
    assert [(each.topic, each.messages, each.bytes, each.repeats) for each in sums.rows] == [("T", 9, 900, 4), ("U", 1, 100, 2)]


def test_details_of_another_run_do_not_count(tmp_path: Path) -> None:
    """A run that is killed after it wrote the details and before the rollup leaves those of two runs beside each other."""
    write_day(tmp_path, MANIFEST, [row("T", 1, 4)], [DETAIL])
    (rollup,) = (tmp_path / "rollup").rglob("*.parquet")
    before = rollup.read_bytes()
    write_day(tmp_path, MANIFEST._replace(made="2026-11-22T09:00:00+00:00"), [row("T", 1, 4)], [DETAIL])
    rollup.write_bytes(before)
    (rollup.parent / ".rollup-b.parquet.99.new").write_bytes(b"half a file")
    assert read_days(tmp_path)[0].details == []
    sweep(tmp_path)
    assert [file.name for file in rollup.parent.iterdir()] == [rollup.name]


def test_a_quiet_day_gives_way_to_messages_and_not_the_other_way(tmp_path: Path) -> None:
    """It is a fact with a range of its own, wherever that lies; one of which nobody knows whether it is whole proves nothing."""
    quiet = MANIFEST._replace(messages=0, log_from=50, log_to=60)
    unsure = quiet._replace(complete=False, why_not="not over", log_from=80)
    for manifest, rows, kept in (
        (unsure, [], False),
        (quiet, [], False),
        (unsure, [], True),
        (MANIFEST._replace(log_from=70, log_to=75), [row("T", 1, 9)], False),
        (quiet, [], True),
    ):
        assert bool(write_day(tmp_path, manifest, rows)) == kept
    assert read_days(tmp_path)[0].rows == [row("T", 1, 9)]


def test_a_day_is_whole_by_its_log_not_by_its_name(tmp_path: Path) -> None:
    write_day(tmp_path, MANIFEST, [row("T", 1, 4)])
    assert is_whole(tmp_path, "2026-11-21", {"0": "abc", "900": "def"})
    assert not is_whole(tmp_path, "2026-11-21", {"0": "of another log"})
    assert not is_whole(tmp_path, "2026-11-20", {"0": "abc"})
    write_day(tmp_path, MANIFEST._replace(complete=False, why_not="cut"), [row("T", 1, 4)], force=True)
    assert not is_whole(tmp_path, "2026-11-21", {"0": "abc"})


def test_logs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """Also when the day is elsewhere in each of them, and again when retention has taken some files since."""
    heads = [{"0": "aaa", "700": "abc"}, {"0": "bbb", "700": "bcd"}]
    first, second = (MANIFEST._replace(heads=each) for each in heads)
    assert named(tmp_path, first).broker == named(tmp_path, second).broker == "b"
    write_day(tmp_path, named(tmp_path, first), [row("T", 1, 4)])
    assert named(tmp_path, second).broker == "b-bbb"
    write_day(tmp_path, named(tmp_path, second), [row("T", 1, 4)])
    shorter = [each._replace(heads={"700": each.heads["700"], "1400": "new"}) for each in (first, second)]
    assert [named(tmp_path, each).broker for each in shorter] == ["b", "b-bbb"]
    assert named(tmp_path, MANIFEST._replace(heads={"800": "ccc"})).broker == "b-ccc", "nothing in common"


def test_names_that_are_one_to_a_file_system_are_told_apart(tmp_path: Path) -> None:
    """The day of one took the place of the other's, or was kept out by it."""
    for broker, head in (("a|b", "aaa"), ("a_b", "bbb")):
        mine = named(tmp_path, MANIFEST._replace(broker=broker, heads={"0": head}))
        assert write_day(tmp_path, mine, [row("T", 1, 4)]) is None
    assert [each.manifest.broker for each in read_days(tmp_path)] == ["a_b-bbb", "a|b"]


def test_a_log_has_one_name(tmp_path: Path) -> None:
    """A page would count it twice: a directory of RocketMQ is named by its address, and by its group when it is adopted."""
    heads = {"0": "abc", "900": "def"}
    assert name_in(tmp_path, heads, "127.0.0.1:10911") == "127.0.0.1:10911"
    assert name_in(tmp_path, heads, "127.0.0.1:10911", "said") == "said"
    write_day(tmp_path, MANIFEST._replace(broker="127.0.0.1:10911"), [row("T", 1, 4)])
    write_day(tmp_path, MANIFEST._replace(day="2026-11-22", broker="another", heads={"0": "bcd"}), [row("T", 1, 4)])
    assert name_in(tmp_path, heads, "broker-a") == name_in(tmp_path, heads, "a", "127.0.0.1:10911") == "127.0.0.1:10911"
    assert name_in(tmp_path, {"0": "of another log"}, "broker-a") == "broker-a"
    assert named(tmp_path, MANIFEST._replace(broker="broker-a", heads=heads)).broker == "127.0.0.1:10911"
    with pytest.raises(InvalidArgument, match=r"under the name 127.0.0.1:10911, .* give --broker 127.0.0.1:10911"):
        name_in(tmp_path, heads, "broker-a", "broker-b")
    write_day(tmp_path, named(tmp_path, MANIFEST._replace(day="2026-11-22", broker="another")), [row("T", 1, 4)])
    assert name_in(tmp_path, heads, "b", "another") == "another-abc", "the one that was said has got the longer name"
