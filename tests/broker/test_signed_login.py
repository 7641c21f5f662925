"""Logins by a signature, as proxies do them for RocketMQ's gRPC clients: S1, S2, S12."""

import gc
import hmac
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.access.sealing import ACCESS_KEY, SIGNATURE, content, sha1, signature
from rmq.codes import ResponseCode
from rmq.errors import LOG_IN_AGAIN, Refusal
from rmq.net.commands import BeginLogin, DeleteUser, GetMaxOffset, SignedLogin, UpdateTopic, UpdateUser, UserInfo
from rmq.net.commands.access import PolicyEntry
from rmq.testing import LocalBroker
from rmq.throttle import FREE
from tests.broker.support import Peer
from tests.broker.test_access import SENT, SETTINGS, Signer, asked, login, make_user
from tests.broker.test_tls import settings
from tests.certificates import Certificates

NO = ResponseCode.NO_PERMISSION


def claim(user: str, secret: str, time: str = "20261128T120000Z") -> SignedLogin:
    return SignedLogin(user, time, hmac.digest(secret.encode(), time.encode(), sha1))


@pytest.fixture
async def local() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(**SETTINGS) as broker:
        root = await login(broker, "root", "root-secret")
        for user in ("a", "b"):
            await root.ask(UpdateTopic(user))
            await make_user(root, user, PolicyEntry(f"Topic:{user}", ["Pub", "Sub", "Get"]))
        await root.close()
        yield broker


@pytest.fixture
async def peer(local: LocalBroker) -> AsyncIterator[Peer]:
    peer = await login(local, "", "")
    yield peer
    await peer.close()


async def test_the_connection_is_the_last_user_who_signed(peer: Peer) -> None:
    for user, other in ("ab", "ba", "ab"):
        await peer.ask(claim(user, f"{user}-secret"))
        await peer.ask(GetMaxOffset(user, 0))
        assert await peer.refusal(GetMaxOffset(other, 0)) == NO


async def test_a_wrong_signature_changes_nothing(peer: Peer) -> None:
    """Who has logged in stays so: a proxy hears many."""
    await peer.ask(claim("a", "a-secret"))
    for wrong in (
        claim("a", "b-secret"),
        claim("b", "a-secret"),
        claim("nobody", "x"),
        SignedLogin("a", "20261128T120000Z", b""),
    ):
        assert await peer.refusal(wrong) == NO
    await peer.ask(GetMaxOffset("a", 0))


async def test_nodes_do_not_log_in_so(peer: Peer) -> None:
    assert await peer.refusal(claim("node", "node-secret")) == NO


@pytest.mark.parametrize("time", ["20261128T120000Z", "2026-11-28T12:00:00Z", "2026-11-28T12:00:00.123456789+01:00"])
async def test_times_as_clients_write_them(peer: Peer, time: str) -> None:
    await peer.ask(claim("a", "a-secret", time))


@pytest.mark.parametrize("text", ["", "now", "a", "20261128T120000Z a", "9" * 60, "20261128T120000Z\n", "x" * 100_000])
async def test_nothing_else_is_taken_for_a_time(peer: Peer, text: str) -> None:
    assert await peer.refusal(claim("a", "a-secret", text)) == ResponseCode.INVALID_PARAMETER


async def test_the_signature_of_a_request_is_no_login(peer: Peer) -> None:
    """Whoever reads a request of RocketMQ's remoting clients could send it again, and no more than that."""
    fields = {ACCESS_KEY: "a", "topic": "20261128T120000Z"}
    signed = content(fields, b"")
    fields[SIGNATURE] = signature("a-secret", signed)
    digest = hmac.digest(b"a-secret", signed, sha1)
    assert await peer.refusal(SignedLogin("a", signed.decode(), digest)) == ResponseCode.INVALID_PARAMETER


async def test_guesses_slow_down_others_but_not_who_is_here(local: LocalBroker, peer: Peer) -> None:
    await peer.ask(claim("a", "a-secret"))
    guesser = await login(local, "", "")
    for _ in range(FREE + 2):
        assert await guesser.refusal(claim("a", "wrong")) == NO
    with pytest.raises(Refusal, match="too many failed logins"):
        await guesser.ask(claim("a", "a-secret"))
    await peer.ask(claim("a", "a-secret", "20261128T120001Z"))
    await local.clock.advance(2)
    await guesser.ask(claim("a", "a-secret"))
    await guesser.close()


async def test_another_password_or_none_ends_it(local: LocalBroker, peer: Peer) -> None:
    root = await login(local, "root", "root-secret")
    await peer.ask(claim("a", "a-secret"))
    await root.ask(UpdateUser("a", UserInfo("a", "new-secret")))
    with pytest.raises(Refusal, match=LOG_IN_AGAIN):
        await peer.ask(GetMaxOffset("a", 0))
    assert await peer.refusal(claim("a", "a-secret")) == NO
    await peer.ask(claim("a", "new-secret"))
    await peer.ask(GetMaxOffset("a", 0))
    await root.ask(DeleteUser("a"))
    assert await peer.refusal(GetMaxOffset("a", 0)) == NO
    await root.close()


async def test_inside_tls_only_where_the_rules_say_so(tmp_path: Path) -> None:
    certs = Certificates(tmp_path)
    async with LocalBroker(**SETTINGS, **settings(certs, "permissive"), signed_in_tls_only=True) as broker:
        plain = await Peer.connect(broker.address)
        with pytest.raises(Refusal, match="inside TLS only"):
            await plain.ask(claim("root", "root-secret"))
        await plain.close()
        inside = await Peer.connect(broker.address, tls=certs.tls())
        await inside.ask(claim("root", "root-secret"))
        await inside.close()


async def test_a_broker_without_users_knows_no_logins() -> None:
    async with LocalBroker() as broker:
        peer = await Peer.connect(broker.address)
        assert await peer.refusal(claim("a", "a-secret")) == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        await peer.close()


async def test_a_name_that_nobody_has_is_not_kept(local: LocalBroker, peer: Peer) -> None:
    """Ten thousand names of failed logins are kept, to slow down who guesses: a stranger could give each 2 MiB."""
    long = "n" * 50_000
    greeting = BeginLogin(f"n,,n={'n' * 300},r={'r' * 20}")
    signer = Signer(local.address, long, "x")
    for _ in range(FREE + 2):
        for request in (claim(long, "x"), greeting):
            with pytest.raises(Refusal, match="no user has a name of") as refused:
                await peer.ask(request)
            assert refused.value.code == NO
        code, why, _ = await asked(signer, 310, SENT)
        assert (code, why) == (NO, "no user has a name of 50000 characters")
    signer.close()


async def test_long_names_of_fields_are_not_kept(local: LocalBroker) -> None:
    """The order in which the fields of 256 requests are signed is."""
    signer = Signer(local.address, "a", "a-secret")
    tracemalloc.start()
    for number in range(20):
        assert (await asked(signer, 30, {"topic": "a", "queueId": "0", f"{number}-{'x' * 100_000}": ""}))[0] == 0
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    signer.close()
    assert kept < 1_000_000
