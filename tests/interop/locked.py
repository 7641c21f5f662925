"""Clients with users of their own at an elected group: Java's, Go's (where there is Go), ours, and gRPC's; leaders are killed.

    python -m tests.interop.locked [--kills 3] [--no-go]

A group of three and two nameservers, each a process. Each client sends to a topic of its own, consumes it, and tries those of
others. The leader is killed again and again, and at the same moment one user's policy is changed, under load: what is
committed must hold at every member within a second, the users keep apart, and what was acknowledged is consumed.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Protocol

import grpc.aio

from rmq.client import Client, Message
from rmq.client.admin import access, calls as admin
from rmq.codes import ResponseCode
from rmq.commands.shared.options import run_fast
from rmq.errors import Refusal, RmqError
from rmq.grpc.schema import v2
from rmq.net.commands import CreateAcl, CreateUser, GetTopicConfig, GetTopicList, Hello, UpdateAcl, UserInfo
from rmq.net.commands.access import AclInfo, Policy, PolicyEntry
from rmq.net.transport.channel import Channel
from rmq.scram import Credentials
from tests.dialing import dial
from tests.door.caller import Caller, ms
from tests.faults.members import Members
from tests.interop import java
from tests.interop.java import Java
from tests.ports import free_port

HERE = Path(__file__).parent
HOLDS_S: Final = 1.0  # a change, at every member, from its commit on
STEP_S = 120.0
CLUSTER = "DefaultCluster"
ROOT, NODE = Credentials("root", "root-secret"), Credentials("node", "node-secret")


class Program(Protocol):
    """A client that runs by itself. Lines as those of `Interop.java locked`."""

    lines: list[str]

    async def stop(self) -> Any: ...


class Native:
    """Ours, in this process."""

    def __init__(self, nameservers: str, topic: str, other: str, user: str) -> None:
        self.lines: list[str] = []
        self._client = Client(nameservers, user=user, password=f"{user}-secret")
        self._topic, self._other, self._user = topic, other, user
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self._client as client, asyncio.TaskGroup() as group:
            group.create_task(self._consume(client))
            group.create_task(self._send(client))

    async def _consume(self, client: Client) -> None:
        async with client.consumer(self._user, self._topic, start="first") as consumer:
            async for message in consumer:
                self.lines.append(f"GOT {message.body.decode()}")

    async def _send(self, client: Client) -> None:
        number = 0
        async with client.producer() as producer:
            while True:
                body = f"{self._topic}-{number}"
                number += 1
                try:
                    await producer.send(Message(self._topic, body.encode()))
                    self.lines.append(f"SENT {body}")
                    if number % 50 == 0:
                        await producer.send(Message(self._other, b"foreign"))
                        self.lines.append("FOREIGN")
                except RmqError as error:
                    self.lines.append(f"REFUSED {error}")
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Grpc:
    """One that speaks gRPC, and signs, by an `rmq proxy` of its own."""

    def __init__(self, nameservers: str, topic: str, other: str, user: str) -> None:
        self.lines: list[str] = []
        self._port = free_port()
        self._words = "-n", nameservers, "--signed", "--listen", f"127.0.0.1:{self._port}"
        self._topic, self._other, self._user = topic, other, user
        self._begun = asyncio.Event()  # a new group reads what comes from now on
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        proxy = await asyncio.create_subprocess_exec(sys.executable, "-m", "rmq.cli", "proxy", *self._words, stdout=PIPE)
        assert proxy.stdout is not None
        try:
            assert b"served" in await proxy.stdout.readline()
            async with Caller(self._port, signs=(self._user, f"{self._user}-secret")) as caller, asyncio.TaskGroup() as group:
                group.create_task(self._consume(caller))
                group.create_task(self._send(caller))
        finally:
            proxy.terminate()
            await proxy.wait()

    async def _consume(self, caller: Caller) -> None:
        while True:
            try:
                code, found = await caller.receive(self._user, self._topic, invisible_duration=ms(10_000))
                self.lines += [f"GOT {message.body.decode()}" for message in found]
                await caller.ack(self._user, self._topic, *found) if found else await asyncio.sleep(0.02)
            except grpc.aio.AioRpcError as error:
                self.lines.append(f"BROKEN {error.details()}")
                await asyncio.sleep(0.1)
                continue
            if code == v2.Code.OK or code == v2.Code.MESSAGE_NOT_FOUND:
                self._begun.set()

    async def _send(self, caller: Caller) -> None:
        await self._begun.wait()
        number = 0
        while True:
            body, number = f"{self._topic}-{number}", number + 1
            entry = await caller.send(self._topic, body.encode())
            self.lines.append(f"SENT {body}" if entry.status.code == v2.Code.OK else f"REFUSED {entry.status.message}")
            if number % 50 == 0 and (await caller.send(self._other, b"foreign")).status.code == v2.Code.OK:
                self.lines.append("FOREIGN")
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Go(Java):
    """RocketMQ's Go client; the same lines."""

    @classmethod
    async def begin(cls, program: Path, *words: str) -> "Go":
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(str(program), *words, stdin=pipe, stdout=pipe, stderr=pipe))


