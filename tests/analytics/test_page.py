"""The page of the report: what it says of weeks, disks, queues and groups, and that it stays readable."""

import re
from datetime import UTC, date, datetime, timedelta

import pytest

pytest.importorskip("plotly", reason="needs the extra `spark`")
pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from analytics.reports.days import Day, Detail, Manifest, Queue, Row
from analytics.reports.history import Change, Shown, changes, disks, summaries, weeks
from analytics.reports.lag import Lag
from analytics.reports.page import render
from analytics.reports.pageplots import plots
from analytics.reports.pagetables import duration, share, size

TODAY = date(2026, 11, 21)
GIB = 1 << 30


def manifest(day: date, broker: str = "b", complete: bool = True, free: int = 500 * GIB) -> Manifest:
    made = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    return Manifest(
        broker, day.isoformat(), "/store", 0, 2 * GIB, complete, "" if complete else "retention took it", "store time", 0, 0, 0,
        {}, {}, made.isoformat(), {}, "UTC", {"total": 1000 * GIB, "free": free, "store": 3 * GIB},
    )  # fmt: skip


def row(topic: str, messages: int, day: date = TODAY, broker: str = "b", hour: int = 0) -> Row:
    return Row(day, broker, datetime(day.year, day.month, day.day, hour, tzinfo=UTC), topic, "", messages, messages * 500, 0, 0)


def detail(topic: str, queues: list[int], keys: list[tuple[str, int]], origins: dict[str, int]) -> Detail:
    peak_at = datetime(2026, 11, 21, 9, 30, 1, tzinfo=UTC)
    parts = [Queue(number, count, count * 500) for number, count in enumerate(queues)]
    return Detail(topic, len(keys), 12, 6000, peak_at, {72: sum(queues)}, {10: sum(queues)}, parts, keys, origins)


def day_of(rows: list[Row], apart: list[Row] | None = None, details: list[Detail] | None = None, day: date = TODAY) -> Day:
    return Day(manifest(day), rows, apart or [], details or [])


def shown(*counted: Day, before: tuple[Day, ...] = (), lags: tuple[Lag, ...] = ()) -> Shown:
    now = datetime(2026, 11, 22, 1, tzinfo=UTC)
    return Shown(counted, before, TODAY, TODAY, "Europe/Berlin", [(now, lags)] if lags else [], now)


def body(page: str) -> str:
    """Less plotly's own script."""
    return re.sub(r"<script[\s\S]*?</script>", "", page)


def test_what_differs_from_former_weeks() -> None:
    former = [TODAY - timedelta(days=7 * n) for n in (1, 2, 3)]
    before = [day_of([row("same", 1000, day), row("fewer", 900, day), row("gone", 300, day)], day=day) for day in former[:2]]
    before.append(Day(manifest(former[2], complete=False), [row("same", 1, former[2])], []))
    now = shown(day_of([row("same", 1200), row("fewer", 500), row("new", 5000), row("small", 90)]), before=tuple(before))
    assert len(weeks(now)) == 2, "an incomplete one says nothing"
    assert changes(now, weeks(now)) == [Change("new", 5000, 0), Change("fewer", 500, 900), Change("gone", 0, 300)]
    page = body(render("Messages", now))
    assert "<td>new</td><td>5,000</td><td>0</td><td>new</td>" in page
    assert "<td>fewer</td><td>500</td><td>900</td><td>-44 %</td>" in page
    assert "No former week is in this directory yet" in render("Messages", shown(day_of([row("T", 1)])))


def test_when_the_disk_is_full() -> None:
    """400 GiB are free until 90 %: at 2 GiB a day that the log got, or at 4 a day that the disk lost between two reports."""
    (alone,) = disks(shown(day_of([row("T", 1)])))
    assert (alone.grows, alone.of_days, alone.full) == (2 * GIB, 1, date(2026, 11, 22) + timedelta(days=200))
    week_ago = TODAY - timedelta(days=7)
    earlier = Day(manifest(week_ago, free=528 * GIB), [row("T", 1, week_ago)], [])
    (two,) = disks(shown(day_of([row("T", 1)]), before=(earlier,)))
    assert (two.grows, two.of_days, two.full) == (4 * GIB, 7, date(2026, 11, 22) + timedelta(days=100))
    (shrinking,) = disks(shown(day_of([row("T", 1)]), before=(earlier._replace(manifest=manifest(week_ago, free=GIB)),)))
    assert shrinking.full is None
    by_property = manifest(TODAY)._replace(complete=None)  # its day says nothing of how the log grew
    assert not list(disks(shown(Day(by_property, [row("T", 1)], []))))


def test_what_is_damaged_counts_once() -> None:
    """Each day says what the run met in all days that it read."""
    yesterday = TODAY - timedelta(days=1)
    hurt = manifest(TODAY)._replace(lost=2, damaged_bytes=100)
    days = (
        hurt,
        hurt._replace(day=yesterday.isoformat()),
        hurt._replace(broker="c"),
        hurt._replace(made="2026-11-20T00:00:00+00:00"),
    )
    page = render("Messages", shown(*(Day(each, [row("T", 1)], []) for each in days)))
    assert "6 messages are known to be lost, 300 damaged bytes were passed over." in page


