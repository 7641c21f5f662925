"""Signed sends of a known shape: finds the signed content without parsing them [AclUtils.combineRequestContent].

Each request has another signature, so a shape (`shapes`) is learnt and found with a blank signature in its place. Pure.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from rmq.net.remoting.headers import Ext

ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"
_BYTES: Final = 28  # length of a signature: 20 bytes in base64
_BLANK: Final = "A" * _BYTES
_BLANK_BYTES: Final = _BLANK.encode()
_MARKS: Final = (b'"Signature":"', b"\0\tSignature\0\0\0\x1c")  # the bytes before it in a JSON and in a binary header


class Source:
    """Where the requests of a connection come from. `proven`: the user whose signature was right here last."""

    __slots__ = ("host", "proven")

    def __init__(self, host: str) -> None:
        self.host = host
        self.proven = ""


Recognise = Callable[[str, bytes, bytes, Source], object]
"""Who signed, given the name, the signed content, the signature and the source; None: parse the request."""


class Signing(NamedTuple):
    """For one shape: who signs, and the signed values before the born time, between it and the properties, and after those."""

    user: str
    before: bytes
    between: bytes
    behind: bytes

    def content(self, born_timestamp: int, properties: bytes, body: bytes) -> bytes:
        return b"".join((self.before, b"%d" % born_timestamp, self.between, properties, self.behind, body))


def signing_of(ext: Ext) -> Signing | None:
    """The signing of a send; None if it is not signed, or has long field names."""
    if not {ACCESS_KEY, SIGNATURE, "g", "i"} <= ext.keys():
        return None
    names = sorted(ext.keys() - {SIGNATURE})
    born, properties = names.index("g"), names.index("i")
    parts = names[:born], names[born + 1 : properties], names[properties + 1 :]
    return Signing(ext[ACCESS_KEY], *("".join(map(ext.__getitem__, part)).encode() for part in parts))


def blanked(frame: bytes, stop: int) -> tuple[bytes, bytes] | None:
    """The frame up to `stop`, the end of its header, with a blank signature; and the signature. None if there is none."""
    if frame[0] >= len(_MARKS):
        return None
    mark = _MARKS[frame[0]]
    at = frame.find(mark, 4, stop)
    if at < 0:
        return None
    begin = at + len(mark)
    end = begin + _BYTES
    return b"".join((frame[:begin], _BLANK_BYTES, frame[end:stop])), frame[begin:end]


def blank(ext: Ext) -> Ext:
    return ext | {SIGNATURE: _BLANK}
