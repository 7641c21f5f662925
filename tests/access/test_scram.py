"""SCRAM as RFC 7677 says, and secrets that lie sealed."""

import base64

import pytest

from rmq import scram
from rmq.access import sealing
from rmq.errors import BadBytes, InvalidArgument

CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def sides(
    password: str = "pencil", ours: bytes = b"", theirs: bytes = b"", kept: str = "pencil"
) -> tuple[scram.Client, scram.Server]:
    client = scram.Client("user", password, CLIENT_NONCE, ours)
    return client, scram.Server(scram.read_first(client.first), scram.keys_of(kept, SALT, 4096), SERVER_NONCE, theirs)


@pytest.mark.parametrize(("name", "secret"), [("\udcfc", "x"), ("a", "\udcfc")])
def test_what_is_no_text_is_no_name_and_no_password(name: str, secret: str) -> None:
    """As of an environment in Latin-1: commands ended as a bug (70)."""
    with pytest.raises(InvalidArgument, match="are UTF-8"):
        scram.Credentials(name, secret)


def test_the_example_of_rfc_7677() -> None:
    client, server = sides()
    final = client.answer(server.first)
    assert client.first == "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert final.endswith("p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    answer = server.check(final)
    assert answer == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.check(answer)


def test_another_password_proves_nothing() -> None:
    client, server = sides("pencils")
    assert server.check(client.answer(server.first)) is None


def test_a_server_without_the_keys_proves_nothing_either() -> None:
    client, server = sides()
    client.answer(server.first)
    with pytest.raises(BadBytes, match="does not know"):
        client.check("v=" + base64.b64encode(bytes(32)).decode())


def test_a_server_that_wants_more_than_anybody_does() -> None:
    """Python reads no number of more than 4 300 digits."""
    client, server = sides()
    with pytest.raises(BadBytes, match="iterations"):
        client.answer(server.first.replace("i=4096", "i=" + "9" * 5000))


def test_a_proof_is_for_one_connection() -> None:
    """Channel binding: who stands between two TLS connections cannot pass a proof on."""
    client, server = sides(ours=b"certificate", theirs=b"another certificate")
    assert server.check(client.answer(server.first)) is None
    client, server = sides(ours=b"certificate", theirs=b"certificate")
    assert server.check(client.answer(server.first))
    client, server = sides(ours=b"certificate")
    assert server.check(client.answer(server.first)) is None


def test_a_proof_does_not_serve_twice() -> None:
    client, server = sides()
    final = client.answer(server.first)
    again = scram.Server(scram.read_first(client.first), scram.keys_of("pencil", SALT, 4096), "another nonce")
    assert again.check(final) is None


@pytest.mark.parametrize(
    "text", ["", "n,,", "n,,n=,r=" + "x" * 20, "n,,n=u,r=short", "p=tls-unique,,n=u,r=" + "x" * 20, "x" * 5000]
)
def test_first_messages_that_mean_nothing(text: str) -> None:
    with pytest.raises(BadBytes):
        scram.read_first(text)


def test_a_signature_covers_every_field_and_the_body() -> None:
    """F1, as RocketMQ's AclClientRPCHook makes it."""
    ext = {"b": "topic", "a": "group", sealing.ACCESS_KEY: "bob"}
    signed = ext | {sealing.SIGNATURE: sealing.signature("secret", b"bobgrouptopicbody")}
    assert sealing.is_signed("secret", signed, b"body")
    assert not sealing.is_signed("secret", signed, b"bodY")
    assert not sealing.is_signed("secret", signed | {"c": "more"}, b"body")
    assert not sealing.is_signed("other", signed, b"body")
    assert not sealing.is_signed("secret", ext, b"body")


def test_a_sealed_secret_opens_with_the_key_alone() -> None:
    """S12: what lies in the log does not hold the password."""
    sealed = sealing.seal("canary-password-of-more-than-thirty-two-bytes", "bob", "key", bytes(16))
    assert b"canary" not in sealed
    assert sealing.unseal(sealed, "bob", ["new", "key"]) == "canary-password-of-more-than-thirty-two-bytes"
    assert sealing.unseal(sealed, "bob", ["new"]) is None
    assert sealing.unseal(sealed, "eve", ["key"]) is None
    assert sealing.unseal(sealed[:-1] + b"x", "bob", ["key"]) is None
    assert sealing.unseal(b"", "bob", ["key"]) is None
