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
from dataclasses import dataclass
from threading import Thread

MOST_KNOWN, MOST_ASKED = 4_096, 64  # names
PATIENCE_S = 0.3  # so long a new answer is waited for where an old one is known
AGAIN_S = 1.0  # a question without an answer is asked again after so long, then after twice as long and so on
NEXT_S = 0.25  # the next address is tried while the one before has not answered for so long [RFC 8305]

Places = Sequence[tuple[int, str]]
"""Family and IP address, in the order in which the system would try them."""


@dataclass(slots=True)
class _Question:
    """`answer`: the first of any thread that asks. Times are the loop's."""

    answer: asyncio.Future[Places]
    asked_at: float
    again_at: float


class Hosts:
    """What was found for each name last. A question goes on when who asked has gone, so the next one has its answer. One that
    takes long is asked again meanwhile: it was asked while the host was away, perhaps, and the host is back, somewhere else."""

    def __init__(self) -> None:
        self._known: dict[str, Places] = {}
        self._asked: dict[str, _Question] = {}

    async def find(self, host: str) -> Places:
        """What the name service says; what it said last, if that takes long or fails. Raises OSError, ValueError."""
        loop, known = asyncio.get_running_loop(), self._known.get(host)
        asked = self._asked.get(host)
        if asked is None or asked.answer.get_loop() is not loop:
            asked = self._ask(host, loop)
        elif loop.time() >= asked.again_at:
            asked.again_at = 2 * loop.time() - asked.asked_at
            with contextlib.suppress(RuntimeError):  # no room for a thread: one asks already
                self._look(host, asked)
        answer = asked.answer
        await asyncio.wait((answer,), timeout=None if known is None else PATIENCE_S)
        if known is not None and (not answer.done() or answer.exception() is not None):
            return known
        return answer.result()

    def _ask(self, host: str, loop: asyncio.AbstractEventLoop) -> _Question:
        if len(self._asked) >= MOST_ASKED:  # nobody hears any more what loops asked that have ended
            self._asked = {name: one for name, one in self._asked.items() if not one.answer.get_loop().is_closed()}
        if len(self._asked) >= MOST_ASKED:
            raise OSError(f"{host}: {MOST_ASKED} other names are being looked up")
        asked = self._asked[host] = _Question(loop.create_future(), loop.time(), loop.time() + AGAIN_S)
        asked.answer.add_done_callback(lambda _: self._answered(host, asked))
        try:
            self._look(host, asked)
        except RuntimeError as error:  # the system has no room for a thread
            asked.answer.set_exception(OSError(f"{host} cannot be looked up: {error}"))
        return asked

    def _look(self, host: str, asked: _Question) -> None:
        """In a thread of its own: uvloop's and asyncio's are few, others need them, and a question may take half a minute."""
        loop = asked.answer.get_loop()

        def look_up() -> None:
            told: Places | Exception
            try:
                told = _look_up(host)
            except Exception as error:
                told = error
            with contextlib.suppress(RuntimeError):  # the loop ended meanwhile
                loop.call_soon_threadsafe(self._tell, host, asked, told)

        Thread(target=look_up, name=f"look {host} up", daemon=True).start()

    def _tell(self, host: str, asked: _Question, told: Places | Exception) -> None:
        if not isinstance(told, Exception):
            if len(self._known) >= MOST_KNOWN and host not in self._known:
                self._known.clear()
            self._known[host] = told
        if asked.answer.done():
            return
        if isinstance(told, Exception):
            asked.answer.set_exception(told)
        else:
            asked.answer.set_result(told)

    def _answered(self, host: str, asked: _Question) -> None:
        asked.answer.exception()  # whoever asked has gone, perhaps
        if self._asked.get(host) is asked:
            del self._asked[host]


def _look_up(host: str) -> Places:
    rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [*dict.fromkeys((int(family), str(place[0])) for family, _, _, _, place in rows)]


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
