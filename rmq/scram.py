"""SCRAM-SHA-256 (RFC 5802, RFC 7677): a client proves that it knows a password without telling it. Pure: nonces come in.

Messages are the text of the RFC. `cbind`: what binds the proof to the TLS connection under it; b"" where there is none.
"""

import base64
import binascii
import hashlib
import hmac
from functools import lru_cache
from typing import Final, NamedTuple

from rmq.errors import BadBytes, InvalidArgument, sayable

ITERATIONS: Final = 16_384
_MOST_ITERATIONS: Final = 1_000_000  # a server could make its clients calculate for hours
_MOST_CHARACTERS: Final = 4096
BINDING: Final = "tls-server-end-point"  # RFC 5929


class Credentials:
    """A name and its secret, which no repr tells (S12). Raises InvalidArgument for what was no UTF-8, and so is no text."""

    __slots__ = ("name", "secret")

    def __init__(self, name: str, secret: str) -> None:
        if sayable(name + secret) != name + secret:
            raise InvalidArgument(f"user {sayable(name)}: a name and a password are UTF-8, and one of these was not")
        self.name = name
        self.secret = secret

    def __repr__(self) -> str:
        return f"Credentials({self.name!r})"


class Keys(NamedTuple):
    """What a server keeps: enough to check a proof, not enough to make one. The field order is that of the state record."""

    salt: bytes
    iterations: int
    stored: bytes
    server: bytes


def keys_of(password: str, salt: bytes, iterations: int = ITERATIONS) -> Keys:
    """Takes some 10 ms: call it in a thread."""
    _, stored, server = _derived(password, salt, iterations)
    return Keys(salt, iterations, stored, server)


@lru_cache(64)  # who dials again and again, as nodes do, calculates once
def _derived(password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes, bytes]:
    """Client key, stored key, server key."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client = _hmac(salted, b"Client Key")
    return client, hashlib.sha256(client).digest(), _hmac(salted, b"Server Key")


class Client:
    """One login: `first`, then `answer(server_first)`, then `check(server_final)`. `stripped`: this side could bind, but the
    other side said that it cannot."""

    def __init__(self, user: str, password: str, nonce: str, cbind: bytes = b"", stripped: bool = False) -> None:
        self._password = password
        self._nonce = nonce
        self._head = f"p={BINDING},," if cbind else "y,," if stripped else "n,,"
        self._cbind = cbind
        self._bare = f"n={_escaped(user)},r={nonce}"
        self.first = self._head + self._bare
        self._signature = b""

    def answer(self, server_first: str) -> str:
        """The last message of the client. Takes as long as `keys_of`. Raises BadBytes for a server that does not speak SCRAM."""
        fields = _fields(server_first)
        nonce, salt, iterations = fields.get("r", ""), _unbase64(fields.get("s", "")), fields.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise BadBytes("the server's nonce does not begin with ours")
        if not iterations.isdecimal() or len(iterations) > 9 or not 4096 <= int(iterations) <= _MOST_ITERATIONS or len(salt) < 8:
            raise BadBytes(f"a salt of {len(salt)} bytes, {iterations[:20]} iterations; 8 and 4096 are the least")
        client, stored, server = _derived(self._password, salt, int(iterations))
        channel = base64.b64encode(self._head.encode() + self._cbind).decode()
        bare = f"c={channel},r={nonce}"
        whole = f"{self._bare},{server_first},{bare}".encode()
        self._signature = _hmac(server, whole)
        proof = bytes(a ^ b for a, b in zip(client, _hmac(stored, whole), strict=True))
        return f"{bare},p={base64.b64encode(proof).decode()}"

    def check(self, server_final: str) -> None:
        """Raises BadBytes unless the server knows the password's keys too."""
        verifier = _unbase64(_fields(server_final).get("v", ""))
        if not self._signature or not hmac.compare_digest(verifier, self._signature):
            raise BadBytes("the server does not know this password: it is not the one it says it is")


class Greeting(NamedTuple):
    """The client's first message. `head`: what it says of channel binding; `bare`: the rest, as it came."""

    user: str
    nonce: str
    head: str
    bare: str

    @property
    def binds(self) -> bool:
        return self.head.startswith("p=")


def read_first(text: str) -> Greeting:
    """Raises BadBytes."""
    head, comma, bare = text.partition(",,")
    fields = _fields(bare)
    user, nonce = fields.get("n", ""), fields.get("r", "")
    if len(text) > _MOST_CHARACTERS or not comma or not user or len(nonce) < 16:
        raise BadBytes("the first message of SCRAM names no user, or has a nonce of less than 16 characters")
    if head not in ("n", "y", f"p={BINDING}"):
        raise BadBytes(f"channel binding {head[:40]!r} is not known; n, y and p={BINDING} are")
    return Greeting(user.replace("=2C", ",").replace("=3D", "="), nonce, head + ",,", bare)


class Server:
    """The other side of one login. `keys` of a user that does not exist may be any: then nothing proves it. `cbind`: of the TLS
    connection under this one, b"" without. `can_bind`: connections of this side are in TLS, or may be."""

    def __init__(self, greeting: Greeting, keys: Keys, nonce: str, cbind: bytes = b"", can_bind: bool = False) -> None:
        self.user = greeting.user
        self.stored = keys.stored
        self._greeting = greeting
        self._keys = keys
        self._nonce = greeting.nonce + nonce
        self._cbind = cbind
        self._can_bind = can_bind or bool(cbind)
        salt = base64.b64encode(keys.salt).decode()
        self.first = f"r={self._nonce},s={salt},i={keys.iterations}"

    def check(self, client_final: str) -> str | None:
        """The server's last message; None if nothing was proven."""
        bare, comma, proof_text = client_final.rpartition(",p=")
        fields = _fields(bare)
        head = self._greeting.head
        bound = self._cbind if self._greeting.binds else b""
        try:
            proof, channel = _unbase64(proof_text), _unbase64(fields.get("c", ""))
        except BadBytes:
            return None
        unbound = self._greeting.binds and not self._cbind
        stripped = head.startswith("y") and self._can_bind  # somebody told the client that we cannot bind
        if not comma or unbound or stripped or fields.get("r") != self._nonce or channel != head.encode() + bound:
            return None
        whole = f"{self._greeting.bare},{self.first},{bare}".encode()
        signature = _hmac(self.stored, whole)
        if len(proof) != len(signature):
            return None
        client = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not self.stored or not hmac.compare_digest(hashlib.sha256(client).digest(), self.stored):
            return None
        return "v=" + base64.b64encode(_hmac(self._keys.server, whole)).decode()


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _escaped(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _fields(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadBytes("a message of SCRAM holds something that is not base64") from None
