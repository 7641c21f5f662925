"""Clients of a real broker that send single requests and look at single answers."""

import asyncio
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmq.config.settings import NodeSettings
from rmq.errors import Refusal
from rmq.log.records import record
from rmq.log.records.record import Record
from rmq.model import EPOCH_TOPIC, ConsumerData, Subscription
from rmq.net.commands import GetMinOffset, Heartbeat, Hello, Pull, PullAnswer, Send, SendAnswer
from rmq.net.transport.channel import Channel
from rmq.net.transport.tls import Tls
from rmq.scram import Credentials
from rmq.testing import SEGMENT_BYTES, SMALL_INDEX, LocalBroker, until
from tests.dialing import dial

BORN = record.host_bytes("127.0.0.1", 50000)
SUBSCRIBED, HELD = 4, 6  # sys_flag of pulls that bring their subscription; that may wait as well


def small_node(store: Path, **more: Any) -> NodeSettings:
    """Settings of a broker on a free port whose files are so small that its store may lie in memory."""
    small = {"segment_bytes": SEGMENT_BYTES, **SMALL_INDEX, **more}
    return NodeSettings(**{"role": "broker", "store_dir": store, "listen_port": 0, **small})


def send(topic: str, body: bytes = b"body", *, queue_id: int = 0, count: int = 1, tags: str = "", **fields: Any) -> Send:
    properties = record.properties_to_bytes({"TAGS": tags} if tags else {})
    draft = record.draft(topic, body, properties, born_timestamp=1000, born_host=BORN)
    return Send("p", topic, queue_id, draft * count, **fields)


def beat(client_id: str, *groups: str, topic: str = "T", expression: str = "*", version: int = 1) -> Heartbeat:
    subscriptions = [Subscription(topic, expression, "TAG", version)]
    return Heartbeat(client_id, ["p"], [ConsumerData(group, subscriptions=subscriptions) for group in groups])


def bodies(answer: PullAnswer) -> list[bytes]:
    return [found.body for found in record.iterate(answer.messages)]


def flip_voters(store: Path) -> None:
    """One wrong bit in the newest record that says who votes, in the first file of the log."""
    path = store / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    at = newest = 0
    while size := int.from_bytes(content[at : at + 4], "big"):
        newest = at if record.has_topic(content, at, EPOCH_TOPIC) else newest
        at += size
    content[newest + 100] ^= 1  # in its body
    path.write_bytes(content)


def hold_reads(monkeypatch: pytest.MonkeyPatch, reader: type[Any]) -> tuple[asyncio.Event, asyncio.Event]:
    """What a `reader` has read it gives only once the second event is set; the first one says that it has read."""
    reading, go_on, read = asyncio.Event(), asyncio.Event(), reader.read

    async def slowly(self: Any, *asked: Any) -> Any:
        found = await read(self, *asked)
        reading.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(reader, "read", slowly)
    return reading, go_on


def copy_of_running(store: Path, copy: Path) -> Path:
    """The store as kill -9 would leave it, for a broker that goes on: files that it renames or removes meanwhile do not count,
    and none of those that say how far others are may be saved while these are copied."""
    while True:
        try:
            before = _saved(store)
            copied = Path(shutil.copytree(store, copy, ignore=shutil.ignore_patterns("*.new")))
            if _saved(store) == before:
                return copied
        except (shutil.Error, FileNotFoundError):
            pass
        shutil.rmtree(copy, ignore_errors=True)


async def stop_somehow(broker: LocalBroker, chance: random.Random) -> None:
    """In order, or its next run begins with what a kill leaves in this moment; now and then without a snapshot, as long as the
    log has everything that one knows."""
    if chance.random() < 0.5:
        image = copy_of_running(broker.store_dir, broker.store_dir.with_name(f"{broker.store_dir.name}+"))
        await broker.stop_broker()
        broker.store_dir = image
    else:
        await broker.stop_broker()
    if chance.random() < 0.3 and (broker.store_dir / "commitlog" / f"{0:020d}").exists():
        for snapshot in (broker.store_dir / "rmq").glob("snapshot-*"):
            snapshot.unlink()


def _saved(store: Path) -> dict[str, tuple[int, int]]:
    """Each small file of the store: it is another one once it is saved again."""
    with os.scandir(store / "rmq") as found:
        return {entry.name: (entry.inode(), entry.stat().st_ctime_ns) for entry in found if not entry.name.endswith(".new")}


class Peer:
    """One connection. `pushed`: what the broker asked of it."""

    def __init__(self, channel: Channel, pushed: list[Any]) -> None:
        self.channel = channel
        self.pushed = pushed

    @classmethod
    async def connect(
        cls, address: str, client_id: str = "c", tls: Tls | None = None, credentials: Credentials | None = None
    ) -> "Peer":
        pushed: list[Any] = []
        channel = await dial(address, Hello(1, client_id), on_request=pushed.append, tls=tls, credentials=credentials)
        return cls(channel, pushed)

    async def ask(self, request: Any) -> Any:
        return await self.channel.request(request, 20.0)

    async def refusal(self, request: Any) -> int:
        """The code of the refusal that comes."""
        with pytest.raises(Refusal) as refused:
            await self.ask(request)
        assert refused.value.remark, "a refusal says why"
        return int(refused.value.code)

    async def ask_code(self, request: Any) -> int:
        """The code of the refusal that comes, 0 if none does."""
        try:
            await self.ask(request)
        except Refusal as refusal:
            return int(refusal.code)
        return 0

    async def send(self, *requests: Send) -> Sequence[SendAnswer]:
        return [await self.ask(request) for request in requests]

    async def pull(self, topic: str, offset: int, flag: int = SUBSCRIBED, **fields: Any) -> PullAnswer:
        answer = await self.ask(Pull("g", topic, fields.pop("queue_id", 0), offset, sys_flag=flag, **fields))
        assert isinstance(answer, PullAnswer)
        return answer

    async def wait_for_pushes(self, count: int) -> None:
        await until(lambda: len(self.pushed) >= count)

    async def close(self) -> None:
        await self.channel.close()


async def everything(peer: Peer, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """All of a queue."""
    start = int((await peer.ask(GetMinOffset(topic, queue_id))).offset)
    found: list[Record] = []
    while more := list(record.iterate((await peer.pull(topic, start + len(found), queue_id=queue_id)).messages)):
        found += more
    return found
