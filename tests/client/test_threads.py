"""A client where the system gives no more threads, as in a container with a small limit of processes."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rmq import scram
from rmq.client import Client, Message
from rmq.client.consumer.fileoffsets import FileOffsets
from rmq.net.commands import BeginLogin, FinishLogin, LoginAnswer
from rmq.testing import TestClock, until
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, queue


class Threads(ThreadPoolExecutor):
    """The system's, while it gives any."""

    def __init__(self) -> None:
        super().__init__(4)
        self.refused = 0
        self.given = False

    def submit(self, work: Any, /, *args: Any, **more: Any) -> Any:
        if not self.given:
            self.refused += 1
            raise RuntimeError("can't start new thread")
        return super().submit(work, *args, **more)


async def test_it_logs_in(broker: Broker) -> None:
    """The heartbeats of a client ended that had to connect again at such a moment: its members lost their queues for good."""
    keys, logins = scram.keys_of("secret", b"8 bytes.", 4096), list[scram.Server]()

    def begin(request: BeginLogin, call: object) -> LoginAnswer:
        logins.append(scram.Server(scram.read_first(request.message), keys, "nonce"))
        return LoginAnswer(logins[-1].first)

    broker.also(BeginLogin, begin)
    broker.also(FinishLogin, lambda request, call: LoginAnswer(logins[-1].check(request.message) or ""))
    asyncio.get_running_loop().set_default_executor(threads := Threads())
    async with Client(broker.address, user="bob", password="secret") as client, client.producer() as producer:
        await producer.send(Message("T", b"x"))
    assert threads.refused


async def test_a_broadcast_member_commits_when_there_are_threads_again(
    broker: Broker, make_client: MakeClient, tmp_path: Path
) -> None:
    """Its commits ended for good: after a restart it handled again all that came since."""
    asyncio.get_running_loop().set_default_executor(threads := Threads())
    threads.given = True
    client = make_client(clock=(clock := TestClock(running=False)), instance="one", commit_s=5.0)
    async with client.consumer("g", "T", mode="broadcast", start="first") as consumer:
        broker.put("T", 0, 1)
        await anext(consumer)
        arrived = asyncio.create_task(anext(consumer))
        await until(lambda: not consumer.held)
        threads.given = False
        await clock.advance_until(lambda: threads.refused)
        threads.given = True
        await clock.advance_until(lambda: files(tmp_path))
        offsets = FileOffsets(*files(tmp_path))
        await offsets.open()
        assert (await offsets.load(queue("T", 0))).offset == 1
        arrived.cancel()


def files(directory: Path) -> list[Path]:
    return [*directory.rglob("*.json")]
