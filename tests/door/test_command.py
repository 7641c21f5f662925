"""`rmq proxy` as a process."""

import asyncio
import re
import resource
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import grpc.aio
import pytest

from rmq.commands.proxy import DESCRIPTORS
from rmq.grpc.schema import v2
from rmq.net.commands import UpdateTopic
from rmq.net.commands.access import PolicyEntry
from rmq.testing import LocalBroker, until
from tests.broker.test_access import SETTINGS, login, make_user, nameserver_permits
from tests.certificates import Certificates
from tests.door.caller import HERE, Caller, publishing
from tests.ops.watching import page
from tests.ports import free_port

ROOT = Path(__file__).parents[2]


async def started(*words: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rmq.cli", "proxy", *words, cwd=ROOT, stdout=pipe, stderr=pipe
    )


@asynccontextmanager
async def running(*words: str, said: bytes = b"") -> AsyncIterator[int]:
    """Its port. It must end in order, and log nothing but what is `said`."""
    process = await started(*words, "--listen", f"{HERE}:{free_port()}")
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        match = re.search(r":(\d+)$", line.strip())
        assert match, line
        yield int(match[1])
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, bool(errors), said in errors) == (0, bool(said), True), errors


async def test_it_serves_and_ends_in_order() -> None:
    """Also while a client keeps its stream open, which hears that it is over."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(LocalBroker())
        await broker.create_topic("T")
        async with running("-n", broker.nameserver) as port:
            caller = await stack.enter_async_context(Caller(port))
            stream, _ = await stack.enter_async_context(caller.telemetry(publishing("T")))
            assert (await caller.send("T", b"x")).status.code == v2.Code.OK
        assert await stream.read() == grpc.aio.EOF


async def test_a_full_disk_for_its_output_does_not_keep_it_from_serving() -> None:
    """After a restart there the whole service was missing, for one line in a log."""
    port = free_port()

    def listens() -> bool:
        with socket.socket() as dialed:
            return dialed.connect_ex((HERE, port)) == 0

    async with LocalBroker() as broker:
        await broker.create_topic("T")
        words = ("-m", "rmq.cli", "proxy", "-n", broker.nameserver, "--listen", f"{HERE}:{port}")
        full = ("/bin/sh", "-c", 'exec "$0" "$@" >/dev/full 2>&1', sys.executable)
        process = await asyncio.create_subprocess_exec(*full, *words, cwd=ROOT)
        try:
            await until(lambda: process.returncode is not None or listens(), 60)
            assert process.returncode is None
            async with Caller(port) as caller:
                await caller.connected()
                async with caller.telemetry(publishing("T")):
                    assert (await caller.send("T", b"x")).status.code == v2.Code.OK
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            code = await asyncio.wait_for(process.wait(), 60)
        assert code == 0


@pytest.mark.parametrize("hard", [3000, None])
async def test_it_takes_as_many_clients_as_the_hard_limit_allows(hard: int | None) -> None:
    """With the usual soft limit the thousandth got no answer, and nothing said why; the proxy could reach no broker anew."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    process = await started("--listen", f"{HERE}:{free_port()}")
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (300, hard or most))
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readline(), 60)
    found, _ = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    process.send_signal(signal.SIGTERM)
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert found == min(hard or most, DESCRIPTORS)
    assert (b"this proxy may have 3000 connections open" in errors) == (hard == 3000)


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def ca(made: Certificates) -> bytes:
    return Path(made.ca).read_bytes()


async def test_with_tls(made: Certificates, ca: bytes) -> None:
    shown = made.made["node"]
    async with LocalBroker() as broker:
        await broker.create_topic("T")
        words = "-n", broker.nameserver, "--cert", str(shown.cert), "--key", str(shown.key)
        async with running(*words) as port, Caller(port, ca=ca) as caller:
            assert (await caller.send("T", b"x")).status.code == v2.Code.OK


