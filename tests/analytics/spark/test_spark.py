"""Real Spark: the data source against what RocketMQ's own client says, the report against what pandas counts."""

import asyncio
import csv
import gzip
import hashlib
import importlib
import itertools
import os
import re
import shutil
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmq.cli import run as run_rmq
from rmq.errors import BadBytes, InvalidArgument, StoreError
from rmq.log.files.disk import RealDisk
from rmq.log.records.record import draft, host_bytes
from rmq.log.records.tombstones import tombstone
from rmq.log.store import Store, StoreSettings
from rmq.log.units import Unit
from tests.analytics.stores import Sent, commit, write_store

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")

from analytics.landing.versions import manifest_of  # noqa: E402 -- needs the extra
from analytics.reports.cli import report as report_command  # noqa: E402 -- needs the extra
from analytics.reports.days import read_days  # noqa: E402
from analytics.reports.report import NothingToReport, Resources, RollupKept, build_report  # noqa: E402
from analytics.reports.workdir import locked  # noqa: E402

NOON = 1_795_262_400_000  # 2026-11-21T12:00Z
ROOT = Path(__file__).parent.parent.parent.parent
Golden = Callable[[str], tuple[Path, list[dict[str, Any]]]]
MAPPED = [
    ("topic", "topic"), ("queue_id", "queueId"), ("queue_offset", "queueOffset"), ("physical_offset", "physicalOffset"),
    ("size", "storeSize"), ("flag", "flag"), ("reconsume_times", "reconsumeTimes"), ("properties", "properties"),
]  # fmt: skip


def load(spark: Any, store: Path, **options: str) -> Any:
    return spark.read.format("rmq").option("path", str(store)).options(**options).load()


def host(text: str) -> str:
    ip, _, port = text.rpartition(":")
    return f"{ip_address(ip.strip('[]'))}:{port}"


def milliseconds(moment: datetime) -> int:
    return round(moment.astimezone(UTC).timestamp() * 1000)


def is_body(body: bytes, said: dict[str, Any]) -> bool:
    if "b64" in said:
        return body == b64decode(said["b64"])
    return len(body) == said["len"] and hashlib.sha256(body).hexdigest() == said["sha256"]


@pytest.mark.parametrize("name", ["s02-killed", "s04-plain-497", "s13-compress", "s14-crc", "s25-ipv6"])
def test_rows_are_what_rocketmqs_client_saw(spark: Any, golden: Golden, name: str) -> None:
    store, expected = golden(name)
    rows = load(spark, store, system="true", body="plain").orderBy("physical_offset").collect()
    assert len(rows) == len(expected)
    for row, said in zip(rows, expected, strict=True):
        assert {ours: row[ours] for ours, _ in MAPPED} == {ours: said[theirs] for ours, theirs in MAPPED}
        for which in ("born", "store"):
            assert milliseconds(row[f"{which}_timestamp"]) == said[f"{which}Timestamp"]
            assert host(row[f"{which}_host"]) == host(said[f"{which}Host"])
        assert (row["tags"], row["keys"]) == (said["properties"].get("TAGS"), said["properties"].get("KEYS", "").split())
        assert is_body(bytes(row["body"]), said["body"])


def test_options_choose_rows(spark: Any, tmp_path: Path) -> None:
    names = ["A", "B", "SCHEDULE_TOPIC_XXXX", "rmq_sys_STATE", "A"]
    write_store(tmp_path, [Sent(name, time_ms=NOON + 1_000 * n) for n, name in enumerate(names)])
    assert load(spark, tmp_path).count() == 3
    assert load(spark, tmp_path, system="true").count() == 5
    assert load(spark, tmp_path, topics="A, B").count() == 3
    assert load(spark, tmp_path, **{"from": str(NOON + 1000), "to": "2026-11-21T12:00:04"}).count() == 1
    assert load(spark, tmp_path, body="none").where("body is not null").count() == 0


