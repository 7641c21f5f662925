"""Streams of real Spark: over the files of a store, and over the network from a running broker; and sending with Spark."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq.client import Client, Message
from rmq.client.admin import calls as admin
from tests.analytics.brokers import Running, running_broker
from tests.analytics.stores import live

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")

from tests.analytics import driver  # noqa: E402 -- needs the extra

Land = Callable[..., list[int]]


@pytest.fixture
def broker() -> Iterator[Running]:
    with running_broker() as broker:
        yield broker


@pytest.fixture
def land(spark: Any, tmp_path: Path) -> Land:
    """Runs a stream into Parquet, with what is available now, and gives the rows of each trigger."""

    def run(checkpoint: str = "checkpoint", **options: str) -> list[int]:
        stream = spark.readStream.format("rmq").options(**options).schema("topic string, queue_offset long, body binary").load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / checkpoint))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "parquet"))
        assert query.awaitTermination(300)
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    return run


def test_a_log_that_grows(spark: Any, land: Land, tmp_path: Path) -> None:
    """Each message once, so many in a trigger, from where the last run ended."""
    path = str(tmp_path / "store")
    with live(tmp_path / "store", group="orders") as store:
        store.put("T", [b"%300d" % n for n in range(50)])
        store.put("Other", [b"another"] * 30)
        options = {"path": path, "subscribe": "T", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
        assert land(**options) == [20, 20, 10]
        store.put("T", [b"%300d" % n for n in range(50, 55)])
        assert land(**options | {"startingOffsets": "latest"}) == [5], "the checkpoint says where to go on"
    landed = spark.read.parquet(str(tmp_path / "parquet")).select("queue_offset").collect()
    assert sorted(row[0] for row in landed) == [*range(55)]


def test_topics_of_running_brokers(spark: Any, land: Land, tmp_path: Path, broker: Running) -> None:
    """Each message once, so many in a trigger; a group shows how far the stream is. The same as a table."""
    asked = {"nameservers": broker.nameserver, "subscribe": "T"}
    options = asked | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40", "group": "spark"}
    broker.run(lambda local: local.create_topic("T", queues=3))

    async def send(client: Client, *numbers: int) -> None:
        async with client.producer() as producer:
            await producer.send_batch([Message("T", b"%d" % number, tags="ab"[number % 2]) for number in numbers])

    async def lag(client: Client) -> int:
        return sum(row.broker_offset - row.consumer_offset for row in (await admin.consume_stats(client, "spark")).queues)

    for number in range(0, 100, 10):
        broker.ask(lambda client, number=number: send(client, *range(number, number + 10)))
    assert land(**options) == [40, 40, 20]
    assert broker.ask(lag) == 0
    broker.ask(lambda client: send(client, *range(100, 110)))
    assert broker.ask(lag) == 10
    bodies = sorted(int(row[0]) for row in spark.read.parquet(str(tmp_path / "parquet")).select("body").collect())
    assert bodies == [*range(100)]

    table = spark.read.format("rmq").options(**asked).load()
    assert table.where("tags = 'a' and queue_id >= 0").count() == 55
    assert {row[0] for row in table.select("broker_name").distinct().collect()} == {"broker-a"}


def test_rows_become_messages(spark: Any, tmp_path: Path, broker: Running) -> None:
    """By a batch job, and by a stream that copies them to another topic: with tags, keys, properties and their unique keys."""
    options = {"nameservers": broker.nameserver}
    rows = spark.range(300).selectExpr(
        "concat('T', id % 2) topic",
        "cast(id as string) body",
        "array(concat('k', id)) keys",
        "'a' tags",
        "map('n', cast(id as string)) properties",
        "concat('U', id) uniq_key",
    )
    rows.repartition(2).write.format("rmq").options(**options).mode("append").save()
    stream = spark.readStream.format("rmq").options(**options, subscribe="T0,T1", startingOffsets="earliest").load()
    copy = stream.select("body", "keys", "tags", "properties", "uniq_key").writeStream.format("rmq")
    copy = copy.options(**options, topic="Copy", checkpointLocation=str(tmp_path / "copy")).trigger(availableNow=True)
    assert copy.start().awaitTermination(300)

    back = spark.read.format("rmq").options(**options, subscribePattern="T[01]|Copy").load()
    columns = back.selectExpr("topic", "cast(cast(body as string) as int)", "keys", "tags", "properties.n", "uniq_key")
    found = [tuple(row) for row in columns.collect()]
    expected = [(f"T{n % 2}", n, [f"k{n}"], "a", str(n), f"U{n}") for n in range(300)]
    assert sorted(found) == sorted(expected + [("Copy", *each[1:]) for each in expected])

    bad = spark.range(1).selectExpr("cast(null as string) topic", "'b' body")
    with pytest.raises(Exception, match="a row without a topic"):
        bad.write.format("rmq").options(**options).mode("append").save()


def test_exactly_once_into_parquet_over_kills_of_the_driver(spark: Any, tmp_path: Path) -> None:
    """kill -9 of driver, Java and workers: when a trigger is planned, while one is at work, and when one is done; messages come
    all the time. In the end each is in the folder once, over the network and from the files."""
    with running_broker(store_dir=tmp_path / "store") as broker:
        broker.run(lambda local: local.create_topic("T", queues=2))
        sent = 0
        for when in range(3):
            sent = kill_driver(broker, tmp_path, when, sent)
        given = driver.options(broker.nameserver, str(tmp_path / "store"))
        assert driver.start(spark, tmp_path, "network", given["network"], until_now=True).awaitTermination(300)
        broker.run(lambda local: local.stop_broker())  # then the store says how far it is committed
        assert driver.start(spark, tmp_path, "files", given["files"], until_now=True).awaitTermination(300)
    for name in given:
        frame = spark.read.parquet(str(tmp_path / name / "parquet"))
        bodies = sorted(row[0] for row in frame.selectExpr("cast(cast(body as string) as int)").collect())
        assert bodies == [*range(sent)], name


def kill_driver(broker: Running, directory: Path, when: int, sent: int) -> int:
    """Start it, write messages while it works, and kill it and all that it started at that moment of a trigger."""
    base = driver.count(directory, "offsets")
    sent = write(broker, sent, 60)
    command = [sys.executable, "-m", "tests.analytics.driver", broker.nameserver, str(directory / "store"), str(directory)]
    submit = {"PYSPARK_SUBMIT_ARGS": "--master local[1] --driver-memory 512m pyspark-shell"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | submit, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                sent = write(broker, sent, 40)
                planned, done = map(int, line.split())
                if (planned > base + 1, planned > base + 1 and planned > done, done > base + 1)[when]:
                    return sent
            pytest.fail("the driver ended by itself")
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def write(broker: Running, sent: int, count: int) -> int:
    """So many more, numbered; the store says how far it is committed."""

    async def work(client: Client) -> None:
        async with client.producer() as producer:
            for first in range(sent, sent + count, 10):
                await producer.send_batch([Message("T", b"%d" % number) for number in range(first, first + 10)])

    broker.ask(work)
    broker.run(lambda local: local.clock.advance(11.0))
    return sent + count


def test_the_documented_snippets_run(spark: Any, tmp_path: Path, broker: Running) -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "streaming.md").read_text()
    stream, table, sending = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    for snippet in (sending, stream, table):
        here = snippet.replace("127.0.0.1:9876", broker.nameserver).replace('"lake/', f'"{tmp_path}/lake/')
        exec(compile(here, "docs/streaming.md", "exec"), found)
    assert found["orders"].count() == 100
    assert spark.read.parquet(str(tmp_path / "lake" / "orders")).count() == 100
