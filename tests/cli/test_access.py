"""`rmq admin` for users and policies, as one who logs in by the environment."""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmq.cli import cli
from rmq.net.commands import GetRuntimeInfo, RegisterBroker, RuntimeInfo, UpdateTopic
from rmq.net.commands.access import PolicyEntry
from rmq.net.transport.server import Server
from rmq.testing import LocalBroker
from tests.broker.support import Peer
from tests.broker.test_access import SETTINGS, login, make_user, nameserver_knows


async def test_an_administrator_makes_users_and_says_what_they_may(tmp_path: Path) -> None:
    """S12: passwords come from files of mode 0600, and are shown nowhere."""
    for name in ("root", "bob"):
        (tmp_path / name).write_text(f"{name}-secret\n")
        (tmp_path / name).chmod(0o600)
    async with LocalBroker(**SETTINGS) as broker:
        await broker.clock.advance_until(lambda: nameserver_knows(broker, "root"))

        async def rmq(*words: str, fails: bool = False, file: Path = tmp_path / "root") -> str:
            env = {"RMQ_USER": "root", "RMQ_PASSWORD_FILE": str(file), "NAMESRV_ADDR": broker.nameserver}
            shown = await asyncio.to_thread(CliRunner().invoke, cli, ["admin", *words], env=env)
            assert bool(shown.exit_code) == fails, shown.output
            return f"{shown.output}{shown.exception}"

        async def listed(*words: str) -> list[dict[str, Any]]:
            found = json.loads((await rmq(*words, *where, "-o", "json")).removesuffix("None"))
            return list(found if isinstance(found, list) else next(iter(found.values())))

        where = ("-b", broker.address)
        assert "success" in await rmq("createUser", *where, "-u", "bob", "-p", str(tmp_path / "bob"))
        rights = ("-s", "User:bob", "-r", "Topic:T,Group:*", "-a", "Pub,Sub", "-d", "Allow", "-i", "127.0.0.0/8")
        await rmq("createAcl", *where, *rights)
        assert len(await listed("listAcl")) == 2
        assert len(await listed("getAcl", "-s", "User:bob")) == 2
        assert [row["name"] for row in await listed("listUser")] == ["bob", "root"]
        assert "secret" not in await rmq("getUser", *where, "-u", "bob")
        assert "copied bob" in await rmq("copyUser", "-f", broker.address, "-t", broker.address, "-u", "bob")
        assert "copied User:bob" in await rmq("copyAcl", "-f", broker.address, "-t", broker.address)
        await (await login(broker, "bob", "bob-secret")).close()
        await rmq("updateAcl", *where, "-s", "User:bob", "-r", "Topic:T", "-a", "Pub", "-d", "Deny")
        await rmq("deleteAcl", *where, "-s", "User:bob", "-r", "Group:*")
        await rmq("updateUser", *where, "-u", "bob", "-s", "disable")
        assert "disable" in await rmq("getUser", *where, "-u", "bob")
        assert "not there" in await rmq("deleteAcl", *where, "-s", "User:bob", "-r", "Topic:other")
        assert "not there" not in await rmq("deleteAcl", *where, "-s", "User:bob", "-r", "Topic:T")
        await rmq("setQuota", *where, "-s", "User:bob", "--topics", "3")
        assert "not there" in await rmq("deleteQuota", *where, "-s", "User:bo")
        assert "not there" not in await rmq("deleteQuota", *where, "-s", "User:bob")
        assert "not there" not in await rmq("deleteUser", *where, "-u", "bob")
        assert "not there" in await rmq("deleteUser", *where, "-u", "bob")
        (tmp_path / "bob").chmod(0o644)
        assert "chmod 600" in await rmq("createUser", *where, "-u", "bob", "-p", str(tmp_path / "bob"), fails=True)
        assert await rmq("listUser", *where, fails=True, file=tmp_path / "nothing")


