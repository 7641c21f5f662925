"""Connections to the other nodes of a group: when is a process gone?"""

import asyncio

from rmq.broker.replication.peers import Peers
from rmq.clock import SystemClock
from rmq.net.commands import HelloAnswer
from rmq.net.commands.peers import IntroducePeer
from rmq.net.transport.dialer import Dialer
from rmq.raft import events as ev, messages as m
from rmq.testing import until
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
            self._server.close()
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
