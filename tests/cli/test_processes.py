"""`rmq node --processes N`: several brokers from one command, in processes of their own."""

import os
import re
import signal
import socket
from pathlib import Path

import pytest

from rmq import cli
from rmq.config.processes import Part, parts_of
from rmq.config.settings import NodeSettings
from rmq.errors import InvalidArgument
from tests.cli.test_node import Printed, Running, printed_json

BROKERS = ("broker-a-0", "broker-a-1")


def pids(running: Running) -> dict[str, int]:
    """The newest process of each name."""
    said = [line["message"].split() for line in running.lines if line["message"].startswith("process ")]
    return {words[1]: int(words[-1]) for words in said if words[-1].isdecimal()}


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_each_is_a_broker_of_its_own(tmp_path: Path, capsys: Printed) -> None:
    """One that is killed comes again with its messages, while the other goes on; a stop stops all, and the nameserver last."""
    node = Running(tmp_path / "store", "--processes", "2")
    try:
        namesrv = str(node.wait_for("nameserver listens")["address"])
        stores = {line["of"]: Path(line["store"]) for line in [node.wait_for("broker listens") for _ in BROKERS]}
        assert stores == {name: tmp_path / "store" / name for name in BROKERS}
        registered: set[str] = set()
        while registered != set(BROKERS):  # one that was quicker than the nameserver registers a moment later
            registered = {row["broker"] for row in printed_json(capsys, "admin", "clusterList", "-n", namesrv)}
        make = ("admin", "updateTopic", "-n", namesrv, "-c", "DefaultCluster", "-t", "Kept", "-r", "4", "-w", "4")
        assert cli.run(make) == cli.run(["send", "Kept", *map(str, range(16)), "-n", namesrv]) == 0
        before = pids(node)
        os.kill(before["broker-a-1"], signal.SIGKILL)
        assert "was killed (SIGKILL); it is started again" in node.wait_for("process broker-a-1 was")["message"]
        assert node.wait_for("broker listens")["of"] == "broker-a-1"
        assert {name for name, pid in pids(node).items() if pid != before[name]} == {"broker-a-1"}
        capsys.readouterr()
        assert cli.run(["consume", "Kept", "-n", namesrv, "-g", "readers", "-c", "16", "-o", "body"]) == 0
        assert sorted(map(int, capsys.readouterr().out.split())) == [*range(16)]
    finally:
        assert node.stop() == 0
    stopped = [line.get("of", "") for line in node.lines if line["message"] == "stopped"]
    assert (sorted(stopped[:2]), stopped[2:]) == ([*BROKERS], ["nameserver", ""])
    assert all(map(is_gone, pids(node).values()))


def test_nobody_outlives_the_first_process(tmp_path: Path) -> None:
    node = Running(tmp_path / "store", "--role", "broker", "--processes", "2")
    for _ in BROKERS:
        node.wait_for("ready")
    node.process.kill()
    for _ in BROKERS:
        node.wait_for("stopped")
    node.process.communicate()
    assert node.process.returncode == -signal.SIGKILL


def test_one_that_cannot_start_ends_all(tmp_path: Path) -> None:
    """systemd hears of it; the process itself says why."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = Running(tmp_path / "store", "--role", "broker", "--processes", "2", "--listen", f"127.0.0.1:{port}")
        _, said = node.process.communicate()
    assert node.process.returncode == 1
    assert re.search(r"cannot listen on 127\.0\.0\.1:\d+ \(Address already in use\)", said), (
        "another test may have the port of the second"
    )
    assert re.search("process broker-a-[01] ended with exit code 1: all others are stopped", said)


def told(part: Part) -> dict[str, object]:
    return {entry.key: entry.raw for entry in part.entries}


def test_names_and_ports_of_each(tmp_path: Path) -> None:
    """Machines that run the same number of processes form as many groups."""
    settings = NodeSettings(
        store_dir=tmp_path, role="broker", elected=True, node_id="n0", peers=("n0-10.0.0.1:40911", "n1-h:40911")
    )
    _, second = parts_of(settings, 2, 0)
    own = told(second)
    assert own["broker_name"] == "broker-a-1"
    assert (own["listen_port"], own["metrics_port"], own["peers"]) == (10921, 5558, "n0-10.0.0.1:40921;n1-h:40921")
    nameserver, first, _ = parts_of(NodeSettings(store_dir=tmp_path), 2, 9876)
    assert told(nameserver) == {"role": "nameserver", "listen_port": 9876, "metrics_port": 5559}
    assert told(first)["namesrv_addresses"] == "127.0.0.1:9876"


def test_no_store_is_left_out(tmp_path: Path) -> None:
    """With another number of processes messages would seem to be gone."""
    settings = NodeSettings(store_dir=tmp_path)
    (tmp_path / "broker-a-1" / "commitlog").mkdir(parents=True)
    parts_of(settings, 2, 9876)
    parts_of(settings, 3, 9876)
    (tmp_path / "broker-a-2" / "commitlog").mkdir(parents=True)
    with pytest.raises(InvalidArgument, match="--processes 3"):
        parts_of(settings, 2, 9876)
    assert cli.run(["node", "--store", str(tmp_path)]) == 2
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(InvalidArgument, match="the store of one process"):
        parts_of(settings, 3, 9876)


def test_a_nameserver_is_one_process() -> None:
    with pytest.raises(InvalidArgument, match="a nameserver is one process"):
        parts_of(NodeSettings(role="nameserver"), 2, 9876)
