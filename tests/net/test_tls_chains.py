"""TLS with authorities between the root and the leaf, revoked ones too; and a peer that wants to negotiate anew."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from rmq.clock import SystemClock
from rmq.net.commands import GetMaxOffset, OffsetAnswer
from rmq.net.transport.tls import Tls
from rmq.ops.certs import Authority, Made
from tests.certificates import HERE, Certificates
from tests.net.support import eventually
from tests.net.test_tls import Node, Run, certs, dials, refused, run, works

__all__ = ["certs", "run"]  # fixtures


class Chained:
    """A root, an authority that it certified, and certificates of that one. `pem(...)`: a file that holds all of these."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.root = Authority.make(folder / "root", SystemClock(), "root")
        self.between = self.root.subordinate(folder / "between", "between")

    def issue(self, name: str) -> Made:
        return self.between.issue(name, HERE)

    def pem(self, name: str, *parts: Path) -> str:
        file = self._folder / name
        file.write_bytes(b"".join(part.read_bytes() for part in parts))
        return str(file)


def test_a_chain_must_be_whole(run: Run, tmp_path: Path) -> None:
    """Each side shows the authorities between its leaf and the root, which the other side trusts."""

    async def body() -> None:
        chained = Chained(tmp_path)
        ca, made = str(chained.root.files.cert), chained.issue("node")
        whole = chained.pem("whole.pem", made.cert, chained.between.files.cert)
        async with Node(Tls(ca, whole, str(made.key), client_auth="require")) as node:
            await works(node, dials(Tls(ca, whole, str(made.key))))
            node.asked.clear()
            await refused(node, dials(Tls(ca, str(made.cert), str(made.key))), ".")
        async with Node(Tls(ca, str(made.cert), str(made.key))) as node:
            await refused(node, dials(Tls(ca)), "unable to get local issuer")
        async with Node(Tls(ca, whole, str(made.key))) as node:
            leaf_as_authority = chained.pem("leaf.pem", made.cert)
            await refused(node, dials(Tls(leaf_as_authority)), "issuer|self.signed")

    run(body())


def test_an_authority_that_was_revoked(run: Run, tmp_path: Path) -> None:
    """Everything below it is refused, by who listens and by who dials; a missing list is as bad as a bad one."""

    async def body() -> None:
        chained = Chained(tmp_path)
        made = chained.issue("node")
        whole = chained.pem("whole.pem", made.cert, chained.between.files.cert)
        key = str(made.key)
        chained.between.revoke()
        chained.root.revoke()
        both = chained.pem("good.pem", chained.root.files.cert, chained.between.files.cert)
        no_list = chained.pem("half.pem", chained.root.files.cert)
        chained.root.revoke(chained.between.files.cert)
        revoked = chained.pem("revoked.pem", chained.root.files.cert, chained.between.files.cert)
        async with Node(Tls(both, whole, key, client_auth="require")) as node:
            await works(node, dials(Tls(both, whole, key)))
            node.asked.clear()
            await refused(node, dials(Tls(revoked, whole, key)), "revoked")
            await refused(node, dials(Tls(no_list, whole, key)), "unable to get certificate CRL")
        for ca in (revoked, no_list):
            async with Node(Tls(ca, whole, key, client_auth="require")) as node:
                await refused(node, dials(Tls(both, whole, key)), ".")

    run(body())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_who_negotiates_anew_is_refused_and_nobody_notices(run: Run, certs: Certificates, version: str) -> None:
    """`R`: a client of TLS 1.2 that begins its handshake again, on an open connection, once and again; 1.3 has no such thing, and
    its new keys (`K`) are no handshake."""

    async def body() -> None:
        async with Node(certs.tls("node")) as node:
            other = await node.open(dials(certs.tls()))
            host = f"{node.address[0]}:{node.address[1]}"
            pipe = asyncio.subprocess.PIPE
            command: Sequence[str] = ("openssl", "s_client", "-connect", host, version, "-CAfile", certs.ca)
            stranger = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
            await eventually(lambda: len(node.server.connections) == 2)
            told, errors = await stranger.communicate(b"R\nR\n" if version == "-tls1_2" else b"K\nK\n")
            if version == "-tls1_2":
                assert b"RENEGOTIATING" in errors
                assert b"no renegotiation" in errors
            assert b"Verify return code: 0" in told
            await eventually(lambda: len(node.server.connections) == 1)
            assert await other.request(GetMaxOffset("T", 7), 10) == OffsetAnswer(7)
            assert node.asked == [7]
            assert not node.door.waiting
            await other.close()

    run(body())