def test_paths_are_one_or_many(spark: Any, tmp_path: Path) -> None:
    """Lists and patterns, in `load`, in options and in SQL; two brokers, one of them with a copy."""
    for name in ("one", "two", "copy"):
        write_store(tmp_path / name, [Sent(name[:1].replace("c", "o")) for _ in range(5)])
    listed = spark.read.format("rmq").load([str(tmp_path / name) for name in ("one", "two", "copy")])
    matched = spark.read.format("rmq").load(f"file:{tmp_path}/{{one,t*}}")
    for frame in (listed, matched):
        assert sorted(map(tuple, frame.groupBy("topic").count().collect())) == [("o", 5), ("t", 5)]
    spark.sql(f"CREATE TABLE all_of_them USING rmq OPTIONS (path '{tmp_path}/*')")
    try:
        assert spark.sql("SELECT count(*) FROM all_of_them").collect() == [(10,)]
    finally:
        spark.sql("DROP TABLE all_of_them")


def test_committed_rows_only(spark: Any, tmp_path: Path) -> None:
    offsets = write_store(tmp_path, [Sent("T", b"x" * 300) for _ in range(12)], segment_bytes=2048)
    commit(tmp_path, offsets[7])
    frame = load(spark, tmp_path)
    assert frame.rdd.getNumPartitions() == 1, "small segments share a task"
    assert [row[0] for row in frame.select("queue_offset").orderBy("queue_offset").collect()] == list(range(7))


def test_filters_narrow_what_is_read(spark: Any, tmp_path: Path) -> None:
    """An hour's rows come from its segments: a flip in another hour's does not matter."""
    sent = [Sent(f"T{n % 3}", b"x" * 300, {"TAGS": "ab"[n % 2]}, NOON + n * 60_000) for n in range(240)]
    offsets = write_store(tmp_path, sent, segment_bytes=8192)
    file = tmp_path / "commitlog" / f"{0:020}"
    raw = file.read_bytes()
    query = "topic in ('T1', 'T2') and tags = 'b' and queue_id = 0 and store_timestamp >= '2026-11-21T15:00:00Z'"
    expected = [n for n in range(180, 240) if n % 3 and n % 2]
    file.write_bytes(raw[:100] + b"?" + raw[101:])
    rows = load(spark, tmp_path).where(query).select("physical_offset").orderBy("physical_offset").collect()
    assert [row[0] for row in rows] == [offsets[n] for n in expected]


def test_reads_of_one_frame_are_independent(spark: Any, tmp_path: Path) -> None:
    """Each reads what its query asks for: Spark's own pushdown keeps the filters of one read for all others of the frame.

    Also with that pushdown, and in a session in which nobody registered the format.
    """
    write_store(tmp_path, [Sent(f"T{n % 3}", b"x" * 300) for n in range(30)])
    for session, own_pushdown in ((spark, "false"), (spark, "true"), (spark.newSession(), "true")):
        session.conf.set("spark.sql.python.filterPushdown.enabled", own_pushdown)
        frame = load(session, tmp_path)
        one, two = (frame.where(f"topic = '{name}'").select("topic") for name in ("T1", "T2"))
        assert sorted(row[0] for row in one.union(two).collect()) == ["T1"] * 10 + ["T2"] * 10
        assert frame.count() == 30
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_queries_read_only_the_columns_that_they_use(spark: Any, tmp_path: Path) -> None:
    write_store(tmp_path / "store", [Sent(f"T{n % 3}", b"x" * 3000, {"TAGS": "ab"[n % 2]}) for n in range(90)])
    load(spark, tmp_path / "store", shape="kafka").createOrReplaceTempView("all_messages")
    spark.sql(f"CREATE TABLE few USING rmq OPTIONS (path '{tmp_path / 'store'}', topics 'T1')")
    try:
        for query, columns, expected in (
            ("SELECT count(*) FROM all_messages", ["messages"], (90,)),
            ("SELECT count(*) AS one, count(1) FROM few", ["messages"], (30, 30)),
            ("SELECT count(*) + 1 FROM few", ["queue_id"], (31,)),
            ("SELECT count(*) FROM few WHERE tags = 'a'", ["tags"], (15,)),
            ("SELECT count(tags), count(DISTINCT tags) FROM few", ["tags"], (30, 2)),
            ("SELECT count(*) FROM few HAVING count(*) > 30", ["messages"], None),
            ("SELECT max(queue_offset), max(queue_id) FROM few WHERE TAGS = 'a'", ["queue_id", "queue_offset", "tags"], (29, 0)),
        ):
            (read,) = re.findall(r"BatchScan \w+\[([^]]*)\]", spark.sql(f"EXPLAIN {query}").collect()[0][0])
            assert [name.partition("#")[0] for name in read.split(", ")] == columns
            assert spark.sql(query).collect() == ([] if expected is None else [expected])
        for columns in ("*", "topic, queue_offset"):
            (plan,) = spark.sql(f"EXPLAIN SELECT {columns} FROM few").collect()[0]
            assert "Project" not in plan, "that would copy each row once more"
        assert sorted(spark.sql("SELECT topic, queue_offset FROM few").collect()) == [("T1", n) for n in range(30)]
    finally:
        spark.sql("DROP TABLE few")


