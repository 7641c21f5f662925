"""Reads messages from stdin without blocking the loop: heartbeats go on while the writer is slow, and Ctrl-C does not wait
for a line that never comes."""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator

from rmq.client.shared.inflating import MAX_MESSAGE_BYTES

_CHUNK_BYTES = 64 * 1024


async def lines() -> AsyncIterator[list[bytes]]:
    """Yields lines as soon as they are there, without empty ones. One that is too long for a message is the last,
    and not read to its end, which may never come. Raises OSError."""
    rest = b""
    while chunk := await _read():
        *found, rest = (rest + chunk).split(b"\n")
        if whole := [line for raw in found if (line := raw.rstrip(b"\r"))]:
            yield whole
        if len(rest.rstrip(b"\r")) > MAX_MESSAGE_BYTES:
            break
    if rest := rest.rstrip(b"\r"):
        yield [rest]


async def everything() -> bytes:
    """All of stdin; of what is too long for a message, no more than shows that. Raises OSError."""
    found = bytearray()
    while len(found) <= MAX_MESSAGE_BYTES and (chunk := await _read()):
        found += chunk
    return bytes(found)


async def _read() -> bytes:
    """The next bytes, b"" at the end. A daemon thread reads them, so that the end of the program need not wait for it."""
    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()
    done: asyncio.Future[bytes] = loop.create_future()

    def settle(chunk: bytes, error: OSError | None) -> None:
        if done.cancelled():
            return
        if error:
            done.set_exception(error)
        else:
            done.set_result(chunk)

    def read() -> None:
        chunk, failed = b"", None
        try:
            chunk = os.read(file, _CHUNK_BYTES)
        except OSError as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody asks any more
            loop.call_soon_threadsafe(settle, chunk, failed)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    return await done
