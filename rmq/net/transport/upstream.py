"""A connection to another node on which one client's requests are forwarded, in RocketMQ's codec and as they came.

Cuts frames and reads their headers; other files know what they mean.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from rmq.errors import BadBytes
from rmq.net.codec.limits import Limits
from rmq.net.remoting.headers import Header, read

_LENGTH_BYTES = 4


class Upstream(asyncio.Protocol):
    """`received(header, frame)`: each whole frame, with its length. `lost()`: once, when the connection is no more."""

    def __init__(self, limits: Limits, received: Callable[[Header, bytes], None], lost: Callable[[], None]) -> None:
        self._limits = limits
        self._received = received
        self._lost = lost
        self._rest = bytearray()
        self._transport: asyncio.Transport | None = None

    @property
    def unread_bytes(self) -> int:
        """What was written and not taken by the other node's machine yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def write(self, frame: bytes) -> None:
        """A frame as `decode` of a codec gets it, without its length. Nothing happens after the connection ended."""
        if self._transport is not None:
            self._transport.write(len(frame).to_bytes(_LENGTH_BYTES, "big") + frame)

    def write_whole(self, frame: bytes) -> None:
        """The same for a frame that has its length."""
        if self._transport is not None:
            self._transport.write(frame)

    def close(self) -> None:
        """After closing nothing is called any more, not even `lost`."""
        self._forget()
        self._abort()

    # --- asyncio's protocol -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        try:
            while (frame := self._next()) is not None:
                header, _ = read(frame[_LENGTH_BYTES:], self._limits.max_header_bytes)
                self._received(header, frame)
        except BadBytes:
            self._abort()

    def _next(self) -> bytes | None:
        """Raises BadBytes."""
        rest = self._rest
        if len(rest) < _LENGTH_BYTES:
            return None
        stop = _LENGTH_BYTES + int.from_bytes(rest[:_LENGTH_BYTES], "big")
        if stop > self._limits.max_frame_bytes:
            raise BadBytes(f"a frame of {stop} bytes")
        if len(rest) < stop:
            return None
        frame = bytes(rest[:stop])
        del rest[:stop]
        return frame

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        lost = self._lost
        self._forget()
        lost()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _forget(self) -> None:
        """Who listens, too: it knows this one, and the collector may leave such circles there for hours."""
        self._received, self._lost = _unheard, _nobody


def _unheard(_header: Header, _frame: bytes) -> None:
    pass


def _nobody() -> None:
    pass
