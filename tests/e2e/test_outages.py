"""Nameservers and brokers that go and come back under clients that work."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from rmq.client import Client, ClientSettings, Message, ReceivedMessage, Refusal
from rmq.client.admin import calls as admin
from rmq.errors import RmqError, Unknown
from rmq.testing import LocalBroker, until


def settings(folder: Path) -> ClientSettings:
    return ClientSettings(hand_over_s=0.05, commit_s=0.2, suspend_s=1.0, offsets_directory=folder)


class Reading:
    """A consumer that runs until it is stopped, and what it saw."""

    def __init__(self, client: Client) -> None:
        self.bodies: Counter[bytes] = Counter()
        self.places: Counter[tuple[int, int]] = Counter()
        self._consumer = client.consumer("g", "T", start="first")

    async def __aenter__(self) -> "Reading":
        await self._consumer.start()
        self._run = asyncio.create_task(self._consumer.run(self._note, concurrency=1))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.close()
        await self._run

    async def _note(self, message: ReceivedMessage) -> None:
        self.bodies[message.body] += 1
        self.places[message.queue.queue_id, message.queue_offset] += 1


async def test_clients_with_a_route_go_on_without_nameservers(tmp_path: Path) -> None:
    """N3: with all of them down nobody notices; one that comes back empty knows everything within one heartbeat."""
    async with LocalBroker() as broker:
        await broker.create_topic("T", 4)
        async with broker.client(settings=settings(tmp_path)) as client, Reading(client) as reading:
            producer = client.producer()
            await producer.send(Message("T", b"before"))
            await until(lambda: reading.bodies[b"before"])
            await broker.stop_nameserver()
            for _ in range(3):
                await broker.clock.advance(31)
                for number in range(20):
                    await producer.send(Message("T", b"%d" % number))
            await until(lambda: reading.bodies.total() == 61)
            await broker.start_nameserver()
            async with broker.client(instance="new", settings=settings(tmp_path)) as newcomer:
                with pytest.raises(Refusal):
                    await admin.topic_route(newcomer, "T")
                known: list[str] = []

                async def heard() -> bool:
                    known[:] = await admin.topic_list(newcomer)
                    return "T" in known

                await broker.clock.advance(31)
                async with asyncio.timeout(20):
                    while not await heard():
                        pass
                assert {"T", "%RETRY%g", "TBW102"} <= set(known)
                await newcomer.producer().send(Message("T", b"after"))
            await until(lambda: reading.bodies[b"after"])
            assert set(reading.places.values()) == {1}, "nobody got anything twice"


async def test_a_broker_restarts_under_a_producer_and_a_consumer(tmp_path: Path) -> None:
    """C1, C2, C5: what was acknowledged is consumed; the consumer sees each place once and no error."""
    acknowledged: list[bytes] = []
    unknown: list[bytes] = []
    unforeseen: list[RmqError] = []
    stop = asyncio.Event()

    async def produce(client: Client) -> None:
        producer, number = client.producer(), 0
        while not stop.is_set():
            number += 1
            body = b"%d" % number
            try:
                await producer.send(Message("T", body))
            except Unknown:
                unknown.append(body)
            except RmqError as error:
                unforeseen.extend([] if error.retryable else [error])
            else:
                acknowledged.append(body)

    async with LocalBroker() as broker:
        await broker.create_topic("T", 4)
        async with broker.client(settings=settings(tmp_path)) as client, Reading(client) as reading:
            producing = asyncio.create_task(produce(client))
            for _ in range(3):
                count = len(acknowledged) + 200
                await until(lambda count=count: len(acknowledged) >= count or producing.done())
                await broker.stop_broker()
                await broker.start_broker()
            count = len(acknowledged) + 200
            await until(lambda: len(acknowledged) >= count or producing.done())
            stop.set()
            await producing
            await until(lambda: reading.bodies.keys() >= set(acknowledged))
    assert unforeseen == []
    assert reading.bodies.keys() <= set(acknowledged) | set(unknown), "invented"
    assert set(reading.places.values()) == {1}
