"""One connection in both directions: reads bursts, writes bursts, asks the peer and matches its answers.

`server.Connection` and `channel.Channel` are links that know what to do with what arrives. Nothing here knows what a
command means or who may send it.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Any, Final, cast

from rmq.clock import Clock
from rmq.errors import BadBytes, Refusal, RmqError, Unknown, Unreachable
from rmq.net.codec.frames import Address, AnswerFrame, Codec, Received
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import read_answer
from rmq.net.codec.wire import Reader
from rmq.net.commands import Answer, Request, SendAnswer
from rmq.net.transport.requestlog import request_id
from rmq.net.transport.tls import end_point_of

_JOINED_BYTES: Final = 16 * 1024  # more than that costs more to copy than to hand over piece by piece
_MOST_PIECES: Final = 1024  # that the system takes at once

_Waiting = tuple["asyncio.Future[Answer]", type[Request], float]
"""The answer to come, what it answers, until when (monotonic s)."""
_ENDED = "it ended"


class Link(asyncio.Protocol):
    """Subclasses implement `_made`, `_handle`, `_gone`. Times are seconds on `clock.monotonic`."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._now = clock.monotonic
        self._loop = asyncio.get_running_loop()
        self._reader: Reader
        self._codec: Codec
        self._transport: asyncio.Transport | None = None
        self._lost = False
        self._ended = False  # our half of the connection is closed
        self._why = _ENDED
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._queued_bytes = limits.max_out_bytes  # more leaves before the end of the turn
        self._flush_due = False
        self._waiting: dict[int, _Waiting] = {}
        self._last_id = 0
        self._written_id = 0
        self.last_read = self._half_frame_since = clock.monotonic()  # when the peer's bytes came last
        self.write_paused_since: float | None = None  # the other side does not keep up
        self._reading = True
        self._rests = False
        self.peer: Address = ("", 0)
        self.local: Address = ("", 0)
        self._plain = -1  # the descriptor of a socket whose bytes are ours as they are

    # --- for subclasses -----------------------------------------------------------------------------------------------

    def _made(self) -> None:
        """The transport is there; sets `_reader`."""
        raise NotImplementedError

    def _handle(self, received: list[Received]) -> None:
        """Handles everything that one read brought."""
        raise NotImplementedError

    def _half_frame_grew(self, by: int) -> None:
        """By so many bytes, which may be negative."""

    def _gone(self, why: str) -> None:
        """The connection has ended; called once."""
        raise NotImplementedError

    def _waits_again(self) -> None:
        """An answer is missing, for the first time since all had come."""

    # --- asyncio's protocol -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        self.peer, self.local = (_address(transport.get_extra_info(which)) for which in ("peername", "sockname"))
        transport.set_write_buffer_limits(high=self._limits.write_high_bytes)
        self._plain = _plain(transport)
        self._made()

    def data_received(self, data: bytes) -> None:
        self.last_read = now = self._now()
        reader = self._reader
        half_before = reader.half_frame
        try:
            received = reader.feed(data)
        except BadBytes as error:
            self._spoilt(error)
            return
        if received:
            self._half_frame_since = now
            self._handle(received)
        elif not half_before:
            self._half_frame_since = now
        if half_before or reader.half_frame:
            self._half_frame_grew(reader.half_frame - half_before)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._transport = None
        self._out.clear()
        self._out_bytes = 0
        waiting, self._waiting = self._waiting, {}
        for call_id, (future, _, _) in waiting.items():
            if not future.done():
                future.set_exception(self._lost_call(call_id))
        self._gone(str(exc) if exc is not None else self._why)

    def pause_writing(self) -> None:
        self.write_paused_since = self._clock.monotonic()
        self._update_reading()

    def resume_writing(self) -> None:
        self.write_paused_since = None
        self._update_reading()

    # --- reading and writing ------------------------------------------------------------------------------------------

    def _may_read(self) -> bool:
        """A peer that does not read is not read from."""
        return self.write_paused_since is None and not self._rests

    def _update_reading(self) -> None:
        transport, wanted = self._transport, self._may_read()
        if transport is None or wanted == self._reading or transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self.last_read = self._half_frame_since = self._clock.monotonic()
            transport.resume_reading()
        else:
            transport.pause_reading()

    def rest(self, seconds: float) -> None:
        """Nothing more is read for so long: the peer does not keep the time that it was asked to wait."""
        if not self._rests:
            self._rests = True
            self._loop.call_later(seconds, self._rested)
            self._update_reading()

    def _rested(self) -> None:
        self._rests = False
        self._update_reading()

    @property
    def certified(self) -> frozenset[str]:
        """The names and addresses in the peer's certificate, which came from an authority that this side trusts."""
        found = self._transport.get_extra_info("peercert") if self._transport is not None else None
        return frozenset(str(name) for _, name in (found or {}).get("subjectAltName", ()))

    @property
    def encrypted(self) -> bool:
        """Whether this connection is inside TLS."""
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    @property
    def end_point(self) -> bytes:
        """What binds a login to this TLS connection, at both of its ends; b"" outside TLS."""
        found = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        return b"" if found is None else end_point_of(found)

    def _send(self, frame: bytes) -> None:
        """Queues a frame; all frames of one turn of the loop leave in one write, unless they are too many."""
        if not self._flush_due:
            self._flush_soon()
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes > self._queued_bytes:
            self.flush()

    def _send_pieces(self, pieces: list[bytes]) -> None:
        """The same for several frames in pieces."""
        if not self._flush_due:
            self._flush_soon()
        self._out += pieces
        self._out_bytes += sum(map(len, pieces))
        if self._out_bytes > self._limits.max_out_bytes:
            self.flush()

    def _flush_soon(self) -> None:
        """Behind everything that is ready to run now."""
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Writes what is queued."""
        self._flush_due = False
        out, size, self._out, self._out_bytes = self._out, self._out_bytes, [], 0
        transport = self._transport
        if not out or self._ended or transport is None or transport.is_closing():
            return
        self._written_id = self._last_id
        left: Sequence[bytes | memoryview] = out
        if self._plain >= 0 and not transport.get_write_buffer_size():
            left = write_now(self._plain, out, size)
            if not left:
                return
        transport.write(b"".join(left))  # asyncio's writelines pauses nobody in Python 3.12.0 to 3.13.1 (CVE-2024-12254)
        if transport.get_write_buffer_size() > self._limits.max_out_bytes:
            self.abort(f"the peer leaves more than {self._limits.max_out_bytes} bytes of answers unread")

    def _spoilt(self, error: BadBytes) -> None:
        """What came is no frame, and nobody knows where the next one begins."""
        self._stop(f"bad bytes from {self.peer[0]}:{self.peer[1]}: {error}")

    def _stop(self, why: str) -> None:
        """Writes what is queued, then closes; the peer may still read it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._why = why
        self.flush()
        transport.close()

    def abort(self, why: str) -> None:
        """Closes at once; what is queued is lost."""
        if self._transport is not None:
            self._why = why
            self._transport.abort()

    # --- asking the peer ----------------------------------------------------------------------------------------------

    async def request(self, request: Request, timeout_s: float) -> Answer:
        """Asks the peer. Raises Refusal, Unknown (sent, no answer in time), Unreachable (not sent)."""
        future = self.ask(request, self._clock.monotonic() + timeout_s)
        call_id = self._last_id
        try:
            return await future
        finally:
            self._waiting.pop(call_id, None)
            del future  # it knows the exception, which knows this frame

    def ask(self, request: Request, deadline: float) -> "asyncio.Future[Answer]":
        """As `request`, without a coroutine: the request leaves at the end of this turn, the answer is to come until `deadline`
        (monotonic s)."""
        if self._transport is None or self._transport.is_closing():
            raise Unreachable(f"no connection to {self.peer[0]}:{self.peer[1]}: {self._why}")
        self._last_id = call_id = self._last_id + 1
        self._send(self._codec.request(request, call_id, False))  # first: of what cannot be sent nothing stays behind
        if not self._waiting:
            self._waits_again()
        future: asyncio.Future[Answer] = asyncio.Future(loop=self._loop)
        self._waiting[call_id] = future, type(request), deadline
        return future

    def _answered(self, frame: AnswerFrame | SendAnswer, call_id: int) -> None:
        """A late answer, to nobody, is dropped."""
        waiting = self._waiting.pop(call_id, None)
        if waiting is None or waiting[0].done():
            return
        future, request_type, _ = waiting
        try:
            future.set_result(read_answer(frame, request_type))
        except (Refusal, BadBytes) as error:
            error.request = self._id_of(call_id)
            future.set_exception(error.with_traceback(None))

    @property
    def half_frame_bytes(self) -> int:
        """What is there of a frame whose end is missing."""
        return self._reader.half_frame

    def expire_calls(self, now: float) -> None:
        late = [call_id for call_id, (_, _, deadline) in self._waiting.items() if deadline <= now]
        for call_id in late:
            future, request_type, _ = self._waiting.pop(call_id)
            if not future.done():
                about = f"{request_type.__name__}: no answer in time (request {self._id_of(call_id)})"
                future.set_exception(Unknown(f"{about}; it may or may not have been done"))

    @property
    def waits(self) -> bool:
        """Whether an answer is missing."""
        return bool(self._waiting)

    def give_up(self, kind: type[Any], why: str) -> None:
        """Ends the calls of that type (a Request: mypy would take 15 s to compare all of these with all), as Unknown."""
        for call_id, (future, request_type, _) in self._waiting.items():
            if request_type is kind and not future.done():
                future.set_exception(Unknown(f"{kind.__name__}: {why} (request {self._id_of(call_id)})"))

    def _id_of(self, call_id: int) -> str:
        """Of our request, as the other side knows it, too."""
        return request_id(self.local, call_id)

    def _lost_call(self, call_id: int) -> RmqError:
        where = f"{self.peer[0]}:{self.peer[1]}"
        why = f" ({self._why})" if self._why != _ENDED else ""
        if call_id > self._written_id:
            return Unreachable(f"the connection to {where} broke before the request left{why}")
        about = f"the connection to {where} broke before the answer came{why} (request {self._id_of(call_id)})"
        return Unknown(f"{about}; it may or may not have been done")


def _plain(transport: asyncio.Transport) -> int:
    """-1 where bytes go through TLS, or through no socket."""
    socket = transport.get_extra_info("socket")
    return -1 if socket is None or transport.get_extra_info("sslcontext") is not None else int(socket.fileno())


def write_now(descriptor: int, out: list[bytes], size: int) -> Sequence[bytes | memoryview]:
    """What the system does not take at once. uvloop would look for new bytes before it writes, and takes longer for it."""
    try:
        if len(out) == 1:
            taken = os.write(descriptor, out[0])
        elif size <= _JOINED_BYTES or len(out) > _MOST_PIECES:
            taken = os.write(descriptor, b"".join(out))
        else:
            taken = os.writev(descriptor, out)
    except OSError:  # it would wait; or the connection has ended, which the transport finds too, and tells
        return out
    return _behind(out, taken) if taken < size else []


def _behind(pieces: list[bytes], taken: int) -> Sequence[bytes | memoryview]:
    """What follows the first `taken` bytes, which are not all."""
    for at, piece in enumerate(pieces):
        if taken < len(piece):
            return [memoryview(piece)[taken:], *pieces[at + 1 :]]
        taken -= len(piece)
    return []


def _address(name: object) -> Address:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else ("", 0)
