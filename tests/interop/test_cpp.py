"""RocketMQ's C++ client, by its wrapper on PyPI (`rocketmq` 0.4.4), with our broker and nameserver (C1, C8)."""

import asyncio
from pathlib import Path

import pytest

from rmq.client import Client, Message
from rmq.client.admin import calls as admin
from rmq.errors import RmqError
from rmq.testing import LocalBroker, until
from tests.interop import cppclient
from tests.interop.program import Program


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> None:
    if why_not := cppclient.install(tmp_path_factory.mktemp("home")):
        pytest.skip(why_not)


async def start(home: Path, *arguments: str) -> Program:
    return await Program.start(cppclient.command(*arguments), cppclient.environment(home))


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
                await until(lambda: {*(body for (body,) in consumer.got("GOT")), *got} == everything, 90)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
        finally:
            for program in filter(None, (consumer, sender)):
                await program.kill()
        assert consumer.got("GOT"), "the C++ member had no queue"
        assert got, "the Python member had no queue"
