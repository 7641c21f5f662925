"""Signed sends of a known shape are recognised without being parsed: exactly those that a closer look takes, and no other."""

import pytest

from rmq.access.sealing import ACCESS_KEY, SIGNATURE, Signer, content, is_signed, signature
from rmq.codes import ResponseCode
from rmq.errors import BadBytes, Refusal
from rmq.log.records import fastpath
from rmq.net.codec.frames import Received
from rmq.net.remoting.codec import Remoting, RemotingSettings
from rmq.net.remoting.headers import Header, write
from rmq.net.remoting.signed import Source
from tests.net.inplace import decode_amid

SECRET, USER = "a secret", "bob"
SIGNER = Signer(SECRET)


def frame(number: int, *, binary: bool, body: bytes = b"body", **fields: str) -> bytes:
    """As RocketMQ's Java client sends it."""
    ext = {
        **{"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": str(1_700_000_000_000 + number), "h": "0"},
        **{"i": f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02", "j": "0", "m": "false", "n": "b", ACCESS_KEY: USER},
        **fields,
    }
    ext[SIGNATURE] = signature(SECRET, content(ext, body))
    return write(binary, 310, 0, number, "", ext, body)[4:]


class Port:
    """The codec of one connection. `closely`: requests that were parsed and then looked at."""

    def __init__(self, recognises: bool) -> None:
        self.closely = 0
        self._recognises = recognises
        settings = RemotingSettings(fastpath, store_host=("127.0.0.1", 10911), signatures=self)
        self.codec: Remoting = settings.codec(("127.0.0.1", 50_000))

    def identify(self, header: Header, body: bytes, _source: Source) -> str:
        self.closely += 1
        if header.ext.get(ACCESS_KEY) != USER or not is_signed(SECRET, header.ext, body):
            raise Refusal(ResponseCode.NO_PERMISSION, "not signed")
        return USER

    def recognise(self, user: str, signed: bytes, said: bytes, _source: Source) -> str | None:
        return USER if self._recognises and user == USER and SIGNER.signature(signed) == said else None

    def said(self, data: bytes) -> object:
        """What it makes of a frame, without what differs in each object."""
        try:
            thing, call_id, oneway, context, size = self._decoded(data)
        except BadBytes:
            return "bad bytes"
        if isinstance(thing, Refusal):
            return thing.code, thing.remark, call_id
        return tuple(thing), call_id, oneway, getattr(context, "who", None), size  # type: ignore[arg-type]

    def _decoded(self, data: bytes) -> Received:
        return decode_amid(self.codec, data, data)


@pytest.mark.parametrize("binary", [False, True])
def test_the_second_send_of_a_shape_is_recognised(binary: bool) -> None:
    quick, slow = Port(True), Port(False)
    for number in range(1, 30):
        data = frame(number, binary=binary, body=b"x" * number)
        assert quick.said(data) == slow.said(data)
    assert (quick.closely, slow.closely) == (1, 29)
    quick.said(frame(99, binary=binary, e="3"))
    quick.said(frame(100, binary=binary, e="3"))
    assert quick.closely == 2, "another queue has another shape"


@pytest.mark.parametrize("binary", [False, True])
def test_whatever_is_changed_in_a_request_is_found_as_by_a_close_look(binary: bool) -> None:
    """Each byte of header and body in turn, and headers that only look alike."""
    quick, slow = Port(True), Port(False)
    quick.said(frame(1, binary=binary))
    good = frame(2, binary=binary)
    assert quick.said(good) == slow.said(good)
    assert quick.closely == 1
    taken = 0
    for at in range(len(good)):
        for change in (1, 0x10):
            bad = good[:at] + bytes((good[at] ^ change,)) + good[at + 1 :]
            said = quick.said(bad)
            assert said == slow.said(bad), at
            taken += isinstance(said, tuple) and isinstance(said[0], tuple)
    assert taken < len(good) / 2, "names of fields, opaque, version and language are not signed"
    for odd in (
        frame(3, binary=binary, g="0001700000000003"),
        frame(4, binary=binary, i='"Signature":"' + "A" * 28),
        frame(5, binary=binary, i="\0\tSignature\0\0\0\x1c" + "A" * 28),
        frame(6, binary=binary, i="ü\x01\\u0001\x02"),
        frame(7, binary=binary, AccessKey="eve"),
        frame(8, binary=binary, aa="more", zz="fields"),
        frame(9, binary=binary, body=b""),
    ):
        for _ in range(2):
            assert quick.said(odd) == slow.said(odd)


def test_the_signer_signs_as_hmac_does() -> None:
    for secret in ("", "short", "x" * 64, "ü" * 100):
        for text in (b"", b"text", b"x" * 1000):
            assert Signer(secret).signature(text).decode() == signature(secret, text)
