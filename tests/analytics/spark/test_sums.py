"""Counts and checksums of stores: Spark's are those of `rmq store` and pandas, on RocketMQ's files and on a broker's own."""

import base64
import contextlib
import io
import json
import zlib
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from rmq.cli import run
from rmq.net.commands import UpdateTopic
from rmq.testing import LocalBroker
from tests.analytics.stores import Sent, write_store
from tests.broker.support import Peer, send
from tests.broker.test_batches import batch, single

pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")
pandas = pytest.importorskip("pandas", reason="needs the extra `spark`")

import pyarrow as pa  # noqa: E402 -- needs the extra

from analytics.records.batches import batches  # noqa: E402 -- needs the extra
from analytics.reports.days import read_days  # noqa: E402 -- needs the extra
from analytics.reports.lag import written_lags  # noqa: E402 -- needs the extra
from analytics.reports.report import build_report  # noqa: E402 -- needs the extra
from analytics.stores.options import Wanted  # noqa: E402 -- needs the extra
from analytics.stores.plan import plan  # noqa: E402 -- needs the extra

SUMS = "topic, count(*) messages, sum(size) bytes, min(store_timestamp) first, max(store_timestamp) last, sum(crc32(body)) crc"


def asked(*arguments: str) -> str:
    """What `rmq store` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run(["store", *arguments, "-o", "json"]) == 0
    return printed.getvalue()


def told(store: Path) -> list[tuple[Any, ...]]:
    """By `rmq store stats`, and checksums by pandas of `rmq store dump`."""
    lines = pandas.read_json(io.StringIO(asked("dump", str(store), "records")), lines=True, dtype=False, convert_dates=False)
    bodies = [
        base64.b64decode(line["bodyBase64"]) if isinstance(line.get("bodyBase64"), str) else line["body"].encode()
        for line in lines.to_dict("records")
    ]
    crc = lines.assign(crc=[zlib.crc32(body) for body in bodies]).groupby("topic")["crc"].sum()
    rows = json.loads(asked("stats", str(store)))["rows"]
    return sorted((row["topic"], row["messages"], row["bytes"], row["first"], row["last"], crc[row["topic"]]) for row in rows)


def counted(spark: Any, store: Path) -> list[tuple[Any, ...]]:
    spark.read.format("rmq").options(system="true", body="raw").load(str(store)).createOrReplaceTempView("store_rows")
    rows = spark.sql(f"SELECT {SUMS} FROM store_rows GROUP BY topic").toPandas()
    times = [rows[name].map(lambda moment: moment.isoformat(timespec="microseconds") + "+00:00") for name in ("first", "last")]
    return sorted(zip(rows["topic"], rows["messages"], rows["bytes"], *times, rows["crc"], strict=True))


@pytest.mark.spark
@pytest.mark.parametrize("name", ["s02-killed", "s04-plain-497", "s13-compress", "s14-crc", "s25-ipv6"])
def test_sums_of_rocketmqs_files(spark: Any, golden: Callable[[str], tuple[Path, Any]], name: str) -> None:
    store, _ = golden(name)
    assert counted(spark, store) == told(store)


async def test_sums_of_a_topic_of_batches(tmp_path: Path) -> None:
    """A batch is one record (queue.type=BatchCQ) and has no consume queue as others have: each of its messages is a row."""
    async with LocalBroker(store_dir=tmp_path) as broker:
        peer = await Peer.connect(broker.address)
        await peer.ask(UpdateTopic("B", read_queue_nums=1, write_queue_nums=1, attributes="+queue.type=BatchCQ"))
        for _ in range(100):
            await peer.ask(send("T", b"x" * 900))
        await peer.send(single(b"a"), batch(b"b", b"c", b"d"), single(b"e"))
        await peer.close()
    wanted, kinds = Wanted(topics=frozenset({"B"})), pa.schema([("queue_offset", pa.int64()), ("body", pa.binary())])

    def found(wanted: Wanted) -> list[tuple[int, bytes]]:
        every = (some for parts in plan(tmp_path, wanted) for some in batches(parts, wanted, kinds, "b"))
        return sorted((row["queue_offset"], row["body"]) for some in every for row in some.to_pylist())

    rows = [*enumerate([b"a", b"b", b"c", b"d", b"e"])]
    assert found(wanted) == rows
    for start, end in ((0, 3), (1, 4), (2, 3), (3, 9), (4, 5)):  # the batch is 1 to 3
        assert found(wanted._replace(starts={"B": {0: start}}, ends={"B": {0: end}})) == rows[start:end]
    assert found(wanted._replace(starts={"B": {1: 4}}, ends={"B": {1: 0}})) == rows
    stats = json.loads(asked("stats", str(tmp_path)))["rows"]
    assert {row["topic"]: row["messages"] for row in stats if row["topic"] in "BT"} == {"B": 5, "T": 100}


def test_each_log_of_one_name_has_its_own_lags(spark: Any, tmp_path: Path) -> None:
    """The groups that are behind at the second took the place of those at the first."""
    for name, group in (("one", "early"), ("two", "late")):
        write_store(tmp_path / name, [Sent("T", name.encode())])
        for folder in ("config", "consumequeue/T/0"):
            (tmp_path / name / folder).mkdir(parents=True)
        (tmp_path / name / "consumequeue" / "T" / "0" / f"{0:020}").write_bytes(bytes(11) + b"\x5b" + bytes(8))
        (tmp_path / name / "config" / "consumerOffset.json").write_text(f'{{"offsetTable": {{"T@{group}": {{"0": 0}}}}}}')
    assert build_report([tmp_path / "one", tmp_path / "two"], tmp_path / "out").messages == 2
    there = {each.manifest.broker for each in read_days(tmp_path / "out")}
    lags = [lag for _, some in written_lags(tmp_path / "out", there) for lag in some]
    assert sorted((lag.group, lag.lag) for lag in lags) == [("early", 1), ("late", 1)]
    assert len({lag.broker for lag in lags}) == 2


def test_messages_of_a_leader_whose_clock_was_ahead_are_counted_on_their_day(spark: Any, tmp_path: Path) -> None:
    """The next file begins on the day before, by the next leader's clock: they were in no report, and the day was complete."""
    clocks = [(20, 23, 0), (21, 0, 5), (21, 0, 10), (21, 0, 20), (20, 23, 40), (20, 23, 50), (21, 3, 0), (22, 0, 5)]
    times = [int(datetime(2026, 11, day, hour, minute, tzinfo=UTC).timestamp() * 1000) for day, hour, minute in clocks]
    offsets = write_store(tmp_path / "store", [Sent("T", bytes(380), time_ms=each) for each in times], 2048)
    assert offsets[4] == 2048, "where the next file begins"
    counted = [build_report(tmp_path / "store", tmp_path / "out", date(2026, 11, day)).messages for day in (20, 21, 22)]
    assert counted == [3, 4, 1]
