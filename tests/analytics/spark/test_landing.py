"""Messages and changed rows land exactly once, also when drivers are killed: what they export, make tables of, and stream."""

import importlib.util
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmq.client import Client, Message
from rmq.errors import InvalidArgument, StoreError
from tests.analytics.brokers import Running, running_broker
from tests.analytics.spark.conftest import JAVA
from tests.analytics.stores import Sent, commit, write_store

pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")

import pyspark

from analytics.landing.canal import spark_type
from analytics.landing.changes import capture
from analytics.landing.cli import export as export_command
from analytics.landing.export import export, folder_topic, folder_topics, schema_from
from analytics.landing.versions import current, manifest_of, next_version
from analytics.stores.files import directory
from tests.analytics import driver
from tests.analytics.remote import upload

NOON = 1_795_262_400_000  # 2026-11-21T12:00Z
DAY = 86_400_000
ROOT = Path(__file__).parent.parent.parent.parent
ALONE, CLUSTER = "local[1]", "local-cluster[2,1,512]"
KILLS = int(os.environ.get("RMQ_TEST_SPARK_KILLS", "1"))
MOMENTS = ("planned", "being written", "done")  # of a trigger
PLANNED, WRITING, DONE = range(3)
SETTINGS = [
    f"--conf={setting}"
    for setting in (
        "spark.sql.session.timeZone=Asia/Tokyo",
        "spark.executor.memory=512m",
        "spark.sql.streaming.pollingDelay=100ms",  # a stream that has nothing to do asks again and again
        f"spark.executor.extraJavaOptions={JAVA}",
    )
]
STREAMS = ("network", "files")
DELTA = importlib.util.find_spec("deltalake") is not None  # the extra `delta`
Growing = tuple[Path, str, Callable[[int], None]]


def test_a_version_takes_effect_all_at_once_or_not_at_all(tmp_path: Path) -> None:
    with next_version(tmp_path) as draft:
        (draft.staging / "x=1.parquet").mkdir(parents=True)
        (draft.staging / "x=1.parquet" / "a.parquet").write_text("a")
        draft.add(draft.staging)
        draft.commit({"to": 1})
    with next_version(tmp_path) as draft:  # a job that has nothing to do, or fails
        draft.keep()
    assert not draft.folder.exists()
    (draft.folder / "_new").mkdir(parents=True)  # what one that was killed just before its end leaves
    (draft.folder / "half.parquet").write_text("")
    (tmp_path / "current.new").symlink_to("versions/00000002")
    (tmp_path / "versions" / ".DS_Store").touch()  # of somebody who looked with a file manager: each job ended with an error
    for number in (2, 3, 4):
        with next_version(tmp_path) as draft:
            assert draft.manifest == {"to": number - 1}
            with pytest.raises(StoreError, match="another job"), next_version(tmp_path):
                pass
            draft.keep()
            draft.commit({"to": number})
    folder = current(tmp_path)
    assert folder == tmp_path / "versions" / "00000004"
    assert manifest_of(folder) == {"to": 4}
    assert [str(file.relative_to(folder)) for file in folder.rglob("*a.parquet")] == ["x=1.parquet/v00000001-a.parquet"]
    assert sorted(each.name for each in (tmp_path / "versions").iterdir()) == [".DS_Store", "00000003", "00000004"]


def test_topics_of_a_first_run_exist_and_stay(tmp_path: Path) -> None:
    """A wrong name is told while it can be corrected; later other topics are another data set."""
    write_store(tmp_path / "store", [Sent("Orders")])
    commit(tmp_path / "store", 0)
    (tmp_path / "store" / "consumequeue" / "Orders").mkdir(parents=True)
    stores, both = [directory(str(tmp_path / "store"))], frozenset({"Orders", "Ordres"})
    with pytest.raises(InvalidArgument, match=r"no topic 'Ordres'; did you mean 'Orders'\? .*--allow-missing"):
        export(stores, tmp_path / "out", topics=both)
    with pytest.raises(InvalidArgument, match="--topics is empty"):  # a variable that nobody has set
        CliRunner().invoke(
            export_command, [str(stores[0]), "--out", str(tmp_path / "out"), "--topics", ""], catch_exceptions=False
        )
    with pytest.raises(InvalidArgument, match="no topic 'Ordres'"):
        capture(stores[0], tmp_path / "out", both)
    assert export(stores, tmp_path / "out", topics=both, allow_missing=True).messages == 0
    assert capture(stores[0], tmp_path / "out", both, allow_missing=True).messages == 0
    with next_version(tmp_path / "out") as draft:
        draft.commit({"topics": sorted(both), "logs": {}})
    assert export(stores, tmp_path / "out", topics=both).messages == 0
    with pytest.raises(InvalidArgument, match="go on with --topics Orders,Ordres; for others give another --out"):
        export(stores, tmp_path / "out", topics=frozenset({"Orders"}))


