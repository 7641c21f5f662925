"""RocketMQ's C++ client signs its requests (F1). The library on PyPI speaks no TLS."""

from pathlib import Path

import pytest

from rmq.client import Tls
from rmq.client.admin import access, calls as admin
from rmq.net.commands import CreateAcl, CreateUser, UserInfo
from rmq.net.commands.access import AclInfo, Policy, PolicyEntry
from rmq.testing import LocalBroker, until
from tests.broker.test_access import SETTINGS, nameserver_permits
from tests.broker.test_tls import settings
from tests.certificates import Certificates
from tests.interop import cppclient
from tests.interop.program import Program

RIGHTS = {
    "cpp": [PolicyEntry("Topic:Signed", ["Pub", "Sub"]), PolicyEntry("Group:readers", ["Sub"])],
    "eve": [PolicyEntry("Topic:other", ["Pub"])],
}
SENDERS = {"good": ("cpp", "cpp-secret"), "guesser": ("eve", "guess"), "eve": ("eve", "eve-secret"), "nobody": ()}


async def test_cpp_signs_what_it_asks(tmp_path: Path) -> None:
    """On a port that takes TLS as well; who has a wrong secret, no right or no user sends nothing. Where a port takes TLS only
    nothing that it says is looked at."""
    if why := cppclient.install(tmp_path):
        pytest.skip(why)
    certs = Certificates(tmp_path)
    async with LocalBroker(**settings(certs, "permissive"), **SETTINGS) as broker:
        async with broker.client(tls=Tls(ca=certs.ca), user="root", password="root-secret") as client:
            await admin.update_topic(client, "Signed", broker=broker.address, read_queues=2, write_queues=2)
            for name, rights in RIGHTS.items():
                await access.change(client, "", broker.address, CreateUser(name, UserInfo(name, f"{name}-secret")))
                acl = AclInfo("", [Policy("Custom", rights)])
                await access.change(client, "", broker.address, CreateAcl(f"User:{name}", acl))
        await broker.clock.advance_until(lambda: nameserver_permits(broker, "eve"))
        programs = {name: await sender(tmp_path, broker, *who) for name, who in SENDERS.items()}
        reading = cppclient.command("consume", broker.nameserver, "readers", "Signed", "*", *SENDERS["good"])
        programs["reader"] = reader = await Program.start(reading, cppclient.environment(tmp_path))
        try:
            await until(lambda: len(programs["good"].got("SENT")) == 2, 90)
            for name in ("guesser", "eve", "nobody"):
                await until(lambda name=name: len(programs[name].got("REFUSED")) == 2, 90)  # type: ignore[misc]
            await until(lambda: {body for (body,) in reader.got("GOT")} == {"cpp-0", "cpp-1"}, 90)
        finally:
            for program in programs.values():
                await program.kill()
        assert not [name for name in ("guesser", "eve", "nobody") if programs[name].got("SENT")]


async def test_cpp_without_tls_where_a_port_takes_tls_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if why := cppclient.install(tmp_path):
        pytest.skip(why)
    async with LocalBroker(**settings(Certificates(tmp_path), "enforcing")) as broker:
        program = await sender(tmp_path, broker)
        try:
            await until(lambda: "speaks plain text" in caplog.text, 90)
        finally:
            await program.kill()
        assert not program.got("SENT")
        assert not broker.serving.tables.topics.get("Signed")


async def sender(home: Path, broker: LocalBroker, *who: str) -> Program:
    words = ("send", broker.nameserver, "cpp-producers", "Signed", "2", *who)
    return await Program.start(cppclient.command(*words), cppclient.environment(home))
