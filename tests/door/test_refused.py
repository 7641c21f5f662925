"""The door before a broker that refuses what it asks."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rmq.client import Client
from rmq.errors import Refusal
from rmq.grpc.schema import v2
from rmq.grpc.seen import Seen
from rmq.grpc.service import Listening, served
from rmq.grpc.visitors import OneForAll
from rmq.net.commands.pop import Ack
from rmq.net.commands.retries import SendBack
from rmq.net.transport.server import Call
from tests.client.scripted import Broker
from tests.door.caller import HERE, Caller

OK = v2.Code.OK
G, T = v2.Resource(name="g"), v2.Resource(name="T")


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = await Broker(topics={"T": 1}).start()
    broker.also(Ack, refused)
    yield broker
    await broker.stop()


@pytest.fixture
async def caller(broker: Broker) -> AsyncIterator[Caller]:
    async with Client(broker.address) as client:
        inside = OneForAll(client)
        async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
            yield caller


def refused(request: Any, call: Call) -> None:
    raise Refusal(1, "by the test")


async def test_a_dead_letter_whose_message_could_not_be_acknowledged(broker: Broker, caller: Caller) -> None:
    """It is one. The client was told that it is none, and made another one."""
    asked = {"group": G, "topic": T, "receipt_handle": "0 0 0 60000 0 0 a 0 0"}
    answer = await caller.ask("ForwardMessageToDeadLetterQueue", **asked)
    assert (answer.status.code, len(broker.seen(SendBack))) == (OK, 1)
