"""What operators use now and then: exports, probes, single queues, a watch over groups; and where the rest of mqadmin is."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq import cli
from rmq.client import Client
from rmq.commands.admin import exporting
from rmq.commands.admin.admin import admin
from rmq.commands.admin.elsewhere import INSTEAD
from rmq.commands.shared import exits
from rmq.net.commands import Goodbye, Send
from rmq.net.transport.server import LATER, Call, Later
from rmq.testing import LocalBroker, until
from tests.cli.test_node import Printed, Running, printed_json, sent
from tests.client.scripted import Broker
from tests.interop.mqadmin import RECORDED
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


NOT_TAKEN = {
    ("clusterRT", "m"),  # with -p
    ("clusterRT", "p"),  # another form of its lines: -o json prints some for a log
    ("queryMsgById", "s"),  # sends it again, to all groups: the dashboard gives it to one
    ("queryMsgById", "u"),  # with -s
    ("queryMsgByKey", "l"),  # of RocketMQ's index in RocksDB
    ("queryMsgByOffset", "r"),  # the topic's route tells it
}
"""Of mqadmin's options, and why."""


def test_options_are_mqadmins() -> None:
    """Letters, and whether something follows. -o is the form of the output, so mqadmin's has a long name."""
    recorded = dict(zip(STEPS, json.loads(RECORDED.read_text()), strict=True))
    (lines,) = [rows for step, rows in recorded.items() if step.command == "options"]
    missing, taken = set(), 0
    for name, letter, *words, takes in (line.split() for line in lines):
        if name not in admin.commands:
            continue
        ours = {text: option for option in admin.commands[name].params for text in option.opts}
        long = "-".join(words)
        text = {"null": f"--{long}", "o": {"consumeMessageOrderly": "--order"}.get(long, f"--{long}")}.get(letter, f"-{letter}")
        if text not in ours:
            missing.add((name, letter))
            continue
        taken += 1
        is_flag = getattr(ours[text], "is_flag", False)
        assert is_flag == (takes == "false") or text.startswith("--"), f"{name} {text}"
    assert (missing, taken) == (NOT_TAKEN, 246)


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


