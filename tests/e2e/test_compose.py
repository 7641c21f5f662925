"""docker-compose.yml without an engine: its commands and variables as processes of this machine, with other ports and folders."""

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmq.cli import cli
from rmq.client import Client
from rmq.client.admin import calls as ask
from rmq.commands.shared import exits
from rmq.dashboard.access import read_users
from rmq.errors import Refusal, RmqError
from rmq.secretfiles import read_lines
from tests import janitor
from tests.door.caller import Caller
from tests.ports import free_port

yaml = pytest.importorskip("yaml", reason="needs PyYAML")
SERVICES: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text())["services"]
BROKERS = ("broker-a-0", "broker-a-1", "broker-a-2")


class Composed:
    """Services as processes: each host name of the file is this machine, each port a free one, each volume a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nameserver = f"127.0.0.1:{free_port()}"
        self._ports = {name: (free_port(), free_port()) for name in BROKERS}
        self.proxy, self.pages = free_port(), free_port()
        self._path = folder / "bin"
        self._path.mkdir()
        (self._path / "rmq").write_text(f'#!/bin/sh\nexec {sys.executable} -m rmq.cli "$@"\n')
        (self._path / "rmq").chmod(0o755)

    def text(self, value: str) -> str:
        value = re.sub(r"\$\{\w+:-(.+?)\}", r"\1", value).replace("$$", "$").replace("/secrets", str(self.folder / "secrets"))
        value = re.sub(r"nameserver-[ab]:9876(;nameserver-[ab]:9876)?", self.nameserver, value)
        value = value.replace("0.0.0.0:8081", f"127.0.0.1:{self.proxy}").replace("127.0.0.1:5558", f"127.0.0.1:{self.pages}")
        for name, (_, peers) in self._ports.items():
            value = value.replace(f"{name}:40911", f"127.0.0.1:{peers}").replace(name, "127.0.0.1")
        return value

    def environment(self, name: str) -> dict[str, str]:
        """What a process of that container sees."""
        said = {key: self.text(value) for key, value in SERVICES[name].get("environment", {}).items()}
        here = {"RMQ_NAMESRV_PORT": self.nameserver.rpartition(":")[2]}
        if name in self._ports:
            here = {
                "RMQ_LISTEN_PORT": str(self._ports[name][0]),
                "RMQ_STORE_DIR": str(self.folder / name),
                "RMQ_VIP_PORT": "false",
            }
        rest = {key: value for key, value in os.environ.items() if not key.startswith("RMQ_")}
        return rest | said | here | {"PATH": f"{self._path}:{os.environ['PATH']}"}

    async def start(self, name: str) -> asyncio.subprocess.Process:
        service = SERVICES[name]
        words = [*service.get("entrypoint", ["rmq"]), *service["command"]]
        with (self.folder / f"{name}.log").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *map(self.text, words), env=self.environment(name), stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL
            )

    async def rmq(self, name: str, *words: str) -> tuple[int, str]:
        """`docker compose exec NAME rmq ...`"""
        env: dict[str, str | None] = {key: None for key in os.environ if key.startswith("RMQ_")}
        env |= {key: value for key, value in self.environment(name).items() if key.startswith("RMQ_")}
        shown = await asyncio.to_thread(CliRunner().invoke, cli, words, env=env, standalone_mode=False)
        return int(shown.return_value or 0) if shown.exception is None else exits.FAILED, f"{shown.output}{shown.exception}"

    async def healthy(self, name: str, address: str) -> None:
        """Its health check, as often as it takes."""
        text = ""
        try:
            async with asyncio.timeout(60):
                while (found := await self.rmq(name, "health", "--address", address))[0] != exits.OK:
                    text = found[1]
        except TimeoutError:
            pytest.fail(f"{name} is not healthy: {text}")


@pytest.fixture
async def composed(tmp_path: Path) -> AsyncIterator[Composed]:
    """The secrets, a nameserver and a group, in the order that `depends_on` asks for."""
    janitor.begin()
    composed = Composed(tmp_path)
    async with AsyncExitStack() as running:

        async def start(name: str) -> asyncio.subprocess.Process:
            process = await composed.start(name)
            running.push_async_callback(process.wait)
            running.callback(_kill, process)
            return process

        assert await (await start("secrets")).wait() == 0, (tmp_path / "secrets.log").read_text()
        await start("nameserver-a")
        await composed.healthy("nameserver-a", composed.nameserver)  # the brokers wait for it
        for name in BROKERS:
            await start(name)
        yield composed


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()


async def test_a_composed_cluster_is_locked_from_its_first_start(composed: Composed) -> None:
    """S1, S12: no default password, no stranger, no secret in the log."""
    secrets = composed.folder / "secrets"
    assert {file.name: file.stat().st_mode & 0o777 for file in secrets.iterdir()} == dict.fromkeys(
        ("node", "admin", "admin.password", "dashboard"), 0o600
    )
    password = read_lines(str(secrets / "admin.password"))[0]
    assert read_users(secrets / "dashboard")["admin"].role == "write"
    async with asyncio.timeout(90):
        while len(await _told(composed, "admin", password)) < 3:
            pass
    code, text = await composed.rmq("broker-a-0", "admin", "clusterList", "-n", composed.nameserver)
    assert code == exits.OK, text
    assert text.count("broker-a") >= 3, text
    health = SERVICES["broker-a-1"]["environment"]["HEALTH_ADDRESS"].rpartition(":")[0]
    port = composed.environment("broker-a-1")["RMQ_LISTEN_PORT"]
    await composed.healthy("broker-a-1", f"{health}:{port}")  # to be registered is not to be ready yet
    with pytest.raises(Refusal, match="log in"):
        await _asked(composed, "", "")
    with pytest.raises(RmqError, match="wrong password"):
        await _asked(composed, "admin", "admin")
    await _asked_by_grpc(composed, password)
    logs = "".join(file.read_text() for file in composed.folder.glob("*.log"))
    assert "Traceback" not in logs
    assert password not in logs


async def _asked_by_grpc(composed: Composed, password: str) -> None:
    """By the proxy, which does not know who its clients are until they sign."""
    proxy = await composed.start("proxy")
    try:
        words = SERVICES["proxy"]["healthcheck"]["test"][2:]
        async with asyncio.timeout(60):
            while await (await asyncio.create_subprocess_exec(sys.executable, *map(composed.text, words), stderr=PIPE)).wait():
                pass
        for signs, code in ((None, 40100), (("admin", "admin"), 40100), (("admin", password), 20000)):
            async with Caller(composed.proxy, signs=signs) as caller:
                assert (await caller.ask("Heartbeat")).status.code == code
    finally:
        proxy.terminate()
        assert await proxy.wait() == 0


async def _told(composed: Composed, user: str, password: str) -> list[str]:
    """The brokers, as that user sees them; nothing while nobody knows the user yet."""
    try:
        return await _asked(composed, user, password)
    except RmqError:
        return []


async def _asked(composed: Composed, user: str, password: str) -> list[str]:
    async with Client(composed.nameserver, user=user, password=password) as client:
        info = await ask.cluster_info(client)
    return [address for group in info.brokers for address in group.addresses.values()]
