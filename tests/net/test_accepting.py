"""Connections that come while a server stops."""

import asyncio
import socket

from rmq.net.transport.server import Server


async def test_who_is_accepted_while_the_server_stops_is_not_left_with_an_open_connection() -> None:
    """The system had taken it, and the loop made it when the stop had looked whom there is to close: it stayed open for good, and
    a client that had hurried back to a broker that was started again waited there."""
    server = Server({})
    peer = await asyncio.to_thread(socket.create_connection, await server.listen("127.0.0.1", 0))
    other = socket.create_connection(peer.getpeername())
    for _ in range(3):  # the loop hears of it, accepts it, and is about to make the connection
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
