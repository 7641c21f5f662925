"""How quickly Spark reads a log, beside its own Parquet reader on the same rows: medians of interleaved rounds in one session.

    python -m benchmarks.spark [--mib N] [--rounds N] [--cores N] [--json FILE]

Needs the extra `spark`. Stores of 500-byte records in 7 topics (one has 2 % of them) over 24 hours are made below --directory.
CPU is that of the whole tree of processes: Python, Java and Java's Python workers. A ratio is taken of the medians.
"""

import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql.pandas.types import to_arrow_schema

from analytics.batches import batches
from analytics.options import Wanted
from analytics.plan import plan
from analytics.session import spark_session
from analytics.source import schema_of
from rmq.log.files.disk import RealDisk
from rmq.log.files.ownfiles import Progress, QueueRow, save_progress, save_queues
from rmq.log.records.record import draft, host_bytes, properties_to_bytes, stamp, tags_code

FIRST_MS, HOUR_MS = 1_795_219_200_000, 3_600_000
TOPICS = ["Orders", "Payments", "Shipments", "Clicks", "Views", "Stock"]
RARE = "Refunds"
_HOST = host_bytes("127.0.0.1", 10911)
_THREE = "topic string, queue_offset bigint, store_timestamp timestamp"
_SCANNED = "2 % topic: scan and filter"
_FOUR = "four segments"
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_BLANK = bytes.fromhex("cbd43194")
_QUEUE_FILE_BYTES = 6_000_000


class Case(NamedTuple):
    """`of`: the case that it is compared with, "" for none; `goal` is of that ratio."""

    name: str
    run: Callable[[], object]
    of: str = ""
    goal: str = ""


class Took(NamedTuple):
    wall_s: float
    cpu_s: float


# --- stores -----------------------------------------------------------------------------------------------------------