async def test_renewed_certificates_are_shown(made: Certificates, ca: bytes) -> None:
    """To who connects from then on, as nodes do it."""
    shown, later = made.made["node"], made.authority.issue("later", ["127.0.0.1"])

    async def told(port: int) -> str:
        return await asyncio.to_thread(ssl.get_server_certificate, (HERE, port))

    async with LocalBroker() as broker:
        await broker.create_topic("T")
        words = "-n", broker.nameserver, "--cert", str(shown.cert), "--key", str(shown.key)
        async with running(*words, said=b"TLS files changed") as port, Caller(port, ca=ca) as caller:
            before = await told(port)
            assert (await caller.send("T", b"x")).status.code == v2.Code.OK
            later.key.replace(shown.key)
            later.cert.replace(shown.cert)
            async with asyncio.timeout(20):
                while await told(port) == before:
                    await asyncio.sleep(0)  # it looks once a second
            assert (await caller.send("T", b"x")).status.code == v2.Code.OK, "on the connection that was open"
            async with Caller(port, ca=ca) as another:
                assert (await another.send("T", b"x")).status.code == v2.Code.OK


async def test_each_user_inside_tls(made: Certificates, ca: bytes) -> None:
    """The proxy has no user of its own, and dials with TLS where signatures are taken in it only."""
    shown = made.made["node"]
    tls = {"tls_mode": "permissive", "tls_cert": str(shown.cert), "tls_key": str(shown.key), "tls_ca": made.ca}
    async with LocalBroker(**SETTINGS, **tls, signed_in_tls_only=True) as broker:
        root = await login(broker, "root", "root-secret")
        await root.ask(UpdateTopic("T"))
        await make_user(root, "grpc", PolicyEntry("Topic:T", ["Pub"]))
        await root.close()
        await broker.clock.advance_until(lambda: nameserver_permits(broker, "grpc"))
        words = "-n", broker.nameserver, "--signed", "--cert", str(shown.cert), "--key", str(shown.key)
        async with running(*words, "--tls-ca", made.ca) as port, Caller(port, ca=ca, signs=("grpc", "grpc-secret")) as caller:
            assert (await caller.send("T", b"x")).status.code == v2.Code.OK
            assert (await caller.send("other", b"x")).status.code == v2.Code.FORBIDDEN
        async with running(*words) as port, Caller(port, ca=ca, signs=("grpc", "grpc-secret")) as caller:
            status = (await caller.ask("Heartbeat")).status
            assert (status.code, "inside TLS only" in status.message) == (v2.Code.UNAUTHORIZED, True)


async def test_a_user_of_its_own_beside_those_who_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQ_USER", "admin")
    monkeypatch.setenv("RMQ_PASSWORD", "admin-secret")
    process = await started("--signed")
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, b"unset RMQ_USER" in said) == (2, True)


async def test_a_cluster_that_is_away_is_said_to_be_away() -> None:
    async with running("-n", f"{HERE}:{free_port()}") as port, Caller(port) as caller:
        assert (await caller.send("T", b"x")).status.code == v2.Code.HA_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("words", "code", "about"),
    [
        (["--listen", "0.0.0.0:8081"], 2, "--signed"),
        (["--listen", "0.0.0.0:8081", "--cert", "README.md", "--key", "README.md"], 2, "--signed"),
        (["--listen", "0.0.0.0:8081", "--signed"], 2, "--cert"),
        (["--listen", "nonsense"], 2, "HOST:PORT"),
        (["--cert", "nowhere.pem"], 2, "--key"),
        (["--cert", "nowhere.pem", "--key", "nowhere.key"], 2, "nowhere"),
        (["--cert", "README.md", "--key", "README.md"], 2, "README.md"),
    ],
)
async def test_what_cannot_be_is_said_in_a_line(words: list[str], code: int, about: str) -> None:
    process = await started(*words)
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, about in said.decode(), "Traceback" in said.decode()) == (code, True, False)


async def test_pages_for_monitoring() -> None:
    port = free_port()
    async with LocalBroker() as broker, running("-n", broker.nameserver, "--metrics", f"{HERE}:{port}") as _:
        async with asyncio.timeout(20):
            while (await page(f"{HERE}:{port}", "/readyz"))[0] != 200:
                await asyncio.sleep(0)
        assert "rmq_proxy_reaches_cluster" in (await page(f"{HERE}:{port}", "/metrics"))[1]


async def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind((HERE, 0))
        taken.listen()
        process = await started("--listen", f"{HERE}:{taken.getsockname()[1]}")
        _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert b"already in use" in said
    assert said.count(b"\n") == 1
