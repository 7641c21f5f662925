"""Clients of gRPC cross a change of leaders: a broker that is away for a moment, and one that stays away."""

import asyncio

import pytest

from rmq.client import Client
from rmq.grpc.schema import v2
from rmq.grpc.seen import Seen
from rmq.grpc.service import Listening, served
from rmq.grpc.visitors import OneForAll
from rmq.model import MESSAGE_TYPE, BrokerAddresses, GroupConfig, QueueData, Route, TopicConfig
from rmq.net.commands import GetTopicConfig
from rmq.net.commands.groups import GetGroupConfig
from rmq.net.transport.server import LATER
from rmq.testing import LocalBroker
from tests.client.scripted import Broker
from tests.door.caller import HERE, Caller, door, ms, subscribing


async def test_who_receives_and_acknowledges_crosses_a_change_of_leaders() -> None:
    """Both failed at once (HA_NOT_AVAILABLE), which a simple consumer gets to hear as an exception."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T", 1)
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        await caller.send("T", b"1")
        _, held = await caller.receive("g", "T")
        await caller.send("T", b"2")
        await broker.stop_broker()
        acknowledging = asyncio.create_task(caller.ack("g", "T", *held))
        receiving = asyncio.create_task(caller.receive("g", "T", long_polling_timeout=ms(10_000)))
        await broker.start_broker()
        assert await acknowledging == [v2.Code.OK]
        code, found = await receiving
        assert (code, [message.body for message in found]) == (v2.Code.OK, [b"2"])


async def test_who_receives_hears_of_a_broker_that_stays_away() -> None:
    """Its group is waited for once, for as long as an election may take; other brokers may have something."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T", 1)
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        await broker.stop_broker()
        began_s = broker.clock.monotonic()
        for _ in range(2):
            receiving = asyncio.create_task(caller.receive("g", "T", long_polling_timeout=ms(30_000)))
            await broker.clock.advance_until(receiving.done)
            assert (await receiving)[0] == v2.Code.HA_NOT_AVAILABLE
        assert broker.clock.monotonic() - began_s < 15


async def test_who_receives_crosses_an_election_long_after_one_that_nobody_saw_the_end_of() -> None:
    """Who had heard of it asked no more. The next one counted as the same, and was told at once."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T", 1)
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        await broker.stop_broker()
        assert (await caller.receive("g", "T", long_polling_timeout=ms(0)))[0] == v2.Code.HA_NOT_AVAILABLE
        await broker.clock.advance(60)
        receiving = asyncio.create_task(caller.receive("g", "T", long_polling_timeout=ms(10_000)))
        await broker.start_broker()
        await caller.send("T", b"1")
        assert [message.body for message in (await receiving)[1]] == [b"1"]


async def test_what_was_looked_up_before_holds_while_no_broker_tells_it() -> None:
    """For half a minute only: behind that all that receives, and each route, failed with the first election."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T", 1)
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        asked = {"topic": v2.Resource(name="T"), "endpoints": caller.endpoints}
        assert (await caller.ask("QueryRoute", **asked)).status.code == v2.Code.OK
        await broker.clock.advance(60)
        await broker.stop_broker()
        assert (await caller.ask("QueryRoute", **asked)).status.code == v2.Code.OK
        receiving = asyncio.create_task(caller.receive("g", "T", long_polling_timeout=ms(10_000)))
        await broker.start_broker()
        await caller.send("T", b"1")
        assert [message.body for message in (await receiving)[1]] == [b"1"]


@pytest.mark.parametrize("how", ["is dead", "stands still"])
async def test_a_follower_tells_what_topics_and_groups_are_like_while_nobody_leads(how: str) -> None:
    """No client could begin meanwhile: neither routes nor settings were told."""
    leads, follows = await Broker(topics={"T": 1}).start(), await Broker(topics={"T": 1}).start()
    leads.also(GetGroupConfig, lambda request, call: LATER)
    leads.also(GetTopicConfig, lambda request, call: LATER)
    follows.also(GetGroupConfig, lambda request, call: GroupConfig(request.group, consume_message_orderly=True))
    follows.also(GetTopicConfig, lambda request, call: TopicConfig(request.topic, attributes={MESSAGE_TYPE: "FIFO"}))
    queues, addresses = [QueueData("a", 1, 1, 6, 0)], {0: leads.address, 1: follows.address}
    follows.route = lambda _: Route([BrokerAddresses("c", "a", addresses)], queues)
    async with Client(follows.address) as client:
        inside = OneForAll(client)
        async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
            if how == "is dead":
                await leads.stop()
            route = await caller.ask("QueryRoute", topic=v2.Resource(name="T"), endpoints=caller.endpoints, timeout_s=2.5)
            assert route.message_queues[0].accept_message_types == [v2.MessageType.FIFO]
            async with caller.telemetry(subscribing("g", "T")) as (_, answer):
                assert answer.settings.subscription.fifo
    await leads.stop()
    await follows.stop()
