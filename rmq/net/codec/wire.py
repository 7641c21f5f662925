"""Bytes to commands: cuts what a socket brought into frames and hands them to the codec the peer speaks.

The codec of a connection follows from the byte after the first length: 0 or 1 is RocketMQ's remoting, the head
of a msgpack array is ours (see docs/protocol). Pure: fed with bytes, in any pieces; no socket, no clock.
"""

from collections.abc import Callable
from struct import Struct

from rmq.errors import BadBytes
from rmq.net.codec.frames import Codec, Received, decode_frame
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import Native, send_answers

_length_at = Struct(">I").unpack_from
_TELLING_BYTES = 5  # the length and the byte behind it
_SMALL_BYTES = 4096  # shorter pieces of a frame are joined when they come: each object takes more memory than a few bytes
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

    __slots__ = ("_longest", "_native", "_needed", "_pieces", "_remoting", "codec", "half_frame")

    def __init__(self, limits: Limits, native: Native, remoting: Callable[[], Codec] | None = None) -> None:
        self._longest = limits.max_frame_bytes - 4
        self._native = native
        self._remoting = remoting
        self._needed = _TELLING_BYTES
        self.codec: Codec | None = None
        self.half_frame = 0  # bytes that came of a frame whose end is missing
        self._pieces: list[bytes | bytearray] = []  # these bytes

    def feed(self, data: bytes) -> list[Received]:
        """Every command that is complete now, in order. Raises BadBytes when the connection must be closed."""
        received: list[Received] = []
        codec, begun = self.codec, self.half_frame
        if begun:
            missing = self._needed - begun
            if len(data) < missing:
                self._keep(data)
                return []
            first, *others = self._pieces
            self._pieces, self.half_frame = [], 0
            if codec is not None and self._needed > _TELLING_BYTES:  # it may be large: it is copied once
                frame = b"".join((memoryview(first)[4:], *others, memoryview(data)[:missing]))
                received.append(decode_frame(codec, frame))
                data = data[missing:]
            else:
                data = b"".join((first, *others, data))
        at, end = 0, len(data)
        while end - at >= _TELLING_BYTES:
            (length,) = _length_at(data, at)
            begin = at + 4
            stop = begin + length
            if not 0 < length <= self._longest:
                raise _bad_length(data[at:begin], length, self._longest)
            if codec is None:
                codec = self.codec = self._tell(data[begin])
            if stop > end:
                self._needed = stop - at
                break
            if end - stop >= 2 * (length + 4) and _length_at(data, stop)[0] == length:
                alike = codec.alike(data, at, length)
                if alike:
                    received += alike
                    at += len(alike) * (length + 4)
                    continue
            received.append(codec.decode(data, begin, stop))
            at = stop
        else:
            self._needed = _TELLING_BYTES
        if at < end:
            self._keep(data[at:])
        return received

    def _keep(self, piece: bytes) -> None:
        """Of a frame whose end is missing."""
        self.half_frame += len(piece)
        if len(piece) >= _SMALL_BYTES:
            self._pieces.append(piece)
        elif self._pieces and isinstance(last := self._pieces[-1], bytearray):
            last += piece
        else:
            self._pieces.append(bytearray(piece))

    def _tell(self, first: int) -> Codec:
        if 0x90 <= first <= 0x9F or first in (0xDC, 0xDD):
            return self._native
        if first <= 1 and self._remoting is not None:
            return self._remoting()
        raise BadBytes(f"the first frame begins with byte 0x{first:02x}: neither a native nor a remoting command")


class AnswerReader(Reader):
    """Of a connection that asks: most of what comes, where many send, are good answers to sends, one behind the other."""

    __slots__ = ()

    def feed(self, data: bytes) -> list[Received]:
        if self.half_frame:
            return super().feed(data)
        received, at = send_answers(data)
        return received + super().feed(data[at:]) if at < len(data) else received


class OtherProtocol(BadBytes):
    """The peer takes this port for another one."""


def _bad_length(head: bytes, length: int, longest: int) -> BadBytes:
    protocol = _OTHER_PROTOCOLS.get(head[:2])
    if protocol is not None:
        return OtherProtocol(f"the peer speaks {protocol}, this port does not")
    return BadBytes(f"a frame of {length} bytes; 1 to {longest} are allowed")
