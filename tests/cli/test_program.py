"""The program as a user meets it without any node: help, usage, exit codes, never a traceback for a user's mistake."""

import errno
import json
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rmq import cli
from rmq.codes import ResponseCode
from rmq.commands.node import explaining_bind_errors
from rmq.commands.shared import exits
from rmq.errors import BadBytes, Closed, InvalidArgument, Refusal, StoreError, Unknown, Unreachable
from tests.cli.test_node import Running
from tests.faults.node import NodeProcess


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refusal(ResponseCode.TOPIC_NOT_EXIST, "no"), 1),
        (StoreError("locked"), 1),
        (Closed("closed"), 1),
        (FileNotFoundError(2, "No such file", "x"), 1),
        (MemoryError(), 1),
        (RuntimeError("can't start new thread"), 1),
        (InvalidArgument("bad"), 2),
        (click.UsageError("bad"), 2),
        (Unreachable("nobody"), 3),
        (Unknown("no answer"), 4),
        (BadBytes("damaged"), 5),
        (KeyboardInterrupt(), 130),
        (AssertionError("bug"), 70),
        (KeyError("bug"), 70),
        (ExceptionGroup("tasks", [Unreachable("nobody"), Unreachable("nobody")]), 3),
    ],
)
def test_every_kind_of_failure_has_its_exit_code(error: BaseException, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/commands.md has the same table."""
    assert exits.explain(error) == code
    assert ("Traceback" in capsys.readouterr().err or "bug" in str(error)) == (code == 70)


def test_an_unknown_outcome_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """C19: after a timeout nobody may believe that nothing happened."""
    exits.explain(Unknown("no answer in 3 s"))
    assert "look before doing it again" in capsys.readouterr().err


def test_the_documented_table_of_exit_codes_is_the_real_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    names = ("OK", "FAILED", "USAGE", "UNREACHABLE", "UNKNOWN", "DAMAGED", "BUG", "INTERRUPTED", "PIPE_CLOSED")
    for name in names:
        assert f"| {getattr(exits, name)} |" in text, name


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    text = capsys.readouterr().out
    for command in ("node", "config", "admin", "send", "consume", "health", "bench", "report", "completion"):
        assert f"  {command} " in text


def test_numpy_starts_no_threads_of_its_own() -> None:
    """They would spin for 0.1 s of CPU at each start of a node."""
    program = """if True:
        import contextlib, os, sys
        from rmq import cli
        sys.argv = ["rmq", "--version"]
        with contextlib.suppress(SystemExit):
            cli.main()
        import numpy
        print(len(os.listdir("/proc/self/task")))
    """
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.split()[-1] == "1"


def test_help_is_quick_because_it_imports_no_command() -> None:
    code = "import sys; from rmq import cli; cli.run(['--help']); print(sorted(m for m in sys.modules if m.startswith('rmq.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ["rmq.cli", "rmq.codes", "rmq.commands", "rmq.commands.shared", "rmq.commands.shared.exits", "rmq.errors"]
    assert done.stdout.splitlines()[-1] == str(loaded)


@pytest.mark.parametrize(
    "command",
    [
        ["node"],
        ["config", "check"],
        ["admin"],
        ["admin", "clusterList"],
        ["admin", "consumerProgress"],
        ["send"],
        ["consume"],
        ["health"],
        ["bench"],
        ["bench", "produce"],
        ["bench", "consume"],
        ["bench", "e2e"],
        ["completion"],
    ],
)
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*command, "--help"]) == 0
    assert "Usage: rmq" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["admin", "clusterLits"], "No such command"),
        (["node", "--role", "king"], "'king' is not one of"),
        (["node", "--listen", "0.0.0.0"], "set advertised_host"),
        (["node", "--set", "listen_port"], "NAME=VALUE"),
        (["node", "--set", "flush=never"], "--set flush: flush: 'never' is not allowed"),
        (["node", "--config", "/none.toml"], "cannot be read"),
        (["send"], "Missing argument 'TOPIC'"),
        (["send", "T", "x", "-p", "novalue"], "NAME=VALUE"),
        (["send", "T", "x", "-n", "localhost"], "host:port"),
        (["consume", "T", "--from", "yesterday"], "is no time"),
        (["consume", "T", "--from", "9" * 20], "is no time"),
        (["consume", "T", "--from", "0001-01-01"], "is no time"),
        (["admin", "updateTopic", "-t", "T"], "either -c CLUSTER or -b BROKER"),
        (["admin", "updateTopic", "-t", "T", "-c", "x", "-b", "y"], "either -c CLUSTER or -b BROKER"),
        (["admin", "updateTopic", "-t", "T", "-c", "x", "-p", "7"], "'7' is not one of"),
        (["admin", "updateTopic", "-t", "T", "-c", "x", "-a", "message.type=NORMAL"], "+KEY=VALUE"),
        (["admin", "updateSubGroup", "-g", "g"], "either -c CLUSTER or -b BROKER"),
        (["admin", "deleteSubGroup", "-g", "g"], "either -c CLUSTER or -b BROKER"),
        (["admin", "topicStatus"], "Missing option"),
        (["health", "-a", "localhost"], "host:port"),
    ],
)
def test_a_users_mistake_is_told_in_a_line_with_exit_code_2(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(arguments) == exits.USAGE
    text = capsys.readouterr().err
    assert said in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["admin", "clusterList"],
        ["admin", "TOPICLIST"],
        ["admin", "topic-route", "-t", "T"],
        ["send", "T", "x"],
        ["bench", "produce", "-m", "1"],
    ],
)
def test_nobody_there_is_exit_code_3(arguments: list[str], nobody: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*arguments, "-n", nobody, *(["--timeout", "1"] if "bench" not in arguments else [])]) == exits.UNREACHABLE
    text = capsys.readouterr().err
    assert nobody in text
    assert "Traceback" not in text


def test_health_of_nobody(nobody: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["health", "-a", nobody, "--timeout", "1", "-o", "json"]) == exits.UNREACHABLE
    row = json.loads(capsys.readouterr().out)[0]
    assert (row["address"], row["ok"]) == (nobody, False)


def test_config_check_prints_values_and_origins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=b1\nkvConfigPath=9\n")
    assert cli.run(["config", "check", str(file), "-o", "json"]) == 0
    printed = capsys.readouterr()
    rows = {row["name"]: row for row in json.loads(printed.out)}
    assert rows["broker_name"] == {"name": "broker_name", "value": "b1", "origin": f"{file}:1", "rocketmq": "brokerName"}
    assert rows["listen_port"]["origin"] == "default"
    assert f"warning: {file}:2: kvConfigPath is not served yet" in printed.err


def test_config_check_says_which_file_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What an administrator set while the node ran wins over its file."""
    file, live = tmp_path / "broker.conf", tmp_path / "config" / "live.conf"
    live.parent.mkdir()
    file.write_text(f"storePathRootDir={tmp_path}\nfileReservedTime=96\n")
    live.write_text("fileReservedTime=48\n")
    assert cli.run(["config", "check", str(file), "-o", "json"]) == 0
    shown = capsys.readouterr()
    rows = {row["name"]: row for row in json.loads(shown.out)}
    assert (rows["reserved_hours"]["value"], rows["reserved_hours"]["origin"]) == (48, f"{live}:1")
    assert f"{live}:1: reserved_hours was set while the node ran, which wins over {file}:2" in shown.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", shell]) == 0
    assert "_RMQ_COMPLETE" in capsys.readouterr().out


def test_a_command_without_its_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "report", ("no_such_module_here:report", ""))
    assert cli.run(["report"]) == exits.FAILED
    assert "pip install 'rmq[spark]'" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["<&- >&-", ">&- 2>&-"])
