"""`rmq store` on real directories: what it prints, what it changes, its exit codes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq import cli
from rmq.broker.startup.opening import store_settings
from rmq.clock import SystemClock
from rmq.commands.shared import exits
from rmq.config.loading import load
from rmq.log.files import ownfiles
from rmq.log.files.disk import RealDisk
from rmq.log.records import record
from rmq.log.records.checking import check
from rmq.log.store import Store, StoreSettings
from rmq.log.units import Unit
from tests.golden import unpack
from tests.log.test_adoption import foreign

SETTINGS = StoreSettings(record.host_bytes("127.0.0.1", 10911), 16384, queue_file_entries=50, index_slots=64, index_entries=100)
SLOTS = ("--index-slots", "64")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A stopped store: 60 messages of topic T in three queues, over several segments."""
    store = Store.open(RealDisk(), str(tmp_path / "store"), SETTINGS)
    store.open_epoch(1_700_000_000_000)
    for number in range(60):
        properties = record.properties_to_bytes({"TAGS": "red", "KEYS": f"k{number}"})
        draft = record.draft("T", b"message %d " % number * 40, properties, born_timestamp=1, born_host=SETTINGS.store_host)
        checked = check(draft, "T")
        unit = Unit(draft, checked.sizes, checked.tags_codes, store.queues.get("T", number % 3))
        store.log.append([unit], 1_700_000_000_000 + number * 1000)
    store.close()
    return tmp_path / "store"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """(exit code, standard output, standard error) of `rmq store ...`."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.run(["store", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_verify_says_what_it_checked_and_changes_nothing(root: Path, run: Any) -> None:
    before = contents(root)
    code, out, _ = run("verify", root, *SLOTS)
    assert code == exits.OK
    assert "records" in out
    assert "clean: log from 0 to" in out
    code, out, _ = run("verify", root, *SLOTS, "-o", "json")
    found = json.loads(out)
    assert (found["clean"], found["findings"], found["unchecked"]) == (True, [], [])
    assert found["checked"]["queue units"] == found["checked"]["records"] == 60 + 3
    assert contents(root) == before


def test_verify_finds_damage_and_says_where(root: Path, run: Any) -> None:
    segment = root / "commitlog" / f"{16384:020d}"
    data = bytearray(segment.read_bytes())
    data[5000] ^= 1
    segment.write_bytes(data)
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text("{")
    code, out, _ = run("verify", root, *SLOTS)
    assert code == exits.DAMAGED
    assert "DAMAGED: commitlog: CommitLog at" in out
    assert "DAMAGED: config/topics.json" in out
    assert "rmq store repair" in out
    code, out, _ = run("verify", root, *SLOTS, "-o", "json")
    found = json.loads(out)
    assert code == exits.DAMAGED
    assert not found["clean"]
    assert [one["where"] for one in found["findings"] if one["damage"]] == ["commitlog", "config/topics.json"]
    assert 16384 < found["findings"][0]["offset"] < 16384 + 5000


def test_verify_on_a_copy_of_a_live_store(root: Path, run: Any, tmp_path: Path) -> None:
    """No lock is needed, and what is being written is no damage."""
    store = Store.open(RealDisk(), str(root), SETTINGS)
    store.open_epoch(1_700_000_100_000)
    assert run("verify", root, *SLOTS)[0] == exits.OK
    shutil.copytree(root, tmp_path / "copy")
    store.close()
    assert run("verify", tmp_path / "copy", *SLOTS)[0] == exits.OK


def test_dump_prints_each_kind(root: Path, run: Any) -> None:
    def lines(*arguments: str) -> list[dict[str, Any]]:
        code, out, _ = run("dump", root, *arguments, *SLOTS, "-o", "json")
        assert code == exits.OK
        return [json.loads(line) for line in out.splitlines()]

    records = lines("records", "-t", "T", "-i", "1")
    assert [one["queueOffset"] for one in records] == list(range(20))
    assert records[3]["body"] == "message 10 " * 40
    assert records[3]["properties"]["KEYS"] == "k10"
    middle = records[5]["offset"]
    assert [one["offset"] for one in lines("records", "-t", "T", "-i", "1", "--from", str(middle), "--limit", "2")] == [
        middle,
        records[6]["offset"],
    ]
    assert len(lines("records", "-t", "T", "-i", "1", "--to", str(middle))) == 5
    units = lines("queues", "-t", "T", "-i", "1")
    assert [(one["queueOffset"], one["offset"]) for one in units] == [(one["queueOffset"], one["offset"]) for one in records]
    assert {one["offset"] for one in lines("index")} == {one["offset"] for one in lines("records", "-t", "T")}
    assert [(one["epoch"], one["start"]) for one in lines("epochs")] == [(1, 0)]
    assert {"file": "run", "name": "state", "value": "clean"} in lines("own")
    assert lines("state") == []
    code, out, _ = run("dump", root, "records", "--limit", "1")
    assert (code, out.startswith("offset=0  size=")) == (exits.OK, True)


def test_inner_batches_are_shown_and_counted_as_their_messages(tmp_path: Path, run: Any) -> None:
    root = unpack("s11-innerbatch", tmp_path)
    dumped = [json.loads(line) for line in run("dump", root, "records", "-t", "s11-bcq", "-i", "0", "-o", "json")[1].splitlines()]
    second = dumped[1]["messages"]
    assert [(one["queueOffset"], one["body"]) for one in second] == [(number, f"s11 b2 m{number - 2}") for number in range(2, 7)]
    assert second[0]["properties"]["TAGS"] == "BT"
    units = [json.loads(line) for line in run("dump", root, "queues", "-t", "s11-bcq", "-i", "0", "-o", "json")[1].splitlines()]
    assert [(one["queueOffset"], one["messages"]) for one in units[:3]] == [(0, 2), (2, 5), (7, 1)]
    rows = json.loads(run("stats", root, "--queues", "-o", "json")[1])["rows"]
    assert next(row["messages"] for row in rows if row["topic"] == "s11-bcq") == 63


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="what cannot be read at its beginning, as a bad sector")
@pytest.mark.parametrize(
    ("command", "file"),
    [("stats", "rmq/progress"), ("stats", "rmq/epochs"), ("own", "rmq/vote"), ("queues", "consumequeue/T/0"), ("index", "index")],
)
def test_what_the_device_cannot_read_is_named(command: str, file: str, root: Path, run: Any) -> None:
    """It said "Input/output error", and not where."""
    path = root / file
    path = min(path.iterdir()) if path.is_dir() else path
    path.unlink()
    path.symlink_to("/proc/self/mem")
    words = ("stats", root) if command == "stats" else ("dump", root, command)
    code, _, err = run(*words)
    assert (code, err) == (exits.FAILED, f"rmq: {path}: Input/output error\n")


def test_stats_counts(root: Path, run: Any) -> None:
    code, out, _ = run("stats", root, "-o", "json")
    found = json.loads(out)
    assert code == exits.OK
    topic = next(row for row in found["rows"] if row["topic"] == "T")
    assert (topic["messages"], found["messages"]) == (60, 63)
    assert topic["perSecond"] == pytest.approx(60 / 59)
    assert found["commitlogBytes"] > 0
    code, out, _ = run("stats", root, "--queues", "-o", "json")
    rows = [row for row in json.loads(out)["rows"] if row["topic"] == "T"]
    assert [(row["queueId"], row["messages"]) for row in rows] == [(0, 20), (1, 20), (2, 20)]


def test_distrust(root: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("distrust", root, "--yes")[0] == exits.OK
    vote = ownfiles.load_vote(RealDisk(), f"{root}/rmq")
    assert vote is not None
    assert not vote.proven
    assert vote.incarnation >= SystemClock().wall_ms() // 1000 - 60, "later runs of that disk may have been seen"
    assert "not proven" in run("verify", root, *SLOTS)[1]


def test_changing_commands_ask_first_and_need_the_lock(root: Path, run: Any) -> None:
    """D16: a store in use is left alone. Without an answer nothing happens."""
    for answer, code, said in (
        ("n\n", exits.FAILED, "may have lost"),
        ("", exits.USAGE, "\nrmq: it asks, and nobody is at its input"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "rmq.cli", "store", "distrust", root],
            input=answer,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert done.returncode == code
        assert said in done.stderr
    store = Store.open(RealDisk(), str(root), SETTINGS)
    code, _, err = run("distrust", root, "--yes")
    store.abandon()
    assert code == exits.FAILED
    assert "in use" in err


def test_adopt_takes_a_store_of_rocketmq_over(tmp_path: Path, run: Any) -> None:
    root = unpack("s06-delay", tmp_path)
    code, out, _ = run("adopt", root, "--yes", *SLOTS)
    assert code == exits.OK
    assert "65 records of 9 queues" in out
    assert run("verify", root, *SLOTS)[0] == exits.OK
    assert "nothing to take over" in run("adopt", root, "--yes", *SLOTS)[1]


def test_adopt_takes_name_and_sizes_from_the_brokers_file(tmp_path: Path, run: Any) -> None:
    """The store was made for `broker-a`, whatever the file said, and its node refused it. Queues and index were made twice."""
    root, file = unpack("s06-delay", tmp_path), tmp_path / "broker.conf"
    sizes = "mappedFileSizeCommitLog=65536\nmaxMessageSize=4096\nmappedFileSizeConsumeQueue=1000\n"
    index = "maxHashSlotNum=64\nmaxIndexNum=100\n"
    file.write_text(f"brokerName=broker-z\nbrokerRole=ASYNC_MASTER\nbrokerId=0\nstorePathRootDir={root}\n{sizes}{index}")
    assert run("adopt", root, "--yes", "--config", file)[0] == exits.OK
    store = Store.open(RealDisk(), str(root), store_settings(load(file, env={}).settings, bytes(8), RealDisk()))
    store.abandon()
    assert not store.recovered.queues_rebuilt
    assert {path.stat().st_size for path in (root / "index").iterdir()} == {40 + 4 * 64 + 20 * 100}


@pytest.mark.parametrize("what", ["log", "tables"])
def test_a_store_in_which_rocketmq_went_on_is_not_called_damaged(what: str, root: Path, run: Any) -> None:
    """What it wrote was, or was left out; and a repair began to take it apart."""
    end = json.loads(run("verify", root, *SLOTS, "-o", "json")[1])["logEnd"]
    if what == "log":
        path = root / "commitlog" / f"{end // SETTINGS.segment_bytes * SETTINGS.segment_bytes:020d}"
        theirs = foreign("T", 20, end)
        with path.open("r+b") as file:
            file.seek(end % SETTINGS.segment_bytes)
            file.write(theirs)
    else:
        known = ownfiles.load_run(RealDisk(), str(root / "rmq"))
        assert known is not None
        ownfiles.save_run(RealDisk(), str(root / "rmq"), known._replace(exports=(("topics.json", "0" * 64),)))
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / "topics.json").write_bytes(b'{\n\t"topicConfigTable":{}\n}')
    before = contents(root)
    for command in (("verify", root), ("dump", root, "records"), ("stats", root), ("repair", root, "--yes")):
        code, _, err = run(*command)
        assert (code, "store adopt" in err) == (exits.USAGE, True), command
    assert contents(root) == before


@pytest.mark.parametrize(("name", "reason"), [("s21-dledger", "DLedger"), ("s17-popkv", "RocksDB")])
def test_adopt_says_why_not(tmp_path: Path, run: Any, name: str, reason: str) -> None:
    code, _, err = run("adopt", unpack(name, tmp_path), "--yes")
    assert code in (exits.FAILED, exits.USAGE)
    assert reason in err


@pytest.mark.parametrize("command", ["verify", "stats", "adopt", "distrust"])
def test_a_directory_that_is_no_store(tmp_path: Path, run: Any, command: str) -> None:
    yes = ("--yes",) if command in ("adopt", "distrust") else ()
    code, _, err = run(command, tmp_path, *yes)
    assert code in (exits.FAILED, exits.USAGE)
    assert "no store" in err
    assert list(tmp_path.iterdir()) in ([], [tmp_path / "lock"])


def test_a_progress_bar_only_on_a_terminal(root: Path, run: Any) -> None:
    _, _, err = run("verify", root, *SLOTS)
    assert err == ""
    main, other = os.openpty()
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", "rmq.cli", "store", "verify", root, *SLOTS],
        stderr=other,
        env=env,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    os.close(other)
    drawn = b"".join(_rest(main))
    assert done.returncode == exits.OK
    assert b"100%" in drawn


def _rest(terminal: int) -> Iterator[bytes]:
    try:
        while data := os.read(terminal, 4096):
            yield data
    except OSError:  # the other side is closed
        os.close(terminal)


@pytest.mark.parametrize("kind", ["vote", "run", "epochs", "progress", "queues", "index"])
def test_repair_of_our_own_files(root: Path, run: Any, kind: str) -> None:
    """D10: what verify calls damaged, repair mends, and the store opens again."""
    path = root / "rmq" / kind
    data = bytearray(path.read_bytes())
    data[-12] ^= 1
    path.write_bytes(data)
    code, out, _ = run("verify", root, *SLOTS)
    assert (code, f"rmq/{kind}" in out, "1 thing is damaged; `rmq store repair` shows" in out) == (exits.DAMAGED, True, True)
    assert run("repair", root, *SLOTS, "--yes")[0] == exits.OK
    assert (root / "rmq" / f"lost-{kind}").exists()
    store = Store.open(RealDisk(), str(root), SETTINGS)
    found = [one for queue_id in range(3) for one in store.records("T", queue_id)]
    store.close()
    assert len(found) == 60
    assert run("verify", root, *SLOTS)[0] == exits.OK


def test_repair_explains_asks_and_saves_the_rest(root: Path, run: Any) -> None:
    """D8: nothing happens without an answer; then all other messages are there under their old numbers."""
    segment = root / "commitlog" / f"{16384:020d}"
    data = bytearray(segment.read_bytes())
    data[5000] ^= 1
    segment.write_bytes(data)
    before = contents(root)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    asked = subprocess.run(
        [sys.executable, "-m", "rmq.cli", "store", "repair", root, *SLOTS],
        input="n\n",
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )
    assert asked.returncode == exits.FAILED
    assert "are kept in rmq/lost-... and replaced; lost: T/" in asked.stderr
    assert contents(root) == before
    code, out, err = run("repair", root, *SLOTS, "--yes")
    assert (code, "repaired" in out) == (exits.OK, True), err
    store = Store.open(RealDisk(), str(root), SETTINGS)
    found = [one for queue_id in range(3) for one in store.records("T", queue_id)]
    store.close()
    assert len(found) == 59
    code, out, _ = run("verify", root, *SLOTS)
    assert code == exits.OK
    assert "is lost, and was replaced" in out
    assert "nothing to repair" in run("repair", root, *SLOTS)[1]