def test_brokers_and_days_add_up() -> None:
    one = day_of([row("T", 100)], details=[detail("T", [90, 10], [("k", 7), ("l", 3)], {})])
    other = Day(manifest(TODAY, "c"), [row("T", 50, broker="c")], [], [detail("T", [50], [("k", 5)], {})])
    summary = summaries([one, other])["T"]
    assert (summary.messages, summary.queues, summary.top_keys) == (
        150,
        {("b", 0): 90, ("b", 1): 10, ("c", 0): 50},
        {"k": 12, "l": 3},
    )
    assert summary.skew == pytest.approx(90 * 3 / 150)
    page = body(render("Messages", shown(one, other)))
    assert "1.8 times the mean" in page
    assert "<td>T</td><td>k</td><td>12</td><td>8.0 %</td>" in page
    assert "Brokers: b, c." in page
    assert "in the busiest second of one broker" in render(
        "Messages", shown(one._replace(details=[*one.details, detail("", [], [], {})]), other)
    )


def test_groups_that_fail_or_are_behind() -> None:
    apart = [row("%RETRY%pay", 30), row("%DLQ%pay", 1), row("rmq_sys_X", 9)]
    details = [detail("%RETRY%pay", [30], [], {"Orders": 30}), detail("%DLQ%pay", [1], [], {"Orders": 1})]
    lags = (Lag("b", "pay", "Orders", 4, 250, 2, 200), Lag("b", "idle", "Orders", 4, 0, 0, 0))
    page = body(render("Messages", shown(day_of([row("Orders", 1000)], apart, details), lags=lags)))
    assert "<td>pay</td><td>Orders</td><td>30</td><td>1</td><td>3.0 %</td><td>0.1 %</td>" in page
    many = detail("%RETRY%pay", [30], [], {f"O{number}": 9 - number for number in range(9)})
    assert "<td>pay</td><td>O0, O1, O2, 6 more</td><td>30</td>" in body(render("Messages", shown(day_of([], apart, [many]))))
    assert "<td>pay</td><td>Orders</td><td>b</td><td>250</td><td>200 in queue 2</td>" in page
    assert "1 of 2 pairs of group and topic are behind" in page
    assert "as of 2026-11-22 02:00:00" in page, "by the clocks of the zone"


def test_two_thousand_topics_stay_readable() -> None:
    rows = [row(f"topic-{number:04d}", 3000 - number, hour=number % 24) for number in range(2000)]
    page = render("Messages", shown(day_of(rows)))
    table = re.findall(r'<table id="topics">(.*?)</table>', page, re.DOTALL)[0]
    assert table.count("<tr>") == 1 + 20 + 1
    assert "<td>1,980 other topics</td>" in table
    plots = page.rpartition("Plotly.newPlot(")[0]
    assert len(re.findall(r'"name":"topic-\d+"', plots)) == 2 * 20
    assert '"name":"other topics"' in plots
    assert re.findall(r"<details><summary>(.*?)</summary>", page) == ["All 2,000 topics"]


def test_what_senders_wrote_is_text() -> None:
    evil = "<script>alert('x')</script>"
    rows = [row(evil, 10)._replace(tag=evil), row("T", 5)]
    apart, lags = [row(f"%RETRY%{evil}", 3)], (Lag(evil, evil, evil, 1, 5, 0, 5),)
    page = render(evil, shown(day_of(rows, apart, [detail(evil, [9, 1], [(evil, 4)], {evil: 1})]), lags=lags))
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert") > 8


def test_tags_that_begin_alike_have_bars_of_their_own() -> None:
    """They stood in one place of the plot, so that the largest hid the others."""
    names = [f"com.example.shop.orders.events.Order{what}" for what in ("Made", "Sent", "Paid")]
    rows = [row("T", count)._replace(tag=name) for count, name in enumerate(names, 1)]
    (figure,) = [each for each in plots(rows, [], ["T"], "UTC") if "by tag" in each.layout.title.text]
    assert len(set(figure.data[0].x)) == len(figure.layout.xaxis.ticktext) == 3
    assert list(figure.data[0].y) == [3, 2, 1]


def test_an_old_rollup_has_no_details() -> None:
    page = body(render("Messages", shown(day_of([row("T", 3)]))))
    assert "<td>T</td><td>3</td><td>100.0 %</td><td>1.5 KiB</td><td>-</td><td>-</td>" in page
    assert "Busiest queues" not in page


def test_numbers_for_people() -> None:
    assert [size(count) for count in (0, 1023, 1024, 5 * GIB)] == ["0 B", "1,023 B", "1.0 KiB", "5.0 GiB"]
    assert [duration(ms) for ms in (-1, 7, 61_500, 600_000, 9_000_000)] == ["< 0 ms", "7 ms", "61.5 s", "10 min", "2 h"]
    assert [share(part, 1000) for part in (1, 9, 355)] == ["0.1 %", "0.9 %", "35.5 %"]
    assert share(1, 0) == "0 %"
