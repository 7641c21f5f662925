"""How quickly Spark reads a log, beside its own Parquet reader on the same rows: medians of interleaved rounds in one session.

    python -m benchmarks.spark [--mib N] [--rounds N] [--cores N] [--heap SIZE] [--directory DIR] [--json FILE]

Needs the extra `spark`. Stores of 500-byte records in 7 topics (one has 2 % of them) over 24 hours are made in --directory and
go away at the end, also after Ctrl-C and SIGTERM; they need 4 times --mib there, above 2 GiB 1.5 times. Above 2 GiB the round
that warms up reads a store of 64 MiB, and what does not depend on the size is left out. CPU is that of the whole tree of
processes: Python, Java, its workers. Prints tables in Markdown; what it is doing goes to the standard error.
"""

import argparse
import ctypes
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql.pandas.types import to_arrow_schema

from analytics.records.batches import batches
from analytics.spark.session import spark_session
from analytics.spark.source import schema_of
from analytics.stores.options import Wanted
from analytics.stores.plan import plan
from rmq.log.files.disk import RealDisk
from rmq.log.files.ownfiles import Progress, QueueRow, save_progress, save_queues
from rmq.log.records.record import draft, host_bytes, properties_to_bytes, stamp, tags_code

FIRST_MS, HOUR_MS = 1_795_219_200_000, 3_600_000
TOPICS = ["Orders", "Payments", "Shipments", "Clicks", "Views", "Stock"]
RARE = "Refunds"
_HOST = host_bytes("127.0.0.1", 10911)
_THREE = {"topic": "string", "queue_offset": "bigint", "store_timestamp": "timestamp"}
_SCANNED = "2 % topic: scan and filter"
_FOUR = "four segments"
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_JAVA_ENDS_S = 60
_WARM_MIB = 64
_BLANK = bytes.fromhex("cbd43194")
_QUEUE_FILE_BYTES = 6_000_000
_PERIOD = 150  # messages after which the topics come in the same order
_TAG_CODES = [tags_code(f"tag{number}").to_bytes(8, "big", signed=True) for number in range(5)]


class Case(NamedTuple):
    """`of`: the case that it is compared with, "" for none; `goal`: the most that ratio (or the seconds) may be, `cpu_goal`: of
    CPU, None is the same.
    """

    name: str
    run: Callable[[], object]
    of: str = ""
    goal: float | None = None
    cpu_goal: float | None = None


class Took(NamedTuple):
    """`memory_mib`: the most that all processes together held (what they share counts several times)."""

    wall_s: float
    cpu_s: float
    memory_mib: float


class Rounds(NamedTuple):
    """Of one case: each round, in their order."""

    each: list[Took]

    @property
    def median(self) -> Took:
        return Took(*map(statistics.median, zip(*self.each, strict=True)))

    @property
    def spread(self) -> str:
        """From the quickest to the slowest, by the clock."""
        walls = [took.wall_s for took in self.each]
        return f"{min(walls):.1f}-{max(walls):.1f}"


# --- stores -----------------------------------------------------------------------------------------------------------