def test_places_and_patterns_choose_rows(spark: Any, tmp_path: Path) -> None:
    write_store(tmp_path, [Sent(name) for name in ("Orders", "Orders", "Order-Events", "rmq_sys_STATE", "Orders")])

    def numbers(**options: str) -> list[tuple[str, int]]:
        return sorted((row["topic"], row["queue_offset"]) for row in load(spark, tmp_path, **options).collect())

    assert numbers(subscribePattern="Order.*", startingOffsets='{"Orders": {"0": 1}}') == [
        ("Order-Events", 0),
        ("Orders", 1),
        ("Orders", 2),
    ]
    assert numbers(assign='{"Orders": [0]}', endingOffsets='{"Orders": {"0": 1}}') == [("Orders", 0)]
    assert numbers(assign='{"Orders": [7]}') == []
    assert numbers(subscribe="rmq_sys_STATE") == [("rmq_sys_STATE", 0)], "whoever names it wants it"


def test_a_schema_chooses_columns(spark: Any, tmp_path: Path) -> None:
    write_store(tmp_path, [Sent("T", b"hello", {"KEYS": "k", "UNIQ_KEY": "F0"})])
    reader = spark.read.format("rmq").option("path", str(tmp_path))
    assert reader.schema("uniq_key string, topic string").load().collect() == [("F0", "T")]
    for wrong, says in (("topik string", "did you mean 'topic'"), ("topic int", "is string, not int")):
        with pytest.raises(Exception, match=says):
            reader.schema(wrong).load().count()


def test_the_shape_of_kafka(spark: Any, tmp_path: Path) -> None:
    write_store(tmp_path, [Sent("T", b"hello", {"KEYS": "k"}, NOON)])
    (row,) = load(spark, tmp_path, shape="kafka", includeHeaders="true").collect()
    assert (row["key"], row["value"], row["topic"], row["partition"], row["offset"]) == (b"k", b"hello", "T", 0, 0)
    assert (milliseconds(row["timestamp"]), row["timestampType"]) == (NOON, 1)
    assert tuple(row["headers"][0]) == ("KEYS", b"k")


