"""Topics, groups and clients come and go: what a broker, a nameserver and a client keep of them goes, too."""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rmq.client import Client, ClientSettings, Decision, Message, PoppedMessage
from rmq.client.admin import calls
from rmq.model import ConsumerData, GroupConfig, MessageQueue, Subscription
from rmq.net.commands import Heartbeat, LockQueues, Pull
from rmq.testing import LocalBroker
from tests.broker.support import Peer
from tests.reached import sizes

TIMES = 4
SETTINGS: dict[str, Any] = {
    "light_queues": True,
    "light_dispatch": True,
    "recall_messages": True,
    "property_filter": True,
    "max_message_bytes": 4096,
    "segment_bytes": 65_536,
    "reserved_hours": 1,
    "delete_hours": tuple(range(24)),
    "transaction_check_interval_ms": 1000,
    "transaction_check_max": 2,
    "transaction_timeout_ms": 1000,
}
BOUNDED = (  # by a number; the end of each way
    "ends._ends",  # deleted topics, with their places
    "halves._ended",  # outcomes of transactions
    "due._unlisted",
    "_places._passed",
    "._pulls.known",  # forms of requests, of all connections and of one
    "._sends.known",
    "layouts.known",
    "_forms._mine",
    "_learn_route._mine",
    "history._parts[][]<>",  # what was counted in a day
    "latencies._flushes",
    "_samples",  # of the last ten minutes
    "_sleepers",
    "_producer._drafts",  # topics of a producer
    "_chooser._turns",
)


