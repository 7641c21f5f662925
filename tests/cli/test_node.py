"""A real node in a process of its own, and the other commands against it, as an operator would use them."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq import cli
from rmq.client import Client, ClientSettings
from rmq.commands import node
from rmq.commands.shared import exits

_ENV = {name: value for name, value in os.environ.items() if not name.startswith(("RMQ_", "NAMESRV_"))}
_ONE = b"sent 1 message to Slow"
Printed = pytest.CaptureFixture[str]


class Running:
    """`rmq node` with JSON logs on stderr."""

    def __init__(self, store: Path, *arguments: str) -> None:
        free = ["--listen", "127.0.0.1:0", "--namesrv-port", "0", "--store", str(store), *arguments]
        command = [sys.executable, "-m", "rmq.cli", "node", *free]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=_ENV)
        self.lines: list[dict[str, Any]] = []

    def wait_for(self, message: str) -> dict[str, Any]:
        """The log line that says so; blocks until it comes."""
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self.lines.append(json.loads(text))
            if self.lines[-1]["message"].startswith(message):
                return self.lines[-1]
        raise AssertionError(f"the node ended with {self.process.wait()} before it said {message!r}: {self.lines}")

    def ready(self) -> "Running":
        self.namesrv = str(self.wait_for("nameserver listens")["address"])
        self.broker = str(self.wait_for("broker listens")["address"])
        self.wait_for("ready")
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=20)
        self.lines += [json.loads(text) for text in rest.splitlines()]
        return self.process.returncode


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("node") / "store").ready()
    yield found
    assert found.stop() == 0


def printed_json(capsys: Printed, *arguments: str) -> Any:
    assert cli.run([*arguments, "-o", "json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def sent(capsys: Printed, running: Running, topic: str, *bodies: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    dressed = ["-t", "TagA", "-k", "k1", "-p", "colour=red"]
    assert cli.run(["send", topic, *bodies, "-n", running.namesrv, *dressed, "-o", "json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_prometheus_may_ask_a_member_of_a_group(tmp_path: Path) -> None:
    """A master that waits for slaves: it leads, and no slave is there."""
    node = Running(tmp_path / "store", "--set", "broker_role=ASYNC_MASTER", "--set", "metrics=prom", "--set", "metrics_port=0")
    try:
        address = node.wait_for("metrics: ")["message"].removeprefix("metrics: ")
        node.wait_for("ready")
        with urllib.request.urlopen(address) as answer:
            text = answer.read().decode()
        assert 'rmq_group_log_end_offset{cluster="DefaultCluster",node="n0",node_id="broker-a",node_type="broker"}' in text
    finally:
        assert node.stop() == 0


def test_a_message_for_later(running: Running, capsys: Printed) -> None:
    for delay in (["--delay", "0.5"], ["--delay-level", "1"]):
        assert cli.run(["send", "Later", "reminder", "-n", running.namesrv, *delay]) == 0
    assert cli.run(["send", "Later", "a", "b", "-n", running.namesrv, "--delay", "1", "--batch", "2"]) == 2
    assert cli.run(["consume", "Later", "-n", running.namesrv, "-g", "readers", "-c", "2", "-o", "json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    messages = [json.loads(line) for line in printed if line.startswith("{")]
    assert sorted(row["properties"].get("DELAY", "timed") for row in messages) == ["1", "timed"]


def test_what_is_sent_is_consumed(running: Running, capsys: Printed) -> None:
    results = sent(capsys, running, "Orders", "one", "two", "three")
    assert {row["status"] for row in results} == {"SEND_OK"}
    assert cli.run(["consume", "Orders", "-n", running.namesrv, "-g", "readers", "-c", "3", "-o", "json"]) == 0
    messages = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["body"] for row in messages} == {"one", "two", "three"}
    assert {row["message_id"] for row in messages} == {row["message_id"] for row in results}
    assert messages[0]["tags"] == "TagA"
    assert messages[0]["keys"] == ["k1"]
    assert messages[0]["properties"]["colour"] == "red"


def test_lines_of_stdin_are_messages(running: Running) -> None:
    command = [sys.executable, "-m", "rmq.cli", "send", "Lines", "-n", running.namesrv, "--batch", "10", "-q"]
    text = "".join(f"line {number}\n" for number in range(25)) + "\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=_ENV, check=True)
    assert (done.stdout, done.stderr) == ("", "sent 25 messages to Lines\n")


def test_a_slow_writer_holds_nothing_up_and_ctrl_c_ends_at_once(running: Running) -> None:
    """Each line goes when it is there; one Ctrl-C is enough while the next one does not come."""
    command = [sys.executable, "-m", "rmq.cli", "send", "Slow", "-n", running.namesrv, "--batch", "10"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_ENV) as sending:
        assert sending.stdin is not None
        assert sending.stdout is not None
        sending.stdin.write(b"one\r\n\nunfinished")
        sending.stdin.flush()
        assert b"SEND_OK" in sending.stdout.readline()
        sending.send_signal(signal.SIGINT)
        assert (sending.wait(20), sending.stderr and sending.stderr.read().strip()) == (exits.INTERRUPTED, _ONE)


@pytest.mark.parametrize(
    ("how", "before", "code"),
    [(["--batch", "10"], b"", exits.USAGE), (["--whole"], b"", exits.USAGE), ([], b"one\n", exits.UNKNOWN)],
)
def test_what_never_ends_is_too_long_for_a_message(running: Running, how: list[str], before: bytes, code: int) -> None:
    """As `rmq send T < /dev/zero`: it was read for ever, each time from the beginning, until the memory was full. Behind others
    that were sent it does not say (USAGE) that nothing was tried."""
    command = [sys.executable, "-m", "rmq.cli", "send", "Endless", "-n", running.namesrv, *how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=_ENV) as sending:
        assert sending.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            sending.stdin.write(before)
            while sending.poll() is None:
                sending.stdin.write(bytes(65_536))
        assert sending.wait(20) == code
        assert b"at most 4194304 are allowed" in ((sending.stderr and sending.stderr.read()) or b"")
        with contextlib.suppress(BrokenPipeError):
            sending.stdin.close()


def test_all_of_stdin_can_be_one_message(running: Running, capsys: Printed) -> None:
    command = [sys.executable, "-m", "rmq.cli", "send", "Whole", "-n", running.namesrv, "--whole"]
    subprocess.run(command, input=b"a\n\nb\n", capture_output=True, env=_ENV, check=True)
    assert cli.run(["consume", "Whole", "-n", running.namesrv, "-g", "whole", "-c", "1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["body"] == "a\n\nb\n"


def test_a_terminal_in_latin_1_shows_what_it_can(running: Running, capsys: Printed) -> None:
    """A body in other letters ended the command as a bug; the same message was first again at the next start."""
    sent(capsys, running, "Letters", "h\u00e9llo \u043c\u0438\u0440 \U0001f680")
    said = {}
    for form in ("text", "json"):
        command = [
            sys.executable,
            "-m",
            "rmq.cli",
            "consume",
            "Letters",
            "-n",
            running.namesrv,
            "-g",
            form,
            "-c",
            "1",
            "-o",
            form,
        ]
        env = _ENV | {"PYTHONIOENCODING": "latin-1"}
        said[form] = subprocess.run(command, stdout=subprocess.PIPE, env=env, check=True).stdout.decode("latin-1")
    assert said["text"].endswith("h\u00e9llo \\u043c\\u0438\\u0440 \\ud83d\\ude80\n")
    assert json.loads(said["json"])["body"] == "h\u00e9llo \u043c\u0438\u0440 \U0001f680"


def test_in_order_means_in_order(running: Running, capsys: Printed) -> None:
    sent(capsys, running, "Row", *(str(number) for number in range(5)), "--order-by", "k")
    assert cli.run(["consume", "Row", "-n", running.namesrv, "-g", "row", "-c", "5", "-o", "body", "--ordered"]) == 0
    assert capsys.readouterr().out.split() == [str(number) for number in range(5)]


def test_what_a_group_printed_it_does_not_see_again(running: Running, capsys: Printed) -> None:
    sent(capsys, running, "Once", "a", "b")
    arguments = ["consume", "Once", "-n", running.namesrv, "-g", "once", "-o", "body"]
    assert cli.run([*arguments, "-c", "2"]) == 0
    assert sorted(capsys.readouterr().out.split()) == ["a", "b"]
    sent(capsys, running, "Once", "c")
    assert cli.run([*arguments, "-c", "1"]) == 0
    assert capsys.readouterr().out == "c\n"


def test_sighup_is_told_and_ends_nothing(running: Running, capsys: Printed) -> None:
    running.process.send_signal(signal.SIGHUP)
    assert "the node goes on" in running.wait_for("SIGHUP")["message"]
    assert len(sent(capsys, running, "Hup", "still here")) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_consume_ends_in_order_when_asked_to(running: Running, capsys: Printed, number: signal.Signals) -> None:
    topic = f"Ended{number.name}"
    sent(capsys, running, topic, "x")
    command = [sys.executable, "-u", "-m", "rmq.cli", "consume", topic, "-n", running.namesrv, "-g", topic, "-o", "body"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_ENV) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "x\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    progress = printed_json(capsys, "admin", "consumerProgress", "-n", running.namesrv, "-g", topic, "-t", topic)
    assert progress["consume_diff_total"] == 0


def test_admin_commands(running: Running, capsys: Printed) -> None:
    where = ["-n", running.namesrv]
    made = printed_json(capsys, "admin", "updateTopic", *where, "-t", "Made", "-c", "DefaultCluster", "-r", "3", "-w", "3")
    assert made["addresses"] == [running.broker]
    sent(capsys, running, "Made", "x")
    assert printed_json(capsys, "admin", "topicRoute", *where, "-t", "Made")["rows"][0]["write_queues"] == 3
    status = printed_json(capsys, "admin", "topicstatus", *where, "-t", "Made")
    assert (len(status["rows"]), sum(row["max_offset"] for row in status["rows"])) == (3, 1)
    cluster = printed_json(capsys, "admin", "cluster-list", *where)
    assert (cluster[0]["cluster"], cluster[0]["address"], cluster[0]["activated"]) == ("DefaultCluster", running.broker, True)
    assert {"topic": "Made"} in printed_json(capsys, "admin", "topicList", *where, "--user")
    facts = printed_json(capsys, "admin", "brokerStatus", *where, "-b", "broker-a")[running.broker]
    assert facts["brokerActive"] == "true"
    assert int(facts["pid"]) == running.process.pid
    printed_json(capsys, "admin", "clusterList", *where, "-m")
    for command, place in (("deleteExpiredCommitLog", ["-b", "broker-a"]), ("cleanexpiredcq", ["-c", "DefaultCluster"])):
        assert printed_json(capsys, "admin", command, *where, *place)["addresses"] == [running.broker]


def test_groups_are_made_changed_and_shown(running: Running, capsys: Printed) -> None:
    where = ["-n", running.namesrv, "-g", "settings"]
    printed_json(capsys, "admin", "updateSubGroup", *where, "-c", "DefaultCluster", "-r", "3")
    printed_json(capsys, "admin", "updateSubGroup", *where, "-b", "broker-a", "-q", "2", "-s", "false")
    (row,) = printed_json(capsys, "admin", "getConsumerConfig", *where)
    assert [row[name] for name in ("address", "consume_enable", "retry_queue_nums", "retry_max_times")] == [
        running.broker,
        False,
        2,
        3,
    ]
    changes = ["-s", "true", "-d", "false", "--attributes", "+priority.factor=80"]
    printed_json(capsys, "admin", "updateSubGroup", *where, "-b", "broker-a", *changes)
    (row,) = printed_json(capsys, "admin", "getConsumerConfig", *where)
    assert (row["consume_broadcast_enable"], row["attributes"]) == (False, "priority.factor=80")
    for wish, readable in ((["-r", "false"], False), ([], False), (["-r", "true"], True)):
        (row,) = printed_json(capsys, "admin", "groupForbidden", *where, "-t", "BenchmarkTest", "-b", "broker-a", *wish)
        assert row == {"address": running.broker, "readable": readable}
    told = printed_json(capsys, "admin", "setConsumeMode", *where, "-t", "BenchmarkTest", "-m", "POP", "-c", "DefaultCluster")
    assert told["addresses"] == [running.broker]
    assert cli.run(["admin", "getConsumerConfig", "-n", running.namesrv, "-g", "nobody"]) == exits.USAGE
    assert "updateSubGroup" in capsys.readouterr().err


async def one_dead_letter(namesrv: str, topic: str, group: str) -> bytes:
    """The body of the message where the group goes on, which it gives up."""
    async with Client(namesrv) as client, client.consumer(group, [topic], start="first") as consumer:
        (message,) = await consumer.receive(max=1)
        await consumer.retry_later(message, -1)
        return message.body


def test_a_deleted_group_is_gone(running: Running, capsys: Printed) -> None:
    """At one broker it goes alone; in its cluster with its retry topic and dead letters, as mqadmin does it. Offsets stay unless
    they are to go."""
    where = ["-n", running.namesrv, "-g", "leaver"]
    printed_json(
        capsys, "admin", "updateTopic", "-n", running.namesrv, "-t", "Left", "-c", "DefaultCluster", "-w", "1", "-r", "1"
    )
    sent(capsys, running, "Left", "1", "2", "3")
    cases = (
        (["-b", "broker-a"], b"1", {"%DLQ%leaver", "%RETRY%leaver"}),
        (["-c", "DefaultCluster", "-r", "true"], b"2", set[str]()),
        (["-c", "DefaultCluster"], b"1", set[str]()),
    )
    for place, goes_on_with, left in cases:
        assert asyncio.run(one_dead_letter(running.namesrv, "Left", "leaver")) == goes_on_with
        assert printed_json(capsys, "admin", "deleteSubGroup", *where, *place)["addresses"] == [running.broker]
        topics = {row["topic"] for row in printed_json(capsys, "admin", "topicList", "-n", running.namesrv)}
        assert {topic for topic in topics if "leaver" in topic} == left
        assert cli.run(["admin", "getConsumerConfig", *where]) == exits.USAGE


def test_a_deleted_topic_is_gone(running: Running, capsys: Printed) -> None:
    where = ["-n", running.namesrv, "-t", "Gone"]
    sent(capsys, running, "Gone", "x")
    printed_json(capsys, "admin", "deleteTopic", *where, "-c", "DefaultCluster")
    assert cli.run(["admin", "topicRoute", *where]) == exits.FAILED
    assert "TOPIC_NOT_EXIST (17)" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "letter"), [("Topic", "-t"), ("SubGroup", "-g")])
def test_what_is_deleted_again_was_not_there(running: Running, capsys: Printed, kind: str, letter: str) -> None:
    """That is no failure, as with mqadmin; who mistyped the name sees it."""
    words = ["-n", running.namesrv, letter, "shortlived", "-c", "DefaultCluster"]
    assert cli.run(["admin", f"update{kind}", *words]) == 0
    capsys.readouterr()
    assert cli.run(["admin", f"delete{kind}", *words]) == 0
    assert "not there" not in capsys.readouterr().out
    assert cli.run(["admin", f"delete{kind}", *words]) == 0
    assert "success (it was not there)" in capsys.readouterr().out
    assert printed_json(capsys, "admin", f"delete{kind}", *words)["absent"] == [running.broker]


def test_progress_of_all_groups(running: Running, capsys: Printed) -> None:
    sent(capsys, running, "Lag", "a", "b")
    assert cli.run(["consume", "Lag", "-n", running.namesrv, "-g", "laggard", "-c", "2", "-o", "body"]) == 0
    sent(capsys, running, "Lag", "c")
    capsys.readouterr()
    rows = {row["group"]: row for row in printed_json(capsys, "admin", "consumerProgress", "-n", running.namesrv)}
    assert (rows["laggard"]["count"], rows["laggard"]["diff_total"]) == (0, 1)


def test_plain_output_has_mqadmins_headings(running: Running, capsys: Printed) -> None:
    assert cli.run(["admin", "clusterList", "-n", running.namesrv]) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.startswith("#Cluster Name   #Broker Name  #BID  #Addr")
    assert row.startswith("DefaultCluster  broker-a      0     127.0.0.1:")


def test_refusals_and_wrong_names(running: Running, capsys: Printed) -> None:
    where = ["-n", running.namesrv]
    assert cli.run(["admin", "topicRoute", *where, "-t", "Nowhere"]) == exits.FAILED
    assert cli.run(["admin", "consumerProgress", *where, "-g", "nobody"]) == exits.FAILED
    assert cli.run(["admin", "updateTopic", *where, "-t", "T", "-c", "NoSuchCluster"]) == exits.USAGE
    assert "no broker of a cluster 'NoSuchCluster'; registered: DefaultCluster/broker-a" in capsys.readouterr().err
    assert cli.run(["admin", "brokerStatus", *where, "-b", "nobody"]) == exits.USAGE
    assert "no broker 'nobody'; registered: DefaultCluster/broker-a" in capsys.readouterr().err
    assert cli.run(["send", "bad name", "x", *where]) == exits.USAGE
    assert cli.run(["send", "Orders", "", *where]) == exits.USAGE
    assert "Traceback" not in capsys.readouterr().err


def test_a_group_that_was_made_has_a_place_before_it_consumes(running: Running, capsys: Printed) -> None:
    """It has no retry topic yet."""
    where, group = ["-n", running.namesrv], "beginner"
    sent(capsys, running, "Before", "old")
    assert cli.run(["admin", "updateSubGroup", *where, "-g", group, "-c", "DefaultCluster"]) == 0
    capsys.readouterr()
    for question in ("consumerConnection", "consumerStatus"):
        assert cli.run(["admin", question, *where, "-g", group]) == exits.FAILED
        assert "CONSUMER_NOT_ONLINE" in capsys.readouterr().err
    assert cli.run(["admin", "resetOffset", *where, "-g", group, "-t", "Before", "--to", "last"]) == 0
    sent(capsys, running, "Before", "new")
    assert cli.run(["consume", "Before", *where, "-g", group, "--count", "1", "-o", "body", "--from", "first"]) == 0
    assert capsys.readouterr().out == "new\n"


def test_a_broadcast_has_no_lag_that_anybody_knows(running: Running, capsys: Printed, tmp_path: Path) -> None:
    """It showed the whole topic."""
    sent(capsys, running, "Told", "a", "b", "c")

    async def look() -> tuple[Any, Any]:
        settings = ClientSettings(offsets_directory=tmp_path)
        async with (
            Client(running.namesrv, settings=settings) as client,
            client.consumer("listeners", "Told", mode="broadcast", start="first") as consumer,
        ):
            await anext(consumer)
            asked = ("admin", "consumerProgress", "-n", running.namesrv)
            one = await asyncio.to_thread(printed_json, capsys, *asked, "-g", "listeners")
            return one, await asyncio.to_thread(printed_json, capsys, *asked)

    one, every = asyncio.run(look())
    assert (one["rows"] if isinstance(one, dict) else one) == []
    [row] = [row for row in every if row["group"] == "listeners"]
    assert (row["model"], row["diff_total"]) == ("BROADCASTING", None)


def test_a_group_is_set_to_another_place(running: Running, capsys: Printed) -> None:
    """A preview changes nothing; what it shows is what is done; what cannot be is told."""
    group, topic = "g" * 120, "Places" + "t" * 121
    where = ["-n", running.namesrv]
    sent(capsys, running, topic, *"abcdef")
    assert cli.run(["consume", topic, *where, "-g", group, "--count", "6"]) == 0
    capsys.readouterr()
    asked = ["admin", "resetOffset", *where, "-g", group, "-t", topic]
    preview = printed_json(capsys, *asked, "--to", "first", "--dry-run")
    assert sum(row["again"] for row in preview) == 6
    assert all(row["now"] == row["end"] for row in preview)
    assert printed_json(capsys, *asked, "--to", "first") == preview
    assert all(row["now"] == row["to"] == 0 for row in printed_json(capsys, *asked, "--to", "1", "--dry-run"))
    assert sum(row["skipped"] for row in printed_json(capsys, *asked, "--to", "last", "--dry-run")) == 6
    assert cli.run(["consume", topic, *where, "-g", group, "--count", "6", "--idle", "5", "-o", "body"]) == 0
    assert sorted(capsys.readouterr().out.split()) == [*"abcdef"]
    for wrong, code in (
        (["--offset", "99"], exits.USAGE),
        (["--to", "first", "--offset", "1"], exits.USAGE),
        ([], exits.USAGE),
        (["--to", "first", "-q", "1"], exits.USAGE),
        (["--to", "soon"], exits.USAGE),
    ):
        assert cli.run([*asked, *wrong]) == code
    assert cli.run(["admin", "resetOffset", *where, "-g", "nobody", "-t", topic, "--to", "first"]) == exits.FAILED
    assert cli.run(["admin", "resetOffset", *where, "-g", group, "-t", "Nowhere", "--to", "first"]) == exits.FAILED
    assert "Traceback" not in capsys.readouterr().err


def test_health(running: Running, capsys: Printed) -> None:
    rows = printed_json(capsys, "health", "-n", running.namesrv)
    assert [(row["role"], row["address"], row["ok"]) for row in rows] == [
        ("nameserver", running.namesrv, True),
        ("broker", running.broker, True),
    ]
    assert [row["ok"] for row in printed_json(capsys, "health", "-a", running.broker, "-a", running.namesrv)] == [True, True]


def test_bench(running: Running, capsys: Printed) -> None:
    where = ["-n", running.namesrv, "--json"]
    assert cli.run(["bench", "produce", *where, "-m", "250", "--batch", "20"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["settings"]["messages"], found["settings"]["batch"]) == (250, 20)
    assert found["figures"]["p50_ms"] <= found["figures"]["p99.9_ms"] <= found["figures"]["max_ms"] + 0.001
    assert found["figures"]["broker_cpu_us_per_message"] is not None
    assert cli.run(["bench", "consume", *where, "-m", "250"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["messages_per_second"] > 0
    assert cli.run(["bench", "e2e", *where, "--rate", "100", "--seconds", "0.2"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["messages"] == 20
    assert cli.run(["bench", "consume", "-n", running.namesrv, "-m", "100000", "--idle", "0.2"]) == exits.FAILED


@pytest.mark.parametrize("words", ["admin brokerStatus -b broker-a -n", "--help", "--version", "admin --help"])
def test_a_reader_that_goes_ends_the_command_quietly(running: Running, words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "rmq.cli", *words.split(), *([running.namesrv] if words.endswith("-n") else [])]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=_ENV)
    os.close(writing)
    assert (done.returncode, done.stderr) == (exits.PIPE_CLOSED, "")


def test_a_stopped_node_comes_back_with_everything(tmp_path: Path, capsys: Printed) -> None:
    """SIGTERM and Ctrl-C end with 0; messages and the group's offsets are there after the next start."""
    first = Running(tmp_path / "store").ready()
    sent(capsys, first, "Kept", "a", "b", "c")
    assert cli.run(["consume", "Kept", "-n", first.namesrv, "-g", "kept", "-c", "3", "-o", "body"]) == 0
    assert first.stop() == 0
    assert [line["message"] for line in first.lines if line["logger"] == "rmq.node"][-1] == "stopped"
    second = Running(tmp_path / "store").ready()
    capsys.readouterr()
    progress = printed_json(capsys, "admin", "consumerProgress", "-n", second.namesrv, "-g", "kept", "-t", "Kept")
    assert (sum(row["consumer_offset"] for row in progress["rows"]), progress["consume_diff_total"]) == (3, 0)
    assert second.stop(signal.SIGINT) == 0


