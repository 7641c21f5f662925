"""Whole nodes that take TLS only: nameserver, group and clients, while leaders change and certificates are renewed."""

import asyncio
import contextlib
import logging
import random
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from rmq.client import Client, Message, Tls, Unreachable
from rmq.errors import RmqError
from rmq.net.commands import Hello, UpdateTopic
from rmq.net.transport.network import close_server
from rmq.testing import LocalBroker
from tests.broker.groups import LocalGroup
from tests.broker.support import Peer, everything, send
from tests.certificates import Certificates
from tests.dialing import dial


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def settings(certs: Certificates, mode: str, **others: Any) -> dict[str, Any]:
    made = certs.made["node"]
    return {"tls_mode": mode, "tls_cert": str(made.cert), "tls_key": str(made.key), "tls_ca": certs.ca, **others}


async def through(client: Client, body: bytes) -> None:
    """Sent and received."""
    async with client, client.producer() as producer:
        await producer.send(Message("T", body))
        async with client.consumer(f"g-{body.decode()}", "T", start="first") as consumer:
            async for message in consumer:
                if message.body == body:
                    return


async def test_a_broker_that_takes_tls_only(certs: Certificates) -> None:
    async with LocalBroker(**settings(certs, "enforcing")) as broker:
        await through(broker.client(tls=Tls(ca=certs.ca)), b"encrypted")
        for address in (broker.address, broker.nameserver):
            with pytest.raises(Unreachable):
                await dial(address, Hello(1))


async def test_a_node_without_tls_says_who_comes_with_it(certs: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """Java's clients say only that their request was not sent, and the log of the node said nothing."""
    caplog.set_level(logging.INFO)
    async with LocalBroker() as broker:
        for _ in range(2):
            with pytest.raises(Unreachable, match="maybe it takes no TLS"):
                await dial(broker.address, Hello(1), tls=Tls(ca=certs.ca))
    told = "a connection of 127.0.0.1 was not taken: the peer speaks TLS, this port does not"
    assert [line for line in caplog.messages if "was not taken" in line] == [told]


async def test_a_permissive_broker_takes_both(certs: Certificates) -> None:
    """And still dials plain, until it is told otherwise: the first step of a running cluster."""
    async with LocalBroker(**settings(certs, "permissive")) as broker:
        await asyncio.gather(through(broker.client(tls=Tls(ca=certs.ca)), b"encrypted"), through(broker.client(), b"plain"))


async def test_a_group_elects_copies_and_forwards_inside_tls(certs: Certificates, tmp_path: Path) -> None:
    """Both directions show certificates; a new leader is found, and what was acknowledged is there (S3)."""
    encrypted = settings(certs, "enforcing", tls_client_auth="require")
    async with LocalGroup(tmp_path, tls=certs.tls("client"), **encrypted) as group:
        leader = await group.leader()
        await (await group.connect(leader)).ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        async with group.client() as client, client.producer() as producer:
            first = await producer.send(Message("T", b"before"))
            await group.stop(leader)
            await group.clock.advance(3)
            await group.leader(but=leader)
            second = await producer.send(Message("T", b"after"))
            assert second.queue_offset > first.queue_offset
            async with client.consumer("g", "T", start="first") as consumer:
                received = [(await anext(consumer)).body for _ in range(2)]
            assert received == [b"before", b"after"]
        await group.start(leader)
        await group.caught_up(leader)
        with pytest.raises(Unreachable):
            await dial(group.peer_address(leader), Hello(1))


async def test_a_connection_that_is_cut_anywhere_loses_and_invents_nothing(certs: Certificates) -> None:
    """A peer ends TCP at any byte, inside a record or behind it, without the goodbye of TLS: what was acknowledged is stored, and
    nothing that was not sent, or twice."""
    chance = random.Random(15)
    async with LocalBroker(**settings(certs, "enforcing")) as broker:
        await broker_topic(broker, certs)
        acknowledged: list[int] = []
        for number in range(40):
            async with Relay(broker.address, cut_after=chance.randrange(1, 9_000), reset=bool(number % 2)) as relay:
                with contextlib.suppress(RmqError):
                    peer = await Peer.connect(relay.address, tls=Tls(ca=certs.ca))
                    sends = (peer.ask_code(send("T", b"%d" % (number * 100 + at), queue_id=0)) for at in range(20))
                    codes = await asyncio.gather(*sends, return_exceptions=True)
                    acknowledged += [number * 100 + at for at, code in enumerate(codes) if code == 0]
                    peer.channel.abort("the relay is cut")
        peer = await Peer.connect(broker.address, tls=Tls(ca=certs.ca))
        stored = [int(found.body) for found in await everything(peer)]
        await peer.close()
        assert acknowledged
        assert len(acknowledged) < 40 * 20, "it cut none"
        assert set(acknowledged) <= set(stored)
        assert len(set(stored)) == len(stored)
        assert {one % 100 for one in stored} <= set(range(20))


async def broker_topic(broker: LocalBroker, certs: Certificates) -> None:
    peer = await Peer.connect(broker.address, tls=Tls(ca=certs.ca))
    await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await peer.close()


class Relay:
    """Hands bytes on in both directions, until so many went to the broker; then it ends both connections (`reset`: by RST)."""

    def __init__(self, address: str, cut_after: int, reset: bool) -> None:
        self._to = address
        self._left = cut_after
        self._reset = reset
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server
        self.address = ""

    async def __aenter__(self) -> "Relay":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._cut()
        await close_server(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._to.rpartition(":")
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        self._writers += [writer, up_writer]
        self._tasks += [asyncio.create_task(self._up(reader, up_writer)), asyncio.create_task(_copy(up_reader, writer))]

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data[: self._left])
            self._left -= len(data)
            if self._left <= 0:
                await writer.drain()
                self._cut()
                return

    def _cut(self) -> None:
        for writer in self._writers:
            if self._reset:
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.close()
        self._writers.clear()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
