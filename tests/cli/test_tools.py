"""What operators use now and then: exports, probes, single queues, a watch over groups; and where the rest of mqadmin is."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq import cli
from rmq.commands.admin.admin import admin
from rmq.commands.admin.elsewhere import INSTEAD
from rmq.commands.shared import exits
from tests.cli.test_node import Printed, Running, printed_json, sent
from tests.interop.mqadminsteps import STEPS

LONG = "T" * 127  # as long as a topic's name may be


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("node") / "store").ready()
    yield found
    assert found.stop() == 0


def test_each_command_of_mqadmin_is_there_or_names_what_is(capsys: Printed) -> None:
    commands = {step.command for step in STEPS if step.kind != "."}
    assert commands - admin.commands.keys() == INSTEAD.keys()
    for name, instead in INSTEAD.items():
        for written in (name, name.lower()):
            assert cli.run(["admin", written, "-t", "T"]) == exits.USAGE
            assert instead in " ".join(capsys.readouterr().err.split())


def test_exports_are_files_or_go_to_stdout(running: Running, capsys: Printed, tmp_path: Path) -> None:
    where = ["-n", running.namesrv]
    printed_json(capsys, "admin", "updateTopic", *where, "-t", LONG, "-c", "DefaultCluster", "-r", "3", "-w", "3")
    cluster, folder = ["-c", "DefaultCluster"], tmp_path / "new" / "folder"
    for command, file, key in (
        (["exportConfigs", *cluster], "configs.json", "brokerConfigs"),
        (["exportMetrics", *cluster], "metrics.json", "evaluateReport"),
        (["exportMetadata", *cluster], "metadata.json", "subscriptionGroupTable"),
        (["exportMetadata", *cluster, "-t"], "topic.json", "topicConfigTable"),
        (["exportMetadata", "-b", running.broker, "-g", "-s"], "subscriptionGroup.json", "subscriptionGroupTable"),
    ):
        for _ in range(2):  # an older file is replaced
            assert cli.run(["admin", *command, *where, "-f", str(folder)]) == 0
            assert capsys.readouterr().out == f"export {folder / file} success\n"
        assert key in json.loads((folder / file).read_bytes())
        assert cli.run(["admin", *command, *where, "-f", "-"]) == 0
        assert json.loads(capsys.readouterr().out).keys() == json.loads((folder / file).read_bytes()).keys()
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["configs.json", "metrics.json", "metadata.json", "topic.json", "subscriptionGroup.json"]
    )
    assert json.loads((folder / "topic.json").read_bytes())["topicConfigTable"][LONG]["readQueueNums"] == 3


def test_an_export_that_cannot_be_written(running: Running, capsys: Printed, tmp_path: Path) -> None:
    where = ["-n", running.namesrv, "-c", "DefaultCluster"]
    (tmp_path / "file").write_text("here")
    assert cli.run(["admin", "exportMetrics", *where, "-f", str(tmp_path / "file")]) == exits.FAILED
    assert str(tmp_path / "file") in capsys.readouterr().err
    assert cli.run(["admin", "exportMetadata", *where, "-t", "-g"]) == exits.USAGE
    assert cli.run(["admin", "exportMetadata", *where, "-b", running.broker]) == exits.USAGE
    assert cli.run(["admin", "exportConfigs", "-n", running.namesrv, "-c", "Nowhere", "-f", str(tmp_path)]) == exits.USAGE
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_exported_topics_can_be_made_again(running: Running, capsys: Printed, tmp_path: Path) -> None:
    """updateTopicList takes the values of the table."""
    where, place = ["-n", running.namesrv], ["-c", "DefaultCluster"]
    printed_json(capsys, "admin", "updateTopic", *where, "-t", "Again", *place, "-r", "5", "-w", "5")
    assert cli.run(["admin", "exportMetadata", *where, *place, "-t", "-f", "-"]) == 0
    topics = json.loads(capsys.readouterr().out)["topicConfigTable"]
    printed_json(capsys, "admin", "deleteTopic", *where, "-t", "Again", *place)
    file = tmp_path / "topics.json"
    file.write_text(json.dumps([topics["Again"]]))
    printed_json(capsys, "admin", "updateTopicList", *where, *place, "-f", str(file))
    assert printed_json(capsys, "admin", "topicRoute", *where, "-t", "Again")["total_read_queues"] == 5


def test_who_would_read_which_queue(running: Running, capsys: Printed) -> None:
    where = ["-n", running.namesrv, "-t", "Shared"]
    printed_json(capsys, "admin", "updateTopic", *where, "-c", "DefaultCluster", "-r", "5", "-w", "2")
    rows = printed_json(capsys, "admin", "allocateMQ", *where, "-i", "b, a,b")
    assert "".join(f"{row['ip']}{row['queue']} " for row in rows) == "a0 a1 a2 b3 b4 "
    assert cli.run(["admin", "allocateMQ", *where, "-i", "10.0.0.1,,"]) == exits.USAGE
    assert cli.run(["admin", "allocateMQ", "-n", running.namesrv, "-t", "Missing", "-i", "a"]) == exits.FAILED


def test_what_a_queue_knows(running: Running, capsys: Printed) -> None:
    """The hash of "TagA", as Java has it."""
    where = ["-n", running.namesrv, "-t", LONG, "-q", "0"]
    printed_json(capsys, "admin", "updateTopic", "-n", running.namesrv, "-t", LONG, "-c", "DefaultCluster", "-r", "1", "-w", "1")
    sent(capsys, running, LONG, "a", "b", "c")
    found = printed_json(capsys, "admin", "queryCq", *where, "-i", "1", "-c", "1")
    (row,) = found["rows"]
    assert (row["offset"], row["tags_code"], found["min_offset"], found["max_offset"]) == (1, 2598919, 0, 3)
    wanted = printed_json(capsys, "admin", "queryCq", *where, "-i", "0", "-g", "g" * 120, "-b", running.broker)
    assert [one["wanted"] for one in wanted["rows"]] == [False] * 3
    assert "is not online" in wanted["subscription"]
    assert cli.run(["admin", "queryCq", "-n", running.namesrv, "-t", LONG, "-q", "7", "-i", "0"]) == exits.FAILED
    assert cli.run(["admin", "queryCq", "-n", running.namesrv, "-t", "Missing", "-q", "0", "-i", "0"]) == exits.FAILED
    assert cli.run(["admin", "queryCq", *where, "-i", "0", "-c", "1001"]) == exits.USAGE


def test_how_long_sends_take(running: Running, capsys: Printed) -> None:
    where = ["-n", running.namesrv]
    checked = printed_json(capsys, "admin", "checkMsgSendRT", *where, "-t", "Probed", "-a", "3", "-s", "16")
    assert [row["result"] for row in checked["rows"]] == ["SEND_OK"] * 3
    assert min(checked["avg_rt_ms"], *(row["rt_ms"] for row in checked["rows"])) > 0
    status = printed_json(capsys, "admin", "sendMsgStatus", *where, "-b", "broker-a", "-c", "2")
    assert [row["broker"] for row in status["rows"]] == ["broker-a"] * 2
    assert cli.run(["admin", "sendMsgStatus", *where, "-b", "broker-z"]) == exits.USAGE
    printed_json(capsys, "admin", "updateTopicPerm", *where, "-t", "Probed", "-c", "DefaultCluster", "-p", "4")
    assert cli.run(["admin", "checkMsgSendRT", *where, "-t", "Probed", "-a", "1", "--timeout", "0.5"]) == exits.UNREACHABLE


def test_every_broker_is_probed_again_and_again(running: Running, capsys: Printed) -> None:
    where = ["-n", running.namesrv, "--rounds", "2", "-i", "0.1"]
    assert cli.run(["admin", "clusterRT", *where, "-a", "2", "-o", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["broker"], row["succeeded"], row["failed"]) for row in rows] == [("broker-a", 2, 0)] * 2
    assert cli.run(["admin", "clusterRT", *where, "-c", "Nowhere"]) == exits.USAGE


def test_groups_are_watched_until_somebody_interrupts(running: Running, capsys: Printed) -> None:
    sent(capsys, running, "Watched", "a", "b")
    assert cli.run(["consume", "Watched", "-n", running.namesrv, "-g", "watched", "-c", "2", "-o", "body"]) == 0
    sent(capsys, running, "Watched", "waits")
    command = [sys.executable, "-m", "rmq.cli", "admin", "startMonitoring", "-n", running.namesrv, "-i", "0.1", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        rows = [json.loads(process.stdout.readline()) for _ in range(20)]
        process.send_signal(signal.SIGINT)
    assert process.returncode == exits.INTERRUPTED
    found = [row for row in rows if (row["group"], row["topic"]) == ("watched", "Watched")]
    assert len(found) > 1
    assert {(row["waiting"], row["most"], row["members"], row["dead_letters"]) for row in found} == {(1, 1, 0, 0)}


@pytest.mark.parametrize("command", ["startMonitoring", "clusterRT"])
def test_nobody_there(command: str) -> None:
    assert cli.run(["admin", command, "-n", "127.0.0.1:1", "--timeout", "0.2"]) == exits.UNREACHABLE