async def built(folder: Path) -> Path:
    """The Go program; its modules come from the module proxy."""
    program = folder / "locked"
    building = await asyncio.create_subprocess_exec("go", "build", "-o", str(program), ".", cwd=HERE / "go")
    assert await building.wait() == 0, "the Go program could not be built"
    return program


class Locked:
    """`found`: what is wrong."""

    def __init__(self, members: Members, client: Client) -> None:
        self._members = members
        self._client = client
        self.programs: dict[str, Program] = {}
        self.longest_s = 0.0
        self.found: list[str] = []

    async def begin(self, go: Path | None) -> None:
        users = ["java", "native", "grpc", *(["go"] if go else [])]
        for user in users:
            await self._persist(lambda user=user: self._make(user))
        await asyncio.sleep(1.0)  # nameservers hear of them
        known = self._members.nameserver_list
        for at, user in enumerate(users):
            other = f"{users[at - 1]}-topic"
            words = (known, f"{user}-topic", user, user, f"{user}-secret", other)
            if user in ("native", "grpc"):
                self.programs[user] = (Native if user == "native" else Grpc)(known, f"{user}-topic", other, user)
            else:
                self.programs[user] = await (Go.begin(go, *words) if user == "go" and go else Java.start("locked", *words))
        for user in users:
            await self._goes_on(user)

    async def _make(self, user: str) -> None:
        topic = f"{user}-topic"
        leader = self._members.nodes[self._members.leader].address
        await admin.update_topic(self._client, topic, broker=leader, read_queues=4, write_queues=4)
        try:
            await access.change(self._client, CLUSTER, "", CreateUser(user, UserInfo(user, f"{user}-secret")))
        except Refusal as refusal:
            if refusal.code != ResponseCode.INVALID_PARAMETER:  # it is there, by an earlier try
                raise
        entries = [PolicyEntry(f"Topic:{topic}", ["Pub", "Sub", "Get"]), PolicyEntry(f"Group:{user}", ["Sub"])]
        await access.change(self._client, CLUSTER, "", CreateAcl(f"User:{user}", AclInfo("", [Policy("Custom", entries)])))

    async def kill_and_change(self, user: str) -> None:
        """kill -9 of the leader; at once the user loses its topic, and gets it back when all have been looked at."""
        victim = self._members.leader
        await self._members.nodes[victim].kill()
        await self._persist(lambda: self._set(user, "Deny"))
        committed = time.monotonic()
        alive = [name for name in self._members.names if name != victim]
        await asyncio.gather(*(self._holds(user, name, committed) for name in alive))
        known = len(self.programs[user].lines)
        await self._until(lambda: any(line.startswith("REFUSED") for line in self.programs[user].lines[known:]))
        known = len(self.programs[user].lines)
        await self._members.nodes[victim].start()
        await self._until(self._members.level_enough)
        await self._holds(user, victim, time.monotonic())
        late = [line for line in self.programs[user].lines[known:] if line.startswith("SENT")]
        self.found += [f"{user} sent {len(late)} messages though it might not"] if late else []
        for other in self.programs.keys() - {user}:
            await self._goes_on(other)
        await self._persist(lambda: self._set(user, "Allow"))
        await self._goes_on(user)

    async def _set(self, user: str, decision: str) -> None:
        entry = PolicyEntry(f"Topic:{user}-topic", ["Pub", "Sub", "Get"], [], decision)
        await access.change(self._client, CLUSTER, "", UpdateAcl(f"User:{user}", AclInfo("", [Policy("Custom", [entry])])))

    async def _holds(self, user: str, name: str, since: float) -> None:
        """Until that member refuses the user."""
        channel = await self._entered(user, name)
        while True:
            try:
                await channel.request(GetTopicConfig(f"{user}-topic"), 5.0)
            except Refusal as refusal:
                if refusal.code == ResponseCode.NO_PERMISSION:
                    break
        await channel.close()
        took_s = time.monotonic() - since
        self.longest_s = max(self.longest_s, took_s)
        if took_s > HOLDS_S:
            self.found.append(f"a change held at {name} after {took_s:.2f} s")

    async def _entered(self, user: str, name: str) -> Channel:
        """As soon as the member knows its users again."""
        who, address = Credentials(user, f"{user}-secret"), self._members.nodes[name].address
        async with asyncio.timeout(STEP_S):
            while True:
                try:
                    return await dial(address, Hello(1, "prober"), credentials=who)
                except Refusal as refusal:
                    if refusal.code != ResponseCode.SYSTEM_BUSY:
                        raise
                await asyncio.sleep(0.02)

    async def finish(self) -> None:
        """Everybody consumed what it sent, and nobody saw another's."""
        for user, program in self.programs.items():
            begun = time.monotonic()
            while (topics := await self._topics_of(user)) != [f"{user}-topic"] and time.monotonic() - begun < HOLDS_S:
                await asyncio.sleep(0.02)  # the nameserver hears of the last change
            self.found += [f"{user} sees {topics}"] if topics != [f"{user}-topic"] else []
            await self._until(lambda program=program: not _missing(program))
            await program.stop()
            got = [line for line in program.lines if line.startswith("GOT") and not line.startswith(f"GOT {user}-topic-")]
            self.found += [f"{user} got {got[:3]}"] if got else []
            self.found += [f"{user} sent to another's topic"] if "FOREIGN" in program.lines else []

    async def _topics_of(self, user: str) -> list[str]:
        who = Credentials(user, f"{user}-secret")
        channel = await dial(self._members.nameserver_list.partition(";")[0], Hello(1, "lister"), credentials=who)
        answer: Any = await channel.request(GetTopicList(), 5.0)
        await channel.close()
        return sorted(topic for topic in answer.topics if topic.endswith("-topic"))

    async def _goes_on(self, user: str) -> None:
        """It sends and gets more."""
        program = self.programs[user]
        known = len(program.lines)
        for word in ("SENT", "GOT"):
            await self._until(lambda word=word: any(line.startswith(word) for line in program.lines[known:]))

    async def _persist(self, work: Callable[[], Awaitable[None]]) -> None:
        """Through a change of leaders; all of it may be done twice."""
        async with asyncio.timeout(STEP_S):
            while True:
                try:
                    await work()
                except (RmqError, KeyError):
                    await asyncio.sleep(0.05)
                else:
                    return

    async def _until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(STEP_S):
            while not condition():
                await asyncio.sleep(0.02)


