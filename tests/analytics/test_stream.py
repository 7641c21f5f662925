"""Streams of real Spark: over the files of a store, and over the network from a running broker; and sending with Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.analytics.stores import live

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")

Land = Callable[..., list[int]]


@pytest.fixture
def land(spark: Any, tmp_path: Path) -> Land:
    """Runs a stream into Parquet, with what is available now, and gives the rows of each trigger."""

    def run(checkpoint: str = "checkpoint", **options: str) -> list[int]:
        stream = spark.readStream.format("rmq").options(**options).schema("topic string, queue_offset long, body binary").load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / checkpoint))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "parquet"))
        assert query.awaitTermination(60)
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    return run


def test_a_log_that_grows(spark: Any, land: Land, tmp_path: Path) -> None:
    """Written, rolled and retained between the runs of a stream: each message once, some in a trigger, loss is told."""
    path = str(tmp_path / "store")

    def landed() -> list[int]:
        return sorted(row[0] for row in spark.read.parquet(str(tmp_path / "parquet")).select("queue_offset").collect())

    with live(tmp_path / "store", group="orders") as store:
        store.put("T", [b"%300d" % n for n in range(50)])
        store.put("Other", [b"another"] * 30)
        options = {"path": path, "subscribe": "T", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
        assert land(**options) == [20, 20, 10]
        store.put("T", [b"%300d" % n for n in range(50, 55)])
        assert land(**options | {"startingOffsets": "latest"}) == [5], "the checkpoint says where to go on"
        assert landed() == [*range(55)]
        assert land(checkpoint="other", path=path) == [], "a new stream begins at the end"

        store.put("T", [b"%300d" % n for n in range(55, 150)])
        store.retain(4)
        with pytest.raises(Exception, match="were not read yet and are gone, retention took them"):
            land(**options)
        assert sum(land(**options | {"failOnDataLoss": "false"})) == 150 - landed()[55]
        assert landed() == [*range(55), *range(landed()[55], 150)]
    with live(tmp_path / "else", group="events"), pytest.raises(Exception, match="the checkpoint is of orders"):
        land(**options | {"path": str(tmp_path / "else")})
