"""RocketMQ's C++ client, by its wrapper on PyPI (`rocketmq` 0.4.4), with our broker and nameserver (C1, C8)."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmq.client import Client, Message
from rmq.client.admin import calls as admin
from rmq.errors import RmqError
from rmq.testing import LocalBroker, until

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("RMQ_INTEROP_CACHE", Path.home() / ".cache" / "rmq" / "interop")) / "pypi-rocketmq-0.4.4"
INSTALL = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:", "rocketmq==0.4.4"]
PROGRAM = [sys.executable, str(HERE / "cpp.py")]


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CACHE), "HOME": str(home)}  # its log goes to $HOME


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The wheel in a cache; it brings the C++ library for Linux on x86-64."""
    if not CACHE.is_dir():
        done = subprocess.run([*INSTALL, "--target", str(CACHE)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"PyPI's rocketmq 0.4.4 does not install here: {done.stderr.strip()[-200:]}")
    environ = environment(tmp_path_factory.mktemp("home"))
    loaded = subprocess.run([*PROGRAM, "check"], capture_output=True, text=True, env=environ)
    if loaded.returncode:
        pytest.skip(f"PyPI's rocketmq 0.4.4 does not load here: {loaded.stderr.strip()[-200:]}")


class Program:
    """A running cpp.py: its lines as they come."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().strip())

    def got(self, word: str) -> list[str]:
        return [line.removeprefix(f"{word} ") for line in self.lines if line.startswith(word)]

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reader


async def start(home: Path, *arguments: str) -> Program:
    pipe = asyncio.subprocess.PIPE
    return Program(await asyncio.create_subprocess_exec(*PROGRAM, *arguments, stdin=pipe, stdout=pipe, env=environment(home)))


async def members(client: Client, group: str) -> int:
    try:
        return len((await admin.consumer_connection(client, group)).connections)
    except RmqError:  # none yet
        return 0


@pytest.mark.parametrize("group", ["mixed", "g" * 120])
async def test_cpp_and_python_consume_in_one_group(installed: None, tmp_path: Path, group: str) -> None:
    """Each has queues, nothing is lost."""
    async with LocalBroker() as broker:
        await broker.create_topic("Shared", queues=8)
        consumer = await start(tmp_path, "consume", broker.nameserver, group, "Shared", "*")
        sender: Program | None = None
        got: list[str] = []
        try:
            async with broker.client() as client, client.consumer(group, topics={"Shared": "*"}, start="first") as ours:
                running = asyncio.create_task(ours.run(lambda message: got.append(message.body.decode())))
                async with asyncio.timeout(60):
                    while await members(client, group) < 2:
                        pass
                sender = await start(tmp_path, "send", broker.nameserver, "cpp-producers", "Shared", "40")
                await until(lambda: sender is not None and len(sender.got("SENT")) == 40, 60)
                async with client.producer("python-producers") as python:
                    for number in range(40):
                        await python.send(Message("Shared", f"python-{number}".encode(), tags="red"))
                everything = {f"{who}-{number}" for who in ("cpp", "python") for number in range(40)}
                await until(lambda: {*consumer.got("GOT"), *got} == everything, 90)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
        finally:
            for program in filter(None, (consumer, sender)):
                await program.end()
        assert consumer.got("GOT"), "the C++ member had no queue"
        assert got, "the Python member had no queue"