def test_one_process_per_store_directory(running: Running, tmp_path: Path) -> None:
    """D16."""
    first = Running(tmp_path / "store").ready()
    second = Running(tmp_path / "store")
    _, err = second.process.communicate(timeout=20)
    assert second.process.returncode == exits.FAILED
    assert err.splitlines()[-1].startswith("rmq: ")
    assert "Traceback" not in err
    assert first.stop() == 0


def test_a_port_that_is_taken(running: Running, tmp_path: Path) -> None:
    third = Running(tmp_path / "store", "--listen", running.broker)
    _, err = third.process.communicate(timeout=20)
    assert third.process.returncode == exits.FAILED
    assert err.splitlines()[-1].startswith(f"rmq: the broker cannot listen on {running.broker} (Address already in use); choose")
    assert "Traceback" not in err


def test_a_host_that_does_not_exist(tmp_path: Path) -> None:
    lost = Running(tmp_path / "store", "--role", "broker", "--listen", "no.such.host.invalid:0", "--insecure")
    _, err = lost.process.communicate(timeout=20)
    assert lost.process.returncode == exits.FAILED
    assert "the advertised host no.such.host.invalid has no address now" in err
    assert "name service" in err
    assert "Traceback" not in err


async def test_a_second_signal_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: asyncio.Queue[int] = asyncio.Queue()
    monkeypatch.setattr(os, "_exit", ended.put_nowait)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    node.on_signals(loop, stop)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        assert ended.empty()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await asyncio.wait_for(ended.get(), 10) == 143
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)
