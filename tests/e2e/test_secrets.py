"""Secrets of a node in a process of its own are found nowhere outside it (S12)."""

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key

from rmq.cli import cli
from rmq.client import Client, ClientSettings, Message
from rmq.client.admin import access, calls as admin
from rmq.errors import RmqError
from rmq.net.commands import CreateUser, Hello, UpdateUser, UserInfo
from rmq.scram import Credentials
from tests.certificates import Certificates
from tests.dialing import dial
from tests.faults.node import NodeProcess
from tests.ports import free_port

CANARY = "canary-"


def secret_file(folder: Path, name: str) -> str:
    file = folder / name
    file.write_text(json.dumps({"username": name, "password": f"{CANARY}{name}"}))
    file.chmod(0o600)
    return f"file:{file}"


async def test_canaries_are_found_nowhere(tmp_path: Path) -> None:
    """In the log at its most talkative, the list of processes, metrics, what the check of settings and tools print, error texts,
    traces, the store and its exports; and a crash leaves no core file."""
    port = free_port()
    settings = {
        "authentication": "true",
        "authorization": "true",
        "init_user": secret_file(tmp_path, "root"),
        "node_credentials": secret_file(tmp_path, "node"),
        "log_level": "debug",
        "metrics": "prom",
        "metrics_port": str(port),
        "trace_topic": "true",
        **_encrypted_key(tmp_path),
    }
    node = NodeProcess(tmp_path / "store", **settings)
    await node.start()
    try:
        told = [await _administers(node, tmp_path), await asyncio.to_thread(_page, port)]
        assert node.process is not None
        processes = Path(f"/proc/{node.process.pid}")
        told += [(processes / name).read_bytes().decode(errors="replace") for name in ("cmdline", "environ")]
        (limit,) = [line for line in (processes / "limits").read_text().splitlines() if line.startswith("Max core file size")]
        assert limit.split()[4] == "0"
    finally:
        await node.stop()
    file = tmp_path / "node.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    told += [CliRunner().invoke(cli, ["config", "check", str(file)]).output, node.log_text()]
    file.write_text(f'authenticationEnabled=true\nnode_credentials={{"accessKey":"node","secretKey":"{CANARY}x"}}\n')
    for mode in (0o600, 0o644):
        file.chmod(mode)
        shown = CliRunner().invoke(cli, ["config", "check", str(file)])
        told += [shown.output, str(shown.exception)]
    assert "rmq_connections" in told[1]
    assert "CreateUser" in node.log_text(), "the audit line was there"
    for text in told:
        assert CANARY not in text
    for stored in (tmp_path / "store").rglob("*"):
        assert not stored.is_file() or CANARY.encode() not in stored.read_bytes(), stored


async def _administers(node: NodeProcess, folder: Path) -> str:
    """Makes users, changes one, asks for them, fails a login: what all of that answers, and prints."""
    where = ["-n", f"127.0.0.1:{node.namesrv_port}"]
    root = Credentials("root", f"{CANARY}root")
    texts: list[object] = []
    async with asyncio.timeout(60):
        while True:
            try:
                traced = ClientSettings(trace=True)
                async with Client(where[1], user=root.name, password=root.secret, settings=traced) as client:
                    async with client.producer() as producer:
                        texts.append(await producer.send(Message("T", b"traced")))
                    await access.change(client, "DefaultCluster", "", CreateUser("bob", UserInfo("bob", f"{CANARY}bob")))
                    await access.change(client, "DefaultCluster", "", UpdateUser("bob", UserInfo(password=f"{CANARY}new")))
                    texts += [await access.users(client, "DefaultCluster", ""), repr(client), repr(root)]
                    texts.append(await admin.cluster_info(client))
                break
            except RmqError as error:  # the first user is not there yet, or the nameserver has not heard of it
                texts.append(error)
    for name, password in (("bob", f"{CANARY}wrong"), ("nobody", f"{CANARY}nobody")):
        with pytest.raises(RmqError) as refused:
            await dial(node.address, Hello(1), credentials=Credentials(name, password))
        texts.append(refused.value)
    (folder / "password").write_text(f"{CANARY}root\n")
    (folder / "password").chmod(0o600)
    env = {"RMQ_USER": "root", "RMQ_PASSWORD_FILE": str(folder / "password")}
    for command in (["listUser"], ["getUser", "-u", "bob"], ["createUser", "-u", "bob", "-p", str(folder / "password")]):
        shown = await asyncio.to_thread(CliRunner().invoke, cli, ["admin", *command, *where, "-c", "DefaultCluster"], env=env)
        texts += [shown.output, shown.exception]
    return "\n".join(map(str, texts))


def _encrypted_key(folder: Path) -> dict[str, str]:
    """TLS with a key that has a password."""
    made, password = Certificates(folder / "certs").made["node"], folder / "key-password"
    key = load_pem_private_key(made.key.read_bytes(), None)
    cipher = BestAvailableEncryption(f"{CANARY}key".encode())
    made.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, cipher))
    password.write_text(f"{CANARY}key\n")
    password.chmod(0o600)
    return {
        "tls_mode": "permissive",
        "tls_cert": str(made.cert),
        "tls_key": str(made.key),
        "tls_key_password_file": str(password),
    }


def _page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
        return str(page.read(), "utf-8")
