"""`rmq try`: the drill of every RocketMQ course, with real processes: find the leader by its port, kill it, see another lead."""

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path

import pytest

from rmq.client import Client, Message, Producer, Unknown
from rmq.commands import tryout
from rmq.commands.shared import exits
from rmq.config.loading import load
from rmq.testing import until
from tests.cli.drill import Drill, free_shift


def test_the_shipped_files_are_what_rocketmqs_courses_start() -> None:
    """Its keys, its ports, three ids; `conf/` in the source shows the same files."""
    shipped = resources.files("rmq") / "conf" / "dledger"
    loaded = [load(Path(str(shipped / f"broker-n{number}.conf"))) for number in range(3)]
    assert not any(each.warnings for each in loaded)
    assert [each.settings.listen_port for each in loaded] == [30911, 30921, 30931]
    assert [each.settings.node_id for each in loaded] == ["n0", "n1", "n2"]
    assert {each.settings.peers for each in loaded} == {tuple(f"n{n}-127.0.0.1:4091{n + 1}" for n in range(3))}
    source = Path(__file__).parents[2] / "conf" / "dledger"
    assert {path.name for path in source.iterdir()} == {f"broker-n{number}.conf" for number in range(3)}


@pytest.fixture
async def drill(tmp_path: Path) -> AsyncIterator[Drill]:
    found = Drill(tmp_path / "try", free_shift())
    yield found
    await found.rmq("try", "stop", *found.where)


async def test_the_drill(drill: Drill) -> None:
    """N4, L1: a killed leader is replaced, nothing that was acknowledged is lost, and the killed one comes back."""
    said = await drill.rmq("try", "start", *drill.where)
    assert "kill -9" in said
    names = ("-n", drill.of.namesrv)
    assert "SEND_OK" in await drill.rmq("send", "Words", "first", *names)
    before = await drill.cluster()
    assert sorted(before)[0] == 0
    assert len(before) == 3
    assert {row["role"] for row in before.values()} == {"leader", "follower"}

    async with Client(drill.of.namesrv) as client:
        leader, sent, got = await _kill_under_load(drill, client)
    assert set(sent) <= set(got)  # L1: what was acknowledged is there
    assert len(got) == len(set(got))  # C5: and the group went on where it was
    assert "SEND_OK" in await drill.rmq("send", "Words", "second", *names)
    told = await drill.rmq("consume", "Words", "-g", "g", "--from", "first", "--count", "2", "--idle", "20", *names)
    assert "first" in told
    assert "second" in told

    status = await drill.rmq("try", "status", *drill.where[:2])
    assert f" {drill.of.processes()[0].port} " in status, "the shift of the start is known"
    assert next(line for line in status.splitlines() if line.startswith(leader.name)).split()[2] == "-"
    await drill.rmq("try", "start", *drill.where)
    assert len(await drill.cluster()) == 3

    async with asyncio.timeout(30):  # it leads again as soon as it has caught up
        while "success" not in await drill.rmq("admin", "transferLeader", "-b", tryout.GROUP, leader.name, *names, code=None):
            pass
        while (await drill.cluster()).get(0, {}).get("address") != before[0]["address"]:
            pass
    epochs = json.loads(await drill.rmq("admin", "getBrokerEpoch", "-b", tryout.GROUP, "-o", "json", *names))
    assert len({row["epoch"] for row in epochs}) >= 3
    followers = json.loads(await drill.rmq("admin", "haStatus", "-c", "RaftCluster", "-o", "json", *names))
    assert {row["status"] for row in followers} == {"In Sync"}


async def _kill_under_load(drill: Drill, client: Client) -> tuple[tryout.Process, list[bytes], list[bytes]]:
    """The leader that was killed, bodies that were acknowledged, and all that one group has received."""
    sent: list[bytes] = []
    got: list[bytes] = []

    async def send(producer: Producer, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            body = f"under-load-{number}".encode()
            number += 1
            with contextlib.suppress(Unknown):  # under way to the leader when it died
                await producer.send(Message("Orders", body), timeout=20)
                sent.append(body)

    stop = asyncio.Event()
    sending = asyncio.create_task(send(client.producer(), stop))
    async with client.consumer("load", "Orders", start="first") as consumer:
        running = asyncio.create_task(consumer.run(lambda message: got.append(message.body)))
        await until(lambda: len(got) > 100)
        leader = await drill.kill_leader()
        known = len(sent)
        await until(lambda: len(sent) > known + 100)
        stop.set()
        await sending
        await until(lambda: set(sent) <= set(got))
        consumer.stop()
        await running
    return leader, sent, got


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


async def test_a_process_that_has_the_number_of_a_dead_node_is_left_alone(drill: Drill) -> None:
    """As after a restart of the machine: a program of JavaScript is called `node`, too."""
    drill.of.directory.mkdir()
    stranger = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import sys; sys.stdin.read()", "node", "server.js", stdin=asyncio.subprocess.PIPE
    )
    (drill.of.directory / "n1.pid").write_text(f"{stranger.pid}\n")
    assert "n1: did not run" in await drill.rmq("try", "stop", *drill.where)
    assert stranger.returncode is None
    await stranger.communicate(b"")
    assert stranger.returncode == 0, "it ended by itself"
