"""A driver program that lands messages in every way until somebody kills it.

    spark-submit tests/analytics/driver.py JOB

JOB is JSON: what to export and what changes to land, with the line at which each of them stops for good; then broker and
directory of streams, which run from then on. It writes a line, "found", of Spark's settings, and then a line, "progress PLANNED
WRITTEN DONE", whenever the first of the streams has planned a trigger, written a file, or is done with a trigger.
"""

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from analytics.landing.changes import capture
from analytics.landing.export import export, schema_from
from analytics.spark.session import spark_session
from analytics.spark.source import register
from analytics.stores.files import directory

T = TypeVar("T")


def options(nameserver: str, store: str) -> dict[str, dict[str, str]]:
    """Of both streams, by their names."""
    both = {"subscribe": "T", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    return {"network": both | {"nameservers": nameserver, "group": "spark"}, "files": both | {"path": store}}


def start(spark: SparkSession, directory: Path, name: str, given: dict[str, str], until_now: bool = False) -> StreamingQuery:
    register(spark)  # streams of one registration share a map that Spark changes and serialises at the same time
    stream = spark.readStream.format("rmq").options(**given).load().select("queue_id", "queue_offset", "body")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(directory / name / "checkpoint"))
    trigger = writer.trigger(availableNow=True) if until_now else writer.trigger(processingTime="0 seconds")
    return trigger.start(str(directory / name / "parquet"))


def progress(directory: Path, stream: str) -> tuple[int, int, int]:
    """Of that stream: triggers planned, files written, triggers done."""
    planned, done = (_numbered(directory / stream / "checkpoint" / which) for which in ("offsets", "commits"))
    return planned, len([*(directory / stream / "parquet").glob("part-*.parquet")]), done


def _numbered(folder: Path) -> int:
    return sum(1 for file in folder.glob("*") if file.name.isdecimal())


def say(kind: str, found: str) -> None:
    sys.stdout.write(f"{kind} {found}\n")  # spark-submit puts all that is said into one stream
    sys.stdout.flush()


def main(job: dict[str, Any]) -> None:
    with spark_session("killed") as spark:
        conf = spark.conf
        found = [spark.sparkContext.master, conf.get("spark.sql.session.timeZone"), conf.get("spark.ui.enabled")]
        say("found", json.dumps([*found, processes(spark, job["everywhere"]) if "everywhere" in job else []]))

        def stream() -> None:
            given = options(job["nameserver"], job["store"])
            follow(spark, Path(job["directory"]), {name: given[name] for name in job["streams"]})

        run(job, stream)


def run(job: dict[str, Any], stream: Callable[[], None]) -> None:
    """What the job says of exports and changes; at the line at which they stop comes what follows."""
    then: Callable[[], Any] = stream
    if "changes" in job:
        source, out, as_delta, line = job["changes"]
        then = partial(capture, Path(source), Path(out), frozenset({"canal"}), as_delta=as_delta, tell=at(line, stream))
    if "export" in job:
        source, out, schema, line = job["export"]
        topics, schemas = frozenset({"T0", "T1"}), [schema_from(schema)]
        then = partial(export, [directory(source)], Path(out), topics=topics, schemas=schemas, tell=at(line, then))
    then()


def at(line: str, then: Callable[[], Any]) -> Callable[[str], None]:
    """Where a job tells that line it goes no further."""
    return lambda told: then() if told == line else None


def processes(spark: SparkSession, stores: list[str]) -> list[tuple[int, int]]:
    """Of each task that reads these stores: its Java, and how many rows it has."""
    frame = spark.read.format("rmq").load(stores)
    return frame.rdd.mapPartitions(lambda rows: [(os.getppid(), sum(1 for _ in rows))]).collect()


def patiently(run: Callable[[], T]) -> T:
    """Again, and says so, if the process that plans a stream was not there within the ten seconds that Spark gives it: a busy
    machine may need longer (docs/streaming.md).
    """
    while True:
        try:
            return run()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
            say("late", str(error).partition("\n")[0])


def follow(spark: SparkSession, directory: Path, streams: dict[str, dict[str, str]]) -> None:
    running: dict[str, StreamingQuery] = {}

    def has_ended(name: str) -> bool:
        query = running.get(name) or start(spark, directory, name, streams[name])
        running.pop(name, None)  # it raises what it ended with
        ended = query.awaitTermination(0.01)
        running[name] = query
        return bool(ended)

    told = (0, 0, 0)
    while not any([patiently(partial(has_ended, name)) for name in streams]):
        found = progress(directory, next(iter(streams)))
        if found != told:
            say("progress", " ".join(map(str, found)))
            told = found


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
