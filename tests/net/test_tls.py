"""TLS on real sockets: who is taken, who is not, on both loops; and what happens while files change or connections break."""

import asyncio
import gc
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from rmq.clock import SystemClock
from rmq.errors import InvalidArgument, Unknown, Unreachable
from rmq.log.records import fastpath
from rmq.net.codec.limits import Limits
from rmq.net.commands import GetMaxOffset, Hello, OffsetAnswer, Ping
from rmq.net.commands.peers import LogPart, ReadLog
from rmq.net.remoting.codec import RemotingSettings
from rmq.net.transport import doors
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.doors import Accepts, Door
from rmq.net.transport.network import TCP, Listener, TcpNetwork
from rmq.net.transport.server import LATER, Call, Later, Server
from rmq.net.transport.tls import Contexts, Tls, dialling, listening
from rmq.ops.certs import Authority
from rmq.testing import TestClock
from tests.certificates import HERE, Certificates
from tests.net.support import NATIVE, BarePeer, eventually

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test's body on that loop; nothing may be left over or told to the loop's handler."""

    def on_loop(body: Coroutine[Any, Any, None]) -> None:
        troubles: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if request.param == "uvloop" else None) as runner:
            runner.get_loop().set_exception_handler(lambda loop, context: troubles.append(context))
            runner.run(asyncio.wait_for(body, 60))
        assert not troubles

    return on_loop


def dials(tls: Tls) -> TcpNetwork:
    return TcpNetwork(dials=Contexts(tls, dialling, TestClock()))


class Doors(TcpNetwork):
    """Remembers the doors that it opened."""

    def __init__(self, accepts: Accepts) -> None:
        super().__init__(accepts)
        self.doors: list[Door] = []

    async def listen(self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        door = await super().listen(make_protocol, host, port)
        assert isinstance(door, Door)
        self.doors.append(door)
        return door


class Node:
    """A server that answers the largest offset with its queue's number; queue 9 waits for `release`."""

    def __init__(self, tls: Tls, plain_too: bool = False, hello_s: float = 10.0) -> None:
        self.clock = TestClock(running=False)
        self.contexts = Contexts(tls, listening, self.clock, shown=True)
        self.calls: list[Call] = []
        self.asked: list[int] = []
        accepts = Accepts(self.contexts, plain_too, hello_s)
        remoting = RemotingSettings(fastpath, store_host=("127.0.0.1", 10911))
        handlers = {GetMaxOffset: self._offset, ReadLog: lambda asked, call: LogPart(b"%06d" % asked.from_offset * 100_000, [])}
        self._network = Doors(accepts)
        self.server = Server(handlers, Limits(), remoting, self.clock, network=self._network)
        self.address = ("", 0)

    async def __aenter__(self) -> "Node":
        self.address = await self.server.listen("127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.server.close(0)

    @property
    def where(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def door(self) -> Door:
        (door,) = self._network.doors
        return door

    def _offset(self, request: GetMaxOffset, call: Call) -> OffsetAnswer | Later:
        self.asked.append(request.queue_id)
        if request.queue_id == 9:
            self.calls.append(call)
            return LATER
        return OffsetAnswer(request.queue_id)

    async def open(self, network: TcpNetwork = TCP, where: str = "") -> Channel:
        return await Dialer(SystemClock(), network).open(where or self.where, Hello(1, "tester"))


async def works(node: Node, network: TcpNetwork, where: str = "") -> None:
    channel = await node.open(network, where)
    assert await channel.request(GetMaxOffset("T", 7), 10) == OffsetAnswer(7)
    await channel.close()


async def refused(node: Node, network: TcpNetwork, why: str) -> None:
    """`why`: as of `re`."""
    with pytest.raises(Unreachable, match=why):
        await node.open(network)
    assert node.asked == []


# --- who is taken -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain_too", [False, True])
def test_one_port_takes_what_its_mode_says(run: Run, certs: Certificates, plain_too: bool) -> None:
    """Permissive: both kinds at once, on one port; enforcing: no plain byte is looked at (S3)."""

    async def body() -> None:
        async with Node(certs.tls("node"), plain_too) as node:
            await works(node, dials(certs.tls()))
            if plain_too:
                await asyncio.gather(*(works(node, network) for network in (TCP, dials(certs.tls())) * 10))
            else:
                node.asked.clear()
                await refused(node, TCP, "maybe it wants TLS")
            await eventually(lambda: not node.server.connections and not node.door.waiting)

    run(body())


def test_the_name_that_was_dialled_must_stand_in_the_certificate(run: Run, certs: Certificates) -> None:
    """Chain, name and time are checked by whoever dials, always (S3)."""

    async def body() -> None:
        for shown, why in (
            ("elsewhere", "not valid for '127.0.0.1'"),
            ("nameless", "not valid for '127.0.0.1'"),
            ("expired", "expired"),
            ("early", "not yet valid"),
            ("foreign", "unable to get local issuer|self.signed|signature"),
        ):
            async with Node(certs.tls(shown)) as node:
                await refused(node, dials(certs.tls()), why)
        async with Node(certs.tls("node")) as node:
            await refused(node, dials(Tls()), "self.signed|local issuer")  # the system's authorities do not know ours
            await works(node, dials(certs.tls()), f"localhost:{node.address[1]}")
        async with Node(certs.tls("elsewhere")) as node:
            await works(node, dials(certs.tls(server_name="other.example")))

    run(body())


def test_clients_show_certificates_where_they_are_asked_to(run: Run, certs: Certificates) -> None:
    async def body() -> None:
        async with Node(certs.tls("node", client_auth="require")) as node:
            await refused(node, dials(certs.tls()), "maybe it wants TLS, or a certificate")
            for bad in ("foreign", "expired"):
                await refused(node, dials(certs.tls(bad)), ".")
            await works(node, dials(certs.tls("client")))
        async with Node(certs.tls("node", client_auth="optional")) as node:
            await works(node, dials(certs.tls()))
            await refused_after(node, dials(certs.tls("foreign")))
            channel = await node.open(dials(certs.tls("client")))
            (connection,) = node.server.connections
            assert connection.certified == {"alice"}
            await channel.close()

    run(body())


def test_each_reason_is_told_though_another_one_was_just_before(
    run: Run, certs: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """One that hangs up says little; the operator needs the reason of the next one. What strangers repeat is told once."""

    async def body() -> None:
        async with Node(certs.tls("node", client_auth="require")) as node:
            for _ in range(3):
                await refused(node, TCP, "maybe it wants TLS")
                await refused(node, dials(certs.tls()), "maybe it wants TLS, or a certificate")
            await eventually(lambda: not node.door.waiting)
        told = [line for line in caplog.messages if "was not taken" in line]
        assert len(told) == len(set(told))
        assert any("speaks plain text" in line for line in told)
        assert any("did not return a certificate" in line for line in told)

    run(body())


async def refused_after(node: Node, network: TcpNetwork) -> None:
    node.asked.clear()
    await refused(node, network, ".")


def test_revoked_certificates_are_not_taken(run: Run, tmp_path: Path) -> None:
    """The list stands in the authority's file; it is read again when the file changes."""

    async def body() -> None:
        authority = Authority.make(tmp_path, SystemClock())
        good, bad = (authority.issue(name, HERE) for name in ("good", "bad"))
        ca = str(authority.files.cert)
        with_list = Tls(ca, str(good.cert), str(good.key), client_auth="require")
        network = dials(Tls(ca, str(bad.cert), str(bad.key)))
        async with Node(with_list) as node:
            await works(node, network)
            node.asked.clear()
            authority.revoke(bad.cert)
            await node.clock.advance(2)
            await refused(node, network, ".")
            await works(node, dials(Tls(ca, str(good.cert), str(good.key))))

    run(body())


def test_versions_and_ciphers(run: Run, certs: Certificates) -> None:
    async def body() -> None:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(certs.ca)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        only_13, only_12 = ("TLSv1.3",), ("TLSv1.2",)
        async with Node(certs.tls("node")) as node:
            with pytest.raises(OSError, match=r"|(?i:ssl|reset)"):
                await asyncio.open_connection(*node.address, ssl=old)
            for protocols in (only_12, only_13):
                await works(node, dials(certs.tls()._replace(protocols=protocols)))
        async with Node(certs.tls("node")._replace(protocols=only_13)) as node:
            await refused(node, dials(certs.tls()._replace(protocols=only_12)), "TLS")
        strict = certs.tls("node")._replace(protocols=only_12, ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")
        async with Node(strict) as node:
            await works(node, dials(certs.tls()))
            await refused_after(node, dials(certs.tls()._replace(protocols=only_12, ciphers="ECDHE-ECDSA-AES128-GCM-SHA256")))

    run(body())


# --- strangers --------------------------------------------------------------------------------------------------------


def test_a_hello_that_stops_costs_nobody_else(run: Run, certs: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent ones, and half hellos, are bounded in number and time (S6); the oldest goes first."""
    monkeypatch.setattr(doors, "MAX_WAITING", 8)

    async def body() -> None:
        async with Node(certs.tls("node"), plain_too=True, hello_s=60) as node:
            silent = [await BarePeer.connect(node.address) for _ in range(4)]
            begun = [await BarePeer.connect(node.address) for _ in range(20)]
            for peer in begun:
                peer.send(b"\x16\x03\x01\x02")
            await eventually(lambda: node.door.waiting == 8)
            await works(node, dials(certs.tls()))
            await works(node, TCP)
            assert all([await peer.closed() for peer in (*silent, *begun[:10])])
            rubbish = await BarePeer.connect(node.address)
            rubbish.send(b"\x16" + b"GET / HTTP/1.1" * 9)
            assert await rubbish.closed()
            for peer in (*silent, *begun, rubbish):
                await peer.close()
            await eventually(lambda: not node.door.waiting)
        async with Node(certs.tls("node"), hello_s=0.01) as node:
            late = [await BarePeer.connect(node.address) for _ in range(2)]
            late[0].send(b"\x16\x03")
            assert all([await peer.closed() for peer in late])
            for peer in late:
                await peer.close()
            await eventually(lambda: not node.door.waiting)

    run(body())


def test_a_handshake_that_fails_leaves_nothing_behind(run: Run, certs: Certificates) -> None:
    """A node's collector looks at everything once in an hour, or in a day: what strangers cause must be freed without it."""

    def connections() -> int:
        return sum(type(each) is ssl.SSLObject for each in gc.get_objects())

    async def body() -> None:
        async with Node(certs.tls("node")) as node:
            with pytest.raises(Unreachable):
                await node.open(dials(certs.tls(ca=str(certs.foreign.files.cert))))
            gc.collect()
            gc.disable()
            before = connections()
            for said in (b"\x16\x03\x01\x02", b"\x16" + b"GET / HTTP/1.1" * 9):
                peer = await BarePeer.connect(node.address)
                peer.send(said)
                await eventually(lambda: node.door.waiting)
                await peer.close()
                await eventually(lambda: not node.door.waiting)
            with pytest.raises(Unreachable):
                await node.open(dials(certs.tls(ca=str(certs.foreign.files.cert))))
            await eventually(lambda: connections() == before)

    try:
        run(body())
    finally:
        gc.enable()


def test_a_door_that_closes_drops_who_waits(run: Run, certs: Certificates) -> None:
    async def body() -> None:
        async with Node(certs.tls("node"), plain_too=True) as node:
            peers = [await BarePeer.connect(node.address) for _ in range(3)]
            peers[0].send(b"\x16\x03\x01")
            await eventually(lambda: node.door.waiting == 3)
            door = node.door
            await node.server.close(0)
            assert all([await peer.closed() for peer in peers])
            for peer in peers:
                await peer.close()
            await eventually(lambda: not door.waiting)
            with pytest.raises(OSError, match="refused|Connect call failed"):
                await BarePeer.connect(node.address)

    run(body())


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_truncated_connection_invents_nothing(run: Run, certs: Certificates) -> None:
    """What stands before the cut and is whole counts; half a request never does, whatever ends the connection (S3)."""

    async def body() -> None:
        async with Node(certs.tls("node")) as node:
            whole = NATIVE.request(Hello(1, "cut"), 1, False) + NATIVE.request(GetMaxOffset("T", 1), 2, False)
            half = NATIVE.request(GetMaxOffset("T", 2), 3, False)[:-1]
            for reset in (False, True):
                node.asked.clear()
                raw = socket.create_connection(node.address)
                context = dialling(certs.tls())
                speaker = await asyncio.to_thread(context.wrap_socket, raw, server_hostname="127.0.0.1")
                await asyncio.to_thread(speaker.sendall, whole + half)
                await eventually(lambda: node.asked == [1])
                if reset:
                    speaker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                speaker.close()  # without close_notify: the end of TCP only
                await eventually(lambda: not node.server.connections)
                assert node.asked == [1]

    run(body())


def test_what_was_asked_when_the_other_side_broke_off_is_unknown(run: Run, certs: Certificates) -> None:
    """An answer that never came is never taken for one that did; what never left is told apart (P7)."""

    async def body() -> None:
        async with Node(certs.tls("node")) as node:
            channel = await node.open(dials(certs.tls()))
            asked = asyncio.create_task(channel.request(GetMaxOffset("T", 9), 30))
            await eventually(lambda: node.calls)
            (connection,) = node.server.connections
            with socket.socket(fileno=os.dup(connection.descriptor)) as raw:
                raw.shutdown(socket.SHUT_RDWR)
            with pytest.raises(Unknown):
                await asked
            with pytest.raises(Unreachable):
                await channel.request(Ping(), 1)
            await channel.close()

    run(body())


def test_a_server_that_stops_answers_first(run: Run, certs: Certificates) -> None:
    async def body() -> None:
        async with Node(certs.tls("node")) as node:
            channel = await node.open(dials(certs.tls()))
            asked = asyncio.create_task(channel.request(GetMaxOffset("T", 9), 30))
            await eventually(lambda: node.calls)
            closing = asyncio.create_task(node.server.close(30))
            await asyncio.sleep(0)
            node.calls[0].answer(OffsetAnswer(9))
            assert await asked == OffsetAnswer(9)
            await closing
            await channel.closed.wait()
            await channel.close()

    run(body())


def test_bytes_in_bulk_and_a_reader_that_rests(run: Run, certs: Certificates) -> None:
    """Bounds of what a peer leaves unread hold inside TLS too; nothing is lost or out of order."""

    async def body() -> None:
        async with Node(certs.tls("node")) as node:
            context = dialling(certs.tls())
            reader, writer = await asyncio.open_connection(*node.address, ssl=context, limit=1 << 20)
            peer = BarePeer(reader, writer)
            peer.ask(Hello(1, "bulk"), 0)
            await peer.answer()
            for number in range(100):
                peer.ask(ReadLog("g", number, 0), number)
            (connection,) = node.server.connections
            await eventually(lambda: not connection.reading)
            assert connection.unread_bytes < Limits().max_out_bytes
            answers = [str(await peer.answer()) for _ in range(100)]
            assert all(f"{number:06d}" * 100 in answer for number, answer in enumerate(answers))
            peer.writer.close()
            await eventually(lambda: not node.server.connections)

    run(body())


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_changed_certificate_is_taken_and_nobody_is_dropped(run: Run, tmp_path: Path) -> None:
    """Under traffic: open connections go on, new ones see the new certificate; half a change, or an old one, is left (S3)."""

    async def body() -> None:
        authority = Authority.make(tmp_path, SystemClock())
        made = authority.issue("node", HERE)
        tls = Tls(str(authority.files.cert), str(made.cert), str(made.key))
        known = Tls(str(authority.files.cert))
        client = dials(known)
        async with Node(tls) as node:

            async def shown() -> int:
                _, writer = await asyncio.open_connection(*node.address, ssl=dialling(known))
                serial = writer.get_extra_info("peercert")["serialNumber"]
                writer.transport.abort()
                return int(serial, 16)

            async def ask_on() -> int:
                done = 0
                while not over.is_set():
                    assert await old.request(GetMaxOffset("T", 3), 10) == OffsetAnswer(3)
                    done += 1
                return done

            over, old = asyncio.Event(), await node.open(client)
            traffic = asyncio.create_task(ask_on())
            first = await shown()
            cert = made.cert.read_bytes()
            authority.issue("node", HERE)
            both = made.cert.read_bytes()
            made.cert.write_bytes(cert)  # the new key, the old certificate
            await node.clock.advance(2)
            assert await shown() == first
            made.cert.write_bytes(both)
            await node.clock.advance(2)
            assert (second := await shown()) != first
            authority.issue("node", HERE, days=-1)  # it has ended
            await node.clock.advance(2)
            assert await shown() == second
            over.set()
            assert await traffic > 0
            await old.close()

    run(body())


@pytest.mark.parametrize(
    ("change", "about"),
    [
        ({"cert": ""}, "rmq certs make"),
        ({"cert": "nowhere.pem"}, "nowhere.pem: cannot be read"),
        ({"key": "CA"}, "another certificate|no PEM"),
        ({"key": "KEY_OF_CLIENT"}, "another certificate"),
        ({"key": "KEY_OF_ALL"}, "everybody on this machine may read this key .mode 0644.; chmod 600"),
        ({"ca": "NO_PEM"}, "no certificates of authorities"),
        ({"ca": "", "client_auth": "require"}, "tls_ca"),
        ({"ciphers": "NONSENSE"}, "OpenSSL knows none"),
        ({"key_password_file": "OPEN"}, "chmod 600"),
    ],
)
def test_wrong_files_are_named(certs: Certificates, tmp_path: Path, change: dict[str, str], about: str) -> None:
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("not PEM")
    rubbish.chmod(0o644)
    shared = tmp_path / "shared.key"
    shared.write_bytes(certs.made["node"].key.read_bytes())
    shared.chmod(0o644)
    known = {"CA": certs.ca, "KEY_OF_CLIENT": str(certs.made["client"].key), "NO_PEM": str(rubbish), "OPEN": str(rubbish)}
    known["KEY_OF_ALL"] = str(shared)
    wrong = certs.tls("node")._replace(**{name: known.get(value, value) for name, value in change.items()})
    with pytest.raises(InvalidArgument, match=about):
        listening(wrong)
