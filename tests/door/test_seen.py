"""What a proxy tells of itself, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rmq.client import Client
from rmq.grpc.schema import v2
from rmq.grpc.seen import Seen
from rmq.grpc.service import Listening, served
from rmq.grpc.visitors import OneForAll
from rmq.net.commands import Ping
from rmq.testing import LocalBroker, TestClock
from tests.client.scripted import Broker
from tests.door.caller import HERE, Caller, ms, publishing
from tests.ops.test_metrics import COMMON, documented
from tests.ops.watching import exported, page, scraped, value

OWN = {"node_type": "proxy", "node_id": "here:8081"}


@asynccontextmanager
async def watched(broker: LocalBroker) -> AsyncIterator[tuple[Seen, Caller]]:
    async with broker.client() as client:
        inside = OneForAll(client)
        seen = Seen(client, inside, "here:8081")
        async with seen.looking(), served(inside, Listening(HERE, 0), seen) as port, Caller(port) as caller:
            yield seen, caller


async def ready(address: str, status: int) -> str:
    """What the page says once it has that status."""
    async with asyncio.timeout(20):
        while (found := await page(address, "/readyz"))[0] != status:
            await asyncio.sleep(0)
    return found[1]


async def test_what_was_asked_and_answered() -> None:
    async with LocalBroker() as broker, watched(broker) as (seen, caller):
        await broker.create_topic("T")
        for topic in ("T", "T", "a b"):
            await caller.send(topic, b"x")
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        await caller.receive("g", "missing")
        gone = asyncio.ensure_future(caller.receive("g", "T"))
        await asyncio.sleep(0)
        async with caller.telemetry(publishing("T")):
            found = await scraped(seen)
            assert value(found, "rmq_proxy_streams", **OWN) == 1
            gone.cancel()
        counts = {("SendMessage", "OK"): 2, ("SendMessage", "BAD_REQUEST"): 1}
        counts |= {("ReceiveMessage", "OK"): 1, ("ReceiveMessage", "TOPIC_NOT_FOUND"): 1}
        counts |= {("ReceiveMessage", "CANCELLED"): 1, ("Telemetry", "OK"): 1}
        async with asyncio.timeout(20):
            while True:
                found = await scraped(seen)
                rows = found["rmq_proxy_requests_total"].samples
                if {(row.labels["method"], row.labels["code"]): row.value for row in rows} == counts:
                    break
        took = {(row.name, row.labels["method"]): row.value for row in found["rmq_proxy_request_seconds"].samples}
        assert took["rmq_proxy_request_seconds_count", "SendMessage"] == 3
        assert ("rmq_proxy_request_seconds_count", "Telemetry") not in took
        assert value(found, "rmq_proxy_streams", **OWN) == 0


async def test_messages_that_are_kept_hidden() -> None:
    async with LocalBroker() as broker, watched(broker) as (seen, caller):
        await broker.create_topic("T")
        async with caller.telemetry(publishing("T")):
            await caller.receive("g", "T", auto_renew=True, long_polling_timeout=ms(0))
            await caller.send("T", b"x")
            _, (message,) = await caller.receive("g", "T", auto_renew=True)
            assert value(await scraped(seen), "rmq_proxy_kept_messages", **OWN) == 1
            assert await caller.ack("g", "T", message) == [v2.Code.OK]
            assert value(await scraped(seen), "rmq_proxy_kept_messages", **OWN) == 0


async def test_ready_while_a_nameserver_answers(caplog: pytest.LogCaptureFixture) -> None:
    async with LocalBroker() as broker, watched(broker) as (seen, _), exported(seen) as address:
        assert await ready(address, 200) == "ready\n"
        await broker.stop_nameserver()
        await broker.clock.advance(6)
        assert "no nameserver serves this proxy" in await ready(address, 503)
        assert "no nameserver serves this proxy" in caplog.text
        assert (await page(address, "/livez"))[0] == 200
        await broker.start_nameserver()
        await broker.clock.advance(6)
        await ready(address, 200)
        assert value(await scraped(seen), "rmq_proxy_reaches_cluster", **OWN) == 1


async def test_a_nameserver_that_stands_still_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each time it is asked the request has another number, which was part of what was compared: a line every few seconds."""
    silent = await Broker().start()
    silent.faults[Ping] = [lambda request, call: None] * 100
    clock = TestClock()
    async with Client(silent.address, clock=clock) as client, Seen(client, OneForAll(client), "door").looking():
        await clock.advance_until(lambda: len(silent.seen(Ping)) > 3)
    assert caplog.text.count("no nameserver serves this proxy") == 1
    await silent.stop()


async def test_the_documented_names_are_those_that_are_told() -> None:
    listed = {name: told for name, told in documented().items() if told[2] == "proxy"}
    async with LocalBroker() as broker, watched(broker) as (seen, caller):
        await caller.send("T", b"x")
        told = await scraped(seen)
    every = {name for name, (_, _, who) in documented().items() if who == "every"}
    assert told.keys() - every == listed.keys()
    for name, (kind, labels, _) in listed.items():
        assert told[name].type == kind
        assert {label for one in told[name].samples for label in one.labels} - COMMON == labels
