"""The door before topics that do not take every message."""

from collections.abc import AsyncIterator

import pytest

from rmq.client.admin import calls as admin
from rmq.grpc.schema import v2
from rmq.testing import LocalBroker
from tests.door.caller import Caller, door

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
