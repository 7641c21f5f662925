"""Streams of real Spark: over the files of a store, and over the network from a running broker; and sending with Spark."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from rmq.client import Client, Message
from rmq.client.admin import calls as admin
from tests.analytics.brokers import Running, running_broker
from tests.analytics.stores import live

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")

from pyarrow import parquet  # noqa: E402 -- needs the extra

from tests.analytics.driver import patiently  # noqa: E402

Land = Callable[..., list[int]]


def ended(query: Any) -> Any:
    assert query.awaitTermination(300)
    return query


@pytest.fixture
def broker() -> Iterator[Running]:
    with running_broker() as broker:
        yield broker


@pytest.fixture
def land(spark: Any, tmp_path: Path) -> Land:
    """Runs a stream into Parquet, with what is available now, and gives the rows of each trigger.

    By what has landed, not by what a query tells: one that has to be started again tells of its last triggers only.
    """

    def run(checkpoint: str = "checkpoint", **options: str) -> list[int]:
        before = triggers(tmp_path / "parquet")
        stream = spark.readStream.format("rmq").options(**options).schema("topic string, queue_offset long, body binary").load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / checkpoint))
        patiently(lambda: ended(writer.trigger(availableNow=True).start(str(tmp_path / "parquet"))))
        return triggers(tmp_path / "parquet")[len(before) :]

    return run


def triggers(folder: Path) -> list[int]:
    """The rows of each trigger that brought some, by Spark's own list of files."""
    logs = [file for file in (folder / "_spark_metadata").glob("*") if file.name.isdecimal()]
    said = [file.read_text().splitlines()[1:] for file in sorted(logs, key=lambda file: int(file.name))]
    paths = [[unquote(urlsplit(json.loads(line)["path"]).path) for line in lines] for lines in said]
    return [rows for files in paths if (rows := sum(parquet.read_metadata(path).num_rows for path in files))]


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
    assert table.count() == 110
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
    patiently(lambda: ended(copy.start()))

    back = spark.read.format("rmq").options(**options, subscribePattern="T[01]|Copy").load()
    columns = back.selectExpr("topic", "cast(cast(body as string) as int)", "keys", "tags", "properties.n", "uniq_key")
    found = [tuple(row) for row in columns.collect()]
    expected = [(f"T{n % 2}", n, [f"k{n}"], "a", str(n), f"U{n}") for n in range(300)]
    assert sorted(found) == sorted(expected + [("Copy", *each[1:]) for each in expected])

    bad = spark.range(1).selectExpr("cast(null as string) topic", "'b' body")
    with pytest.raises(Exception, match="a row without a topic"):
        bad.write.format("rmq").options(**options).mode("append").save()


def test_the_documented_snippets_run(spark: Any, tmp_path: Path, broker: Running) -> None:
    text = (Path(__file__).parent.parent.parent.parent / "docs" / "streaming.md").read_text()
    stream, table, sending = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    for snippet in (sending, stream, table):
        here = snippet.replace("127.0.0.1:9876", broker.nameserver).replace('"lake/', f'"{tmp_path}/lake/')
        patiently(partial(exec, compile(here, "docs/streaming.md", "exec"), found))
    assert found["orders"].count() == 100
    assert spark.read.parquet(str(tmp_path / "lake" / "orders")).count() == 100