def write_store(store: Path, count: int, segment_bytes: int) -> None:
    """A stopped store of rmq with its queues: `count` records, one topic of which has 2 %. Two processes write it."""
    (store / "commitlog").mkdir(parents=True)
    room = (segment_bytes - len(_BLANK) - 4) // max(len(_record(number, 0, 0)) for number in range(5000, 5000 + _PERIOD))
    firsts = range(0, count, room)
    units: dict[str, bytearray] = {}
    with ProcessPoolExecutor(2, get_context("fork")) as processes:
        jobs = [processes.submit(_write_segment, store, first, room, count, segment_bytes) for first in firsts]
        for job in jobs:
            offset, queues = job.result()
            for topic, queue in queues.items():
                units.setdefault(topic, bytearray()).extend(queue)
    _save_queues(store, units)
    (store / "rmq").mkdir()
    save_queues(RealDisk(), str(store / "rmq"), [QueueRow(topic, 0, 0, len(queue) // 20) for topic, queue in units.items()])
    save_progress(RealDisk(), str(store / "rmq"), Progress(log=offset, hw=offset, cq=offset, stored_ms=FIRST_MS))


def _topic(number: int) -> str:
    return RARE if number % 50 == 0 else TOPICS[number % 6]


def _record(number: int, stored_ms: int, queue_offset: int, offset: int = 0) -> bytearray:
    properties = {"TAGS": f"tag{number % 5}", "KEYS": f"key{number % 9973}", "UNIQ_KEY": f"{number:032X}", "from": "here"}
    raw = properties_to_bytes(properties)
    run = bytearray(draft(_topic(number), b"%-308d" % number, raw, born_timestamp=stored_ms, born_host=_HOST))
    stamp(run, [(0, [len(run)], 0, queue_offset)], offset, stored_ms.to_bytes(8, "big") + _HOST)
    return run


def _write_segment(store: Path, first: int, room: int, count: int, segment_bytes: int) -> tuple[int, dict[str, bytearray]]:
    """The records from `first` on, as many as fit. The offset at which they end, and their entries in the queues."""
    base, stop, file, queues = first // room * segment_bytes, min(first + room, count), bytearray(), dict[str, bytearray]()
    numbers = Counter({topic: first // _PERIOD * each for topic, each in Counter(map(_topic, range(_PERIOD))).items()})
    numbers.update(map(_topic, range(first % _PERIOD)))
    for number in range(first, stop):
        topic, offset = _topic(number), base + len(file)
        run = _record(number, FIRST_MS + 24 * HOUR_MS * number // count, numbers[topic], offset)
        numbers[topic] += 1
        queue = queues.setdefault(topic, bytearray())
        queue += offset.to_bytes(8, "big") + len(run).to_bytes(4, "big") + _TAG_CODES[number % 5]
        file += run
    end = base + len(file)
    if stop < count:
        file += (segment_bytes - len(file)).to_bytes(4, "big") + _BLANK
    _save(store, base, file, segment_bytes)
    return end, queues


def _save(store: Path, base: int, file: bytearray, segment_bytes: int) -> None:
    (store / "commitlog" / f"{base:020}").write_bytes(file.ljust(segment_bytes, b"\0"))


def _save_queues(store: Path, units: dict[str, bytearray]) -> None:
    for topic, queue in units.items():
        directory = store / "consumequeue" / topic / "0"
        directory.mkdir(parents=True)
        for at in range(0, len(queue), _QUEUE_FILE_BYTES):
            (directory / f"{at:020}").write_bytes(queue[at : at + _QUEUE_FILE_BYTES].ljust(_QUEUE_FILE_BYTES, b"\0"))


# --- measuring --------------------------------------------------------------------------------------------------------


class Tree:
    """The CPU of this process and of all that it started, those that are gone too.

    Looked at ten times a second: what a process has used when it ends is lost where its parent does not wait for it, as Spark's
    daemon of Python workers does not.
    """

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)  # whoever loses its parent is ours
        self._ticks: dict[tuple[int, str], int] = {}  # by process and its start
        self._most_pages = 0
        self._looking = threading.Lock()
        threading.Thread(target=self._watch, name="CPU of the tree", daemon=True).start()

    def cpu_seconds(self) -> float:
        with self._looking:
            self._look()
            return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    def most_mib(self) -> float:
        """The most memory since the last call."""
        with self._looking:
            found, self._most_pages = self._most_pages, 0
        return found * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def alone(self) -> bool:
        """Whether nothing that was started lives any more. Takes the dead away."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        return False

    def _watch(self) -> None:
        while True:
            time.sleep(0.1)
            with self._looking:
                self._look()

    def _look(self) -> None:
        below, pages = [os.getpid()], 0
        while below:
            process = below.pop()
            try:
                words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                for thread in Path(f"/proc/{process}/task").iterdir():
                    below += map(int, (thread / "children").read_text().split())
            except OSError:
                continue  # it has ended
            self._ticks[process, words[19]] = int(words[11]) + int(words[12])
            pages += int(words[21])
        self._most_pages = max(self._most_pages, pages)


def measure(run: Callable[[], object], tree: Tree) -> Took:
    tree.most_mib()
    wall, cpu = time.perf_counter(), tree.cpu_seconds()
    run()
    return Took(time.perf_counter() - wall, tree.cpu_seconds() - cpu, tree.most_mib())


def rounds(cases: list[Case], count: int, tree: Tree) -> dict[str, Rounds]:
    """All cases in turn, so often."""
    took: dict[str, Rounds] = {case.name: Rounds([]) for case in cases}
    for number in range(count):
        for case in cases:
            found = measure(case.run, tree)
            took[case.name].each.append(found)
            say(f"  round {number + 1}: {case.name}: {found.wall_s:.2f} s, {found.cpu_s:.2f} CPU s")
    return took


# --- what is measured -------------------------------------------------------------------------------------------------


def spark_cases(spark: Any, root: Path) -> list[Case]:
    hour = str(FIRST_MS + 23 * HOUR_MS)
    last_hour = "store_timestamp >= '2026-11-21T23:00:00Z'"

    def read(store: str = "whole", schema: str = "", **options: str) -> Any:
        reader = spark.read.format("rmq").option("path", str(root / store)).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    def use(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    full, parquet = "all columns", "all columns from Parquet"
    cases = [
        Case(parquet, lambda: use(spark.read.parquet(str(root / "parquet")))),
        Case(full, lambda: use(read()), parquet, 1.3),
        Case("three columns: schema", lambda: use(read(schema=", ".join(map(" ".join, _THREE.items())))), full, 0.45),
        Case("three columns: select", lambda: use(read().select(*_THREE)), full, 0.45),
        Case(_SCANNED, lambda: use(read().where(f"concat(topic, '') = '{RARE}'"))),  # which nobody can push
        Case("2 % topic: option", lambda: use(read(subscribe=RARE)), _SCANNED, 1 / 8),
        Case("2 % topic: where", lambda: use(read().where(f"topic = '{RARE}'")), _SCANNED, 1 / 8),
        Case("last hour: option", lambda: use(read(startingTimestamp=hour)), full, 0.15),
        Case("last hour: where", lambda: use(read().where(last_hour)), full, 0.15),
        Case("count(*)", lambda: read().count(), full, 0.25),
    ]
    if not (root / "tiny").exists():
        return cases
    return [
        Case("a store of one message", lambda: use(read("one"))),  # what any job of Spark costs
        *cases,
        Case(_FOUR, lambda: use(read("four"))),
        Case("one large segment", lambda: use(read("single")), _FOUR, 1.1),
        Case("2 000 tiny segments", lambda: use(read("tiny")), "", 5),
    ]


def python_us_per_row(store: Path) -> float:
    """CPU of a task's Python alone, without Spark, over up to 1 GiB."""
    wanted = Wanted()
    schema = to_arrow_schema(schema_of(wanted), timezone="UTC")
    best = 1e9
    for _ in range(3):
        began, rows = time.process_time(), 0
        for parts in islice(plan(store, wanted), 8):
            rows += sum(batch.num_rows for batch in batches(parts, wanted, schema, "broker"))
        best = min(best, (time.process_time() - began) / rows * 1e6)
    return best


def cold_report(root: Path, heap: str, tree: Tree) -> None:
    """The command in a process of its own, until the last process that it started has ended."""
    code = "import sys; from rmq.cli import main; sys.exit(main())"
    out = root / "report"
    command = [sys.executable, "-c", code, "report", str(root / "whole"), "--out", str(out), "--memory", heap]
    subprocess.run([*command, "--temp", str(root)], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(out)
    until = time.monotonic() + _JAVA_ENDS_S
    while not tree.alone():  # Java outlives the command a little
        if time.monotonic() > until:
            raise SystemExit("the report has ended, and what it started has not")
        time.sleep(0.01)


def lines(cases: list[Case], took: dict[str, Rounds]) -> Iterator[str]:
    """A table in Markdown."""
    yield "| work | clock s | from-to | CPU s | clock / CPU, beside | goal | reached |"
    yield "|---|---|---|---|---|---|---|"
    for case in cases:
        one, other = took[case.name].median, took[case.of].median if case.of else None
        wall, cpu = (one.wall_s / other.wall_s, one.cpu_s / other.cpu_s) if other else (one.wall_s, one.cpu_s)
        beside = f"{wall:.2f} / {cpu:.2f} of {case.of}" if other else ""
        goal = f"{case.goal:.3g}" if case.goal else ""
        if case.cpu_goal:
            goal += f" s, {case.cpu_goal:.3g} CPU s"
        row = [case.name, f"{one.wall_s:.2f}", took[case.name].spread, f"{one.cpu_s:.2f}", beside, goal, reached(case, wall, cpu)]
        yield f"| {' | '.join(row)} |"


def reached(case: Case, wall: float, cpu: float) -> str:
    if not case.goal:
        return ""
    return {(True, True): "yes", (False, False): "NO", (True, False): "not of CPU", (False, True): "only of CPU"}[
        wall <= case.goal, cpu <= (case.cpu_goal or case.goal)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=1024, help="size of the log (1024)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2, help="of Spark's session; the report takes as many as by itself")
    parser.add_argument("--heap", default="1g", help="Java's, of the session and of the report (1g)")
    parser.add_argument("--directory", type=Path, help="where the stores go (a temporary directory)")
    parser.add_argument("--json", type=Path, help="write all rounds there, too")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    root = Path(tempfile.mkdtemp(prefix="rmq-spark-", dir=given.directory))
    try:
        run(given, root)
    finally:
        shutil.rmtree(root)


def run(given: argparse.Namespace, root: Path) -> None:
    count, small, tree = given.mib * (1 << 20) // 500, given.mib <= 2048, Tree()
    say("writing stores")
    write_store(root / "whole", count, max(given.mib // 16, 4) << 20)
    if small:
        write_store(root / "single", count, (given.mib + given.mib // 8) << 20)
        write_store(root / "four", count, (given.mib // 4 + 1) << 20)
        write_store(root / "tiny", 2000 * 7, 4096)
        write_store(root / "one", 1, 4096)
    goals = (20, 25) if given.mib == 1024 else (None, None)
    report = Case("cold `rmq report`", lambda: cold_report(root, given.heap, tree), "", *goals)
    took = rounds([report], given.rounds, tree)  # first: it waits for its processes, and our own Java stays to the end
    per_row = python_us_per_row(root / "whole")
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--master local[{given.cores}] --driver-memory {given.heap} pyspark-shell")
    with spark_session("rmq benchmark") as spark:
        write_parquet(spark, root, count)
        cases = warm = spark_cases(spark, root)
        if not small:
            write_store(root / "warm" / "whole", _WARM_MIB * (1 << 20) // 500, _WARM_MIB << 20)
            write_parquet(spark, root / "warm", _WARM_MIB * (1 << 20) // 500)
            warm = spark_cases(spark, root / "warm")
        say("warming up")
        rounds(warm, 1, tree)
        took |= rounds(cases, given.rounds, tree)
    most = max(one.memory_mib for one in took[report.name].each)
    print(
        f"{count} records, {given.mib} MiB, {given.cores} cores, heap {given.heap}; medians of {given.rounds} and their ratios\n"
    )
    print("\n".join(lines([*cases, report], took)))
    print(
        f"\n- cold `rmq report` of {given.mib} MiB with a heap of {given.heap}: at most {most:.0f} MiB in all processes together"
    )
    print(f"- Python per row: {per_row:.2f} µs (goal <= 2.5: {'yes' if per_row <= 2.5 else 'NO'})")
    if given.json:
        found = {name: [one._asdict() for one in rounds_of.each] for name, rounds_of in took.items()}
        given.json.write_text(json.dumps(found | {"python_us_per_row": per_row}, indent=1))


def write_parquet(spark: Any, root: Path, count: int) -> None:
    say("writing Parquet")
    spark.read.format("rmq").option("path", str(root / "whole")).load().write.parquet(str(root / "parquet"))
    if spark.read.parquet(str(root / "parquet")).count() != count:
        raise SystemExit("the rows that were read are not those that were written")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