def write_store(store: Path, count: int, segment_bytes: int) -> None:
    """A stopped store of rmq with its queues: `count` records, one topic of which has 2 %."""
    (store / "commitlog").mkdir(parents=True)
    units: dict[str, bytearray] = {}
    offset, file = 0, bytearray()
    for number in range(count):
        topic = RARE if number % 50 == 0 else TOPICS[number % 6]
        stored_ms = FIRST_MS + 24 * HOUR_MS * number // count
        properties = {"TAGS": f"tag{number % 5}", "KEYS": f"key{number % 9973}", "UNIQ_KEY": f"{number:032X}", "from": "here"}
        raw = properties_to_bytes(properties)
        run = bytearray(draft(topic, b"%-250d" % number, raw, born_timestamp=stored_ms, born_host=_HOST))
        if len(file) + len(run) + 8 > segment_bytes:
            file += (segment_bytes - len(file)).to_bytes(4, "big") + _BLANK
            _save(store, offset - offset % segment_bytes, file, segment_bytes)
            offset, file = offset - offset % segment_bytes + segment_bytes, bytearray()
        queue = units.setdefault(topic, bytearray())
        stamp(run, [(0, [len(run)], 0, len(queue) // 20)], offset, stored_ms.to_bytes(8, "big") + _HOST)
        queue += offset.to_bytes(8, "big") + len(run).to_bytes(4, "big")
        queue += tags_code(properties["TAGS"]).to_bytes(8, "big", signed=True)
        file += run
        offset += len(run)
    _save(store, offset - offset % segment_bytes, file, segment_bytes)
    _save_queues(store, units)
    (store / "rmq").mkdir()
    save_queues(RealDisk(), str(store / "rmq"), [QueueRow(topic, 0, 0, len(queue) // 20) for topic, queue in units.items()])
    save_progress(RealDisk(), str(store / "rmq"), Progress(log=offset, hw=offset, cq=offset, stored_ms=FIRST_MS))


def _save(store: Path, base: int, file: bytearray, segment_bytes: int) -> None:
    (store / "commitlog" / f"{base:020}").write_bytes(file.ljust(segment_bytes, b"\0"))


def _save_queues(store: Path, units: dict[str, bytearray]) -> None:
    for topic, queue in units.items():
        directory = store / "consumequeue" / topic / "0"
        directory.mkdir(parents=True)
        for at in range(0, len(queue), _QUEUE_FILE_BYTES):
            (directory / f"{at:020}").write_bytes(queue[at : at + _QUEUE_FILE_BYTES].ljust(_QUEUE_FILE_BYTES, b"\0"))


# --- measuring --------------------------------------------------------------------------------------------------------


def cpu_seconds() -> float:
    """Of this process and all below it, those that are gone too."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdecimal() else []
        except OSError:
            continue  # it has ended
        if words:
            parents.setdefault(int(words[1]), []).append(int(entry.name))
            ticks[int(entry.name)] = sum(map(int, words[11:15]))
    found, below = 0, [os.getpid()]
    while below:
        process = below.pop()
        found += ticks.get(process, 0)
        below += parents.get(process, [])
    return found / os.sysconf("SC_CLK_TCK")


def measure(run: Callable[[], object]) -> Took:
    wall, cpu = time.perf_counter(), cpu_seconds()
    run()
    return Took(time.perf_counter() - wall, cpu_seconds() - cpu)


def rounds(cases: list[Case], count: int) -> dict[str, Took]:
    """Medians; the first round warms up and does not count."""
    took: dict[str, list[Took]] = {case.name: [] for case in cases}
    for number in range(count + 1):
        for case in cases:
            found = measure(case.run)
            if number:
                took[case.name].append(found)
            print(f"  round {number}: {case.name}: {found.wall_s:.2f} s, {found.cpu_s:.2f} CPU s", file=sys.stderr)
    return {name: Took(*(statistics.median(of) for of in zip(*each, strict=True))) for name, each in took.items()}


# --- what is measured -------------------------------------------------------------------------------------------------


def spark_cases(spark: Any, root: Path) -> list[Case]:
    hour = str(FIRST_MS + 23 * HOUR_MS)
    last_hour = "store_timestamp >= '2026-11-21T23:00:00Z'"

    def read(store: str = "whole", schema: str = "", **options: str) -> Any:
        reader = spark.read.format("rmq").option("path", str(root / store)).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    def use(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def scanned() -> None:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
        use(read().where(f"topic = '{RARE}'"))
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")

    full, parquet = "all columns", "all columns from Parquet"
    return [
        Case(parquet, lambda: use(spark.read.parquet(str(root / "parquet")))),
        Case(full, lambda: use(read()), parquet, "<= 1.3"),
        Case("three columns", lambda: use(read(schema=_THREE)), full, "<= 0.45"),
        Case(_SCANNED, scanned),
        Case("2 % topic: option", lambda: use(read(subscribe=RARE)), _SCANNED, "<= 0.125"),
        Case("2 % topic: where", lambda: use(read().where(f"topic = '{RARE}'")), _SCANNED, "<= 0.125"),
        Case("last hour: option", lambda: use(read(startingTimestamp=hour)), full, "<= 0.15"),
        Case("last hour: where", lambda: use(read().where(last_hour)), full, "<= 0.15"),
        Case("count(*), by a schema", lambda: read(schema="queue_id int").count(), full, "<= 0.25"),
        Case("count(*), of all columns", lambda: read().count(), full),  # Spark asks a source in Python for all of them
        Case(_FOUR, lambda: use(read("four"))),
        Case("one large segment", lambda: use(read("single")), _FOUR, "<= 1.1"),
        Case("2 000 tiny segments", lambda: use(read("tiny")), "", "<= 5 s"),
    ]


def python_us_per_row(store: Path) -> float:
    """CPU of a task's Python alone, without Spark."""
    wanted = Wanted()
    schema = to_arrow_schema(schema_of(wanted), timezone="UTC")
    best = 1e9
    for _ in range(3):
        began, rows = time.process_time(), 0
        for parts in plan(store, wanted):
            rows += sum(batch.num_rows for batch in batches(parts, wanted, schema, "broker"))
        best = min(best, (time.process_time() - began) / rows * 1e6)
    return best


def cold_report(root: Path) -> Took:
    code = "import sys; from rmq.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "report", str(root / "whole"), "--out", str(root / "report")]
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)  # Java outlives the command a little: its CPU counts when it is waited for here

    def run() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with suppress(ChildProcessError):
            while True:
                os.wait()

    return measure(run)


def lines(cases: list[Case], took: dict[str, Took]) -> Iterator[str]:
    yield f"{'work':34}{'wall s':>8}{'CPU s':>8}{'ratio':>8}{'of CPU':>8}  {'goal':10} of"
    for case in cases:
        one, other = took[case.name], took.get(case.of)
        ratios = (f"{one.wall_s / other.wall_s:.2f}", f"{one.cpu_s / other.cpu_s:.2f}") if other else ("", "")
        yield f"{case.name:34}{one.wall_s:8.2f}{one.cpu_s:8.2f}{ratios[0]:>8}{ratios[1]:>8}  {case.goal:10} {case.of}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=1024, help="size of the log (1024)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--directory", type=Path, help="where the stores go (a temporary directory)")
    parser.add_argument("--json", type=Path, help="write the medians there, too")
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="rmq-spark-", dir=given.directory))
    try:
        run(given, root)
    finally:
        shutil.rmtree(root)


def run(given: argparse.Namespace, root: Path) -> None:
    count = given.mib * (1 << 20) // 500
    write_store(root / "whole", count, max(given.mib // 16, 4) << 20)
    large_mib = min(given.mib, 1024)
    write_store(root / "single", large_mib * (1 << 20) // 500, (large_mib + large_mib // 8) << 20)
    write_store(root / "four", large_mib * (1 << 20) // 500, (large_mib // 4 + 1) << 20)
    write_store(root / "tiny", 2000 * 7, 4096)
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--master local[{given.cores}] --driver-memory 1g pyspark-shell")
    report = cold_report(root)  # first: it waits for all that it started, and our own Java stays to the end
    per_row = python_us_per_row(root / "whole")
    with spark_session("rmq benchmark") as spark:
        columns = [field.name for field in schema_of(Wanted()).fields[:16]]
        frame = spark.read.format("rmq").option("path", str(root / "whole")).load().select(columns)
        frame.write.parquet(str(root / "parquet"))
        if spark.read.parquet(str(root / "parquet")).count() != count:
            raise SystemExit("the rows that were read are not those that were written")
        cases = spark_cases(spark, root)
        took = rounds(cases, given.rounds)
    print(f"{count} records, {given.mib} MiB, {given.cores} cores; medians of {given.rounds}")
    print("\n".join(lines(cases, took)))
    print(f"Python per row: {per_row:.2f} µs (goal <= 2.5)")
    print(f"cold `rmq report`: {report.wall_s:.1f} s, {report.cpu_s:.1f} CPU s (goal of 1 GiB: <= 20 s, 25 CPU s)")
    if given.json:
        found = {name: one._asdict() for name, one in took.items()} | {"report": report._asdict(), "python_us_per_row": per_row}
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