def _missing(program: Program) -> set[str]:
    sent, got = ({line.partition(" ")[2] for line in program.lines if line.startswith(word)} for word in ("SENT", "GOT"))
    return sent - got


async def locked(folder: Path, kills: int, with_go: bool) -> Locked:
    go = await built(folder) if with_go else None
    secret = {"node_credentials": json.dumps({"accessKey": NODE.name, "secretKey": NODE.secret})}
    first = json.dumps({"username": ROOT.name, "password": ROOT.secret})
    rules = {"authentication": "true", "authorization": "true", "auto_create_topic": "false"}
    members = Members(folder, **rules, **secret, init_user=first)
    members.credentials = ROOT
    try:
        await members.start()
        async with Client(members.nameserver_list, user=ROOT.name, password=ROOT.secret) as client:
            run = Locked(members, client)
            try:
                await run.begin(go)
                for number in range(kills):
                    user = list(run.programs)[number % len(run.programs)]
                    await run.kill_and_change(user)
                    print(
                        f"{number + 1}/{kills}: {user} lost its topic and got it back; longest so far {run.longest_s:.3f} s",
                        flush=True,
                    )
                await run.finish()
            finally:
                for program in run.programs.values():
                    await program.stop()
        return run
    finally:
        await members.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--no-go", action="store_true")
    options = parser.parse_args()
    java.build()
    with_go = not options.no_go and shutil.which("go") is not None
    with tempfile.TemporaryDirectory(prefix="rmq-locked-") as folder:
        run = run_fast(locked(Path(folder), options.kills, with_go))
    sent = {user: sum(line.startswith("SENT") for line in program.lines) for user, program in run.programs.items()}
    print(f"sent and consumed {sent}; a change held at every member after {run.longest_s:.3f} s at most")
    print("\n".join(run.found) or "all well")
    return bool(run.found)


if __name__ == "__main__":
    sys.exit(main())