def test_an_empty_store_is_an_empty_frame(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert load(spark, tmp_path).count() == 0
    assert load(spark, tmp_path).where("topic = 'T'").collect() == []


def test_a_table_by_sql(spark: Any, tmp_path: Path) -> None:
    write_store(tmp_path / "store", [Sent("A"), Sent("B"), Sent("B")])
    spark.sql(f"CREATE TABLE messages USING rmq OPTIONS (path '{tmp_path / 'store'}', topics 'B')")
    try:
        assert spark.sql("SELECT count(*) FROM messages").collect() == [(2,)]
    finally:
        spark.sql("DROP TABLE messages")


def test_spark_finds_the_format_by_itself(spark: Any, tmp_path: Path) -> None:
    """In a session in which nobody registered it: Spark looks into packages whose names begin with pyspark_."""
    write_store(tmp_path, [Sent("T")])
    assert load(spark.newSession(), tmp_path).count() == 1


def test_damage_is_skipped_or_set_apart(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever passes over it says how much."""
    offsets = write_store(tmp_path, [Sent("T", b"x" * 300) for _ in range(12)], segment_bytes=2048)
    file = tmp_path / "commitlog" / f"{0:020}"
    raw = file.read_bytes()
    file.write_bytes(raw[: offsets[1] + 20] + b"?" + raw[offsets[1] + 21 :])
    (tmp_path / "commitlog" / f"{2048:020}").unlink()
    with pytest.raises(Exception, match="a file of commitlog/ is missing"):
        load(spark, tmp_path).count()
    assert load(spark, tmp_path, onDamage="skip").count() == 12 - 1 - 4
    assert load(spark, tmp_path, onDamage="quarantine").count() == 12 - 1 - 4 + 2
    apart = load(spark, tmp_path, onDamage="quarantine").where("topic is null").orderBy("physical_offset").collect()
    assert [(row["physical_offset"], row["size"], row["tags"]) for row in apart] == [
        (offsets[1], offsets[2] - offsets[1], "damage"),
        (2048, 2048, "damage"),
    ]
    assert len(apart[0]["body"]) == offsets[2] - offsets[1]
    assert apart[1]["body"] is None
    assert "is missing" in apart[1]["keys"][0]
    with pytest.raises(BadBytes, match="--on-damage skip"):
        build_report(tmp_path, tmp_path / "out")
    damaged = 2048 + offsets[2] - offsets[1]
    assert run_rmq(["report", str(tmp_path), "--out", str(tmp_path / "out"), "--on-damage", "skip"]) == 0
    assert f"damaged: {damaged} bytes passed over" in capsys.readouterr().out
    assert read_days(tmp_path / "out")[0].manifest.messages == 7
    assert f"{damaged} damaged bytes were passed over" in (tmp_path / "out" / "report.html").read_text()
    for command, bad in (["export"], 0), (["changes", "--topics", "T"], 7):
        out = tmp_path / command[0]
        assert run_rmq([*command, str(tmp_path), "--out", str(out), "--on-damage", "skip"]) == 0
        assert f", {damaged} damaged bytes passed over; read" in capsys.readouterr().out
        found = manifest_of(out / "current")
        assert [found[name] for name in ("messages", "bad", "damaged_bytes")] == [7, bad, damaged]
        landed = spark.read.parquet(str(out / "current" / ("bad" if bad else "")))
        assert landed.where("topic = 'T'").count() == landed.count() == 7


@pytest.mark.parametrize(("options", "says"), [({"body": "hex"}, "allowed are plain"), ({"subscibe": "T"}, "mean 'subscribe'")])
def test_a_wrong_option_says_what_is_allowed(spark: Any, tmp_path: Path, options: dict[str, str], says: str) -> None:
    write_store(tmp_path, [Sent("T")])
    with pytest.raises(Exception, match=says):
        load(spark, tmp_path, **options).count()


def flights(limit: int) -> list[dict[str, str]]:
    with gzip.open(ROOT / "examples" / "data" / "flights-sample.csv.gz", "rt") as file:
        return list(csv.DictReader(file))[:limit]


def tail(row: dict[str, str]) -> str:
    return row["tailnum"] or "none"


def test_report_equals_pandas(spark: Any, tmp_path: Path) -> None:
    """Counts by topic, tag and hour from the segments equal those from the file; repeats are the ones that were put in."""
    pandas = pytest.importorskip("pandas")
    rows = flights(1500)
    sent = [
        Sent(row["origin"], b"", {"TAGS": row["carrier"], "KEYS": tail(row), "UNIQ_KEY": str(n), "at": row["time_hour"]})
        for n, row in enumerate(rows)
    ]
    write_store(tmp_path / "store", sent + sent[:7], segment_bytes=1 << 16)
    made = build_report(tmp_path / "store", tmp_path / "out", time_property="at")
    assert (made.messages, made.repeats) == (1507, 7)

    rollup = pandas.read_parquet(tmp_path / "out" / "rollup")
    assert int(rollup["messages"].sum()) == 1507
    ours = rollup.assign(messages=rollup["messages"] - rollup["repeats"]).set_index(["topic", "tag", "hour"]).sort_index()
    frame = pandas.DataFrame([{**row, "tailnum": tail(row), "hour": pandas.Timestamp(row["time_hour"])} for row in rows])
    by = frame.groupby(["origin", "carrier", "hour"])
    assert ours["messages"].to_dict() == by.size().to_dict()
    assert ours["distinct_keys"].to_dict() == by["tailnum"].nunique().to_dict()


@pytest.fixture
def two_days(tmp_path: Path) -> Path:
    first = 1_795_219_200_000  # 2026-11-21T00:00Z
    times = [first, first + 3_600_000, first + 86_399_999, first + 86_400_000]
    write_store(tmp_path / "store", [Sent(f"T{n}", b"x", {"TAGS": "a&b"}, at) for n, at in enumerate(times)])
    return tmp_path


def test_a_day_is_replaced_and_others_stay(spark: Any, two_days: Path) -> None:
    out, day = two_days / "out", date(2026, 11, 21)
    build_report(two_days / "store", out)
    files = sorted((out / "rollup").rglob("*.parquet"))
    assert [file.parent.name for file in files] == ["day=2026-11-21", "day=2026-11-22"]
    rows = [days.rows for days in read_days(out)]
    other = files[1].read_bytes()
    for _ in range(2):
        made = build_report(two_days / "store", out, day)
        assert made.messages == 3
    assert [days.rows for days in read_days(out)] == rows, "the same day gives the same numbers"
    assert files[1].read_bytes() == other
    assert sorted(path.name for path in out.iterdir()) == [".lock", "report-2026-11-21.html", "report.html", "rollup", "topics"]
    assert not [path for path in out.rglob("*") if path.name.endswith(".new")]


def test_a_day_that_retention_took_does_not_shrink(spark: Any, tmp_path: Path) -> None:
    """The store's own retention removes segments of a day that is counted already: the numbers stay, and the run says so."""
    with_small_files = StoreSettings(host_bytes("127.0.0.1", 10911), segment_bytes=8192, group="orders")
    store = Store.open(RealDisk(), str(tmp_path / "store"), with_small_files)
    store.open_epoch(NOON)
    queue = store.queues.get("T", 0)
    for number in range(100):
        record = draft("T", b"%300d" % number, b"", born_timestamp=NOON, born_host=host_bytes("127.0.0.1", 1))
        store.log.append([Unit(record, (len(record),), (0,), queue)], NOON)
    store.dispatcher.advance(store.log.flush())
    store.save_progress()
    arguments = (tmp_path / "store", tmp_path / "out", date(2026, 11, 21))
    assert build_report(*arguments).messages == 100
    for segment in store.cleaning.drop_before(2 * 8192):
        segment.withdraw()()
    store.close()
    with pytest.raises(RollupKept, match=r"of which only 16384 to \d+ are there.*--force"):
        build_report(*arguments)
    (kept,) = read_days(tmp_path / "out")
    assert (kept.manifest.broker, kept.manifest.messages, kept.manifest.log_from) == ("orders", 100, 0)
    forced = build_report(*arguments, force=True)
    assert 0 < forced.messages < 100
    assert "its beginning is not in the log any more" in forced.incomplete[0]
    assert "is incomplete" in forced.page.read_text()


def test_retention_between_looking_and_reading(spark: Any, tmp_path: Path) -> None:
    """It takes the first files after the report has looked at the store: no error, and the day is not called complete."""
    sent = [Sent("T", b"x" * 300, time_ms=NOON + n) for n in range(30)]
    write_store(tmp_path / "store", [*sent, Sent("T", time_ms=NOON + 86_400_000)], segment_bytes=2048)

    def retention(line: str) -> None:
        if line.startswith("counting"):
            (tmp_path / "store" / "commitlog" / f"{0:020}").unlink(missing_ok=True)

    made = build_report(tmp_path / "store", tmp_path / "out", date(2026, 11, 21), progress=retention)
    assert made.messages == 26
    assert "its beginning is not in the log any more" in made.incomplete[0]


def test_brokers_add_up_and_other_topics_stand_apart(spark: Any, tmp_path: Path) -> None:
    names = ["T", "%RETRY%g", "%DLQ%g", "rmq_sys_STATE", "T"]
    for broker in ("one", "two"):
        write_store(tmp_path / broker, [Sent(name, broker.encode(), time_ms=NOON) for name in names], segment_bytes=256)
        build_report(tmp_path / broker, tmp_path / "out", broker=broker)
    pandas = pytest.importorskip("pandas")
    by = pandas.read_parquet(tmp_path / "out" / "rollup").groupby("broker")["messages"].sum()
    assert by.to_dict() == {"one": 2, "two": 2}
    apart = pandas.read_parquet(tmp_path / "out" / "apart").groupby("kind")["messages"].sum()
    assert apart.to_dict() == {"retry": 2, "dead letter": 2, "system": 2}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<td>T</td><td>4</td>" in page
    assert "<td>%RETRY%g</td><td>retry</td><td>2</td>" in page
    with pytest.raises(InvalidArgument, match="this log under the name one,"):
        build_report(tmp_path / "one", tmp_path / "out", broker="three")
    files = sorted(file.name for file in (tmp_path / "one" / "commitlog").iterdir())
    for lacking, name in ((files[0], "copy-1"), (files[-1], "copy-2")):
        shutil.copytree(tmp_path / "one", tmp_path / name)
        (tmp_path / name / "commitlog" / lacking).unlink()
    made = build_report(tmp_path / "copy-*", tmp_path / "copies")
    assert made.messages == 2, "what one copy has lost comes from the other"
    assert [each.manifest.log_from for each in read_days(tmp_path / "copies")] == [0]
    write_store(tmp_path / "other", [Sent("T", b"another log of that name", time_ms=NOON)])
    assert build_report(tmp_path / "other", tmp_path / "copies").messages == 3


def test_what_is_lost_is_no_message_of_1970(spark: Any, tmp_path: Path) -> None:
    """A tombstone carries no time; a clock that nobody has set gives one of 1970. Neither is on the axis."""
    offsets = write_store(tmp_path / "store", [Sent("T", b"x" * 200, time_ms=at) for at in (NOON, NOON, 1_000)])
    file = tmp_path / "store" / "commitlog" / f"{0:020}"
    raw = file.read_bytes()
    lost = tombstone("T", 0, 1, offsets[1], offsets[2] - offsets[1], host_bytes("127.0.0.1", 10911), protected=True)
    file.write_bytes(raw[: offsets[1]] + lost + raw[offsets[2] :])
    assert load(spark, tmp_path / "store").count() == 2
    made = build_report(tmp_path / "store", tmp_path / "out")
    assert [each.manifest.day for each in read_days(tmp_path / "out")] == ["2026-11-21"]
    assert made.messages == 1
    assert "1970" not in made.page.read_text().rpartition("</script>")[2]


def test_the_page_needs_nothing_else(spark: Any, two_days: Path) -> None:
    page = build_report(two_days / "store", two_days / "out", date(2026, 11, 21)).page.read_text()
    assert page.count("Plotly.newPlot(") >= 3
    assert "<script src" not in page
    assert "<link" not in page
    assert "<td>T0</td><td>1</td>" in page
    assert "a&amp;b" in page or "a\\u0026amp;b" in page


def test_a_day_without_messages_writes_nothing(spark: Any, two_days: Path) -> None:
    with pytest.raises(NothingToReport, match="no message of 2020-01-01"):
        build_report(two_days / "store", two_days / "out", date(2020, 1, 1))
    assert not (two_days / "out").exists()


def test_a_place_that_cannot_be_written_is_told_before_the_work(two_days: Path) -> None:
    in_the_way = two_days / "a-file"
    in_the_way.touch()
    with pytest.raises(StoreError, match="give another --out"):
        build_report(two_days / "store", in_the_way / "out", progress=pytest.fail)


@pytest.mark.parametrize("memory", ["lots", "1", "0g", "100m", "-1g"])
def test_memory_that_cannot_be_is_told_before_the_work(two_days: Path, memory: str) -> None:
    with pytest.raises(InvalidArgument, match="512m at least"):
        build_report(two_days / "store", two_days / "out", resources=Resources(memory=memory), progress=pytest.fail)


def test_damage_found_by_a_task_is_told_plainly(spark: Any, two_days: Path) -> None:
    store = two_days / "store"
    file = store / "commitlog" / f"{0:020}"
    commit(store, 600)
    raw = file.read_bytes()
    file.write_bytes(raw[:90] + b"?" + raw[91:])
    with pytest.raises(BadBytes, match=r"^CommitLog at 0: .*check the disk"):
        build_report(store, two_days / "out")


def test_the_command(spark: Any, two_days: Path) -> None:
    arguments = [str(two_days / "store"), "--out", str(two_days / "out"), "--day", "2026-11-21"]
    ran = CliRunner().invoke(report_command, arguments, catch_exceptions=False)
    assert ran.exit_code == 0
    assert "3 messages" in ran.output
    with pytest.raises(InvalidArgument, match="is not a day"):
        CliRunner().invoke(report_command, [*arguments[:3], "--day", "21.11."], catch_exceptions=False)


def test_nights(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A night makes up for those that were missed; its exit code tells a quiet day, one that is not whole, a report at work."""
    times = [NOON + n * 86_400_000 for n in (-4, -3, -1, 0, 0, 1)]
    for name in ("one", "two"):
        write_store(tmp_path / name, [Sent(name, name.encode() * 100, time_ms=at) for at in times], segment_bytes=512)
    (tmp_path / "two" / "commitlog" / f"{0:020}").unlink()
    out = tmp_path / "out"

    def night(day: str, *more: str) -> int:
        stores = ["--store", str(tmp_path / "one"), "--store", str(tmp_path / "two")]
        return run_rmq(["report", *stores, "--out", str(out), "--day", day, *more])

    assert night("2026-11-21", "--catch-up") == 0
    told = [(each.manifest.day[-2:], *((row.topic, row.messages) for row in each.rows)) for each in read_days(out)]
    assert sorted(told) == [
        ("17", ("one", 1)),
        ("18", ("one", 1)),
        ("19",),
        ("19",),
        ("20", ("one", 1)),
        ("20", ("two", 1)),
        ("21", ("one", 2)),
        ("21", ("two", 2)),
    ], "the 18th of the other one may have begun before its log does; that the 19th was quiet is known"
    assert (out / "report-2026-11-20.html").exists()
    capsys.readouterr()
    assert night("2026-11-21", "--catch-up") == 0
    assert "missing" not in capsys.readouterr().err
    assert night("2026-11-19") == 6
    assert "Complete: this day had no message." in (out / "report-2026-11-19.html").read_text()
    assert night("2026-11-22") == 7
    assert night("2026-11-21", "--timezone", "Europe/Berlin") == 2
    with locked(out):
        assert night("2026-11-21") == 8


def test_workers_run_on_this_python(spark: Any) -> None:
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"]
    assert spark.sparkContext.pythonExec == os.environ["PYSPARK_PYTHON"]


def test_the_tour_in_small(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real broker's store: sent, consumed by two members, counted by Spark."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    tour = importlib.import_module("tour")
    some = list(itertools.islice(tour.read_flights(tour.FLIGHTS), 600))
    assert asyncio.run(tour.send_and_consume(tmp_path / "store", some)) == 600
    assert tour.report(tmp_path / "store", tmp_path / "out") == 600


def test_the_documented_snippet_runs(spark: Any, two_days: Path) -> None:
    (snippet,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "data-engineers.md").read_text(), re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile(snippet.replace("rmq-data", str(two_days / "store")), "docs/data-engineers.md", "exec"), found)
    assert found["messages"].count() == 4
