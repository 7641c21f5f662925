"""Tables, logs and figures: what is printed, without anybody to ask."""

import io
import json
import logging
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TextIO

import pytest
from hypothesis import given, strategies as st

from rmq.commands.bench import figures
from rmq.commands.shared import logs, output
from rmq.commands.views import adminviews
from rmq.model import BrokerAddresses, ConnectionInfo, MessageQueue, QueueData, QueueProgress, QueueStats, Route
from rmq.net.commands import ConsumerConnection, ConsumeStats

GROUP = BrokerAddresses("c", "broker-a", {0: "127.0.0.1:10911"})


def test_plain_columns_are_aligned_and_carry_the_totals() -> None:
    table = output.Table({"a": "Topic", "n": "Diff"}, [("T", 5), ("longer", None)], {"sum": ("Diff Total", 5)})
    assert output.plain_lines(table) == ["#Topic  #Diff", "T       5", "longer  -", "Diff Total: 5"]


def test_json_is_a_list_and_with_totals_an_object() -> None:
    table = output.Table({"a": "A"}, [(1,), (2,)])
    assert output.as_json(table) == [{"a": 1}, {"a": 2}]
    assert output.as_json(table._replace(notes={"sum": ("Sum", 3)})) == {"rows": [{"a": 1}, {"a": 2}], "sum": 3}


