"""Names of hosts: several addresses of which some are dead, a name service that is slow or away."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from rmq.broker.front.front import resolve
from rmq.clock import SystemClock
from rmq.errors import Unreachable
from rmq.net.commands import Hello
from rmq.net.transport import hosts as finding
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.hosts import MOST_ASKED, Hosts, reach
from rmq.testing import LocalBroker


class NameService:
    """In place of the system's. `told`: address by address; none: no such name. While `answers` is not set it says nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *told: str) -> None:
        self.told: tuple[str, ...] = told
        self.asked = 0
        self.answers = threading.Event()
        self.answers.set()
        monkeypatch.setattr(socket, "getaddrinfo", self._find)

    def _find(
        self, host: str, port: int | None, family: int = 0, *_: object, **__: object
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        self.asked += 1
        self.answers.wait(10.0)
        rows = [(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in self.told]
        found = [row for row in rows if family in (0, row[0])]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """An address where nobody answers: its queue of connections is full."""
    with closing(socket.create_server(("127.0.0.2", 0), backlog=0)) as server:
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(address)
        yield address
        for each in waiting:
            each.close()


async def test_a_dead_address_keeps_nobody_from_the_next_one(silent: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A name has an IPv6 address, too, and that network leads nowhere. Nobody came to the second address, ever."""
    NameService(monkeypatch, silent[0], "127.0.0.1")
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", silent[1])
    async with asyncio.timeout(30):  # Linux itself gives up after two minutes
        sock = await reach("two.example", silent[1])
    with sock:
        assert sock.getpeername() == ("127.0.0.1", silent[1])
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    server.close()


async def test_a_refusal_leads_to_the_next_address_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    NameService(monkeypatch, "127.0.0.2", "127.0.0.3")
    with closing(socket.create_server(("127.0.0.3", 0))) as server, await reach("two.example", server.getsockname()[1]) as sock:
        assert sock.getpeername()[0] == "127.0.0.3"


async def test_a_name_service_that_is_away_takes_nothing_from_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that loses a connection then finds its nameserver and its group again."""
    names, hosts = NameService(monkeypatch, "127.0.0.1"), Hosts()
    assert await hosts.find("b.example") == [(socket.AF_INET, "127.0.0.1")]
    names.told = ()
    assert await hosts.find("b.example") == [(socket.AF_INET, "127.0.0.1")]
    with pytest.raises(socket.gaierror):
        await hosts.find("other.example")
    names.told = ("127.0.0.2",)
    assert await hosts.find("b.example") == [(socket.AF_INET, "127.0.0.2")]
    names.answers.clear()
    assert await hosts.find("b.example") == [(socket.AF_INET, "127.0.0.2")]
    names.answers.set()


async def test_an_answer_that_came_too_late_is_there_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two name services the first is dead, so that each question takes 5 s: longer than anybody waits for a connection."""
    monkeypatch.setattr(finding, "AGAIN_S", 600.0)
    names = NameService(monkeypatch, "127.0.0.1")
    async with LocalBroker() as broker:
        address = f"late.example:{broker.address.rpartition(':')[2]}"
        dialer = Dialer(SystemClock())
        names.answers.clear()
        for _ in range(2):
            with pytest.raises(Unreachable):
                await dialer.open(address, Hello(1, "t"), timeout_s=0.05)
        assert names.asked == 1
        names.answers.set()
        await (await dialer.open(address, Hello(1, "t"))).close()
        names.answers.clear()
        await (await dialer.open(address, Hello(1, "t"))).close()
        names.answers.set()


async def test_a_question_that_hangs_keeps_nobody_from_a_new_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container was asked for while it was away, which took 20 s. It was back after one, at another address, and its group
    refused it there until then."""
    monkeypatch.setattr(finding, "AGAIN_S", 0.0)
    names, hosts = NameService(monkeypatch, "127.0.0.1"), Hosts()
    assert await hosts.find("b.example") == [(socket.AF_INET, "127.0.0.1")]
    hangs = names.answers = threading.Event()
    try:
        assert await hosts.find("b.example") == [(socket.AF_INET, "127.0.0.1")]
        monkeypatch.setattr(finding, "PATIENCE_S", 60.0)
        names.told, names.answers = ("127.0.0.2",), threading.Event()
        names.answers.set()
        assert await hosts.find("b.example") == [(socket.AF_INET, "127.0.0.2")]
    finally:
        hangs.set()


async def test_where_the_system_has_no_room_for_a_thread_it_is_told_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a RuntimeError, which nobody expects, and all later questions waited for an answer that nobody looked for."""
    NameService(monkeypatch, "127.0.0.1")
    hosts, usual = Hosts(), threading.stack_size(1 << 46)
    try:
        with pytest.raises(OSError, match=r"b\.example cannot be looked up: .*thread"):
            await hosts.find("b.example")
    finally:
        threading.stack_size(usual)
    async with asyncio.timeout(10):
        assert await hosts.find("b.example") == [(socket.AF_INET, "127.0.0.1")]


def test_what_loops_asked_that_have_ended_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name could be looked up any more in that process."""
    names, hosts = NameService(monkeypatch, "127.0.0.1"), Hosts()

    async def ask(name: str) -> None:
        asking = asyncio.create_task(hosts.find(name))
        await asyncio.sleep(0)
        asking.cancel()

    names.answers.clear()
    for number in range(MOST_ASKED):
        asyncio.run(ask(f"{number}.example"))
    names.answers.set()
    assert asyncio.run(hosts.find("last.example")) == [(socket.AF_INET, "127.0.0.1")]


@pytest.mark.parametrize(
    ("told", "listens", "wanted"),
    [
        (["2001:db8::7"], "six.example", "2001:db8::7"),
        (["2001:db8::7"], "::", "2001:db8::7"),
        (["2001:db8::7", "192.0.2.7"], "two.example", "192.0.2.7"),
        (["2001:db8::7", "192.0.2.7"], "0.0.0.0", "192.0.2.7"),
        (["192.0.2.7", "2001:db8::7"], "[::]", "2001:db8::7"),
        (["192.0.2.7"], "::", "192.0.2.7"),
    ],
)
async def test_a_name_is_told_as_the_address_where_the_node_listens(
    told: list[str], listens: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with IPv6 only ended the start; at [::] a node told all clients an address of IPv4, where nobody listened."""
    NameService(monkeypatch, *told)
    assert await resolve("any.example", listens) == wanted


async def test_a_node_of_ipv4_tells_no_address_of_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    NameService(monkeypatch, "2001:db8::7")
    with pytest.raises(OSError, match=r"six\.example has no IPv4 address now"):
        await resolve("six.example", "0.0.0.0")