def test_a_program_whose_streams_came_closed_does_its_work(closed: str) -> None:
    """It ended as a bug where it looked at stdout."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "rmq.cli", "--version"]
    assert subprocess.run(command, check=False, timeout=30).returncode == 0


async def test_a_node_that_came_without_stdin_ends_with_0(tmp_path: Path) -> None:
    """A socket had number 0, and closing that aborted the process when it had stopped (libuv: fd > STDERR_FILENO)."""
    node = NodeProcess(tmp_path / "store")
    node.command = ["sh", "-c", 'exec "$@" <&-', "sh", *node.command]
    await node.start()
    assert await node.stop() == 0


def test_the_port_for_the_other_nodes_is_named_where_it_is_taken(tmp_path: Path) -> None:
    """The clients' port was named, which was free."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        roles = ("broker_role=ASYNC_MASTER", f"peer_port={taken}")
        node = Running(tmp_path / "store", *(word for role in roles for word in ("--set", role)))
        _, err = node.process.communicate(timeout=20)
    assert node.process.returncode == exits.FAILED
    about = f"rmq: the broker cannot listen on 127.0.0.1:{taken} (Address already in use); choose another with haListenPort"
    assert err.splitlines()[-1].startswith(about)


def test_a_file_that_may_not_be_opened_is_no_port() -> None:
    """A store of another user was told as "the broker cannot listen ...; choose another with --listen"."""
    with pytest.raises(PermissionError) as refused, explaining_bind_errors("broker", "127.0.0.1", 1, "--listen"):
        raise PermissionError(errno.EACCES, "Permission denied", "/var/lib/rmq/rmq/run")
    assert refused.value.filename == "/var/lib/rmq/rmq/run"
