"""Rows that Spark's generated code reads from Arrow's memory, beside those of Spark's own way."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.analytics.stores import Sent, write_store

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")

from pyspark import InheritableThread  # noqa: E402 -- needs the extra
from pyspark.sql.functions import broadcast  # noqa: E402

from analytics.spark.source import register  # noqa: E402

NOON = 1_795_262_400_000  # 2026-11-21T12:00Z
GENERATED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.fallback": "false"}
QUERIES: dict[str, Callable[[Any], Any]] = {
    "all": lambda frame: frame.orderBy("physical_offset"),
    "nothing": lambda frame: frame.where("topic = 'None' or size < 0"),
    "nulls": lambda frame: frame.where("tags is null or size(keys) = 0").select("body", "tags", "keys", "properties"),
    "last": lambda frame: frame.orderBy("physical_offset").limit(3),
    # Aggregates keep what they were given after its batch is gone, and send the plan below them to the tasks.
    "groups": lambda frame: frame.groupBy("topic", "tags").agg({"body": "max", "msg_id": "min", "keys": "max", "size": "sum"}),
    "one group": lambda frame: frame.agg({"body": "max", "uniq_key": "max", "tags": "min"}),
    "entries": lambda frame: frame.selectExpr("explode(properties)").groupBy("key", "value").count(),
    "join": lambda frame: frame.select("msg_id", "topic").join(frame.select("msg_id", "properties"), "msg_id"),
}


def properties(number: int) -> dict[str, str]:
    """None, few and many: no tag, no key, one key, several, texts that are not ASCII."""
    found = {"UNIQ_KEY": f"{number:032X}", "TAGS": f"t{number % 5}", "KEYS": " ".join("abcdef"[: number % 4]), "ü": "ñ" * 9}
    return {name: value for at, (name, value) in enumerate(found.items()) if value and number % (at + 3)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rows") / "store"
    sent = [Sent(f"T{n % 3}", bytes([n]) * (n % 50), properties(n), NOON + n) for n in range(250)]
    write_store(found, sent, segment_bytes=1 << 14)
    return found


@pytest.fixture
def generating(spark: Any) -> Iterator[Any]:
    """A session that makes code for each query, and fails where that cannot be compiled."""
    before = {name: spark.conf.get(name) for name in GENERATED}
    for name, value in GENERATED.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def load(spark: Any, store: Path) -> Any:
    return spark.read.format("rmq").option("path", str(store)).load()


def plan_of(frame: Any) -> Any:
    return getattr(frame, "_jdf").queryExecution().executedPlan()  # noqa: B009 -- only Java knows it


@pytest.mark.parametrize("query", QUERIES)
def test_generated_code_gives_the_rows_of_sparks_own_reader(generating: Any, store: Path, query: str) -> None:
    frame = QUERIES[query](load(generating, store))
    assert "ArrowRows" in plan_of(frame).toString()
    rows = sorted(map(str, frame.collect()))
    generating.conf.set("spark.sql.codegen.wholeStage", "false")
    assert rows == sorted(map(str, QUERIES[query](load(generating, store)).collect()))
    assert (query == "nothing") == (not rows)


def test_the_scans_metrics_count(generating: Any, store: Path) -> None:
    plan = plan_of(load(generating, store))
    plan.executeCollect()
    while plan.children().size():
        plan = plan.children().head()
    metrics = {name: plan.metrics().apply(name).value() for name in ("numOutputRows", "pythonDataSent", "pythonDataReceived")}
    assert metrics["numOutputRows"] == 250
    assert min(metrics.values()) > 0


def test_a_task_that_ends_early_keeps_no_memory(generating: Any, store: Path) -> None:
    assert len(load(generating, store).limit(3).collect()) == 3
    assert len(load(generating, store).where("size > 0").take(2)) == 2
    java = getattr(generating, "_jvm")  # noqa: B009 -- only Java knows it
    assert java.org.apache.spark.sql.util.ArrowUtils.rootAllocator().getAllocatedMemory() == 0


def test_a_task_that_is_killed_ends_behind_its_row(generating: Any, store: Path) -> None:
    """And frees its memory. It worked on to the end of its batch, which takes a quarter of an hour here."""
    java = getattr(generating, "_jvm")  # noqa: B009 -- only Java knows it
    allocator = java.org.apache.spark.sql.util.ArrowUtils.rootAllocator()
    others = broadcast(generating.range(100_000))
    work = load(generating, store).crossJoin(others).selectExpr("sum(size * length(sha2(repeat(string(id), 2000), 512)))")
    assert "ArrowRows" in plan_of(work).toString()
    errors: list[BaseException] = []

    def collect() -> None:
        try:
            work.collect()
        except Exception as error:  # Spark tells of it in several ways
            errors.append(error)

    thread = InheritableThread(target=collect)
    thread.start()
    while allocator.getAllocatedMemory() == 0 and thread.is_alive():
        thread.join(0.01)
    generating.sparkContext.cancelAllJobs()
    thread.join()
    assert len(errors) == 1
    while allocator.getAllocatedMemory():
        pass


def test_what_python_raises_is_told(generating: Any, store: Path, tmp_path: Path) -> None:
    raw = (store / "commitlog" / f"{0:020}").read_bytes()
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(raw[:300] + b"?" + raw[301:])
    with pytest.raises(Exception, match=r"CommitLog at \d+: record at \d+: wrong record checksum"):
        load(generating, tmp_path).collect()


def test_a_filter_may_name_a_topic_that_is_gone_or_never_was(spark: Any, tmp_path: Path) -> None:
    """As without pushdown: an option that names one is a mistake, a filter finds what is there."""
    write_store(tmp_path, [Sent(f"T{n % 3}", b"x") for n in range(30)])
    for name in ("T0", "T1"):  # T2 is deleted: its messages stay until their files go
        (tmp_path / "consumequeue" / name / "0").mkdir(parents=True)
    frame = load(spark, tmp_path)
    wanted = ("topic = 'Nope'", "topic in ('T1', 'Nope')", "topic = 'T2'", "topic in ('T1', 'T2') and topic <> 'T1'")
    assert [frame.where(each).count() for each in wanted] == [0, 10, 10, 10]
    with pytest.raises(Exception, match="the store has no topic 'Nope'"):
        spark.read.format("rmq").option("subscribe", "Nope").load(str(tmp_path)).where("topic = 'Nope'").count()


def test_one_session_after_the_other(spark: Any) -> None:
    """The second ended with "object is not an instance of declaring class", as each block of the guide after the first."""
    for _ in range(2):
        register(spark.newSession())
