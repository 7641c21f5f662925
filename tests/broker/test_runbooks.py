"""The runbooks of docs/security.md, carried out from their own text at a running cluster, while clients send and read."""

import asyncio
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmq.cli import cli
from rmq.client import Client, Message, Tls, Unreachable
from rmq.config.loading import load
from rmq.errors import Refusal
from rmq.net.commands import Hello, UpdateTopic
from rmq.scram import Credentials
from rmq.secretfiles import read_lines
from tests.broker.groups import LocalGroup
from tests.broker.support import Peer
from tests.dialing import dial

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
SEND_TIMEOUT_S = 20.0  # a machine with other work


def blocks(runbook: str) -> Iterator[list[str]]:
    """The indented blocks of a runbook, in order."""
    (text,) = re.findall(rf"^### Runbook: {runbook}\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    for block in re.findall(r"(?:^ {7}\S.*\n)+", text, re.MULTILINE):
        yield [line.strip() for line in block.splitlines()]


class Operator:
    """Does what a runbook says, at a group of three nodes and a nameserver. `etc`: in the place of /etc/rmq."""

    def __init__(self, group: LocalGroup, etc: Path) -> None:
        self.group = group
        self.etc = etc
        self.environment: dict[str, str] = {}
        self._lines: dict[str, str] = {}  # of the configuration

    async def does(self, block: list[str]) -> str:
        """Settings: all nodes are restarted with them. Commands: what they print."""
        block = [line.replace("/etc/rmq", str(self.etc)) for line in block]
        if block[0].startswith("rmq "):
            return "".join([await self.rmq(*shlex.split(line)[1:]) for line in block])
        self._lines |= dict(line.split("=", 1) for line in block)
        await self.restart()
        return ""

    async def restart(self) -> None:
        """All nodes, one after the other, with the configuration and its files as they are now."""
        file = self.etc / "node.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in self._lines.items()))
        loaded = load(file)
        await self.group.roll(**{name: getattr(loaded.settings, name) for name, at in loaded.origins.items() if at != "default"})

    async def rmq(self, *words: str) -> str:
        env = {"NAMESRV_ADDR": self.group.nameserver, **self.environment}
        shown = await asyncio.to_thread(CliRunner().invoke, cli, words, env=env)
        assert shown.exit_code == 0, shown.output
        return shown.output


class Traffic:
    """One client that sends all the time, and one that reads; every message that was sent arrives, and none is refused."""

    def __init__(self, group: LocalGroup, tls: Tls | None = None, user: str = "", password: str = "") -> None:
        self._client = Client(group.nameserver, clock=group.clock, tls=tls, user=user, password=password)
        self._clock = group.clock
        self._sent: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._stop = False

    async def __aenter__(self) -> "Traffic":
        self._task = asyncio.create_task(self._send())
        async with asyncio.timeout(60):
            while not self._sent and not self._task.done():
                await asyncio.sleep(0)
        return self

    async def _send(self) -> None:
        async with (
            self._client as client,
            client.producer() as producer,
            client.consumer("billing", "orders", start="first") as reader,
        ):
            while not self._stop:
                body = b"%d of %d" % (len(self._sent), id(self))
                await producer.send(Message("orders", body), timeout=SEND_TIMEOUT_S, retry_unknown=True)
                self._sent.append(body)
                await self._clock.sleep(0.02)  # not all of a small machine
            missing = set(self._sent)
            async for message in reader:
                missing.discard(message.body)
                if not missing:
                    return

    async def __aexit__(self, *error: object) -> None:
        self._stop = True
        assert self._task is not None
        async with asyncio.timeout(60):
            await self._task


def password(operator: Operator, name: str) -> str:
    return read_lines(str(operator.etc / f"{name}.password"))[0]


async def test_the_runbooks_of_a_cluster_that_is_locked_step_by_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """S1, S3, S12: from an open cluster to one with TLS and users, then other certificates, secrets and passwords."""
    etc = tmp_path / "etc"
    etc.mkdir()
    async with LocalGroup(tmp_path, auto_create_topic=False) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("orders", read_queue_nums=1, write_queue_nums=1))
        operator = Operator(group, etc)
        await _encrypt(operator)
        await _renew(operator)
        await _log_in(operator, caplog)
        await _change_secret(operator)
        await _change_password(operator)


