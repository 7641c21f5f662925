"""Hosts by name: where they are now, and which of several addresses answers.

A name service may be slow or away (of two servers the first is dead: each question takes 5 s), and of several addresses the first
may be dead, too (a network without IPv6, a machine that is gone). Neither keeps anybody from the host.
"""

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import Sequence
from threading import Thread

MOST_KNOWN, MOST_ASKED = 4_096, 64  # names
PATIENCE_S = 0.3  # so long a new answer is waited for where an old one is known
NEXT_S = 0.25  # the next address is tried while the one before has not answered for so long [RFC 8305]

Places = Sequence[tuple[int, str]]
"""Family and IP address, in the order in which the system would try them."""


class Hosts:
    """What was found for each name last. A question goes on when who asked has gone, so the next one has its answer."""

    def __init__(self) -> None:
        self._known: dict[str, Places] = {}
        self._asked: dict[str, asyncio.Future[Places]] = {}

    async def find(self, host: str) -> Places:
        """What the name service says; what it said last, if that takes long or fails. Raises OSError, ValueError."""
        known = self._known.get(host)
        asked = self._asked.get(host)
        if asked is None or asked.get_loop() is not asyncio.get_running_loop():
            asked = self._ask(host)
        await asyncio.wait((asked,), timeout=None if known is None else PATIENCE_S)
        if known is not None and (not asked.done() or asked.exception() is not None):
            return known
        return asked.result()

    def _ask(self, host: str) -> "asyncio.Future[Places]":
        """In a thread of its own: uvloop's and asyncio's are few, others need them, and a question may take half a minute."""
        if len(self._asked) >= MOST_ASKED:  # nobody hears any more what loops asked that have ended
            self._asked = {name: one for name, one in self._asked.items() if not one.get_loop().is_closed()}
        if len(self._asked) >= MOST_ASKED:
            raise OSError(f"{host}: {MOST_ASKED} other names are being looked up")
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[Places] = loop.create_future()
        self._asked[host] = asked
        asked.add_done_callback(lambda _: self._answered(host, asked))

        def look_up() -> None:
            told: Places | Exception
            try:
                told = _look_up(host)
            except Exception as error:
                told = error
            with contextlib.suppress(RuntimeError):  # the loop ended meanwhile
                loop.call_soon_threadsafe(_tell, asked, told)

        try:
            Thread(target=look_up, name=f"look {host} up", daemon=True).start()
        except RuntimeError as error:  # the system has no room for a thread
            _tell(asked, OSError(f"{host} cannot be looked up: {error}"))
        return asked

    def _answered(self, host: str, asked: "asyncio.Future[Places]") -> None:
        if self._asked.get(host) is asked:
            del self._asked[host]
        if asked.exception() is not None:
            return
        if len(self._known) >= MOST_KNOWN and host not in self._known:
            self._known.clear()
        self._known[host] = asked.result()


def _look_up(host: str) -> Places:
    rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [*dict.fromkeys((int(family), str(place[0])) for family, _, _, _, place in rows)]


def _tell(asked: "asyncio.Future[Places]", told: Places | Exception) -> None:
    if isinstance(told, Exception):
        asked.set_exception(told)
    else:
        asked.set_result(told)


HOSTS = Hosts()


def is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def reach(host: str, port: int) -> socket.socket:
    """A socket that is connected to that host, at the first of its addresses that answers. Raises OSError, ValueError."""
    left = [*await HOSTS.find(host)]
    trying: set[asyncio.Task[socket.socket]] = set()
    trouble: BaseException = OSError(f"{host} has no address")
    try:
        while left or trying:
            if left:
                trying.add(asyncio.create_task(_connected(*left.pop(0), port)))
            done, trying = await asyncio.wait(trying, timeout=NEXT_S if left else None, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                error = each.exception()
                if error is None:
                    trying |= done - {each}
                    return each.result()
                trouble = error
        raise trouble
    finally:
        for each in trying:
            each.cancel()
            each.add_done_callback(_let_go)


async def _connected(family: int, ip: str, port: int) -> socket.socket:
    """uvloop's `sock_connect` would ask the name service, also for an address."""
    sock, loop = socket.socket(family, socket.SOCK_STREAM), asyncio.get_running_loop()
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(BlockingIOError):
            sock.connect((ip, port))
        writable = loop.create_future()
        loop.add_writer(sock, _woken, writable)
        try:
            await writable
        finally:
            loop.remove_writer(sock)
        if number := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(number, os.strerror(number))
    except BaseException:
        sock.close()
        raise
    return sock


def _woken(writable: "asyncio.Future[None]") -> None:
    if not writable.done():
        writable.set_result(None)


def _let_go(task: "asyncio.Task[socket.socket]") -> None:
    """It answered as well, in the same moment."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
