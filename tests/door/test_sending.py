"""The door before topics that do not take every message."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rmq.client import Client
from rmq.client.admin import calls as admin
from rmq.grpc.schema import v2
from rmq.grpc.seen import Seen
from rmq.grpc.service import Listening, served
from rmq.grpc.visitors import OneForAll
from rmq.model import BrokerAddresses, QueueData, Route, TopicConfig
from rmq.net.commands import GetRoute
from rmq.net.commands.topics import GetTopicConfig
from rmq.testing import LocalBroker, until
from tests.client.scripted import Broker as Scripted
from tests.door.caller import HERE, Caller, door

Code = v2.Code


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(auto_create_topic=False) as broker:
        yield broker


@pytest.fixture
async def caller(broker: LocalBroker) -> AsyncIterator[Caller]:
    async with door(broker) as port, Caller(port) as caller:
        yield caller


async def test_a_topic_that_may_not_be_written_to(broker: LocalBroker, caller: Caller) -> None:
    """The client heard after 3 s that its topic's brokers elect a leader (HA_NOT_AVAILABLE)."""
    async with broker.client() as client:
        await admin.update_topic(client, "T", broker=broker.address, perm=4)
        assert (await caller.send("T", b"x")).status.code == Code.FORBIDDEN
        await admin.update_topic(client, "T", broker=broker.address, perm=6)
        assert (await caller.send("T", b"x")).status.code == Code.OK


def of_kinds(now_ms: int) -> dict[str, dict[str, Any]]:
    """What makes a message one of a kind."""
    at = v2.SystemProperties()
    at.delivery_timestamp.FromMilliseconds(now_ms + 60_000)
    return {
        "NORMAL": {},
        "FIFO": {"message_group": "g"},
        "DELAY": {"delivery_timestamp": at.delivery_timestamp},
        "TRANSACTION": {"kind": v2.MessageType.TRANSACTION},
        "PRIORITY": {"priority": 1},
    }


@pytest.mark.parametrize("made_for", ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED", ""])
async def test_a_topic_made_for_one_kind_takes_no_other(broker: LocalBroker, caller: Caller, made_for: str) -> None:
    """It took all of them. RocketMQ's proxy refuses them (enableTopicMessageTypeCheck, on by default)."""
    async with broker.client() as client:
        attributes = f"+message.type={made_for}" if made_for else ""
        await admin.update_topic(client, "T", broker=broker.address, attributes=attributes)
    for kind, fields in of_kinds(broker.clock.wall_ms()).items():
        status = (await caller.send("T", b"x", **fields)).status
        taken = made_for in ("MIXED", "", kind)
        assert status.code == (Code.OK if taken else Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE), status.message


async def test_a_send_waits_for_the_leader_that_could_say_what_its_topic_takes() -> None:
    electing = await Scripted(topics={"T": 1}).start()
    queues = [QueueData("a", 1, 1, 6)]
    electing.route = lambda topic: Route([BrokerAddresses("c", "a", {1: electing.address})], queues)
    electing.also(GetTopicConfig, lambda request, call: TopicConfig("T"))
    async with Client(electing.address) as client:
        inside = OneForAll(client)
        async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
            sending = asyncio.create_task(caller.send("T", b"x"))
            await until(lambda: len(electing.seen(GetRoute)) > 2)
            electing.route = electing.own_route
            assert (await sending).status.code == Code.OK
    await electing.stop()