def test_an_export_is_printed_as_other_json_is(running: Running, capsys: Printed) -> None:
    """Sums beyond 64 bits were a bug of the command (70), and what a client says could steer the terminal."""

    for value in ({"sum": 2**64, "clientInfo": ["\x9b2J%V5_5_0"]}, {"sum": 1, "clientInfo": ["\x9b2J%V5_5_0"]}):

        async def work(_client: Client, found: dict[str, Any] = value) -> dict[str, Any]:
            return found

        exporting.export(running.namesrv, 3.0, "-", "metrics.json", work)
        shown = capsys.readouterr().out
        assert "\x9b" not in shown
        assert json.loads(shown) == value
        assert shown.index("clientInfo") < shown.index("sum")


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
    """updateTopicList takes the values of the table; and the whole file, as updateSubGroupList does."""
    where, place = ["-n", running.namesrv], ["-c", "DefaultCluster"]
    kind = ["-a", "+message.type=FIFO"]
    printed_json(capsys, "admin", "updateTopic", *where, "-t", "Again", *place, "-r", "5", "-w", "5", *kind)
    printed_json(capsys, "admin", "updateSubGroup", *where, "-g", "again", *place, "-r", "7")
    assert cli.run(["admin", "exportMetadata", *where, *place, "-t", "-f", "-"]) == 0
    topics = json.loads(capsys.readouterr().out)["topicConfigTable"]
    printed_json(capsys, "admin", "deleteTopic", *where, "-t", "Again", *place)
    file = tmp_path / "topics.json"
    file.write_text(json.dumps([topics["Again"] | {"attributes": {"+message.type": "FIFO"}}]))
    printed_json(capsys, "admin", "updateTopicList", *where, *place, "-f", str(file))
    assert printed_json(capsys, "admin", "topicRoute", *where, "-t", "Again")["total_read_queues"] == 5
    assert cli.run(["admin", "exportMetadata", *where, *place, "-f", str(tmp_path)]) == 0
    capsys.readouterr()
    printed_json(capsys, "admin", "deleteTopic", *where, "-t", "Again", *place)
    printed_json(capsys, "admin", "deleteSubGroup", *where, "-g", "again", *place)
    for command in ("updateTopicList", "updateSubGroupList"):
        printed_json(capsys, "admin", command, *where, *place, "-f", str(tmp_path / "metadata.json"))
    assert cli.run(["admin", "exportMetadata", *where, *place, "-t", "-f", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["topicConfigTable"]["Again"] == topics["Again"]
    assert printed_json(capsys, "admin", "getConsumerConfig", *where, "-g", "again")[0]["retry_max_times"] == 7


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
    assert cli.run(["admin", "checkMsgSendRT", *where, "-t", "Probed", "-a", "1", "--timeout", "0.2"]) == exits.FAILED


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


def test_again_and_again(running: Running) -> None:
    arguments = [sys.executable, "-m", "rmq.cli", "admin", "clusterList", "-n", running.namesrv, "-i", "0.1"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        heads = (line for line in process.stdout if line.startswith("#"))
        assert next(heads) == next(heads)
        process.send_signal(signal.SIGINT)
    assert process.returncode == exits.INTERRUPTED


def test_a_unit_of_topics_and_more_settings_of_groups(running: Running, capsys: Printed) -> None:
    where = ["-n", running.namesrv, "-c", "DefaultCluster"]
    printed_json(capsys, "admin", "updateTopic", *where, "-t", "Unit", "-u", "true", "-s", "true")
    group = ["-g", "g" * 120, "-m", "false", "-i", "2", "-w", "3", "-a", "false", "--order", "true"]
    printed_json(capsys, "admin", "updateSubGroup", *where, *group, "--attributes", "+priority.factor=80")
    printed_json(capsys, "admin", "updateSubGroup", *where, "-g", "g" * 120, "-w", "4")  # and leaves the others alone
    assert cli.run(["admin", "exportMetadata", *where, "-f", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["topicConfigTable"]["Unit"]["topicSysFlag"] == 3
    config = found["subscriptionGroupTable"]["g" * 120]
    named = ("consumeFromMinEnable", "brokerId", "whichBrokerWhenConsumeSlowly", "notifyConsumerIdsChangedEnable")
    assert [config[name] for name in named] == [False, 2, 4, False]
    assert (config["consumeMessageOrderly"], config["attributes"]) == (True, {"priority.factor": "80"})
    assert cli.run(["admin", "updateSubGroup", *where, "-g", "g", "-a", "+priority.factor=80"]) == exits.USAGE


def test_a_message_by_its_time_its_tag_and_in_its_character_set(running: Running, capsys: Printed) -> None:
    (first,) = sent(capsys, running, "Texts", "x")
    where = ["-n", running.namesrv, "-t", "Texts"]
    unique = ["admin", "queryMsgByUniqueKey", *where, "-i", first["message_id"], "-a", "-c", "DefaultCluster"]
    assert cli.run([*unique, "-s", "2000-01-01"]) == 0
    assert cli.run([*unique, "-e", "2000-01-01"]) == exits.FAILED
    assert cli.run(["admin", "queryMsgByKey", *where, "-k", "TagA", "-p", "T"]) == 0
    assert cli.run(["admin", "queryMsgByKey", *where, "-k", "TagA"]) == exits.FAILED
    command = [sys.executable, "-m", "rmq.cli", "send", "Texts", "-n", running.namesrv, "--whole", "-k", "gbk", "-q"]
    subprocess.run(command, input="\u4f60\u597d".encode("gbk"), check=True)
    capsys.readouterr()
    (row,) = printed_json(capsys, "admin", "queryMsgByKey", *where, "-k", "gbk")["messages"]
    for command in (
        ["queryMsgById", "-t", "Texts", "-i", row["message_id"]],
        ["queryMsgById", "-t", "Texts", "-i", row["offset_message_id"]],
        ["queryMsgByOffset", "-t", "Texts", "-b", "broker-a", "-i", str(row["queue"]), "--offset", str(row["offset"])],
    ):
        assert cli.run(["admin", *command, "-n", running.namesrv, "-f", "GBK"]) == 0
        assert "\u4f60\u597d" in capsys.readouterr().out
        assert cli.run(["admin", *command, "-n", running.namesrv]) == 0
        assert "(hex)" in capsys.readouterr().out
        for wrong in ("no-such", "base64", "idna"):
            assert cli.run(["admin", *command, "-n", running.namesrv, "-f", wrong]) == exits.USAGE


HALF = "caf\udce9"  # as Python reads an argument that is not UTF-8


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "T", "-g", "g", "--tags", HALF, "--idle", "1"),
        ("consume", "T", "-g", "g", "--sql", f"a = '{HALF}'", "--idle", "1"),
        ("msg", "key", "TBW102", HALF),
        ("admin", "topicRoute", "-t", HALF),
        ("admin", "consumerConnection", "-g", HALF),
        ("admin", "updateTopic", "-t", HALF, "-c", "DefaultCluster"),
        ("admin", "updateKvConfig", "-s", "n", "-k", "k", "-v", HALF),
    ],
)
def test_an_argument_that_is_not_utf8(running: Running, capsys: Printed, arguments: tuple[str, ...]) -> None:
    """From a terminal or a script of another character set: it ended as a bug."""
    assert cli.run([*arguments, "-n", running.namesrv]) == exits.USAGE
    assert "half a character" in capsys.readouterr().err


HUGE = "99999999999999999999"


@pytest.mark.parametrize(
    "arguments",
    [
        ("msg", "at", "TBW102", "broker-a", "0", HUGE),
        ("msg", "at", "TBW102", "broker-a", HUGE, "0"),
        ("admin", "queryCq", "-t", "TBW102", "-q", "0", "-i", HUGE),
        ("admin", "updateTopic", "-t", "T", "-c", "DefaultCluster", "-r", HUGE),
        ("admin", "updateSubGroup", "-g", "g", "-c", "DefaultCluster", "-q", HUGE),
    ],
)
def test_a_number_that_no_node_takes(running: Running, capsys: Printed, arguments: tuple[str, ...]) -> None:
    """It ended as a bug."""
    assert cli.run([*arguments, "-n", running.namesrv]) == exits.USAGE
    assert "a number does not fit in 64 bits" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["promote"], ["haStatus"], ["updateTopic", "-t", "T"], ["getBrokerConfig"]])