def test_an_export_that_finds_nothing_says_why_that_may_be(spark: Any, tmp_path: Path) -> None:
    """A running broker says each 10 s how far its log may be read: who had just sent read of 0 messages only."""
    offsets = write_store(tmp_path / "store", [Sent("T"), Sent("T")])
    words = [str(tmp_path / "store"), "--out", str(tmp_path / "out")]
    for committed, count in (0, 0), (offsets[-1], 1):
        commit(tmp_path / "store", committed)
        done = CliRunner().invoke(export_command, words, catch_exceptions=False)
        assert f"{count} messages in" in done.stdout
        assert ("the last 10 s" in done.stderr) == (count == 0)


def test_a_topic_whose_folder_no_file_system_takes_stops_no_export(spark: Any, tmp_path: Path) -> None:
    """Any client may make one of 127 `%`: each takes three bytes there."""
    topics = ["T", "%RETRY%" + "g" * 120, "%" * 127, "%" * 83, "%" * 84, "L" * 249, "L" * 250, "ü" * 124, "ü" * 125]
    rows = spark.createDataFrame([(each,) for each in topics], "topic string").withColumn("name", folder_topics())
    assert [row["name"] for row in rows.collect()] == [folder_topic(each) for each in topics]
    rows.write.partitionBy("name").parquet(str(tmp_path / "out"))
    read = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row["topic"] for row in read.collect()) == sorted(topics)
    assert [folder_topic(each) == each for each in topics] == [True, True, False, True, False, True, False, True, False]


def test_what_java_fails_of_is_told_in_a_line(spark: Any, tmp_path: Path) -> None:
    """As on a full disk: an error that Spark does not turn into one of Python."""
    write_store(tmp_path / "store", [Sent("Orders")])
    out = tmp_path / "out"

    def in_the_way(line: str) -> None:
        (out / "versions" / "00000001" / "_new").write_text("a file where Spark makes a folder")

    with pytest.raises(StoreError, match=r"^Spark failed: .*_new.*$") as told:
        export([directory(str(tmp_path / "store"))], out, tell=in_the_way)
    assert "\n" not in str(told.value)
    assert current(out) is None


