"""Connections that come while a server stops."""

import asyncio
import gc
import socket

import pytest

from rmq.net.transport.server import Server


@pytest.mark.parametrize("turns", range(6))
async def test_who_is_accepted_while_the_server_stops_is_not_left_with_an_open_connection(turns: int) -> None:
    """The system had taken it, and the loop made it when the stop had looked whom there is to close: it stayed open for good, and
    a client that had hurried back to a broker that was started again waited there. Others asyncio lost with an open socket."""
    server = Server({})
    peer = await asyncio.to_thread(socket.create_connection, await server.listen("127.0.0.1", 0))
    other = socket.create_connection(peer.getpeername())
    for _ in range(turns):  # the loop hears of it, accepts it, and makes the connection
        await asyncio.sleep(0)
    await server.close(0)
    for each in (peer, other):
        each.settimeout(10)
        try:
            assert await asyncio.to_thread(each.recv, 1) == b""
        except ConnectionResetError:
            pass
        finally:
            each.close()
    assert not server.connections
    gc.collect()  # tells of a lost one