async def _encrypt(operator: Operator) -> None:
    group = operator.group
    certificates, permissive, dialling, enforcing = blocks("switch TLS on without downtime")
    async with Traffic(group):
        await operator.does(certificates)
        await operator.does(permissive)
    operator.environment["RMQ_TLS_CA"] = str(operator.etc / "certs" / "ca.pem")
    group.tls = Tls(ca=operator.environment["RMQ_TLS_CA"])
    async with Traffic(group, group.tls):
        await operator.does(dialling)
        await (await dial(group.nameserver, Hello(1))).close()
        await operator.does(enforcing)
    for address in (group.nameserver, *map(group.address, group.nodes)):
        with pytest.raises(Unreachable):
            await dial(address, Hello(1))


async def _renew(operator: Operator) -> None:
    group, file = operator.group, operator.etc / "certs" / "node.pem"
    (again,) = blocks("renew certificates")
    old = file.read_bytes()
    async with Traffic(group, group.tls):
        before = await _shown(operator)
        await operator.does(again)
        assert file.read_bytes() != old
        await group.clock.advance(2)
        assert await _shown(operator) != before


async def _shown(operator: Operator) -> bytes:
    """What binds logins to the certificate that a node shows now."""
    peer = await dial(operator.group.address("n0"), Hello(1), tls=operator.group.tls)
    found = peer.end_point
    await peer.close()
    return found


async def _log_in(operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    group, etc = operator.group, operator.etc
    secrets, optional, users, only = blocks("switch users on without downtime")
    await operator.does(secrets)
    async with Traffic(group, group.tls):  # does not log in
        await operator.does(optional)
        assert "does not log in" in caplog.text
    operator.environment |= {"RMQ_USER": "admin", "RMQ_PASSWORD_FILE": str(etc / "admin.password")}
    group.credentials = Credentials("admin", password(operator, "admin"))
    for name in ("orders", "orders-2"):
        (etc / f"{name}.password").write_text(f"secret-of-{name}\n")
        (etc / f"{name}.password").chmod(0o600)
    await group.leader()
    await operator.does(users)
    await _known(group, "orders")
    async with Traffic(group, group.tls, "orders", password(operator, "orders")):
        await operator.does(only)
        for address in map(group.address, group.nodes):
            stranger = Peer(await dial(address, Hello(1), tls=group.tls), [])
            assert await stranger.ask_code(UpdateTopic("x")) == 16
            await stranger.close()
    shown = "".join([caplog.text, *(file.read_text() for file in etc.glob("*.conf"))])
    assert not any(password(operator, name) in shown for name in ("admin", "orders"))


async def _known(group: LocalGroup, user: str) -> None:
    """The nameserver has heard of the user and its policies."""
    directory = group.naming.directory
    await group.clock.advance_until(lambda: directory.users(user) and directory.acls(user))


async def _change_secret(operator: Operator) -> None:
    group, file = operator.group, operator.etc / "node"
    old = [each.secret for each in _loaded(file)]
    both, newest, sealed, one = blocks("another secret for nodes")
    async with Traffic(group, group.tls, "orders", password(operator, "orders")):
        for block in (both, newest):
            await operator.does(block)
            await operator.restart()
    await operator.does(sealed)
    await operator.does(one)
    async with Traffic(group, group.tls, "orders", password(operator, "orders")):
        await operator.restart()
    (left,) = _loaded(file)
    assert left.secret not in old
    with pytest.raises(Refusal, match="wrong password"):
        await dial(group.address("n0"), Hello(1), tls=group.tls, credentials=Credentials("node", old[0]))


def _loaded(file: Path) -> tuple[Any, ...]:
    from rmq.config.settings import parse

    return tuple(parse("node_credentials", f"file:{file}"))


async def _change_password(operator: Operator) -> None:
    group = operator.group
    second, disabled = blocks("another password for a program")
    async with Traffic(group, group.tls, "orders", password(operator, "orders")):
        await operator.does(second)
        await _known(group, "orders-2")
    async with Traffic(group, group.tls, "orders-2", password(operator, "orders-2")):
        await operator.does(disabled)
        old = Credentials("orders", password(operator, "orders"))
        peer = Peer(await dial(group.address(await group.leader()), Hello(1), tls=group.tls, credentials=old), [])
        assert await peer.ask_code(UpdateTopic("orders")) == 16
        await peer.close()


def test_every_runbook_is_carried_out() -> None:
    carried = set(re.findall(r'blocks\("(.+?)"\)', Path(__file__).read_text()))
    assert carried == set(re.findall(r"^### Runbook: (.+)$", PAGE, re.MULTILINE))
