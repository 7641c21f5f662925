"""A driver program that lands a topic as Parquet until somebody kills it, over the network and from the store's files.

    python -m tests.analytics.driver NAMESERVER STORE DIRECTORY

It writes a line, "PLANNED DONE", whenever the network stream has planned a trigger or is done with one.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from analytics.session import spark_session
from analytics.source import register


def options(nameserver: str, store: str) -> dict[str, dict[str, str]]:
    """Of both streams, by their names."""
    both = {"subscribe": "T", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    return {"network": both | {"nameservers": nameserver, "group": "spark"}, "files": both | {"path": store}}


def start(spark: SparkSession, directory: Path, name: str, given: dict[str, str], until_now: bool = False) -> StreamingQuery:
    register(spark)  # streams of one registration share a map that Spark changes and serialises at the same time
    stream = spark.readStream.format("rmq").options(**given).load().select("queue_id", "queue_offset", "body")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(directory / name / "checkpoint"))
    trigger = writer.trigger(availableNow=True) if until_now else writer.trigger(processingTime="0 seconds")
    return trigger.start(str(directory / name / "parquet"))


def count(directory: Path, which: str) -> int:
    """Triggers planned (`offsets`) or done (`commits`)."""
    return sum(1 for file in (directory / "network" / "checkpoint" / which).glob("*") if file.name.isdecimal())


def main(nameserver: str, store: str, directory: Path) -> None:
    with spark_session("killed") as spark:
        queries = [start(spark, directory, name, given) for name, given in options(nameserver, store).items()]
        told = ""
        while not any(query.awaitTermination(0.02) for query in queries):
            line = f"{count(directory, 'offsets')} {count(directory, 'commits')}\n"
            if line != told:
                sys.stdout.write(line)
                sys.stdout.flush()
                told = line


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
