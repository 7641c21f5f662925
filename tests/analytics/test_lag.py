"""How far groups are behind, from the files of a store."""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from analytics.reports.days import write_day
from analytics.reports.lag import Lag, queue_end, read_lag, write_lag, written_lags
from analytics.reports.report import write_page
from tests.analytics.test_days import MANIFEST

UNIT = b"\0" * 8 + (91).to_bytes(4, "big") + b"\0" * 8


def queue(store: Path, topic: str, number: int, base: int, count: int, room: int = 100) -> None:
    """The last file of a queue: `count` units, then the zeros of a file that is made ahead of time."""
    directory = store / "consumequeue" / topic / str(number)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{base * 20:020}").write_bytes((UNIT * count).ljust(room * 20, b"\0"))


@pytest.mark.parametrize(("base", "count"), [(0, 0), (0, 1), (0, 57), (0, 100), (200, 3)])
def test_the_end_of_a_queue(tmp_path: Path, base: int, count: int) -> None:
    queue(tmp_path, "T", 0, base, count)
    assert queue_end(tmp_path / "consumequeue" / "T" / "0") == base + count


def test_lag_is_what_was_stored_and_not_consumed(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    for number, (base, count) in enumerate([(0, 50), (100, 7)]):
        queue(store, "Orders", number, base, count)
    assert read_lag(store, "b") is None, "no offsets were exported yet"
    (store / "config").mkdir()
    table = {"Orders@fast": {"0": 50, "1": 107}, "Orders@slow": {"0": 20, "1": 0}, "Gone@slow": {"0": 4}, "odd": {"0": 1}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    said = read_lag(store, "b")
    assert said
    assert said[1] == [Lag("b", "fast", "Orders", 2, 0, 0, 0), Lag("b", "slow", "Orders", 2, 137, 1, 107)]
    as_of = datetime(2026, 11, 21, 1, tzinfo=UTC)
    write_lag(out, as_of, "b", said[1])
    assert written_lags(out, ["a", "b"]) == [(as_of, said[1])]


@pytest.mark.parametrize("text", ["", "[]", '{"offsetTable": {"T@g": {"x": 1}}}', '{"offsetTable": 3}'])
def test_offsets_that_cannot_be_read_are_not_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text(text)
    assert read_lag(tmp_path, "b") is None


def test_a_page_shows_no_lags_of_a_broker_that_is_gone(tmp_path: Path) -> None:
    """They stood there for good, and the page said that all lags were as old as these. A quiet broker has its days."""
    for broker, day in (("gone", "2026-10-01"), ("quiet", "2026-11-21"), ("b", "2026-11-21")):
        write_day(tmp_path, MANIFEST._replace(broker=broker, day=day), [], [])
        write_lag(tmp_path, datetime.fromisoformat(f"{day}T20:00:00+00:00"), broker, [Lag(broker, "g", "T", 1, 5, 0, 5)])
    for days in (None, [date(2026, 11, 21)]):
        _, shown = write_page(tmp_path, days, ZoneInfo("UTC"), {"b"})
        assert [lag.broker for _, lags in shown.lags for lag in lags] == ["b", "quiet"]
    _, shown = write_page(tmp_path, [date(2026, 10, 1)], ZoneInfo("UTC"), {"b"})
    assert [lag.broker for _, lags in shown.lags for lag in lags] == ["b", "gone"]
