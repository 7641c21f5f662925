"""Connections to the other nodes of a group: when is a process gone?"""

import asyncio

from rmq.broker.replication.peers import Peers
from rmq.clock import SystemClock
from rmq.net.commands import HelloAnswer
from rmq.net.commands.peers import FENCED, FetchLogAnswer, IntroducePeer
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.network import close_server
from rmq.raft import events as ev, messages as m
from rmq.testing import TestClock, until
from tests.net.support import NATIVE

RESIGN = m.Resign(1, ())


class Dying:
    """A node that is killed: its connections break, and it stops listening a moment later."""

    def __init__(self) -> None:
        self._writers: list[asyncio.StreamWriter] = []
        self.asked = False

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if len(self._writers) > 1:
            self.die()
            await close_server(self._server)
            return
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.write(NATIVE.answer(1, None, HelloAnswer(1, "C", "b", 0, "127.0.0.1:1"), ""))
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.write(NATIVE.answer(2, None, None, ""))
        await reader.read(1)
        self.asked = True

    def die(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


async def test_a_node_that_is_killed_is_known_to_be_gone_at_once() -> None:
    """L1: found by kills in the group campaign, where the next election began 2 s late: a dying process may still take a
    connection when those it had are broken."""
    node = Dying()
    address = await node.start()
    told: list[ev.Event] = []
    peers = Peers(IntroducePeer("g", "n1", "s-n1", 1), lambda _: address, told.append, Dialer(SystemClock()))
    peers.send("n0", RESIGN)
    await until(lambda: node.asked)
    node.die()
    await until(lambda: ev.Unreachable("n0") in told)
    await peers.close()


class Slow:
    """A node that answers the third request in pieces, when the test says so."""

    def __init__(self) -> None:
        self.writer: asyncio.StreamWriter | None = None
        self.ended = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (HelloAnswer(1, "C", "b", 0, "127.0.0.1:1"), None):
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            writer.write(NATIVE.answer(1 if answer else 2, None, answer, ""))
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        self.writer = writer
        await reader.read()
        self.ended = True


async def test_an_answer_that_comes_slowly_is_waited_for() -> None:
    """L1: after two seconds the connection was cut, in the midst of 4 MiB on a slow line, and so it was the next time."""
    node, told, clock = Slow(), list[ev.Event](), TestClock()
    server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    peers = Peers(IntroducePeer("g", "n1", "s-n1", 1), lambda _: address, told.append, Dialer(clock))
    fetch = m.Fetch(1, "g", "n1", "s-n1", 1, 1, 0, 0, "", 0, 0, 0)
    peers.send("n0", fetch)
    await until(lambda: node.writer)
    frame = NATIVE.answer(3, None, FetchLogAnswer(FENCED, 1, reason="x" * 100), "")
    assert node.writer is not None
    for at in range(0, 100, 20):
        node.writer.write(frame[at : at + 20])
        await until(lambda: "n0" in peers.arriving())
        await clock.advance(1.5)
        assert not peers.arriving()
    node.writer.write(frame[100:])
    await until(lambda: told)
    assert told == [ev.PeerAnswer("n0", fetch, m.Fenced(1, "x" * 100))]
    await peers.close()
    node.writer.close()
    await close_server(server)


async def test_a_node_that_was_added_again_elsewhere_is_not_gone_when_its_old_place_is() -> None:
    old, new, told, addresses = Slow(), Slow(), list[ev.Event](), list[str]()
    servers = [await asyncio.start_server(node.serve, "127.0.0.1", 0) for node in (old, new)]
    addresses = [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    peers = Peers(IntroducePeer("g", "n1", "s-n1", 1), lambda _: addresses[0], told.append, Dialer(SystemClock()))
    peers.send("n0", RESIGN)
    await until(lambda: old.writer)
    del addresses[0]
    peers.send("n0", RESIGN)
    await until(lambda: new.writer)
    await until(lambda: old.ended)
    assert not told
    await peers.close()
    for node, server in zip((old, new), servers, strict=True):
        assert node.writer is not None
        node.writer.close()
        await close_server(server)
