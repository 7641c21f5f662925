"""Users inside TLS: logins are bound to it, signatures count inside TLS only; and users are switched on step by step."""

import asyncio
from typing import Any

import pytest

from rmq.client import Message, Tls
from rmq.codes import ResponseCode
from rmq.config.loading import Entry, load
from rmq.config.settings import NodeSettings
from rmq.errors import InvalidArgument, Refusal
from rmq.net.commands import Hello, UpdateTopic
from rmq.net.commands.access import PolicyEntry
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.network import network_with
from rmq.net.transport.tls import dialling, listening
from rmq.scram import Credentials
from rmq.testing import LocalBroker
from tests.broker.support import Peer, send
from tests.broker.test_access import SENT, SETTINGS, Signer, asked, login, make_user, nameserver_permits
from tests.broker.test_tls import settings
from tests.certificates import HERE, Certificates
from tests.relaying import relay


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.made["between"] = made.authority.issue("between", HERE)  # of somebody in between whom everybody trusts
    return made


async def login_inside(local: LocalBroker, address: str, tls: Tls, name: str = "root", password: str = "root-secret") -> Peer:
    dialer = Dialer(local.clock, network_with(tls, local.clock), credentials=Credentials(name, password))
    pushed: list[Any] = []
    return Peer(await dialer.open(address, Hello(1, name), pushed.append), pushed)


async def test_a_login_does_not_pass_through_somebody_in_between(certs: Certificates) -> None:
    """S1: his certificate may be taken; the login is bound to the certificate that the broker shows (RFC 5929), and telling our
    client that the broker cannot bind does not help."""
    trusted = certs.tls()
    async with LocalBroker(**settings(certs, "permissive", **SETTINGS)) as local:
        peer = await login_inside(local, local.address, trusted)
        await peer.ask(UpdateTopic("T"))
        await peer.channel.login(Credentials("root", "root-secret"), 5.0)  # again, on demand
        await peer.close()
        for back in (trusted, None):
            async with relay(local.address, listening(certs.tls("between")), back and dialling(back)) as address:
                with pytest.raises(Refusal, match="cannot log in"):
                    await login_inside(local, address, trusted)


async def test_a_proxy_may_end_tls_before_a_node_that_takes_none(certs: Certificates) -> None:
    async with LocalBroker(**SETTINGS) as local, relay(local.address, listening(certs.tls("between"))) as address:
        peer = await login_inside(local, address, certs.tls())
        await peer.ask(UpdateTopic("T"))
        await peer.close()


async def test_signatures_count_inside_tls_only(certs: Certificates) -> None:
    """What is signed can be sent again by who reads it. Native logins are not concerned, nor what nodes forward."""
    async with LocalBroker(**settings(certs, "permissive", signed_in_tls_only=True, **SETTINGS)) as local:
        root = await login(local, "root", "root-secret")
        await root.ask(UpdateTopic("T"))
        await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub"]))
        plain, inside = Signer(local.address, "bob", "bob-secret"), Signer(local.address, "bob", "bob-secret")
        await asyncio.to_thread(inside.encrypt, dialling(certs.tls()))
        code, remark, _ = await asked(plain, 310, SENT, b"body")
        assert (code, "inside TLS only" in remark) == (ResponseCode.NO_PERMISSION, True)
        assert (await asked(inside, 310, SENT, b"body"))[0] == 0
        await root.send(send("T"))
        for each in (plain, inside):
            each.close()
        await root.close()
    with pytest.raises(InvalidArgument, match="takes no TLS"):
        NodeSettings(role="nameserver", signed_in_tls_only=True, **SETTINGS)


async def test_a_client_with_tls_and_a_user(certs: Certificates) -> None:
    async with LocalBroker(**settings(certs, "enforcing", **SETTINGS)) as local:
        root = await login_inside(local, local.address, certs.tls())
        await root.ask(UpdateTopic("T"))
        await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub", "Sub"]), PolicyEntry("Group:g", ["Sub"]))
        await local.clock.advance_until(lambda: nameserver_permits(local, "bob"))
        async with local.client(tls=certs.tls(), user="bob", password="bob-secret") as client, client.producer() as producer:
            await producer.send(Message("T", b"hello"))
            async with client.consumer("g", "T", start="first") as consumer:
                assert (await anext(consumer)).body == b"hello"
        await root.close()


async def test_while_a_login_is_optional_everybody_is_served(caplog: pytest.LogCaptureFixture) -> None:
    """Who logs in, or signs, is looked at already; of who does not operators hear, once for each connection."""
    async with LocalBroker(login_optional=True, **SETTINGS) as local:
        root, stranger = await login(local, "root", "root-secret"), await login(local, "", "")
        await root.ask(UpdateTopic("T"))
        await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub"]))
        bob, unsigned, forged = await login(local, "bob", "bob-secret"), Signer(local.address), Signer(local.address, "bob", "no")
        assert "does not log in" not in caplog.text
        await stranger.send(send("T"), send("other"))
        await bob.send(send("T"))
        assert await bob.refusal(send("other")) == ResponseCode.NO_PERMISSION
        assert (await asked(unsigned, 310, SENT, b"body"))[0] == 0
        assert (await asked(forged, 310, SENT, b"body"))[0] == ResponseCode.NO_PERMISSION
        with pytest.raises(Refusal, match="wrong password"):
            await login(local, "bob", "wrong")
        assert caplog.text.count("client of  at 127.0.0.1 does not log in") == 1
        families = {family.name: family for family in local.serving.metrics()}
        assert [value for _, value in families["rmq_unproven_connections"].rows] >= [2.0]
        for each in (unsigned, forged):
            each.close()
        for peer in (root, stranger, bob):
            await peer.close()


def test_an_optional_login_is_an_open_door() -> None:
    """S1"""
    flags = [
        Entry("listen_host", "0.0.0.0", "--listen"),
        Entry("advertised_host", "10.0.0.1", "--advertise"),
        Entry("authentication", "true", "--set"),
        Entry("node_credentials", SETTINGS["node_credentials"], "file"),
    ]
    assert load(env={}, flags=flags).settings.authentication
    with pytest.raises(InvalidArgument, match="does not ask who comes"):
        load(env={}, flags=[*flags, Entry("login_optional", "true", "--set")])
