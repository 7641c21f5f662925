"""File descriptors: a node asks for as many as it needs, and connections never take those of its log."""

import asyncio
import errno
import re
import resource
import shlex
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from rmq.client import Client
from rmq.client.shared.message import Message
from rmq.commands.shared import exits
from rmq.log.files.disk import remedy
from rmq.testing import LocalBroker
from tests.cli.test_node import Running

ROOT = Path(__file__).parents[2]
SMALL = ("--set", "max_message_bytes=4096", "--set", "segment_bytes=65536")


class Limited(Running):
    """With at most so many file descriptors."""

    def __init__(self, store: Path, soft: int, hard: int, *arguments: str) -> None:
        super().__init__(store, *arguments)
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_the_soft_limit_is_raised(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    node = Limited(tmp_path / "store", 300, hard).ready()
    found = re.search(r"Max open files +(\d+)", Path(f"/proc/{node.process.pid}/limits").read_text())
    assert found is not None
    assert int(found[1]) == min(hard, 2 * 10_000 + 4096)
    assert node.stop() == 0


def test_a_node_to_which_nobody_could_connect_does_not_start(tmp_path: Path) -> None:
    """It said that it is ready, and refused each connection; clients were told that maybe it wants TLS."""
    _, said = (node := Limited(tmp_path / "store", 256, 256)).process.communicate(timeout=60)
    assert node.process.returncode == exits.FAILED
    assert said.splitlines()[-1].startswith("rmq: this process may have 256 files open")


async def test_connections_leave_the_log_its_files(tmp_path: Path) -> None:
    """More connections than there are descriptors, then rolls of the log: what is connected is served, the rest is refused."""
    node = Limited(tmp_path / "store", 400, 400, *SMALL).ready()
    assert any("too few for max_connections" in line["message"] for line in node.lines)
    host, _, port = node.broker.rpartition(":")
    sockets = []
    try:
        async with Client(node.namesrv) as client, client.producer("p") as producer:
            await producer.send(Message("T", b"first"))
            for _ in range(500):
                sockets.append(socket.create_connection((host, int(port))))
            for _ in range(200):
                await producer.send(Message("T", bytes(2000)))
    except BaseException:
        node.process.kill()
        raise
    finally:
        for one in sockets:
            one.close()
    segments = [path for path in (tmp_path / "store" / "commitlog").iterdir() if path.name.isdecimal()]
    assert len(segments) > 4
    assert node.stop() == 0
    assert any("too few file descriptors" in line["message"] for line in node.lines)


async def test_a_store_of_more_files_than_the_usual_limit_is_checked_and_restored(tmp_path: Path) -> None:
    """As one of a TiB under the usual 1024: "Too many open files", of restore when all had been copied."""
    store, archive, restored = (str(tmp_path / name) for name in ("store", "archive", "restored"))
    async with (
        LocalBroker(store_dir=Path(store), max_message_bytes=4096, segment_bytes=65536) as broker,
        broker.client() as client,
    ):
        for _ in range(2000):
            await client.producer().send(Message("T", bytes(3000)))
    for words in (["archive", store, archive], ["restore", archive, restored], ["store", "verify", restored]):
        await run_limited(50, *words)


async def run_limited(soft: int, *words: str) -> None:
    """Raises AssertionError unless it ends well."""
    limit = f"ulimit -Sn {soft}; exec {shlex.join([sys.executable, '-m', 'rmq.cli', *words])}"
    process = await asyncio.create_subprocess_exec("sh", "-c", limit, cwd=ROOT, stdout=DEVNULL, stderr=PIPE)
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == exits.OK, (words, said)


def test_the_advice_is_about_what_is_lacking() -> None:
    assert "free space" in remedy(OSError(errno.ENOSPC, "No space left on device"), "free space")
    advice = remedy(OSError(errno.EMFILE, "Too many open files"), "free space")
    assert "LimitNOFILE" in advice
    assert "free space" not in advice
