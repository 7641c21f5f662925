"""RocketMQ's signatures (F1), and the sealing of the secrets that they need. Pure.

HMAC needs the password itself; salted keys are not enough. So the log holds the password sealed (encrypted, then
authenticated) with a secret that all nodes share and no store holds. The cipher is HMAC-SHA256 as a stream, which the
standard library has.
"""

import base64
import hmac
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import sha1 as _sha1
from operator import itemgetter
from typing import Final

ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"
NONCE_BYTES: Final = 16
_TAG_BYTES: Final = 32
_BLOCK_BYTES: Final = 64  # of SHA-1
_MOST_KNOWN: Final = 4096  # letters of the names of one request's fields
sha1 = partial(_sha1, usedforsecurity=False)  # HMAC is safe with it all the same, and RocketMQ's clients have no other


def content(ext: Mapping[str, str], body: bytes) -> bytes:
    """The text that a request's signature signs [AclUtils.combineRequestContent]."""
    names = tuple(ext)
    in_order = _known_order if len("".join(names)) <= _MOST_KNOWN else _in_order
    return "".join(in_order(names)(ext)).encode() + body


def _in_order(names: tuple[str, ...]) -> Callable[[Mapping[str, str]], Iterable[str]]:
    signed = sorted(name for name in names if name != SIGNATURE)
    return itemgetter(*signed) if signed else lambda _: ()


_known_order = lru_cache(256)(_in_order)  # clients send the same fields again and again


def signature(secret: str, signed: bytes) -> str:
    """[AclSigner]"""
    return base64.b64encode(hmac.digest(secret.encode(), signed, "sha1")).decode()


class Signer:
    """Signs with one secret: HMAC (RFC 2104), whose key is hashed once and not for each request."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: str) -> None:
        key = secret.encode()
        key = (sha1(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(_BLOCK_BYTES, b"\0")
        self._inner, self._outer = (sha1(bytes(each ^ pad for each in key)) for pad in (0x36, 0x5C))

    def signature(self, signed: bytes) -> bytes:
        """In base64."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(signed)
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)


def is_signed(secret: str, ext: Mapping[str, str], body: bytes) -> bool:
    """In constant time."""
    said = ext.get(SIGNATURE, "").encode()
    return hmac.compare_digest(said, signature(secret, content(ext, body)).encode())


def seal(password: str, user: str, key: str, nonce: bytes) -> bytes:
    """Seals a password for that user only. `nonce`: NONCE_BYTES that are never used again."""
    plaintext = password.encode()
    hidden = bytes(a ^ b for a, b in zip(plaintext, _stream(key, nonce, len(plaintext)), strict=True))
    return nonce + hidden + _tag(key, user, nonce + hidden)


def unseal(sealed: bytes, user: str, keys: Sequence[str]) -> str | None:
    """The password; None if no key opens it, or if it was changed."""
    body, tag = sealed[:-_TAG_BYTES], sealed[-_TAG_BYTES:]
    for key in keys if len(sealed) >= NONCE_BYTES + _TAG_BYTES else ():
        if hmac.compare_digest(_tag(key, user, body), tag):
            hidden = body[NONCE_BYTES:]
            plaintext = bytes(a ^ b for a, b in zip(hidden, _stream(key, body[:NONCE_BYTES], len(hidden)), strict=True))
            return plaintext.decode()
    return None


def _stream(key: str, nonce: bytes, size: int) -> bytes:
    own = hmac.digest(key.encode(), b"rmq sealing", "sha256")
    blocks = [hmac.digest(own, nonce + index.to_bytes(4, "big"), "sha256") for index in range((size + 31) // 32)]
    return b"".join(blocks)[:size]


def _tag(key: str, user: str, body: bytes) -> bytes:
    own = hmac.digest(key.encode(), b"rmq seal check", "sha256")
    return hmac.digest(own, user.encode() + b"\0" + body, "sha256")