def test_sums_beyond_64_bits_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    """S5: as where a broker tells offsets near 2**63. It was a bug of the command (70)."""
    queues = [QueueProgress(MessageQueue("T", "b", number), 2**63 - 1, 0, 0, 1) for number in range(3)]
    output.show(adminviews.group_progress(ConsumeStats(queues, 0.0)), "json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["consume_diff_total"] == 3 * (2**63 - 1)
    assert datetime.fromisoformat(shown["rows"][0]["last_time"])
    output.show_json_line({"sum": 2**64})
    assert json.loads(capsys.readouterr().out) == {"sum": 2**64}


def test_a_terminal_gets_a_table_without_markup_in_cells(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A topic name cannot colour or link the operator's terminal."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    rows = [("[red]x[/red]", 7), ("\x1b]0;owned\x07\u202e", 8)]
    output.show(output.Table({"a": "Name", "n": "Number"}, rows, {"t": ("Total", 7)}), "table")
    text = capsys.readouterr().out
    assert "[red]x[/red]" in text
    assert r"\x1b]0;owned\x07\u202e" in text
    assert "Total: 7" in text


@pytest.mark.parametrize(("width", "fits"), [(80, True), (25, True), (23, False), (1, False)])
def test_a_terminal_that_is_too_narrow_for_a_table_gets_whole_lines(
    width: int, fits: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It breaks them itself. Words were cut into columns of two letters: addresses in `clusterList` at 80 columns."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    table = output.Table({"a": "Addr", "w": "Why"}, [("127.0.0.1:10911", "it is stopping")], {"t": ("Total", 7)})
    output.show(table, "table")
    lines = capsys.readouterr().out.splitlines()
    assert (lines == output.plain_lines(table)) is not fits
    assert "127.0.0.1:10911" in lines[1]


def test_cluster_list_has_mqadmins_columns() -> None:
    facts = {
        "brokerVersionDesc": "V5_5_0",
        "putTps": "1.5 1.0 0.5 ",
        "getTransferredTps": "2.0 1.0",
        "brokerActive": "true",
        "commitLogDiskRatio": "0.25",
        "earliestMessageTimeStamp": "3600000",
        "pageCacheLockTimeMills": "0",
    }
    table = adminviews.cluster_list([(GROUP, 0, "127.0.0.1:10911", facts), (GROUP, 1, "127.0.0.1:1", None)], {}, 7_200_000)
    assert list(table.columns.values())[:12] == [
        "Cluster Name", "Broker Name", "BID", "Addr", "Version", "InTPS(LOAD)", "OutTPS(LOAD)", "Timer(Progress)", "PCWait(ms)",
        "Hour", "SPACE", "ACTIVATED",
    ]  # fmt: skip
    assert table.rows[0][:12] == ("c", "broker-a", 0, "127.0.0.1:10911", "V5_5_0", 1.5, 2.0, "0-0(0)", 0, 1.0, 0.25, True)
    assert table.rows[1][4:12] == ("no answer", None, None, None, None, None, None, False)


def test_cluster_totals_are_differences_of_counters() -> None:
    facts = {
        "msgPutTotalYesterdayMorning": "10",
        "msgPutTotalTodayMorning": "30",
        "msgPutTotalTodayNow": "100",
        "msgGetTotalYesterdayMorning": "1",
        "msgGetTotalTodayMorning": "2",
        "msgGetTotalTodayNow": "4",
    }
    silent = ("c", "broker-a", None, None, None, None)  # it looked like one that had got nothing
    assert adminviews.cluster_totals([(GROUP, 0, "a", facts), (GROUP, 1, "b", None)]).rows == [
        ("c", "broker-a", 20, 1, 70, 2),
        silent,
    ]


def test_route_status_and_progress() -> None:
    route = adminviews.topic_route(Route([GROUP], [QueueData("broker-a", 4, 8, 6)]))
    assert route.rows == [("c", "broker-a", "0:127.0.0.1:10911", 4, 8, 6)]
    assert route.notes["total_write_queues"] == ("Total write queues", 8)
    queue = MessageQueue("T", "broker-a", 0)
    status = adminviews.topic_status([QueueStats(queue, 1, 9, 0)], 2.5)
    assert status.rows == [("broker-a", 0, 1, 9, None)]
    stats = ConsumeStats([QueueProgress(queue, 10, 4, 6, 0)], 1.0)
    progress = adminviews.group_progress(stats)
    assert progress.rows == [("T", "broker-a", 0, 10, 4, 6, 2, None)]
    assert progress.notes["consume_diff_total"] == ("Consume Diff Total", 6)
    members = ConsumerConnection([ConnectionInfo("id", "a", "PYTHON", 513)], "CONSUME_PASSIVELY", "CLUSTERING", "", [])
    groups = adminviews.groups_progress([("g", stats, members), ("f", stats, None)])
    assert groups.rows == [("f", 0, "OFFLINE", None, None, 1.0, 6), ("g", 1, "V5_5_0", "PUSH", "CLUSTERING", 1.0, 6)]


def record(**extra: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "rmq.x", "levelno": 30, "levelname": "WARNING", "msg": "a %s", "args": ("b",), **extra})


def test_a_log_line_for_machines_is_one_json_object() -> None:
    line = json.loads(logs.JsonFormatter().format(record(topic="T")))
    assert (line["level"], line["logger"], line["message"], line["topic"]) == ("warning", "rmq.x", "a b", "T")
    assert line["time"].endswith("+00:00")
    odd = json.loads(logs.JsonFormatter().format(record(store="/st\udcf6/\\udder", number=2**70)))
    assert (odd["store"], odd["number"], odd["level"]) == ("/st\\udcf6/\\udder", 2**70, "warning")


def test_a_log_line_for_people_has_the_error_below() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        text = logs.HumanFormatter(False).format(record(exc_info=sys.exc_info()))
    first, *rest = text.splitlines()
    assert first.endswith("WARNING rmq.x: a b")
    assert rest[-1] == "ValueError: why"
    assert "\x1b" not in text
    assert logs.HumanFormatter(True).format(record()).startswith("\x1b[33m")
    forged = logs.HumanFormatter(False).format(record(client="x\n09:12:01.123 INFO    rmq.audit: all is well\x1b[2J"))
    assert forged.endswith(r" client=x\n09:12:01.123 INFO    rmq.audit: all is well\x1b[2J")


@contextmanager
def started(stream: TextIO, form: str = "json") -> Iterator[logging.Logger]:
    """A logger whose lines go to that stream."""
    handlers, level = logging.root.handlers[:], logging.root.level
    logs.start(form, "info", stream)
    try:
        yield logging.getLogger("rmq.test")
    finally:
        logging.root.handlers[0].close()
        logging.root.handlers[:], logging.root.level = handlers, level


def test_logs_are_json_when_nobody_watches() -> None:
    stream = io.StringIO()
    with started(stream, "auto") as log:
        log.info("hello")
        log.debug("not this")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["hello"]


@pytest.mark.timeout(60)  # without that it waits for ever
def test_who_does_not_read_the_log_holds_nothing_up() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as reading, open(writer, "w") as stream, started(stream) as log:
        for number in range(200):
            log.info("line", extra={"number": number, "long": "x" * 10_000})
        early = reading.read(1 << 20).splitlines()
        log.info("hello")
        late = reading.read(1 << 20).splitlines()
    whole = [json.loads(line)["number"] for line in early[:-1]]
    assert whole == [*range(len(whole))]
    assert 1 < len(whole) < 100  # and the next one is cut
    told, hello = (json.loads(line)["message"] for line in late[-2:])
    assert told.startswith(f"left out here: {200 - len(whole)} lines,")
    assert hello == "hello"


@pytest.mark.timeout(60)  # without that it waits for ever
def test_a_terminal_that_nobody_reads_holds_nothing_up() -> None:
    main, other = os.openpty()
    with open(main, "rb", buffering=0) as reading, open(other, "w") as stream, started(stream) as log:
        for number in range(2_000):
            log.info("line %d", number)
        found = b""
        while b"hello" not in found:
            log.info("hello")
            found += reading.read(4096)
    assert b"left out here: " in found


def test_a_log_whose_disk_was_full_goes_on_in_lines(tmp_path: Path) -> None:
    """Lines were glued together, and pieces of Python's own complaints stood between them."""
    file, before = tmp_path / "log", resource.getrlimit(resource.RLIMIT_FSIZE)
    file.write_text("earlier\n")
    with file.open("a") as stream, started(stream) as log:
        log.info("first")
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 50, before[1]))
        for number in range(20):
            log.info("line", extra={"number": number})
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        log.info("hello")
    earlier, first, torn, *late = file.read_text().splitlines()
    assert (earlier, json.loads(first)["message"], len(torn)) == ("earlier", "first", 50)
    assert [json.loads(line)["message"].partition(",")[0] for line in late] == ["left out here: 20 lines", "hello"]


@given(st.lists(st.floats(1e-6, 100.0), min_size=1, max_size=300), st.sampled_from(figures.PERCENTILES))
def test_percentiles_agree_with_sorting_to_one_percent(times: list[float], percent: float) -> None:
    latencies = figures.Latencies()
    for seconds in times:
        latencies.add(seconds)
    exact = sorted(times)[max(0, -(-len(times) * percent // 100).__int__() - 1)]
    assert exact * 0.999 <= latencies.percentile(percent) <= exact * 1.011


def test_cpu_time_is_read_past_a_name_with_brackets() -> None:
    stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0"
    assert figures.cpu_seconds(stat, 100) == 2.0


def test_moments_are_mqadmins_for_people_and_with_their_zone_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    at = adminviews.moment(1_795_230_000_123)
    assert at is not None
    table = output.Table({"at": "At"}, [(at,), (adminviews.moment(0),)])
    assert output.plain_lines(table)[1:] == [at.strftime("%Y-%m-%d %H:%M:%S,123"), "-"]
    output.show(table, "json")
    shown = json.loads(capsys.readouterr().out)
    assert (datetime.fromisoformat(shown[0]["at"]), shown[1]["at"]) == (at, None)
    assert at.utcoffset() is not None
