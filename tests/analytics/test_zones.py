"""Days and hours of time zones, at the changes of their clocks too."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

import numpy as np

from analytics.reports.zones import day_of, find_zone, local_places, moments, parse_days, stretches
from rmq.errors import InvalidArgument

NOW = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
BERLIN = find_zone("Europe/Berlin")


def test_days_are_said_in_words_and_ranges() -> None:
    assert parse_days("yesterday", NOW, find_zone("UTC")) == (date(2026, 11, 20),)
    assert parse_days("yesterday", NOW, BERLIN) == (date(2026, 11, 21),), "in Berlin it is the 22nd already"
    assert parse_days("2026-11-21", NOW, BERLIN) == (date(2026, 11, 21),)
    assert parse_days("2026-11-19..yesterday", NOW, find_zone("UTC")) == (date(2026, 11, 19), date(2026, 11, 20))


@pytest.mark.parametrize("text", ["", " ", "21.11."])
def test_the_command_refuses_what_is_no_day(tmp_path: Path, text: str) -> None:
    """An empty one, too: it is a variable that nobody has set, and no wish for all days."""
    pytest.importorskip("pyspark", reason="needs the extra `spark`")
    from analytics.reports.cli import report

    with pytest.raises(InvalidArgument, match="is not a day; write it as .*yesterday, or today"):
        CliRunner().invoke(report, [str(tmp_path), "--out", str(tmp_path / "out"), "--day", text], catch_exceptions=False)


@pytest.mark.parametrize(
    "text", ["21.11.", "", "2026-11-21..", "2026-11-21..2026-11-20", "2020-01-01..2026-01-01", "9999-12-31", "0001-01-01..today"]
)
def test_what_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"not a day|days; a range"):
        parse_days(text, NOW, BERLIN)


def test_an_unknown_zone_names_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match="did you mean Europe/Berlin"):
        find_zone("Europe/Berlim")
    with pytest.raises(InvalidArgument, match="write it as"):
        find_zone("../../etc/passwd")


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-11-21", 24)])
def test_a_day_lasts_as_long_as_its_clocks_say(day: str, hours: int) -> None:
    start, end = moments(date.fromisoformat(day), BERLIN)
    assert (end - start).total_seconds() == hours * 3600


def test_the_days_of_one_read_are_those_that_follow_each_other() -> None:
    days = [date(2026, 11, day) for day in (3, 1, 2, 7, 2)]
    assert stretches(days) == [(date(2026, 11, 1), date(2026, 11, 3)), (date(2026, 11, 7), date(2026, 11, 7))]


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "Australia/Lord_Howe"])
def test_places_are_what_the_calendar_says(name: str) -> None:
    """Every seven minutes of a year: the day of each moment, and the beginning of its hour on the clocks there."""
    zone = find_zone(name)
    seconds = np.arange(1_767_225_600, 1_798_761_600, 420, np.int64)
    days, hours = local_places(seconds, zone)
    for second, day, hour in list(zip(seconds.tolist(), days.tolist(), hours.tolist(), strict=True))[::11]:
        said = datetime.fromtimestamp(second, zone)
        begin = said.replace(minute=0, second=0)
        assert day_of(day) == said.date()
        assert hour == second - (said - begin).total_seconds()