class Churn:
    """A life of one topic and its groups for each kind. `client` stays, others come and go."""

    def __init__(self, broker: LocalBroker, client: Client, folder: Path) -> None:
        self._broker = broker
        self._client = client
        self._settings = ClientSettings(offsets_directory=folder, trace=True)
        one = (self.plain, self.ordered, self.failed, self.broadcast, self.popped, self.later)
        self._kinds = (*one, self.halves, self.lites, self.lights, self.batches, self.asked, self.cut_off)

    async def crowd(self, first: int) -> None:
        for number in range(first, first + TIMES):
            await asyncio.gather(*(self._live(kind, number) for kind in self._kinds))
            await self._broker.clock.advance(60)

    async def _live(self, kind: Callable[[str, Client], Awaitable[None]], number: int) -> None:
        name = f"{kind.__name__}{number}{'x' * 80 if number % 3 == 0 else ''}"
        attributes = {"lites": "+message.type=LITE", "batches": "+queue.type=BatchCQ"}.get(kind.__name__, "")
        where = self._broker.address
        await calls.update_topic(self._client, name, broker=where, read_queues=2, write_queues=2, attributes=attributes)
        rules = {"+lite.bind.topic": name} if kind.__name__ == "lites" else {}
        await calls.update_group(self._client, GroupConfig(name, retry_max_times=1, attributes=rules), broker=where)
        client = Client(self._broker.nameserver, instance=name[:40], settings=self._settings, clock=self._broker.clock)
        async with client:
            await kind(name, client)
        await calls.delete_group(self._client, name, clean_offsets=True, broker=where)
        for topic in (name, f"%RETRY%{name}", f"%DLQ%{name}"):
            await calls.delete_topic(self._client, topic, cluster="DefaultCluster")

    async def plain(self, name: str, client: Client) -> None:
        async with self._client.producer(name) as producer:
            await producer.send_batch([Message(name, b"x" * 900, tags="a", keys=[name], properties={"kind": name})] * 4)
        for sql in (None, f"kind = '{name}'"):
            async with self._client.consumer(name, name, sql=sql, start="first") as consumer:
                await consumer.receive(1, timeout=10)
        async with client.consumer(name, {name: "b"}, start="first"):
            await calls.consume_stats(client, name)

    async def ordered(self, name: str, client: Client) -> None:
        await client.producer().send(Message(name, b"x"), key="k")
        async with client.consumer(name, name, start="first", ordered=True) as consumer:
            await consumer.receive(1, timeout=10)
        peer = await Peer.connect(self._broker.address, name)
        await peer.ask(LockQueues(name, "somebody", [MessageQueue(name, "broker-a", each) for each in (0, 1)]))
        await peer.close()

    async def failed(self, name: str, client: Client) -> None:
        await client.producer().send(Message(name, b"x"))
        for retries in (5, 0):
            async with client.consumer(name, name, start="first", max_retries=retries) as consumer:
                for one in await consumer.receive(1, timeout=1):
                    await consumer.retry_later(one, 1)
            await self._broker.clock.advance(2)

    async def broadcast(self, name: str, client: Client) -> None:
        await client.producer().send(Message(name, b"x"))
        async with client.consumer(name, name, start="first", mode="broadcast") as consumer:
            await consumer.receive(1, timeout=10)

    async def popped(self, name: str, client: Client) -> None:
        """One acknowledged, one given back later, one left, and what nobody wanted."""
        messages = [Message(name, b"x", tags="a")] * 3
        await client.producer().send_batch(messages, key="k")
        async with client.simple_consumer(name, {name: "b"}, start="first") as consumer:
            await consumer.receive(wait_seconds=0)  # which passes them
        await client.producer().send_batch(messages, key="k")
        async with self._client.simple_consumer(name, name, start="first") as consumer:
            taken: list[PoppedMessage] = []
            while len(taken) < 3:
                taken += await consumer.receive(1, wait_seconds=10)
            await consumer.ack(taken[0])
            await consumer.change_invisible(taken[1], 5)

    async def later(self, name: str, client: Client) -> None:
        producer = client.producer()
        await producer.send(Message(name, b"x", delay_level=3))
        await producer.recall(await producer.send(Message(name, b"x", delay_s=40)))
        await producer.send(Message(name, b"x", delay_s=50))

    async def halves(self, name: str, client: Client) -> None:
        producer = client.transaction_producer(lambda _: Decision.UNKNOWN, name)
        for decision in Decision:
            await producer.send_in_transaction(Message(name, b"x"), lambda _, said=decision: said)  # type: ignore[misc]

    async def lites(self, name: str, client: Client) -> None:
        lites = [f"{name[:50]}-{each}" for each in range(3)]
        async with client.lite_consumer(name, name, lites[:2]) as consumer:
            for lite in lites:
                await client.producer().send(Message(name, b"x", lite_topic=lite))
            await consumer.ack((await consumer.receive(wait_seconds=10))[0])
            await consumer.add(lites[2])
            await consumer.remove(lites[0])

    async def lights(self, name: str, client: Client) -> None:
        await client.producer().send(Message(name, b"x", light_queues=[name]))
        async with client.light_consumer(name, name, name) as consumer:
            await consumer.receive(1, timeout=10)
            await consumer.commit()

    async def batches(self, name: str, client: Client) -> None:
        await client.producer().send_batch([Message(name, b"x")] * 3)

    async def asked(self, name: str, client: Client) -> None:
        async with client.consumer(name, name, start="first") as consumer:
            running = asyncio.create_task(consumer.run(consumer.reply(lambda message: message.body)))
            await self._client.request(Message(name, b"x"), timeout=10)
            consumer.stop()
            await running

    async def cut_off(self, name: str, client: Client) -> None:
        """A member whose pulls wait, and connections that say nothing, or half a request."""
        peer = await Peer.connect(self._broker.address, name)
        await peer.ask(Heartbeat(name, [name], [ConsumerData(name, subscriptions=[Subscription(name, "*", "TAG", 1)])]))
        waiting = [asyncio.create_task(peer.ask(Pull(name, name, queue_id, 0))) for queue_id in (0, 1)]
        await client.producer().send(Message(name, b"x"), queue=MessageQueue(name, "broker-a", 0))
        peer.channel.abort("the end")
        await asyncio.gather(*waiting, return_exceptions=True)
        for address in (self._broker.address, self._broker.nameserver):
            host, _, port = address.rpartition(":")
            for said in (b"", b"\0\0\x10\0abc", os.urandom(40)):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(said)
                writer.transport.abort() if said else writer.close()


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(**SETTINGS) as broker:
        yield broker


async def test_nothing_is_left_of_what_came_and_went(broker: LocalBroker, tmp_path: Path) -> None:
    """A second crowd leaves nothing that the first one did not, but for what is bounded by a number."""

    def now() -> Counter[str]:
        return sizes({"broker": broker.serving, "nameserver": broker.naming, "client": client})

    async with broker.client(settings=ClientSettings(offsets_directory=tmp_path)) as client:
        churn = Churn(broker, client, tmp_path)
        await churn.crowd(0)
        await broker.clock.advance(300)
        before = now()
        await churn.crowd(TIMES)
        broker.clock.skip(2 * 3600)  # files of the log go
        with contextlib.suppress(TimeoutError):
            await broker.clock.advance_until(lambda: not grown(before, now()), 30, 60)
        assert grown(before, now()) == []


def grown(before: Counter[str], after: Counter[str]) -> list[str]:
    ways = (way for way in after if not way.endswith(BOUNDED) and "_queues._known" not in way)  # the latter of a producer
    return [f"{way}: {before[way]}, {after[way]}" for way in ways if after[way] - before[way] >= TIMES]