@pytest.fixture(name="growing")
def growing_store(tmp_path: Path, s3: str) -> Growing:
    """100 messages over two days and change events among them: the store, where else it is (in S3 if there is a server), and how
    to commit so many of all."""
    good = [json.dumps({"id": n, "price": f"{n}.5", "topic": "t"}).encode() for n in range(96)]
    good[93], good[95] = good[93].replace(b"}", b', "more": 1}'), good[95] + good[0]
    bodies = [*good, b"no", b"[]", b"", b'{"id": "x"}']
    sent = [Sent(f"T{n % 2}", body, {"TAGS": "a"}, NOON + n * DAY // 96) for n, body in enumerate(bodies)]
    events = [*map(canal, range(len(EVENTS)))]
    every = [*sent[:40], *events[:FIRST_RUN], *sent[40:], *events[FIRST_RUN:], Sent("other"), Sent("other")]
    offsets = write_store(tmp_path / "store", every, segment_bytes=4096)
    store = tmp_path / "store"
    base, _, query = s3.partition("?")
    elsewhere = f"{base}/{tmp_path.name}?{query}" if s3 else str(store)

    def committed(count: int) -> None:
        commit(store, offsets[count])
        if s3:
            upload(store, elsewhere)

    return store, elsewhere, committed


# --- change events ----------------------------------------------------------------------------------------------------

TYPES = {"id": "int(11)", "name": "varchar(20)", "balance": "decimal(10,2)", "born": "date"}
MAIL = TYPES | {"mail": "varchar(50)"}
Row = dict[str, str | None]


def row(number: int, name: str | None, balance: str = "1.00", born: str | None = "2000-01-02", **more: str | None) -> Row:
    return {"id": str(number), "name": name, "balance": balance, "born": born, **more}


def change(kind: str, data: list[Row] | None = None, old: list[Row] | None = None, **said: Any) -> bytes:
    """A flat message, as Canal 1.1 writes it."""
    flat = {"database": "shop", "table": "users", "type": kind, "data": data, "old": old, "es": NOON, "ts": NOON + 1, "id": 1}
    of_rows = {"pkNames": ["id"], "mysqlType": TYPES, "isDdl": False, "sql": ""}
    of_statements = {"pkNames": None, "mysqlType": None, "isDdl": True}
    return json.dumps(flat | (of_rows if data else of_statements) | said).encode()


NARROW = {"table": "emptied", "mysqlType": {"id": "bigint(20)", "n": "text"}}
ANNA = change("UPDATE", [row(1, "Anna")], [{"name": "Ann"}], es=NOON + 9)
EVENTS = [
    change("CREATE", sql="create table users (...)"),
    change("INSERT", [row(1, "Ann"), row(2, "Bob"), row(3, "Cid")]),
    ANNA,
    change("UPDATE", [row(1, "Anne", "2.50")], [{"name": "Anna", "balance": "1.00"}], es=NOON + 7),  # older by `es`: it wins
    ANNA,  # a repeat: it changes nothing
    change("INSERT", [{"id": "1", "n": "old"}], **NARROW),
    change("INSERT", [{"a": "x"}], table="keyless", pkNames=None, mysqlType={"a": "text"}),
    b"no JSON",
    change("DELETE", [row(3, "Cid")]),
    # here the first run ends
    change("ALTER", sql="alter table users add mail varchar(50)"),
    change("INSERT", [row(4, None, born="0000-00-00", mail="d@x.org"), row(5, "Eve", mail=None)], mysqlType=MAIL),
    change("UPDATE", [row(20, "Bob", mail=None), row(5, "Eva", mail=None)], [{"id": "2"}, {"name": "Eve"}], mysqlType=MAIL),
    change("INSERT", [row(3, "Cyd", mail=None)], mysqlType=MAIL),
    ANNA,  # the repeat once more, late
    change("TRUNCATE", table="emptied", sql="truncate table emptied"),
    change("INSERT", [{"id": "2", "n": "new"}], **NARROW),
    b'{"database": "shop", "type": "INSERT", "data": [{"id": "1"}]}',
]
FIRST_RUN = 9
SCHEMA = "T1=id bigint, price decimal(10,2), topic string"
USERS = [
    (1, "Anne", "2.50", "2000-01-02", None),
    (3, "Cyd", "1.00", "2000-01-02", None),
    (4, None, "1.00", "None", "d@x.org"),
    (5, "Eva", "1.00", "2000-01-02", None),
    (20, "Bob", "1.00", "2000-01-02", None),
]


def canal(number: int) -> Sent:
    """A producer that sends again sends the same under the same unique id."""
    return Sent("canal", EVENTS[number], {"UNIQ_KEY": f"F{EVENTS.index(EVENTS[number])}"}, NOON)


@pytest.mark.parametrize(("mysql", "spark_sql"), [
    ("int(11)", "bigint"), ("bigint(20) unsigned", "decimal(20,0)"), ("INT UNSIGNED", "bigint"), ("decimal(9,2)", "decimal(9,2)"),
    ("decimal", "decimal(10,0)"), ("decimal(65,30)", "string"), ("double precision", "double"), ("datetime(3)", "timestamp_ntz"),
    ("date", "date"), ("time", "string"), ("enum('a','b')", "string"), ("bit(1)", "string"), ("", "string"),
])  # fmt: skip
def test_types_of_mysql(mysql: str, spark_sql: str) -> None:
    assert spark_type(mysql) == spark_sql


def end(session: int) -> None:
    """Kills all processes of a session at once and waits for their ends: until then they hold locks and write files.

    They are stopped first: a driver that is killed behind its Java sees that go, and may tidy up as one that failed does.
    """
    while living := [*members(session)]:
        for sent, process in itertools.product((signal.SIGSTOP, signal.SIGKILL), living):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, sent)
        for process in living:
            select.select([process], [], [])
            os.close(process)


def members(session: int) -> Iterator[int]:
    """Handles of its processes that have not ended."""
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(ProcessLookupError, FileNotFoundError):  # it has ended since
            handle = os.pidfd_open(int(process))
            state, _, _, of = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state != "Z":
                yield handle
            else:
                os.close(handle)


class Driver:
    """Runs `tests.analytics.driver` by spark-submit and kills it and all that it started: Java, workers."""

    def __init__(self, broker: Running, directory: Path) -> None:
        self._broker = broker
        self._job = {"nameserver": broker.nameserver, "store": str(directory / "live"), "directory": str(directory)}
        self.directory = directory
        self._temp = tempfile.mkdtemp(dir=directory)  # of those who cannot tidy up
        self.sent = 0

    def kill(self, when: int, *streams: str, master: str = ALONE, **more: Any) -> list[Any]:
        """At that moment of a trigger of the first stream. Messages come all the time. What it told of its settings."""
        self.write(40)
        before = old = driver.progress(self.directory, streams[0])
        submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", master, "--driver-memory", "512m"]
        hurried = os.environ["PYSPARK_SUBMIT_ARGS"].split()[:-1]  # as this session is
        command = [*submit, *hurried, *SETTINGS, driver.__file__, json.dumps(self._job | {"streams": streams} | more)]
        own = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        temporary = {"TMPDIR": self._temp, "SPARK_LOCAL_DIRS": self._temp, "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={self._temp}"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=own | temporary, start_new_session=True) as process:
            told: list[Any] = []
            others = []  # what else it says: why it ended
            try:
                for line in process.stdout or ():
                    kind, _, rest = line.partition(" ")
                    if kind == "found":
                        told = json.loads(rest)
                    elif kind == "progress":
                        self.write(10)
                        planned, written, done = map(int, rest.split())
                        writing = written > old[1] and (planned, done) == old[::2]
                        if (planned > before[0], writing, done > before[2])[when]:
                            print(f"killed: {master}, streams {streams}, a trigger that is {MOMENTS[when]}, {[*more]}")
                            return told
                        old = planned, written, done
                    else:
                        others.append(line)
                pytest.fail(f"the driver ended by itself: {''.join(others)}")
            finally:
                end(process.pid)

    def write(self, count: int) -> None:
        """So many more, numbered; the store says how far it is committed."""

        async def work(client: Client) -> None:
            async with client.producer() as producer:
                for first in range(self.sent, self.sent + count, 10):
                    await producer.send_batch([Message("T", b"%d" % number) for number in range(first, first + 10)])

        self._broker.ask(work)
        self._broker.run(lambda local: local.clock.advance(11.0))
        self.sent += count


@pytest.mark.timeout(1800)  # beside much else on two cores it has taken six minutes
@pytest.mark.spark
def test_a_driver_is_killed_and_everything_lands_once(spark: Any, growing: Growing, tmp_path: Path) -> None:
    """SIGKILL of a driver and all its processes in the middle of everything, that is of a first export and of first tables while
    they are made and of a stream's trigger while it is written.

    Also: what spark-submit says wins, ours stays where it says nothing. `python -m tests.analytics.kills` goes on: when a trigger
    is planned, in the middle of a second export; when one is done; and in a cluster, whose workers are processes of their own.
    """
    store, elsewhere, committed = growing
    messages, tables, topics = tmp_path / "messages", tmp_path / "tables", frozenset({"T0", "T1"})
    exporting, archive = (elsewhere, str(messages), SCHEMA), directory(elsewhere)
    with running_broker(store_dir=tmp_path / "live") as broker:
        broker.run(lambda local: local.create_topic("T", queues=2))
        killed = Driver(broker, tmp_path)
        committed(40 + FIRST_RUN)
        master, zone, ui, _ = killed.kill(
            WRITING,
            *STREAMS,
            export=(*exporting, "messages are written"),
            changes=(str(store), str(tables), DELTA, "the history is written"),
        )
        assert (master, zone, ui) == (ALONE, "Asia/Tokyo", "false")
        for out, begun in ((messages, "_new/plain/topic=T1"), (tables, "_new/history/database=shop")):
            assert current(out) is None
            assert list(out.rglob(begun)), "it had begun: else the test proves nothing"
        assert export([archive], messages, topics=topics, schemas=[schema_from(SCHEMA)])[:2] == (40, 0)
        first = capture(store, tables, frozenset({"canal"}), as_delta=DELTA)
        assert first[:3] == (FIRST_RUN, 1, 1)
        rows = {name.rpartition("=")[2]: (table["rows"], table["without_key"]) for name, table in first.tables.items()}
        assert rows == {"users": (2, 0), "emptied": (1, 0), "keyless": (0, 1)}

        committed(100 + len(EVENTS))
        if KILLS > 1:
            killed.kill(PLANNED, *STREAMS, export=(*exporting, "bodies of T1 are columns"))
        assert export([archive], messages, topics=topics, schemas=[schema_from(SCHEMA)])[:2] == (60, 3)
        check_messages(spark, messages / "current")
        second = capture(store, tables, frozenset({"canal"}), as_delta=DELTA)
        assert second[:3] == (len(EVENTS) - FIRST_RUN, 1, 1)
        check_tables(spark, second.folder, second.tables["database=shop/table=users"])
        committed(101 + len(EVENTS))  # one message that nobody asked for
        assert export([archive], messages, topics=topics)[:2] == (0, 0)
        assert capture(store, tables, frozenset({"canal"}), as_delta=DELTA)[:2] == (0, 0)
        check_delta(spark, tables / "current")
        check_messages(spark, messages / "current")
        with pytest.raises(InvalidArgument, match="begun with other topics"):
            export([archive], messages)
        if DELTA:
            with pytest.raises(InvalidArgument, match="begun with --delta"):
                capture(store, tables, frozenset({"canal"}))
        assert not left_aside(tmp_path)

        if KILLS > 2:
            killed.kill(DONE, *reversed(STREAMS))
        kill_in_a_cluster(killed, tmp_path)
        check_streams(spark, killed, broker)


def kill_in_a_cluster(killed: Driver, root: Path) -> None:
    """The kills from the fourth on."""
    for name in ("one", "two"):
        write_store(root / name, [Sent(name) for _ in range(5)])
    everywhere = [str(root / name) for name in ("one", "two")]
    for number in range(3, KILLS):
        master, *_, processes = killed.kill(number % 3, STREAMS[number % 2], master=CLUSTER, everywhere=everywhere)
        assert master == CLUSTER
        assert [count for _, count in processes] == [5, 5]
        assert len({java for java, _ in processes}) == 2


def check_streams(spark: Any, killed: Driver, broker: Running) -> None:
    """What is still to come comes, and each is there once: over the network, and from the files of the broker, which stops."""
    directory = killed.directory
    every = {"maxOffsetsPerTrigger": "1000000"}  # in one trigger: each costs as much as hundreds of messages
    given = {name: said | every for name, said in driver.options(broker.nameserver, str(directory / "live")).items()}

    def finish(name: str) -> bool | None:
        return driver.start(spark, directory, name, given[name], until_now=True).awaitTermination(300)

    assert driver.patiently(lambda: finish("network"))
    broker.run(lambda local: local.stop_broker())  # then the store says how far it is committed
    assert driver.patiently(lambda: finish("files"))
    for name in given:
        frame = spark.read.parquet(str(directory / name / "parquet"))
        bodies = sorted(row[0] for row in frame.selectExpr("cast(cast(body as string) as int)").collect())
        assert bodies == [*range(killed.sent)], name


def left_aside(root: Path) -> list[Path]:
    return list(root.rglob("_new"))


def check_messages(spark: Any, folder: Path) -> None:
    rows = spark.read.parquet(str(folder)).select("topic", "day", "queue_offset").collect()
    assert sorted((row[0], row[2]) for row in rows) == [(f"T{topic}", n) for topic in range(2) for n in range(50)]
    assert {str(row[1]) for row in rows} == {"2026-11-21", "2026-11-22"}
    table = spark.read.parquet(str(folder / "topic=T1")).orderBy("queue_offset").collect()
    assert [(row["id"], str(row["price"])) for row in table[:47]] == [(n, f"{n}.50") for n in range(1, 94, 2)]
    assert {row["json_topic"] for row in table[:47]} == {"t"}, "not the message's"
    first, *others = [(row["id"], bytes(row["body"] or b"-"), row["bad"]) for row in table[45:]]
    assert first == (91, b"-", None)
    assert others == [
        (93, b'{"id": 93, "price": "93.5", "topic": "t", "more": 1}', None),
        (None, b'{"id": 95, "price": "95.5", "topic": "t"}{"id": 0, "price": "0.5", "topic": "t"}', "more than one JSON value"),
        (None, b"[]", "no JSON of that schema"),
        (None, b'{"id": "x"}', "no JSON of that schema"),
    ]
    assert (manifest_of(folder)["messages"], manifest_of(folder)["bad"]) == (100, 3)


def check_tables(spark: Any, folder: Path, users: dict[str, Any]) -> None:
    assert (users["rows"], users["unfit"]) == (5, {"born": 1})
    found = spark.read.parquet(str(folder / "state" / "database=shop" / "table=users")).drop("_key", "_data", "_place")
    assert found.columns == list(MAIL)
    rows = [(each["id"], each["name"], str(each["balance"]), str(each["born"]), each["mail"]) for each in found.collect()]
    assert sorted(rows) == USERS
    emptied = spark.read.parquet(str(folder / "state" / "database=shop" / "table=emptied")).collect()
    assert [(each["id"], each["n"]) for each in emptied] == [(2, "new")]
    history = spark.read.parquet(str(folder / "history")).orderBy("physical_offset", "row").collect()
    kinds = [each["type"] for each in history if each["table"] == "users"]
    assert kinds == ["CREATE", *3 * ["INSERT"], "UPDATE", "UPDATE", "DELETE", "ALTER", *2 * ["INSERT"], *2 * ["UPDATE"], "INSERT"]
    assert history[5]["old"] == {"name": "Anna", "balance": "1.00"}
    assert {each["table"] for each in history} == {"users", "emptied", "keyless"}
    assert spark.read.parquet(str(folder / "bad")).count() == 2


def check_delta(spark: Any, folder: Path) -> None:
    """The same tables, as DuckDB reads Delta's log and as Spark reads the folder's files; each run is a version."""
    duckdb, extension = (importlib.util.find_spec(name) for name in ("duckdb", "duckdb_extension_delta"))
    if not (DELTA and duckdb and extension and extension.origin):
        return
    import duckdb
    from deltalake import DeltaTable

    reader = duckdb.connect()
    reader.load_extension(str(next(Path(extension.origin).parent.rglob("delta.duckdb_extension"))))
    shop = folder / "state" / "database=shop"
    users = f"SELECT id, name, balance::VARCHAR, coalesce(born::VARCHAR, 'None'), mail FROM delta_scan('{shop}/table=users')"
    assert sorted(reader.sql(users).fetchall()) == USERS
    assert reader.sql(f"SELECT id, n FROM delta_scan('{shop}/table=emptied')").fetchall() == [(2, "new")]
    kinds = "SELECT type, count(*), max(old['balance']) FROM {} GROUP BY type ORDER BY type"
    by_spark = spark.sql(kinds.format(f"parquet.`{folder / 'history'}`")).collect()
    assert reader.sql(kinds.format(f"delta_scan('{folder / 'history'}')")).fetchall() == by_spark
    versions = {str(log.parent.relative_to(folder)): DeltaTable(log.parent).version() for log in folder.rglob("_delta_log")}
    assert versions == {"history": 1} | {f"state/database=shop/table={name}": 1 for name in ("users", "emptied")}