async def test_a_broker_that_refuses_does_not_hide_the_others() -> None:
    """It may just have been started, and not have heard of a user yet. Where nobody tells anything, the reason is told."""
    async with LocalBroker() as open_one, contextlib.AsyncExitStack() as running:
        locked = LocalBroker(clock=open_one.clock, broker_name="locked", **SETTINGS)
        locked.nameserver = open_one.nameserver
        running.push_async_callback(locked.close)
        await locked.start_broker()

        async def cluster_list() -> tuple[int, str]:
            shown = await asyncio.to_thread(CliRunner().invoke, cli, ["admin", "clusterList", "-n", open_one.nameserver])
            return shown.exit_code, f"{shown.output}{shown.exception}"

        async with asyncio.timeout(60):
            while locked.address not in (told := await cluster_list())[1]:
                pass
        assert told[0] == 0
        assert f"warning: {locked.address} tells nothing: NO_PERMISSION" in told[1]
        await open_one.stop_broker()
        code, text = await cluster_list()
        assert code != 0
        assert "NO_PERMISSION" in text


ODD = (
    ({"putTps": "many"}, "putTps is 'many'"),
    ({"commitLogDiskRatio": "nan"}, "commitLogDiskRatio is 'nan'"),
    ({"msgPutTotalTodayMorning": "9" * 30}, "msgPutTotalTodayMorning is '999"),
    ({"putTps": 1}, "table: expected str"),
)


@pytest.mark.parametrize(("odd", "text"), ODD)
async def test_a_broker_whose_numbers_are_none_does_not_hide_the_others(odd: dict[str, Any], text: str) -> None:
    """S5: it is named, with what is odd, and has a row as one that tells nothing."""
    server = Server({GetRuntimeInfo: lambda request, call: RuntimeInfo(odd)})
    where = "{}:{}".format(*await server.listen("127.0.0.1", 0))
    async with LocalBroker() as broker:
        registered = await Peer.connect(broker.nameserver)
        await registered.ask(RegisterBroker("DefaultCluster", "odd", 0, where, 0, []))

        async def rmq(*words: str) -> tuple[int, str, str]:
            shown = await asyncio.to_thread(CliRunner().invoke, cli, ["admin", *words, "-n", broker.nameserver])
            return shown.exit_code, shown.stdout, f"{shown.stderr}{shown.exception}"

        for more in ([], ["-m"]):
            code, told, warned = await rmq("clusterList", *more)
            assert code == 0
            assert {"odd", "broker-a"} <= set(told.split())
            assert f"warning: {where} tells nothing: {text}" in warned
        await broker.stop_broker()
        code, _, warned = await rmq("clusterList")
        assert (code, f"{where}: {text}" in warned) == (1, True), "nobody else is left"
        await registered.close()
    await server.close()


async def test_consume_fails_when_it_was_refused() -> None:
    """A consumer goes on trying; the command that ends says why nothing came."""
    async with LocalBroker(**SETTINGS) as broker:
        await broker.clock.advance_until(lambda: nameserver_knows(broker, "root"))
        root = await login(broker, "root", "root-secret")
        await root.ask(UpdateTopic("T"))
        await make_user(root, "bob", PolicyEntry("Topic:T", ["Sub"]), PolicyEntry("Group:mine", ["Sub"]))
        await make_user(root, "eve", PolicyEntry("Topic:T", ["Get"]), PolicyEntry("Group:mine", ["Sub"]))
        await broker.clock.advance_until(lambda: nameserver_knows(broker, "eve"))
        await root.close()

        async def consume(topic: str, group: str, user: str = "bob", password: str = "") -> tuple[int, str]:
            who = {"RMQ_USER": user, "RMQ_PASSWORD": password or f"{user}-secret"}
            command = [sys.executable, "-m", "rmq.cli", "consume", topic, "-g", group, "-n", broker.nameserver, "--idle", "1"]
            running = await asyncio.create_subprocess_exec(*command, env=os.environ | who, stderr=asyncio.subprocess.PIPE)
            _, told = await running.communicate()
            return running.returncode or 0, told.decode()

        assert await consume("T", "mine") == (0, "")
        for refused in (
            consume("T", "other"),
            consume("other", "mine"),
            consume("T", "mine", password="wrong"),
            consume("T", "mine", "eve"),
        ):
            code, told = await refused
            assert (code, "NO_PERMISSION" in told or "no consumer" in told) == (1, True), told
        code, told = await consume("missing", "mine", "root")
        assert (code, "TOPIC_NOT_EXIST" in told) == (1, True), told
