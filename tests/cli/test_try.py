"""`rmq try`: the drill of every RocketMQ course, with real processes: find the leader by its port, kill it, see another lead."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from rmq import config
from rmq.commands import exits, tryout

PORTS = (9876, 30911, 30921, 30931, 40911, 40912, 40913)


def test_the_shipped_files_are_what_rocketmqs_courses_start() -> None:
    """Its keys, its ports, three ids; `conf/` in the source shows the same files."""
    shipped = resources.files("rmq") / "conf" / "dledger"
    loaded = [config.load(Path(str(shipped / f"broker-n{number}.conf"))) for number in range(3)]
    assert not any(each.warnings for each in loaded)
    assert [each.settings.listen_port for each in loaded] == [30911, 30921, 30931]
    assert [each.settings.node_id for each in loaded] == ["n0", "n1", "n2"]
    assert {each.settings.peers for each in loaded} == {tuple(f"n{n}-127.0.0.1:4091{n + 1}" for n in range(3))}
    source = Path(__file__).parents[2] / "conf" / "dledger"
    assert {path.name for path in source.iterdir()} == {f"broker-n{number}.conf" for number in range(3)}


class Drill:
    def __init__(self, directory: Path, shift: int) -> None:
        self.where = ("--dir", str(directory), "--shift", str(shift))
        self.of = tryout.Trial(directory, shift)

    async def rmq(self, *words: str, code: int | None = 0) -> str:
        """Output of one command, which must end with this exit code (None: any)."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("RMQ_", "NAMESRV_"))}
        command = [sys.executable, "-m", "rmq.cli", *words]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, env=env, timeout=60)
        assert code in (None, done.returncode), (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    async def cluster(self) -> dict[int, dict[str, Any]]:
        rows = json.loads((await self.rmq("admin", "clusterList", "-o", "json", "-n", self.of.namesrv)).partition("\nwarning")[0])
        return {row["id"]: row for row in rows}


@pytest.fixture
async def drill(tmp_path: Path) -> AsyncIterator[Drill]:
    found = Drill(tmp_path / "try", free_shift())
    yield found
    await found.rmq("try", "stop", *found.where)


def free_shift() -> int:
    """A number to add to all ports so that they are free."""
    while True:
        shift = random.randrange(1000, 20_000)
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", PORTS[0] + shift))
                other.bind(("127.0.0.1", PORTS[-1] + shift))
            except OSError:
                continue
            return shift


async def test_the_drill(drill: Drill) -> None:
    """N4, L1: a killed leader is replaced, nothing that was acknowledged is lost, and the killed one comes back."""
    said = await drill.rmq("try", "start", *drill.where)
    assert "kill -9" in said
    names = ("-n", drill.of.namesrv)
    assert "SEND_OK" in await drill.rmq("send", "Orders", "first", *names)
    before = await drill.cluster()
    assert sorted(before)[0] == 0
    assert len(before) == 3
    assert {row["role"] for row in before.values()} == {"leader", "follower"}

    port = int(before[0]["address"].rpartition(":")[2])
    leader = next(process for process in drill.of.processes() if process.port == port)
    pid = leader.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        while 0 not in (now := await drill.cluster()) or now[0]["address"] == before[0]["address"]:
            pass
    assert now[0]["epoch"] > before[0]["epoch"]
    assert "SEND_OK" in await drill.rmq("send", "Orders", "second", *names)
    told = await drill.rmq("consume", "Orders", "-g", "g", "--from", "first", "--count", "2", "--idle", "20", *names)
    assert "first" in told
    assert "second" in told

    status = await drill.rmq("try", "status", *drill.where)
    assert next(line for line in status.splitlines() if line.startswith(leader.name)).split()[2] == "-"
    await drill.rmq("try", "start", *drill.where)
    assert len(await drill.cluster()) == 3

    async with asyncio.timeout(30):  # it takes the office as soon as it has caught up
        while "success" not in await drill.rmq("admin", "transferLeader", "-b", tryout.GROUP, leader.name, *names, code=None):
            pass
        while (await drill.cluster()).get(0, {}).get("address") != before[0]["address"]:
            pass
    epochs = json.loads(await drill.rmq("admin", "getBrokerEpoch", "-b", tryout.GROUP, "-o", "json", *names))
    assert len({row["epoch"] for row in epochs}) >= 3
    followers = json.loads(await drill.rmq("admin", "haStatus", "-c", "RaftCluster", "-o", "json", *names))
    assert {row["status"] for row in followers} == {"In Sync"}


async def test_a_taken_port_is_said(drill: Drill) -> None:
    drill.of.directory.mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 30921 + drill.of.shift))
        said = await drill.rmq("try", "start", *drill.where, code=exits.FAILED)
    assert f"port {30921 + drill.of.shift}, which n1 needs, is taken" in said
    assert not list(drill.of.directory.iterdir())


async def test_purge_leaves_what_is_not_ours(drill: Drill) -> None:
    (drill.of.directory / "n0").mkdir(parents=True)
    (drill.of.directory / "notes.txt").write_text("mine")
    (drill.of.directory / "n1.pid").write_text("999999999\n")
    assert "n1: did not run" in await drill.rmq("try", "stop", *drill.where, "--purge")
    assert [path.name for path in drill.of.directory.iterdir()] == ["notes.txt"]