def test_a_broker_that_is_no_address(running: Running, capsys: Printed, command: list[str]) -> None:
    """It ended as if nobody had been there (3), which is worth another try."""
    assert cli.run(["admin", *command, "-n", running.namesrv, "-b", "127.0.0.1:99999"]) == exits.USAGE
    assert "write host:port" in capsys.readouterr().err


async def test_who_reads_which_queue(tmp_path: Path) -> None:
    """By client ids, as mqadmin has it; at one broker that is asked, and of one cluster."""
    async with LocalBroker() as broker, broker.client(instance="one") as client:
        await broker.create_topic("T", 2)
        async with client.consumer("g", "T") as consumer:
            await until(lambda: len(consumer.queues) == 3)  # with the retry topic's
            command = [sys.executable, "-m", "rmq.cli", "admin", "-n", broker.nameserver, "-g", "g", "-o", "json"]

            async def asked(name: str, *more: str) -> Any:
                words = [*command[:4], name, *command[4:], *more]
                process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
                return json.loads((await process.communicate())[0])

            shown = await asked("consumerProgress", "-t", "T", "-s", "true", "-c", "DefaultCluster")
            assert {row["client_ip"] for row in shown["rows"] if row["topic"] == "T"} == {client.client_id.partition("@")[0]}
            for name in ("consumerConnection", "consumerStatus"):
                found = await asked(name, "-b", broker.address)
                rows = found["connections"] if name == "consumerConnection" else found
                assert [row["client_id"] for row in rows] == [client.client_id]
        assert {row["client_ip"] for row in (await asked("consumerProgress", "-s", "true"))["rows"]} == {None}


async def test_of_probes_in_vain_the_first_may_be_stored() -> None:
    """C19: the last one reached nobody, and so nothing was done, said the command."""
    broker, sends = await Broker("a", {"T": 1}).start(), list[Send]()

    def swallowed(request: Send, call: Call) -> Later:
        sends.append(request)
        if len(sends) > 1:
            call.connection.push(Goodbye())
            call.connection.close()
        return LATER

    broker.also(Send, swallowed)
    words = ["admin", "checkMsgSendRT", "-n", broker.address, "-t", "T", "-a", "3", "--timeout", "0.3"]
    assert await asyncio.to_thread(cli.run, words) == exits.UNKNOWN
    await broker.stop()


@pytest.mark.parametrize("command", ["startMonitoring", "clusterRT"])
def test_nobody_there(command: str) -> None:
    assert cli.run(["admin", command, "-n", "127.0.0.1:1", "--timeout", "0.2"]) == exits.UNREACHABLE
