"""Bytes to commands: cuts what a socket brought into frames and hands them to the codec the peer speaks.

The codec of a connection follows from the byte after the first length: 0 or 1 is RocketMQ's remoting, the head
of a msgpack array is ours (see docs/protocol). Pure: fed with bytes, in any pieces; no socket, no clock.
"""

from collections.abc import Callable
from struct import Struct

from rmq.errors import BadBytes
from rmq.net.codec.frames import Codec, Received
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import Native

_LENGTH = Struct(">I")
_TELLING_BYTES = 5  # the length and the byte behind it
_OTHER_PROTOCOLS = {
    b"\x16\x03": "TLS",
    b"PR": "HTTP/2 or a PROXY header",
    b"GE": "HTTP",
    b"PO": "HTTP",
    b"HE": "HTTP",
    b"\r\n": "PROXY",
}


class Reader:
    """Takes the bytes of one connection and returns its commands; keeps at most one begun frame.

    `remoting` makes the remoting codec of this connection when its peer turns out to speak it; without it only the
    native codec is understood.
    """

    __slots__ = ("_limits", "_native", "_needed", "_remoting", "_rest", "codec")

    def __init__(self, limits: Limits, native: Native, remoting: Callable[[], Codec] | None = None) -> None:
        self._limits = limits
        self._native = native
        self._remoting = remoting
        self._rest = bytearray()
        self._needed = _TELLING_BYTES
        self.codec: Codec | None = None

    @property
    def half_frame_bytes(self) -> int:
        """How much of a begun frame is kept."""
        return len(self._rest)

    def feed(self, data: memoryview) -> list[Received]:
        """Every command that is complete now, in order. Raises BadBytes when the connection must be closed.

        `data` may be overwritten afterwards: nothing returned refers to it.
        """
        if not self._rest:
            received, taken = self._cut(bytes(data))
            if taken < len(data):
                self._rest += data[taken:]
            return received
        self._rest += data
        if len(self._rest) < self._needed:
            return []
        received, taken = self._cut(bytes(self._rest))
        if taken:
            self._rest = self._rest[taken:]
        return received

    def _cut(self, data: bytes) -> tuple[list[Received], int]:
        """The commands at the beginning of `data` and how many bytes they took."""
        received: list[Received] = []
        at, end, longest = 0, len(data), self._limits.max_frame_bytes - 4
        codec = self.codec
        self._needed = _TELLING_BYTES
        while end - at >= _TELLING_BYTES:
            (length,) = _LENGTH.unpack_from(data, at)
            if not 0 < length <= longest:
                raise BadBytes(_bad_length(data[at : at + 4], length, longest))
            if codec is None:
                codec = self.codec = self._tell(data[at + 4])
            stop = at + 4 + length
            if stop > end:
                self._needed = stop - at
                break
            received.append(codec.decode(data[at + 4 : stop]))
            at = stop
        return received, at

    def _tell(self, first: int) -> Codec:
        if 0x90 <= first <= 0x9F or first in (0xDC, 0xDD):
            return self._native
        if first <= 1 and self._remoting is not None:
            return self._remoting()
        raise BadBytes(f"the first frame begins with byte 0x{first:02x}: neither a native nor a remoting command")


def _bad_length(head: bytes, length: int, longest: int) -> str:
    protocol = _OTHER_PROTOCOLS.get(head[:2])
    if protocol is not None:
        return f"the peer speaks {protocol}, this port does not"
    return f"a frame of {length} bytes; 1 to {longest} are allowed"
